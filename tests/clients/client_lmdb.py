# SPDX-License-Identifier: Apache-2.0
"""LMDB, values in a shuffled order. how: "plain", or "locked" with its lock file, which a mount has no room for."""
import lmdb
from records import blobs, shuffled

RECORD = 100000


def write(directory, size, how):
    with lmdb.open(f"{directory}/db", map_size=2 * size + (16 << 20)) as env, env.begin(write=True) as change:
        for i, blob in enumerate(blobs(size, RECORD)):
            change.put(b"%08d" % i, blob)


def read(directory, part, parts, epoch, how):
    with lmdb.open(f"{directory}/db", readonly=True, lock=how == "locked", readahead=False, meminit=False) as env:
        with env.begin() as look:
            for i in shuffled(look.stat()["entries"], epoch, part, parts):
                yield i, look.get(b"%08d" % i)
