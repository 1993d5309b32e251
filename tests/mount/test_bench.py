# SPDX-License-Identifier: Apache-2.0
"""`clairfs bench`: its figures against a stopwatch and a second computation from its trace, the order of what it really opens,
the sides of --compare on a source with injected latency, one line for bad input and dead processes, and nothing left behind
however it ends.

Nothing here says how fast anything is. Inequalities are those that hold on any machine: a request to the slow source takes
its latency at least, a sleep never ends early, a part is not longer than the whole.
"""
import base64
import contextlib
import ctypes
import html.parser
import json
import math
import os
import re
import signal
import struct
import subprocess
import time

import guard
import mountkit
import orders
import tap
from mountkit import CLAIRFS, DEADLINE, clairfs, good, rng, wait_until

LATENCY_MS = 10
WORKLOADS = os.path.join(tap.ROOT, "conf", "workloads")
SUPPRESSIONS = f"suppressions={tap.ROOT}/tests/mount/lsan.supp:print_suppressions=0"
OPEN, CLOSE = 0x20, 0x10  # inotify's IN_OPEN, IN_CLOSE_NOWRITE
TRACE = ("side", "epoch", "rank", "position", "sample", "worker", "start", "end", "bytes")


def environment(place):
    os.makedirs(place.path("tmp"), exist_ok=True)
    env = mountkit.environment(place, TMPDIR=place.path("tmp"), CLAIRFS_WORKLOADS=WORKLOADS)
    env["LSAN_OPTIONS"] = SUPPRESSIONS
    return env


def bench(place, *argv):
    return clairfs("bench", *argv, env=environment(place), timeout=4 * DEADLINE)


def parsed(place, *argv):
    done = bench(place, *argv, "--json")
    if done.code or done.lines:
        raise mountkit.Failed(f"bench {argv}: {done}")
    return json.loads(done.out)


def read_trace(path):
    rows = []
    for line in mountkit.read_file(path).decode().splitlines():
        if not line.startswith("#"):
            side, *numbers = line.split("\t")
            rows.append(dict(zip(TRACE, (side, *map(int, numbers)))))
    return rows


def near(a, b):
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def quantile(values, share):
    return sorted(values)[math.ceil(share * len(values)) - 1] / 1e9


