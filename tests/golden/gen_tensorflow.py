#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of tf.data's shuffle and list_files, computed by TensorFlow.

    python3 gen_tensorflow.py > order/tensorflow.txt          (needs tensorflow or tensorflow-cpu, xxhash; a minute)

Epochs are successive iterations over one dataset object in eager mode. list_files lists empty files made here, whose
names sort as their numbers.
"""
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf  # noqa: E402

from vectors import IMAGENET, emit, heading  # noqa: E402


def set_global(seed):
    if seed is None:
        tf.random.set_seed(0)
        tf.compat.v1.set_random_seed(None)
        tf.random.set_seed(None)
    else:
        tf.random.set_seed(seed)


def seeds_spec(seed, global_seed):
    return f"seed={seed}" + (f":global_seed={global_seed}" if global_seed is not None else "")


def read(dataset):
    """All elements; taken in batches, which is faster."""
    return [s for batch in dataset.batch(10000).as_numpy_iterator() for s in batch]


def emit_shuffle(n, buffer, seed, epochs, global_seed=None, reshuffle=True, repeat=False):
    set_global(global_seed)
    dataset = tf.data.Dataset.range(n).shuffle(buffer, seed=seed, reshuffle_each_iteration=reshuffle)
    spec = f"tf-shuffle:{seeds_spec(seed, global_seed)}:buffer={buffer}:reshuffle_each_iteration={int(reshuffle)}"
    if repeat:  # the same epochs in one iteration
        samples = read(dataset.repeat(max(epochs) + 1))
    else:
        samples = [s for _ in range(max(epochs) + 1) for s in read(dataset)]
    for epoch in epochs:
        emit(spec, n, epoch, 0, samples[epoch * n:(epoch + 1) * n])


def emit_list_files(folder, n, seed, world, epochs, ranks, global_seed=None):
    set_global(global_seed)
    for rank in ranks:
        dataset = tf.data.Dataset.list_files(os.path.join(folder, "*"), seed=seed)
        if world > 1:
            dataset = dataset.shard(world, rank)
        spec = f"tf-list-files:{seeds_spec(seed, global_seed)}:world={world}"
        for epoch in range(max(epochs) + 1):
            names = [int(os.path.basename(name)) for name in dataset.as_numpy_iterator()]
            if epoch in epochs:
                emit(spec, n, epoch, rank, names)


def list_files(n, cases):
    with tempfile.TemporaryDirectory() as folder:
        for i in range(n):
            with open(os.path.join(folder, f"{i:06d}"), "wb"):
                pass
        for seed, world, epochs, ranks, global_seed in cases:
            emit_list_files(folder, n, seed, world, epochs, ranks, global_seed)


def main():
    heading(f"tensorflow {tf.__version__}")
    for n in (1, 2, 3, 10, 1000):
        for buffer in (1, 2, 3, 10, 999, 1000, 5000):
            emit_shuffle(n, buffer, 42, (0, 1))
    for seed in (0, 1, 2**31 - 2, 2**31 - 1, 2**31, 2**32 + 5, 2**63 - 1):
        emit_shuffle(1000, 100, seed, (0, 5))
        emit_shuffle(1000, 100, seed, (0,), global_seed=0)
        emit_shuffle(1000, 100, seed, (1,), global_seed=2**31 + 7)
    emit_shuffle(1000, 64, 3, (0, 1), reshuffle=False)
    emit_shuffle(1000, 64, 3, (0, 1, 2), repeat=True)
    emit_shuffle(IMAGENET, 10000, 9, (0,))
    emit_shuffle(IMAGENET, 2 * IMAGENET, 9, (1,))
    for n in (1, 2, 3, 10):
        list_files(n, [(42, 1, (0, 1, 7), (0,), None), (42, 3, (0, 1), (0, 1, 2), None), (42, 7, (1,), (0, 3, 6), None)])
    list_files(1001, [(42, 1, (0, 1), (0,), None), (42, 7, (0, 2), (0, 3, 6), None), (0, 16, (1,), (0, 9, 15), 0),
                      (5, 2, (3,), (1,), 1234)])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
