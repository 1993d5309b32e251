# SPDX-License-Identifier: Apache-2.0
"""numpy.memmap of a .npy file, record by record in a shuffled order, as tokens of language models are read."""
import numpy
from records import noise, shuffled


def write(directory, size, how):
    numpy.save(f"{directory}/tokens.npy", noise(size, 4096))


def read(directory, part, parts, epoch, how):
    rows = numpy.load(f"{directory}/tokens.npy", mmap_mode="r")
    for i in shuffled(len(rows), epoch, part, parts):
        yield i, rows[i].tobytes()
