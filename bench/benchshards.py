# SPDX-License-Identifier: Apache-2.0
"""bench/run shards: samples inside larger files, no order known, read through a mount and directly.

Four files, together five times as large as `ram`, over the simulated source with 10 ms and 200 MB/s, which reads ahead 128 KiB (the
kernel's default) or 4 MiB (as clients of parallel filesystems do):

  records  of 100 KB at random places, each reader its own
  streams  each reader reads its part of a file from the beginning to the end; a single one all files

by 1 and 12 readers, two epochs, both sides in turns. The page cache is dropped before each epoch, so what a mount has of the first
one in the second is in its own memory. Of each: speed against direct (goal 0.95), and bytes that the source sent against direct
(goal 1.1). What the source sent is what the simulated source was asked for, not what either side says.

--source gluster: the same over a real GlusterFS volume on loopback (bench/gluster), as fast as this machine makes it. What it sent is
what its bricks say (gluster volume profile): bytes that crossed the network, whoever had asked for them.
"""
import contextlib
import multiprocessing
import os
import random
import re
import shutil
import sys
import time

import benchlib
from benchlib import Failed

LATENCY_MS, MBPS = 10, 200
READAHEAD_KIB = (128, 4096)
FILES, RECORD_BYTES, STREAM_STEP = 4, 100_000, 256 << 10
READERS = (1, 12)
MOST_SECONDS = 300
CONNECTIONS = "/sys/fs/fuse/connections"
GLUSTER_VOLUME, GLUSTER_BRICKS = "clairfs-bench", 2  # as bench/gluster makes it


def make_dataset(path, file_bytes):
    """Noise: the same MiB would do for time, but a lost byte shows in it nowhere."""
    rng = random.Random(5)
    os.makedirs(path)
    for i in range(FILES):
        with open(f"{path}/shard{i}.bin", "wb") as file:
            for _ in range(file_bytes >> 20):
                file.write(rng.randbytes(1 << 20))


def plan_records(readers, file_bytes, records, seed):
    """For each reader what it reads: (file, offset, length)."""
    rng = random.Random(seed)
    return [[(rng.randrange(FILES), rng.randrange(file_bytes - RECORD_BYTES), RECORD_BYTES) for _ in range(records)]
            for _ in range(readers)]


def plan_streams(readers, file_bytes):
    """One reader reads all files; twelve a third of a file each."""
    if readers == 1:
        return [[(i, at, STREAM_STEP) for i in range(FILES) for at in range(0, file_bytes, STREAM_STEP)]]
    parts = readers // FILES
    size = file_bytes // parts // STREAM_STEP * STREAM_STEP
    return [[(i, at, min(STREAM_STEP, file_bytes - at)) for at in range(k * size, file_bytes if k == parts - 1 else (k + 1) * size,
                                                                       STREAM_STEP)]
            for i in range(FILES) for k in range(parts)]


def read_all(directory, reads, barrier, failed):
    """A reader: a process of its own, as a worker of a loader."""
    fds = [os.open(f"{directory}/shard{i}.bin", os.O_RDONLY) for i in range(FILES)]
    barrier.wait()
    for file, offset, length in reads:
        if len(os.pread(fds[file], length, offset)) != length:
            failed.value = 1
    for fd in fds:
        os.close(fd)


def epoch_seconds(directory, plan):
    context = multiprocessing.get_context("fork")
    barrier, failed = context.Barrier(len(plan) + 1), context.Value("i", 0)
    readers = [context.Process(target=read_all, args=(directory, reads, barrier, failed), daemon=True) for reads in plan]
    for reader in readers:
        reader.start()
    barrier.wait(60)
    start = time.monotonic()
    for reader in readers:
        reader.join(MOST_SECONDS)
    took = time.monotonic() - start
    if failed.value or any(reader.exitcode for reader in readers) or took >= MOST_SECONDS:
        raise Failed(f"readers of {directory} did not end well")
    return took


