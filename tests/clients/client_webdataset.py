# SPDX-License-Identifier: Apache-2.0
"""WebDataset over tar shards, written by its ShardWriter. The shards are dealt out to the readers."""
import webdataset
from records import blobs, files, shuffled

SHARDS, RECORD = 8, 60000


def write(directory, size, how):
    count = max(1, size // RECORD // SHARDS)
    with webdataset.ShardWriter(f"{directory}/train-%06d.tar", maxcount=count, verbose=0) as shards:
        for i, blob in enumerate(blobs(size, RECORD)):
            shards.write({"__key__": f"{i:08d}", "jpg": blob, "cls": str(i % 1000)})


def order(directory, epoch, how):
    names = files(directory)
    return [names[i] for i in shuffled(len(names), epoch)]


def read(directory, part, parts, epoch, how):
    urls = [f"{directory}/{name}" for name in order(directory, epoch, how)[part::parts]]
    # It takes no list without a shard, which is what readers get of whom there are more than shards.
    for sample in webdataset.WebDataset(urls, shardshuffle=False, empty_check=False) if urls else ():
        yield sample["__key__"], sample["jpg"] + sample["cls"]
