# SPDX-License-Identifier: Apache-2.0
"""Records within larger files, read in an order of records that was told, by a job that jumps: 100 KB here and there of files that
are larger than memory together. Bytes are right, the source gives what is asked for and little more, and of the records that were
pushed one in some ten asks for a page.

Nothing here looks at a clock, and pages that the kernel has dropped are asked for again: they are counted, not forbidden.
"""
import json
import mmap
import os
import random
import threading

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

    def __init__(self, place, order=ORDER, is_slow=True, **options):
        self.place, self.order = place, order
        sizes = [16 * MIB + 4097 * i for i in range(FILES)]
        self.data = place.files(sizes, "shard{:02d}.bin")
        self.names = list(self.data)
        self.records = records_of(sizes)
        self.n = len(self.records)
        self.bytes = sum(r[2] for r in self.records)
        mountkit.write_file(place.path("list"), "".join(f"{self.names[f]} {at} {n}\n" for f, at, n in self.records).encode())
        self.slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--latency-ms", "2", "--mbps", "400") if is_slow else None
        self.from_ = place.path("slow") if is_slow else place.source
        good("index", self.from_, "--snapshot-dir", place.snapshots, "--import", place.path("list"))
        self.options = {"ram": "32M", "order": order, **options}

    def __enter__(self):
        self.mount = self.place.mount(self.from_, **self.options)
        self.fds = [os.open(self.mount.path(name), os.O_RDONLY) for name in self.names]
        return self

    def __exit__(self, *error):
        for fd in self.fds:
            os.close(fd)
        self.mount.__exit__(*error)
        if self.slow:
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

    def read_slowly(self, order):
        """As a job that computes: what is fetched ahead for it is there when it goes on; wrong records."""
        wrong = []
        for i, record in enumerate(order):
            if i % 16 == 0:
                self.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0, "fetches are over")
            if not self.is_right(record):
                wrong.append(record)
        return wrong

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
        tap.equal(v.read_slowly(v.epoch(0)), [], "every byte of an epoch is right")
        # Decided when they have been quiet for some seconds. READs are of whole pages.
        stats = v.mount.wait_for(lambda s: asked(s) >= 0.97 * v.bytes and s, "what was pushed is counted as it was read")
        tap.ok(asked(stats) <= 1.08 * v.bytes, "and not twice", asked(stats), v.bytes)
        # What is held for later and not read before the end of the test: at most the memory there is.
        c = v.mount.counters()
        tap.ok(c["prefetch_useful"] >= 0.8 * v.n, "most were there before their reader", c["prefetch_useful"], v.n)
        tap.ok(c["upcall_read"] <= 1.6 * v.n, "a record that was pushed asks for one page at most", c["upcall_read"], v.n)
        tap.ok(c["source_bytes"] <= 1.1 * v.bytes + 32 * MIB, "the source gives what is read", c["source_bytes"], v.bytes)
        # Where the kernel has what is before a record and not what is behind it, it reads on.
        tap.ok(c["source_reads"] <= c["prefetch_issued"] + 0.15 * v.n, "and is asked ahead of the reader, not by it", c["source_reads"],
               c["prefetch_issued"])
        tap.equal(v.mount.stats()["order"]["readers"]["lost"], 0, "the order is not lost")
        for number in (1, 2):
            tap.equal([r for r in v.epoch(number) if not v.is_right(r)], [], f"every byte of epoch {number} is right")
        c, stats = v.quiet(), v.mount.stats()
        tap.ok(c["source_bytes"] <= 1.1 * 3 * v.bytes + 32 * MIB, "the source gives what is read", c["source_bytes"], 3 * v.bytes)
        tap.equal(stats["order"]["epoch"]["length"], v.n, "its epochs are of records")


def more_is_pushed_than_memory_has_room_for(place):
    """The copy of most records goes while they are in the kernel, and there are more of them than there may be tracer pages.

    The kernel does not read on here (RANDOM): what it asks for is what its reader came to."""
    with Shards(place, debug="stage:1G") as v:
        for fd in v.fds:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 8, "the first ones wait in the kernel")
        before = v.mount.counters()
        tap.equal(v.read_slowly(v.epoch(0)), [], "every byte of an epoch is right")
        c = v.quiet()
        late = c["source_reads"] - before["source_reads"] - (c["prefetch_issued"] - before["prefetch_issued"])
        tap.ok(late <= 0.03 * v.n, "nearly none waits for the source", late, v.n)
        tap.ok(c["upcall_read"] - before["upcall_read"] <= 1.3 * v.n, "a record that was pushed asks for one page at most", c["upcall_read"], v.n)
        stats = v.mount.wait_for(lambda s: asked(s) >= 0.98 * v.bytes and s, "what was pushed is counted as it was read")
        tap.ok(asked(stats) <= 1.02 * v.bytes, "and no more", asked(stats), v.bytes)
        tap.equal(stats["order"]["readers"]["lost"], 0, "the order is not lost")


