# SPDX-License-Identifier: Apache-2.0
"""numpy.load of one .npz file per sample, as unet3d of MLPerf Storage has them."""
import numpy
from records import files, noise, shuffled

N = 12


def write(directory, size, how):
    for i, rows in enumerate(numpy.array_split(noise(size, 1000), N)):
        numpy.savez(f"{directory}/case_{i:05d}.npz", x=rows, y=numpy.int64(i))


def order(directory, epoch, how):
    names = files(directory)
    return [names[i] for i in shuffled(len(names), epoch)]


def read(directory, part, parts, epoch, how):
    for name in order(directory, epoch, how)[part::parts]:
        with numpy.load(f"{directory}/{name}") as file:
            yield name, file["x"].tobytes() + file["y"].tobytes()
