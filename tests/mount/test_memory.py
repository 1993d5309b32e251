# SPDX-License-Identifier: Apache-2.0
"""Small limits of memory: a mount with the default budgets lives within a cgroup of 256 MB, also together with its reader,
and within a limit of address space; every byte is right and nobody is killed. When others need the memory, it is given
back. Where no cgroup can be made (a container that may not), the limits of address space and data remain. In builds with a sanitizer the limits are larger, as its own memory is not the daemon's."""
import hashlib
import subprocess
import sys

import limits
import mountkit
import tap
from limits import IS_SANITIZED
from mountkit import Mount, rng

MIB = 1 << 20
LIMIT = (8192 if IS_SANITIZED else 256) * MIB
TOTAL = (100 if IS_SANITIZED else 900) * MIB

# Reads the files named on its input with four threads, and prints the sum of each.
READER = """
import concurrent.futures, hashlib, os, sys
def sum_of(name):
    digest, fd = hashlib.sha1(), os.open(os.path.join(sys.argv[1], name), os.O_RDONLY)
    while part := os.read(fd, 1 << 18):
        digest.update(part)
    os.close(fd)
    return name + " " + digest.hexdigest()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print("\\n".join(pool.map(sum_of, sys.stdin.read().split())))
"""
HOG = """
import sys
held = b"x" * int(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def dataset(place, total=TOTAL):
    """Files of different bytes in the source; {name: sum}. They need not be kept in memory for that."""
    pool, sums, number = rng.randbytes(4 * MIB), {}, 0
    while total > 0:
        size, at = rng.randrange(100, 1700000), rng.randrange(2 * MIB)
        content = number.to_bytes(8, "little") + pool[at:at + size]
        name = f"s{number:05d}.bin"
        mountkit.write_file(f"{place.source}/{name}", content)
        sums[name] = hashlib.sha1(content).hexdigest()
        total -= len(content)
        number += 1
    return sums


def read_all(mount, names, prefix=()):
    """{name: sum} by a process of its own."""
    done = subprocess.run([*prefix, sys.executable, "-c", READER, mount.mountpoint], input="\n".join(names), text=True,
                          stdout=subprocess.PIPE, timeout=mountkit.DEADLINE * 3, check=True)
    return dict(line.split() for line in done.stdout.splitlines())


def wrong(sums, read):
    return [name for name, digest in sums.items() if read.get(name) != digest]


def start(place, prefix, **options):
    """A mount with the defaults; only what the kit needs is told."""
    return Mount(place, place.source, place.mnt, {"ram": "auto", **options}, prefix=prefix)


def status_of(mount):
    return mountkit.good("status", mount.mountpoint).decode()


def in_a_small_cgroup(place):
    sums = dataset(place)
    sequence = list(range(len(sums)))
    rng.shuffle(sequence)
    shuffled = [sorted(sums)[i] for i in sequence]
    for words, options in (("with an order", {"order": place.list_file(sequence)}), ("without an order", {})):
        with limits.Cgroup(LIMIT) as cgroup:
            with start(place, cgroup.prefix(), **options) as mount:
                memory, text = mount.stats()["memory"], status_of(mount)
                tap.equal(memory["limit"], LIMIT, f"{words}: the limit of the cgroup is known")
                tap.ok(cgroup.path in memory["from"] and cgroup.path in text, f"{words}: it is said which one it is", text)
                tap.ok(16 * MIB <= memory["ram"] and memory["ram"] + memory["stage"] <= LIMIT // 2,
                       f"{words}: the budgets are within half of it", memory)
                for where, prefix in (("beside it", []), ("in the same cgroup", cgroup.prefix())):
                    read = read_all(mount, shuffled, prefix)
                    tap.equal(wrong(sums, read), [], f"{words}, reader {where}: every byte is right")
                    mount.check_alive()
                tap.equal(cgroup.kills(), 0, f"{words}: nobody is killed")


def under_resource_limits(place):
    sums = dataset(place, TOTAL // 4)
    for what, kib, words in (("v", 400 << 10, "RLIMIT_AS"), ("d", 300 << 10, "RLIMIT_DATA")):
        prefix = [] if IS_SANITIZED else limits.limited(what, kib)
        with start(place, prefix, debug={"source_engine": "pool"}) as mount:
            memory = mount.stats()["memory"]
            if not IS_SANITIZED:
                tap.equal((memory["limit"], memory["from"]), (kib << 10, words), f"{words} is known")
            read = read_all(mount, list(sums))
            tap.equal(wrong(sums, read), [], f"{words}: every byte is right")


def told_budgets_are_taken(place):
    place.files([1000] * 10)
    with limits.Cgroup(LIMIT) as cgroup:
        with start(place, cgroup.prefix(), ram=2 * LIMIT, source_max_inflight=100,
                   debug={"stage": "1M", "inodes_ahead": 7}) as mount:
            memory = mount.stats()["memory"]
            told = [memory[key] for key in ("ram", "stage", "source_max_inflight", "inodes_ahead")]
            tap.equal(told, [2 * LIMIT, MIB, 100, 7], "what is told is taken")
            tap.ok("more than there is" in mount.text(), "the log warns of it", mount.text())
            tap.ok("more than the limit allows" in status_of(mount), "so does status", status_of(mount))
        with start(place, cgroup.prefix(), ram="16M", source_max_inflight=4) as mount:
            tap.ok("more than" not in mount.text() + status_of(mount), "what fits is no reason to warn", mount.text())


def memory_is_given_back(place):
    """A process beside the daemon needs what the arena has."""
    limit = (2048 if IS_SANITIZED else 256) * MIB
    sums = dataset(place, 300 * MIB)
    names = sorted(sums)
    with limits.Cgroup(limit) as cgroup:
        with start(place, cgroup.prefix(), ram="96M", order="sequential") as mount:
            read = read_all(mount, names[:len(names) // 2])
            before = mount.wait_for(lambda s: s["gauges"]["arena_bytes"] > 64 * MIB, "the arena is full")
            resident = before["gauges"]["process_rss"]
            tap.equal(before["memory"]["shrunk"], 0, "there is room: nothing is given up")
            size = limit * 15 // 16 - cgroup.held() - 10 * MIB
            hog = subprocess.Popen([*cgroup.prefix(), sys.executable, "-c", HOG, str(size)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE)
            tap.equal(hog.stdout.readline(), b"held\n", "another process takes what is left")
            shrunk = mount.wait_for(lambda s: s["memory"]["shrunk"] > 0 and s["gauges"]["arena_bytes"] <= s["memory"]["ram_now"] * 11 // 10
                                    and s["gauges"]["process_rss"] < resident - 16 * MIB, "memory goes back")
            memory = shrunk["memory"]
            tap.ok(shrunk["counters"]["memory_shrunk"] > 0 and shrunk["gauges"]["memory_given_up"] > 0
                   and memory["stage_now"] < memory["stage"], "it is counted", shrunk["gauges"], memory)
            tap.ok("shrunk under memory pressure to" in status_of(mount), "status says it", status_of(mount))
            read.update(read_all(mount, names[len(names) // 2:]))
            tap.equal(wrong(sums, read), [], "every byte is right")
            now = mount.stats()["gauges"]
            tap.ok(now["arena_bytes"] <= memory["ram_now"] * 11 // 10, "it stays that small, but for a tenth for other reads", now)
            hog.communicate()
            tap.equal(cgroup.kills(), 0, "nobody is killed")
            least = mount.stats()["memory"]["ram_now"]
            mount.wait_for(lambda s: s["memory"]["ram_now"] > least, "when there is room again, some of it comes back")


try:
    limits.Cgroup(LIMIT).remove()
    mountkit.run(in_a_small_cgroup, under_resource_limits, told_budgets_are_taken, memory_is_given_back)
except limits.NoCgroup as e:
    tap.note(f"{e}; resource limits only")
    mountkit.run(under_resource_limits)
