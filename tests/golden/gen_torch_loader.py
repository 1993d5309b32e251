#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of PyTorch's DataLoader where the generator lives on from epoch to epoch, read through real loaders,
in this process and by workers."""
import torch
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler

import vectors
from vectors import IMAGENET, SIZES, Indices, as_list, emit, read_epoch

SEEDS = (0, 42, -1, 2**32 + 42)


def load(n, sampler=None, persistent=0, workers=None, generator=None):
    if workers is None:
        workers = 2 if persistent else 0
    # A batch that leaves a rest, whatever n is: its size must not matter.
    return DataLoader(Indices(n), batch_size=max(1, n // 7), sampler=sampler, shuffle=sampler is None or None,
                      num_workers=workers, persistent_workers=bool(persistent), collate_fn=as_list, generator=generator)


def emit_epochs(spec, n, loader, epochs):
    for epoch in range(max(epochs) + 1):
        samples = read_epoch(loader)
        if epoch in epochs:
            emit(spec, n, epoch, 0, samples)


def with_flags(spec, **flags):
    return spec + "".join(f":{name}={int(value)}" for name, value in flags.items() if value)


def default_generator(n, seed, epochs, persistent=0, replacement=False, num_samples=None, workers=None):
    torch.manual_seed(seed)
    sampler = None
    if replacement or num_samples:
        sampler = RandomSampler(Indices(n), replacement=replacement, num_samples=num_samples)
    spec = with_flags(f"torch-loader:seed={seed}", persistent=persistent, replacement=replacement,
                      num_samples=num_samples)
    emit_epochs(spec, n, load(n, sampler, persistent, workers), epochs)


def other_draws(n, seed, before, between, epochs, persistent=0):
    """A module that is made before the loader, and numbers drawn after each epoch."""
    torch.manual_seed(seed)
    torch.nn.Linear(before, 1, bias=False)
    loader = load(n, None, persistent, 2 if persistent else None)
    draws = between + (2 if persistent else 4)
    for epoch in range(max(epochs) + 1):
        samples = read_epoch(loader)
        if epoch in epochs:
            emit(f"torch-loader:seed={seed}:before={before}" + f":draws={draws}" * bool(between), n, epoch, 0, samples)
        torch.rand(between)


def own_generator(n, seed, epochs, persistent=0, sampler_only=0, replacement=False, num_samples=None, workers=None):
    generator = torch.Generator()
    generator.manual_seed(seed)
    sampler = None
    if replacement or num_samples or sampler_only:
        sampler = RandomSampler(Indices(n), replacement=replacement, num_samples=num_samples, generator=generator)
    spec = with_flags(f"torch-generator:seed={seed}", persistent=persistent, sampler_only=sampler_only,
                      replacement=replacement, num_samples=num_samples)
    emit_epochs(spec, n, load(n, sampler, persistent, workers, None if sampler_only else generator), epochs)


def subset(n, seed, epochs, persistent=0, sampler_only=0):
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed) if sampler_only else None
    sampler = SubsetRandomSampler(range(n), generator=generator)
    spec = with_flags(f"torch-subset:seed={seed}", persistent=persistent, sampler_only=sampler_only)
    emit_epochs(spec, n, load(n, sampler, persistent), epochs)


def unfinished(n, batch):
    """A loader that leaves an incomplete batch out draws what others draw: its epochs are theirs without the end."""
    loaders = []
    for drop_last in (False, True):
        generator = torch.Generator().manual_seed(42)
        loaders.append(DataLoader(Indices(n), batch_size=batch, shuffle=True, drop_last=drop_last, collate_fn=as_list,
                                  generator=generator))
    for _ in range(3):
        whole, cut = (read_epoch(loader) for loader in loaders)
        assert cut == whole[:n // batch * batch]


def small():
    for n in SIZES:
        for seed in SEEDS if n == 10 else (42,):
            for persistent in (0, 1):
                default_generator(n, seed, (0, 1, 4), persistent)
                own_generator(n, seed, (0, 1, 4), persistent)
                subset(n, seed, (0, 1, 4), persistent)
            own_generator(n, seed, (0, 1, 4), sampler_only=1)
            subset(n, seed, (0, 1, 4), sampler_only=1)
        for num_samples in (1, 31, 32, 33, 1000, 2500):
            default_generator(n, 7, (0, 3), replacement=True, num_samples=num_samples)
            own_generator(n, 7, (0, 3), replacement=True, num_samples=num_samples)
            default_generator(n, 7, (0, 3), num_samples=num_samples)
            own_generator(n, 7, (0, 3), num_samples=num_samples)
    unfinished(1000, 7)
    unfinished(1000, 10)
    default_generator(1000, 42, (0, 5), workers=3)  # as without workers
    own_generator(1000, 42, (0, 5), workers=3)
    own_generator(1000, 42, (2,), sampler_only=1, replacement=True)
    other_draws(1000, 42, 1, 0, (0, 1, 7))
    other_draws(1000, 1337, 100001, 17, (0, 1, 7))
    other_draws(1000, 0, 20000000, 2, (0, 3), persistent=1)  # draws after the first epoch as well


def big():
    for n in (2**28 - 1, 2**28):  # from here on torch.randint draws two words per number
        own_generator(n, 42, (0, 1), replacement=True, num_samples=1001)
    default_generator(IMAGENET, 42, (0, 3))
    own_generator(IMAGENET, 42, (0, 1, 20))  # epoch 20 is 51 million words on
    own_generator(IMAGENET, 42, (1,), num_samples=2 * IMAGENET + 5)
    subset(IMAGENET, 42, (0, 2))


if __name__ == "__main__":
    vectors.heading(f"PyTorch {torch.__version__}")
    small()
    big()
