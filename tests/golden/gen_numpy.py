#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of numpy's permutations, from RandomState and from default_rng; permutation(n), and shuffle of an array
and of a list, which must agree."""
import numpy

import vectors
from vectors import IMAGENET, SIZES, emit


def agreed(make, n):
    """What permutation(n) gives, after checking that the other ways to ask give the same."""
    permutation = make().permutation(n)
    array, items = numpy.arange(n, dtype=numpy.uint16 if n < 60000 else numpy.uint32), list(range(n))
    make().shuffle(array)
    assert (array == permutation).all()
    if n <= 1000:
        make().shuffle(items)
        assert items == permutation.tolist()
    return permutation


def both(n, seed, epochs=(0,)):
    if seed < 2**32:
        for epoch in epochs:
            emit(f"numpy-legacy:seed={seed}:add_epoch=1", n, epoch, 0,
                 agreed(lambda: numpy.random.RandomState(seed + epoch), n))
        emit(f"numpy-legacy:seed={seed}", n, 7, 0, agreed(lambda: numpy.random.RandomState(seed), n))
    for epoch in epochs:
        emit(f"numpy-generator:seed={seed}:add_epoch=1", n, epoch, 0,
             agreed(lambda: numpy.random.default_rng(seed + epoch), n))
    emit(f"numpy-generator:seed={seed}", n, 7, 0, agreed(lambda: numpy.random.default_rng(seed), n))


def main():
    vectors.heading(f"numpy {numpy.__version__}")
    for n in (0,) + SIZES:
        both(n, 42, (0, 1, 89))
    for seed in (0, 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64 - 1):  # seed + epoch grows to a second and third word
        both(10, seed, (0,) if seed == 2**32 - 1 else (0, 1, 5))
    for n in (4, 5, 8, 9, 16, 17, 511, 512, 513, 514, 623, 624, 625, 1024, 1025, 65536, 65537):  # masks and blocks
        both(n, 7)
    both(IMAGENET, 42, (0, 89))
    both(2**20, 1234)
    both(2**20 + 1, 1234)


if __name__ == "__main__":
    main()
