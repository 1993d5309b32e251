# SPDX-License-Identifier: Apache-2.0
"""Real clients read samples within larger files through a mount: what each returns is what it returns when it reads the source
itself, the source is asked for hardly more than the client asks for, and what the mount counts is what was asked for.

The environment variable CLAIRFS_CLIENTS_PYTHON names a Python with the small clients (packaging/install-deps --clients makes one). The
others have gigabytes of dependencies: packaging/check --conformance runs them, each in an environment of its own, by this script
with the client's name. CLAIRFS_CLIENTS_MIB is the size of each dataset.

What a client asks for is counted where it reads the simulated source directly: pages of the kernel's READs, with whatever a mapping
makes it read around. The kernel asks a mount for the same, and again for what it has dropped meanwhile: the most that can be is the
pages that it counts as dropped and read again, of the whole machine.

Nothing here looks at a clock but to report: "cold" is the first epoch, "warm" the second, of which the page cache has what it has
kept.
"""
import contextlib
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "mount"))
import mountkit
import tap
from clientkit import LARGE, SMALL, Job
from mountkit import Failed, Slowfs, wait_until

MIB = 1 << 20
PYTHON = os.environ.get("CLAIRFS_CLIENTS_PYTHON")
SIZE = int(os.environ.get("CLAIRFS_CLIENTS_MIB") or 24) * MIB
RAM = "32M"
READERS = (1, 4)
EPOCHS = 2
READ_CLASSES = ("arena", "late", "store", "peer", "miss")
# What a mount may fetch for nothing, before it knows how long runs are. Of parquet_columns that is no more than is allowed anyway.
GUESSED = {"parquet_columns": 0}
GUESSED_ELSE = MIB
SOURCE = ("--latency-ms", "0.2", "--mbps", "400", "--keep-cache")
PAGE = 4096


