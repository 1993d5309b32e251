# SPDX-License-Identifier: Apache-2.0
"""Packages for tests: built from this tree, installed into a copy of the system that is gone afterwards.

The copy is an overlay over /, with its changes in memory, in namespaces of its own: a package is installed by dpkg or rpm
as on any machine, dependencies and all, and neither this machine nor a package that it has notices.
"""
import os
import subprocess

import mountkit
import tap

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"  # the distribution's tools; its Python has the modules that packages need
TIMEOUT = 1800  # of a build, on a machine that does other things as well

COPY = r"""
set -e
cd "$1"
mkdir copy
mount -t tmpfs -o mode=755 copy copy
mkdir copy/changes copy/work copy/root
mount -t overlay -o lowerdir=/,upperdir=copy/changes,workdir=copy/work copy copy/root
mount -t proc proc copy/root/proc
mount --rbind /dev copy/root/dev
mount --rbind /sys copy/root/sys
mount --bind "$1" copy/root/mnt
exec chroot copy/root /bin/bash /mnt/steps
"""


def clean_env(place, **more):
    """What a shell of the user has, not what meson gives to tests."""
    return {"PATH": PATH, "HOME": place.root, "TMPDIR": place.root, "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1", **more}


def build(place, what, script, *arguments):
    """Runs a script of packaging/; the directory it is told is in the place. Returns the names of what was built."""
    out = place.path("packages")
    os.mkdir(out)
    done = mountkit.program(tap.ROOT / "packaging" / script, out, *arguments, timeout=TIMEOUT, env=clean_env(place))
    text = (done.out + done.err).decode(errors="replace")
    if not tap.ok(done.code == 0, what, text[-6000:]):
        raise mountkit.Failed(f"{script} failed")
    return sorted(os.listdir(out))


def in_a_copy(place, steps):
    """Runs (name, commands of bash) one after the other in a copy of the system; each is a test point. The place is /mnt."""
    script = [f"export PATH={PATH} LC_ALL=C.UTF-8 DEBIAN_FRONTEND=noninteractive PYTHONDONTWRITEBYTECODE=1"]
    for number, (_, commands) in enumerate(steps):
        script += [f"echo '@@ {number}'", f"( set -e\n{commands}\n) </dev/null 2>&1; echo \"@= $?\""]
    mountkit.write_file(place.path("steps"), "\n".join(script).encode())
    done = mountkit.program("unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/bash", "-c", COPY, "copy", place.root,
                            timeout=TIMEOUT)
    parts = done.out.decode(errors="replace").split("@@ ")[1:]
    for (name, _), part in zip(steps, parts):
        tap.ok(part.rstrip().endswith("@= 0"), name, part)
    tap.equal(len(parts), len(steps), f"a copy of the system ran all steps ({done.err.decode(errors='replace')[-2000:]!r})")


def make_source(place):
    """A source that the steps find as /mnt/source; everybody may read it."""
    data = place.files([100, 5000, 70000])
    subprocess.run(["chmod", "-R", "a+rX", place.source], check=True)
    return data


# What whoever has just installed the program does with it.
USE = [
    ("the installed program has the version of meson.build", 'test "$(/usr/bin/clairfs --version)" = "clairfs $(cat /mnt/version)"'),
    ("clairfs caps runs", "clairfs caps"),
    ("clairfs simulate finds the workloads", "clairfs simulate --workload resnet50 --samples 100 --epochs 1 --cache-bytes 1M"),
    ("mount(8) finds the helper, and every byte is the source's",
     "mount -t clairfs -o ram=64M,snapshot_dir=/mnt/snapshots /mnt/source /mnt/mnt\n"
     "trap 'clairfs umount -l /mnt/mnt' EXIT\n"
     "diff -r /mnt/source /mnt/mnt\ntrap - EXIT\nclairfs umount /mnt/mnt"),
    ("there is a manual page", "ls /usr/share/man/man1/clairfs.1*"),
    ("Slurm's hooks call the installed program",
     "for hook in prolog epilog task-prolog; do grep -qx 'clairfs=\"/usr/bin/clairfs\"' /usr/share/clairfs/slurm/$hook.sh; done"),
]


def write_version(place):
    version = mountkit.program(tap.ROOT / "packaging" / "tarball", place.root, env=clean_env(place))
    mountkit.write_file(place.path("version"), version.out)
    return version.out.decode().strip()
