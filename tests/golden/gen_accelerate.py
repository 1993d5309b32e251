#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of HF accelerate's prepare_data_loader with use_seedable_sampler=True, for any rank of any world: the
loader it returns is read to its end, epoch after epoch. split_batches=True must read the same samples as False does with
the batch one rank gets; both are written where the batch can be split."""
import importlib.metadata

import torch
from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader

import vectors
from vectors import IMAGENET, SIZES, Indices, as_list, emit, read_epoch


def prepared(n, batch, world, rank, seed=42, shuffle=1, drop_last=0, even_batches=1, split=False):
    loader = DataLoader(Indices(n), batch_size=batch * world if split else batch, shuffle=bool(shuffle),
                        drop_last=bool(drop_last), collate_fn=as_list)
    return prepare_data_loader(loader, num_processes=world, process_index=rank, split_batches=split, put_on_device=False,
                               even_batches=bool(even_batches), use_seedable_sampler=True, data_seed=seed)


def epochs_of(loader, epochs):
    for epoch in range(max(epochs) + 1):
        samples = read_epoch(loader)
        if epoch in epochs:
            yield epoch, samples


def run(n, batch, world, ranks, epochs, **arguments):
    spec = f"accelerate:world={world}:batch={batch}" + "".join(f":{k}={v}" for k, v in arguments.items())
    for rank in ranks:
        split = dict(epochs_of(prepared(n, batch, world, rank, split=True, **arguments), epochs))
        for epoch, samples in epochs_of(prepared(n, batch, world, rank, **arguments), epochs):
            emit(spec, n, epoch, rank, samples)
            assert split[epoch] == samples, spec


def main():
    vectors.heading(f"accelerate {importlib.metadata.version('accelerate')}", f"PyTorch {torch.__version__}")
    for n in SIZES:
        for world in (1, 2, 3, 7):
            ranks = sorted({0, world // 2, world - 1})
            for batch in (1, 4, 30):
                run(n, batch, world, ranks if n < 1000 else ranks[-1:], (0,))
                run(n, batch, world, ranks[-1:], (0,), even_batches=0)
                run(n, batch, world, ranks[-1:], (0,), drop_last=1)
    run(1000, 16, 5, (0, 4), (1, 2, 5), seed=-7)  # seed + epoch passes 0
    run(1000, 16, 5, (3,), (0, 1), seed=2**32 - 1)
    run(1000, 16, 5, (3,), (0,), shuffle=0)
    run(29, 4, 7, range(7), (0,), even_batches=0)
    run(IMAGENET, 256, 7, (0, 6), (0, 2))
    run(IMAGENET, 256, 7, (6,), (0,), even_batches=0)


if __name__ == "__main__":
    main()