def figures(place):
    """Two ranks: every figure again, from the trace, and within a stopwatch outside."""
    n, batch, workers, compute = 61, 7, 2, 3
    sizes = [len(content) for _, content in sorted(place.files(rng.randrange(1, 200000) for _ in range(n)).items())]
    trace = place.path("trace")
    start = time.monotonic_ns()
    found = parsed(place, "--ranks", 2, "--order", "torch-distributed:seed=11:start_epoch=3", "--epochs", 2, "--batch", batch,
                   "--workers", workers, "--compute", compute, "--trace", trace, place.source)
    end = time.monotonic_ns()
    rows = read_trace(trace)
    tap.equal([(r["side"], r["epoch"], r["samples"], r["steps"]) for r in found["runs"]],
              [("directory", e, 62, 2 * 5) for e in (3, 4)], "two epochs of two ranks, each with its share and five batches")
    tap.ok(all(start <= row["start"] <= row["end"] <= end for row in rows), "every read is within the stopwatch")
    tap.ok(sum(r["seconds"] for r in found["runs"]) <= (end - start) / 1e9, "the epochs are not longer than the whole run", found)
    for run in found["runs"]:
        mine = [row for row in rows if row["epoch"] == run["epoch"]]
        times = [row["end"] - row["start"] for row in mine]
        what = f"epoch {run['epoch']}"
        for rank in range(2):
            reads = sorted((row for row in mine if row["rank"] == rank), key=lambda row: row["position"])
            tap.equal([row["sample"] for row in reads], orders.distributed(n, 2, rank, 11, run["epoch"]),
                      f"{what}: rank {rank} reads what DistributedSampler says")
            tap.ok(all(row["worker"] == row["position"] // batch % workers for row in reads), f"{what}: round robin")
            for worker in range(workers):
                own = [row for row in reads if row["worker"] == worker]
                tap.ok(all(a["end"] <= b["start"] for a, b in zip(own, own[1:])), f"{what}: a worker reads one after the other")
        tap.ok(all(row["bytes"] == sizes[row["sample"]] for row in mine), f"{what}: whole files were read")
        tap.equal(run["bytes"], sum(row["bytes"] for row in mine), f"{what}: bytes are those that were read")
        tap.ok(near(run["read_seconds"], sum(times) / 1e9) and near(run["read_p50_seconds"], quantile(times, 0.5))
               and near(run["read_p99_seconds"], quantile(times, 0.99)), f"{what}: times of the reads", run)
        tap.ok(near(run["mb_per_s"], run["bytes"] / 1e6 / run["seconds"])
               and near(run["samples_per_s"], run["samples"] / run["seconds"]), f"{what}: rates", run)
        tap.ok(run["compute_seconds"] >= 5 * compute / 1e3, f"{what}: computing is never cut short", run)
        parts = run["stall_seconds"] + run["compute_seconds"] + run["sync_seconds"]
        tap.ok(parts <= run["seconds"] + 1e-6, f"{what}: the parts of an epoch are not longer than it", parts, run)
        tap.ok(0 < run["au_percent"] <= 100 and near(run["stall_seconds"], sum(run["rank_stall_seconds"]) / 2)
               and run["stall_p50_seconds"] <= run["stall_p99_seconds"] <= run["stall_max_seconds"]
               and run["first_wait_seconds"] <= run["stall_max_seconds"], f"{what}: stall and AU", run)
        tap.equal(run["mount"], None, f"{what}: a directory has no counters")


class Opens:
    """Names of the files opened in a directory, in order, as the kernel tells: nothing of the bench is asked."""

    def __init__(self, path):
        libc = ctypes.CDLL(None, use_errno=True)
        self.fd = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        # With the closes in between, no two events in a row are equal, which the kernel would make one of.
        if self.fd < 0 or libc.inotify_add_watch(self.fd, os.fsencode(path), OPEN | CLOSE) < 0:
            raise mountkit.Failed(f"inotify: {os.strerror(ctypes.get_errno())}")

    def take(self):
        names = []
        while True:
            try:
                data = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return names
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                if mask & OPEN and length:
                    names.append(os.fsdecode(data[16:16 + length].rstrip(b"\0")))
                data = data[16 + length:]

    def close(self):
        os.close(self.fd)


def really_in_order(place):
    n = 53
    names = sorted(place.files([1000] * n))
    numbers = list(range(n))
    rng.shuffle(numbers)
    listed = place.list_file(["# epoch 0", *numbers, "# epoch 1", *reversed(numbers[:20])])
    opens = Opens(place.source)
    for spec in ("torch-distributed:seed=5", "torch-randperm:seed=6", "numpy-generator:seed=7:add_epoch=1", "sequential",
                 "torch-loader:seed=8", listed):
        wanted = [names[int(line)] for e in range(2) for line in good("order", spec, "--n", n, "--epoch", e).split()]
        for workers in (0, 1):
            parsed(place, "--order", spec, "--epochs", 2, "--workers", workers, "--batch", 4, "--compute", 0, place.source)
            tap.equal(opens.take(), wanted, f"{spec.split(':')[0]}: files are opened in this order ({workers} workers)")
    parsed(place, "--epochs", 2, "--workers", 4, "--batch", 4, "--compute", 0, place.source)
    wanted = [[names[s] for s in orders.distributed(n, 1, 0, 1, e)] for e in range(2)]
    found = opens.take()
    tap.ok(sorted(found[:n]) == sorted(wanted[0]) and sorted(found[n:]) == sorted(wanted[1]) and wanted[0] != wanted[1],
           "by default every epoch is shuffled in another way; with several workers each is read once", found)
    opens.close()


class Page(html.parser.HTMLParser):
    """What a browser would see: text, and all that it would load."""

    def __init__(self, text):
        super().__init__()
        self.text, self.tags, self.loads = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loads += [value for key, value in attrs if key in ("src", "srcset", "href", "data", "action", "poster")]

    def handle_data(self, data):
        self.text.append(data)


def check_page(path, source):
    page = Page(mountkit.read_file(path).decode())
    prefix = "data:image/svg+xml;base64,"
    images = [base64.b64decode(load[len(prefix):], validate=True) for load in page.loads if load.startswith(prefix)]
    tap.ok(len(images) == len(page.loads) == 10, "the report loads nothing but its own ten images", [x[:60] for x in page.loads])
    tap.ok(all(image.startswith(b"<?xml") and image.rstrip().endswith(b"</svg>") for image in images), "which are SVG")
    tap.ok("script" not in page.tags and "b" not in page.tags, "no tag comes from a name", page.tags)
    shown = [text for text in page.text if text.strip()]
    said = shown[shown.index("clairfs bench", 1) + 1]  # the first one is the title
    tap.ok(re.fullmatch(r"(clairfs (won|lost): \d epochs? took .* as (fast|long)|Nobody won: .*)\.", said),
           "it begins with who won, by how much", said)
    tap.ok(source in page.text, "a path with <, & and quotes is shown as it is", page.text[:20])


def check_verdicts(mounts, found):
    """The three numbers of each epoch on the mount, or why there are none: which reads were seen in time is the machine's matter."""
    for run in mounts:
        removed = run["mount"]["stall_removed_seconds"]
        numbers = [removed[key] for key in ("lower", "estimate", "upper")]
        tap.ok(0 <= numbers[0] <= numbers[1] <= numbers[2] if removed["why"] is None else numbers == [None] * 3 and removed["why"],
               f"epoch {run['epoch']}: the accounting's three numbers, or why there are none", removed)
    judged = [run["mount"]["stall_removed_seconds"] for run in mounts if run["mount"]["stall_removed_seconds"]["why"] is None]
    tap.ok(judged, "some epochs have them", mounts)
    total = found["stall_removed_seconds"]
    tap.ok(near(total["lower"], sum(r["lower"] for r in judged)) if len(judged) == len(mounts) else total["lower"] is None,
           "and their sum, if all have", total)
    tap.ok("passes judged so far" not in found["accounting"], "the mount's words are of the time when all was judged", found["accounting"])


def compare(place):
    n, batch, workers = 96, 4, 2
    folder = place.path("slow", "a<b>&\"'")
    place.files([30000] * n)
    os.makedirs(place.path("behind"))
    os.rename(place.source, place.path("behind", "a<b>&\"'"))
    os.mkdir(place.source)
    with mountkit.Slowfs(place, place.path("behind"), place.path("slow"), "--latency-ms", str(LATENCY_MS)):
        found = parsed(place, "--compare", "source,pagecache,clairfs", "--epochs", 2, "--workers", workers, "--batch", batch,
                       "--compute", 2, "--decode", "0.1:sleep", "--html", place.path("report.html"), "-o", "ram=32M,control_reads=1/4",
                       folder)
    runs = found["runs"]
    tap.equal([(r["side"], r["epoch"]) for r in runs],
              [("source", 0), ("pagecache", 0), ("clairfs", 0), ("pagecache", 1), ("clairfs", 1), ("source", 1)],
              "the sides take turns, each first once")
    # slowfs lets the kernel keep nothing, so what holds for the source holds with its page cache, too.
    for run in runs:
        if run["side"] == "clairfs":
            continue
        tap.ok(run["read_p50_seconds"] >= LATENCY_MS / 1e3 and run["read_seconds"] >= n * LATENCY_MS / 1e3
               and run["seconds"] >= n * LATENCY_MS / 1e3 / workers, f"{run['side']}: each read has the source's latency", run)
        tap.equal(run["mount"], None, f"{run['side']}: no mount")
    mounts = [run for run in runs if run["side"] == "clairfs"]
    tap.ok(all(run["note"] for run in runs), "every side says what was done about caches", [run["note"] for run in runs])
    tap.ok(sum(run["mount"]["source_bytes"] for run in mounts) >= n * 30000 == mounts[0]["mount"]["bound_bytes"],
           "the source has given at least the bound", mounts)
    tap.equal(mounts[1]["mount"]["bound_bytes"], 0, "a dataset that fits into memory need not be read again")
    # When each read is put into its class is the daemon's affair; both epochs together have some.
    tap.ok(sum(sum(run["mount"]["reads"].values()) for run in mounts) > 0
           and all(run["mount"]["cpu_seconds"] > 0 for run in mounts), "classes of reads and CPU of the daemon", mounts)
    measured = [run["mount"]["stall_removed_seconds"]["measured"] for run in mounts]
    tap.ok(near(found["stall_removed_seconds"]["measured"], sum(measured)), "the sum of all epochs", found["stall_removed_seconds"])
    check_verdicts(mounts, found)
    stall = {(run["side"], run["epoch"]): run["stall_seconds"] for run in runs}
    tap.ok(near(mounts[0]["mount"]["stall_removed_seconds"]["measured"], stall["source", 0] - stall["clairfs", 0])
           and near(mounts[1]["mount"]["stall_removed_seconds"]["measured"], stall["pagecache", 1] - stall["clairfs", 1]),
           "stall removed: against the source first, then against the page cache", mounts)
    tap.equal(os.listdir(place.path("tmp")), [], "the mount's directory is gone")
    check_page(place.path("report.html"), folder)


def on_a_mount(place):
    """An existing mount: its order is taken over, its counters are read, it stays."""
    n = 30
    place.files([5000] * n)
    with place.mount(order="torch-distributed:seed=21:epochs=2") as mount:
        done = bench(place, "--compute", 1, "--batch", 4, "--trace", place.path("trace"), place.mnt)
        tap.ok(done.code == 0 and not done.lines and b"mount" in done.out and b"staged" in done.out, "a table for a mount", done)
        wanted = [orders.distributed(n, 1, 0, 21, e) for e in range(2)]
        rows = read_trace(place.path("trace"))
        tap.equal([[r["sample"] for r in rows if r["epoch"] == e] for e in range(2)], wanted, "in the mount's order")
        tap.ok(mount.stats()["counters"]["sample_opens"] >= n, "through the mount")
        tap.ok(b"epoch 0 was not judged: it was not yet" in done.out, "and why there are no three numbers", done)
        done = bench(place, "--compare", "source", place.mnt)
        tap.ok(done.code == 2 and len(done.lines) == 1 and "source" in done.lines[0], "--compare does not take a mount", done)


def switchback(place):
    """A mount of its own that steps aside; how much that is depends on the machine."""
    place.files([2000] * 1200)
    said = parsed(place, "--switchback", "--epochs", 1, "--workers", 1, "--batch", 1, "--compute", 1, place.source)
    tap.equal([run["side"] for run in said["runs"]], ["clairfs"], "--switchback: one side")
    tap.ok(said["switchback"]["share"] == 0.1 and said["switchback"]["is_possible"] and said["switchback"]["steps_through"] > 0,
           "--switchback: blocks of its steps are without the cache", said["switchback"])
    done = bench(place, "--switchback=2", "--epochs", 1, "--workers", 1, "--batch", 600, "--compute", 1, place.source)
    tap.ok(done.code == 0 and b"\nswitchback: not known, 0 of 4 blocks" in done.out, "--switchback: too few blocks are said to be",
           done)


def npy(rows, row_bytes):
    """A file of numpy: a header of 128 bytes, then records of one size."""
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, %d), }" % (rows, row_bytes)
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + rng.randbytes(rows * row_bytes)


