# SPDX-License-Identifier: Apache-2.0
"""From mount to umount, whoever mounts and however it ends."""
import contextlib
import errno
import fcntl
import json
import os
import shutil
import signal
import stat
import subprocess

import guard
import mountkit
import tap
from mountkit import CLAIRFS, Crew, clairfs, environment, good, mount_type, program, read_file, rng, wait_until, write_file

NOBODY = ("runuser", "-u", "nobody", "--")


def pid_of(place):
    return json.loads(read_file(place.path("mnt", ".clairfs", "stats.json")))["pid"]


def background(place, *more, **kwargs):
    """clairfs mount without -f: returns when it is ready."""
    return clairfs("mount", "-o", f"snapshot_dir={place.snapshots},ram=64M", *more, place.source, place.mnt,
                   env=environment(place), **kwargs)


def is_running(pid):
    """A process that has ended and waits for its parent's interest is not."""
    try:
        return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


def all_equal(place, data):
    return all(read_file(place.path("mnt", name)) == content for name, content in data.items())


def returns_when_ready(place):
    data = place.files([100, 5000, 70000])
    done = background(place)
    # Complete output means that the daemon does not hold the pipes: program() waits for their end.
    tap.ok(done.code == 0 and not done.out and not done.err, "mount succeeds, silently, and lets go of its pipes", done)
    tap.equal(mount_type(place.mnt), "fuse.clairfs", "it is mounted when mount returns")
    tap.ok(all_equal(place, data), "it answers when mount returns")
    pid = pid_of(place)
    tap.equal((os.getpgid(pid), os.getsid(pid)), (pid, pid), "the daemon leads a session of its own")
    tap.equal(os.readlink(f"/proc/{pid}/cwd"), "/", "the daemon keeps no directory in use")
    done = clairfs("umount", place.mnt)
    tap.ok(done.code == 0 and not done.out and not done.err, "umount succeeds, silently", done)
    tap.ok(not is_running(pid), "the daemon has ended when umount returns")
    tap.equal(mount_type(place.mnt), None, "nothing is mounted afterwards")


def a_refused_snapshot_dir_is_told(place):
    """In the foreground, and when the log goes elsewhere: each mount would scan the source again."""
    place.files([10, 20000])
    open_to_all, owned = place.path("open to all"), place.path("nobody's")
    for path, mode in ((open_to_all, 0o755), (owned, 0o700)):
        os.mkdir(path)
        os.chmod(path, mode)
    os.chown(owned, 65534, 65534)
    for path, shown in ((open_to_all, "open to all"), (owned, "nobody's")):
        want = shown + " must belong to the user and have mode 0700"
        done = clairfs("mount", "-o", f"snapshot_dir={path},ram=64M", place.source, place.mnt, env=environment(place))
        tap.ok(done.code == 0 and len(done.lines) == 1 and "warning" in done.lines[0] and want in done.lines[0],
               f"{shown}: one line on the terminal", done)
        lines = [line for line in good("status", place.mnt).decode().splitlines() if want in line]
        tap.equal(len(lines), 1, "and one in status")
        why = json.loads(read_file(place.path("mnt", ".clairfs", "stats.json")))["dataset"]["snapshot_why"]
        tap.ok(why.endswith(want), "and in stats.json", why)
        good("umount", place.mnt)
        with place.mount(snapshot_dir=path) as mount:
            lines = [line for line in mount.text().splitlines() if want in line]
            tap.ok(len(lines) == 1 and "warning" in lines[0], "one line of the log in the foreground", mount.text())
        tap.equal(os.listdir(path), [], "nothing is written there")


def ten_cycles(place):
    data = place.files([10, 20000])
    descriptors = len(os.listdir("/proc/self/fd"))
    results = []
    for _ in range(10):
        results.append(background(place).code == 0 and all_equal(place, data))
        results.append(clairfs("umount", place.mnt).code == 0)
    tap.equal(results, [True] * 20, "ten times mount, read, umount")
    tap.equal(guard.mounts_below(place.root), [], "no mount is left")
    tap.equal(len(os.listdir("/proc/self/fd")), descriptors, "the test itself has kept nothing open")


