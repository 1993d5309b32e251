# SPDX-License-Identifier: Apache-2.0
"""pyarrow, row groups of Parquet files in a shuffled order. how: "read", "columns" (of these one) or "mapped" (memory_map)."""
import pyarrow
import pyarrow.parquet
from records import blobs, files, shuffled

FILES, GROUPS, RECORD = 3, 8, 20000


def write(directory, size, how):
    for f in range(FILES):
        rows = list(blobs(size // FILES, RECORD, seed=f))
        table = pyarrow.table({"id": list(range(len(rows))), "image": rows, "text": [row[:RECORD // 10] for row in rows]})
        pyarrow.parquet.write_table(table, f"{directory}/part-{f}.parquet", row_group_size=max(1, len(rows) // GROUPS),
                                    compression="NONE", use_dictionary=False)


def read(directory, part, parts, epoch, how):
    opened = [pyarrow.parquet.ParquetFile(f"{directory}/{name}", memory_map=how == "mapped") for name in files(directory)]
    groups = [(f, g) for f, file in enumerate(opened) for g in range(file.num_row_groups)]
    columns = ["id", "text"] if how == "columns" else None
    for i in shuffled(len(groups), epoch, part, parts):
        file, group = groups[i]
        table = opened[file].read_row_group(group, columns=columns)
        yield i, b"".join(value if isinstance(value, bytes) else b"%d" % value
                          for column in table.columns for value in column.to_pylist())
