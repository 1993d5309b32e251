# SPDX-License-Identifier: Apache-2.0
"""clairfs umount says what it waits for, gives up when it was told to, and forces nothing; a mount that fails says why, also
where fusermount3 has the reason."""
import mmap
import os
import signal
import subprocess

import mountkit
import tap
from mountkit import CLAIRFS, clairfs, environment, mount_type, program

NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def is_one_line(done, *parts):
    return done.code == 1 and len(done.lines) == 1 and not done.out and all(p in done.lines[0] for p in parts)


def busy(place):
    data = place.files([3000, 70000])
    name, me = sorted(data)[0], f"({os.getpid()}, "
    with place.mount() as mount:
        with open(mount.path(name), "rb"), open(mount.path(name), "rb"):
            done = clairfs("umount", place.mnt)
            tap.ok(done.code == 1 and len(done.lines) == 2 and "waiting: " in done.lines[0] and f"{me}2 open files)" in done.lines[0]
                   and "still mounted, in use by" in done.lines[1] and f"{me}2 open files)" in done.lines[1],
                   "a busy mount: who has files open is said while waiting, and at the end", done)
            done = clairfs("umount", "--timeout", 1, place.mnt)
            tap.ok(is_one_line(done, "still mounted, in use by", f"{me}2 open files)", "-l"), "--timeout 1: one line says so", done)
        tap.ok(mount.read(name) == data[name], "the mount was left as it was")
        with open(mount.path(name), "rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        # Python's map holds a descriptor of its own: it is an open file as well.
        done = clairfs("umount", "--timeout", 0, place.mnt)
        tap.ok(is_one_line(done, me), "--timeout 0 tries once, and finds a file that is mapped", done)
        mapped.close()
        here = subprocess.Popen(["sleep", "1000"], cwd=place.mnt)
        try:
            done = clairfs("umount", "--timeout", 0, place.mnt)
            tap.ok(is_one_line(done, f"sleep ({here.pid}, current directory)"), "a current directory is named", done)
        finally:
            here.kill()
            here.wait()
        with open(mount.path(name), "rb"):
            waiting = subprocess.Popen([CLAIRFS, "umount", "--timeout", "100", place.mnt], stderr=subprocess.PIPE)
            said = waiting.stderr.readline()
            tap.ok(b"waiting: " in said and me.encode() in said, "one that waits longer says so once", said)
        tap.ok(waiting.wait(mountkit.DEADLINE) == 0 and waiting.stderr.read() == b"", "and unmounts when the file is closed")
        waiting.stderr.close()
        mount.wait()
    for bad in ("-1", "x", "1e3", "99999999", ""):
        done = clairfs("umount", f"--timeout={bad}", place.mnt)
        tap.ok(done.code == 2 and len(done.lines) == 1 and "--timeout" in done.lines[0], f"--timeout={bad} is refused", done)


def hung(place):
    place.files([3000])
    with place.mount() as mount:
        mountkit.send(mount.process, signal.SIGSTOP)
        try:
            done = clairfs("umount", "--timeout", 1, place.mnt)
            tap.ok(is_one_line(done, "its daemon hangs", "-l"), "a daemon that hangs: --timeout 1 says so", done)
            done = clairfs("umount", "--timeout", 5, place.mnt)
            tap.ok(done.code == 1 and len(done.lines) == 2 and "waiting: the daemon of" in done.lines[0]
                   and "does not answer" in done.lines[0], "after three seconds it says what it waits for", done)
        finally:
            mountkit.send(mount.process, signal.SIGCONT)


def ends_late(place):
    """A daemon that waits for a filesystem that hangs, of which it has a file to take away."""
    place.files([3000])
    os.mkdir(place.path("other"))
    with mountkit.Slowfs(place, place.path("other"), place.path("slow")) as slow:
        with place.mount(metrics_textfile=place.path("slow", "x.prom"), debug={"metrics_interval": 1}) as mount:
            mountkit.send(slow.process, signal.SIGSTOP)
            try:
                waiting = subprocess.Popen([CLAIRFS, "umount", "--timeout", "100", place.mnt], stderr=subprocess.PIPE)
                said = waiting.stderr.readline()
                tap.ok(b"waiting: " in said and f"is unmounted, its daemon ({mount.process.pid})".encode() in said,
                       "that the daemon still has to end is said after three seconds", said)
            finally:
                mountkit.send(slow.process, signal.SIGCONT)
            tap.ok(waiting.wait(mountkit.DEADLINE) == 0 and waiting.stderr.read() == b"", "and umount waits for it")
            waiting.stderr.close()
            mount.wait()


def of_another_user(place):
    place.files([3000])
    with place.mount() as mount:
        for more in ((), ("-l",)):
            done = program(*NOBODY, CLAIRFS, "umount", *more, place.mnt)
            tap.ok(is_one_line(done, f"not permitted: {place.mnt} was mounted by uid 0"),
                   f"umount {' '.join(more)} of another user's mount is not permitted", done)
        tap.equal(mount_type(place.mnt), "fuse.clairfs", "it is still there")
        mount.stats()


def in_namespace(place, script, *arguments):
    """In a mount namespace of its own, as root: nothing of it is seen outside."""
    return program("unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *arguments, env=environment(place))


def fusermount_says_why(place):
    """A user whom /etc/fuse.conf does not allow what he asks for."""
    place.files([3000])
    for folder in (place.snapshots, place.mnt):
        os.chown(folder, 65534, 65534)
    for node in ("fuse.conf", "fuse"):
        with open(place.path(node), "w", encoding="ascii"):
            pass
    os.mknod(place.path("device"), 0o020666, os.makedev(10, 229))
    os.chmod(place.path("device"), 0o666)
    script = ('mount --bind "$1/device" /dev/fuse; mount --bind "$1/fuse.conf" /etc/fuse.conf; shift; '
              'exec "$@"')
    command = [CLAIRFS, "mount", "-o", f"allow_other=on,ram=64M,snapshot_dir={place.snapshots}", place.source, place.mnt]
    done = in_namespace(place, script, place.root, *NOBODY, *command)
    tap.ok(is_one_line(done, "cannot mount", "fusermount3", "user_allow_other"), "the reason of fusermount3 is the reason", done)
    os.unlink(place.path("device"))


mountkit.run(busy, hung, ends_late, of_another_user, fusermount_says_why)
