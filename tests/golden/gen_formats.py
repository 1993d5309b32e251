#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small containers written by the real libraries, and where these find their records.

    python3 gen_formats.py DIRECTORY > format/formats.txt     (DIRECTORY: format; half a minute)

needs numpy, mosaicml-streaming, litdata, megatron-core, torch, tfrecord, webdataset, pyarrow, h5py and kerchunk. One container
per line, blank-separated: format, the file that is read, the file with the records, how many there are (rows for groups of
rows), then OFFSET:LENGTH of each, or OFFSET:LENGTH:ROWS. "refused" and "whole" instead of a number: no such container, and one
sample. Every place is the library's own, or that of the bytes that it returns; the first line names what was asked.
"""
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import types
import zipfile

import numpy

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
OUT = sys.argv[1] if len(sys.argv) > 1 else "format"
random = numpy.random.default_rng(15)
lines = []


def blob(size):
    return random.integers(1, 255, size, dtype=numpy.uint8).tobytes()


def place(name):
    path = os.path.join(OUT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return path


def tell(kind, index, data, records):
    if isinstance(records, str):
        shown = records
    else:
        shown = f"{sum(r[2] if len(r) > 2 else 1 for r in records)} " + " ".join(":".join(map(str, r)) for r in records)
    lines.append(f"{kind} {index} {data} {shown}".rstrip())


def find_each(path, samples):
    """Where these bytes are in a file, each behind the one before."""
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    for sample in samples:
        at = data.index(sample, at)
        yield at, len(sample)
        at += len(sample)


def arrays():
    cases = {
        "f4_2d": numpy.arange(60, dtype="<f4").reshape(20, 3),
        "u1_4d": numpy.arange(2 * 3 * 4 * 5, dtype="u1").reshape(2, 3, 4, 5),
        "i8_1d": numpy.arange(7, dtype=">i8"),
        "text": numpy.array(["ab", "cde"], dtype="<U3"),
        "dates": numpy.array(["2026-11-23"] * 5, dtype="M8[ns]"),
        "structured": numpy.zeros(4, dtype=[("x", "<f4", (3,)), ("label", "u1")]),
        "long_header": numpy.zeros(3, dtype=[(f"field_{i:05d}", "<f4") for i in range(2800)]),  # version 2 of the format
        "unicode_names": numpy.zeros(3, dtype=[("größe", "<f8")]),  # version 3
    }
    for name, array in cases.items():
        path = place(f"npy/{name}.npy")
        numpy.save(path, array)
        mapped = numpy.lib.format.open_memmap(path, mode="r", max_header_size=1 << 20)
        row = mapped.strides[0]
        tell("npy", f"npy/{name}.npy", f"npy/{name}.npy", [(mapped.offset + i * row, row) for i in range(len(mapped))])
    wholes = {"fortran": numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)), "scalar": numpy.float64(3),
              "objects": numpy.array([{"a": 1}, None], dtype=object), "empty": numpy.zeros((0, 5))}
    for name, array in wholes.items():
        numpy.save(place(f"npy/{name}.npy"), array)
        tell("npy", f"npy/{name}.npy", f"npy/{name}.npy", "whole")


def mosaic():
    package = types.ModuleType("streaming")  # without its __init__, which wants torchvision
    package.__path__ = [os.path.join(folder, "streaming") for folder in sys.path]
    sys.modules["streaming"] = package
    from streaming.base.format import reader_from_json
    from streaming.base.format.mds import MDSWriter
    shutil.rmtree(os.path.join(OUT, "mds"), ignore_errors=True)
    with MDSWriter(out=place("mds"), columns={"x": "bytes", "y": "int"}, size_limit=1500) as writer:
        for i in range(25):
            writer.write({"x": blob(40 + 7 * i), "y": i})
    with open(place("mds/index.json")) as file:
        index = json.load(file)
    for info in index["shards"]:
        reader = reader_from_json(place("mds"), None, info)
        name = "mds/" + info["raw_data"]["basename"]
        tell("mds", name, name, list(find_each(place(name), [reader.get_sample_data(i) for i in range(reader.samples)])))


def litdata():
    from litdata.streaming import Cache
    from litdata.streaming.item_loader import PyTreeLoader
    import torch

    def write(name, items, **how):
        shutil.rmtree(os.path.join(OUT, name), ignore_errors=True)
        os.makedirs(place(name))
        cache = Cache(place(name), **how)
        for i, item in enumerate(items):
            cache[i] = item
        cache.done()
        cache.merge()
        return cache

    items = [{"x": torch.from_numpy(numpy.frombuffer(blob(30 + 11 * i), numpy.uint8).copy()), "y": i} for i in range(12)]
    write("litdata/tensors", items, chunk_size=5)
    with open(place("litdata/tensors/index.json")) as file:
        chunks = json.load(file)["chunks"]
    for chunk in chunks:
        name = "litdata/tensors/" + chunk["filename"]
        with open(place(name), "rb") as file:
            samples = [PyTreeLoader._load_data(None, file, 4 * (1 + i)) for i in range(chunk["chunk_size"])]
        tell("litdata", name, name, list(find_each(place(name), samples)))
    write("litdata/rows", [{"x": blob(30), "y": i} for i in range(4)], chunk_size=4)  # Arrow rows behind an empty table
    name = "litdata/rows/chunk-0-0.bin"
    with open(place(name), "rb") as file:
        is_rows = file.read()[-8:] == b"LDARW01\0"
    assert is_rows
    tell("litdata", name, name, "whole")
    for folder in ("tensors", "rows"):
        for extra in os.listdir(place(f"litdata/{folder}")):
            if extra.endswith(".lock"):
                os.unlink(place(f"litdata/{folder}/{extra}"))


def megatron():
    import torch
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder
    for dtype, modes in ((numpy.int32, False), (numpy.uint16, False), (numpy.int32, True)):
        name = f"megatron/{numpy.dtype(dtype).name}{'_modes' * modes}"
        builder = IndexedDatasetBuilder(place(name + ".bin"), dtype=dtype, multimodal=modes)
        for i in range(11):
            lengths = [1 + (i * 7 + k) % 9 for k in range(1 + i % 3)]
            builder.add_document(torch.arange(sum(lengths), dtype=torch.int32), lengths, [0] * len(lengths) if modes else None)
        builder.finalize(place(name + ".idx"))
        index = IndexedDataset(place(name), multimodal=modes).index
        width = numpy.dtype(dtype).itemsize
        tell("megatron", name + ".idx", name + ".bin", [(int(at), int(n) * width) for at, n in
                                                       zip(index.sequence_pointers, index.sequence_lengths)])


def tfrecord():
    from tfrecord.tools.tfrecord2idx import create_index
    from tfrecord.writer import TFRecordWriter
    name = "tfrecord/train.tfrecord"
    writer = TFRecordWriter(place(name))
    for i in range(9):
        writer.write({"image": (blob(10 + 30 * i), "byte"), "label": (i, "int")})
    writer.close()
    create_index(place(name), place("tfrecord/train.idx"))
    with open(place("tfrecord/train.idx")) as file:
        tell("tfrecord", name, name, [tuple(map(int, line.split())) for line in file])
    open(place("tfrecord/empty.tfrecord"), "wb").close()
    tell("tfrecord", "tfrecord/empty.tfrecord", "tfrecord/empty.tfrecord", [])


def grouped(path):
    """webdataset's samples: from the first header of the first member to the end of the last one's data."""
    from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_iterator
    with open(path, "rb") as file:
        kept = {member["fname"] for member in tar_file_iterator(file)}
        file.seek(0)
        wanted = [s["__key__"] for s in group_by_keys({**member, "__url__": path} for member in tar_file_iterator(file))]
    size = os.path.getsize(path)
    samples = []
    with tarfile.open(path) as tar:
        for member in tar:
            key, _ = base_plus_ext(member.name)
            if member.name not in kept or key is None:
                continue
            stored = getattr(member, "_stored", None) or member.size
            end = min(member.offset_data + (stored + 511) // 512 * 512, size)
            if samples and samples[-1][0] == key:
                samples[-1][2] = end
            else:
                samples.append([key, member.offset, end])
    assert [s[0] for s in samples] == wanted, (path, samples, wanted)
    return [(begin, end - begin) for _, begin, end in samples]


def archives():
    def write(name, form, names, **how):
        with tarfile.open(place(name), "w", format=form, **how) as tar:
            for member in names:
                info = tarfile.TarInfo(member)
                if member.endswith("/"):
                    info.type = tarfile.DIRTYPE
                elif member.endswith("@"):
                    info.type, info.linkname = tarfile.SYMTYPE, "elsewhere"
                data = b"" if info.type != tarfile.REGTYPE else blob(len(member) * 13 % 1100)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        tell("tar", name, name, grouped(place(name)))
    plain = [f"{i:06d}.{ext}" for i in range(6) for ext in ("jpg", "cls", "json")]
    write("tar/ustar.tar", tarfile.USTAR_FORMAT, plain)
    mixed = ["dir/", "dir/a.jpg", "dir/a.txt", "other/a.jpg", "README", "link.jpg@", "__meta__.json", "__info__", "__cache__/x.jpg", "b.seg.png", "b.jpg", "b.jpg.txt",
             "v1.2/c.jpg", "v1.2/c.cls", "d/.hidden", "e.f/.hidden", ".hidden", "g.jpg"]
    write("tar/mixed.tar", tarfile.USTAR_FORMAT, mixed)
    long = [f"{'very_long_directory_name/' * 6}{i:06d}.{ext}" for i in range(3) for ext in ("jpg", "cls")]
    write("tar/ustar_prefix.tar", tarfile.USTAR_FORMAT, long)
    longer = [f"{'x' * 90}/{'y' * 130}/{i:03d}.{ext}" for i in range(3) for ext in ("jpg", "cls")]
    write("tar/gnu_long.tar", tarfile.GNU_FORMAT, longer)
    write("tar/pax_long.tar", tarfile.PAX_FORMAT, longer + ["größe.jpg", "größe.cls"], pax_headers={"comment": "global"})
    folder = place("tar/holes")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for i in range(2):
        with open(os.path.join(folder, f"{i}.bin"), "wb") as file:
            for k in range(3 + i * 4):  # so many that the second one's map needs a block of its own
                file.seek(k * 65536)
                file.write(blob(100))
        with open(os.path.join(folder, f"{i}.cls"), "wb") as file:
            file.write(b"7")
    posix = "--format=posix --pax-option=delete=atime,delete=ctime --sparse-version="
    for form, how in (("gnu", "--format=gnu"), ("posix1.0", posix + "1.0"), ("posix0.1", posix + "0.1")):
        name = f"tar/sparse_{form}.tar"
        subprocess.run(["tar", "-c", "--sparse", *how.split(), "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner",
                        "--blocking-factor=1", "-f", os.path.abspath(place(name)), "-C", folder, "0.bin", "0.cls", "1.bin", "1.cls"],
                       check=True)
        with tarfile.open(place(name)) as tar:  # its sizes are those of the files with their holes: take where headers begin
            begins = [m.offset for m in tar if m.name.endswith(".bin")]
            last = [m for m in tar][-1]
        ends = begins[1:] + [last.offset_data + 512]
        tell("tar", name, name, [(b, e - b) for b, e in zip(begins, ends)])
    shutil.rmtree(folder)


def zips():
    def members(path):
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            begins = [i.header_offset for i in infos] + [archive.start_dir]
        return [(b, e - b) for i, b, e in zip(infos, begins, begins[1:]) if not i.is_dir()]

    numpy.savez(place("zip/arrays.npz"), x=numpy.arange(30), y=numpy.zeros(1))
    numpy.savez_compressed(place("zip/packed.npz"), x=numpy.arange(3000))
    with zipfile.ZipFile(place("zip/mixed.zip"), "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = b"made by a test"
        for i in range(4):
            archive.writestr(f"dir/{i}.bin", blob(50 * i + 1))
        archive.mkdir("dir/empty")
        archive.writestr("z.bin", b"")
    with zipfile.ZipFile(place("zip/large.zip"), "w") as archive:  # sizes in 64 bits
        for i in range(3):
            with archive.open(f"{i}", "w", force_zip64=True) as file:
                file.write(blob(20 + i))
    limit, zipfile.ZIP_FILECOUNT_LIMIT = zipfile.ZIP_FILECOUNT_LIMIT, 2  # an end of the directory in 64 bits
    with zipfile.ZipFile(place("zip/large_end.zip"), "w") as archive:
        for i in range(5):
            archive.writestr(f"{i}", blob(9 + i))
    zipfile.ZIP_FILECOUNT_LIMIT = limit
    with zipfile.ZipFile(place("zip/none.zip"), "w"):
        pass
    for name in ("arrays.npz", "packed.npz", "mixed.zip", "large.zip", "large_end.zip", "none.zip"):
        tell("zip", "zip/" + name, "zip/" + name, members(place("zip/" + name)))


def columns():
    import pyarrow
    import pyarrow.parquet as parquet
    table = pyarrow.table({"id": list(range(70)), "bytes": [blob(20) for _ in range(70)], "list": [[i, i + 1] for i in range(70)]})
    for name, how in (("plain", {"compression": "NONE"}), ("packed", {"compression": "snappy"})):
        path = f"parquet/{name}.parquet"
        parquet.write_table(table, place(path), row_group_size=30, **how)
        meta = parquet.ParquetFile(place(path)).metadata
        groups = []
        for i in range(meta.num_row_groups):
            group = meta.row_group(i)
            parts = [group.column(k) for k in range(group.num_columns)]
            begins = [c.dictionary_page_offset or c.data_page_offset for c in parts]
            ends = [b + c.total_compressed_size for b, c in zip(begins, parts)]
            groups.append((min(begins), max(ends) - min(begins), group.num_rows))
        tell("parquet", path, path, groups)
    path = "arrow/batches.arrow"
    os.makedirs(os.path.dirname(place(path)), exist_ok=True)
    sink = pyarrow.OSFile(place(path), "wb")
    writer = pyarrow.ipc.new_file(sink, table.schema)
    batches = table.to_batches(max_chunksize=25)
    for batch in batches:
        writer.write_batch(batch)
    writer.close()
    sink.close()
    places = []
    with pyarrow.OSFile(place(path), "rb") as file:
        file.seek(8)
        pyarrow.ipc.read_message(file)  # the schema
        for batch in batches:
            begin = file.tell()
            pyarrow.ipc.read_message(file)
            places.append((begin, file.tell() - begin, batch.num_rows))
    tell("arrow", path, path, places)


def references():
    import h5py
    from kerchunk.hdf import SingleHdf5ToZarr
    path = place("list/chunks.h5")
    with h5py.File(path, "w") as file:
        made = file.create_dataset("records", (23, 7), dtype="u1", chunks=(2, 7))
        made[:] = numpy.arange(23 * 7, dtype="u1").reshape(23, 7)
        places = sorted((made.id.get_chunk_info(i).chunk_offset[0], made.id.get_chunk_info(i).byte_offset,
                         made.id.get_chunk_info(i).size) for i in range(made.id.get_num_chunks()))
    found = SingleHdf5ToZarr(path, "chunks.h5", inline_threshold=0).translate()
    with open(place("list/chunks.json"), "w") as file:
        json.dump(found, file)
    os.unlink(path)
    tell("kerchunk", "list/chunks.json", "chunks.h5", [(at, size) for _, at, size in places])


def main():
    packages = ("numpy", "mosaicml-streaming", "litdata", "megatron-core", "tfrecord", "webdataset", "pyarrow", "h5py", "kerchunk")
    for make in (arrays, mosaic, litdata, megatron, tfrecord, archives, zips, columns, references):
        try:
            make()
        except Exception as error:
            if "--some" not in sys.argv:
                raise
            print(f"{make.__name__}: {error!r}", file=sys.stderr)
    tar = subprocess.run(["tar", "--version"], capture_output=True, text=True, check=True).stdout.split("\n")[0]
    print(f"# LIVE: {', '.join(f'{p} {importlib.metadata.version(p)}' for p in packages)}, {tar}, Python {sys.version.split()[0]}, "
          "gen_formats.py")
    print("# format index data n offset:length[:rows]...")
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
