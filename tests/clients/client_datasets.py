# SPDX-License-Identifier: Apache-2.0
"""Hugging Face datasets from disk: rows of mapped Arrow files in a shuffled order."""
import datasets
from records import blobs, shuffled

RECORD = 60000


def write(directory, size, how):
    rows = list(blobs(size, RECORD))
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict({"id": list(range(len(rows))), "image": rows}).save_to_disk(f"{directory}/train", max_shard_size="8MB")


def read(directory, part, parts, epoch, how):
    rows = datasets.load_from_disk(f"{directory}/train")
    for i in shuffled(len(rows), epoch, part, parts):
        yield i, rows[i]["image"]