def records(place):
    """Streams and records of large files: what is read, by all sides the same, and told by a table or not."""
    rows, row, files, cut = 30, 100_000, 3, 70_000
    contents = [npy(rows, row) for _ in range(files)]
    for i, content in enumerate(contents):
        mountkit.write_file(os.path.join(place.source, f"a{i}.npy"), content)
    kept = place.path("kept")
    os.mkdir(kept, 0o700)
    good("index", place.source, "--records", "npy", "--snapshot-dir", kept)
    total, sides = sum(map(len, contents)), ("--compare", "source,clairfs", "--epochs", 2, "--workers", 2, "--batch", 4, "--compute", 0)
    pieces = files * math.ceil(len(contents[0]) / cut)
    cases = (("a stream", ("--access", "stream", "--record-bytes", 10_000), (files, None, True), total),
             ("a stream, not told", ("--access", "stream", "--untold"), (files, None, False), total),
             ("pieces", ("--access", "random", "--record-bytes", cut), (pieces, pieces, False), total),
             ("records of the table", ("--access", "random", "-o", f"snapshot_dir={kept}"), (files * rows,) * 2 + (True,), files * rows * row),
             ("the same, not told", ("--access", "random", "-o", f"snapshot_dir={kept}", "--untold"), (files * rows,) * 2 + (False,),
              files * rows * row))
    sums = {}
    for what, options, (samples, n_records, is_told), size in cases:
        found = parsed(place, *sides, *options, place.source)
        setup, runs = found["setup"], found["runs"]
        tap.equal([(setup[key]) for key in ("access", "records", "is_told")], [options[1], n_records, is_told], f"{what}: the job")
        tap.equal([(run["samples"], run["bytes"]) for run in runs], [(samples, size)] * 4, f"{what}: each byte is read once an epoch")
        sums[what] = {run["checksum"] for run in runs}
        tap.ok(len(sums[what]) == 1 and re.fullmatch("[0-9a-f]{16}", min(sums[what])), f"{what}: one content, in any order", sums)
        for run in runs:
            mount = run["mount"]
            tap.ok((mount is None) == (run["side"] == "source") and
                   (mount is None or near(mount["source_bytes_per_byte"], mount["source_bytes"] / run["bytes"])), f"{what}: its mount", mount)
    tap.equal(sums["a stream"], sums["a stream, not told"], "what is read does not hang on who is told")
    tap.equal(sums["records of the table"], sums["the same, not told"], "nor do records")
    tap.equal(parsed(place, "--epochs", 1, "--workers", 1, "--compute", 0, place.source)["runs"][0]["checksum"], None,
              "whole files are not compared")


