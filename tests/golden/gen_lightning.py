#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of the sampler that Lightning puts into a user's DataLoader (kind torch-distributed), after
seed_everything."""
import importlib.metadata
import logging
import os

import torch
from torch.utils.data import DataLoader

import vectors
from vectors import IMAGENET, SIZES, Indices, emit

logging.getLogger("lightning").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
from lightning.pytorch import seed_everything  # noqa: E402
from lightning.pytorch.trainer.connectors.data_connector import _get_distributed_sampler  # noqa: E402


def run(n, world, rank, epochs, shuffle=True):
    loader = DataLoader(Indices(n), shuffle=shuffle)
    sampler = _get_distributed_sampler(loader, shuffle, 0, num_replicas=world, rank=rank)
    seed = os.environ.get("PL_GLOBAL_SEED", "0")
    for epoch in epochs:
        sampler.set_epoch(epoch)
        emit(f"torch-distributed:seed={seed}:world={world}:shuffle={int(shuffle)}", n, epoch, rank, list(sampler))


def main():
    vectors.heading(f"lightning {importlib.metadata.version('lightning')}", f"PyTorch {torch.__version__}")
    os.environ.pop("PL_GLOBAL_SEED", None)
    run(10, 3, 2, (0, 1))  # seed_everything not called: seed 0
    for seed in (0, 42, 2**32 - 1):
        seed_everything(seed, verbose=False)
        for n in SIZES:
            run(n, 3, 1, (0, 1, 5))
            run(n, 7, 6, (0, 1))
    run(IMAGENET, 7, 6, (3,))
    run(1000, 7, 6, (0, 2), shuffle=False)


if __name__ == "__main__":
    main()