def most_records_ask_for_nothing(place):
    """Where the order is followed one in each MiB has a tracer page, and the others count as read when that is asked for."""
    with Shards(place) as v:
        v.mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 8, "the first ones wait in the kernel")
        tap.equal(v.read_slowly(v.epoch(0)), [], "every byte of an epoch is right")
        before = v.mount.wait_for(lambda s: asked(s) >= 0.98 * v.bytes and s, "it is counted")
        tap.equal(v.read_slowly(v.epoch(1)), [], "and of the next one")
        stats = v.mount.wait_for(lambda s: asked(s) >= 1.98 * v.bytes and s, "that as well")
        tap.ok(asked(stats) <= 2.04 * v.bytes, "and not twice", asked(stats), v.bytes)
        c = {name: n - before["counters"][name] for name, n in stats["counters"].items()}
        # What was not pushed in time, what the kernel has dropped, and what it reads on for is asked for.
        most = 1.2 * v.bytes / MIB + 0.3 * v.n + 2 * c["stage_evicted_reads"]
        tap.ok(c["upcall_read"] <= most, "one in each MiB asks for a page", c["upcall_read"], most, v.n)
        staged = stats["reads"]["staged"]["bytes"] - before["reads"]["staged"]["bytes"]
        tap.ok(staged >= 0.9 * v.bytes or c["stage_evicted_reads"] > 0.05 * v.n, "the kernel had nearly all of them", staged, v.bytes)
        tap.equal(stats["order"]["readers"]["lost"], 0, "the order is not lost")


def others_read_as_they_like_beside(place):
    """Whole files, parts of any size, mapped pages, and records in another order: all get the bytes of the file."""
    with Shards(place) as v:
        stop, wrong = [], []
        order = v.epoch(0)

        def parts(seed):
            numbers = random.Random(seed)
            fd = os.open(v.mount.path(v.names[seed % FILES]), os.O_RDONLY)
            want = v.data[v.names[seed % FILES]]
            with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as view:
                while not stop:
                    at, n = numbers.randrange(len(want)), numbers.randrange(1, 300000)
                    if os.pread(fd, n, at) != want[at:at + n] or view[at:at + 5000] != want[at:at + 5000]:
                        wrong.append((seed, at, n))
            os.close(fd)

        threads = [threading.Thread(target=parts, args=(seed,)) for seed in range(3)]
        for thread in threads:
            thread.start()
        bad = [r for r in order if not v.is_right(r)]
        for name in v.names:
            bad += [] if mountkit.read_file(v.mount.path(name)) == v.data[name] else [name]
        stop.append(True)
        for thread in threads:
            thread.join()
        tap.equal(bad, [], "every byte of the job and of who reads whole files")
        tap.equal(wrong, [], "and of who reads parts of them")
        v.quiet()


def a_file_that_is_replaced_while_its_records_are_held(place):
    # Not through slowfs: to that a path is an inode, and who reads the old file leaves its pages there.
    with Shards(place, is_slow=False, revalidate=1) as v:
        order = v.epoch(0)
        for r in order[:50]:
            v.is_right(r)
        file = v.records[order[50]][0]
        name, old = v.names[file], v.data[v.names[file]]
        new = rng.randbytes(len(old) - 3 * MIB)
        mountkit.write_file(f"{place.source}/{name}.new", new)
        os.rename(f"{place.source}/{name}.new", f"{place.source}/{name}")
        mixed = []
        for r in order[50:300]:
            of, at, n = v.records[r]
            try:
                got = os.pread(v.fds[of], n, at)
            except OSError as error:
                if error.errno != mountkit.errno.ESTALE or of != file:
                    raise
                continue
            # Refused in the middle of it, the kernel gives what it had until there.
            if got != v.want(r) and (of != file or got not in (old[at:at + len(got)], new[at:at + n])):
                mixed.append(r)
        tap.equal(mixed, [], "bytes of one version, or a refusal")
        v.data[name] = new

        def is_new():
            try:
                return mountkit.read_file(v.mount.path(name)) == new
            except OSError as error:
                if error.errno != mountkit.errno.ESTALE:
                    raise
                return False
        mountkit.wait_until(is_new, "opened again it is the new one, to its end")
        os.close(v.fds[file])
        v.fds[file] = os.open(v.mount.path(name), os.O_RDONLY)
        wrong = [r for r in v.epoch(1) if v.records[r][0] == file and not v.is_right(r)]
        tap.equal(wrong, [], "and its records are those of the new one, where they are")
        tap.ok(v.mount.counters()["source_changed"] >= 1, "that was seen")