def content_that_differs(place):
    """A side that reads other bytes is no result. The first one has read all when its trace is written, the second one takes seconds."""
    place.files([200_000] * 4)
    trace = place.path("trace")
    process = started(place, "--compare", "source,pagecache", "--access", "random", "--record-bytes", "2000", "--epochs", "1",
                      "--compute", "300", "--batch", "40", "--workers", "0", "--trace", trace, place.source)
    wait_until(lambda: os.path.exists(trace) and os.path.getsize(trace) >= 4096, "the first side has read")
    for name in os.listdir(place.source):
        with open(os.path.join(place.source, name), "r+b") as file:
            file.write(bytes(200_000))
    done = ended(process)
    tap.ok(done.code == 1 and len(done.lines) == 1 and "same bytes" in done.lines[0] and not done.out, "other bytes are an error", done)


def workload(place):
    place.files([100] * 20)
    setup = parsed(place, "--workload", "default", "--compute", 0, "--epochs", 1, place.source)["setup"]
    tap.equal((setup["batch"], setup["workers"], setup["epochs"], setup["compute_ms"]), (4, 1, 1, 0),
              "a workload, and the command line before it")


def far_ahead(place):
    """Whatever the prefetch factor, nobody waits for one who waits for him: more batches than any pipe has room for."""
    place.files([10] * 30)
    n = 26000
    order = f"torch-generator:seed=1:replacement=1:num_samples={n}"
    run, = parsed(place, "--order", order, "--epochs", 1, "--workers", 1, "--prefetch", n, "--batch", 1, "--compute", 0, "--decode", 0,
                  place.source)["runs"]
    tap.equal((run["steps"], run["samples"], run["bytes"]), (n, n, 10 * n), "one worker, all batches asked for at once")
    run, = parsed(place, "--epochs", 1, "--workers", 30, "--prefetch", 10**9, "--batch", 1, "--compute", 0, "--decode", 0,
                  place.source)["runs"]
    tap.equal((run["steps"], run["samples"]), (30, 30), "a prefetch factor far beyond what there is")