def signals_unmount(place):
    data = place.files([3000, 4000])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with place.mount() as mount:
            same = all_equal(place, data)
            mountkit.send(mount.process, number)
            mount.wait()
            tap.ok(same and mount_type(place.mnt) is None, f"{number.name} unmounts and ends with 0", mount.text())
    # A file that is open does not keep the daemon: whoever has it open gets an error later, not a hang.
    with place.mount() as mount:
        fd = os.open(mount.path("s00000.bin"), os.O_RDONLY)
        try:
            mountkit.send(mount.process, signal.SIGTERM)
            mount.wait()
            tap.equal(mount_type(place.mnt), None, "SIGTERM unmounts although a file is open")
        finally:
            os.close(fd)


def signals_while_reading(place):
    place.files([200000] * 40)
    crew = Crew()
    with place.mount() as mount:
        def reader():
            try:
                while not crew.is_over.is_set():
                    for name in sorted(os.listdir(place.source)):
                        read_file(mount.path(name))
            except OSError:
                pass  # the mount is gone, which is what this is about
        for _ in range(4):
            crew.add(reader)
        mount.wait_for(lambda s: s["counters"]["source_reads"] > 20, "readers are at work")
        mountkit.send(mount.process, signal.SIGTERM)
        mount.wait()
        tap.equal(mount_type(place.mnt), None, "SIGTERM unmounts under four readers")
        tap.no_findings(crew.stop(), "the readers come back")


def killed(place):
    data = place.files([3000, 4000])

    def kill():
        mount = place.mount(store_dir=place.store, store_keep="off", store_keep_free=0, store_bytes="16M")
        all_equal(place, data)
        mountkit.send(mount.process, signal.SIGKILL)
        mount.process.wait(mountkit.DEADLINE)
        wait_until(lambda: is_dead(place), "the mount is dead")
    kill()
    tap.equal(os.listdir(place.store), [], "a killed daemon leaves nothing in the store's directory")
    done = clairfs("status", place.mnt)
    tap.ok(done.code == 1 and len(done.lines) == 1 and "dead" in done.lines[0], "status says that the mount is dead", done)
    done = clairfs("umount", place.mnt)
    tap.ok(done.code == 0 and mount_type(place.mnt) is None, "umount takes a dead mount down", done)
    tap.ok(background(place).code == 0 and all_equal(place, data), "a new mount works after that")
    tap.equal(clairfs("umount", place.mnt).code, 0, "it unmounts")
    kill()
    tap.equal(clairfs("umount", "-l", place.mnt).code, 0, "umount -l takes a dead mount down, too")
    kill()
    done = background(place)
    tap.ok(done.code == 0 and all_equal(place, data), "a new mount clears a dead one", done)
    tap.equal(clairfs("umount", place.mnt).code, 0, "it unmounts, too")
    tap.ok(mount_type(place.mnt) is None, "nothing of the dead mount is left below it")


def is_dead(place):
    """Asked with a name that the kernel does not know."""
    try:
        os.stat(place.path("mnt", ".clairfs", f"nothing-{rng.random()}"))
        return False
    except OSError as e:
        return e.errno == errno.ENOTCONN


def unmounted_from_outside(place):
    data = place.files([3000, 4000])
    with place.mount() as mount:
        same = all_equal(place, data)
        done = program("umount", place.mnt)
        mount.wait()
        tap.ok(same and done.code == 0, "umount(8) ends the daemon with 0", done)
    with place.mount() as mount:
        with open(mount.path("s00000.bin"), "rb"):
            done = clairfs("umount", "--timeout", 1, place.mnt)
            tap.ok(done.code == 1 and len(done.lines) == 1 and "in use" in done.lines[0], "a busy mount stays, and says why",
                   done)
            tap.ok(all_equal(place, data), "it still works then")
            done = clairfs("umount", "-l", place.mnt)
            tap.ok(done.code == 0 and mount_type(place.mnt) is None, "umount -l detaches a busy mount", done)
        mount.wait()
        tap.ok(True, "the daemon ends when the last file is closed")


