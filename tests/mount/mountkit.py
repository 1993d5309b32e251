# SPDX-License-Identifier: Apache-2.0
"""Mounts for tests: started, watched and always taken down again.

A test script is a list of cases for run(); each gets a Place, a private directory with room for source, mountpoint,
snapshot and store. When the case is over everything must be gone by itself: a mount, a process, a file in the store or a
sanitizer's report that is left is a failure of its own.

No test may depend on how fast the machine is. wait_until() waits for what the daemon reports, with deadlines that only a
hang reaches. And no test may believe that pages pushed into the kernel stay there: some kernels drop them within seconds,
so a read that should have been staged is accepted when the daemon has counted it as dropped.
"""
import contextlib
import errno
import fcntl
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import guard
import tap

CLAIRFS = os.environ["CLAIRFS"]
SLOWFS = os.environ["CLAIRFS_SLOWFS"]
DEADLINE = 120  # seconds for anything that should take moments
SEED = int(os.environ.get("CLAIRFS_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
rng = random.Random(SEED)

HINT = struct.Struct("<Ii4088s")  # struct clairfs_hint
# A program that tells the mount argv[1] the order argv[2], and prints status and line.
TELL = """
import fcntl, struct, sys
with open(sys.argv[1] + "/.clairfs/control", "rb") as f:
    hint = bytearray(struct.pack("<Ii4088s", 1, 0, sys.argv[2].encode()))
    fcntl.ioctl(f, 3 << 30 | len(hint) << 16 | 0xCF << 8 | 1, hint)
version, status, text = struct.unpack("<Ii4088s", hint)
print(status, text.split(b"\\0")[0].decode())
"""

BAD_WORDS = re.compile(r"ERROR: \w*Sanitizer|WARNING: \w*Sanitizer|runtime error|[Aa]ssertion|Segmentation|stack smashing")


class Failed(Exception):
    """What went wrong, for a person."""


def wait_until(condition, what, seconds=DEADLINE):
    """The first true value of condition()."""
    end = time.monotonic() + seconds
    pause = 0.002
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)


def threads_of(pid):
    """The names of its threads."""
    names = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            names.append(read_file(f"/proc/{pid}/task/{thread}/comm").decode().strip())
    return names


def environment(place, **more):
    """For daemons: sanitizers write to files of the place, because a daemon's stderr may be anywhere."""
    env = {**os.environ, **more}
    for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
        env[name] = ":".join(filter(None, [os.environ.get(name), f"log_path={place.root}/sanitizer"]))
    env["TSAN_OPTIONS"] += f":suppressions={os.path.dirname(os.path.abspath(__file__))}/tsan.supp"
    return env


class Done:
    """A program that has ended."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err
        self.lines = err.decode(errors="replace").splitlines()

    def __repr__(self):
        return f"exit code {self.code}, stdout {self.out[-2000:]!r}, stderr {self.err[-2000:]!r}"


def program(*argv, timeout=DEADLINE, **kwargs):
    """Runs to the end; the output is complete only when nobody else holds it open."""
    done = subprocess.run([os.fspath(a) if not isinstance(a, (int, float)) else str(a) for a in argv],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                          check=False, **kwargs)
    return Done(done.returncode, done.stdout, done.stderr)


def clairfs(*argv, **kwargs):
    return program(CLAIRFS, *argv, **kwargs)


def good(*argv, **kwargs):
    """clairfs that must succeed; its stdout."""
    done = clairfs(*argv, **kwargs)
    if done.code:
        raise Failed(f"clairfs {argv}: {done}")
    return done.out


def mount_type(path):
    """What is mounted exactly there, or None."""
    kinds = [kind for at, kind in guard.mounts() if at == os.fsencode(path)]
    return kinds[-1].decode() if kinds else None


def read_file(path, size=1 << 20, flags=0):
    """Whole file by plain system calls (Python's open() asks more of a filesystem than a read needs)."""
    fd = os.open(path, os.O_RDONLY | flags)
    try:
        parts = []
        while True:
            part = os.read(fd, size)
            if not part:
                return b"".join(parts)
            parts.append(part)
    finally:
        os.close(fd)


def write_file(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def unescape(text):
    """The name behind what clairfs prints for it."""
    return re.sub(rb"\\(x[0-9a-f]{2}|.)", lambda m: {b"n": b"\n", b"t": b"\t", b"\\": b"\\"}.get(m[1]) or
                  bytes([int(m[1][1:], 16)]), text)


def options_text(options):
    """KEY=VALUE,... as -o takes it; keys of debug are a dict."""
    def text(value):
        if isinstance(value, dict):
            value = "+".join(f"{k}:{str(v).replace('+', chr(92) + '+')}" for k, v in value.items())
        return str(value).replace(",", chr(92) + ",")
    return ",".join(f"{k}={text(v)}" for k, v in options.items())


class Place:
    """A private directory and everything that runs in it."""

    def __init__(self, folder="/tmp"):
        self.root = tempfile.mkdtemp(prefix="clairfs-mount-", dir=folder)
        guard.tell("+" + self.root)
        os.chmod(self.root, 0o755)
        self.source, self.mnt = self.path("source"), self.path("mnt")
        self.snapshots, self.store = self.path("snapshots"), self.path("store")
        for folder in (self.source, self.mnt, self.snapshots, self.store):
            os.mkdir(folder)
        for folder in (self.snapshots, self.store):
            os.chmod(folder, 0o700)
        self.logs = []

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def mount(self, source=None, mountpoint=None, **options):
        return Mount(self, source or self.source, mountpoint or self.mnt, options)

    def files(self, sizes, name="s{:05d}.bin"):
        """Samples of random bytes in the source; {relative path: bytes}."""
        data = {name.format(i): rng.randbytes(size) for i, size in enumerate(sizes)}
        for path, content in data.items():
            write_file(os.path.join(self.source, path), content)
        return data

    def list_file(self, lines, name="order.txt"):
        """A list order; returns its spec."""
        write_file(self.path(name), "".join(f"{line}\n" for line in lines).encode())
        return "list:path=" + self.path(name)

    def findings(self):
        """What should not be there once every mount of the place is gone."""
        found = [f"{path} of type {kind} is still mounted" for path, kind in guard.mounts_below(self.root)]
        # A daemon unmounted from outside may take its time.
        with contextlib.suppress(Failed):
            wait_until(lambda: not guard.processes_of(self.root), "processes end", 60)
        found += [f"process {pid} still runs: {text}" for pid, text in guard.processes_of(self.root).items()]
        found += [f"{name} is left in the store's directory" for name in os.listdir(self.store)]
        found += [f"{name} is left in the snapshot's directory" for name in os.listdir(self.snapshots)
                  if not name.endswith(".snapshot")]
        for name in sorted(os.listdir(self.root)):
            if name.startswith("sanitizer"):
                found.append(f"{name}:\n{read_file(self.path(name)).decode(errors='replace')}")
        for log in self.logs:
            text = read_file(log).decode(errors="replace")
            if BAD_WORDS.search(text):
                found.append(f"{os.path.basename(log)}:\n{text}")
        return found

    def show_logs(self):
        for log in self.logs:
            tap.note(f"--- {os.path.basename(log)}")
            tap.note("\n".join(read_file(log).decode(errors="replace").splitlines()[-60:]))

    def close(self):
        guard.end_all(self.root)
        with contextlib.suppress(Failed):
            wait_until(lambda: not guard.processes_of(self.root), "processes end", 30)
        guard.remove(self.root)
        guard.tell("-" + self.root)


class Daemon:
    """A program of ours that serves a mount in the foreground, with its log in a file."""

    kind = ""

    def __init__(self, place, name):
        self.place = place
        self.log = place.path(f"log-{len(place.logs)}-{name}")
        self.process = None

    def start(self, argv, env, **kwargs):
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, **kwargs)
        self.place.logs.append(self.log)

    def text(self):
        return read_file(self.log).decode(errors="replace")

    def wait(self, want=0):
        """Waits for the end; the exit code must be the one expected."""
        try:
            code = self.process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            raise Failed(f"{os.path.basename(self.log)}: still running after {DEADLINE} s") from None
        if code != want:
            raise Failed(f"{os.path.basename(self.log)}: exit code {code}, not {want}:\n{self.text()}")

    def wait_mounted(self, mountpoint):
        wait_until(lambda: mount_type(mountpoint) == self.kind or self.process.poll() is not None, f"mount of {mountpoint}")
        self.check_alive()

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failed(f"{os.path.basename(self.log)}: exit code {self.process.returncode}:\n{self.text()}")

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is not None and kind is None:
            return self.wait()  # it was stopped by the test
        if kind is None:
            return self.stop()
        # The first error is the one to report; Place.close ends what is left.
        with contextlib.suppress(Exception):
            self.stop()
        return None


class Mount(Daemon):
    """`clairfs mount -f`, ready for use."""

    kind = "fuse.clairfs"

    def __init__(self, place, source, mountpoint, options, prefix=(), binary=CLAIRFS, env=None):
        super().__init__(place, "clairfs")
        self.mountpoint = mountpoint
        # Control reads are off: most tests count who was asked for what.
        options = {"snapshot_dir": place.snapshots, "ram": "64M", "recover": "off", "control_reads": "off", **options}
        argv = [*prefix, binary, "mount", "-f", "-o", options_text(options), source, mountpoint]
        self.start(argv, environment(place, **(env or {})))
        self.wait_mounted(mountpoint)
        # Its own word; before that it serves, but calls an unmount an error.
        wait_until(lambda: " is mounted on " in self.text() or self.process.poll() is not None, "the mount is ready")
        self.check_alive()
        self.stats()

    def path(self, *parts):
        return os.path.join(self.mountpoint, *parts)

    def read(self, path):
        return read_file(os.path.join(self.mountpoint, path))

    def tell(self, spec):
        """Announces the order by the ioctl of hint.h, in this process: (status, line)."""
        hint = bytearray(HINT.pack(1, 0, spec if isinstance(spec, bytes) else spec.encode()))
        with open(self.path(".clairfs", "control"), "rb") as file:
            fcntl.ioctl(file, 3 << 30 | len(hint) << 16 | 0xCF << 8 | 1, hint)
        _, status, line = HINT.unpack(hint)
        return status, line.split(b"\0")[0].decode(errors="replace")

    def stats(self):
        return json.loads(read_file(self.path(".clairfs", "stats.json")))

    def counters(self):
        """Counters, and the reads of each class as reads_CLASS (they are counters, too), flat."""
        return self.stats()["counters"]

    def wait_for(self, condition, what, seconds=DEADLINE):
        """Waits until condition(stats); returns those stats."""
        def check():
            stats = self.stats()
            return stats if condition(stats) else None
        try:
            return wait_until(check, what, seconds)
        except Failed as e:
            raise Failed(f"{e}; order {self.stats()['order']}, counters {self.stats()['counters']}") from None

    def stop(self):
        done = clairfs("umount", self.mountpoint)
        if done.code:
            raise Failed(f"clairfs umount: {done}")
        self.wait()


class Slowfs(Daemon):
    """The simulated parallel filesystem. TSan sees no order in handles that travel through the kernel: not reported."""

    kind = "fuse.slowfs"

    def __init__(self, place, directory, mountpoint, *arguments):
        super().__init__(place, "slowfs")
        self.mountpoint = mountpoint
        os.makedirs(mountpoint, exist_ok=True)
        env = environment(place)
        env["TSAN_OPTIONS"] += ":report_bugs=0"
        self.start([SLOWFS, "-f", *arguments, directory, mountpoint], env)
        self.wait_mounted(mountpoint)

    def stop(self):
        done = program("umount", self.mountpoint)
        if done.code:
            raise Failed(f"umount of slowfs: {done}")
        self.wait()


def steps_in(file):
    """[(flags, loader, step, request, ready, next)] of a file of records, as they came."""
    data, found = read_file(file), []
    while data:
        count = struct.unpack_from("=12xI", data)[0]
        for _, flags, *rest in struct.iter_unpack("=IIQQQQ", data[64:64 + 40 * count]):
            found.append((flags & 0xffff, flags >> 16, *rest))
        data = data[64 + 40 * count:]
    return found


class Crew:
    """Threads whose exceptions reach the test."""

    def __init__(self):
        self.threads, self.errors, self.is_over = [], [], threading.Event()

    def add(self, work, *arguments):
        def body():
            try:
                work(*arguments)
            except Exception:
                self.errors.append(traceback.format_exc())
        self.threads.append(threading.Thread(target=body, daemon=True))
        self.threads[-1].start()

    def join(self):
        """Waits for all; returns the errors."""
        end = time.monotonic() + DEADLINE * 4
        for thread in self.threads:
            thread.join(max(0, end - time.monotonic()))
            if thread.is_alive():
                self.errors.append(f"a thread still runs after {DEADLINE * 4} s")
        return self.errors

    def stop(self):
        """For threads that go on until is_over."""
        self.is_over.set()
        return self.join()


def drop_caches(what=1):
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write(str(what))


def send(process, number):
    os.kill(process.pid, number)


def run(*cases):
    """Runs the cases, each in a Place of its own, and ends the script."""
    guard.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tap.note(f"seed {SEED}: CLAIRFS_TEST_SEED repeats it")
    wanted = sys.argv[1:]
    for case in cases:
        if wanted and case.__name__ not in wanted:
            continue
        place = Place()
        start = time.monotonic()
        failures = tap.failures()
        try:
            case(place)
        except Exception as e:
            text = str(e) if isinstance(e, Failed) else ""
            tap.ok(False, f"{case.__name__} runs to its end", text, traceback.format_exc())
        try:
            tap.no_findings(place.findings(), f"{case.__name__} leaves nothing behind")
            if tap.failures() > failures:
                place.show_logs()
        finally:
            place.close()
        tap.note(f"{case.__name__}: {time.monotonic() - start:.1f} s")
    tap.done()
