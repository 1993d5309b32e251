# SPDX-License-Identifier: Apache-2.0
"""Samples inside larger files, read in every way there is: what a reader gets is what the source has, and what the source was
asked for is hardly more than what readers asked the mount for. All of it in bytes and requests that were counted, by the mount and by
the simulated source; nothing here looks at a clock.

Readers may be asked to read a page again that the kernel has dropped meanwhile: so it is READs that bytes are compared with.
"""
import contextlib
import mmap
import os
import shutil
import tempfile
import threading

import jobs
import mountkit
import tap
from mountkit import Crew, Slowfs, rng

MIB = 1 << 20
SIZE = 24 * MIB
FILES = 3
READ_CLASSES = ("arena", "late", "store", "peer", "miss")


class Shards:
    """Files of `size`, through slowfs, through a mount."""

    def __init__(self, place, size=SIZE, files=FILES, **options):
        self.place, self.size = place, size
        self.data = place.files([size] * files, "shard{:02d}.bin")
        self.names = list(self.data)
        self.log = place.path("slow.log")
        self.slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--log", self.log)
        self.options = options

    def __enter__(self):
        self.mount = self.place.mount(self.place.path("slow"), **self.options)
        return self

    def __exit__(self, *error):
        self.mount.__exit__(*error)
        self.slow.__exit__(*error)

    def open(self, file, flags=0):
        return os.open(self.mount.path(self.names[file]), os.O_RDONLY | flags)

    def right(self, file, at, got):
        return got == self.data[self.names[file]][at:at + len(got)]

    def pread(self, fd, file, at, length, wrong):
        got = os.pread(fd, length, at)
        if len(got) != min(length, self.size - at) or not self.right(file, at, got):
            wrong.append((file, at, length))

    def bytes_of(self, read_class):
        return self.mount.stats()["reads"][read_class]["bytes"]

    def asked(self):
        return sum(self.bytes_of(name) for name in READ_CLASSES)

    def taken(self):
        """What fetches brought, once none is under way."""
        self.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0 and s["gauges"]["demand_inflight"] == 0,
                            "fetches are over")
        return self.mount.counters()["source_bytes"]

    def sent(self):
        """Likewise, as the source saw it."""
        with open(self.log, encoding="utf-8") as file:
            return sum(int(line.rsplit(" ", 1)[1]) for line in file if line.startswith("read "))

    def check(self, wrong, what, most=1.1, spare=0):
        asked, taken = self.asked(), self.taken()
        tap.equal(wrong, [], f"{what}: every byte is right")
        tap.ok(0 < taken <= most * asked + spare, f"{what}: the source is asked for what was asked for", taken, asked)


def in_order(shards, file, start, end, step, wrong):
    fd = shards.open(file)
    for at in range(start, end, step):
        shards.pread(fd, file, at, min(step, end - at), wrong)
    os.close(fd)


def at_random(shards, n, length, wrong, random):
    fds = [shards.open(i) for i in range(FILES)]
    for _ in range(n):
        file, at = random.randrange(FILES), random.randrange(shards.size)
        shards.pread(fds[file], file, at, length, wrong)
    for fd in fds:
        os.close(fd)


def random_of(seed):
    return mountkit.random.Random(seed)


