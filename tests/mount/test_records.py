# SPDX-License-Identifier: Apache-2.0
"""Samples within larger files: what clairfs index finds, keeps and refuses, and that a mount with such a table reads as any
other. The containers are those that the real libraries wrote for the golden vectors (tests/golden/format)."""
import json
import os
import re
import shutil

import mountkit
import tap
from mountkit import clairfs, good, read_file, rng, write_file

FAILED, USAGE = 1, 2
GOLDEN = os.path.join(tap.ROOT, "tests", "golden", "format")


def golden():
    """{file with records: [(offset, length)]} of the golden vectors, without those of one sample."""
    found = {}
    with open(os.path.join(GOLDEN, "formats.txt"), encoding="utf-8") as file:
        for line in file:
            if line[0] != "#":
                _, _, data, n, *records = line.split()
                if n != "whole":
                    found[data] = [tuple(map(int, r.split(":")[:2])) for r in records]
    return found


def copy(place, *names):
    for name in names:
        target = os.path.join(place.source, name)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.join(GOLDEN, name), target)


def shards(place):
    copy(place, *(f"mds/{name}" for name in ("index.json", "shard.00000.mds", "shard.00001.mds", "shard.00002.mds")), "tar/ustar.tar",
         "tfrecord/train.tfrecord", "megatron/int32.idx", "megatron/int32.bin", "zip/arrays.npz")
    write_file(os.path.join(place.source, "README.md"), b"# Data\n")
    return ["mds/shard.00000.mds", "mds/shard.00001.mds", "mds/shard.00002.mds", "megatron/int32.bin", "tar/ustar.tar",
            "tfrecord/train.tfrecord"]


def index(place, *more):
    return good("index", place.source, "--snapshot-dir", place.snapshots, *more).decode()


def kept(place):
    """[(path, offset, length)]"""
    found = []
    for number, line in enumerate(index(place, "--records", "kept").splitlines()):
        n, path, offset, length = line.split("\t")
        if int(n) != number:
            raise mountkit.Failed(f"line {number} of the records: {line!r}")
        found.append((path, int(offset), int(length)))
    return found


def found_and_kept(place):
    names, places = shards(place), golden()
    files = good("index", place.source)
    said = index(place, "--records", "auto")
    wanted = [(name, *record) for name in names for record in places[name]]
    tap.equal(kept(place), wanted, "every record of every container, where the libraries have them")
    tap.ok(re.match(rf"{len(wanted)} samples, \S+ \S+ in {re.escape(place.snapshots)}\n", said), "how many there are, and where the table is", said)
    tap.ok(f"affine   6 samples in 1 file\ntable    {len(wanted) - 6} samples in {len(names) - 1} files\n" in said, "and of which kind: "
           "those of the tar are alike", said)
    tap.ok("2 files without records are no samples\n" in said, "README.md and arrays.npz are none, index.json and the .idx are not spoken of",
           said)
    tap.equal(good("index", place.source), files, "the numbers of files stay as they were")
    write_file(os.path.join(place.source, "docs", "a.json"), b"{}")
    tap.ok("3 files without records are no samples\n" in index(place, "--records", "auto"), "docs/a.json describes none, and is spoken of")
    index(place, "--records", "tar")
    tap.equal(kept(place), [("tar/ustar.tar", *r) for r in places["tar/ustar.tar"]], "one format only")
    index(place, "--records", "auto", "--under", "mds")
    tap.equal(len(kept(place)), 25, "one directory only")
    index(place, "--records", "none")
    done = clairfs("index", place.source, "--snapshot-dir", place.snapshots, "--records", "kept")
    tap.ok(done.code == FAILED and b"no table of records is kept" in done.err, "forgotten", done)


