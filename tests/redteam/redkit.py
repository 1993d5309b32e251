# SPDX-License-Identifier: Apache-2.0
"""What the attacks have in common: other users, many ways of reading, and the question which version some bytes are of.

A User is one long-lived process of that user, which is handed jobs through a socket: a process per look would cost more
than the looks. A job that takes longer than HANG seconds is a hang, and a failure of its own: the process is left alone
(the guard of tests/mount ends it with its daemon).

Tests that import this find the kit of tests/mount as well.
"""
import errno
import mmap
import os
import pickle
import random
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
import guard
import mountkit
from mountkit import Failed

IS_LONG = os.environ.get("CLAIRFS_REDTEAM") == "long"
HANG = 60  # seconds for one look
PAGE = 4096
OWNER, MEMBER, STRANGER, GROUP = 61001, 61002, 61003, 61010  # users and a group that nobody has


def pick(ci, long):
    """The short form's value or the long form's."""
    return long if IS_LONG else ci


# ---- ways of reading; each returns the bytes, or the errno of what failed

WHOLE = ("python", "odd", "cp", "cat", "dd", "mmap", "direct", "willneed")
HELD = ("python", "odd", "mmap", "direct", "willneed")  # those that can wait in the middle


class Reading:
    """A file that is read in two steps, so that something may happen in between."""

    def __init__(self, how, path, seed=0):
        self.how, self.rng, self.parts, self.map, self.file = how, random.Random(seed), [], None, None
        if how == "python":
            self.file = open(path, "rb")
            self.fd = self.file.fileno()
        else:
            self.fd = os.open(path, os.O_RDONLY | (os.O_DIRECT if how == "direct" else 0))
        if how == "willneed":
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_WILLNEED)
        if how == "mmap":
            os.pread(self.fd, 1, 0)  # who maps at once gets the size that the kernel knows: no filesystem is asked
            self.size = os.fstat(self.fd).st_size
            self.map = mmap.mmap(self.fd, self.size, prot=mmap.PROT_READ) if self.size else None

    def head(self, size):
        """Reads at least a little, and lets go of the cached pages behind it."""
        if self.how == "python":
            self.parts.append(self.file.read(size))
        elif self.how == "mmap":
            self.parts.append(self.map[:size] if self.map else b"")
        elif self.how == "direct":
            self.parts.append(self._direct(max(PAGE, size // PAGE * PAGE)))
        else:
            self.parts.append(os.read(self.fd, size))
        at = (sum(map(len, self.parts)) + PAGE - 1) // PAGE * PAGE
        os.posix_fadvise(self.fd, at, 0, os.POSIX_FADV_DONTNEED)

    def _direct(self, size):
        with mmap.mmap(-1, size) as room:
            return room[:os.readv(self.fd, [room])]

    def rest(self):
        """Everything, from the beginning."""
        if self.how == "python":
            self.parts.append(self.file.read())
        elif self.how == "mmap":
            return self.map[:] if self.map else b""
        else:
            while True:
                size = self.rng.choice((1, 7, 511, 4095, 4097, 65537, 1 << 20)) if self.how == "odd" else 1 << 20
                if self.how == "odd":
                    size = max(size, 4095)  # a file of megabytes a byte at a time is another test
                part = self._direct(size) if self.how == "direct" else os.read(self.fd, size)
                if not part:
                    break
                self.parts.append(part)
        return b"".join(self.parts)

    def close(self):
        if self.map:
            self.map.close()
        if self.file:
            self.file.close()
        else:
            os.close(self.fd)


ERRNO_OF = {os.strerror(n): n for n in errno.errorcode}


def by_program(how, path):
    """By a program of the system; what it says becomes the errno."""
    env = {**os.environ, "LC_ALL": "C"}
    argv = {"cat": ["cat", "--", path], "dd": ["dd", "if=" + path, "bs=65536", "status=none"],
            "cp": ["cp", "--", path, "/dev/stdout"]}[how]
    if how == "cp":  # into a file: that is another system call than into a pipe
        out = f"/tmp/clairfs-redteam-{os.getpid()}"
        try:
            done = subprocess.run(["cp", "--", path, out], stderr=subprocess.PIPE, env=env, check=False)
            got = mountkit.read_file(out) if done.returncode == 0 else b""
        finally:
            if os.path.exists(out):
                os.unlink(out)
    else:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, check=False)
        got = done.stdout
    if done.returncode == 0:
        return got
    text = done.stderr.decode(errors="replace")
    return next((n for words, n in ERRNO_OF.items() if words in text), errno.EIO)


def read_by(how, path, seed=0):
    """The whole file through one open."""
    if how in ("cp", "cat", "dd"):
        return by_program(how, path)
    if how == "mmap":  # an error of the mount is a SIGBUS
        held = Held(how, path, 1, seed)
        return held.finish()
    try:
        reading = Reading(how, path, seed)
        try:
            return reading.rest()
        finally:
            reading.close()
    except OSError as e:
        return e.errno


class Held:
    """A reader in a process of its own that has read the head of a file and waits."""

    def __init__(self, how, path, head, seed=0):
        self.mine, theirs = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.mine.close()
                self._child(how, path, head, seed, theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.first = receive(self.mine)

    @staticmethod
    def _child(how, path, head, seed, pipe):
        try:
            reading = Reading(how, path, seed)
            reading.head(head)
            send(pipe, b"")
            receive(pipe)
            send(pipe, reading.rest())
        except OSError as e:
            send(pipe, e.errno)

    def finish(self):
        """All of it, or the errno; a SIGBUS is EIO."""
        got = self.first
        if not isinstance(got, int):
            try:
                send(self.mine, b"")
                got = receive(self.mine)
            except OSError:
                got = None
        self.mine.close()
        os.waitpid(self.pid, 0)
        return errno.EIO if got is None else got


# ---- users

def send(pipe, what):
    data = pickle.dumps(what)
    pipe.sendall(struct.pack("<Q", len(data)) + data)


def _exactly(pipe, size):
    parts = []
    while size:
        part = pipe.recv(min(size, 1 << 20))
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def receive(pipe):
    """What was sent, None at the end."""
    head = _exactly(pipe, 8)
    data = head and _exactly(pipe, struct.unpack("<Q", head)[0])
    return None if data is None else pickle.loads(data)


def look(what, path):
    """One look at a path: ("read", "list" or "stat")."""
    try:
        if what == "list":
            return sorted(os.listdir(path))
        if what == "stat":
            st = os.stat(path)
            return st.st_mode, st.st_size
        return mountkit.read_file(path)
    except OSError as e:
        return e.errno


def looks(jobs):
    return [look(*job) for job in jobs]


def reads(jobs):
    return [read_by(*job) for job in jobs]


class User:
    """A process of that user. `before` runs in it first, as root."""

    pipes = set()  # of all users: a child must not hold those of the others open

    def __init__(self, uid, gid, groups=(), before=None):
        self.uid = uid
        self.pipe, theirs = socket.socketpair()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid:
            theirs.close()
            User.pipes.add(self.pipe)
            return
        try:
            for pipe in {self.pipe, *User.pipes}:
                pipe.close()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if guard._pipe is not None:
                os.close(guard._pipe)  # the guard waits for the test's own end
            if before:
                before()
            os.setgroups(list(groups))
            os.setgid(gid)
            os.setuid(uid)
            while (job := receive(theirs)) is not None:
                work, arguments = job
                try:
                    send(theirs, (True, work(*arguments)))
                except Exception as e:
                    send(theirs, (False, repr(e)))
        finally:
            os._exit(0)

    def __call__(self, work, *arguments, seconds=HANG):
        """work(*arguments) in the process of the user; a function of a module, as it is named and not sent."""
        send(self.pipe, (work, arguments))
        if not select.select([self.pipe], [], [], seconds)[0]:
            raise Failed(f"user {self.uid}: {work.__name__} hangs, for more than {seconds} s")
        answer = receive(self.pipe)
        if answer is None:
            raise Failed(f"user {self.uid}: its process has ended in {work.__name__}")
        if not answer[0]:
            raise Failed(f"user {self.uid}: {work.__name__}: {answer[1]}")
        return answer[1]

    def close(self):
        User.pipes.discard(self.pipe)
        self.pipe.close()
        end = time.monotonic() + 10
        while os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            if time.monotonic() > end:
                os.kill(self.pid, signal.SIGKILL)  # it may hang in a mount: nobody waits for it
                return
            time.sleep(0.002)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- versions

def words(got, versions):
    """What was read, for a person: runs of pages of which version. versions: {name: bytes}."""
    if isinstance(got, int):
        return errno.errorcode.get(got, str(got))
    runs = []
    for at in range(0, len(got), PAGE):
        page = got[at:at + PAGE]
        of = next((name for name, v in versions.items() if v[at:at + len(page)] == page),
                  "zeros" if not any(page) else "nothing known")
        if not runs or runs[-1][0] != of:
            runs.append([of, 0])
        runs[-1][1] += len(page)
    text = ", ".join(f"{size} bytes of {name}" for name, size in runs[:6]) or "0 bytes"
    same = next((name for name, v in versions.items() if v.startswith(got) and len(got) < len(v)), None)
    return text + (f" (cut off: {same} has {len(versions[same])})" if same and len(runs) < 2 else "")


def is_patched(page, pieces):
    """A page that was copied in a few parts, each from another version."""
    at = 0
    for _ in range(8):
        if at == len(page):
            return True
        at += max((len(os.path.commonprefix([page[at:], piece[at:]])) for piece in pieces), default=0)
    return at == len(page)


def is_page_mix(got, versions):
    """Each page is of one of the versions, or was copied in parts: what a writer in place shows to readers of the source."""
    for at in range(0, len(got), PAGE):
        page, pieces = got[at:at + PAGE], [v[at:at + PAGE] for v in versions]
        if not any(page == piece[:len(page)] for piece in pieces) and not is_patched(page, pieces):
            return False
    return True


def change(path, new, how):
    """Changes a file of the source. how: "rename", "in place", "again" (removed and made anew) or "gone"."""
    if how == "rename":
        mountkit.write_file(path + ".new", new)
        os.rename(path + ".new", path)
    elif how == "in place":
        fd = os.open(path, os.O_WRONLY)
        try:
            if os.fstat(fd).st_size > len(new):
                os.ftruncate(fd, len(new))
            os.pwrite(fd, new, 0)
        finally:
            os.close(fd)
    else:
        os.unlink(path)
        if how == "again":
            mountkit.write_file(path, new)


class Busy:
    """So many processes that compute, for as long as the block runs."""

    def __init__(self, n):
        self.n = n

    def __enter__(self):
        self.all = [subprocess.Popen([sys.executable, "-c", "import os\nwhile os.getppid() != 1: sum(range(100000))"])
                    for _ in range(self.n)]

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.wait()


def warnings_of(mount):
    """Lines of a daemon's log that are warnings or errors."""
    return [line for line in mount.text().splitlines() if re.match(r"(<[0-4]>)?.*\b(warning|error)\b", line, re.I)]
