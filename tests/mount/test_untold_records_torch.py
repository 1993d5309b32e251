# SPDX-License-Identifier: Apache-2.0
"""Jobs of the real PyTorch over the records of one large file, without a word of configuration: a raw file by torch.randperm in
the job's own loop, and with a DataLoader and a DistributedSampler; an NPY file mapped by numpy. Records and order are known in the
first epoch.

Who wins, the job or the search, is up to the machine, so the job computes once it has read so many until the order is found. It ends long
before the epoch does: of a mapped file the kernel reads 128 KiB for each record, and soon it has most of a file as small as a test's.
"""
import os
import struct

import mountkit
import tap
from mountkit import program

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
N, STRIDE = 20000, 49152

JOB = r"""
import os, sys
import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
from untold_job import compute
point, name, case, n, stride, origin = *sys.argv[1:4], *map(int, sys.argv[4:7])

class Raw(Dataset):
    def __init__(self):
        self.fd = os.open(f"{point}/{name}", os.O_RDONLY)
    def __len__(self):
        return n
    def __getitem__(self, k):
        record = os.pread(self.fd, stride, origin + k * stride)
        assert len(record) == stride and int.from_bytes(record[:8], "little") == k, k
        return k

class Mapped(Raw):
    def __init__(self):
        import numpy
        self.array = numpy.load(f"{point}/{name}", mmap_mode="r")
    def __getitem__(self, k):
        record = bytes(self.array[int(k)])
        assert len(record) == stride and int.from_bytes(record[:8], "little") == k, k
        return k

def is_found(order, search):
    return any(r["order"] for r in search["records"])

data = Mapped() if case == "mapped" else Raw()
torch.manual_seed(42)
if case == "randperm":
    generator = torch.Generator()
    generator.manual_seed(7)
    for i, k in enumerate(torch.randperm(n, generator=generator).tolist()):
        data[k]
        if i == 1600:
            compute(point, "the order is found", is_found)
        if i == 3200:
            break
else:
    sampler = DistributedSampler(data, 2, 1, seed=3) if case == "distributed" else None
    loader = DataLoader(data, batch_size=16, num_workers=4, sampler=sampler, shuffle=sampler is None)
    for i, batch in enumerate(loader):
        if i == 100:
            compute(point, "the order is found", is_found)
        if i == 200:
            break
print("read")
"""


def run(place, case, want, origin=0):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    name = "train.npy" if case == "mapped" else "train.bin"
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({N}, {STRIDE}), }}".ljust(117).encode() + b"\n"
    with open(os.path.join(place.source, name), "wb") as file:
        file.truncate(origin + N * STRIDE)
        if origin:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
        for k in range(N):
            file.seek(origin + k * STRIDE)
            file.write(struct.pack("<Q", k))
    with place.mount(recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, name, case, N, STRIDE, origin, timeout=600, cwd="/")
        tap.equal((done.code, done.out.split()), (0, [b"read"]), f"{case}: every record was read, and is right")
        stats = mount.wait_for(lambda s: s["order"]["search"]["records"] and s, f"{case}: it is shown")
        one = stats["order"]["search"]["records"][0]
        tap.equal((one["order"], one["record_bytes"], one["count"]), (want, STRIDE, N), f"{case}: it is the job's order")
        # Of 64 reads. The kernel asks for more than the record where a file is mapped: about a third of what is heard of is then another's.
        tap.ok(one["match_percent"] >= (40 if case == "mapped" else 80), f"{case}: the next ones were read so, too", one)


def own_loop(place):
    run(place, "randperm", "torch-distributed:seed=7")  # the first epoch of which is that shuffle


def loader_after_manual_seed(place):
    run(place, "manual", "torch-loader:seed=42")


def distributed_sampler(place):
    run(place, "distributed", "torch-distributed:seed=3:world=2:rank=1")


def loader_over_memmap(place):
    run(place, "mapped", "torch-loader:seed=42", 128)


mountkit.run(own_loop, loader_after_manual_seed, distributed_sampler, loader_over_memmap)