def mounts_as_before(place):
    """Files have the numbers, bytes and attributes that they have without a table, also with an order; the table outlives mounts."""
    shards(place)
    index(place, "--records", "auto")
    records = kept(place)
    names = [os.path.relpath(os.path.join(folder, name), place.source) for folder, _, found in os.walk(place.source) for name in found]
    for options in ({}, {"order": "sequential"}, {"order": "torch-distributed:seed=3", "ram": "64M"}):
        with place.mount(**options) as mount:
            tap.ok("index loaded" in mount.text(), "the index is the kept one")
            stats = json.loads(read_file(place.path("mnt", ".clairfs", "stats.json")))
            tap.equal(stats["dataset"]["samples"], len(names), "samples are files, as without a table")
            for name in names:
                tap.ok(read_file(place.path("mnt", name)) == read_file(os.path.join(place.source, name)), f"{name}: its bytes")
                tap.equal(os.stat(place.path("mnt", name)).st_size, os.path.getsize(os.path.join(place.source, name)), f"{name}: its size")
        tap.equal(kept(place), records, "the table outlives the mount")
    write_file(os.path.join(place.source, "aaa"), b"new")
    os.utime(place.source, (1000, 1000))
    with place.mount():
        tap.equal(read_file(place.path("mnt", "aaa")), b"new", "a new file moves all numbers")
    tap.equal(kept(place), records, "and the table with them")
    write_file(os.path.join(place.source, "tar", "ustar.tar"), b"changed")
    os.utime(os.path.join(place.source, "tar"), (1000, 1000))
    with place.mount() as mount:
        tap.ok("the table of records of " in mount.text() and "is dropped" in mount.text(), "a changed shard ends it, and that is said",
               mount.text())
        tap.equal(read_file(place.path("mnt", "tar", "ustar.tar")), b"changed", "its bytes are the new ones")


def imported(place):
    copy(place, "tfrecord/train.tfrecord", "tar/ustar.tar")
    places = golden()["tfrecord/train.tfrecord"]
    index(place, "--import", os.path.join(GOLDEN, "tfrecord", "train.idx"))
    tap.equal(kept(place), [("tfrecord/train.tfrecord", *r) for r in places], "what DALI's tfrecord2idx wrote")
    lines = [("tar/ustar.tar", 512, 130), ("tfrecord/train.tfrecord", 59, 89), ("tar/ustar.tar", 0, 512)]
    for k, part in enumerate((lines[:1], lines[1:])):
        write_file(place.path(f"list{k}"), "".join(f"{p} {o} {n}\n" for p, o, n in part).encode())
    said = index(place, "--import", place.path("list0"), "--import", place.path("list1"))
    tap.equal(kept(place), lines, "lines, of two lists, in their order")
    tap.ok(said.startswith("3 samples, "), "how many there are", said)


def refused(place):
    shards(place)
    index(place, "--records", "auto")
    records = kept(place)

    def attempt(argv, code, part, what):
        done = clairfs("index", place.source, "--snapshot-dir", place.snapshots, *argv)
        lines = done.err.decode().splitlines()
        tap.ok(done.code == code and len(lines) == 1 and part in lines[0] and not done.out, f"refused: {what}", done)
        tap.equal(kept(place), records, f"{what}: the table stays")
    attempt(["--records", "tfrecrd"], USAGE, "did you mean 'tfrecord'?", "a format that is none")
    attempt(["--records", "hdf5"], USAGE, "--import takes the references that kerchunk makes", "one that a list is needed of")
    attempt(["--records", "WebDataset"], USAGE, "are tar", "one that goes by another name")
    attempt(["--records", "auto", "--import", "x"], USAGE, "not both", "both ways")
    attempt(["--records", "auto", "--sort", "timm"], USAGE, "--sort", "an order of files")
    attempt(["--import", place.path("none")], FAILED, "No such file", "a list that is not there")
    write_file(place.path("list"), b"tar/ustar.tar 0 10\ntar/none 0 10\n")
    attempt(["--import", place.path("list")], FAILED, "line 2: the source has no file tar/none", "a path that is not there")
    write_file(place.path("list"), b"tar/ustar.tar 0 10\ntar/ustar.tar 5 10\n")
    attempt(["--import", place.path("list")], FAILED, "tar/ustar.tar: records overlap", "records that overlap")
    write_file(place.path("list"), b'{"refs": ')
    attempt(["--import", place.path("list")], FAILED, "no JSON", "JSON that is cut off")
    write_file(place.path("list"), b"")
    attempt(["--import", place.path("list")], FAILED, "no records", "an empty list")
    attempt(["--records", "litdata"], FAILED, "no file has records that are known; --import takes a list", "a format that no file has")
    for name, part in (("a.h5", "deep/a.h5 is HDF5, whose chunks are in a tree: --import takes the references that kerchunk makes"),
                       ("data.mdb", "deep/data.mdb is LMDB, whose records are in a tree: --import takes a list of their paths"),
                       ("a.beton", "deep/a.beton is FFCV"), ("a.tar.gz", "deep/a.tar.gz is compressed as a whole: unpack it")):
        os.makedirs(os.path.join(place.source, "deep"))
        write_file(os.path.join(place.source, "deep", name), b"x" * 100)
        attempt(["--records", "auto", "--under", "deep"], FAILED, part, f"{name}: which no format is")
        shutil.rmtree(os.path.join(place.source, "deep"))
    whole = read_file(os.path.join(place.source, "tar", "ustar.tar"))
    write_file(os.path.join(place.source, "tar", "extra.tar"), whole[:600])
    done = clairfs("index", place.source, "--snapshot-dir", place.snapshots, "--records", "tar")
    tap.ok(done.code == FAILED and b"tar/extra.tar: the member at 0 should have 130 bytes" in done.err, "a tar that is cut off", done)
    done = clairfs("index", place.source, "--snapshot-dir", place.snapshots, "--records", "auto")
    tap.ok(done.code == 0 and b"tar/extra.tar" in done.err and b"one sample as a whole" in done.err and
           b"whole    1 sample in 1 file\n" in done.out, "auto: it is one sample, with a warning", done)
    done = clairfs("index", place.source, "--records", "auto", "--snapshot-dir", "none")
    tap.ok(done.code == FAILED and b"--snapshot-dir" in done.err, "nowhere to keep it", done)
    done = clairfs("index", place.source, "--snapshot-dir", place.snapshots)
    tap.ok(done.code == USAGE and b"go with --records" in done.err, "a place for nothing", done)