def connections_of(bench):
    return f"{bench.temp}/connections"


class Source:
    """What is read from, and what it was asked for since the last look."""

    def is_idle(self):
        """Whether the kernel waits for no answer of it: what is read ahead is asked for long after its readers have ended."""
        minor = os.minor(os.stat(self.directory).st_dev)
        try:
            with open(f"{self.connections}/{minor}/waiting", encoding="ascii") as file:
                return int(file.read()) == 0
        except OSError as error:
            raise Failed(f"what the source is asked for cannot be seen: {error}") from None


class Simulated(Source):
    def __init__(self, bench, data, readahead_kib, keep_cache=False):
        self.connections = connections_of(bench)
        self.log, self.at = f"{bench.temp}/slow.log", 0
        self.directory = f"{bench.temp}/slow"
        self.mount = benchlib.slowfs(bench.build, data, self.directory, LATENCY_MS, MBPS, keep_cache=keep_cache,
                                     readahead_kib=readahead_kib, log=self.log)

    def __enter__(self):
        if os.path.exists(self.log):
            os.unlink(self.log)
        self.mount.__enter__()
        return self

    def __exit__(self, *error):
        return self.mount.__exit__(*error)

    def sent(self):
        with open(self.log, encoding="utf-8") as file:
            file.seek(self.at)
            text = file.read()
        whole = text[:text.rfind("\n") + 1]
        self.at += len(whole.encode())
        return sum(int(line.rsplit(" ", 1)[1]) for line in whole.splitlines() if line.startswith("read "))


class Gluster(Source):
    """A copy of the dataset in the volume."""

    def __init__(self, bench, mnt, data, readahead_kib):
        self.connections = connections_of(bench)
        self.mnt, self.data, self.readahead_kib = mnt, data, readahead_kib
        self.directory, self.total = f"{mnt}/{os.path.basename(data)}", 0

    def __enter__(self):
        if not os.path.isdir(self.directory):
            shutil.copytree(self.data, self.directory)
        benchlib.set_readahead(self.mnt, self.readahead_kib)
        self.sent()
        return self

    def __exit__(self, *error):
        return False

    def sent(self):
        text = benchlib.run("gluster", "--mode=script", "volume", "profile", GLUSTER_VOLUME, "info", "cumulative").decode()
        bricks = re.findall(r"Data Read: (\d+) bytes", text)
        if len(bricks) != GLUSTER_BRICKS:
            raise Failed(f"gluster volume profile tells of {len(bricks)} bricks")
        before, self.total = self.total, sum(map(int, bricks))
        return self.total - before


@contextlib.contextmanager
def sources(bench):
    """Yields what makes the source of a dataset: source_of(data, readahead_kib)."""
    with connections(bench):
        if bench.args.source != "gluster":
            yield lambda data, readahead_kib: Simulated(bench, data, readahead_kib)
            return
        with benchlib.work_dir(bench.args.disk) as disk, benchlib.gluster(f"{benchlib.HERE}/gluster", f"{disk}/gluster") as mnt:
            benchlib.run("gluster", "--mode=script", "volume", "profile", GLUSTER_VOLUME, "start")
            # Its own cache of the last 32 MiB would give one side what the other one has read.
            benchlib.run("gluster", "--mode=script", "volume", "set", GLUSTER_VOLUME, "performance.io-cache", "off")
            yield lambda data, readahead_kib: Gluster(bench, mnt, data, readahead_kib)


def row_name(bench, name):
    """Rows of another source than the simulated one have its name."""
    return name if bench.args.source == "slowfs" else f"{name}_{bench.args.source}"


def say_missed(bench, name):
    """What must be reached stands in each line; this is for whoever reads no more than the end."""
    goals = [line for line in bench.lines if "goal" in line]
    missed = [line["name"] for line in goals if not line["reached"]]
    print(f"bench: {name}: {len(missed)} of {len(goals)} goals missed {' '.join(missed)}".rstrip(), file=sys.stderr)


