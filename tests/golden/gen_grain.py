#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of grain's IndexSampler, read the way grain's DataLoader reads it.

    python3 gen_grain.py > order/grain.txt          (needs grain, xxhash; minutes, for the two large ones)

The loader asks a shard's sampler for indices shard, shard + shards, ...; the keys of the records it gets, as many as the
shard has, are an epoch.
"""
import importlib.metadata

import grain.python as grain

from vectors import IMAGENET, emit, heading


def emit_grain(n, seed, world=1, epochs=(0,), ranks=None, shuffle=True, drop_remainder=False):
    spec = f"grain:seed={seed}:world={world}:shuffle={int(shuffle)}:drop_remainder={int(drop_remainder)}"
    for rank in ranks if ranks is not None else range(world):
        options = grain.ShardOptions(shard_index=rank, shard_count=world, drop_remainder=drop_remainder)
        length = n // world + (not drop_remainder and rank < n % world)
        sampler = grain.IndexSampler(n, shard_options=options, shuffle=shuffle, seed=seed)
        for epoch in epochs:
            emit(spec, n, epoch, rank,
                 [sampler[i * world + rank].record_key for i in range(epoch * length, (epoch + 1) * length)])


def main():
    heading(f"grain {importlib.metadata.version('grain')}")
    for n in (1, 2, 3, 10, 255, 256, 257, 1000):
        for seed in (0, 1, 42, 2**32 - 1):
            emit_grain(n, seed, epochs=(0, 1, 2))
    for n, world in ((1, 3), (1, 7), (2, 7), (3, 2), (10, 3), (1000, 7), (1001, 16), (257, 256)):
        for drop_remainder in (False, True):
            ranks = sorted({0, world // 2, world - 1})
            emit_grain(n, 42, world, (0, 1, 5), ranks, drop_remainder=drop_remainder)
            emit_grain(n, 42, world, (1,), ranks[:1], shuffle=False, drop_remainder=drop_remainder)
    for n in (65535, 65536, 65537, 65538):  # 65537: the block is a bit too small, no permutation
        emit_grain(n, 7)
    emit_grain(131074, 7, world=2, ranks=(1,))
    emit_grain(262145, 1, epochs=(1,))
    emit_grain(IMAGENET, 42, epochs=(2,))
    emit_grain(IMAGENET, 42, world=7, epochs=(1,), ranks=(6,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
