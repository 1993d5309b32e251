# SPDX-License-Identifier: Apache-2.0
"""Only the version, which meson.build decides; all else is in pyproject.toml."""
import pathlib
import re

from setuptools import setup

here = pathlib.Path(__file__).resolve().parent


def version():
    """A source distribution of the module alone has no meson.build, but says what it was made of."""
    made = here / "PKG-INFO"
    if made.is_file():
        return re.search(r"^Version: (\S+)$", made.read_text(encoding="utf-8"), re.M)[1]
    return re.search(r"^project\(.* version: '([^']+)'", (here / "../../meson.build").read_text(encoding="utf-8"), re.M)[1]


setup(version=version())
