# SPDX-License-Identifier: Apache-2.0
"""With allow_other nobody reads through the mount what the source keeps from them. A visitor of another user reads both ways;
where the source refuses, the mount must: at once when nobody has read the file in this mount, else once revalidation (a
second here) has looked. What the source gives the mount should give as well, where mode bits can say it."""
import contextlib
import errno
import json
import os
import subprocess
import sys
import time

import mountkit
import tap
from mountkit import Failed, clairfs, program, wait_until, write_file

UID, GID, OTHER_GID = 54321, 54321, 54322
FAST = {"allow_other": "on", "revalidate": 1}

# Reads lines of JSON, does what they say, answers with one.
VISITOR = r"""
import json, os, sys
uid, gid, *groups = map(int, sys.argv[1:])
os.setgroups(groups)
os.setgid(gid)
os.setuid(uid)
def whole(fd):
    parts = []
    while True:
        part = os.pread(fd, 1 << 20, sum(map(len, parts)))
        if not part:
            return b"".join(parts)
        parts.append(part)
def do(what, path, *more):
    if what == "open":
        return os.open(path, os.O_RDONLY)
    if what == "again":
        return whole(path).decode("latin-1")
    if what == "list":
        return sorted(os.listdir(path))
    if what == "move":
        return os.rename(path, more[0]) or 0
    if what == "link":
        os.symlink(more[0], path + ".new")
        os.rename(path + ".new", path)
        return 0
    fd = os.open(path, os.O_RDONLY)
    try:
        return whole(fd).decode("latin-1")
    finally:
        os.close(fd)
for line in sys.stdin:
    try:
        print(json.dumps({"ok": do(*json.loads(line))}), flush=True)
    except OSError as e:
        print(json.dumps({"errno": e.errno}), flush=True)
"""


