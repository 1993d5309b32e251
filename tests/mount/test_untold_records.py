# SPDX-License-Identifier: Apache-2.0
"""Records inside one large file, and the order they are read in, found in the first epoch without a word of configuration: a raw
file that is read, an NPY file that is mapped, by workers of a loader. What status says can be told is taken by the next
mount. And where there is nothing to find, nothing is claimed: places at random, streams, a table of places, small files.

The files are sparse: each record has its number at its beginning, and is compared by it.
"""
import os
import struct
import sys

import mountkit
import tap
from mountkit import CLAIRFS, good, program, rng, write_file

MIB = 1 << 20
N, STRIDE = 20000, 50000  # mapped, the kernel reads 128 KiB for each: it must not have most of the file before the end
ORDER = "torch-loader:seed=42"  # the numbers that torch gives are golden vectors of this kind

# Three workers with batches of 16, as a DataLoader has them.
JOB = """
import mmap, multiprocessing, os, struct, sys
path, how, origin, stride = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
fd = os.open(path, os.O_RDONLY)
view = mmap.mmap(fd, 0, prot=mmap.PROT_READ) if how == "map" else None

def is_wrong(k):
    at = origin + k * stride
    record = view[at:at + stride] if view else os.pread(fd, stride, at)
    return len(record) != stride or struct.unpack("<Q", record[:8])[0] != k

with multiprocessing.get_context("fork").Pool(3) as workers:
    for line in open(sys.argv[5]):
        print(sum(workers.map(is_wrong, map(int, line.split()), chunksize=16)), flush=True)
"""


def records_file(place, name, origin=0, n=N, stride=STRIDE, header=b""):
    path = os.path.join(place.source, name)
    with open(path, "wb") as file:
        file.truncate(origin + n * stride)
        file.write(header)
        for k in range(n):
            file.seek(origin + k * stride)
            file.write(struct.pack("<Q", k))
    return path


def npy_header(n, stride):
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({n}, {stride}), }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def epoch_of(spec, number=0, n=N):
    return good("order", spec, "--n", n, "--epoch", number).split()


def read_all(mount, name, numbers, how="read", origin=0, stride=STRIDE):
    """Reads records of these numbers; how many were wrong."""
    lines = mount.place.path("numbers")
    write_file(lines, b"\n".join(b" ".join(numbers[i:i + 300]) for i in range(0, len(numbers), 300)) + b"\n")
    done = program(sys.executable, "-c", JOB, mount.path(name), how, origin, stride, lines, cwd="/")
    return sum(map(int, done.out.split())) if done.code == 0 else repr(done)


def records(stats):
    return stats["order"]["search"]["records"]


def found(mount, spec):
    """What is said of the only file once its order is found."""
    return records(mount.wait_for(lambda s: (r := records(s)) and r[0]["order"] == spec and s, f"{spec} is found"))[0]


def is_order_found_and_told(place, name, how, origin, header=b""):
    records_file(place, name, origin, header=header)
    first = epoch_of(ORDER)
    with place.mount(recover="full") as mount:
        tap.equal(records(mount.stats()), [], f"{name}: nothing is known before it is read")
        tap.equal(read_all(mount, name, first[:900], how, origin), 0, "every record is right")
        one = found(mount, ORDER)
        tap.equal((one["path"], one["kind"], one["record_bytes"], one["count"]), (name, "records", STRIDE, N), "what its records are")
        tap.ok(abs(one["first_offset"] - origin) < 4096, "and where the first one begins, to a page", one["first_offset"])
        tap.equal(read_all(mount, name, first[900:2400], how, origin), 0, "the next ones are, too")
        one = records(mount.wait_for(lambda s: records(s)[0]["match_percent"] >= 60 and s, "they are in its order as well"))[0]
        tap.ok(one["is_followed"], "it is followed", one)
        status = good("status", mount.mountpoint).decode()
        tap.ok(f"records   {name}: read in {N} records of {STRIDE} bytes" in status, "status says so", status)
        tap.ok(f"in the order {ORDER}, which is in force" in status, "and in which order", status)
        tap.ok(f"order={one['tell']['order']}\n" in status, "and how that can be told", status)
        log = mount.text()
        tap.equal(log.count(f"{name}: its {N} records are read in the order {ORDER}"), 1, "the log has it once")
    return one["tell"]


def told_as_status_says(place, tell):
    command = tell["index"].replace("clairfs ", CLAIRFS + " ")
    done = program("/bin/sh", "-c", command)
    tap.ok(done.code == 0 and f"{N} samples".encode() in done.out, "the command makes a table of them", command, done)
    with place.mount(order=tell["order"]) as mount:
        order = mount.stats()["order"]
        tap.ok(order["spec"] == tell["order"] and "not_taken" not in order, "the next mount takes the order", order)


