#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of litdata's StreamingDataset.

    python3 gen_litdata.py > order/litdata.txt          (needs litdata, torch, xxhash; a minute)

Datasets on disk are streamed through litdata's own StreamingDataLoader where one process shows everything (emit_streamed).
For many ranks and nodes its FullShuffle and NoShuffle are asked which items each worker has in which sequence; the cache
they look into is a stand-in that knows the chunks' sizes. A rank's batches come from its workers in turn, as torch's
DataLoader takes them.
"""
import contextlib
import importlib.metadata
import os
import sys
import tempfile
import types

import numpy

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
os.environ.pop("LITDATA_ITEM_SHUFFLE_WINDOW", None)
from litdata import StreamingDataLoader, StreamingDataset, optimize  # noqa: E402
from litdata.streaming.item_loader import Interval  # noqa: E402
from litdata.streaming.shuffle import FullShuffle, NoShuffle  # noqa: E402
from litdata.utilities.env import _DistributedEnv  # noqa: E402

from vectors import as_list, emit, heading  # noqa: E402


def sizes_of(shards):
    sizes = []
    for item in shards.split("+"):
        size, _, count = item.partition("x")
        sizes += [int(size)] * int(count or 1)
    return sizes


def spec_of(shards, world, nodes, workers, batch, **keys):
    spec = f"litdata:shards={shards}:world={world}:nodes={nodes}:workers={workers}:batch={batch}"
    return spec + "".join(f":{key}={int(value)}" for key, value in keys.items())


def itself(index):
    return index


@contextlib.contextmanager
def quiet_stdout():
    """What the framework and its processes print goes to stderr."""
    sys.stdout.flush()
    real = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)
        os.close(real)


def emit_streamed(n, chunk, workers, batch, epochs, **options):
    """One process, a dataset on disk."""
    shards = f"{chunk}x{n // chunk}" + (f"+{n % chunk}" if n % chunk else "")
    keys = {"seed": options["seed"]} if "seed" in options else {}
    keys |= {"item_window": options["item_shuffle_window"]} if "item_shuffle_window" in options else {}
    with tempfile.TemporaryDirectory() as folder:
        with quiet_stdout():
            optimize(itself, list(range(n)), folder, num_workers=1, chunk_size=chunk)
        dataset = StreamingDataset(folder, shuffle=True, **options)
        assert [end - begin for begin, _, _, end in dataset_intervals(dataset)] == sizes_of(shards)
        loader = StreamingDataLoader(dataset, batch_size=batch, num_workers=workers, collate_fn=as_list)
        for epoch in range(epochs):
            with quiet_stdout():
                samples = [int(item) for items in loader for item in items]
            emit(spec_of(shards, 1, 1, workers, batch, **keys), n, epoch, 0, samples)


def dataset_intervals(dataset):
    from litdata.utilities.env import _WorkerEnv
    return dataset._create_cache(worker_env=_WorkerEnv.detect()).get_chunk_intervals()


def stand_in(sizes, fits):
    begins = numpy.cumsum([0] + sizes)
    intervals = [Interval(int(b), int(b), int(b) + size, int(b) + size) for b, size in zip(begins, sizes)]
    reader = types.SimpleNamespace(
        _config=types.SimpleNamespace(_chunks=[{"chunk_bytes": size} for size in sizes]),
        _max_cache_size=sum(sizes) if fits else 1)
    return types.SimpleNamespace(get_chunk_intervals=lambda: intervals, _reader=reader)


def in_turn(lists, batch):
    """Batches of the workers in turn."""
    batches = [[own[i:i + batch] for i in range(0, len(own), batch)] for own in lists]
    samples = []
    for turn in range(max(map(len, batches))):
        for own in batches:
            samples += own[turn] if turn < len(own) else []
    return samples


def emit_shuffler(shards, world, nodes, workers, batch, epochs, ranks=None, shuffle=True, drop_last=None, seed=42,
                  item_window=256, fits=True):
    sizes = sizes_of(shards)
    keys = {} if seed == 42 else {"seed": seed}
    keys |= {} if shuffle else {"shuffle": 0}
    keys |= {} if drop_last is None else {"drop_last": drop_last}
    keys |= {} if item_window == 256 else {"item_window": item_window}
    keys |= {} if fits else {"node_fits": 0}
    drop_last = world > 1 if drop_last is None else drop_last  # as StreamingDataset sets it
    cache = stand_in(sizes, fits)
    shuffler = FullShuffle(cache, seed, drop_last, item_window) if shuffle else NoShuffle(cache, seed, drop_last)
    per_rank = max(workers, 1)
    for rank in ranks if ranks is not None else range(world):
        for epoch in epochs:
            chunks, intervals = shuffler.get_chunks_and_intervals_per_workers(
                _DistributedEnv(world, rank, nodes), per_rank, batch, epoch + 1)
            own = []
            for worker in range(rank * per_rank, (rank + 1) * per_rank):
                own.append([int(item) for chunk, interval in zip(chunks[worker], intervals[worker])
                            for item in shuffler(numpy.arange(interval[1], interval[2]), len(sizes), epoch + 1,
                                                 int(chunk))])
            emit(spec_of(shards, world, nodes, workers, batch, **keys), sum(sizes), epoch, rank, in_turn(own, batch))


def main():
    heading(f"litdata {importlib.metadata.version('litdata')}", f"numpy {numpy.__version__}")
    emit_streamed(103, 10, 0, 1, 3)
    emit_streamed(103, 10, 2, 4, 3)
    emit_streamed(1000, 300, 3, 16, 2, seed=7)
    emit_streamed(1000, 300, 2, 16, 2, item_shuffle_window=0)
    for shards in ("1", "2", "1x3", "10", "3+1+6", "1000"):
        emit_shuffler(shards, 1, 1, 0, 1, (0, 1))
        emit_shuffler(shards, 2, 1, 2, 3, (0,), drop_last=False)
        emit_shuffler(shards, 2, 1, 2, 3, (0,), drop_last=True)
    for workers, batch in ((0, 1), (1, 7), (3, 4), (8, 64)):
        ranks = (0, 2)
        emit_shuffler("100x20+57", 3, 1, workers, batch, (0, 5), ranks)
        emit_shuffler("100x20+57", 3, 1, workers, batch, (0,), ranks, drop_last=False)
        emit_shuffler("100x20+57", 3, 1, workers, batch, (1,), ranks, shuffle=False)
        emit_shuffler("100x20+57", 6, 3, workers, batch, (0, 1, 2), (0, 3, 5))
        emit_shuffler("100x20+57", 6, 3, workers, batch, (0, 1, 2), (0, 3, 5), drop_last=False)
        emit_shuffler("100x20+57", 6, 3, workers, batch, (1,), (1, 5), fits=False)
        emit_shuffler("100x20+57", 6, 3, workers, batch, (1,), (5,), shuffle=False)
    for item_window in (0, 1, 2, 99, 100, 101):
        emit_shuffler("100x20+57", 2, 1, 2, 8, (1,), (1,), item_window=item_window, seed=2**32 - 1)
    for shards in ("1", "2", "1x3", "3+1+6", "100x10"):
        for world in (3, 7):
            for drop_last in (False, True):
                emit_shuffler(shards, world, 1, 2, 3, (0, 1), (0, world - 1), drop_last=drop_last)
    emit_shuffler("3+1x5+2", 8, 4, 3, 2, (0, 1), (0, 1, 6, 7))
    emit_shuffler("2", 8, 4, 1, 1, (0, 1), (0, 7), drop_last=False)
    emit_shuffler("1000x1281+167", 1, 1, 0, 1, (2,))
    emit_shuffler("1000x1281+167", 14, 2, 8, 32, (0, 3), (11,))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
