# SPDX-License-Identifier: Apache-2.0
"""Jobs of the real PyTorch over 24 files of 2 MiB, as shards are, without a word of configuration: which of them come first says
next to nothing, in what order they come does. Found by the end of the first epoch, and later ones are fetched ahead.

Who wins, the job or the search, is up to the machine, so the job computes at the end of the first epoch until the order is found,
and before the next one until some of it is there.
"""
import os

import mountkit
import tap
from mountkit import program

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
N, EPOCHS = 24, 3

JOB = r"""
import sys, torch
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from untold_job import Files, compute
point, source, case, n, epochs = *sys.argv[1:4], *map(int, sys.argv[4:6])

shards = Files(n, "shard-{:03d}.tar", point, source)
torch.manual_seed(42)
sampler = DistributedSampler(shards, 1, 0, seed=7) if case == "distributed" else None
loader = DataLoader(shards, batch_size=1, num_workers=2 if case == "manual" else 0, sampler=sampler, shuffle=sampler is None)
read = 0
for epoch in range(epochs):
    if sampler:
        sampler.set_epoch(epoch)
    for batch in loader:
        read += len(batch)
    if epoch == 0:
        compute(point, "the order is found", lambda order, search: search["orders_found"] > 0 and not search["is_searching"])
        compute(point, "the next epoch is fetched", lambda order, search: order["epoch"]["lead"] >= 4)
print(read)
"""


def run(place, case, spec):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    place.files([2 << 20] * N, name="shard-{:03d}.tar")
    with place.mount(recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, place.source, case, N, EPOCHS, timeout=600, cwd="/")
        tap.equal((done.code, done.out.split()), (0, [str(N * EPOCHS).encode()]), f"{case}: every shard was read, and is the source's")
        stats = mount.stats()
        tap.equal(stats["order"]["spec"], spec, f"{case}: the order is the job's, and was found in its first epoch")
        tap.ok(stats["order"]["search"]["found_after_opens"] <= N, f"{case}: by no more opens than there are shards", stats["order"])
        tap.ok(stats["counters"]["prefetch_useful"] > 0, f"{case}: shards were fetched before they were read", stats["counters"])


def loader_with_two_workers(place):
    run(place, "manual", "torch-loader:seed=42")


def distributed_sampler(place):
    run(place, "distributed", "torch-distributed:seed=7")


def a_plain_shuffle_is_none(place):
    """Python's own shuffle is not looked for: nothing is found, whatever it costs the evidence."""
    names = list(place.files([4096] * N, name="shard-{:03d}.tar"))
    with place.mount(recover="quick") as mount:
        for epoch in range(4):
            mountkit.rng.shuffle(names)
            for name in names:
                mountkit.read_file(os.path.join(mount.mountpoint, name))
        stats = mount.wait_for(lambda s: s["order"]["search"]["searches"] > 0 and not s["order"]["search"]["is_searching"],
                               "it was looked for")
        tap.equal(stats["order"]["search"]["orders_found"], 0, "random: nothing is found", )


mountkit.run(loader_with_two_workers, distributed_sampler, a_plain_shuffle_is_none)
