# SPDX-License-Identifier: Apache-2.0
"""`clairfs top`: text for scripts, the live view on a terminal of 80x24 and of other sizes, and what it refuses."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import tap
from mountkit import CLAIRFS, DEADLINE, clairfs, good, read_file, run, wait_until, write_file

WORDS = ("order", "the job", "reads", "ahead", "source", "in flight", "gpu wait", "arena", "stage", "daemon")
SUPPRESSIONS = f"suppressions={tap.ROOT}/tests/mount/lsan.supp:print_suppressions=0"
ESCAPES = re.compile(rb"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>])")


def make_source(place, files=12):
    for i in range(files):
        write_file(f"{place.source}/{i:02d}.bin", bytes([i]) * 9000)


class Terminal:
    """A program on a terminal of its own; what it has written so far."""

    def __init__(self, *argv, rows=24, columns=80, term="vt100"):
        self.master, slave = pty.openpty()
        self.resize(rows, columns)
        self.program = subprocess.Popen([CLAIRFS, "top", *argv], stdin=slave, stdout=slave, stderr=slave,
                                        start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
                                        env={**os.environ, "TERM": term, "LSAN_OPTIONS": SUPPRESSIONS})
        os.close(slave)
        self.written = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.program.poll() is None:
            self.program.kill()
            self.program.wait()

    def resize(self, rows, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pump(self):
        while select.select([self.master], [], [], 0.05)[0]:
            try:
                part = os.read(self.master, 65536)
            except OSError:
                return
            if not part:
                return
            self.written += part

    def text(self):
        self.pump()
        return self.text_so_far()

    def text_so_far(self):
        return ESCAPES.sub(b"", self.written).decode(errors="replace")

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Its exit code. It is read until then: a program that ends waits for its terminal."""
        limit = time.monotonic() + DEADLINE
        while self.program.poll() is None and time.monotonic() < limit:
            self.pump()
        if self.program.poll() is None:
            self.program.kill()
        code = self.program.wait()
        self.pump()
        os.close(self.master)
        return code


def text_for_scripts(place):
    make_source(place)
    with place.mount(order="torch-randperm:seed=3"):
        for i in range(12):
            read_file(f"{place.mnt}/{i:02d}.bin")
        text = good("top", "--once", place.mnt).decode()
        for word in WORDS + (place.mnt, place.source):
            tap.ok(word in text, f"--once tells of {word}", text)
        tap.ok("\x1b" not in text and all(len(line) <= 80 for line in text.splitlines() if place.mnt not in line),
               "in plain lines of 80 columns", text)
        done = clairfs("top", "--once")  # others may come and go meanwhile, so it may fail
        tap.ok(place.mnt in done.out.decode(), "without a name it is all mounts of the user", done)
        both = good("top", "--once", place.mnt, place.mnt).decode()
        tap.equal(both.count("gpu wait"), 2, "several mounts, one after the other")


def live(place):
    make_source(place)
    with place.mount(order="torch-randperm:seed=3"), Terminal("--interval", "0.1", place.mnt) as screen:
        wait_until(lambda: all(w in screen.text() for w in WORDS + ("q: quit",)), "the live view")
        tap.ok("arrows" not in screen.text_so_far(), "everything about one mount fits on 80x24")
        before = len(screen.written)
        wait_until(lambda: screen.text() and len(screen.written) > before, "another look")
        tap.ok(True, "it is drawn again as time goes by")
        screen.written = b""
        screen.resize(8, 40)
        wait_until(lambda: "arrows: scroll" in screen.text(), "a smaller terminal")
        tap.ok("daemon" not in screen.text_so_far(), "a smaller terminal shows the beginning")
        screen.type(b" " * 5)
        wait_until(lambda: "daemon" in screen.text(), "the end")
        tap.ok(True, "and the end when scrolled")
        screen.type(b"q")
        tap.equal(screen.end(), 0, "q quits")


def tiny(place):
    make_source(place)
    with place.mount(order="torch-randperm:seed=3"), Terminal(place.mnt, rows=2, columns=3) as screen:
        wait_until(lambda: "cla" in screen.text(), "a tiny terminal")
        screen.type(b"\x03")
        tap.equal(screen.end(), 0, "a tiny terminal is none of its problems, ^C quits")


def the_mount_goes_away(place):
    make_source(place)
    with place.mount(order="torch-randperm:seed=3") as mount, Terminal("--interval", "0.1", place.mnt) as screen:
        wait_until(lambda: "gpu wait" in screen.text(), "the live view")
        mount.stop()
        wait_until(lambda: "not a clairfs mount" in screen.text(), "the end of the mount")
        tap.ok(True, "a mount that is gone is said to be")
        screen.type(b"q")
        tap.equal(screen.end(), 0, "and top goes on until it is left")


def refused(place):
    def one_line(done, code, word, what):
        tap.ok(done.code == code and len(done.lines) == 1 and word in done.lines[0] and not done.out, what, done)

    one_line(clairfs("top", place.source), 2, "no terminal", "without a terminal it wants --once")
    one_line(clairfs("top", "--once", place.root), 1, "not a clairfs mount", "what is no mount")
    one_line(clairfs("top", "--once", f"{place.root}/none"), 1, "none", "what does not exist")
    for value in ("0", "x", "-1", "1e9"):
        one_line(clairfs("top", "--once", "--interval", value, place.root), 2, "--interval", f"--interval {value}")
    one_line(clairfs("top", "--twice"), 2, "--twice", "an option it has not")
    one_line(clairfs("top", "--once", *["/"] * 65), 2, "65", "more mounts than it shows")
    make_source(place)
    with place.mount(order="torch-randperm:seed=3"), Terminal(place.mnt, term="no-such-terminal") as screen:
        code = screen.end()
        tap.ok(code == 1 and "no-such-terminal" in screen.text_so_far(), "a terminal that is not known", screen.written)


run(text_for_scripts, live, tiny, the_mount_goes_away, refused)
