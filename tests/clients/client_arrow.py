# SPDX-License-Identifier: Apache-2.0
"""pyarrow, record batches of a mapped Arrow file in a shuffled order."""
import pyarrow
from records import blobs, shuffled

RECORD, ROWS = 20000, 10


def write(directory, size, how):
    rows = list(blobs(size, RECORD))
    table = pyarrow.table({"id": list(range(len(rows))), "image": rows})
    with pyarrow.OSFile(f"{directory}/data.arrow", "wb") as sink, pyarrow.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=ROWS)


def read(directory, part, parts, epoch, how):
    with pyarrow.memory_map(f"{directory}/data.arrow") as source:
        file = pyarrow.ipc.open_file(source)
        for i in shuffled(file.num_record_batches, epoch, part, parts):
            batch = file.get_batch(i)
            yield i, b"".join(batch.column("image").to_pylist())
