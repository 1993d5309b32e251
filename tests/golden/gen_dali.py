#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of DALI's readers.file, read by DALI on the CPU (no GPU is needed).

    python3 gen_dali.py > order/dali.txt          (needs nvidia-dali-cuda120, xxhash; a minute)

The labels of the files are their numbers, and initial_fill=1 takes away the buffer that permutes what is already read:
what comes out is the sequence of reads. A reader's stream is cut into epochs at the sizes of the shards it reads.

    python3 gen_dali.py --old > order/dali_old.txt          (nvidia-dali-cuda120 1.23.0)

A few vectors of a DALI that was built with a compiler before GCC 11 (libstdcxx=10) and shuffles after an epoch with
another generator (engine=32). gen_libstdcxx.cpp has more of both.
"""
import argparse
import itertools
import os
import tempfile

import nvidia.dali
from nvidia.dali import Pipeline, fn

from vectors import IMAGENET, emit, heading

BATCH = 64
BATCH_LARGE = 8192


def batch_of(files):
    return BATCH if len(files) < 65000 else BATCH_LARGE


def pipeline(files, checkpointing, options):
    pipe = Pipeline(batch_size=batch_of(files), num_threads=1, device_id=None, prefetch_queue_depth=1,
                    **({"enable_checkpointing": True} if checkpointing else {}))
    with pipe:
        _, labels = fn.readers.file(files=files, labels=list(range(len(files))), initial_fill=1, **options)
        pipe.set_outputs(labels)
    return pipe


def stream(pipe, batch):
    pipe.build()
    while True:
        (labels,) = pipe.run()
        yield from (int(labels.at(i)[0]) for i in range(batch))


def emit_dali(files, world, ranks, epochs, checkpointing=False, old=False, **options):
    n = len(files)
    spec = f"dali-file:world={world}" + "".join(f":{key}={int(value)}" for key, value in options.items())
    spec += ":checkpointing=1" * checkpointing + ":libstdcxx=10:engine=32" * old
    is_own = options.get("stick_to_shard") or options.get("shuffle_after_epoch")
    for rank in ranks:
        read = stream(pipeline(files, checkpointing, options | {"shard_id": rank, "num_shards": world}),
                      batch_of(files))
        for epoch in range(max(epochs) + 1):
            shard = rank if is_own else (rank + epoch) % world
            samples = list(itertools.islice(read, n * (shard + 1) // world - n * shard // world))
            if epoch in epochs:
                emit(spec, n, epoch, rank, samples)


def vectors(files):
    for n in (1, 2, 3, 10, 1000, 1001):
        emit_dali(files[:n], 1, (0,), (0, 1))
        emit_dali(files[:n], 1, (0,), (0, 1), random_shuffle=True)
        emit_dali(files[:n], 1, (0,), (0, 1, 4), shuffle_after_epoch=True)
        emit_dali(files[:n], 1, (0,), (0, 1, 4), shuffle_after_epoch=True, checkpointing=True)
    for n, world in ((3, 3), (7, 7), (3, 2), (10, 3), (1000, 7), (1001, 16)):
        ranks = sorted({0, world // 2, world - 1})
        emit_dali(files[:n], world, ranks, (0, 1, 17))
        emit_dali(files[:n], world, ranks, (0, 1, 17), random_shuffle=True)
        emit_dali(files[:n], world, ranks, (0, 3), random_shuffle=True, stick_to_shard=True)
        emit_dali(files[:n], world, ranks, (0, 3), shuffle_after_epoch=True)
    for n in (65535, 65536):  # the last that draws places in pairs, and the first that does not
        emit_dali(files[:n], 1, (0,), (0,), random_shuffle=True)
    many = files[:1] * IMAGENET  # the labels tell them apart
    emit_dali(many, 1, (0,), (0,), random_shuffle=True)
    emit_dali(many, 7, (6,), (1,), random_shuffle=True)
    emit_dali(many, 1, (0,), (1,), shuffle_after_epoch=True)


def vectors_old(files):
    for n in (10, 1000, 3000):
        emit_dali(files[:n], 1, (0,), (0,), old=True, random_shuffle=True)
        emit_dali(files[:n], 1, (0,), (0, 1, 2), old=True, shuffle_after_epoch=True)
    emit_dali(files[:1001], 4, (0, 3), (0, 2), old=True, random_shuffle=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--old", action="store_true")
    old = parser.parse_args().old
    heading(f"nvidia-dali {nvidia.dali.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        files = [os.path.join(folder, str(i)) for i in range(3000 if old else 65536)]
        for name in files:
            with open(name, "wb") as file:
                file.write(b"x")
        (vectors_old if old else vectors)(files)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
