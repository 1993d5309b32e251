# SPDX-License-Identifier: Apache-2.0
"""What the soak knows about the source: every version of every file with its times, and whether what a read gave was right.

The ledger is a file of lines that one process appends and many follow. A change is told before it is made (BEGIN) and after
(DONE), times are CLOCK_MONOTONIC. So the versions that were valid for a read are those begun before its end, and not replaced
long before its start; "long" is what a mount may lag behind the source.

Contents are random bytes of a seed, so that nothing but the seed is kept; a few are kept at hand.
"""
import collections
import errno
import json
import os
import random
import time

from redkit import is_page_mix, words

LAG = 60  # seconds: revalidation on a machine with other things to do
NOTICED = 10  # seconds in which revalidation every second or two usually comes by
ROOM = 24 << 20  # bytes of contents at hand in each process


class Contents:
    """Content of (seed, size), the last ones at hand."""

    def __init__(self):
        self.kept, self.bytes = collections.OrderedDict(), 0

    def get(self, seed, size):
        if (seed, size) in self.kept:
            self.kept.move_to_end((seed, size))
            return self.kept[seed, size]
        data = random.Random(seed).randbytes(size)
        self.kept[seed, size] = data
        self.bytes += size
        while self.bytes > ROOM:
            (_, old), _ = self.kept.popitem(last=False)
            self.bytes -= old
        return data


class Version:
    """One state of a file. size: None when it is not there; done: when its change was over."""

    def __init__(self, seed, size, mode, begun):
        self.seed, self.size, self.mode, self.begun, self.done = seed, size, mode, begun, None

    def is_open(self):
        return self.mode & 0o004


class Writer:
    """The one process that appends."""

    def __init__(self, path):
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, ago=0, **line):
        os.write(self.fd, json.dumps({**line, "t": time.monotonic() - ago}).encode() + b"\n")

    def begin(self, name, seed, size, mode=0o644):
        self.tell(f=name, s=seed, n=size, m=mode)

    def done(self, name):
        self.tell(f=name)

    def down(self, mount, is_down, lacks=()):
        """Reads of that mount may fail from here, or must not any more; files that were not there when it took its index are
        not in it, whatever becomes of them."""
        self.tell(w=mount, d=is_down, g=list(lacks))


class Ledger:
    """One that follows."""

    def __init__(self, path):
        self.file = open(path, "rb")
        self.rest = b""
        self.versions = {}  # of each file, the oldest first
        self.downs = {}  # of each mount: [[from, to or None]]
        self.lacks = {}  # of each mount: names of files that it may not have
        self.contents = Contents()

    def follow(self):
        self.rest += self.file.read()
        *lines, self.rest = self.rest.split(b"\n")
        for line in lines:
            self.take(json.loads(line))

    def take(self, line):
        if "w" in line:
            downs = self.downs.setdefault(line["w"], [])
            self.lacks[line["w"]] = set(line["g"])
            if line["d"]:
                downs.append([line["t"], None])
            elif downs:
                downs[-1][1] = line["t"]
                del downs[:-20]
            return
        versions = self.versions.setdefault(line["f"], [])
        if "n" not in line:
            versions[-1].done = line["t"]
            # What was replaced so long ago is never asked for again.
            while len(versions) > 1 and versions[1].done and versions[1].done < line["t"] - 4 * LAG:
                versions.pop(0)
            return
        versions.append(Version(line["s"], line["n"], line["m"], line["t"]))

    def is_down(self, mount):
        downs = self.downs.get(mount)
        return bool(downs and downs[-1][1] is None)

    def was_down(self, mount, start, end):
        return any(begun <= end and (over is None or over >= start - 1) for begun, over in self.downs.get(mount, ()))

    def valid(self, name, start, end):
        versions = self.versions[name]
        found = []
        for i, version in enumerate(versions):
            after = versions[i + 1] if i + 1 < len(versions) else None
            if version.begun <= end and (after is None or after.done is None or after.done >= start - LAG):
                found.append(version)
        return found

    def content(self, version):
        return self.contents.get(version.seed, version.size)


# What a reader did. is_mapped: it went on in a map that it had made before it waited.
Look = collections.namedtuple("Look", "mount name start end is_in_place is_stranger is_mapped")


def is_across(ledger, there, look, got):
    """The one case that README leaves open: the file was opened before its replacement was noticed, and a READ of its beginning
    (another process's, or of a page that this one had lost) brought the new version before this one went on. Then pages of the
    old version are followed by all the rest of the new; and a map has the size that the file had."""
    for i, old in enumerate(there):
        for new in there[i + 1:]:
            a, b = ledger.content(old), ledger.content(new)
            if look.start > (new.done or look.start) + NOTICED:
                continue
            if len(got) == len(b) and any(got[:at] == a[:at] and got[at:] == b[at:] for at in range(4096, len(b), 4096)):
                return True
            if look.is_mapped and len(a) < len(b) and got == b[:len(a)]:
                return True
    return False


def judge(ledger, look, got):
    """What a read was: "right", "mixed" (in place), "across" (below), "changed" (ESTALE), "gone", "closed", "down"; else what is
    wrong of it.
    look: a Look."""
    mount, name, start, end, is_in_place, is_stranger, _ = look
    valid = ledger.valid(name, start, end)
    if isinstance(got, int):
        if got in (errno.ENOENT, errno.ESTALE, errno.EIO) and any(v.size is None for v in valid):
            return "gone"
        if got == errno.ENOENT and name in ledger.lacks.get(mount, ()):
            return "gone"
        if got in (errno.ESTALE, errno.EIO) and len(valid) > 1:
            return "changed"
        if got in (errno.EACCES, errno.EPERM) and is_stranger and not all(v.is_open() for v in valid):
            return "closed"
        if ledger.was_down(mount, start, end):
            return "down"
        return f"error {errno.errorcode.get(got, got)}"
    there = [v for v in valid if v.size is not None and (v.is_open() or not is_stranger)]
    contents = {f"version {i} of {len(there)}": ledger.content(v) for i, v in enumerate(there)}
    if got in contents.values():
        return "right"
    if is_in_place and len(there) > 1 and is_page_mix(got, list(contents.values())) and \
            min(map(len, contents.values())) <= len(got) <= max(map(len, contents.values())):
        return "mixed"
    if not is_in_place and is_across(ledger, there, look, got):
        return "across"
    if is_stranger and any(v.size is not None and ledger.content(v) == got for v in valid):
        return "given though it is closed to them"
    old = [v for v in ledger.versions[name] if v.size is not None and v not in valid and ledger.content(v) == got]
    if old:
        return f"a version that was replaced more than {LAG} s ago"
    return f"wrong bytes: {words(got, contents)}; valid: {[len(c) for c in contents.values()]} bytes"
