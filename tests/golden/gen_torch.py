#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of PyTorch's samplers that depend on nothing but their arguments.

    python3 gen_torch.py > order/torch.txt
    python3 gen_torch.py --large > order/torch_large.txt   (n >= 214748364: 6 GB of memory)
"""
import argparse

import torch
from torch.utils.data.distributed import DistributedSampler

import vectors
from vectors import IMAGENET, Indices, emit

BIG = 2**24 + 1


def randperm(n, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(n, generator=generator).numpy()


def emit_randperm(n, seed, epoch=0):
    emit(f"torch-randperm:seed={seed}", n, epoch, 0, randperm(n, seed))


def emit_distributed(n, seed, world, epochs, ranks, shuffle=True, drop_last=False):
    for rank in ranks:
        sampler = DistributedSampler(Indices(n), num_replicas=world, rank=rank, shuffle=shuffle, seed=seed,
                                     drop_last=drop_last)
        spec = f"torch-distributed:seed={seed}:world={world}:shuffle={int(shuffle)}:drop_last={int(drop_last)}"
        for epoch in epochs:
            sampler.set_epoch(epoch)
            emit(spec, n, epoch, rank, list(sampler))


def small():
    # The seeds: default, common, the ends of what manual_seed takes, and pairs that differ above bit 31 only.
    for n in (0, 1, 2, 3, 10, 1000):
        for seed in (0, 1, 42, -1, -42, 2**31, 2**32 - 1, 2**32 + 42, 2**63, 2**64 - 1, -2**63):
            emit_randperm(n, seed)
    emit_randperm(1000, 42, epoch=7)
    for n in (623, 624, 625, 626, 1248, 1249):  # ends of the generator's blocks
        emit_randperm(n, 5)
    for n in (0, 1, 2, 3, 10, 1000):
        for world in (1, 2, 3, 7, 64):
            ranks = sorted({0, world // 2, world - 1})
            for drop_last in (False, True):
                emit_distributed(n, 42, world, (0, 1, 5), ranks, drop_last=drop_last)
                emit_distributed(n, 0, world, (3,), ranks, shuffle=False, drop_last=drop_last)
    for seed in (-1, -7, 2**32 - 1, 2**32 + 42, 2**40 + 7, 2**63 - 1):  # seed + epoch passes 0, 2^32, 2^63
        emit_distributed(1000, seed, 3, (0, 1, 2, 89), (1,))
    emit_distributed(3, 9, 1000, (0, 2), (0, 2, 3, 500, 999))  # padding many times larger than n


def big():
    emit_randperm(IMAGENET, 42)
    emit_randperm(IMAGENET, -1)
    emit_distributed(IMAGENET, 0, 16, (0, 89), (0, 15))
    emit_distributed(IMAGENET, 42, 7, (3,), (6,))
    emit_distributed(IMAGENET, 42, 7, (3,), (6,), drop_last=True)
    emit_randperm(BIG, 42)
    emit_distributed(BIG, 1234, 3, (1,), (2,))
    emit_distributed(BIG, 1234, 8, (0,), (7,), drop_last=True)


def large():
    emit_randperm(214748363, 42)  # the last n of the small branch
    emit_randperm(214748364, 42)  # the first of the large one


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args()
    vectors.heading(f"PyTorch {torch.__version__}")
    if args.large:
        large()
    else:
        small()
        big()


if __name__ == "__main__":
    main()
