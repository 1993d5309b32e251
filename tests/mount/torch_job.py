# SPDX-License-Identifier: Apache-2.0
"""What test_torch runs in a Python that has PyTorch: DataLoaders over a mount, and beside it the source to compare with.

    torch_job.py distributed|randperm MOUNT SOURCE SEED EPOCHS

Prints one JSON object: what was read, and what the mount said at the end of each epoch.
"""
import json
import os
import sys

import torch
import torch.multiprocessing
from torch.utils.data import DataLoader, Dataset, DistributedSampler, RandomSampler

BATCH, WORKERS, WORLD = 8, 2, 2


class Files(Dataset):
    """Sorted files, as image folders list them; an item says whether the mount's bytes are those of the source."""

    def __init__(self, mounted, source):
        self.mounted, self.source = mounted, source
        self.names = sorted(os.listdir(mounted))

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        with open(os.path.join(self.mounted, self.names[index]), "rb") as file:
            got = file.read()
        with open(os.path.join(self.source, self.names[index]), "rb") as file:
            return index, int(got == file.read()), len(got)


def order_of(mounted):
    with open(os.path.join(mounted, ".clairfs", "stats.json"), encoding="utf-8") as file:
        stats = json.load(file)
    return {**stats["order"], "mismatches": stats["counters"]["order_mismatches"]}


def read_epoch(loader, meet):
    found = {"items": 0, "equal": 0, "bytes": 0}
    for index, equal, size in loader:
        found["items"] += len(index)
        found["equal"] += int(equal.sum())
        found["bytes"] += int(size.sum())
        meet()  # the step of a data-parallel job: nobody runs ahead
    return found


def rank_main(rank, mounted, source, seed, epochs, barrier, results):
    data = Files(mounted, source)
    sampler = DistributedSampler(data, num_replicas=WORLD, rank=rank, shuffle=True, seed=seed)
    loader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=WORKERS)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        found = read_epoch(loader, barrier.wait)
        barrier.wait()
        results.put((rank, epoch, found, order_of(mounted)))
        barrier.wait()


def distributed(mounted, source, seed, epochs):
    context = torch.multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(WORLD, timeout=600), context.SimpleQueue()
    ranks = [context.Process(target=rank_main, args=(rank, mounted, source, seed, epochs, barrier, results))
             for rank in range(WORLD)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    if any(process.exitcode for process in ranks):
        sys.exit("a rank has failed")
    return [results.get() for _ in range(WORLD * epochs)]


def randperm(mounted, source, seed, epochs):
    """The same permutation every epoch, drawn from a generator that starts anew."""
    data = Files(mounted, source)
    found = []
    for epoch in range(epochs):
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
        loader = DataLoader(data, batch_size=BATCH, sampler=order, num_workers=WORKERS)
        found.append((0, epoch, read_epoch(loader, lambda: None), order_of(mounted)))
    return found


def plain(mounted, source, seed, epochs):
    """RandomSampler with a generator of its own: an order nobody has told the mount."""
    data = Files(mounted, source)
    generator = torch.Generator().manual_seed(seed)
    loader = DataLoader(data, batch_size=BATCH, sampler=RandomSampler(data, generator=generator), num_workers=WORKERS)
    return [(0, epoch, read_epoch(loader, lambda: None), order_of(mounted)) for epoch in range(epochs)]


if __name__ == "__main__":
    kind, mounted, source, seed, epochs = sys.argv[1:]
    work = {"distributed": distributed, "randperm": randperm, "plain": plain}[kind]
    json.dump({"torch": torch.__version__, "epochs": work(mounted, source, int(seed), int(epochs))}, sys.stdout)
