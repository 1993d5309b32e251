#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of datasets.Dataset.shuffle(seed=...): kind numpy-generator."""
import importlib.metadata

import numpy
from datasets import Dataset

import vectors
from vectors import IMAGENET, SIZES, emit


def shuffled(n, seed):
    rows = Dataset.from_dict({"i": numpy.arange(n)}).shuffle(seed=seed)
    return rows.with_format("numpy")[:]["i"]


def main():
    vectors.heading(f"datasets {importlib.metadata.version('datasets')}", f"numpy {numpy.__version__}")
    for n in SIZES:
        for seed in (0, 42, 2**32 + 42):
            emit(f"numpy-generator:seed={seed}", n, 3, 0, shuffled(n, seed))
    emit("numpy-generator:seed=42", IMAGENET, 0, 0, shuffled(IMAGENET, 42))


if __name__ == "__main__":
    main()
