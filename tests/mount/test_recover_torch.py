# SPDX-License-Identifier: Apache-2.0
"""Jobs of the real PyTorch on a mount without any configuration of its order: DistributedSampler, manual_seed(42) and
shuffle=True, and the latter with a validation pass that draws numbers between the epochs. Their orders are found in the
first epoch and go on being followed in the next ones."""
import os

import mountkit
import tap
from mountkit import program, rng

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
N, EPOCHS = 2000, 4

JOB = r"""
import sys, time, torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler
point, source, case, n, epochs = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5])

class Files(Dataset):
    def __len__(self):
        return n
    def __getitem__(self, i):
        both = []
        for root in (point, source):
            with open(f"{root}/s{i:05d}.bin", "rb") as f:
                both.append(f.read())
        assert both[0] == both[1], i
        return i

files = Files()
torch.manual_seed(42)
sampler = DistributedSampler(files, 2, 1) if case == "distributed" else None
loader = DataLoader(files, batch_size=16, num_workers=4, sampler=sampler, shuffle=sampler is None)
read = 0
for epoch in range(epochs):
    if sampler:
        sampler.set_epoch(epoch)
    for batch in loader:
        read += len(batch)
    if case == "validated":
        torch.rand(2)
print(read)
"""


def run(place, case, want, read):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    place.files([rng.randrange(1, 4096) for _ in range(N)])
    with place.mount(recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, place.source, case, N, EPOCHS, timeout=600, cwd="/")
        tap.equal((done.code, done.out.split()), (0, [str(read).encode()]), f"{case}: every sample was read, and is the source's")
        stats = mount.wait_for(lambda s: s["order"]["search"]["found"] and not s["order"]["search"]["is_searching"],
                               f"{case}: an order is found")
        tap.ok(want(stats["order"]), f"{case}: it is the job's", stats["order"])
        stats = mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= read, f"{case}: all reads are classified")
        tap.ok(stats["counters"]["prefetch_useful"] >= N // 4, f"{case}: later epochs were fetched ahead", stats["counters"])


def distributed_sampler(place):
    run(place, "distributed", lambda o: o["spec"] == "torch-distributed:world=2:rank=1", N // 2 * EPOCHS)


def manual_seed(place):
    run(place, "manual", lambda o: o["spec"] == "torch-loader:seed=42", N * EPOCHS)


def manual_seed_and_other_draws(place):
    """Six words of the generator from epoch to epoch: found twice, the next ones are known before they begin."""
    run(place, "validated", lambda o: o["spec"].startswith("torch-randperm:seed=") and o["spec"].endswith(":epochs=1"), N * EPOCHS)


mountkit.run(distributed_sampler, manual_seed, manual_seed_and_other_draws)
