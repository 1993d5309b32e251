#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of Megatron-Core's GPTDataset: real .bin/.idx files of made-up documents, the index files that the
dataset builds for them, and the sequence of samples it would read for each rank.

    python3 gen_megatron.py DIRECTORY > order/megatron.txt

DIRECTORY/NAME-*_index.npy are the dataset's own files. The dealing out to ranks is the arithmetic of
MegatronPretrainingSampler, which is not part of the package (read in Megatron-LM at 00caa53af309)."""
import glob
import importlib.metadata
import itertools
import os
import shutil
import sys
import tempfile

import numpy
import torch
from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
from megatron.core.datasets.utils import Split

import vectors
from vectors import emit

SEQUENCE = 16


class Tokenizer:
    eod = 0
    pad = 0
    vocab_size = 100
    unique_identifiers = {"class": "Tokenizer"}


def write_documents(prefix, documents):
    """Documents of uneven length, 5..44 tokens, the first of 20."""
    builder = IndexedDatasetBuilder(prefix + ".bin", dtype=numpy.int32)
    for i in range(documents):
        length = 5 + (i * 7919 + 15) % 40
        builder.add_document(torch.arange(length, dtype=torch.int32), [length])
    builder.finalize(prefix + ".idx")


def build(folder, documents, samples, seed, extra=True):
    """The dataset of that many samples; its index files are in folder/cache."""
    prefix = os.path.join(folder, "text")
    write_documents(prefix, documents)
    config = GPTDatasetConfig(random_seed=seed, sequence_length=SEQUENCE, path_to_cache=os.path.join(folder, "cache"),
                              split="1", reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                              tokenizer=Tokenizer(), add_extra_token_to_sequence=extra)
    low_level = IndexedDataset(prefix)
    return GPTDataset(low_level, prefix, numpy.arange(documents, dtype=numpy.int32), samples, Split.train, config)


def arguments_of(dataset, documents):
    """The keys of the computed order, worked out from what the dataset has."""
    passes = len(dataset.document_index) // documents
    separate = 0
    first = dataset.document_index[:documents * (passes - 1)]
    tokens = int(dataset.dataset.sequence_lengths.sum())
    if passes > 1:
        extra = int(dataset.config.add_extra_token_to_sequence)
        without_last = ((passes - 1) * tokens - extra) // SEQUENCE
        # Kept apart, the first samples are a permutation of themselves.
        if (numpy.sort(dataset.shuffle_index[:without_last]) == numpy.arange(without_last)).all() \
                and (numpy.bincount(first, minlength=documents) == passes - 1).all():
            separate = without_last
    return passes, separate


def dealt(shuffle_index, world, rank, batch, drop_last):
    rounds = [shuffle_index[i:i + world * batch] for i in range(0, len(shuffle_index), world * batch)]
    if drop_last and rounds and len(rounds[-1]) < world * batch:
        rounds.pop()
    return list(itertools.chain.from_iterable(r[rank * batch:(rank + 1) * batch] for r in rounds))


def emit_all(specs, dataset, ranks):
    index = numpy.array(dataset.shuffle_index)
    n = len(index)
    for spec in specs:
        emit(f"{spec}:drop_last=0", n, 0, 0, index)
        for world, rank, batch in ranks:
            for drop_last in (0, 1):
                emit(f"{spec}:world={world}:batch={batch}:drop_last={drop_last}", n, 0, rank,
                     dealt(index, world, rank, batch, drop_last))


def run(documents, samples, seed, ranks, keep=None):
    with tempfile.TemporaryDirectory() as folder:
        dataset = build(folder, documents, samples, seed)
        passes, separate = arguments_of(dataset, documents)
        specs = [f"megatron:documents={documents}:document_epochs={passes}:separate={separate}:seed={seed}"]
        if keep:
            for path in glob.glob(os.path.join(folder, "cache", "*.npy")):
                name = path.rsplit("-", 1)[1]
                shutil.copyfile(path, os.path.join(sys.argv[1], f"{keep}-{name}"))
            specs.append(f"megatron:path=@golden@/megatron/{keep}")
        emit_all(specs, dataset, ranks)


def main():
    os.makedirs(sys.argv[1], exist_ok=True)
    vectors.heading(f"megatron-core {importlib.metadata.version('megatron-core')}", f"numpy {numpy.__version__}")
    ranks = ((2, 1, 1), (3, 0, 4), (7, 5, 3))
    run(1, 1, 1234, ranks, "one-sample")
    run(30, 10, 1234, ranks, "one-epoch")
    run(30, 80, 1234, ranks, "separate-last-epoch")
    run(30, 150, 5, ranks, "several-epochs")
    for documents, samples, seed in ((40, 3, 0), (40, 2, 2**32 - 1), (1000, 1000, 42), (1000, 5000, 42)):
        run(documents, samples, seed, ranks)
    run(3000, 1281167, 1234, ((7, 6, 4),))


if __name__ == "__main__":
    main()
