#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of timm's RepeatAugSampler. Only the module with the samplers is loaded: the package around it wants
torchvision, which has no say in the order."""
import importlib.metadata
import importlib.util

import torch

import vectors
from vectors import IMAGENET, SIZES, Indices, emit


def load_samplers():
    path = importlib.metadata.distribution("timm").locate_file("timm/data/distributed_sampler.py")
    spec = importlib.util.spec_from_file_location("timm_distributed_sampler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


RepeatAugSampler = load_samplers().RepeatAugSampler


def repeataug(n, world, ranks, epochs, **arguments):
    spec = f"timm-repeataug:world={world}" + "".join(f":{k}={int(v)}" for k, v in arguments.items())
    for rank in ranks:
        sampler = RepeatAugSampler(Indices(n), num_replicas=world, rank=rank, **arguments)
        for epoch in epochs:
            sampler.set_epoch(epoch)
            emit(spec, n, epoch, rank, list(sampler))


def main():
    vectors.heading(f"timm {importlib.metadata.version('timm')}", f"PyTorch {torch.__version__}")
    for n in SIZES:
        for world in (1, 3, 7, 8, 64):
            ranks = sorted({0, world // 2, world - 1})
            repeataug(n, world, ranks, (0, 3))
        repeataug(n, 3, (0, 2), (1,), num_repeats=1)
        repeataug(n, 3, (0, 2), (1,), num_repeats=4, selected_round=0)
        repeataug(n, 3, (0, 2), (1,), selected_round=7, selected_ratio=2)
        repeataug(n, 3, (0, 2), (1,), selected_ratio=1)
        repeataug(n, 7, (0, 5), (1,), selected_ratio=1)  # more than a rank has
        repeataug(n, 7, (5,), (1,), shuffle=False)
    for n in (255, 256, 257, 511, 513):
        repeataug(n, 5, (4,), (2,))
    repeataug(3, 1000, (0, 2, 500, 999), (1,))
    repeataug(IMAGENET, 7, (0, 6), (0, 89))


if __name__ == "__main__":
    main()