def raw_file_that_is_read(place):
    told_as_status_says(place, is_order_found_and_told(place, "train.bin", "read", 0))


def npy_file_that_is_mapped(place):
    told_as_status_says(place, is_order_found_and_told(place, "train.npy", "map", 128, npy_header(N, STRIDE)))


def table_that_is_there_is_not_told_again(place):
    records_file(place, "train.npy", 128, header=npy_header(N, STRIDE))
    good("index", place.source, "--snapshot-dir", place.snapshots, "--records", "npy")
    with place.mount(recover="full") as mount:
        tap.equal(read_all(mount, "train.npy", epoch_of(ORDER)[:900], origin=128), 0, "every record is right")
        tell = found(mount, ORDER)["tell"]
        mount.wait_for(lambda s: records(s)[0]["is_followed"], "it is followed")
        tap.equal(tell, {"index": "", "order": f"{ORDER}:records=1:under=train.npy"}, "only the order is left to tell")
        mount.tell(tell["order"])
        tap.equal(mount.stats()["order"]["spec"], tell["order"], "this mount takes it, too")
        tap.equal(read_all(mount, "train.npy", epoch_of(ORDER)[900:1800], origin=128), 0, "every record is right")
        mount.wait_for(lambda s: s["order"]["state"] == "following", "and follows it record by record, as they are units already")


def nothing_is_claimed(place, what, how_to_read, is_right=lambda r: r == []):
    with place.mount(recover="full") as mount:
        how_to_read(mount)
        # A file whose records are found is read behind it: then all of the other one was looked at.
        tap.equal(read_all(mount, "zz.bin", epoch_of(ORDER)[:900]), 0, "every record of another file is right")
        stats = mount.wait_for(lambda s: any(r["path"] == "zz.bin" and r["order"] == ORDER for r in records(s)) and s, "that is found")
        others = [r for r in records(stats) if r["path"] != "zz.bin"]
        tap.ok(is_right(others), f"{what}: nothing is claimed", others)


def hostile_file(place, size=256 * MIB):
    records_file(place, "zz.bin")
    with open(os.path.join(place.source, "a.bin"), "wb") as file:
        file.truncate(size)
    return size


def places_at_random(place):
    size = hostile_file(place)

    def read(mount):
        fd = os.open(mount.path("a.bin"), os.O_RDONLY)
        for _ in range(1500):
            at = rng.randrange(size)
            os.pread(fd, 1 + rng.randrange(200000), at)
        os.close(fd)
    nothing_is_claimed(place, "places at random", read)


def streams_side_by_side(place):
    size = hostile_file(place)

    def read(mount):
        fds = [os.open(mount.path("a.bin"), os.O_RDONLY) for _ in range(4)]
        for at in range(0, size // 4, MIB):
            for i, fd in enumerate(fds):
                os.pread(fd, MIB, i * size // 4 + at)
        for fd in fds:
            os.close(fd)
    nothing_is_claimed(place, "streams", read)


def records_of_many_lengths(place):
    size = hostile_file(place)
    at, places = 0, []
    while at < size - 400000:
        places.append((at, 8000 + rng.randrange(300000)))
        at += sum(places[-1]) - at
    rng.shuffle(places)

    def read(mount):
        fd = os.open(mount.path("a.bin"), os.O_RDONLY)
        for begin, length in places:
            os.pread(fd, length, begin)
        os.close(fd)
    nothing_is_claimed(place, "records of many lengths, once each", read)


def shuffle_without_a_seed(place):
    records_file(place, "a.bin", 4096, 2000, 40000)
    records_file(place, "zz.bin")
    numbers = [str(k).encode() for k in rng.sample(range(2000), 1200)]

    def read(mount):
        tap.equal(read_all(mount, "a.bin", numbers, "read", 4096, 40000), 0, "every record is right")
    nothing_is_claimed(place, "a shuffle by no seed", read,
                       lambda r: len(r) == 1 and r[0]["record_bytes"] == 40000 and r[0]["order"] == "" and "tell" not in r[0])


def small_files_are_not_looked_at(place):
    place.files([MIB] * 4)
    with place.mount() as mount:
        tap.equal(records(mount.stats()), [], "no file is cut: nothing is looked at")
        tap.ok("cl-strides" not in mountkit.threads_of(mount.process.pid), "and nobody looks",
               mountkit.threads_of(mount.process.pid))
    hostile_file(place)
    with place.mount(recover="off") as mount:
        tap.equal(records(mount.stats()), [], "recover=off: nothing either")


mountkit.run(raw_file_that_is_read, npy_file_that_is_mapped, table_that_is_there_is_not_told_again, places_at_random,
             streams_side_by_side, records_of_many_lengths, shuffle_without_a_seed, small_files_are_not_looked_at)