def bad_input(place):
    n = 10
    place.files([100] * n)
    os.mkdir(place.path("empty"))
    short = place.list_file(["# epoch 0", 1, 2, 3, 4, 5, 6, 7, 8])

    def refused(part, *argv, code=2):
        done = bench(place, *argv)
        tap.ok(done.code == code and len(done.lines) == 1 and part in done.lines[0] and not done.out,
               f"bench {' '.join(map(str, argv))[-70:]}: one line about {part}", done)

    source = place.source
    refused("SOURCE")
    refused("SOURCE", source, source)
    refused("--no-such", "--no-such", source)
    refused("--workload", "--workload", "unet4d", source)
    refused("/no/such.conf", "--workload", "/no/such.conf", source, code=1)
    for option in ("epochs", "ranks", "batch", "prefetch"):
        refused(f"--{option}", f"--{option}", 0, source)
    refused("--workers", "--workers", "-1", source)
    refused("--compute", "--compute", "fast", source)
    refused("--decode", "--decode", "1:quick", source)
    refused("--compare", "--compare", "source,lustre", source)
    refused("--compare", "--compare", "source,source", source)
    refused("workers", "--workers", n + 1, source)
    refused("order kind", "--order", "torch-shuffle", source)
    refused("--ranks 2", "--ranks", 2, "--order", "torch-randperm:seed=1", source)
    refused("--batch 3", "--batch", 3, "--order", "torch-randperm:seed=1:batch=4", source)
    refused("--epochs 3", "--epochs", 3, "--order", "torch-randperm:seed=1:epochs=2", source)
    refused("--epochs 2", "--epochs", 2, "--order", short, source)
    refused("-o", "-o", "ram=64M", source)
    refused("--switchback", "--switchback=11", source)
    refused("--switchback", "--switchback=off", source)
    refused("--switchback", "--switchback", "--compare", "source", source)
    refused("--access", "--access", "backwards", source)
    refused("--record-bytes", "--access", "random", source)
    refused("--record-bytes", "--record-bytes", "1M", source)
    refused("--record-bytes", "--access", "stream", "--record-bytes", 0, source)
    refused("--untold", "--untold", source)
    refused("rams", "--compare", "clairfs", "-o", "rams=64M", source)
    refused("no/such", place.path("no/such"), code=1)
    refused("order.txt", place.path("order.txt"), code=1)
    refused("no samples", place.path("empty"), code=1)
    refused("--html", "--html", place.path("no/such/report.html"), source, code=1)
    refused("--trace", "--trace", place.path("no/such/trace"), source, code=1)
    # Files of a page by stat, with some bytes in them.
    refused("No data", "--workers", 1, "/sys/devices/virtual/net/lo/statistics", code=1)
    # What only the mount finds out is its own line, passed on.
    refused("store", "--compare", "clairfs", "-o", f"store_dir={place.path('order.txt')}", source, code=1)
    tap.equal(os.listdir(place.path("tmp")), [], "no directory of a mount is left")


