# SPDX-License-Identifier: Apache-2.0
"""A DataLoader of the real PyTorch over the records of one raw file, through a mount that was told nothing: its order is followed in
the first epoch, and in the next one.

Nothing here looks at a clock: once it has read some the job computes until its order is in force, as who wins is up to the machine.
"""
import os

import mountkit
import tap
from mountkit import Slowfs, program, rng, write_file

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
MIB = 1 << 20
N, STRIDE = 3000, 100000

JOB = r"""
import json, os, sys, time
import torch
from torch.utils.data import DataLoader, Dataset
from untold_job import compute
point, source, n, stride = *sys.argv[1:3], *map(int, sys.argv[3:5])

class Raw(Dataset):
    def __init__(self):
        self.fd, self.source = os.open(point + "/train.bin", os.O_RDONLY), os.open(source, os.O_RDONLY)
    def __len__(self):
        return n
    def __getitem__(self, k):
        record = os.pread(self.fd, stride, k * stride)
        os.posix_fadvise(self.fd, k * stride, stride, os.POSIX_FADV_DONTNEED)  # there are more than the page cache has room for
        assert record == os.pread(self.source, stride, k * stride), k
        return k

def is_followed(order, search):
    return any(r["is_followed"] for r in search["records"])

def reads():
    with open(point + "/.clairfs/stats.json", "rb") as f:
        return {k: v["bytes"] for k, v in json.load(f)["reads"].items()}

torch.manual_seed(42)
loader = DataLoader(Raw(), batch_size=16, num_workers=4, shuffle=True)
for epoch in range(2):
    for i, batch in enumerate(loader):
        if epoch == 0 and i == 60:
            compute(point, "the order is in force", is_followed)
        time.sleep(0.01)
        if epoch == 0 and i == 80:
            time.sleep(6)  # what was read is decided after five seconds
            before = reads()
time.sleep(6)
after = {k: v - before[k] for k, v in reads().items()}
print(after["staged"] / sum(after.values()))
"""


def loader_is_followed_in_its_first_epoch(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    source = os.path.join(place.source, "train.bin")
    write_file(source, b"".join(rng.randbytes(MIB) for _ in range(N * STRIDE // MIB + 1))[:N * STRIDE])
    with Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--latency-ms", "2", "--mbps", "400"), \
            place.mount(place.path("slow"), ram="64M", recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, source, N, STRIDE, timeout=600, cwd="/")
        tap.equal(done.code, 0, "every record of both epochs was read, and is right") or tap.note(repr(done))
        stats = mount.stats()
        tap.equal(stats["order"]["readers"]["lost"], 0, "the order is not lost")
        part, c = float(done.out or 0), stats["counters"]
        tap.note(f"staged {part:.3f}, source {c['source_bytes'] / (2 * N * STRIDE):.3f} of what was asked")
        tap.ok(part >= 0.7, "most was there before its reader, in the first epoch as well", part)
        tap.ok(c["source_bytes"] <= 1.1 * 2 * N * STRIDE + 64 * MIB, "the source gives what is read", c["source_bytes"])


mountkit.run(loader_is_followed_in_its_first_epoch)
