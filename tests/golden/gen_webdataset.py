#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of WebDataset's shard order, computed by its own pipeline stages.

    python3 gen_webdataset.py > order/webdataset.txt          (needs webdataset, xxhash; seconds)

A WebDataset is made with its arguments, and the stages behind the one that shuffles (they open tars) are taken off. Rank
and worker are told by the environment, as WebDataset itself reads them there. An epoch of a rank is the first shard of
each worker, then the second of each, ...
"""
import importlib.metadata
import itertools
import os
import warnings

import webdataset

from vectors import IMAGENET, emit, heading


def pipeline(n, seed, shardshuffle, detshuffle):
    dataset = webdataset.WebDataset([str(i) for i in range(n)], seed=seed, shardshuffle=shardshuffle,
                                    detshuffle=detshuffle, nodesplitter=webdataset.shardlists.split_by_node)
    return webdataset.DataPipeline(*dataset.pipeline[:4])  # list, node, worker, shuffle


def worker_epochs(n, seed, shardshuffle, detshuffle, persistent, workers, worker, epochs):
    """Lists of shards, one for each epoch. A worker that does not persist starts from a fresh copy."""
    os.environ["WORKER"], os.environ["NUM_WORKERS"] = str(worker), str(max(workers, 1))
    lives_on = workers == 0 or persistent
    stages = pipeline(n, seed, shardshuffle, detshuffle)
    lists = []
    for _ in range(epochs):
        if not lives_on:
            stages = pipeline(n, seed, shardshuffle, detshuffle)
        lists.append([int(sample["url"]) for sample in stages])
    return lists


def emit_webdataset(n, seed, shardshuffle, world, workers, epochs=2, detshuffle=False, persistent=False, ranks=None):
    spec = f"webdataset:seed={seed}:shardshuffle={shardshuffle}:world={world}:workers={workers}" \
           f":detshuffle={int(detshuffle)}:persistent={int(persistent)}"
    for rank in ranks if ranks is not None else range(world):
        os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), str(world)
        lists = [worker_epochs(n, seed, shardshuffle, detshuffle, persistent, workers, worker, epochs)
                 for worker in range(max(workers, 1))]
        for epoch in range(epochs):
            rows = itertools.zip_longest(*[own[epoch] for own in lists])
            emit(spec, n, epoch, rank, [shard for row in rows for shard in row if shard is not None])


def main():
    warnings.simplefilter("ignore")
    heading(f"webdataset {importlib.metadata.version('webdataset')}")
    for n in (1, 2, 3, 10, 1000):
        for shardshuffle in (0, 1, 2, 50, 100, 101, 1500):
            emit_webdataset(n, 42, shardshuffle, 1, 0, epochs=1)
    for seed in (0, 1, 2**32 - 1, 2**32, 2**64 - 1):
        emit_webdataset(1000, seed, 100, 1, 0, detshuffle=True, epochs=3)
    for n, world, workers in ((3, 3, 0), (7, 7, 2), (10, 3, 0), (10, 3, 4), (1000, 7, 3), (1001, 16, 8), (5, 8, 2)):
        ranks = sorted({0, world // 2, world - 1})
        emit_webdataset(n, 7, 100, world, workers, ranks=ranks)
        emit_webdataset(n, 7, 100, world, workers, ranks=ranks, detshuffle=True)
        emit_webdataset(n, 7, 100, world, workers, ranks=ranks, detshuffle=True, persistent=True, epochs=3)
    emit_webdataset(IMAGENET, 42, 1000, 1, 0, detshuffle=True)
    emit_webdataset(IMAGENET, 42, 1000, 7, 3, ranks=(6,), epochs=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
