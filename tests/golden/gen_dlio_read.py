#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes vectors of the DLIO benchmark's PyTorch loader in the versions that are on no package index.

    python3 gen_dlio_read.py > order/dlio_read.txt          (needs numpy, torch, xxhash; seconds)

What their loaders do is a few calls, read in the source and made here with the real numpy, Python and torch. So these
vectors check our arithmetic and our generators, and not whether the source was read well:

    v0.5  60782fe  random.seed(seed + epoch), random.shuffle of the list; on it DistributedSampler(seed), set_epoch(epoch)
    v1.0  2fcdbfa  numpy.random.seed(seed), numpy.random.shuffle of the list of all samples; a block of it for each rank
    v2    392621b, 00ed30c  (2.0.1 and later) blocks of ceil(samples / ranks), not shuffled
"""
import math
import random

import numpy
import torch
from torch.utils.data.distributed import DistributedSampler

from vectors import IMAGENET, SIZES, Indices, emit, heading


def emit_v1(n, world, ranks, epochs, seed=123):
    samples = list(range(n))
    for epoch in range(max(epochs) + 1):
        numpy.random.seed(seed)
        numpy.random.shuffle(samples)
        for rank in ranks if epoch in epochs else ():
            each = n // world
            emit(f"dlio-v1:seed={seed}:world={world}", n, epoch, rank, samples[rank * each:(rank + 1) * each])


def emit_v05(n, world, ranks, epochs, seed=123, file_shuffle=True, sample_shuffle=True, change=True):
    spec = f"dlio-v0.5:seed={seed}:world={world}:file_shuffle={int(file_shuffle)}" \
           f":sample_shuffle={int(sample_shuffle)}:seed_change_epoch={int(change)}"
    files = list(range(n))
    for epoch in range(1, max(epochs) + 2):
        if file_shuffle:
            random.seed(seed + epoch if change else seed)
            random.shuffle(files)
        for rank in ranks if epoch - 1 in epochs else ():
            sampler = DistributedSampler(Indices(n), num_replicas=world, rank=rank, shuffle=sample_shuffle, seed=seed)
            sampler.set_epoch(epoch)
            emit(spec, n, epoch - 1, rank, [files[i] for i in sampler])


def emit_v2(n, world, ranks):
    for rank in ranks:
        each = math.ceil(n / world)
        emit(f"dlio-v2:world={world}", n, 0, rank, range(min(rank * each, n), min((rank + 1) * each, n)))


def main():
    heading("dlio_benchmark 60782fe, 2fcdbfa, 392621b", f"numpy {numpy.__version__}", f"torch {torch.__version__}",
            how="READ")
    for n in SIZES:
        emit_v05(n, 1, (0,), (0, 1, 9))
        emit_v1(n, 1, (0,), (0, 1, 9))
        for world in (2, 3, 7, 16):
            ranks = sorted({0, world // 2, world - 1})
            emit_v1(n, world, ranks, (0, 2))
            emit_v05(n, world, ranks, (0, 2))
            emit_v2(n, world, ranks)
    for n, world in ((3, 2), (10, 3), (1001, 7)):
        emit_v05(n, world, (0,), (0, 2), file_shuffle=False)
        emit_v05(n, world, (0,), (0, 2), sample_shuffle=False)
        emit_v05(n, world, (0,), (0, 2), change=False, seed=2**32)
        emit_v1(n, world, (world - 1,), (1,), seed=2**32 - 1)
    emit_v05(IMAGENET, 7, (6,), (2,))
    emit_v1(IMAGENET, 7, (6,), (2,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
