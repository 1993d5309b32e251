#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of torchdata's StatefulDataLoader, whose RandomSampler is its own."""
import importlib.metadata
import warnings

import torch

import vectors
from vectors import IMAGENET, SIZES, Indices, as_list, emit, read_epoch

warnings.simplefilter("ignore")
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402


def loader(n, seed, epochs, workers=0, persistent=0, own=0):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if own else None
    loaded = StatefulDataLoader(Indices(n), batch_size=max(1, n // 7), shuffle=True, num_workers=workers,
                                persistent_workers=bool(persistent), collate_fn=as_list, generator=generator)
    spec = f"torchdata-loader:seed={seed}"
    for key, value in (("persistent", persistent), ("generator", own), ("workers", workers)):
        spec += f":{key}={value}" if value else ""
    for epoch in range(max(epochs) + 1):
        samples = read_epoch(loaded)
        if epoch in epochs:
            emit(spec, n, epoch, 0, samples)


def main():
    vectors.heading(f"torchdata {importlib.metadata.version('torchdata')}", f"PyTorch {torch.__version__}")
    for n in SIZES:
        for own in (0, 1):
            for workers, persistent in ((0, 0), (3, 0), (3, 1)):
                for seed in (0, 42, -1) if n == 10 else (42,):
                    loader(n, seed, (0, 1, 4), workers, persistent, own)
    loader(IMAGENET, 42, (0, 2))
    loader(IMAGENET, 42, (2,), own=1)


if __name__ == "__main__":
    main()
