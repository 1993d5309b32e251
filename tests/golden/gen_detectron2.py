#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of detectron2's TrainingSampler. No registry has detectron2, so the module with the sampler is loaded from
a checkout; rank and world size, which it asks of torch.distributed, are set.

    python3 gen_detectron2.py CHECKOUT COMMIT > order/detectron2.txt

The sampler's stream has no epochs; it is cut after every n samples of all ranks together. If CHECKOUT is none, but only
has the class as somebody wrote it down, the vectors are marked as read."""
import importlib.util
import itertools
import os
import sys
import types

import torch

import vectors
from vectors import IMAGENET, SIZES, emit

comm = types.ModuleType("detectron2.utils.comm")
comm.get_rank = lambda: comm.rank
comm.get_world_size = lambda: comm.world


def load_sampler(checkout):
    utils = types.ModuleType("detectron2.utils")
    utils.comm = comm
    sys.modules.update({"detectron2": types.ModuleType("detectron2"), "detectron2.utils": utils,
                        "detectron2.utils.comm": comm})
    path = os.path.join(checkout, "detectron2/data/samplers/distributed_sampler.py")
    spec = importlib.util.spec_from_file_location("detectron2_samplers", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.TrainingSampler


def run(sampler_class, n, world, rank, epochs, seed=42, shuffle=True):
    comm.rank, comm.world = rank, world
    stream = iter(sampler_class(n, shuffle=shuffle, seed=seed))
    place = rank  # in the stream of all ranks
    for epoch in range(max(epochs) + 1):
        count = len(range(place, (epoch + 1) * n, world))
        samples = list(itertools.islice(stream, count))
        place += count * world
        if epoch in epochs:
            emit(f"detectron2-training:seed={seed}:world={world}:shuffle={int(shuffle)}", n, epoch, rank, samples)


def main():
    sampler_class = load_sampler(sys.argv[1])
    how = "LIVE" if os.path.exists(os.path.join(sys.argv[1], ".git")) else "READ"
    vectors.heading(f"detectron2 {sys.argv[2]}", f"PyTorch {torch.__version__}", how=how)
    for n in SIZES:
        for world in (1, 2, 3, 7, 64):
            for rank in sorted({0, world // 2, world - 1}):
                run(sampler_class, n, world, rank, (0, 1, 5))
    run(sampler_class, 10, 3, 1, (0, 1, 2), seed=-7)
    run(sampler_class, 10, 3, 1, (0, 1, 2), shuffle=False)
    run(sampler_class, IMAGENET, 7, 6, (0, 15))


if __name__ == "__main__":
    main()