def as_mount_helper(place):
    data = place.files([3000])
    helper = place.path("mount.clairfs")
    os.symlink(CLAIRFS, helper)
    done = program(helper, place.source, place.mnt, "-o",
                   f"ro,_netdev,nofail,x-systemd.automount,nosuid,snapshot_dir={place.snapshots},ram=64M",
                   env=environment(place))
    tap.ok(done.code == 0 and all_equal(place, data), "mount.clairfs mounts with the options of mount(8)", done)
    flags = os.statvfs(place.mnt).f_flag
    tap.ok(flags & os.ST_RDONLY and flags & os.ST_NOSUID and flags & os.ST_NODEV, "the mount is ro,nosuid,nodev")
    tap.equal(clairfs("umount", place.mnt).code, 0, "it unmounts")
    done = program(helper, place.source, place.mnt, "-o", f"rw,suid,dev,snapshot_dir={place.snapshots}", env=environment(place))
    flags = os.statvfs(place.mnt).f_flag
    tap.ok(done.code == 0 and flags & os.ST_RDONLY, "what mount(8) adds by itself is passed over; the mount is read-only", done)
    tap.equal(clairfs("umount", place.mnt).code, 0, "it unmounts again")
    done = clairfs("mount", "-o", "rw", place.source, place.mnt)
    tap.ok(done.code == 2 and len(done.lines) == 1 and "read-only" in done.lines[0], "clairfs mount -o rw is refused", done)
    done = program(helper, "-f", place.source, place.mnt, "-o", "ro", env=environment(place))
    tap.ok(done.code == 0 and mount_type(place.mnt) is None, "-f of mount(8), which means fake, mounts nothing", done)


def nothing_can_be_written(place):
    data = place.files([3000])
    with place.mount() as mount:
        refused = []
        for action in (lambda: os.open(mount.path("s00000.bin"), os.O_WRONLY), lambda: os.unlink(mount.path("s00000.bin")),
                       lambda: os.mkdir(mount.path("new")), lambda: os.truncate(mount.path("s00000.bin"), 0),
                       lambda: os.chmod(mount.path("s00000.bin"), 0o600), lambda: os.link(mount.path("s00000.bin"),
                       mount.path("link")), lambda: os.symlink("a", mount.path("b")),
                       lambda: os.rename(mount.path("s00000.bin"), mount.path("c"))):
            try:
                action()
                refused.append("done")
            except OSError as e:
                refused.append(e.errno)
        tap.equal(refused, [errno.EROFS] * len(refused), "whatever would write is refused with EROFS")
        tap.ok(all_equal(place, data), "nothing has changed")


@contextlib.contextmanager
def open_dev_fuse():
    """/dev/fuse usable by everybody, as on most systems, for the time of one test; one test at a time."""
    fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        mode = stat.S_IMODE(os.stat("/dev/fuse").st_mode)
        guard.tell(f"mode /dev/fuse {mode:o}")
        os.chmod("/dev/fuse", 0o666)
        try:
            yield
        finally:
            os.chmod("/dev/fuse", mode)
    finally:
        os.close(fd)


def of_an_ordinary_user(place):
    data = place.files([3000, 4000, 0])
    write_file(place.path("source", "secret"), b"for root only")
    os.chmod(place.path("source", "secret"), 0)
    # The build may lie where other users may not look.
    shutil.copy(CLAIRFS, place.path("clairfs"))
    os.chmod(place.path("clairfs"), 0o755)
    os.chmod(place.root, 0o777)
    for folder in (place.mnt, place.store, place.path("home")):
        os.makedirs(folder, exist_ok=True)
        shutil.chown(folder, "nobody")
    env = environment(place)
    env.pop("XDG_CACHE_HOME", None)

    def as_nobody(*argv):
        return program(*NOBODY, "env", "HOME=" + place.path("home"), *argv, env=env, cwd="/")
    with open_dev_fuse():
        done = as_nobody(place.path("clairfs"), "mount", "-o", f"ram=64M,store_dir={place.store},store_keep=off,store_keep_free=0,"
                         "store_bytes=16M", place.source, place.mnt)
        tap.ok(done.code == 0, "an ordinary user can mount", done)
    reads = [as_nobody("cat", place.path("mnt", name)) for name in data]
    tap.equal([r.out for r in reads], list(data.values()), "and read")
    done = as_nobody("cat", place.path("mnt", "secret"))
    tap.ok(done.code == 1 and not done.out, "what the source does not let the user read stays unreadable", done)
    # Root of this machine is another user, too.
    try:
        os.listdir(place.mnt)
        tap.ok(False, "nobody else can enter")
    except OSError as e:
        tap.equal(e.errno, errno.EACCES, "nobody else can enter")
    done = clairfs("status", place.mnt)
    tap.ok(done.code == 1 and len(done.lines) == 1, "status of somebody else's mount is an error of one line", done)
    done = as_nobody(place.path("clairfs"), "status", place.mnt)
    tap.ok(done.code == 0 and b"samples" in done.out, "status works for the user", done)
    snapshots = place.path("home", ".cache", "clairfs")
    tap.ok(os.path.isdir(snapshots) and stat.S_IMODE(os.stat(snapshots).st_mode) == 0o700,
           "the index is kept in the user's own cache directory")
    done = as_nobody(place.path("clairfs"), "umount", place.mnt)
    tap.ok(done.code == 0 and mount_type(place.mnt) is None, "the user can unmount", done)