class Visitor:
    """A process of another user; every call returns what it got, or the errno as a negative number."""

    def __init__(self, uid=UID, gid=GID, groups=()):
        self.process = subprocess.Popen([sys.executable, "-c", VISITOR, *map(str, (uid, gid, *groups))], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, cwd="/")

    def do(self, *what):
        self.process.stdin.write(json.dumps(what).encode() + b"\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "errno" in answer:
            return -answer["errno"]
        return answer["ok"].encode("latin-1") if isinstance(answer["ok"], str) else answer["ok"]

    def read(self, path):
        return self.do("read", path)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(mountkit.DEADLINE)


def shown(got):
    return errno.errorcode.get(-got, str(got)) if isinstance(got, int) else f"{len(got)} bytes"


def refused_at_once(place, visitor, name, what):
    """The source refuses, so the mount must, with no byte."""
    at_source, here = (visitor.read(os.path.join(top, name)) for top in (place.source, place.mnt))
    tap.ok(isinstance(at_source, int) and isinstance(here, int), f"{what}: refused at once",
           f"source: {shown(at_source)}, mount: {shown(here)}")


def refused_soon(place, visitor, name, what):
    if not isinstance(visitor.read(os.path.join(place.source, name)), int):
        raise Failed(f"{what}: the source gives it")
    wait_until(lambda: isinstance(visitor.read(place.path("mnt", name)), int), f"{what}: refused")
    tap.ok(True, f"{what}: refused soon")


def given(place, visitor, name, content, what):
    tap.equal(visitor.read(place.path("mnt", name)), content, f"{what}: given")


def given_soon(place, visitor, name, content, what):
    wait_until(lambda: visitor.read(place.path("mnt", name)) == content, f"{what}: given")
    tap.ok(True, f"{what}: given soon")


def source_path(place, *parts):
    return os.path.join(place.source, *parts)




def old_enough(place):
    """Until then the next mount would scan the directories again, whatever the snapshot says."""
    last = max(os.stat(folder).st_ctime for folder, _, _ in os.walk(place.source))
    wait_until(lambda: time.time() > last + 2.1, "the directories are old")


def symlink_that_leaves(place):
    secret = mountkit.rng.randbytes(3000)
    write_file(place.path("outside", "secret"), secret)
    os.chmod(place.path("outside", "secret"), 0o600)
    os.chmod(place.path("outside"), 0o755)
    write_file(place.path("outside", "plain"), secret)
    os.mkdir(source_path(place, "theirs"))
    os.chown(source_path(place, "theirs"), UID, GID)
    for engine in ("pool", "uring"):
        for i in range(4):
            write_file(source_path(place, "theirs", f"{engine}{i}"), b"x" * 3000)
    os.symlink("../../outside/plain", source_path(place, "theirs", "before"))
    os.symlink("/etc/passwd", source_path(place, "theirs", "absolute"))
    os.symlink("../../outside", source_path(place, "theirs", "folder"))
    for engine in ("pool", "uring"):
        with place.mount(debug={"source_engine": engine}, **FAST) as mount, Visitor() as visitor:
            tap.equal([n for n in visitor.do("list", mount.path("theirs")) if n in ("before", "absolute", "folder")], [],
                      f"{engine}: symlinks that leave the source are not there")
            tap.ok("leaves the source: not followed with allow_other" in mount.text(), f"{engine}: the log says so")
            given(place, visitor, f"theirs/{engine}0", b"x" * 3000, f"{engine}: a file")
            for i, target in enumerate((place.path("outside", "secret"), "../../outside/secret", "/etc/shadow",
                                        "../../outside/plain")):
                name = f"theirs/{engine}{i}"
                visitor.do("link", source_path(place, name), target)
                for _ in range(3):
                    here = visitor.read(place.path("mnt", name))
                    wrong = here not in (b"x" * 3000,) and not isinstance(here, int)
                    tap.ok(not wrong, f"{engine}: a file replaced by a symlink to {target}: no byte of it", shown(here))
                wait_until(lambda: isinstance(visitor.read(place.path("mnt", name)), int), "refused")
            # Root, too: it is not the source's.
            wait_until(lambda: not program("cat", mount.path(f"theirs/{engine}0")).out, "refused to root")
    with place.mount() as mount:
        tap.equal(mount.read("theirs/before"), secret, "without allow_other symlinks are followed wherever they lead")
        tap.equal(mount.read("theirs/folder/plain"), secret, "also those to directories")


def errno_of(work, *args):
    try:
        return work(*args)
    except OSError as e:
        return e.errno


def empty_file_closed_while_it_is_open(place):
    """It has a new inode then. The old one keeps its size: its pages are not those of the new file."""
    write_file(source_path(place, "empty"), b"")
    with place.mount(allow_other="on", revalidate=3600) as mount, Visitor() as visitor:
        given(place, visitor, "empty", b"", "an empty file")
        fd = os.open(mount.path("empty"), os.O_RDONLY)
        try:
            write_file(source_path(place, "new"), b"")
            os.chmod(source_path(place, "new"), 0o600)
            write_file(source_path(place, "new"), b"seventeen bytes !")
            os.rename(source_path(place, "new"), source_path(place, "empty"))
            tap.equal(errno_of(os.fstat, fd), errno.ESTALE, "the size of the new file is not told to who has the old one open")
            tap.equal(errno_of(os.pread, fd, 100, 0), errno.ESTALE, "nor any byte")
        finally:
            os.close(fd)
        tap.equal(mount.read("empty"), b"seventeen bytes !", "the name leads to the new one")
        tap.equal(visitor.read(mount.path("empty")), -errno.EACCES, "which is closed to others")


def closed_before_the_first_read(place):
    data = place.files([3000, 3000, 2 << 20])
    names = list(data)
    with place.mount(**FAST) as mount, Visitor() as visitor:
        held = [visitor.do("open", mount.path(n)) for n in names]
        ours = [os.open(mount.path(n), os.O_RDONLY) for n in names]
        for name in names:
            os.chmod(source_path(place, name), 0o600)
        tap.equal([visitor.do("again", fd) for fd in held], [-errno.EACCES] * 3, "opened by the old mode, closed since: no byte")
        tap.equal([errno_of(os.pread, fd, 100, 0) for fd in ours], [errno.ESTALE] * 3, "who may still read has to open it again")
        for fd in ours:
            os.close(fd)
        for name in names:
            refused_at_once(place, visitor, name, f"{name} made 0600 after the scan")
        tap.ok(all(mount.read(n) == data[n] for n in names), "root may read")
        tap.no_findings([shown(got) for got in (visitor.do("again", fd) for fd in held) if not isinstance(got, int)],
                        "nor what root's reads have fetched")
        for name in names:
            os.chmod(source_path(place, name), 0o644)
        for name in names:
            given_soon(place, visitor, name, data[name], f"{name} made 0644 again")


def closed_between_two_mounts(place):
    data = place.files([3000] * 3)
    names = list(data)
    old_enough(place)
    with place.mount(**FAST) as mount, Visitor() as visitor:
        for name in names:
            given(place, visitor, name, data[name], "before")
    os.chmod(source_path(place, names[0]), 0o600)
    os.chown(source_path(place, names[1]), UID + 1, GID + 1)
    os.chmod(source_path(place, names[1]), 0o640)
    with place.mount(**FAST) as mount, Visitor() as visitor:
        tap.ok("index loaded" in mount.text(), "the index came from the snapshot")
        held = visitor.do("open", mount.path(names[0]))
        tap.ok(isinstance(visitor.do("again", held), int) if held >= 0 else True, "opened by the mode of the snapshot: no byte")
        for name in names[:2]:
            refused_at_once(place, visitor, name, f"{name} closed between two mounts")
        given(place, visitor, names[2], data[names[2]], "a file that was left alone")
        with Visitor(UID + 1, GID + 1) as owner, Visitor(UID, GID, [GID + 1]) as member:
            given_soon(place, owner, names[1], data[names[1]], "its owner")
            given_soon(place, member, names[1], data[names[1]], "a member of its group")


def closed_after_it_was_read(place):
    data = place.files([3000] * 4 + [3 << 20])
    names = list(data)
    with place.mount(order="sequential", **FAST) as mount, Visitor() as visitor:
        for _ in range(2):
            for name in names:
                given(place, visitor, name, data[name], "read")
        for name in names:
            os.chmod(source_path(place, name), 0o600)
        for name in names:
            refused_soon(place, visitor, name, f"{name} made 0600 after it was read")
        tap.ok(all(mount.read(n) == data[n] for n in names), "root may read")
        for name in names:
            refused_at_once(place, visitor, name, f"{name} after root has read it")


def symlinks_within(place):
    data = {}
    for name in ("closed/sub/inner", "open/inner", "soon/inner", "later/inner"):
        data[name] = mountkit.rng.randbytes(2000)
        write_file(source_path(place, name), data[name])
    os.chmod(source_path(place, "closed"), 0o700)
    os.mkdir(source_path(place, "links"))
    for name in ("closed", "open", "soon", "later"):
        inner = "sub/inner" if name == "closed" else "inner"
        os.symlink(f"../{name}/{inner}", source_path(place, "links", name))
    os.symlink("../closed/sub", source_path(place, "links", "folder"))
    os.symlink("../soon/../open/inner", source_path(place, "links", "around"))
    old_enough(place)
    for attempt in ("scanned", "loaded"):
        with place.mount(**FAST) as mount, Visitor() as visitor:
            if attempt == "loaded":
                tap.ok("index loaded" in mount.text(), "the index came from the snapshot")
            refused_at_once(place, visitor, "links/closed", f"{attempt}: a symlink through a 0700 directory")
            refused_at_once(place, visitor, "links/folder/inner", f"{attempt}: a directory behind it")
            given(place, visitor, "links/open", data["open/inner"], f"{attempt}: a symlink through open directories")
            given(place, visitor, "links/later", data["later/inner"], f"{attempt}: another")
            os.chmod(source_path(place, "soon"), 0o700)
            refused_at_once(place, visitor, "links/soon", f"{attempt}: the directory was closed before the first read")
            refused_at_once(place, visitor, "links/around", f"{attempt}: a symlink by way of it")
            os.chmod(source_path(place, "later"), 0o700)
            refused_soon(place, visitor, "links/later", f"{attempt}: the directory was closed after a read")
            tap.equal(mount.read("links/closed"), data["closed/sub/inner"], f"{attempt}: root may read")
        os.chmod(source_path(place, "soon"), 0o755)
        os.chmod(source_path(place, "later"), 0o755)


def directory_replaced(place):
    """By a symlink into a closed one, by somebody who may: before the kernel hears of it the path was open."""
    secret, plain = b"s" * 3000, b"p" * 3000
    for i in range(3):
        write_file(source_path(place, "closed", "d", f"f{i}"), secret)
        write_file(source_path(place, "theirs", "d", f"f{i}"), plain)
    os.chmod(source_path(place, "closed"), 0o700)
    for folder in ("theirs", "theirs/d"):
        os.chown(source_path(place, folder), UID, GID)
    names = [f"theirs/d/f{i}" for i in range(3)]
    for kind in ("plain directory", "symlink"):
        with place.mount(**FAST) as mount, Visitor() as visitor:
            held = [visitor.do("open", mount.path(n)) for n in names[:2]]
            tap.equal(visitor.do("again", held[0]), plain, f"{kind}: as it was")
            visitor.do("move", source_path(place, "theirs", "d"), source_path(place, "theirs", "away" if kind[0] == "p" else "link"))
            visitor.do("link", source_path(place, "theirs", "d"), "../closed/d")
            leaks = set()

            def note(who, got):
                if got == secret:
                    leaks.add(who)

            def read_all():
                for name in names:
                    note("opened anew", visitor.read(mount.path(name)))
                for fd in held:
                    note("held open", visitor.do("again", fd))

            def fetch(name):
                """By root, who is refused only where this is the READ that finds out."""
                with contextlib.suppress(PermissionError):
                    mount.read(name)
            for _ in range(3):
                read_all()
                fetch(names[1])
            tap.equal(leaks, set(), f"{kind} replaced by a symlink into a closed directory: no byte of that")
            # To and fro, with those reading who have it open.
            for _ in range(200):
                visitor.do("link", source_path(place, "theirs", "d"), "away")
                read_all()
                fetch(names[0])
                visitor.do("link", source_path(place, "theirs", "d"), "../closed/d")
                fetch(names[0])
                read_all()
            tap.equal(leaks, set(), f"{kind}: nor when it is flipped to and fro")
        with Visitor() as visitor:
            visitor.do("link", source_path(place, "theirs", "d"), "away")


def setfacl(*argv):
    done = program("setfacl", *argv)
    if done.code:
        raise Failed(f"setfacl {argv}: {done}")


def access_lists(place):
    data = place.files([2000] * 8, "d{}/f")
    setfacl("-m", f"u:{UID}:---", source_path(place, "d0", "f"))
    setfacl("-m", f"g:{OTHER_GID}:---", source_path(place, "d1", "f"))
    setfacl("-m", f"u:{UID}:---", source_path(place, "d2"))
    setfacl("-m", f"u:{UID + 7}:r", source_path(place, "d3", "f"))
    for attempt in ("scanned", "loaded"):
        with place.mount(**FAST), Visitor() as visitor, Visitor(UID + 1, GID + 1, [OTHER_GID]) as member:
            refused_at_once(place, visitor, "d0/f", f"{attempt}: a file that names the user")
            refused_at_once(place, member, "d1/f", f"{attempt}: a file that names the group")
            refused_at_once(place, visitor, "d2/f", f"{attempt}: a directory that names the user")
            given(place, visitor, "d3/f", data["d3/f"], f"{attempt}: a list that takes nothing away")
    with place.mount(**FAST), Visitor() as visitor:
        given(place, visitor, "d4/f", data["d4/f"], "before it is named")
        given(place, visitor, "d5/f", data["d5/f"], "before its directory is named")
        setfacl("-m", f"u:{UID}:---", source_path(place, "d6", "f"))
        refused_at_once(place, visitor, "d6/f", "a list made after the scan")
        setfacl("-m", f"u:{UID}:---", source_path(place, "d4", "f"))
        setfacl("-m", f"u:{UID}:---", source_path(place, "d5"))
        refused_soon(place, visitor, "d4/f", "a list made after a read")
        refused_soon(place, visitor, "d5/f", "a list of the directory made after a read")


def directory_closed(place):
    data = place.files([2000] * 2, "d{}/sub/f")
    with place.mount(**FAST), Visitor() as visitor:
        for name in data:
            given(place, visitor, name, data[name], "before")
        os.chmod(source_path(place, "d0"), 0o700)
        refused_soon(place, visitor, "d0/sub/f", "a directory made 0700")
        os.chmod(source_path(place, "d0"), 0o755)
        given_soon(place, visitor, "d0/sub/f", data["d0/sub/f"], "a directory made 0755 again")
        os.chmod(place.source, 0o700)
        refused_soon(place, visitor, "d1/sub/f", "the source made 0700")
        os.chmod(place.source, 0o755)
        given_soon(place, visitor, "d1/sub/f", data["d1/sub/f"], "the source made 0755 again")


def source_below_a_closed_directory(place):
    source = place.path("above", "group", "data")
    write_file(os.path.join(source, "f"), b"y" * 2000)
    os.chmod(place.path("above"), 0o700)
    mnt = place.path("mnt", "f")
    with place.mount(source=source, **FAST), Visitor() as visitor, Visitor(UID + 1, GID, [OTHER_GID]) as member:
        tap.ok(isinstance(visitor.read(os.path.join(source, "f")), int) and isinstance(visitor.read(mnt), int),
               "a source below a 0700 directory is closed to others")
        os.chmod(place.path("above"), 0o755)
        wait_until(lambda: visitor.read(mnt) == b"y" * 2000, "given")
        tap.ok(True, "and open soon after that one was opened")
        os.chown(place.path("above", "group"), 0, OTHER_GID)
        os.chmod(place.path("above", "group"), 0o750)
        wait_until(lambda: isinstance(visitor.read(mnt), int), "refused")
        tap.ok(True, "closed to who is not in the group that may come there")
        wait_until(lambda: member.read(mnt) == b"y" * 2000, "given")
        tap.ok(True, "open to who is in it")


def without_revalidation(place):
    place.files([10])
    done = clairfs("mount", "-f", "-o", f"allow_other=on,revalidate=0,snapshot_dir={place.snapshots}", place.source, place.mnt)
    tap.ok(done.code != 0 and len(done.lines) == 1 and "revalidate" in done.lines[0],
           "allow_other without revalidation is refused with one line", done)


mountkit.run(symlink_that_leaves, closed_before_the_first_read, empty_file_closed_while_it_is_open, closed_between_two_mounts, closed_after_it_was_read,
             symlinks_within, directory_replaced, access_lists, directory_closed, source_below_a_closed_directory, without_revalidation)
