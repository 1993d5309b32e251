# SPDX-License-Identifier: Apache-2.0
"""A daemon that is killed while threads of its own wait in its mount takes nobody with it: readers get an error, and the process
ends. Without its guard both would wait for ever, the threads for a READ's page and the kernel for them to let go of the device."""
import contextlib
import os
import resource
import signal
import subprocess
import sys

import mountkit
import tap
from mountkit import Failed, Slowfs, mount_type, program, wait_until, write_file

READER = "import os, sys\ntry:\n    os.pread(os.open(sys.argv[1], os.O_RDONLY), 100, 0)\nexcept OSError as e:\n    print(e.errno)\n"
CONNECTIONS = "/sys/fs/fuse/connections"
LATENCY = "8000"  # ms: the first READ finds the change, the next one is under way until all is over


def threads_of(pid):
    """[(name, state)]"""
    found = []
    for tid in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):
            text = mountkit.read_file(f"/proc/{pid}/task/{tid}/stat").decode()
            found.append((text[text.index("(") + 1:text.rindex(")")], text[text.rindex(")") + 2]))
    return found


def guard_of(pid):
    """Pid of the daemon's guard."""
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            text = mountkit.read_file(f"/proc/{int(name)}/stat").decode()
            if "(clairfs-guard)" in text and int(text[text.rindex(")") + 2:].split()[1]) == pid:
                return int(name)
    return None


@contextlib.contextmanager
def a_thread_that_waits_in_the_mount(place):
    """A READ is with the source, its page is locked; meanwhile the file gets shorter, and a thread of the daemon has the kernel
    cut the page cache. The mount and the reader."""
    write_file(place.path("data", "f"), b"x" * 9000)
    slow = Slowfs(place, place.path("data"), place.path("slow"), "--latency-ms", LATENCY)
    mount = place.mount(place.path("slow"), revalidate=1)
    reader = subprocess.Popen([sys.executable, "-c", READER, mount.path("f")], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        mount.wait_for(lambda s: s["gauges"]["demand_inflight"] > 0, "the READ is with the source")
        write_file(place.path("data", "new"), b"y" * 100)
        os.rename(place.path("data", "new"), place.path("data", "f"))
        wait_until(lambda: ("fs-settle", "D") in threads_of(mount.process.pid), "a thread waits for the page")
        yield mount, reader
    finally:
        if reader.poll() is None:  # the test has failed: nothing may be left that hangs
            program("umount", "-f", mount.mountpoint)
        for process, mountpoint in ((reader, None), (mount.process, mount.mountpoint), (slow.process, slow.mountpoint)):
            process.kill()
            process.wait()
            if mountpoint:
                program("umount", "-l", mountpoint)


def is_gone(pid):
    try:
        return mountkit.read_file(f"/proc/{pid}/stat").rpartition(b") ")[2][:1] == b"Z"  # who has taken it over need not look
    except FileNotFoundError:
        return True


def dies(place, sig):
    with a_thread_that_waits_in_the_mount(place) as (mount, reader):
        guard = guard_of(mount.process.pid)
        tap.ok(guard, f"{sig.name}: a mount has a guard", threads_of(mount.process.pid))
        mount.process.send_signal(sig)
        try:
            said = reader.communicate(timeout=mountkit.DEADLINE)[0]
        except subprocess.TimeoutExpired:
            raise Failed(f"{sig.name}: the reader hangs") from None
        tap.ok(said.strip().isdigit(), f"{sig.name}: the reader gets an error", said)
        tap.equal(mount.process.wait(mountkit.DEADLINE), -sig, "the daemon ends")
        wait_until(lambda: is_gone(guard), "the guard ends")
        tap.equal(mount_type(mount.mountpoint), "fuse.clairfs", "the dead mount stays: nobody writes below it by mistake")


def killed(place):
    dies(place, signal.SIGKILL)


def crashes(place):
    """The kernel stops all threads for the dump first, and would wait for the one that hangs."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    dies(place, signal.SIGABRT)


def killed_where_connections_can_be_ended(place):
    """By the file of fusectl, which is all that an ordinary user has."""
    is_there = mount_type(CONNECTIONS) is not None
    if not is_there and program("mount", "-t", "fusectl", "none", CONNECTIONS).code:
        raise Failed("fusectl cannot be mounted")
    try:
        dies(place, signal.SIGKILL)
    finally:
        if not is_there:
            program("umount", "-l", CONNECTIONS)


def strangers_signals(place):
    place.files([3000])
    with place.mount() as mount:
        guard = guard_of(mount.process.pid)
        for sig in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(guard, sig)
        tap.equal(len(mount.read("s00000.bin")), 3000, "a signal of somebody else's to the guard does not end the mount")
        tap.equal(guard_of(mount.process.pid), guard, "nor the guard")
        os.kill(guard, signal.SIGKILL)
        tap.equal(len(mount.read("s00000.bin")), 3000, "without its guard the mount goes on")
    with place.mount() as mount:
        guard = guard_of(mount.process.pid)
    tap.ok(guard and is_gone(guard), "after an orderly end there is no guard")


mountkit.run(killed, crashes, killed_where_connections_can_be_ended, strangers_signals)
