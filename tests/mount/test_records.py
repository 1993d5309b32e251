# SPDX-License-Identifier: Apache-2.0
"""Samples within larger files: what clairfs index finds, keeps and refuses, and that a mount with such a table reads as any
other. The containers are those that the real libraries wrote for the golden vectors (tests/golden/format)."""
import json
import os
import re
import shutil

import mountkit
import tap
from mountkit import clairfs, good, read_file, write_file

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
    attempt(["--records", "litdata"], FAILED, "no file has records", "a format that no file has")
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


mountkit.run(found_and_kept, mounts_as_before, imported, refused)
