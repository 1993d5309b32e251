# SPDX-License-Identifier: Apache-2.0
"""A store that somebody damages, before a mount or while it is in use: no wrong byte is served with the default and with
store_verify=always. What first and off promise is less: what was there before the mount is verified once, so damage that comes
later may be served; how much was is printed.

Kinds of damage: bits in payloads, seals, headers and footers, records exchanged, pages of zeros, segments cut off, replaced
by another one, removed, closed to their owner. Each by itself and all at once to one store; the short form does so for
the modes that promise most, CLAIRFS_REDTEAM=long for every mode.
"""
import os
import shutil
import struct
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from redkit import IS_LONG, PAGE
import mountkit
import tap
from jobs import Job
from mountkit import rng

N, SIZE = 480, 64 << 10  # 30 MiB, more than the RAM below
OPTIONS = {"ram": "16M", "store_keep_free": 0, "store_bytes": "48M"}
SEAL, TRAILER, ENTRY = 96, struct.Struct("<8sIIQQIIQQ"), struct.Struct("<IIII32x")


class Store:
    """The segments of a directory, as they were when it was looked at."""

    def __init__(self, path):
        self.path = path
        self.records = {}  # of each segment: [(offset, bytes of the record, bytes of its payload)]
        for name in sorted(os.listdir(path)):
            if name.startswith("seg-"):
                self.records[name] = self.footer(os.path.join(path, name))
        self.left = [name for name, records in self.records.items() if len(records) > 8]
        rng.shuffle(self.left)

    @staticmethod
    def footer(path):
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            file.seek(size - PAGE)
            magic, _, count, _, _, first, *_ = TRAILER.unpack(file.read(TRAILER.size))
            if magic != b"CLFSFOOT":
                return []
            file.seek(first * PAGE)
            found = []
            for block, _, length, _ in ENTRY.iter_unpack(file.read(count * ENTRY.size)):
                found.append((block * PAGE, (length + SEAL + PAGE - 1) // PAGE * PAGE, length))
            return found

    def segment(self):
        """One of those that nothing was done to as a whole."""
        return os.path.join(self.path, rng.choice(self.left))

    def take_segment(self):
        """One for damage of its own, while more than one is left."""
        return os.path.join(self.path, self.left.pop() if len(self.left) > 1 else self.left[0])

    def record(self):
        path = self.segment()
        return path, *rng.choice(self.records[os.path.basename(path)])


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 1 << rng.randrange(8)]))


def payloads(store):
    for _ in range(60):
        path, at, _, length = store.record()
        flip(path, at + rng.randrange(length))


def seals(store):
    for _ in range(20):
        path, at, size, _ = store.record()
        flip(path, at + size - SEAL + rng.randrange(SEAL))


def zeros(store):
    for _ in range(30):
        path, at, _, length = store.record()
        with open(path, "r+b") as file:
            file.seek(at + rng.randrange(max(1, length // PAGE)) * PAGE)
            file.write(bytes(PAGE))


def exchanged(store):
    for _ in range(20):
        path, at, size, _ = store.record()
        other, there, size2, _ = store.record()
        if size != size2:
            continue
        with open(path, "r+b") as a, open(other, "r+b") as b:
            a.seek(at)
            b.seek(there)
            first, second = a.read(size), b.read(size)
            a.seek(at)
            b.seek(there)
            a.write(second)
            b.write(first)
            a.flush()


def header(store):
    flip(store.take_segment(), rng.randrange(48))


def footer(store):
    path = store.take_segment()
    flip(path, os.path.getsize(path) - PAGE - rng.randrange(ENTRY.size * 4) - 1)


def cut_off(store):
    path = store.take_segment()
    os.truncate(path, rng.randrange(PAGE, os.path.getsize(path)))


def another_one(store):
    """In place, as a program does that restores a backup with the wrong name."""
    path, other = store.take_segment(), store.segment()
    with open(other, "rb") as file:
        content = file.read()
    with open(path, "r+b") as file:
        file.write(content)
        file.truncate()


def removed(store):
    os.unlink(store.take_segment())


def closed(store):
    os.chmod(store.take_segment(), rng.choice((0, 0o666)))


KINDS = (payloads, seals, zeros, exchanged, header, footer, cut_off, another_one, closed, removed)


def filled(place):
    """A store that has everything, and the files."""
    data, path = place.files([SIZE - i % 3 * 5000 for i in range(N)]), place.path("filled")
    os.mkdir(path, 0o700)
    total = sum(map(len, data.values()))
    with place.mount(order=place.list_file(list(range(N)) * 3), store_dir=path, **OPTIONS) as mount:
        job = Job(mount, data)
        for _ in range(3):
            job.read(range(N))
            if mount.stats()["store"]["record_bytes"] >= total:
                break
        mount.wait_for(lambda s: s["store"]["record_bytes"] >= total, "everything is kept")
        tap.equal(job.wrong, [], "the store is filled")
    return data, path


def pass_over(mount, data):
    """Reads every file past the page cache; which were wrong."""
    wrong = []
    for name, content in data.items():
        fd = os.open(mount.path(name), os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            parts = []
            while part := os.read(fd, 1 << 20):
                parts.append(part)
        finally:
            os.close(fd)
        if b"".join(parts) != content:
            wrong.append(name)
    return wrong


def attack(place, data, template, kinds, verify, is_mounted):
    """One store damaged in these ways; the names of files that were wrong, one by one."""
    path = place.path("attacked")
    shutil.rmtree(path, ignore_errors=True)
    shutil.copytree(template, path)
    options = {**OPTIONS, "store_dir": path, **({"store_verify": verify} if verify else {})}
    store, wrong = Store(path), []

    def damage():
        for kind in kinds:
            kind(store)
    if not is_mounted:
        damage()
    with place.mount(**options) as mount:
        wrong += pass_over(mount, data)
        if is_mounted:
            tap.ok(mount.counters()["store_reads"] > 0, "samples come from the store", mount.counters())
            damage()
        for _ in range(2):
            wrong += pass_over(mount, data)
        counters = mount.counters()
    tap.note(f"{counters['store_reads']} reads of the store, {counters['store_errors']} store errors")
    return wrong


def damage(place):
    data, template = filled(place)
    tap.ok(len(Store(template).left) >= 4, "the store has segments enough", Store(template).left)
    for what, kinds in [("all kinds", KINDS)] + [(kind.__name__, (kind,)) for kind in KINDS]:
        for verify in (None, "always", "first", "off") if IS_LONG or len(kinds) > 1 else (None, "always"):
            for is_mounted in (False, True):
                wrong = attack(place, data, template, kinds, verify, is_mounted)
                name = f"{what}, {'while mounted' if is_mounted else 'before the mount'}, store_verify={verify or '(default)'}"
                if is_mounted and verify in ("first", "off"):
                    tap.note(f"{name}: {len(wrong)} of {3 * len(data)} reads were wrong, as documented")
                else:
                    tap.equal(wrong, [], f"{name}: no read of {3 * len(data)} is wrong")


mountkit.run(damage)
