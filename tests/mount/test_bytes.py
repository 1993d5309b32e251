# SPDX-License-Identifier: Apache-2.0
"""Whatever the order, the engine and the kernel do: every byte read through the mount is the byte of the source."""
import json
import os
import subprocess
import sys

import mountkit
import tap
import trees
from mountkit import Crew, drop_caches, good, rng

READERS = 8
BIG = 4 << 20  # whole reads of larger files: by one reader only

# A page fault in a mount that hangs would stop this whole process: mapped files are compared by a child.
MMAP_READER = """
import json, mmap, os, sys
for mounted, source in json.load(sys.stdin):
    mounted, source = os.fsencode(mounted), os.fsencode(source)
    with open(mounted, "rb") as a, open(source, "rb") as b:
        x = mmap.mmap(a.fileno(), 0, prot=mmap.PROT_READ)
        same = x[:] == b.read()
    if not same:
        sys.exit(f"mapped bytes of {mounted!r} differ")
"""


class Job:
    """READERS threads that compare what they read with the content of the source."""

    def __init__(self, mount, data, seed):
        self.mount, self.seed = mount, seed
        self.files = {path: content for path, content in data.items() if content is not None}

    def path(self, name):
        return os.path.join(os.fsencode(self.mount.mountpoint), name)

    def check(self, name, got, offset=0):
        want = self.files[name][offset:offset + len(got)] if len(got) else self.files[name][offset:offset + 1]
        if got != want:
            at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            raise mountkit.Failed(f"{name!r} differs at byte {offset + at}: {len(got)} bytes read at {offset}")

    def read_whole(self, names):
        for name in names:
            got = mountkit.read_file(self.path(name))
            if len(got) != len(self.files[name]):
                raise mountkit.Failed(f"{name!r}: {len(got)} bytes, not {len(self.files[name])}")
            self.check(name, got)

    def read_randomly(self, number, rounds):
        random = mountkit.random.Random(self.seed + number)
        names = sorted(self.files)
        for _ in range(rounds):
            name = random.choice(names)
            size = len(self.files[name])
            fd = os.open(self.path(name), os.O_RDONLY)
            try:
                for _ in range(random.randrange(1, 5)):
                    offset = random.randrange(size + 2)
                    length = random.choice([1, 100, 4096, 65536, 300000])
                    got = os.pread(fd, length, offset)
                    if len(got) != max(0, min(length, size - offset)):
                        raise mountkit.Failed(f"{name!r}: {len(got)} of {length} bytes at {offset}, size {size}")
                    if got:
                        self.check(name, got, offset)
                if random.random() < 0.2:
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)

    def run(self, order):
        """Whole files in the order, dealt to the readers; the page cache goes in the middle; then anything at all."""
        crew = Crew()
        middle = mountkit.threading.Barrier(READERS, action=lambda: drop_caches(rng.choice([1, 2, 3])))

        def reader(number):
            mine = [name for i, name in enumerate(order) if i % READERS == number]
            try:
                self.read_whole(mine[:len(mine) // 2])
            except BaseException:
                middle.abort()
                raise
            middle.wait(mountkit.DEADLINE * 4)
            self.read_whole(mine[len(mine) // 2:])
            small = [name for name in self.files if len(self.files[name]) <= BIG]
            mountkit.random.Random(self.seed + number).shuffle(small)
            self.read_whole(small[:len(small) // 2])
            self.read_randomly(number, 60)
        for number in range(READERS):
            crew.add(reader, number)
        return crew.join()

    def run_mapped(self, source):
        pairs = [(os.fsdecode(self.path(name)), os.path.join(source, os.fsdecode(name)))
                 for name, content in self.files.items() if content]
        done = subprocess.run([sys.executable, "-c", MMAP_READER], input=json.dumps(pairs).encode(), stderr=subprocess.PIPE,
                              timeout=mountkit.DEADLINE * 4, check=False)
        return [done.stderr.decode(errors="replace")] if done.returncode else []


def order_of(place, kind, n):
    """(spec or None, the sequence of sample numbers the job reads)."""
    sequence = list(range(n))
    rng.shuffle(sequence)
    if kind == "absent":
        return None, sequence
    spec = place.list_file(sequence)
    if kind == "wrong":
        rng.shuffle(sequence)
    return spec, sequence


def check(place, data, samples, engine, kind):
    what = f"engine {engine}, order {kind}"
    spec, sequence = order_of(place, kind, len(samples))
    options = {"debug": {"source_engine": engine}, "layout": "files", **({"order": spec} if spec else {})}
    with place.mount(**options) as mount:
        tap.equal(trees.listing(mount.mountpoint), {path: content is None for path, content in data.items()},
                  f"{what}: the names are those of the source")
        job = Job(mount, data, rng.randrange(1 << 32))
        tap.no_findings(job.run([samples[i] for i in sequence]), f"{what}: {READERS} readers read the bytes of the source")
        tap.no_findings(job.run_mapped(place.source), f"{what}: mapped files hold the bytes of the source")
        stats = mount.stats()
        tap.equal(stats["engines"]["source"], engine, f"{what}: the engine that was asked for ran")
        tap.ok(stats["counters"]["source_reads"] > 0, f"{what}: the source was read through it", stats["counters"])
        tap.equal(stats["counters"]["read_errors"], 0, f"{what}: no read failed")
        tap.equal(stats["dataset"]["samples"], len(samples), f"{what}: every file is a sample")


def sample_names(place):
    """Paths of the samples in the order of their numbers, from the index (whose format test_status checks)."""
    names = []
    for line in good("index", place.source, "--layout", "files").splitlines():
        text = line.split(b"\t")[1]
        names.append(mountkit.unescape(text))
    return names


def bytes_are_those_of_the_source(place):
    trees.make_odd_tree(place.source)
    data = trees.content(place.source)
    samples = sample_names(place)
    tap.equal(sorted(samples), sorted(p for p, content in data.items() if content is not None), "index lists every file")
    works = json.loads(good("caps", "--json"))["io_uring"]["works"]
    for kind in ("right", "wrong", "absent"):
        for engine in ("pool", "uring"):
            if engine == "uring" and not works:
                done = mountkit.clairfs("mount", "-o", "debug=source_engine:uring,snapshot_dir=none", place.source, place.mnt)
                tap.ok(done.code != 0 and len(done.lines) == 1 and "source_engine" in done.lines[0],
                       "io_uring is off on this machine: asking for it is an error that says so", done)
            else:
                check(place, data, samples, engine, kind)


mountkit.run(bytes_are_those_of_the_source)
