# SPDX-License-Identifier: Apache-2.0
"""Installed by an ordinary user below a prefix: nothing is written elsewhere, it works, and it still does where it was moved
to, with the modulefile that lies in it."""
import os
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount")]
import mountkit
import packagekit
import tap

USER = 65534


class Home:
    """A directory of the user's, and programs that run as the user."""

    def __init__(self, place):
        self.place, self.root = place, place.path("home")
        os.mkdir(self.root)

    def own(self):
        subprocess.run(["chown", "-R", f"{USER}:{USER}", self.root], check=True)

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def run(self, what, *argv, **env):
        env = packagekit.clean_env(self.place, HOME=self.root, TMPDIR=self.root, **env)
        done = mountkit.program("setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", *argv, cwd=self.root,
                                timeout=packagekit.TIMEOUT, env=env)
        if not tap.ok(done.code == 0, what, done.out.decode(errors="replace")[-4000:], done.err.decode(errors="replace")):
            raise mountkit.Failed(what)
        return done.out.decode()

    def shell(self, what, script):
        return self.run(what, "/bin/bash", "-ec", script)


def installed(root):
    return sorted(os.path.relpath(os.path.join(folder, name), root) for folder, _, names in os.walk(root) for name in names)


def prefix(place):
    home = Home(place)
    version = packagekit.write_version(place)
    subprocess.run(["tar", "-xzf", place.path(f"clairfs-{version}.tar.gz"), "-C", home.root], check=True)
    home.own()
    home.run("meson sets it up", "meson", "setup", "build", f"clairfs-{version}", f"--prefix={home.path('first')}", "-Dtests=false")
    home.run("ninja builds it", "ninja", "-C", "build")
    home.run("it installs without root", "meson", "install", "-C", "build", "--no-rebuild")
    first = installed(home.path("first"))
    tap.ok({"bin/clairfs", "include/clairfs/hint.h", "sbin/mount.clairfs"} <= set(first), "below the prefix", first)
    script = mountkit.read_file(home.path("first/share/clairfs/slurm/prolog.sh")).decode()
    tap.ok(f"\nclairfs=\"{home.path('first/bin/clairfs')}\"\n" in script, "Slurm's hooks call the program of the prefix", script)
    home.run("and into DESTDIR", "meson", "install", "-C", "build", "--no-rebuild", DESTDIR=home.path("destdir"))
    tap.equal(installed(home.path("destdir") + home.path("first")), first, "where it is the same")
    tap.equal(len(installed(home.path("destdir"))), len(first), "and nothing lies beside it")
    home.run("the Python module installs below the prefix", "python3", "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation",
             "--target", home.path("first", "share/clairfs/python"), f"clairfs-{version}/packaging/python")
    moved(place, home, version)


def moved(place, home, version):
    os.rename(home.path("first"), home.path("elsewhere"))
    os.rename(home.path("build"), home.path("build-gone"))
    packagekit.make_source(place)
    os.mkdir(home.path("mnt"))
    home.own()
    home.shell("moved, it runs, and an ordinary user mounts with it",
               "elsewhere/bin/clairfs caps\n"
               f"elsewhere/bin/clairfs mount -o ram=64M {place.source} mnt\n"
               "trap 'elsewhere/bin/clairfs umount -l mnt' EXIT\n"
               f"diff -r {place.source} mnt\ntrap - EXIT\nelsewhere/bin/clairfs umount mnt")
    load = f"eval \"$(modulecmd bash use {home.path('elsewhere/share/clairfs/modulefiles')})\"; eval \"$(modulecmd bash load clairfs)\"\n"
    tap.equal(home.shell("the modulefile loads from where the tree is now", load + "clairfs --version >&2; command -v clairfs; man -w clairfs").split(),
              [home.path("elsewhere/bin/clairfs"), home.path("elsewhere/share/man/man1/clairfs.1")], "and finds program and page there")
    home.shell("the moved workloads are found with it",
               load + "clairfs simulate --workload resnet50 --samples 100 --epochs 1 --cache-bytes 1M")
    tap.equal(home.shell("and the Python module", load + "cd /; python3 -c 'import clairfs; print(clairfs.__file__)'").strip(),
              home.path("elsewhere/share/clairfs/python/clairfs/__init__.py"), "which is the moved one")
    home.shell("unloading takes all of it away", load + "eval \"$(modulecmd bash unload clairfs)\"\n! command -v clairfs; test -z \"$CLAIRFS_WORKLOADS\"")


mountkit.run(prefix)
