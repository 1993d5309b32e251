#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of the DLIO benchmark's PyTorch loader.

    python3 gen_dlio.py > order/dlio.txt          (needs dlio-benchmark without dependencies, numpy, torch, xxhash)

Release 2.0.0 is what package indices have, and its sampler runs here as it is: cut out of the module, whose imports want
MPI, and iterated once per epoch (dlio-v1:own_block=1, and dlio-v1 for one rank, where that is the same). The others are
on no index. What their loaders do is a few calls, made here with the real numpy, Python and torch:

    v0.5  random.seed(seed + epoch), random.shuffle of the list; DistributedSampler(seed) with set_epoch(epoch) on it
    v1.0  numpy.random.seed(seed), numpy.random.shuffle of the list of all samples; a block of it for each rank
    v2    (2.0.1) blocks of ceil(samples / ranks), not shuffled
"""
import ast
import enum
import importlib.metadata
import math
import random

import numpy
import torch
from torch.utils.data.distributed import DistributedSampler
from torch.utils.data.sampler import Sampler

from vectors import Indices, emit, heading


class Shuffle(enum.Enum):
    """The module's, with the same names."""
    OFF = "off"
    SEED = "seed"


def release_sampler():
    """dlio_sampler of the installed release."""
    (path,) = [file for file in importlib.metadata.files("dlio-benchmark")
               if str(file) == "dlio_benchmark/data_loader/torch_data_loader.py"]
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "dlio_sampler"]
    names = {"Sampler": Sampler, "Shuffle": Shuffle, "np": numpy, "math": math}
    exec(compile(tree, "torch_data_loader.py", "exec"), names)
    return names["dlio_sampler"]


def emit_release(n, world, ranks, epochs, seed=123, shuffle=Shuffle.SEED):
    for rank in ranks:
        sampler = release_sampler()(rank, world, n, shuffle, max(epochs) + 1, seed)
        spec = f"dlio-v1:seed={seed}:world={world}:sample_shuffle={int(shuffle != Shuffle.OFF)}"
        for epoch in range(max(epochs) + 1):
            samples = list(sampler)
            if epoch in epochs:
                emit(spec + ":own_block=1", n, epoch, rank, samples)
                if world == 1:
                    emit(spec, n, epoch, rank, samples)


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
    heading(f"dlio-benchmark {importlib.metadata.version('dlio-benchmark')}", f"numpy {numpy.__version__}",
            f"torch {torch.__version__}")
    for n in (1, 2, 3, 10, 1000):
        emit_release(n, 1, (0,), (0, 1, 2, 9))
        emit_v05(n, 1, (0,), (0, 1, 9))
    emit_release(1000, 1, (0,), (0, 1), seed=2**32 - 1)
    emit_release(1000, 1, (0,), (0, 1), shuffle=Shuffle.OFF)
    # The release's last block reaches behind the dataset if the ranks do not divide it, and the reader then fails.
    for n, world in ((10, 5), (1000, 8), (1001, 7)):
        ranks = sorted({0, world // 2, world - 1})
        emit_release(n, world, ranks, (0, 1, 4))
        emit_v1(n, world, ranks, (0, 1, 4))
    for n, world in ((3, 2), (10, 3), (1000, 7), (3, 16)):
        ranks = sorted({0, world // 2, world - 1})
        emit_v1(n, world, ranks, (0, 2))
        emit_v05(n, world, ranks, (0, 2))
        emit_v05(n, world, ranks[:1], (0, 2), file_shuffle=False)
        emit_v05(n, world, ranks[:1], (0, 2), sample_shuffle=False)
        emit_v05(n, world, ranks[:1], (0, 2), change=False, seed=2**32)
        emit_v2(n, world, ranks)
    emit_release(1281167, 1, (0,), (5,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
