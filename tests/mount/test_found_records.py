# SPDX-License-Identifier: Apache-2.0
"""Records within one large file that nobody told anything of: found in the first epoch, cut out of the file while it is read, and
fetched ahead and pushed in the rest of that epoch and in the next. Bytes are right all the time, the source gives what is asked for
and little more; also where what was found is not what the job goes on with.

Pages that the kernel has dropped are asked for again: they are counted, not forbidden.
"""
import mmap
import os
import re
import time

import mountkit
import tap
from mountkit import Slowfs, good, rng, write_file

MIB = 1 << 20
N, STRIDE = 3000, 100000
ORDER = "torch-loader:seed=42"
SECONDS_MOST = 400


def epoch_of(spec, number=0, n=N):
    return [int(k) for k in good("order", spec, "--n", n, "--epoch", number).split()]


class Raw:
    """A file of records through slowfs, through a mount whose memory has room for a fifth of it."""

    def __init__(self, place, n=N, stride=STRIDE, origin=0, is_slow=True, **options):
        self.place, self.n, self.stride, self.origin = place, n, stride, origin
        self.name = "train.bin"
        self.data = b"".join(rng.randbytes(MIB) for _ in range((origin + n * stride) // MIB + 1))[:origin + n * stride]
        write_file(os.path.join(place.source, self.name), self.data)
        self.slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache", "--latency-ms", "2", "--mbps", "400") if is_slow else None
        self.options = {"ram": "64M", "recover": "quick", **options}
        self.read = 0

    def __enter__(self):
        self.mount = self.place.mount(self.place.path("slow") if self.slow else self.place.source, **self.options)
        self.fd = os.open(self.mount.path(self.name), os.O_RDONLY)
        return self

    def __exit__(self, *error):
        os.close(self.fd)
        self.mount.__exit__(*error)
        if self.slow:
            self.slow.__exit__(*error)

    def is_right(self, k):
        """Reads it as a job whose data is larger than the page cache: the kernel has forgotten it when it comes again."""
        at = self.origin + k * self.stride
        got = os.pread(self.fd, self.stride, at)
        os.posix_fadvise(self.fd, at, self.stride, os.POSIX_FADV_DONTNEED)
        self.read += 1
        return got == self.data[at:at + self.stride]

    def read_slowly(self, order):
        """As a job that computes: what is fetched ahead for it is there when it goes on; wrong records."""
        wrong = []
        for i, k in enumerate(order):
            if i % 16 == 0:
                self.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0, "fetches are over")
            if not self.is_right(k):
                wrong.append(k)
        return wrong

    def records(self):
        return self.mount.stats()["order"]["search"]["records"]

    def compute(self, seconds=10):
        """While the order is looked for, which has a low priority and may take what CPU nobody wants; not longer. What was read is
        heard of twenty times a second."""
        until = time.monotonic() + seconds
        time.sleep(0.15)
        while time.monotonic() < until and self.records()[0]["is_searching"]:
            time.sleep(0.05)

    @staticmethod
    def is_followed(stats, spec):
        """The order in force is that one, also where it was found in a later epoch."""
        records, text = stats["order"]["search"]["records"], stats["order"].get("spec", "")
        return records and records[0]["is_followed"] and re.fullmatch(f"{spec}(:start_epoch=[0-9]+)?:records=1:under=.*", text)

    def wait_followed(self, spec=ORDER):
        return self.mount.wait_for(lambda s: self.is_followed(s, spec) and s, f"{spec} is in force")

    def read_until_followed(self, spec, epochs):
        """Reads these epochs until the order is in force, and computes in between: which passes are looked at is up to what that costs.
        Returns the epoch that it is in, how far, and what was wrong."""
        wrong, begun = [], time.monotonic()
        for number in range(epochs):
            order = epoch_of(spec, number)
            for at in range(0, len(order), 50):
                if time.monotonic() - begun > SECONDS_MOST:
                    break
                if self.is_followed(self.mount.stats(), spec):
                    tap.note(f"{spec} is in force after {number} epochs and {at} records, {time.monotonic() - begun:.0f} s")
                    return number, at, wrong
                wrong += self.read_slowly(order[at:at + 50])
                self.compute()
        raise mountkit.Failed(f"{spec} is not in force after {epochs} epochs; order {self.mount.stats()['order']}")


def staged(before, after):
    """Part of the bytes asked for in between that the kernel had."""
    bytes_of = {k: after["reads"][k]["bytes"] - before["reads"][k]["bytes"] for k in after["reads"]}
    return bytes_of["staged"] / max(sum(bytes_of.values()), 1)


def decided(raw):
    """Statistics once what was read is decided, which is when it has been quiet for five seconds: when they say the same for longer.

    Not all of it need be counted: of records that were pushed and that the job read in no order nobody hears."""
    seen, since = None, time.monotonic()
    while time.monotonic() - since < 6:
        time.sleep(0.2)
        stats = raw.mount.stats()
        if stats["reads"] != seen:
            seen, since = stats["reads"], time.monotonic()
    return stats


def first_epoch_is_followed(place):
    with Raw(place) as raw:
        order = epoch_of(ORDER)
        tap.equal(raw.read_slowly(order[:700]), [], "every byte is right before anything is known")
        stats = raw.wait_followed()
        tap.equal(stats["order"]["spec"], f"{ORDER}:records=1:under=train.bin", "it is the order")
        status = good("status", raw.mount.mountpoint).decode()
        tap.ok(f"in the order {ORDER}, which is in force" in status, "status says so", status)
        tap.equal(raw.read_slowly(order[700:900]), [], "every byte is right while readers are found")
        before = decided(raw)
        tap.equal(raw.read_slowly(order[900:]), [], "every byte of the rest is right")
        after = decided(raw)
        part = staged(before, after)
        tap.ok(part >= 0.7, "most of the rest of the first epoch was there before its reader", part, after["reads"])
        tap.equal(after["order"]["readers"]["lost"], 0, "the order is not lost")
        for number in (1, 2):
            tap.equal(raw.read_slowly(epoch_of(ORDER, number)), [], f"every byte of epoch {number} is right")
        c = raw.mount.counters()
        tap.note(f"staged {part:.3f}, source {c['source_bytes'] / (raw.read * STRIDE):.3f} of what was asked")
        tap.ok(c["source_bytes"] <= 1.1 * raw.read * STRIDE + 64 * MIB, "the source gives what is read", c["source_bytes"],
               raw.read * STRIDE)


def job_that_goes_on_otherwise(place):
    """What was found held for half an epoch; then the job reads at random, and then in another order."""
    other = "torch-loader:seed=43"
    with Raw(place) as raw:
        tap.equal(raw.read_slowly(epoch_of(ORDER)[:1000]), [], "every byte is right")
        raw.wait_followed()
        tap.equal(raw.read_slowly(epoch_of(ORDER)[1000:1500]), [], "every byte is right while it is followed")
        before, read = raw.mount.counters(), raw.read
        tap.equal(raw.read_slowly(rng.sample(range(N), 1200)), [], "every byte is right of what no order says")
        c, asked = raw.mount.counters(), (raw.read - read) * STRIDE
        tap.note(f"at random: source {(c['source_bytes'] - before['source_bytes']) / asked:.3f} of what was asked")
        tap.ok(c["source_bytes"] - before["source_bytes"] <= 1.1 * asked + 64 * MIB, "and the source gives no more",
               c["source_bytes"] - before["source_bytes"], asked)
        stats = raw.mount.stats()
        tap.ok(stats["order"]["readers"]["lost"] >= 1, "the order is lost", stats["order"])
        status = good("status", raw.mount.mountpoint).decode()
        tap.ok("but the last ones are not read so" in status or "which is in force" not in status, "status says so", status)
        number, at, wrong = raw.read_until_followed(other, 4)
        tap.equal(wrong, [], "every byte is right of another order")
        before = decided(raw)
        tap.equal(raw.read_slowly(epoch_of(other, number)[at:] + epoch_of(other, number + 1)), [], "every byte is right of what is left of it")
        part = staged(before, decided(raw))
        tap.note(f"in the next order: staged {part:.3f}")
        tap.ok(part >= 0.5, "which is followed in its turn", part)


def order_that_is_told_wins(place):
    with Raw(place) as raw:
        tap.equal(raw.read_slowly(epoch_of(ORDER)[:1000]), [], "every byte is right")
        raw.wait_followed()
        raw.mount.tell("sequential")
        tap.equal(raw.mount.stats()["order"]["spec"], "sequential", "one that is told takes its place")
        tap.equal(raw.read_slowly(epoch_of(ORDER)[1000:1400]), [], "and every byte is right")
        stats = raw.mount.stats()
        tap.ok("it is not followed: " in stats["order"]["search"]["records"][0]["order_words"], "and that it is not followed is said", stats["order"])
        tap.equal((stats["order"]["spec"], stats["order"]["search"]["records"][0]["is_followed"]), ("sequential", False), "it stays")
        tap.ok(mountkit.read_file(raw.mount.path(raw.name)) == raw.data, "every byte is right of who reads the file from front to back")
        raw.mount.tell("none")
        tap.equal(raw.read_slowly(epoch_of(ORDER)[1400:1800]), [], "every byte is right")
        tap.ok("spec" not in raw.mount.stats()["order"], "none means none", raw.mount.stats()["order"])


def records_behind_a_head(place):
    """Their place is known to some bytes only, and the last ones are shorter than the file."""
    with Raw(place, n=2000, stride=120000, origin=777) as raw:
        order = epoch_of(ORDER, 0, 2000)
        tap.equal(raw.read_slowly(order[:900]), [], "every byte is right before")
        raw.wait_followed()
        before = decided(raw)
        tap.equal(raw.read_slowly(order[900:]), [], "and after")
        part = staged(before, decided(raw))
        tap.note(f"behind a head: staged {part:.3f}")
        tap.ok(part >= 0.6, "most were there before their reader", part)
        tap.equal(raw.mount.stats()["order"]["readers"]["lost"], 0, "the order is not lost")


def file_of_a_validation_set_beside(place):
    """Read between the epochs, shuffled by another seed: each file has an order of its own."""
    n, stride, other = 1200, 60000, "torch-loader:seed=7"
    raw = Raw(place)
    data = b"".join(rng.randbytes(MIB) for _ in range(n * stride // MIB + 1))[:n * stride]
    write_file(os.path.join(place.source, "valid.bin"), data)
    with raw:
        fd = os.open(raw.mount.path("valid.bin"), os.O_RDONLY)
        for number in range(2):
            tap.equal(raw.read_slowly(epoch_of(ORDER, number)), [], f"every byte of epoch {number} is right")
            wrong = []
            for i, k in enumerate(epoch_of(other, number, n)):
                if i % 16 == 0:
                    raw.mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == 0, "fetches are over")
                if os.pread(fd, stride, k * stride) != data[k * stride:(k + 1) * stride]:
                    wrong.append(k)
                os.posix_fadvise(fd, k * stride, stride, os.POSIX_FADV_DONTNEED)
            tap.equal(wrong, [], "and of the validation behind it")
            followed = {r["path"]: r["is_followed"] for r in raw.records()}
            tap.equal(followed, {"train.bin": True, "valid.bin": True}, "both are followed")
        os.close(fd)
        c, asked = raw.mount.counters(), raw.read * STRIDE + 2 * len(data)
        tap.note(f"two files: {c['prefetch_useful']} there before their reader, source {c['source_bytes'] / asked:.3f} of what was asked")
        tap.ok(c["source_bytes"] <= 1.1 * asked + 64 * MIB, "the source gives what is read", c["source_bytes"], asked)


def is_right_mapped(raw, view, k):
    at = k * raw.stride
    got, page = view[at:at + raw.stride], at // mmap.PAGESIZE * mmap.PAGESIZE
    view.madvise(mmap.MADV_DONTNEED, page, raw.stride)
    os.posix_fadvise(raw.fd, at, raw.stride, os.POSIX_FADV_DONTNEED)
    raw.read += 1
    return got == raw.data[at:at + raw.stride]


def file_that_is_mapped(place):
    """There the kernel asks for what is around a page that is missing: 128 KiB for each record that was not pushed. So of a file as
    small as this it soon has most, and nobody hears of many readers: how many records were there before them is noted only."""
    with Raw(place) as raw, mmap.mmap(raw.fd, 0, prot=mmap.PROT_READ) as view:
        raw.is_right = lambda k: is_right_mapped(raw, view, k)
        order = epoch_of(ORDER)
        tap.equal(raw.read_slowly(order[:900]), [], "every byte is right before")
        raw.wait_followed()
        tap.equal(raw.read_slowly(order[900:1100]), [], "and while readers are found")
        before, read = raw.mount.counters(), raw.read
        tap.equal(raw.read_slowly(order[1100:]), [], "and after")
        c, n = raw.mount.counters(), raw.read - read
        useful = c["prefetch_useful"] - before["prefetch_useful"]
        first, rest = before["source_bytes"] / (read * STRIDE), (c["source_bytes"] - before["source_bytes"]) / (n * STRIDE)
        tap.note(f"mapped: {useful / n:.3f} were there before their reader, source {first:.3f} and then {rest:.3f} of what was read")
        tap.ok(rest < first, "the source gives less for each", rest, first)


def file_that_was_mapped_and_is_read(place):
    """The next job reads records in an order that no seed gives, so none is found, and maps nothing: its READs are of a record, with no
    page around it."""
    n, stride = 3000, 60000
    with Raw(place, n=n, stride=stride, ram="48M") as raw:
        with mmap.mmap(raw.fd, 0, prot=mmap.PROT_READ) as view:
            tap.equal([k for k in epoch_of(ORDER, 0, n)[:1200] if not is_right_mapped(raw, view, k)], [],
                      "every byte is right of who maps the file")
            raw.wait_followed()
        tap.equal(raw.read_slowly(rng.sample(range(n), n)), [], "and of who reads it in another order")
        order = raw.mount.stats()["order"]
        tap.note(f"read after it was mapped: {order['readers']}")
        tap.ok(order["readers"]["lost"] >= 1, "the order is lost", order)
        tap.ok(order["readers"]["lost_reads"] >= n / 4, "as most of its readers are heard of", order)
        words = order["search"]["records"][0]["order_words"]
        tap.ok("but the last ones are not" in words, "and that they are not read so is said", words)


def page_cache_that_has_half(place):
    """Records that the kernel keeps have silent readers, and beside them it reads on to the ends of others. Whatever the order has made of
    that: when the kernel has dropped them it is followed to its place."""
    n, stride = 3000, 60000
    with Raw(place, n=n, stride=stride, ram="48M") as raw:
        tap.equal(raw.read_slowly(epoch_of(ORDER, 0, n)[:700]), [], "every byte is right")
        raw.wait_followed()
        drops = raw.is_right

        def keeps_half(k):
            if rng.random() < 0.5:
                return drops(k)
            raw.read += 1
            return os.pread(raw.fd, stride, k * stride) == raw.data[k * stride:(k + 1) * stride]

        raw.is_right = keeps_half
        tap.equal(raw.read_slowly(epoch_of(ORDER, 0, n)[700:] + epoch_of(ORDER, 1, n) + epoch_of(ORDER, 2, n)), [],
                  "every byte is right while the kernel keeps half of the records")
        raw.is_right = drops
        os.posix_fadvise(raw.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        order = epoch_of(ORDER, 3, n)
        tap.equal(raw.read_slowly(order[:1500]), [], "and when it has dropped them")
        before = decided(raw)
        tap.equal(raw.read_slowly(order[1500:]), [], "and after")
        after = decided(raw)
        part = staged(before, after)
        tap.note(f"after half of the records were kept: staged {part:.3f}")
        tap.ok(part >= 0.5, "then most are there before their reader", part, after["order"])


def file_that_is_replaced(place):
    # Not through slowfs: to that a path is an inode, and who reads the old file leaves its pages there.
    with Raw(place, is_slow=False, revalidate=1) as raw:
        tap.equal(raw.read_slowly(epoch_of(ORDER)[:900]), [], "every byte is right")
        raw.wait_followed()
        raw.read_slowly(epoch_of(ORDER)[900:1000])
        new = raw.data[::-1]
        write_file(os.path.join(place.source, "new"), new)
        os.rename(os.path.join(place.source, "new"), os.path.join(place.source, raw.name))
        raw.mount.wait_for(lambda s: s["counters"]["source_changed"] >= 1, "the change is seen")
        os.close(raw.fd)
        raw.fd, raw.data = os.open(raw.mount.path(raw.name), os.O_RDONLY), new
        tap.equal(raw.read_slowly(epoch_of(ORDER)[1000:1600]), [], "every byte is that of the new file")


mountkit.run(first_epoch_is_followed, job_that_goes_on_otherwise, order_that_is_told_wins, records_behind_a_head,
             file_of_a_validation_set_beside, file_that_is_mapped, file_that_was_mapped_and_is_read,
             page_cache_that_has_half, file_that_is_replaced)
