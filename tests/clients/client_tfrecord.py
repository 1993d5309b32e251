# SPDX-License-Identifier: Apache-2.0
"""The package tfrecord, which reads TFRecord files without TensorFlow. The files are dealt out to the readers."""
from records import blobs, files, shuffled
from tfrecord.reader import tfrecord_iterator
from tfrecord.writer import TFRecordWriter

SHARDS, RECORD = 8, 60000


def write(directory, size, how):
    for s in range(SHARDS):
        writer = TFRecordWriter(f"{directory}/train-{s:05d}-of-{SHARDS:05d}")
        for i, blob in enumerate(blobs(size // SHARDS, RECORD, seed=s)):
            writer.write({"image": (blob, "byte"), "label": (i, "int")})
        writer.close()


def order(directory, epoch, how):
    names = files(directory)
    return [names[i] for i in shuffled(len(names), epoch)]


def read(directory, part, parts, epoch, how):
    for name in order(directory, epoch, how)[part::parts]:
        for i, record in enumerate(tfrecord_iterator(f"{directory}/{name}")):
            yield f"{name}:{i}", bytes(record)