def order(place, spec, *more):
    return clairfs("order", spec, "--source", place.source, "--snapshot-dir", place.snapshots, *more)


def as_the_libraries_read(place):
    """format/records.txt has what loaders of the real libraries read of these files, record by record."""
    copy(place, *(f"mds/{name}" for name in ("index.json", "shard.00000.mds", "shard.00001.mds", "shard.00002.mds")), "tar/ustar.tar",
         *(f"litdata/tensors/{name}" for name in ("index.json", "chunk-0-0.bin", "chunk-0-1.bin", "chunk-0-2.bin")),
         "megatron/int32.idx", "megatron/int32.bin", "megatron/uint16.idx", "megatron/uint16.bin", "npy/f4_2d.npy")
    tables = {"npy": "npy"}
    kept_of = None
    with open(os.path.join(GOLDEN, "records.txt"), encoding="utf-8") as file:
        runs = [line.split() for line in file if line[0] != "#"]
    tap.ok(len(runs) >= 13 and {run[0].split(":")[0].split("-")[0] for run in runs} == {"mosaic", "litdata", "megatron", "torch"},
           "there are runs of each library", len(runs))
    for spec, epoch, *places in runs:
        table = next((tables[name] for name in tables if f"under={name}/" in spec), "auto")
        if table != kept_of:
            index(place, "--records", table)
            kept_of = table
        done = order(place, spec.replace("GOLDEN", GOLDEN), "--epoch", epoch, "--places")
        got = [":".join(line.split("\t")[1:]) for line in done.out.decode().splitlines()]
        tap.ok(done.code == 0 and got == places, f"{spec}: epoch {epoch}, {len(places)} reads", done)
        tap.ok(done.err.count(b"\n") == 1 and b"samples within files" in done.err, f"{spec}: and says that it numbers records", done)


