# SPDX-License-Identifier: Apache-2.0
"""FFCV: a .beton file, shuffled, by the threads of its loader. how: "mapped" (os_cache), or "paged" by its own process cache."""
import os

os.environ["NUMBA_NUM_THREADS"] = "16"  # it takes no more than there are cores
import numpy
from ffcv.fields import BytesField, IntField
from ffcv.fields.basics import IntDecoder
from ffcv.fields.bytes import BytesDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.writer import DatasetWriter
from records import noise

HAS_WORKERS = True
RECORD = 60000


class Rows:
    def __init__(self, size):
        self.rows = noise(size, RECORD)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i], i


def write(directory, size, how):
    fields = {"image": BytesField(), "label": IntField()}
    DatasetWriter(f"{directory}/train.beton", fields, page_size=1 << 21, num_workers=1).from_indexed_dataset(Rows(size))


def read(directory, part, parts, epoch, how):
    loader = Loader(f"{directory}/train.beton", batch_size=1, num_workers=parts, order=OrderOption.RANDOM, seed=42 + epoch,
                    os_cache=how == "mapped", pipelines={"image": [BytesDecoder()], "label": [IntDecoder()]})
    for image, label in loader:
        yield int(label[0]), numpy.asarray(image[0]).tobytes()
