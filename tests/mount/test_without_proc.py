# SPDX-License-Identifier: Apache-2.0
"""Where /proc is not mounted, what needs it says so, and what does not works. (A sanitizer needs it for itself.)"""
import mountkit
import tap
from mountkit import CLAIRFS, environment, mount_type, program, read_file, wait_until


def is_one_line(done, *parts):
    return done.code == 1 and len(done.lines) == 1 and not done.out and all(p in done.lines[0] for p in parts)


def in_namespace(place, script, *arguments):
    """In a mount namespace of its own, as root: nothing of it is seen outside."""
    return program("unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *arguments, env=environment(place))


def without_proc(place):
    place.files([3000])
    script = 'umount -l /proc; exec "$@"'
    with place.mount():
        for command in (("umount", place.mnt), ("status", place.mnt), ("announce", place.mnt, "none")):
            done = in_namespace(place, script, CLAIRFS, *command)
            tap.ok(is_one_line(done, "/proc"), f"clairfs {command[0]} without /proc says that it is needed", done)
    options = ("-o", f"ram=64M,snapshot_dir={place.snapshots}")
    done = in_namespace(place, script, CLAIRFS, "mount", *options, place.source, place.mnt)
    tap.ok(is_one_line(done, "/proc"), "clairfs mount without /proc says that it is needed", done)
    tap.equal(mount_type(place.mnt), None, "nothing is mounted")
    for command in (("index", place.source), ("order", "sequential", "--n", "3"), ("caps",)):
        done = in_namespace(place, script, CLAIRFS, *command)
        tap.ok(done.code == 0 and not done.err and done.out, f"clairfs {command[0]} does without /proc", done)
    tap.ok(read_file("/proc/self/stat"), "this machine's own /proc is where it was")
    wait_until(lambda: mount_type(place.mnt) is None, "nothing is left")


mountkit.run(without_proc)