def mds(place, shards, samples, size, folder="train"):
    """Shards as MosaicML Streaming lays them out. Returns {path: bytes}."""
    data, infos = {}, []
    for k in range(shards):
        parts = [rng.randbytes(rng.randrange(size // 2, size)) for _ in range(samples)]
        begins = [4 * (samples + 2)]
        for part in parts:
            begins.append(begins[-1] + len(part))
        name = f"shard.{k:05d}.mds"
        data[f"{folder}/{name}"] = b"".join(n.to_bytes(4, "little") for n in (samples, *begins)) + b"".join(parts)
        infos.append({"format": "mds", "samples": samples, "raw_data": {"basename": name}, "zip_data": None, "compression": None,
                      "version": 2})
    data[f"{folder}/index.json"] = json.dumps({"version": 2, "shards": infos}).encode()
    os.makedirs(os.path.join(place.source, folder))
    for name, content in data.items():
        write_file(os.path.join(place.source, name), content)
    return data


def shards_come_before_their_records(place):
    """An order over records is carried out in files: each is there before the reader comes to the first of its records."""
    shards, samples = 60, 12
    data = mds(place, shards, samples, 9000)
    index(place, "--records", "mds")
    spec = "mosaic-py1e:seed=42:epochs=2:batch=4"
    epochs = []
    for epoch in range(2):
        lines = order(place, spec, "--epoch", str(epoch), "--places").out.decode().splitlines()
        epochs.append([(path, int(offset), int(length)) for _, path, offset, length in (line.split("\t") for line in lines)])
    tap.equal([len(reads) for reads in epochs], [shards * samples] * 2, "every record is read in each epoch")
    tap.ok(epochs[0] != epochs[1], "in another order")
    with place.mount(order=spec, recover="off") as mount:
        tap.ok(f"it numbers {shards * samples} samples within files" in mount.text(), "the mount says what is numbered", mount.text())
        total = sum(len(content) for name, content in data.items() if name.endswith(".mds"))
        stats = mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0 and s["counters"]["source_bytes"] >= total,
                               "every shard is fetched before the first read")
        tap.equal(stats["counters"]["source_bytes"], total, "each shard once and nothing else: not what describes them")
        wrong = 0
        for reads in epochs:
            for path, offset, length in reads:
                fd = os.open(mount.path(path), os.O_RDONLY)
                wrong += os.pread(fd, length, offset) != data[path][offset:offset + length]
                os.close(fd)
        tap.equal(wrong, 0, "every byte of every record is right")
        stats = mount.stats()
        tap.equal(stats["order"]["spec"], spec, "the order is in force")
        tap.ok(stats["counters"]["source_bytes"] < 2 * total, "the source was not asked again for what was there", stats["counters"])
        tap.equal(stats["counters"]["order_mismatches"], 0, "and no read was unexpected")


def goes_on_without(place, spec, part):
    """Mounts as an ordinary cache, and says what is missing; returns what else the mount said."""
    with place.mount(order=spec) as mount:
        lines = [line for line in mount.text().splitlines() if "mounted without an order" in line]
        tap.ok(len(lines) == 1 and part in lines[0], f"{spec}: one line says what to do", mount.text())
        stats = mount.stats()
        tap.ok("spec" not in stats["order"] and part in stats["order"]["not_taken"] and stats["order"]["state"] == "no_order",
               f"{spec}: no order is in force, and why", stats["order"])
        tap.ok(part in good("status", place.mnt).decode(), f"{spec}: the status says so", good("status", place.mnt))
        for name in sorted(os.listdir(place.path("mnt", "train"))):
            tap.ok(read_file(place.path("mnt", "train", name)) == read_file(os.path.join(place.source, "train", name)),
                   f"{spec}: the bytes of {name}")
        good("announce", place.mnt, "sequential")
        tap.ok(mount.stats()["order"].get("not_taken") is None, f"{spec}: and an order that can be is taken")
        return mount.text()


def a_table_that_was_dropped_costs_the_order(place):
    """Not the mount: a script that mounts with that order still has its data."""
    mds(place, 3, 4, 3000)
    index(place, "--records", "mds")
    with place.mount(order="mosaic-py1e:seed=42") as mount:
        tap.equal(mount.stats()["order"]["spec"], "mosaic-py1e:seed=42", "the order is in force while there is a table")
    write_file(os.path.join(place.source, "train", "shard.00001.mds"), b"changed")
    os.utime(os.path.join(place.source, "train"), (1000, 1000))
    text = goes_on_without(place, "mosaic-py1e:seed=42", "clairfs index --records mds makes it")
    tap.ok("the table of records of " in text and "is dropped" in text, "the mount that finds it says so", text)
    text = goes_on_without(place, "mosaic-py1e:seed=42", "clairfs index --records mds makes it")
    tap.ok("is dropped" not in text, "and the next one has no table")
    shutil.rmtree(os.path.join(place.source, "train"))
    mds(place, 3, 4, 3000)
    index(place, "--records", "mds")
    with place.mount(order="mosaic-py1e:seed=42") as mount:
        tap.equal(mount.stats()["order"]["spec"], "mosaic-py1e:seed=42", "with a new table it is in force again")


def orders_that_cannot_apply(place):
    data = mds(place, 3, 4, 3000)
    for spec, part in (("mosaic-py1e:seed=42", "clairfs index --records mds makes it"), ("litdata:seed=1", "clairfs index --records litdata"),
                       ("torch-distributed:seed=1:records=1", "has no table of records"), ("ffcv:seed=1", "clairfs index --import")):
        done = order(place, spec)
        tap.ok(done.code == USAGE and part in done.err.decode() and done.err.count(b"\n") == 1, f"{spec}: without a table", done)
        goes_on_without(place, spec, part)
    done = clairfs("mount", "-o", f"order=litdata:seed=1,ram=64M,snapshot_dir={place.snapshots}", place.source, place.mnt)
    said = done.err.decode()
    tap.ok(done.code == 0 and said.count("\n") == 1 and "mounted without an order" in said and "clairfs index --records litdata" in said,
           "whoever mounts in the background is told", done)
    good("umount", place.mnt)
    for wrong in ("mosaic-py1f:seed=42", "webdataset:seed=1:shardshuffle=2:records=1", "list:path=none"):
        done = clairfs("mount", place.source, place.mnt, "-o", f"order={wrong},snapshot_dir={place.snapshots}")
        tap.ok(done.code in (USAGE, FAILED) and done.err.count(b"\n") == 1, f"{wrong}: which no table makes right: no mount", done)
    index(place, "--records", "mds")
    done = order(place, "mosaic-py1e:shards=4+4+5")
    tap.ok(done.code == USAGE and b"more than the dataset's 12 samples" in done.err, "sizes of another dataset", done)
    done = order(place, "webdataset:seed=1:shardshuffle=2:records=1")
    tap.ok(done.code == USAGE and b"this kind numbers files" in done.err, "a kind that reads files from front to back", done)
    done = order(place, "sequential", "--places")
    shown = [line.split("\t")[1] for line in done.out.decode().splitlines()]
    tap.ok(shown == sorted(name for name in data if name.endswith(".mds")) and b"records=1 numbers the 12 samples" in done.err,
           "files are numbered with a word, and without index.json", done)
    for argv, part in ((["--n", "12", "--places"], "go with --source"), (["--source", place.source, "--places", "--binary", "u32"], "not both")):
        done = clairfs("order", "sequential", *argv)
        tap.ok(done.code == USAGE and part in done.err.decode(), f"{' '.join(argv[-2:])}: refused", done)
    mds(place, 2, 3, 3000, "val")
    index(place, "--records", "mds")
    done = order(place, "mosaic-py1e:seed=42")
    tap.ok(done.code == USAGE and b"the table has records in train and in val: under=train says which are meant" in done.err and
           done.err.count(b"\n") == 1, "train and val together are no order of MosaicML Streaming", done)
    for under, n in (("train", 12), ("val", 6), (".", 18)):
        done = order(place, f"mosaic-py1e:seed=42:under={under}", "--places")
        tap.ok(done.code == 0 and done.out.count(b"\n") == n, f"under={under}: which is meant", done)
    shutil.rmtree(os.path.join(place.source, "val"))
    index(place, "--records", "mds")
    with place.mount() as mount:
        done = clairfs("announce", place.mnt, "mosaic-py1s:seed=1:shards=4+5")
        tap.ok(done.code != 0 and b"add up to 9, but the dataset has 12 samples" in done.err, "told to a mount: refused in one line", done)
        done = clairfs("announce", place.mnt, "mosaic-py1s:seed=1")
        tap.ok(done.code == 0 and mount.stats()["order"]["spec"] == "mosaic-py1s:seed=1", "and taken when it is right", done)


mountkit.run(found_and_kept, mounts_as_before, imported, refused, as_the_libraries_read, shards_come_before_their_records,
             a_table_that_was_dropped_costs_the_order, orders_that_cannot_apply)
