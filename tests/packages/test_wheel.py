# SPDX-License-Identifier: Apache-2.0
"""The Python module as a wheel: pip builds it without a network, it installs into an environment of its own, and the tests
of the module pass with what was installed."""
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount")]
import mountkit
import packagekit
import tap

TESTS = ("test_hook", "test_report")


def run(place, what, *argv, **env):
    done = mountkit.program(*argv, cwd=place.root, timeout=packagekit.TIMEOUT, env=packagekit.clean_env(place, **env))
    if not tap.ok(done.code == 0, what, done.out.decode(errors="replace"), done.err.decode(errors="replace")):
        raise mountkit.Failed(what)
    return done.out.decode()


def wheel(place):
    version = packagekit.write_version(place)
    run(place, "the tarball unpacks", "tar", "-xzf", f"clairfs-{version}.tar.gz")
    run(place, "pip builds a wheel of what lies in the tree", "python3", "-m", "pip", "wheel", "--no-index", "--no-deps",
        "--no-build-isolation", "--wheel-dir", "wheels", f"clairfs-{version}/packaging/python")
    tap.equal(os.listdir(place.path("wheels")), [f"clairfs-{version}-py3-none-any.whl"], "it is for any Python and machine, in the version of meson.build")
    run(place, "an environment is made", "python3", "-m", "venv", "venv")
    run(place, "it installs there", "venv/bin/pip", "install", "--no-index", place.path("wheels", f"clairfs-{version}-py3-none-any.whl"))
    site = run(place, "it imports", "venv/bin/python", "-c",
               "import os, clairfs; print(os.path.dirname(os.path.dirname(clairfs.__file__)))").strip()
    tap.ok(site.startswith(place.path("venv")), "from the environment", site)
    sources = sorted(n for n in os.listdir(tap.ROOT / "packaging/python/clairfs") if n.endswith(".py"))
    tap.equal(sorted(n for n in os.listdir(os.path.join(site, "clairfs")) if n.endswith(".py")), sources, "with every file of the module")
    the_tests_pass(place, site)


def the_tests_pass(place, site):
    """They look for the module in packaging/python of a tree: here a tree whose module is the installed one."""
    os.makedirs(place.path("tree", "packaging"))
    os.symlink(site, place.path("tree", "packaging", "python"))
    for name in TESTS:
        run(place, f"{name} passes with the installed module", "venv/bin/python", tap.ROOT / "tests" / "mount" / f"{name}.py",
            CLAIRFS=mountkit.CLAIRFS, CLAIRFS_SLOWFS=mountkit.SLOWFS, CLAIRFS_SOURCE=place.path("tree"),
            PYTHONPATH=str(tap.ROOT / "tests" / "lib"))


mountkit.run(wheel)