def started(place, *argv):
    """A bench that would run for hours."""
    return subprocess.Popen([CLAIRFS, "bench", "--epochs", "9999", "--workers", "2", "--batch", "4", "--compute", "5", *argv],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(place))


def ended(process):
    out, err = process.communicate(timeout=DEADLINE)
    return mountkit.Done(process.returncode, out, err)


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(word) for word in file.read().split()]


def daemon_of(process):
    """The mount's process, once it serves."""
    def look():
        for pid in children(process.pid):
            with contextlib.suppress(OSError):  # others ask the mount something, for a moment
                argv = mountkit.read_file(f"/proc/{pid}/cmdline").split(b"\0")
                if b"mount" in argv and guard.mounts_below(os.path.dirname(os.fsdecode(argv[-2]))):
                    return pid
        return None
    return wait_until(lambda: process.poll() is not None or look(), "the mount of the bench")


def state(pid):
    return mountkit.read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0]


def nothing_left(place, what):
    wait_until(lambda: not guard.mounts_below(place.path("tmp")), f"{what}: the mount goes away")
    wait_until(lambda: not guard.processes_of(place.root), f"{what}: all processes end")
    tap.equal(os.listdir(place.path("tmp")), [], f"{what}: no directory is left")


def interrupted(place):
    place.files([2000] * 40)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = started(place, "--compare", "source,clairfs", place.source)
        if number == signal.SIGTERM:  # before the mount is there, or about then
            wait_until(lambda: os.listdir(place.path("tmp")), "the directory of the mount")
        else:
            daemon_of(process)
        process.send_signal(number)
        done = ended(process)
        what = signal.Signals(number).name
        tap.ok(done.code == 1 and len(done.lines) == 1 and "interrupted" in done.lines[0] and not done.out, f"{what}: one line", done)
        nothing_left(place, what)
    for is_stopped in (True, False):
        process = started(place, "--compare", "source,clairfs", place.source)
        pid = daemon_of(process)
        wait_until(lambda: (state(pid) == b"T") == is_stopped, "the daemon has, or has not, its turn")
        process.kill()
        ended(process)
        nothing_left(place, f"SIGKILL, daemon {'stopped' if is_stopped else 'running'}")