def epochs_of(source, directory, plans, mount=None, read=epoch_seconds):
    """[(seconds, bytes)] of each epoch, which read(directory, plan) reads. What is fetched ahead is waited for, and counts."""
    def is_over():
        gauges = mount.stats()["gauges"] if mount else {"prefetch_inflight": 0, "demand_inflight": 0}
        return gauges["prefetch_inflight"] == gauges["demand_inflight"] == 0 and source.is_idle()

    taken = []
    for plan in plans:
        benchlib.wait_for("what was fetched ahead", is_over)
        benchlib.drop_caches()
        source.sent()
        seconds = read(directory, plan)
        benchlib.wait_for("what was fetched ahead", is_over)
        taken.append((seconds, source.sent()))
    return taken


@contextlib.contextmanager
def connections(bench):
    """What the kernel says of FUSE filesystems: mounted for this run, as another one takes away what it has mounted. Who may not
    mount uses the system's."""
    path = connections_of(bench)
    os.mkdir(path)
    try:
        benchlib.run("mount", "-t", "fusectl", "none", path)
    except Failed:
        if not os.path.ismount(CONNECTIONS):
            raise
        os.rmdir(path)
        os.symlink(CONNECTIONS, path)
    try:
        yield
    finally:
        if os.path.islink(path):
            os.unlink(path)
        else:
            benchlib.run("umount", "-l", path)
            os.rmdir(path)


def run(bench):
    data = f"{bench.temp}/shards"
    file_bytes = bench.size.shard_mib << 20
    make_dataset(data, file_bytes)
    ram = f"{bench.size.shard_mib * FILES // 5}M"
    with sources(bench) as source_of:
        for readahead_kib in READAHEAD_KIB[1 if bench.size.is_smoke else 0:]:
            for kind in ("records", "streams"):
                for readers in READERS:
                    compare(bench, lambda kib=readahead_kib: source_of(data, kib), (readahead_kib, kind, readers), file_bytes, ram)
    say_missed(bench, "shards")


def compare(bench, source_of, what, file_bytes, ram):
    readahead_kib, kind, readers = what
    records = bench.size.shard_records // (1 if readers == 1 else 3)
    speed, sent, rates = [[], []], [[], []], [[], []]
    for r in range(bench.rounds):
        if kind == "records":
            plans = [plan_records(readers, file_bytes, records, (r, epoch).__hash__()) for epoch in range(2)]
        else:
            plans = [plan_streams(readers, file_bytes)] * 2
        asked = sum(length for _, _, length in sum(plans[0], []))
        with source_of() as source:
            def ours(source=source, plans=plans):
                with bench.mount(source.directory, ram=ram, recover="off") as mount:
                    return epochs_of(source, mount.mountpoint, plans, mount)

            def direct(source=source, plans=plans):
                return epochs_of(source, source.directory, plans)

            a, b = (direct(), ours()) if r % 2 else reversed((ours(), direct()))
        for epoch in range(2):
            speed[epoch].append(a[epoch][0] / b[epoch][0])
            sent[epoch].append(b[epoch][1] / max(a[epoch][1], 1))
            rates[epoch].append((asked / a[epoch][0] / 1e6, asked / b[epoch][0] / 1e6, a[epoch][1] / asked, b[epoch][1] / asked))
    for epoch in range(2):
        name = f"{row_name(bench, 'shards')}_{kind}_{readers}readers_ra{readahead_kib}_epoch{epoch}"
        middle = [round(sorted(column)[len(column) // 2], 3) for column in zip(*rates[epoch])]
        bench.emit(f"{name}_speed", "x direct", speed[epoch], goal=(">=", 0.95), direct_mbps=middle[0], clairfs_mbps=middle[1])
        bench.emit(f"{name}_bytes", "x direct", sent[epoch], goal=("<=", 1.1), direct_per_asked=middle[2], clairfs_per_asked=middle[3])
