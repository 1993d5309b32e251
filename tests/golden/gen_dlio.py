#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of the DLIO benchmark's PyTorch loader in release 2.0.0, the one that package indices have.

    python3 gen_dlio.py > order/dlio.txt          (needs dlio-benchmark without dependencies, numpy, torch, xxhash)

Its sampler runs here as it is: cut out of the module, whose imports want MPI, and iterated once per epoch
(dlio-v1:own_block=1, and dlio-v1 for one rank, where that is the same). gen_dlio_read.py has the other versions.
"""
import ast
import enum
import importlib.metadata
import math

import numpy
from torch.utils.data.sampler import Sampler

from vectors import IMAGENET, SIZES, emit, heading


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


def main():
    heading(f"dlio-benchmark {importlib.metadata.version('dlio-benchmark')}", f"numpy {numpy.__version__}")
    for n in SIZES:
        emit_release(n, 1, (0,), (0, 1, 2, 9))
    emit_release(1000, 1, (0,), (0, 1), seed=2**32 - 1)
    emit_release(1000, 1, (0,), (0, 1), shuffle=Shuffle.OFF)
    # The release's last block reaches behind the dataset if the ranks do not divide it, and the reader then fails.
    for n, world in ((3, 3), (10, 5), (1000, 8), (1001, 7)):
        emit_release(n, world, sorted({0, world // 2, world - 1}), (0, 1, 4))
    emit_release(IMAGENET, 1, (0,), (5,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
