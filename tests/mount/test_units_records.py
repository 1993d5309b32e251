# SPDX-License-Identifier: Apache-2.0
"""Records within larger files, read in an order of records that was told, by a job that jumps: 100 KB here and there of files that
are larger than memory together. Bytes are right, the source gives what is asked for and little more, and a record that was pushed
asks for one page.

Nothing here looks at a clock, and pages that the kernel has dropped are asked for again: they are counted, not forbidden.
"""
import mmap
import os

import mountkit
import tap
from mountkit import Slowfs, good, rng

MIB = 1 << 20
FILES = 6
ORDER = "torch-distributed:seed=5:world=1:records=1"


def records_of(sizes):
    """Of each file, with a head of a few pages and gaps here and there: [(file, offset, length)]."""
    found = []
    for file, size in enumerate(sizes):
        at = 12345
        while True:
            length = rng.randint(60000, 160000)
            if at + length > size:
                break
            found.append((file, at, length))
            at += length + rng.choice((0, 0, 17, 8000))
    return found


class Shards:
    """Files with a table of their records through slowfs, through a mount whose memory has room for a third of them."""

    def __init__(self, place, order=ORDER, **options):
        self.place, self.order = place, order
        sizes = [16 * MIB + 4097 * i for i in range(FILES)]
        self.data = place.files(sizes, "shard{:02d}.bin")
        self.names = list(self.data)
        self.records = records_of(sizes)
        self.n = len(self.records)
        self.bytes = sum(r[2] for r in self.records)
        mountkit.write_file(place.path("list"), "".join(f"{self.names[f]} {at} {n}\n" for f, at, n in self.records).encode())
        self.slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--latency-ms", "2", "--mbps", "400")
        good("index", place.path("slow"), "--snapshot-dir", place.snapshots, "--import", place.path("list"))
        self.options = {"ram": "32M", "order": order, **options}

    def __enter__(self):
        self.mount = self.place.mount(self.place.path("slow"), **self.options)
        self.fds = [os.open(self.mount.path(name), os.O_RDONLY) for name in self.names]
        return self

    def __exit__(self, *error):
        for fd in self.fds:
            os.close(fd)
        self.mount.__exit__(*error)
        self.slow.__exit__(*error)

    def epoch(self, number):
        order = self.order.replace(":records=1", "")
        return [int(line) for line in good("order", order, "--n", self.n, "--epoch", number).decode().split()]

    def want(self, record):
        file, at, length = self.records[record]
        return self.data[self.names[file]][at:at + length]

    def is_right(self, record):
        """Reads it as a job whose data is larger than the page cache: the kernel has forgotten it when it comes again."""
        file, at, length = self.records[record]
        got = os.pread(self.fds[file], length, at)
        os.posix_fadvise(self.fds[file], at, length, os.POSIX_FADV_DONTNEED)
        return got == self.want(record)

    def quiet(self):
        """Counters once nothing is under way."""
        self.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0 and s["gauges"]["demand_inflight"] == 0,
                            "fetches are over")
        return self.mount.counters()


def asked(stats):
    return sum(kind["bytes"] for kind in stats["reads"].values())


def jumps_are_followed_record_by_record(place):
    with Shards(place) as v:
        tap.ok(f"{v.n} samples within files are fetched ahead one by one" in v.mount.text(), "that is said", v.mount.text())
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 8, "the first ones wait in the kernel")
        tap.equal([r for r in v.epoch(0) if not v.is_right(r)], [], "every byte of an epoch is right")
        # Decided when they have been quiet for some seconds. READs are of whole pages.
        stats = v.mount.wait_for(lambda s: asked(s) >= 0.97 * v.bytes and s, "what was pushed is counted as it was read")
        tap.ok(asked(stats) <= 1.08 * v.bytes, "and not twice", asked(stats), v.bytes)
        for number in (1, 2):
            tap.equal([r for r in v.epoch(number) if not v.is_right(r)], [], f"every byte of epoch {number} is right")
        c = v.quiet()
        stats = v.mount.stats()
        for text in (stats["order"], stats["reads"], {k: n for k, n in c.items() if n}):
            tap.note(str(text))
        # What is held for later and not read before the end of the test: at most the memory there is.
        tap.ok(c["source_bytes"] <= 1.1 * 3 * v.bytes + 32 * MIB, "the source gives what is read", c["source_bytes"], 3 * v.bytes)
        tap.equal(stats["order"]["readers"]["lost"], 0, "the order is not lost")
        tap.equal(stats["order"]["epoch"]["length"], v.n, "its epochs are of records")
        tap.ok(c["prefetch_useful"] >= 2 * v.n, "most were there before their reader", c["prefetch_useful"], v.n)


mountkit.run(jumps_are_followed_record_by_record)
