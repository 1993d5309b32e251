# SPDX-License-Identifier: Apache-2.0
"""Writing golden vectors: what the gen_*.py scripts share.

One vector per line, blank-separated: spec, n, epoch, rank, length, XXH3-64 over the samples as little-endian u32 in hex,
the first 64 samples, the last 64 (comma-separated, "-" for none). The spec is in the words of this project;
test_order_golden.c hands it to the parser, so the scripts are the only place where a framework's arguments are mapped to
ours. A script must get every number from the framework. The first line says how, and names the framework with its version:

    LIVE  the framework itself computed the numbers
    READ  its source was read, and what it does was done again here
"""
import os
import sys

import numpy
import xxhash

SHOWN = 64
IMAGENET = 1281167
SIZES = (1, 2, 3, 10, 1000)


def heading(*frameworks, how="LIVE"):
    print(f"# {how}: {', '.join(frameworks)}, {os.path.basename(sys.argv[0])}")
    print("# spec n epoch rank length xxh3-64(u32le) first64 last64")


def show(values):
    return ",".join(str(v) for v in values.tolist()) if len(values) else "-"


def emit(spec, n, epoch, rank, samples):
    values = numpy.asarray(samples, dtype="<u4")
    digest = xxhash.xxh3_64_hexdigest(values.tobytes())
    print(spec, n, epoch, rank, len(values), digest, show(values[:SHOWN]), show(values[-SHOWN:]))


class Indices:
    """A dataset whose samples are their own numbers, read a batch at a time where the framework can."""
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index

    def __getitems__(self, indices):
        return indices


def as_list(batch):
    """A collate_fn that leaves a batch alone."""
    return batch


def read_epoch(loader):
    return [sample for batch in loader for sample in batch]
