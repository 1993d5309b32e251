# SPDX-License-Identifier: Apache-2.0
"""What the clients have in common: bytes to write, and the order to read them in."""
import os

import numpy


def blobs(size, record, seed=15):
    """Records of noise, together about `size` bytes."""
    random = numpy.random.default_rng(seed)
    for _ in range(max(1, size // record)):
        yield random.integers(0, 256, record, dtype=numpy.uint8).tobytes()


def noise(size, record):
    """The same as an array: a row is a record."""
    return numpy.random.default_rng(15).integers(0, 256, (max(1, size // record), record), dtype=numpy.uint8)


def shuffled(n, epoch, part=0, parts=1):
    """The part-th of every `parts` in the epoch's order, as a sampler deals them out."""
    return numpy.random.default_rng(epoch).permutation(n)[part::parts].tolist()


def files(directory, suffix=""):
    return sorted(name for name in os.listdir(directory) if name.endswith(suffix))