class Source(Slowfs):
    """The dataset through the simulated source, and the bytes that the kernel asked it for since the last look."""

    def __init__(self, place, name):
        self.requests, self.at, self.opened = place.path(name + ".requests"), 0, {}
        super().__init__(place, place.source, place.path(name), *SOURCE, "--log", self.requests)
        self.waiting = place.path("connections", str(os.minor(os.stat(self.mountpoint).st_dev)), "waiting")

    def sent(self):
        """(all of it, each page once). What is read ahead is asked for after its readers have ended."""
        wait_until(lambda: int(mountkit.read_file(self.waiting)) == 0, "the source has answered")
        with open(self.requests, encoding="utf-8") as file:
            file.seek(self.at)
            text = file.read()
        self.at += len(text.encode())
        total, pages = 0, set()
        for line in text.splitlines():
            what, number, rest = line.split(" ", 2)
            if what == "open":
                self.opened[number] = rest
                continue
            offset, size = map(int, rest.split())
            total += size
            pages.update((self.opened[number], page) for page in range(offset // PAGE, (offset + size + PAGE - 1) // PAGE))
        return total, len(pages) * PAGE


@contextlib.contextmanager
def connections(place):
    """What the kernel says of FUSE filesystems."""
    path = place.path("connections")
    os.mkdir(path)
    done = mountkit.program("mount", "-t", "fusectl", "none", path)
    if done.code:
        raise Failed(f"fusectl: {done}")
    try:
        yield
    finally:
        mountkit.program("umount", path)


def counted(mount):
    """Bytes of READs and of staged reads, as the mount counts them, once nothing is under way."""
    stats = mount.wait_for(lambda s: s["gauges"]["prefetch_inflight"] == s["gauges"]["demand_inflight"] == 0, "fetches are over")
    return sum(stats["reads"][name]["bytes"] for name in READ_CLASSES), stats["reads"]["staged"]["bytes"]


def dropped_and_read_again():
    """Bytes of files, since the machine was started."""
    mountkit.read_file("/proc/sys/vm/stat_refresh")  # what CPUs have counted and not told yet
    fields = dict(line.split() for line in mountkit.read_file("/proc/vmstat").decode().splitlines())
    return int(fields["workingset_refault_file"]) * PAGE


def dataset_of(place):
    """(files, bytes)"""
    sizes = [os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(place.source) for name in names]
    return len(sizes), sum(sizes)


def directly(place, job, readers):
    """[(answer, bytes asked for, but none of them twice)] of each epoch."""
    with Source(place, f"direct{readers}") as source:
        return [(job.read(source.mountpoint, readers, epoch), source.sent()[1]) for epoch in range(EPOCHS)]


def through_a_mount(place, job, readers):
    """Of each epoch: (answer, bytes asked for as the mount counts them, bytes that it counts as staged, bytes that the source was
    asked for, bytes that may be asked for again)."""
    found = []
    with Source(place, f"below{readers}") as source, place.mount(source.mountpoint, ram=RAM) as mount:
        before = (0, 0)
        for epoch in range(EPOCHS):
            dropped = dropped_and_read_again()
            answer = job.read(mount.mountpoint, readers, epoch)
            after = counted(mount)
            found.append((answer, after[0] - before[0], after[1] - before[1], source.sent()[0], dropped_and_read_again() - dropped))
            before = after
    return found


def mb(size):
    return f"{size / 1e6:.2f} MB"


def compare(place, readers, direct, mounted, guessed):
    files, _ = dataset_of(place)
    for epoch, ((a, a_asked), (b, asked, staged, sent, again)) in enumerate(zip(direct, mounted)):
        what = f"{readers} readers, {'warm' if epoch else 'cold'}"
        tap.ok(a["records"] > 0, f"{what}: records are read", a)
        tap.equal((b["records"], b["bytes"], b["sha256"]), (a["records"], a["bytes"], a["sha256"]), f"{what}: every byte is the source's")
        tap.ok(sent <= 1.1 * asked + files * PAGE + guessed, f"{what}: the source is asked for what was asked for", mb(sent), mb(asked))
        spare = a_asked // 100 + files * PAGE
        if epoch == 0:
            tap.ok(a_asked - spare - guessed <= asked <= a_asked + spare + again, f"{what}: what was asked for is counted", mb(asked),
                   mb(a_asked), mb(again))
        tap.note(f"{what}: the client has {mb(a['bytes'])}; asked for {mb(a_asked)} directly, {mb(asked)} of the mount "
                 f"({mb(staged)} staged), which asked the source for {mb(sent)}; "
                 f"{a['seconds']:.2f} s directly, {b['seconds']:.2f} s through the mount")


def in_a_known_order(place, job, direct):
    """One epoch, files in the order told. How much of it the kernel has in time is up to the machine, and reported."""
    order = place.list_file(job.order(place.source, 1)) + ":epochs=1"
    files, size = dataset_of(place)
    with Source(place, "told") as source, place.mount(source.mountpoint, ram="64M", order=order) as mount:
        mount.wait_for(lambda s: s["counters"]["stage_pushed"] > 0, "a file is pushed")
        again = dropped_and_read_again()
        answer = job.read(mount.mountpoint, 1, 0)
        tap.equal(answer["sha256"], direct[0][0]["sha256"], "in a known order: every byte is the source's")
        mount.wait_for(lambda s: sum(c["bytes"] for c in s["reads"].values()) >= size - size // 5, "most is counted")
        asked, staged = counted(mount)
        sent, again = source.sent()[0], dropped_and_read_again() - again
        tap.ok(asked + staged <= size + size // 100 + files * PAGE + again, "in a known order: no more is counted than was asked for",
               mb(asked), mb(staged), mb(size), mb(again))
        tap.ok(sent <= 1.1 * size + files * PAGE + again, "in a known order: the source is read once", mb(sent), mb(size), mb(again))
        tap.note(f"in a known order: {100 * staged / max(asked + staged, 1):.0f} % of the bytes staged, {mb(sent)} of the source for "
                 f"{mb(size)}; {answer['seconds']:.2f} s, directly {direct[0][0]['seconds']:.2f} s")


def check(place, name):
    if not PYTHON:
        raise Failed("CLAIRFS_CLIENTS_PYTHON is not set: it must name a Python that has the clients")
    with connections(place), Job(PYTHON, name, place.root) as job:
        job.write(place.source, SIZE)
        for readers in READERS:
            direct = directly(place, job, readers)
            compare(place, readers, direct, through_a_mount(place, job, readers), GUESSED.get(name, GUESSED_ELSE))
            if readers == 1 and job.has_order:
                in_a_known_order(place, job, direct)


def case_of(name):
    def case(place):
        check(place, name)
    case.__name__ = name
    return case


def main():
    wanted = sys.argv[1:] or list(SMALL)
    for name in wanted:
        if name not in SMALL and name not in LARGE:
            sys.exit(f"no client '{name}', there are: {' '.join([*SMALL, *LARGE])}")
    mountkit.run(*map(case_of, wanted))


if __name__ == "__main__":
    main()
