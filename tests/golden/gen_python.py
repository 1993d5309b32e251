#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of random.shuffle in Python's standard library."""
import platform
import random

import vectors
from vectors import IMAGENET, SIZES, emit


def shuffled(n, seed):
    items = list(range(n))
    random.Random(seed).shuffle(items)
    return items


def both(n, seed, epochs=(0,)):
    for epoch in epochs:
        emit(f"python-random:seed={seed}:add_epoch=1", n, epoch, 0, shuffled(n, seed + epoch))
    emit(f"python-random:seed={seed}", n, 7, 0, shuffled(n, seed))


def main():
    vectors.heading(f"CPython {platform.python_version()}")
    for n in (0,) + SIZES:
        both(n, 42, (0, 1, 89))
    for seed in (0, 1, 2**32 - 1, 2**32, 2**63, 2**64 - 1):  # seed + epoch grows to a second and third word
        both(10, seed, (0, 1, 5))
    for n in (4, 5, 7, 8, 9, 15, 16, 17, 511, 512, 513, 514, 623, 624, 625, 1023, 1024, 1025, 65535, 65536, 65537):
        both(n, 7)
    both(IMAGENET, 42, (0, 89))


if __name__ == "__main__":
    main()
