# SPDX-License-Identifier: Apache-2.0
"""bench/run clients: real clients of formats that have samples within larger files (tests/clients), no order known, through a mount
and directly: NPZ, TFRecord, tar, HDF5, Parquet, Arrow, LMDB and memory-mapped arrays, as streams and at random.

The source is that of benchshards.py, the dataset is larger than `ram`, and every record is read once an epoch, by 1 and by 12
readers. The page cache is dropped before each epoch. Of each: speed against direct (goal 0.95), and bytes that the source sent
against direct (goal 1.1). Both sides must have read the same content. --scenarios names clients; those with gigabytes of dependencies
want a Python that has them (--clients-python). --source gluster: a real GlusterFS volume instead, as benchshards.py has it.
"""
import os
import sys

import benchlib
from benchlib import Failed
from benchshards import READAHEAD_KIB, READERS, epochs_of, row_name, say_missed, sources

sys.path.append(os.path.join(benchlib.HERE, "..", "tests", "clients"))
from clientkit import LARGE, SMALL, ClientFailed, Job

SMOKE = ("npz", "webdataset", "hdf5_chunked")  # of the second there are fewer shards than readers
EPOCHS = 2


def run(bench):
    wanted = bench.args.scenarios.split(",") if bench.args.scenarios != "all" else SMOKE if bench.size.is_smoke else list(SMALL)
    for name in wanted:
        if name not in SMALL and name not in LARGE:
            raise Failed(f"no client '{name}', there are: {' '.join([*SMALL, *LARGE])}")
    with sources(bench) as source_of:
        for name in wanted:
            try:
                measure(bench, source_of, name)
            except ClientFailed as failed:
                raise Failed(f"{name}: {failed}") from failed
    say_missed(bench, "clients")


def measure(bench, source_of, name):
    data = f"{bench.temp}/{name}"
    os.mkdir(data)
    with Job(bench.args.clients_python, name, bench.temp) as job:
        job.write(data, bench.size.client_mib << 20)
        for readahead_kib in READAHEAD_KIB[1 if bench.size.is_smoke else 0:]:
            for readers in READERS:
                compare(bench, name, job, lambda kib=readahead_kib: source_of(data, kib), (readahead_kib, readers))


def both(bench, job, source_of, readers, ours_first):
    """[(seconds, bytes sent, content)] of each epoch, directly and through a mount."""
    content = {}

    def read(directory, epoch):
        answer = job.read(directory, readers, epoch)
        content.setdefault(epoch, []).append((answer["records"], answer["bytes"], answer["sha256"]))
        return answer["seconds"]

    with source_of() as source:
        def ours():
            with bench.mount(source.directory, ram=f"{max(32, bench.size.client_mib // 4)}M", recover="off") as mount:
                return epochs_of(source, mount.mountpoint, range(EPOCHS), mount, read)

        def direct():
            return epochs_of(source, source.directory, range(EPOCHS), read=read)

        a, b = reversed((ours(), direct())) if ours_first else (direct(), ours())
    for epoch, (one, other) in content.items():
        if one != other:
            raise Failed(f"epoch {epoch}: the content is not the same: {one} and {other}")
    return a, b, content[0][0][1]


def compare(bench, name, job, source_of, what):
    speed, sent, rates = [[], []], [[], []], [[], []]
    for r in range(bench.rounds):
        a, b, size = both(bench, job, source_of, what[1], r % 2 == 0)
        for epoch in range(EPOCHS):
            speed[epoch].append(a[epoch][0] / b[epoch][0])
            sent[epoch].append(b[epoch][1] / max(a[epoch][1], 1))
            rates[epoch].append((size / a[epoch][0] / 1e6, size / b[epoch][0] / 1e6, a[epoch][1] / size, b[epoch][1] / size))
    for epoch in range(EPOCHS):
        row = f"{row_name(bench, 'clients')}_{name}_{what[1]}readers_ra{what[0]}_epoch{epoch}"
        middle = [round(sorted(column)[len(column) // 2], 3) for column in zip(*rates[epoch])]
        bench.emit(f"{row}_speed", "x direct", speed[epoch], goal=(">=", 0.95), direct_mbps=middle[0], clairfs_mbps=middle[1])
        bench.emit(f"{row}_bytes", "x direct", sent[epoch], goal=("<=", 1.1), direct_per_read=middle[2], clairfs_per_read=middle[3])
