#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of FFCV's OrderOption.RANDOM.

    python3 gen_ffcv.py > order/ffcv.txt          (needs numpy, torch, xxhash; seconds)

FFCV itself is not run: its package builds against OpenCV and libjpeg-turbo. Its random order is two calls into numpy and
torch (ffcv/traversal_order/random.py), and these are made here: default_rng(seed + epoch).permutation in one process,
DistributedSampler(shuffle, seed, no drop_last) with set_epoch in several.
"""
import numpy
import torch
from torch.utils.data.distributed import DistributedSampler

from vectors import IMAGENET, Indices, emit, heading


def emit_single(n, seed, epochs):
    for epoch in epochs:
        emit(f"ffcv:seed={seed}", n, epoch, 0, numpy.random.default_rng(seed + epoch).permutation(numpy.arange(n)))


def emit_distributed(n, seed, world, epochs, ranks):
    for rank in ranks:
        sampler = DistributedSampler(Indices(n), num_replicas=world, rank=rank, shuffle=True, seed=seed,
                                     drop_last=False)
        for epoch in epochs:
            sampler.set_epoch(epoch)
            emit(f"ffcv:seed={seed}:world={world}", n, epoch, rank, list(sampler))


def main():
    heading(f"FFCV's calls into numpy {numpy.__version__}", f"torch {torch.__version__}")
    for n in (0, 1, 2, 3, 10, 1000):
        for seed in (0, 42, 2**32 - 1, 2**32, 2**64 - 2):
            emit_single(n, seed, (0, 1, 9))
    emit_single(IMAGENET, 42, (3,))
    for n, world in ((1, 2), (3, 2), (10, 3), (1000, 7), (3, 64)):
        emit_distributed(n, 42, world, (0, 1), sorted({0, world // 2, world - 1}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