def dead_children(place):
    place.files([2000] * 40)
    for depth, word in ((1, "rank 0"), (2, "loader worker")):
        process = started(place, "--compare", "clairfs", place.source)
        daemon = daemon_of(process)

        def victim():
            if process.poll() is not None:
                raise mountkit.Failed(f"the bench ended: {ended(process)}")
            # The rank is the child that has children.
            try:
                ranks = [pid for pid in children(process.pid) if pid != daemon and children(pid)]
                return (ranks if depth == 1 else children(ranks[0]))[0]
            except (OSError, IndexError):
                return None
        os.kill(wait_until(victim, "a process of the loader"), signal.SIGKILL)
        done = ended(process)
        tap.ok(done.code == 1 and len(done.lines) == 1 and word in done.lines[0], f"a dead process: {word}", done)
        nothing_left(place, word)
    process = started(place, "--compare", "clairfs,source", place.source)
    os.kill(daemon_of(process), signal.SIGKILL)
    done = ended(process)
    tap.ok(done.code == 1 and len(done.lines) >= 1 and not done.out, "a dead daemon", done)
    nothing_left(place, "a dead daemon")
    with mountkit.Slowfs(place, place.source, place.path("slow"), "--eio", "s00017"):
        done = bench(place, "--workers", 2, "--batch", 4, "--compute", 0, place.path("slow"))
        tap.ok(done.code == 1 and len(done.lines) == 1 and "s00017.bin" in done.lines[0] and not done.out,
               "a file that cannot be read is named", done)


mountkit.run(figures, really_in_order, compare, on_a_mount, switchback, records, content_that_differs, workload, far_ahead, bad_input, interrupted,
             dead_children)
