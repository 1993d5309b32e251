# SPDX-License-Identifier: Apache-2.0
"""h5py, records of one dataset in a shuffled order. how: "contiguous", or "chunked" with a hundred records in each chunk."""
import h5py
from records import noise, shuffled

RECORD = 2500


def write(directory, size, how):
    with h5py.File(f"{directory}/train.h5", "w") as file:
        chunks = (100, RECORD) if how == "chunked" else None
        file.create_dataset("records", data=noise(size, RECORD), chunks=chunks)


def read(directory, part, parts, epoch, how):
    with h5py.File(f"{directory}/train.h5", "r") as file:
        records = file["records"]
        order = shuffled(len(records), epoch, part, parts)
        if how == "chunked":  # as who knows of the chunks: these are shuffled, not the records
            order = [100 * c + i for c in shuffled(len(records) // 100, epoch, part, parts) for i in range(100)]
        for i in order:
            yield i, records[i].tobytes()