def of_root_for_others(place):
    data = place.files([3000])
    with place.mount():
        done = program(*NOBODY, "cat", place.path("mnt", "s00000.bin"), cwd="/")
        tap.ok(done.code == 1 and not done.out, "without allow_other only the user who mounted may enter", done)
    with place.mount(allow_other="on"):
        done = program(*NOBODY, "cat", place.path("mnt", "s00000.bin"), cwd="/")
        tap.ok(done.code == 0 and done.out == data["s00000.bin"], "with allow_other others may read", done)
        os.chmod(place.path("source", "s00000.bin"), 0o600)
    with place.mount(allow_other="on"):
        done = program(*NOBODY, "cat", place.path("mnt", "s00000.bin"), cwd="/")
        tap.ok(done.code == 1 and not done.out, "but not what the source keeps from them", done)


def ends_with_its_caller_gone(place):
    """A prolog script's shell, its process group and its pipes end; the mount stays."""
    data = place.files([3000])
    env = environment(place)
    shell = subprocess.Popen(["sh", "-c", '"$@"; echo ready; read line', "sh", CLAIRFS, "mount", "-o",
                              f"snapshot_dir={place.snapshots},ram=64M", place.source, place.mnt],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, start_new_session=True)
    tap.equal(shell.stdout.readline(), b"ready\n", "mount returns in a script")
    os.killpg(shell.pid, signal.SIGKILL)
    shell.wait(mountkit.DEADLINE)
    tap.equal(shell.stdout.read(), b"", "the script's pipe closes with the script")
    shell.stdin.close()
    shell.stdout.close()
    tap.ok(all_equal(place, data), "the mount outlives the process group it was made in")
    tap.equal(clairfs("umount", place.mnt).code, 0, "it unmounts")


def keeps_no_descriptors(place):
    data = place.files([2000] * 250 + [3 << 20] * 3)
    with place.mount() as mount:
        def count():
            return len(os.listdir(f"/proc/{mount.process.pid}/fd"))

        def reads():
            for name in list(data) * 2 + ["s00250.bin", "s00251.bin", "s00252.bin"] * 10:
                mountkit.drop_caches(3) if name == "s00000.bin" else None
                if mount.read(name) != data[name]:
                    raise mountkit.Failed(f"{name} differs")
        reads()
        before = count()
        for _ in range(2):
            reads()
        # A few may differ: files of several pieces are kept open for a while, reads that just end hold one.
        wait_until(lambda: count() <= before + 8, f"about {before} descriptors are open; {count()} are")
        tap.ok(True, "a thousand reads later as many descriptors are open as before")
    tap.ok(good("caps"), "the machine can still do it")


mountkit.run(returns_when_ready, a_refused_snapshot_dir_is_told, ten_cycles, signals_unmount, signals_while_reading, killed, unmounted_from_outside,
             as_mount_helper, nothing_can_be_written, of_an_ordinary_user, of_root_for_others, ends_with_its_caller_gone,
             keeps_no_descriptors)