def streams_are_read_once_and_in_large_requests(place):
    wrong = []
    with Shards(place) as shards:
        for file in range(FILES):
            in_order(shards, file, 0, SIZE, 50000, wrong)
        # The beginning of a file is asked for twice in part where the daemon is slow, as under a sanitizer.
        shards.check(wrong, "one stream after the other", 1.01, FILES * MIB)
        reads = shards.mount.counters()["source_reads"]
        tap.ok(reads <= FILES * (SIZE // MIB + 24), "in requests of a MiB, but for the beginning", reads)
        tap.ok(shards.sent() <= 1.1 * shards.taken(), "the source's own client reads no more", shards.sent(), shards.taken())


def twelve_streams_of_one_file_are_told_apart(place):
    wrong, crew = [], Crew()
    with Shards(place, files=1) as shards:
        for i in range(12):
            crew.add(in_order, shards, 0, i * SIZE // 12, (i + 1) * SIZE // 12, 65536, wrong)
        tap.equal(crew.join(), [], "readers end well")
        shards.check(wrong, "twelve at once")
        tap.ok(shards.sent() <= 1.1 * shards.taken(), "the source's own client reads no more", shards.sent(), shards.taken())
        missed = shards.bytes_of("miss")
        tap.ok(missed <= shards.asked() // 2, "most of it was on its way before it was asked for", missed)


def random_reads_take_what_they_ask_for(place):
    wrong = []
    with Shards(place, ram="32M") as shards:
        for length in (1, 4096, 100000, 3 * MIB // 4):
            at_random(shards, 60, length, wrong, rng)
        # What is fetched for nothing before it is known how long runs are here: a quarter of the memory.
        shards.check(wrong, "random reads", 1.1, spare=8 * MIB)


def streams_and_random_reads_go_together(place):
    wrong, crew = [], Crew()
    with Shards(place, ram="32M") as shards:
        for i in range(FILES):
            crew.add(in_order, shards, i, 0, SIZE, 131072, wrong)
            crew.add(at_random, shards, 60, 30000, wrong, random_of(rng.randrange(1 << 32)))
        tap.equal(crew.join(), [], "readers end well")
        # Two readers of one place at a time: what the stream is about to get the other one asks for.
        shards.check(wrong, "mixed", 1.1, spare=2 * MIB)


def records_of_an_epoch_come_once(place):
    """Each record of a file that fits into memory, in any order: most of it is read when the last ones are, and the kernel has that."""
    size, length, wrong, crew = 48 * MIB, 100_000, [], Crew()
    with Shards(place, files=1, size=size, ram="256M") as shards:
        records = rng.sample(range(size // length), size // length)

        def reads(part):
            fd = shards.open(0)
            for record in part:
                shards.pread(fd, 0, record * length, length, wrong)
            os.close(fd)
        for i in range(12):
            crew.add(reads, records[i::12])
        tap.equal(crew.join(), [], "readers end well")
        shards.check(wrong, "an epoch of records", 1.1, spare=MIB)


def parts_of_a_file_are_read_and_not_what_is_between(place):
    wrong, size = [], 96 * MIB
    with Shards(place, files=1, size=size) as shards:
        fd, before = shards.open(0), 0
        for step, length in ((512 << 10, 256 << 10), (2 * MIB, MIB), (200_000, 100_000)):
            asked = shards.asked()
            for at in range(MIB, size - length, step):
                shards.pread(fd, 0, at, length, wrong)
            asked, before, taken = shards.asked() - asked, shards.taken(), shards.taken() - before
            tap.ok(taken <= 1.1 * asked + 2 * MIB, f"{length} bytes of each {step}: nothing is fetched between", taken, asked)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
        tap.equal(wrong, [], "every byte is right")


def readers_of_any_direction_take_what_they_ask_for(place):
    """From the end to the beginning; two places in turns; and two readers of the same bytes past the kernel's pages, one behind the
    other: the second has to ask as well, and then they ask for the file twice."""
    wrong = []
    with Shards(place, files=3, ram="32M") as shards:
        fd = shards.open(0)
        for at in range(SIZE - MIB // 2, -1, -MIB // 2):
            shards.pread(fd, 0, at, MIB // 2, wrong)
        os.close(fd)
        shards.check(wrong, "backwards", 1.1, spare=3 * MIB)
        fd = shards.open(1)
        for at in range(0, SIZE // 2, 65536):
            shards.pread(fd, 1, at, 65536, wrong)
            shards.pread(fd, 1, SIZE // 2 + at, 65536, wrong)
        os.close(fd)
        shards.check(wrong, "two places in turns", 1.1, spare=3 * MIB)
        fds, buffer, lag = [shards.open(2, os.O_DIRECT) for _ in range(2)], mmap.mmap(-1, MIB), 6 * MIB
        for at in range(0, SIZE + lag, MIB):
            for fd, place_of in ((fds[0], at), (fds[1], at - lag)):
                if 0 <= place_of < SIZE and (os.preadv(fd, [buffer], place_of) != MIB or not shards.right(2, place_of, buffer[:])):
                    wrong.append(place_of)
        for fd in fds:
            os.close(fd)
        shards.check(wrong, "one reader behind the other", 1.1, spare=3 * MIB)


def mapped_files_are_read_the_same(place):
    with Shards(place) as shards:
        wrong = []
        fd = shards.open(0)
        with mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            for at in range(0, SIZE, 300000):
                wrong += [] if shards.right(0, at, mapped[at:at + 300000]) else [at]
        os.close(fd)
        shards.check(wrong, "mapped, in order")
        fd, before = shards.open(1), shards.taken()
        with mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            mapped.madvise(mmap.MADV_RANDOM)
            for _ in range(100):
                at = rng.randrange(SIZE // 4096) * 4096
                wrong += [] if shards.right(1, at, mapped[at:at + 100]) else [at]
        os.close(fd)
        shards.check(wrong, "mapped, random")
        tap.ok(shards.taken() - before <= 100 * 4096 * 1.1 + MIB, "a fault costs a page", shards.taken() - before)


def runs_of_single_pages_become_few_requests(place):
    """LMDB reads a value page by page."""
    wrong, pages = [], 25
    with Shards(place, files=1, size=64 * MIB) as shards:
        fd, before = shards.open(0), shards.mount.counters()["source_reads"]
        with mmap.mmap(fd, shards.size, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            mapped.madvise(mmap.MADV_RANDOM)
            for _ in range(100):
                first = rng.randrange(shards.size // 4096 - pages) * 4096
                for at in range(first, first + pages * 4096, 4096):
                    wrong += [] if shards.right(0, at, mapped[at:at + 100]) else [at]
        os.close(fd)
        # Values lie side by side here and there: then a run goes on longer than others do.
        shards.check(wrong, "runs of pages", 1.1, spare=4 * MIB)
        reads = shards.mount.counters()["source_reads"] - before
        tap.ok(reads <= 100 * pages // 2, "several pages at once", reads)


def direct_reads_get_their_bytes(place):
    wrong = []
    with Shards(place) as shards:
        for step in (4096, 512 << 10, 2 * MIB):
            fd = shards.open(0, os.O_DIRECT)
            buffer = mmap.mmap(-1, step)
            for at in [rng.randrange(SIZE // 4096) * 4096 for _ in range(20)] + list(range(0, SIZE, step))[:40]:
                n = os.preadv(fd, [buffer], at)
                if n != min(step, SIZE - at) or not shards.right(0, at, buffer[:n]):
                    wrong.append((step, at, n))
            os.close(fd)
        shards.check(wrong, "O_DIRECT", 1.1, spare=4 * MIB)


def direct_readers_are_not_staged_for(place):
    """From the second pass on: by then it is known how they read."""
    n = 40
    data = place.files([8192] * n)
    order = place.list_file(range(n)) + ":epochs=3"
    with place.mount(order=order, ram="32M") as mount:
        buffer = mmap.mmap(-1, 8192)
        wrong, pushed = [], []
        for _ in range(3):
            for name, content in data.items():
                fd = os.open(mount.path(name), os.O_RDONLY | os.O_DIRECT)
                if os.preadv(fd, [buffer], 0) != 8192 or buffer[:8192] != content:
                    wrong.append(name)
                os.close(fd)
            pushed.append(mount.counters()["stage_pushed"])
        tap.equal(wrong, [], "every byte is right")
        tap.equal(mount.counters()["stage_evicted_reads"], 0, "nobody calls it dropped by the kernel")
        # What was asked for before the first READs, and one in sixteen.
        tap.ok(pushed[2] - pushed[1] <= n // 4, "pages nobody looks at are not pushed again and again", pushed)


def advice_to_read_all_of_a_file_is_taken(place):
    with Shards(place, files=2, size=12 * MIB) as shards:
        fd, before = shards.open(1), shards.taken()
        os.posix_fadvise(fd, 0, shards.size, os.POSIX_FADV_WILLNEED)
        shards.mount.wait_for(lambda s: s["counters"]["source_bytes"] - before >= shards.size, "all of the file is fetched")
        wrong = []
        for at in (7 * MIB, 3 * MIB, 11 * MIB):
            shards.pread(fd, 1, at, 100000, wrong)
        os.close(fd)
        tap.equal(wrong, [], "every byte is right")
        tap.equal(shards.taken() - before, shards.size, "and nothing of it twice")


def small_files_are_read_as_ever(place):
    """One request, all of it, whatever is read first, up to a piece."""
    sizes = [1, 4096, 110 << 10, MIB - 1, MIB]
    data = place.files(sizes)
    wrong = []
    with place.mount(debug={"stage": 0}) as mount:
        for name, content in data.items():
            before = mount.counters()
            fd = os.open(mount.path(name), os.O_RDONLY)
            at = len(content) // 2
            if os.pread(fd, 1, at) != content[at:at + 1] or mount.read(name) != content:
                wrong.append(name)
            os.close(fd)
            after = mount.counters()
            tap.equal((after["source_reads"] - before["source_reads"], after["source_bytes"] - before["source_bytes"]),
                      (1, len(content)), f"{len(content)} bytes: one request, for all of it")
    tap.equal(wrong, [], "every byte is right")


def bytes_of_all_kinds_of_reads_add_up(place):
    """Each class has the bytes that it answered, and together they are what was asked for: whole pages."""
    wrong, asked = [], 0
    with Shards(place, files=5) as shards:
        def is_counted(more, what):
            nonlocal asked
            asked += more
            got = shards.asked() + shards.bytes_of("staged")
            tap.ok(abs(got - asked) <= asked // 100, f"{what}: what was asked for is counted", got, asked)

        in_order(shards, 0, 0, SIZE, 50000, wrong)
        is_counted(SIZE, "read()")
        fd, slots = shards.open(1), rng.sample(range(SIZE // 131072), 100)
        for slot in slots:
            shards.pread(fd, 1, slot * 131072 + 8192, 25 * 4096, wrong)
        os.close(fd)
        is_counted(len(slots) * 25 * 4096, "pread() of records")
        fd = shards.open(2)
        with mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            mapped.madvise(mmap.MADV_RANDOM)
            pages = rng.sample(range(SIZE // 4096), 300)
            wrong += [page for page in pages if not shards.right(2, page * 4096, mapped[page * 4096:page * 4096 + 50])]
        os.close(fd)
        is_counted(len(pages) * 4096, "mmap, pages")
        fd = shards.open(3)
        with mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            wrong += [at for at in range(0, SIZE, 300000) if not shards.right(3, at, mapped[at:at + 300000])]
        os.close(fd)
        is_counted(SIZE, "mmap, in order")
        fd, buffer = shards.open(4, os.O_DIRECT), mmap.mmap(-1, 300 << 10)
        places = [rng.randrange(SIZE - len(buffer)) // 4096 * 4096 for _ in range(40)] * 2
        wrong += [at for at in places if os.preadv(fd, [buffer], at) != len(buffer) or not shards.right(4, at, buffer[:])]
        os.close(fd)
        is_counted(len(places) * len(buffer), "O_DIRECT, all of it twice")
        tap.equal(wrong, [], "every byte is right")


def bytes_that_the_kernel_asks_for_are_what_is_counted(place):
    """Whole pages, also of records that lie across them; and what it reads ahead of a reader that stops, or around a page of a
    mapping: a window of 128 KiB and the next one."""
    wrong, window, length = [], 128 << 10, 100_000
    with Shards(place, files=3) as shards:
        before = shards.asked()
        fd, slots = shards.open(0), rng.sample(range(1, SIZE // (2 * window)), 80)
        places = [slot * 2 * window + rng.randrange(window) for slot in slots]
        for at in places:
            shards.pread(fd, 0, at, length, wrong)
        os.close(fd)
        pages = sum((at + length - 1) // 4096 - at // 4096 + 1 for at in places) * 4096
        got = shards.asked() - before
        tap.ok(abs(got - pages) <= pages // 100, "records across pages are counted in pages", got, pages)
        before = shards.asked()
        in_order(shards, 1, 0, 6 * MIB, 50000, wrong)
        got = shards.asked() - before
        tap.ok(6 * MIB <= got <= 6 * MIB + 2 * window + 6 * MIB // 100, "who stops has been read ahead of", got)
        before = shards.asked()
        fd, slots = shards.open(2), rng.sample(range(1, SIZE // (2 * window) - 1), 60)
        with mmap.mmap(fd, SIZE, mmap.MAP_SHARED, mmap.PROT_READ) as mapped:
            wrong += [slot for slot in slots if not shards.right(2, slot * 2 * window, mapped[slot * 2 * window:slot * 2 * window + 9])]
        os.close(fd)
        got = shards.asked() - before
        most = len(slots) * window
        tap.ok(len(slots) * 4096 <= got <= most + most // 100, "and around a page that is mapped", got)
        tap.equal(wrong, [], "every byte is right")


def bytes_of_staged_shards_add_up(place):
    """Twice through shards in a known order, each read to its end; what the kernel has of one is dropped when it was read. What it
    does not ask for is what was pushed."""
    size, n, epochs, wrong = 6 * MIB, 6, 2, []
    with Shards(place, files=n, size=size, order=f"sequential:epochs={epochs}", ram="96M") as shards:
        shards.mount.wait_for(lambda s: s["counters"]["stage_pushed"] > 0, "a shard is pushed")
        for _ in range(epochs):
            for file in range(n):
                fd = shards.open(file)
                for at in range(0, size, MIB):
                    shards.pread(fd, file, at, MIB, wrong)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(fd)
        want = epochs * n * size
        # An open is decided seconds after its last sign. Pages that the kernel has from a READ, and that are read once more, are not
        # heard of; a slow daemon has more of these.
        shards.mount.wait_for(lambda s: sum(c["bytes"] for c in s["reads"].values()) >= want - want // 5, "most are counted")
        got = shards.asked() + shards.bytes_of("staged")
        tap.ok(got <= want + want // 100, "and no more than was read", got, want)
        tap.ok(shards.bytes_of("staged") > 0, "some of it from pages that were pushed")
        tap.equal(wrong, [], "every byte is right")


def file_that_is_read_and_staged_at_once_has_its_bytes(place):
    """A reader stays in the first piece of a shard that the order wants. (What of it is pushed meanwhile is chance here; see
    pushes_pass_over_the_piece_that_is_being_read in tests/unit/test_cache_read.c.)"""
    size, n = 6 * MIB, 6
    with Shards(place, files=n, size=size, order="sequential:epochs=1", ram="96M") as shards:
        job = jobs.Job(shards.mount, shards.data)
        done = threading.Event()

        def stays():
            fd = shards.open(n - 1, os.O_DIRECT)
            buffer = mmap.mmap(-1, 4096)
            while not done.is_set():
                os.preadv(fd, [buffer], rng.randrange(256) * 4096)
            os.close(fd)
        crew = Crew()
        crew.add(stays)
        job.read(range(n))
        done.set()
        tap.equal(crew.join() + job.wrong, [], "every byte is right")


def file_with_more_pieces_than_there_are_numbers_is_read_right(place):
    """8 PiB, nearly all of it a hole: bytes 4 PiB apart are not those of each other."""
    folder = tempfile.mkdtemp(prefix="clairfs-huge-", dir="/dev/shm")
    size, parts, wrong = 8 << 50, {}, []
    try:
        with open(f"{folder}/huge.bin", "wb") as file:
            file.truncate(size)
            for at in (0, 3 * MIB, 4 << 50, (4 << 50) + 3 * MIB, size - MIB):
                parts[at] = rng.randbytes(MIB)
                file.seek(at)
                file.write(parts[at])
        with place.mount(folder, store_dir=place.store, store_bytes="64M", store_keep="off", store_keep_free=0) as mount:
            fd = os.open(mount.path("huge.bin"), os.O_RDONLY)
            for at, content in [*parts.items(), *reversed(parts.items())]:
                for step in (4096, 131072, MIB):
                    wrong += [(at, step, i) for i in range(0, MIB, step) if os.pread(fd, step, at + i) != content[i:i + step]]
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if any(os.pread(fd, MIB, (4 << 50) + MIB)) or os.pread(fd, 10, size):
                wrong.append("the hole, or behind the end")
            os.close(fd)
            # Another version: what the store has of the old one is nothing, and not looked for 2^32 times.
            parts[0] = rng.randbytes(MIB)
            with open(f"{folder}/huge.bin", "r+b") as file:
                file.write(parts[0])

            def is_new():
                with contextlib.suppress(OSError):  # ESTALE: who has the old one open
                    fd = os.open(mount.path("huge.bin"), os.O_RDONLY)
                    got = os.pread(fd, MIB, 0)
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                    return got == parts[0]
                return False
            mountkit.wait_until(is_new, "the new version is read")
    finally:
        shutil.rmtree(folder)
    tap.equal(wrong, [], "every byte is right")


mountkit.run(streams_are_read_once_and_in_large_requests, twelve_streams_of_one_file_are_told_apart, random_reads_take_what_they_ask_for,
             streams_and_random_reads_go_together, mapped_files_are_read_the_same, runs_of_single_pages_become_few_requests,
             records_of_an_epoch_come_once, parts_of_a_file_are_read_and_not_what_is_between,
             readers_of_any_direction_take_what_they_ask_for, direct_reads_get_their_bytes, direct_readers_are_not_staged_for,
             advice_to_read_all_of_a_file_is_taken, small_files_are_read_as_ever, bytes_of_all_kinds_of_reads_add_up,
             bytes_that_the_kernel_asks_for_are_what_is_counted, bytes_of_staged_shards_add_up,
             file_that_is_read_and_staged_at_once_has_its_bytes, file_with_more_pieces_than_there_are_numbers_is_read_right)
