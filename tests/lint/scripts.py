# SPDX-License-Identifier: Apache-2.0
"""Shell scripts pass shellcheck, manual pages pass mandoc's lint.

A tool that is not installed is a failure: a check that does not run is how scripts rot unseen.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

SHEBANG = re.compile(r"^#!\s*/(usr/)?bin/(env\s+)?(ba|da)?sh\b")
SCRIPT_DIRS = ("packaging/", "bench/", ".ci/", "tests/")
MAN_DIR = "packaging/man/"


def is_script(name, root):
    if not name.startswith(SCRIPT_DIRS):
        return False
    with open(os.path.join(root, name), "rb") as file:
        first = file.readline(200).decode("utf-8", "replace")
    return name.endswith((".sh", ".bash")) or bool(SHEBANG.match(first))


def run(command, root):
    """The tool's complaints as lines; a tool that is missing is a complaint as well."""
    try:
        out = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                             errors="replace")
    except OSError as e:
        return [f"cannot run {command[0]}: {e.strerror}"]
    if out.returncode == 0:
        return []
    return out.stdout.splitlines() or [f"{command[0]} ended with {out.returncode}"]


def check_scripts(root, tool="shellcheck"):
    names = [n for n in tap.tree_files(root) if is_script(n, root)]
    return run([tool, "--"] + names, root) if names else []


def check_manuals(root, tool="mandoc"):
    names = [n for n in tap.tree_files(root) if n.startswith(MAN_DIR) and re.search(r"\.[1-9]$", n)]
    return run([tool, "-T", "lint", "-W", "warning"] + names, root) if names else []


GOOD_MAN = """.Dd January 1, 2026
.Dt NAME 1
.Os
.Sh NAME
.Nm name
.Nd does something
.Sh DESCRIPTION
Text.
"""


def self_test():
    good = {"packaging/a.sh": '#!/bin/sh\necho "$1"\n', "bench/run": "#!/usr/bin/env bash\ntrue\n",
            "src/not-looked-at.sh": "#!/bin/sh\necho $1\n", "packaging/man/name.1": GOOD_MAN}
    with tap.MadeUpTree(good) as root:
        tap.no_findings(check_scripts(root) + check_manuals(root), "a made-up tree in good order is clean")
        tap.finds(check_scripts(root, "no-such-tool"), "cannot run", "a missing shellcheck is a failure")
        tap.finds(check_manuals(root, "no-such-tool"), "cannot run", "a missing mandoc is a failure")
    for name in ("packaging/b.sh", "bench/deep/b.bash", ".ci/b"):
        with tap.MadeUpTree({name: "#!/bin/bash\nrm $1\n"}) as root:
            tap.finds(check_scripts(root), "SC2086", f"an unquoted variable in {name} is found")
    with tap.MadeUpTree({"packaging/man/b.8": GOOD_MAN + ".Xyz\n"}) as root:
        tap.finds(check_manuals(root), "Xyz", "an unknown macro in a manual page is found")


self_test()
tap.no_findings(check_scripts(tap.ROOT), "the scripts of the tree pass shellcheck")
tap.no_findings(check_manuals(tap.ROOT), "the manual pages of the tree pass mandoc's lint")
tap.done()
