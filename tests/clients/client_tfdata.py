# SPDX-License-Identifier: Apache-2.0
"""tf.data over TFRecord files: how "stream" one file after the other, "interleave" four at once. The files are dealt out to the readers."""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
import tensorflow
from records import blobs, files, shuffled

SHARDS, RECORD = 8, 60000


def write(directory, size, how):
    for s in range(SHARDS):
        with tensorflow.io.TFRecordWriter(f"{directory}/train-{s:05d}-of-{SHARDS:05d}") as writer:
            for i, blob in enumerate(blobs(size // SHARDS, RECORD, seed=s)):
                writer.write(b"%s %05d %05d" % (blob, s, i))


def order(directory, epoch, how):
    names = files(directory)
    return [names[i] for i in shuffled(len(names), epoch)]


def read(directory, part, parts, epoch, how):
    names = [f"{directory}/{name}" for name in order(directory, epoch, how)[part::parts]]
    if how == "interleave":
        records = tensorflow.data.Dataset.from_tensor_slices(names).interleave(
            tensorflow.data.TFRecordDataset, cycle_length=4, num_parallel_calls=4)
    else:
        records = tensorflow.data.TFRecordDataset(names, buffer_size=256 << 10)
    for record in records.prefetch(8):
        content = record.numpy()
        yield content[-11:].decode(), content