def mds_is_read_as_streaming_reads_it(place):
    """An open of the shard for each sample, 8 bytes of the table at its head, and the sample, in the order of MosaicML Streaming."""
    shards, samples, spec = 6, 90, "mosaic-py1e:seed=42:epochs=2:batch=4"
    data, infos = {}, []
    for k in range(shards):
        parts = [rng.randbytes(rng.randint(60000, 160000)) for _ in range(samples)]
        begins = [4 * (samples + 2)]
        for part in parts:
            begins.append(begins[-1] + len(part))
        name = f"shard.{k:05d}.mds"
        data[name] = b"".join(n.to_bytes(4, "little") for n in (samples, *begins)) + b"".join(parts)
        infos.append({"format": "mds", "samples": samples, "raw_data": {"basename": name}, "zip_data": None, "compression": None, "version": 2})
    data["index.json"] = json.dumps({"version": 2, "shards": infos}).encode()
    for name, content in data.items():
        mountkit.write_file(f"{place.source}/{name}", content)
    slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--latency-ms", "2", "--mbps", "400")
    good("index", place.path("slow"), "--snapshot-dir", place.snapshots, "--records", "mds")
    order = [int(n) for n in good("order", spec, "--source", place.path("slow"), "--snapshot-dir", place.snapshots).split()]
    with place.mount(place.path("slow"), ram="32M", order=spec) as mount:
        tap.ok(f"{shards * samples} samples within files are fetched ahead one by one" in mount.text(), "that is said", mount.text())
        mount.wait_for(lambda s: s["counters"]["stage_pushed"] >= 8, "the first ones wait in the kernel")
        wrong, total = [], 0
        for record in order:
            k, i = divmod(record, samples)
            name = f"shard.{k:05d}.mds"
            with open(mount.path(name), "rb", buffering=0) as file:
                file.seek(4 * (i + 1))
                begin, end = (int.from_bytes(file.read(4), "little") for _ in range(2))
                file.seek(begin)
                if file.read(end - begin) != data[name][begin:end]:
                    wrong.append(record)
                total += end - begin
                os.posix_fadvise(file.fileno(), begin, end - begin, os.POSIX_FADV_DONTNEED)
        tap.equal(wrong, [], "every byte is right")
        c, stats = mount.counters(), mount.stats()
        tap.ok(c["source_bytes"] <= 1.1 * total + 32 * MIB, "the source gives what is read", c["source_bytes"], total)
        tap.equal(stats["order"]["readers"]["lost"], 0, "the order is not lost")
    slow.stop()


def who_reads_on_gets_files(place):
    """An order that is not shuffled: the kernel reads ahead, and files are fetched in large requests."""
    size = 16384
    n = 96 * MIB // size
    data = place.files([96 * MIB], "shard{:02d}.bin")
    name, content = next(iter(data.items()))
    mountkit.write_file(place.path("list"), "".join(f"{name} {i * size} {size}\n" for i in range(n)).encode())
    good("index", place.source, "--snapshot-dir", place.snapshots, "--import", place.path("list"))
    with place.mount(place.source, ram="64M", order="sequential:records=1") as mount:
        tap.ok("the files are fetched ahead, not the samples: the job goes through their files" in mount.text(), "that is said", mount.text())
        fd = os.open(mount.path(name), os.O_RDONLY)
        wrong = [i for i in range(n) if os.pread(fd, size, i * size) != content[i * size:(i + 1) * size]]
        os.close(fd)
        tap.equal(wrong, [], "every byte is right")
        c = mount.counters()
        tap.ok(c["upcall_read"] <= n // 4, "the kernel asks for several records at once", c["upcall_read"], n)
        tap.ok(c["source_reads"] <= n // 16, "and the source for many", c["source_reads"], n)


def where_records_cannot_be_units_files_are(place):
    with Shards(place, store_dir=place.store, store_bytes="64M", store_keep=0) as v:
        tap.ok("the files are fetched ahead, not the samples: the store keeps files" in v.mount.text(), "with a store", v.mount.text())
        tap.ok(v.mount.stats()["order"]["epoch"]["length"] <= 5 * FILES, "its epochs are of files")
        tap.equal([r for r in v.epoch(0)[:100] if not v.is_right(r)], [], "bytes are right all the same")


mountkit.run(jumps_are_followed_record_by_record, most_records_ask_for_nothing, more_is_pushed_than_memory_has_room_for, others_read_as_they_like_beside, a_file_that_is_replaced_while_its_records_are_held,
             mds_is_read_as_streaming_reads_it, who_reads_on_gets_files, where_records_cannot_be_units_files_are)
