# SPDX-License-Identifier: Apache-2.0
"""Nothing of a test may outlive it, whatever happens to the test.

A guard is a second process that knows the directories the test works in. When the test has ended without taking them
down (killed, crashed), or takes longer than DEADLINE, the guard ends every process that was started on such a directory
and detaches the mounts below it. Ending the daemon is what wakes a reader that hangs in a mount, so that a hang becomes
a failure with a log instead of a test that never ends.
"""
import os
import select
import shutil
import signal
import subprocess
import sys
import time

DEADLINE = 840  # seconds; below the timeout of meson's test


def mounts():
    """What is mounted: [(mountpoint, type)], as bytes, the topmost last."""
    found = []
    with open("/proc/self/mountinfo", "rb") as file:
        for line in file:
            before, _, after = line.partition(b" - ")
            path = before.split(b" ")[4]
            for octal, char in ((b"\\040", b" "), (b"\\011", b"\t"), (b"\\012", b"\n"), (b"\\134", b"\\")):
                path = path.replace(octal, char)
            found.append((path, after.split(b" ")[0]))
    return found


def mounts_below(folder):
    folder = os.fsencode(folder) + b"/"
    return [(path, kind) for path, kind in mounts() if path.startswith(folder)]


def processes_of(folder):
    """Processes started with a path below the folder in their arguments: {pid: arguments}."""
    folder = os.fsencode(folder) + b"/"
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read()
            with open(f"/proc/{name}/stat", "rb") as file:
                state = file.read().rpartition(b")")[2].split()[0]
        except OSError:
            continue  # it has ended
        if folder in arguments and state != b"Z":
            found[int(name)] = arguments.replace(b"\0", b" ").decode(errors="replace")
    return found


def end_all(folder):
    """Ends the processes of a folder and detaches its mounts; returns what there was."""
    left = [f"process {pid}: {text}" for pid, text in processes_of(folder).items()]
    for pid in processes_of(folder):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    for path, kind in reversed(mounts_below(folder)):
        left.append(f"mount {os.fsdecode(path)} of type {kind.decode()}")
        subprocess.run(["umount", "-l", path], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False)
    return left


def remove(folder):
    if not mounts_below(folder):
        shutil.rmtree(folder, ignore_errors=True)


def _watch(pipe):
    """The guard's life: lines "+FOLDER", "-FOLDER", "mode PATH OCTAL" until the test is gone."""
    folders, modes = set(), {}
    end = time.monotonic() + DEADLINE
    text = b""
    while True:
        ready, _, _ = select.select([pipe], [], [], max(0, end - time.monotonic()))
        if not ready:
            for folder in folders:
                end_all(folder)
            end = time.monotonic() + 20  # a test that goes on all the same is stopped again
            continue
        got = os.read(pipe, 65536)
        if not got:
            break
        text += got
        while b"\n" in text:
            line, _, text = text.partition(b"\n")
            if line[:1] == b"+":
                folders.add(line[1:])
            elif line[:1] == b"-":
                folders.discard(line[1:])
            else:
                _, path, mode = line.split(b" ")
                modes[path] = int(mode, 8)
    for folder in folders:
        end_all(folder)
        remove(folder)
    for path, mode in modes.items():
        os.chmod(path, mode)


_pipe = None


def start():
    """Once per test, before there are threads."""
    global _pipe
    if _pipe is not None:
        return
    reading, _pipe = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork():
        os.close(reading)
        return
    try:
        os.setsid()
        os.close(_pipe)
        null = os.open(os.devnull, os.O_RDWR)
        for fd in range(3):
            os.dup2(null, fd)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        _watch(reading)
    finally:
        os._exit(0)


def tell(line):
    os.write(_pipe, os.fsencode(line) + b"\n")
