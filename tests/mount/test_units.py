# SPDX-License-Identifier: Apache-2.0
"""Samples that are larger than memory: files of many units, read as a job reads them, in an order that was told. Bytes are right,
the source gives each byte once, what was pushed asks for one page of each unit, and nothing is left of a unit that was read.

Nothing here looks at a clock, and pages that the kernel has dropped are asked for again: they are counted, not forbidden.
"""
import mmap
import os

import mountkit
import tap
from mountkit import Slowfs, rng

MIB = 1 << 20
UNIT = 4 * MIB
SIZE = 22 * MIB + 4097  # six units, the last one of a page and a bit more
FILES = 6
ORDER = "torch-distributed:seed=5:world=1"


class Volumes:
    """Files of several units through slowfs, through a mount whose memory has room for a file and a half."""

    def __init__(self, place, files=FILES, order=ORDER, **options):
        self.place, self.order, self.n = place, order, files
        self.data = place.files([SIZE] * files, "volume{:02d}.bin")
        self.names = list(self.data)
        self.slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache")
        self.options = {"ram": "32M", "order": order, **options}

    def __enter__(self):
        self.mount = self.place.mount(self.place.path("slow"), **self.options)
        return self

    def __exit__(self, *error):
        self.mount.__exit__(*error)
        self.slow.__exit__(*error)

    def epoch(self, number):
        text = mountkit.good("order", self.order, "--n", self.n, "--epoch", number).decode()
        return [int(line) for line in text.split()]

    def stream(self, file, step=MIB // 2):
        """Reads it to its end as a loader does; wrong offsets."""
        want, at, wrong = self.data[self.names[file]], 0, []
        with open(self.mount.path(self.names[file]), "rb", buffering=0) as f:
            while True:
                got = f.read(step)
                if not got:
                    break
                if got != want[at:at + len(got)]:
                    wrong.append(at)
                at += len(got)
        return wrong if at == len(want) else [*wrong, at]

    def is_right(self, file):
        """Reads it; who meets a change in the middle is refused, and the name leads to the new file a moment later."""
        try:
            return self.stream(file) == []
        except OSError as error:
            if error.errno != mountkit.errno.ESTALE:
                raise
            return False

    def quiet(self):
        """Counters once nothing is under way."""
        self.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0 and s["gauges"]["demand_inflight"] == 0,
                            "fetches are over")
        return self.mount.counters()


def a_file_larger_than_memory_is_fetched_ahead(place):
    with Volumes(place) as v:
        first = v.epoch(0)[0]
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 2, "its beginning waits in the kernel")
        tap.equal(v.stream(first), [], "every byte is right")
        c = v.quiet()
        tap.ok(c["stage_pushed"] >= 2, "parts of it were pushed", c["stage_pushed"])
        tap.ok(c["prefetch_useful"] >= 2, "and read", c["prefetch_useful"])


def epochs_are_read_and_the_source_gives_no_more(place):
    with Volumes(place) as v:
        for number in range(3):
            for file in v.epoch(number):
                wrong = v.stream(file)
                if wrong:
                    tap.equal(wrong, [], f"file {file} of epoch {number}")
        c = v.quiet()
        reads = v.mount.stats()["reads"]
        asked = sum(kind["bytes"] for kind in reads.values())
        whole = 3 * FILES * SIZE
        tap.ok(asked <= 1.01 * whole, "no byte is counted twice", asked, whole)
        # What is fetched for a file and not read before the end of the test: half of the memory.
        tap.ok(c["source_bytes"] <= 1.1 * whole + 16 * MIB, "the source gives what is read", c["source_bytes"], whole)
        order = v.mount.stats()["order"]
        tap.equal(order["readers"]["lost"], 0, "the order is not lost")
        tap.equal(order["epoch"]["length"], FILES * 6, "its epochs are of units")


def a_mapped_file_says_where_its_reader_is(place):
    with Volumes(place) as v:
        file = v.epoch(0)[0]
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 1, "its beginning waits in the kernel")
        fd = os.open(v.mount.path(v.names[file]), os.O_RDONLY)
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
            tap.ok(view[:] == v.data[v.names[file]], "every byte is right")
        os.close(fd)
        position = v.mount.wait_for(lambda s: s["order"]["epoch"]["position"] >= 5 and s, "the plan has heard of it")
        tap.ok(position["order"]["epoch"]["position"] >= 5, "unit by unit", position["order"]["epoch"]["position"])


def a_file_that_is_replaced_between_its_units_is_read_as_one(place):
    with Volumes(place, revalidate=1) as v:
        file = v.epoch(0)[0]
        name = v.names[file]
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 2, "its beginning waits in the kernel")
        old = v.data[name]
        fd = os.open(v.mount.path(name), os.O_RDONLY)
        tap.ok(os.pread(fd, MIB, 0) == old[:MIB], "the old file")
        new = rng.randbytes(SIZE - 3 * UNIT)
        mountkit.write_file(f"{place.source}/{name}.new", new)
        os.rename(f"{place.source}/{name}.new", f"{place.source}/{name}")
        got = None
        try:
            got = os.pread(fd, MIB, 2 * UNIT + 12345)
        except OSError as error:
            tap.equal(error.errno, mountkit.errno.ESTALE, "who has it open is refused")
        tap.ok(got is None or got in (old[2 * UNIT + 12345:][:MIB], new[2 * UNIT + 12345:][:MIB]),
               "or gets bytes of one version")
        os.close(fd)
        v.data[name] = new
        mountkit.wait_until(lambda: v.is_right(file), "opened again it is the new one, to its end")
        tap.ok(v.mount.counters()["source_changed"] >= 1, "that was seen")


def what_cannot_be_said_of_files_in_parts_is_not_said(place):
    with Volumes(place, files=1, order="sequential") as v:
        text = v.mount.stats()["gpu_wait"]
        tap.ok("16 MiB" in str(text), "why there is no GPU wait", str(text)[:200])


mountkit.run(a_file_larger_than_memory_is_fetched_ahead, epochs_are_read_and_the_source_gives_no_more,
             a_mapped_file_says_where_its_reader_is, a_file_that_is_replaced_between_its_units_is_read_as_one,
             what_cannot_be_said_of_files_in_parts_is_not_said)
