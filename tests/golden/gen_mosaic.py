#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of MosaicML Streaming, computed by its own generate_work: shuffle and partition in one.

    python3 gen_mosaic.py > order/mosaic.txt          (needs mosaicml-streaming, xxhash; a minute)

The dataset is a stand-in that holds the arguments of a StreamingDataset with one stream that is read once; generate_work
gets it with the world's shape and returns the sample numbers by node, rank, worker, batch. A rank's DataLoader takes
batch b from worker b % workers.
"""
import importlib.metadata
import os
import sys
import types
import warnings

import numpy

from vectors import emit, heading


def without_vision():
    """Importing the package imports its picture datasets, which want a torchvision built for the very torch that is
    installed. No order depends on them: a package without its __init__."""
    package = types.ModuleType("streaming")
    package.__path__ = [os.path.join(folder, "streaming") for folder in sys.path]
    sys.modules["streaming"] = package


without_vision()
from streaming.base.batching.random import generate_work_random_batching  # noqa: E402

ALGORITHMS = ("naive", "py1s", "py2s", "py1br", "py1e")


def sizes_of(shards):
    sizes = []
    for item in shards.split("+"):
        size, _, count = item.partition("x")
        sizes += [int(size)] * int(count or 1)
    return numpy.array(sizes, numpy.int64)


def defaults(algorithm, nodes, canonical, block):
    """As StreamingDataset sets them."""
    canonical = canonical or (64 * nodes if algorithm in ("py1s", "py2s") else nodes)
    return canonical, block or max(4_000_000 // canonical, 1 << 18)


def emit_mosaic(algorithm, shards, epochs, nodes=1, per_node=1, workers=0, batch=1, canonical=0, block=0, seed=9176,
                ranks=None, shuffle=True):
    sizes = sizes_of(shards)
    n = int(sizes.sum())
    real_canonical, real_block = defaults(algorithm, nodes, canonical, block)
    dataset = types.SimpleNamespace(
        num_canonical_nodes=real_canonical, batch_size=batch, partition_algo="relaxed", epoch_size=n,
        initial_physical_nodes=None, shuffle=shuffle, shuffle_algo=algorithm, shuffle_seed=seed,
        shuffle_block_size=real_block, resample_streams=lambda epoch: (sizes, numpy.arange(n)))
    world = types.SimpleNamespace(num_nodes=nodes, ranks_per_node=per_node, workers_per_rank=max(workers, 1))
    spec = f"mosaic-{algorithm}:shards={shards}:world={nodes * per_node}:nodes={nodes}:batch={batch}:workers={workers}"
    spec += f":canonical_nodes={canonical}" * bool(canonical) + f":block={block}" * bool(block)
    spec += f":seed={seed}" * (seed != 9176) + ":shuffle=0" * (not shuffle)
    for epoch in epochs:
        work = generate_work_random_batching(dataset, world, epoch, 0)
        for rank in ranks if ranks is not None else range(nodes * per_node):
            own = work[rank // per_node, rank % per_node].transpose(1, 0, 2).ravel()
            emit(spec, n, epoch, rank, own[own >= 0])


def main():
    warnings.simplefilter("ignore")
    heading(f"mosaicml-streaming {importlib.metadata.version('mosaicml-streaming')}", f"numpy {numpy.__version__}")
    for algorithm in ALGORITHMS:
        for shards in ("1", "2", "3", "1x10", "7+1+2"):
            emit_mosaic(algorithm, shards, (0, 1), canonical=1)
        for shards in ("1", "2", "3", "1x10", "100x10"):  # padding, also longer than the dataset
            for world in (3, 7):
                emit_mosaic(algorithm, shards, (0, 1), per_node=world, canonical=1, workers=2, batch=4,
                            ranks=sorted({0, world // 2, world - 1}))
        emit_mosaic(algorithm, "3+1x5+9+2x8+40", (0, 1, 7), canonical=7, block=8)
        emit_mosaic(algorithm, "100x20+57", (0, 1, 2), nodes=2, per_node=3, workers=2, batch=7, canonical=4, block=64,
                    ranks=(0, 4, 5))
        emit_mosaic(algorithm, "100x20+57", (0,), nodes=4, per_node=2, workers=3, batch=5, canonical=2, block=300,
                    ranks=(0, 1, 7))
        emit_mosaic(algorithm, "100x20+57", (1,), seed=2**40 + 1)
        emit_mosaic(algorithm, "5+1000x30+999", (0, 3), per_node=3, canonical=2, block=5000, ranks=(1,))
        emit_mosaic(algorithm, "20000x50", (1,), canonical=3, block=1 << 18)
    # The partition alone: what does not divide, and fewer samples than nodes or ranks.
    for n, nodes, per_node, canonical in (
            (1, 1, 3, 1), (2, 1, 7, 1), (3, 2, 2, 2), (3, 2, 3, 4), (10, 4, 1, 2), (11, 2, 4, 1), (13, 3, 5, 3),
            (17, 1, 6, 8), (5, 2, 2, 10), (4, 4, 1, 4), (4, 8, 1, 4), (7, 8, 2, 4), (1000, 6, 7, 2), (1000, 3, 4, 9),
            (1001, 8, 3, 1)):
        emit_mosaic("naive", str(n), (0,), nodes=nodes, per_node=per_node, workers=2, batch=3, canonical=canonical,
                    ranks=sorted({0, nodes * per_node // 2, nodes * per_node - 1}), shuffle=False)
    emit_mosaic("py1br", "1000x1600", (1,), canonical=32)  # so many that the default block is its least
    for algorithm in ALGORITHMS:
        emit_mosaic(algorithm, "1000x1281+167", (2,))
        emit_mosaic(algorithm, "1000x1281+167", (2,), nodes=2, per_node=4, workers=8, batch=32, ranks=(5,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
