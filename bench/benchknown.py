# SPDX-License-Identifier: Apache-2.0
"""bench/run records and bench/run known: samples within larger files in an order that was told.

records  A reader of records of 100 KB, at random places of four files, whose order is followed. What is left of its epoch was pushed
         before it goes on, and it reads each one by a pread into memory of its own. The same of a tmpfs, in turns. Requests to the
         daemon are those of the pages that it leaves out on purpose, to hear of the reader, and of what the kernel has dropped.

known    Jobs of known_job.py: a loader with four workers and a GPU that sleeps, over shards that are larger than ram=256M together:
         WebDataset, TFRecord (shards of 16 or 96 MiB), NPZ of 50 to 150 MB (unet3d of MLPerf Storage), MDS (py1e) and litdata. The
         first three are the real libraries, the others readers of our own. The source has 10 ms and 200 MB/s, and reads ahead
         128 KiB or 4 MiB. The job asks for 60 % of that link. It begins when the mount has fetched what it fetches ahead of it, as
         one that is mounted before the job imports its libraries. Of each kind and read-ahead:

  stall    of two epochs: what the trainer waits for batches but the first, percent of compute (goal 1). Beside it the same job on the
           source directly, and on a tmpfs (`memory`): what no source is to blame for, as a machine with other work on it
  first    what it waits for the first batch of an epoch, beside both others. Where all workers begin with a large file each (npz) that
           is what the link takes for them
  bytes    that the source sent, as the simulated source saw it, or that the mount took, if its client still had some of them: over what
           the readers asked for (goal 1.1). What the client has is dropped between epochs
  counted  how far the bytes of all classes of reads are from what the readers asked for, percent (goal 1). Requests of
           the kernel are of whole pages, what is staged counts as it was asked for: what is between both is right
"""
import json
import os
import random
import shutil
import statistics
import subprocess
import time

import benchlib
from benchlib import Failed
from benchshards import READAHEAD_KIB, Simulated, connections, say_missed

LATENCY_MS, MBPS = 10, 200
LINK_SHARE = 0.6  # of the link, which the job asks for
RAM = "256M"
EPOCHS, WORKERS, PREFETCH = 2, 4, 2
HEAD_SECONDS = 10  # a job imports its libraries; most mounts have fetched all they may before
SETTLE_SECONDS = 30
JOB = os.path.join(benchlib.HERE, "known_job.py")
SMOKE = ("npz", "mds")

# name: job, shards, bytes as a multiple, format of the table of records, the order's spec, samples of a batch
KINDS = {
    "webdataset": ("webdataset", 24, 1, None, "webdataset:seed=42:shardshuffle=100:detshuffle=1:persistent=1", 32),
    "tfrecord": ("tfrecord", 24, 1, None, "list", 32),
    "tfrecord_large": ("tfrecord", 8, 2, None, "list", 32),
    "npz": ("npz", 10, 1, None, "torch-distributed:seed=3:world=1:batch=1", 1),
    "mds": ("mds", 24, 1, "mds", "mosaic-py1e:seed=42:batch=32", 32),
    "litdata": ("litdata", 24, 1, "litdata", "litdata:seed=42:batch=32", 32),
}


class Job:
    """The process of a job; its libraries are imported when it writes the dataset."""

    def __init__(self, python, kind, folder):
        self.log = f"{folder}/job.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([python, "-W", "ignore", JOB, KINDS[kind][0]], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        if error[0]:
            self.process.kill()
        self.process.wait(60)
        self.process.stdout.close()

    def ask(self, **request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the job ended"}
        if "error" in answer:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise Failed(f"{answer['error']}\n{log.read()[-2000:]}")
        return answer


class Dataset:
    """What a job reads in which order, and the mount's options for it."""

    def __init__(self, bench, job, kind):
        self.bench, self.kind, self.path = bench, kind, f"{bench.temp}/{kind}"
        _, shards, self.multiple, self.records, spec, self.batch = KINDS[kind]
        os.mkdir(self.path)
        job.ask(do="write", directory=self.path, bytes=self.bytes(), shards=shards)
        self.names = sorted(name for name in os.listdir(self.path) if name != "index.json")
        self.snapshots = f"{bench.temp}/{kind}-snapshots"
        self.spec = f"{self.list_file() if spec == 'list' else spec}:workers={WORKERS}:epochs={EPOCHS}"
        if self.records:
            self.clairfs("index", self.path, "--records", self.records)
        self.epochs = [{"reads": self.reads(epoch), "batch": self.batch} for epoch in range(EPOCHS)]
        total = sum(os.path.getsize(f"{self.path}/{name}") for name in self.names)
        self.compute_s = total / self.batches() / (LINK_SHARE * MBPS * 1e6)

    def bytes(self):
        """unet3d's files are large, and there have to be some of them."""
        return self.bench.size.known_npz_mb * 10**6 if self.kind == "npz" else self.multiple * self.bench.size.known_mib << 20

    def batches(self):
        if self.records:
            return -(-len(self.epochs[0]["reads"]) // self.batch)
        return len(self.names) if self.kind == "npz" else max(1, self.bytes() // 110_000 // self.batch)

    def clairfs(self, command, *argv, snapshots=True):
        more = ["--snapshot-dir", self.snapshots] if snapshots else []
        return benchlib.run(f"{self.bench.build}/src/cli/clairfs", command, *argv, *more).decode()

    def list_file(self):
        """Files by name, another order in each epoch."""
        path = f"{self.bench.temp}/{self.kind}.list"
        with open(path, "w", encoding="ascii") as file:
            for epoch in range(EPOCHS):
                names = random.Random(epoch).sample(self.names, len(self.names))
                file.write(f"# epoch {epoch}\n" + "".join(f"{name}\n" for name in names))
        return f"list:path={path.replace('/', '%2F')}:batch=1"

    def reads(self, epoch):
        """As known_job.py wants them."""
        if self.kind == "webdataset":
            return []  # it knows
        lines = self.clairfs("order", self.spec, "--source", self.path, "--epoch", epoch, "--places").splitlines()
        places = [(name, int(offset), int(length)) for _, name, offset, length in (line.split("\t") for line in lines)]
        if not self.records:
            return [name for name, _, _ in places]
        number, seen = {}, {}
        for name, offset, _ in sorted(set(places)):
            number[name, offset] = seen[name] = seen.get(name, -1) + 1
        return [(name, number[name, offset], offset, length) for name, offset, length in places]


def job_of(dataset, job, directory, epochs=EPOCHS, between=lambda: None):
    """What the job says of each epoch."""
    job.ask(do="begin", directory=directory, epochs=dataset.epochs, workers=WORKERS, prefetch=PREFETCH, compute_s=dataset.compute_s)
    found = []
    for number in range(epochs):
        if number:
            between()
        found.append(job.ask(do="epoch", number=number))
    job.ask(do="end")
    return found


def let_go(directory):
    """The source's own client has another epoch's pages no more: it has no room for the dataset."""
    for name in os.listdir(directory):
        fd = os.open(f"{directory}/{name}", os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def percent(epoch):
    return 100 * epoch["waited"] / epoch["compute"]


def wait_ahead(mount):
    """Until nothing is under way any more: the mount has what it fetches ahead of a job that has not begun."""
    end, quiet = time.monotonic() + HEAD_SECONDS, 0
    while quiet < 5 and time.monotonic() < end:
        time.sleep(0.1)
        quiet = quiet + 1 if mount.stats()["gauges"]["prefetch_inflight"] == 0 else 0


def counted(mount, quiet_seconds):
    """Bytes of all classes of reads, once they stay as they are: what was staged is decided when it has been quiet for some seconds."""
    begin = since = time.monotonic()
    total = 0
    while time.monotonic() < min(since + quiet_seconds, begin + SETTLE_SECONDS):
        time.sleep(0.2)
        stats = mount.stats()
        before, total = total, sum(kind["bytes"] for kind in stats["reads"].values())
        since = since if total == before else time.monotonic()
    return total, stats


def through_a_mount(bench, dataset, job, source):
    """(epochs, bytes taken of the source, bytes counted, what else is worth knowing)"""
    let_go(source.directory)
    source.sent()
    with bench.mount(source.directory, ram=RAM, order=dataset.spec) as mount:
        wait_ahead(mount)
        epochs = job_of(dataset, job, mount.mountpoint, between=lambda: let_go(source.directory))
        benchlib.wait_for("the source", source.is_idle)
        sent = source.sent()
        total, stats = counted(mount, bench.size.known_quiet_s)
    counters = stats["counters"]
    more = {"staged_share": round(stats["reads"]["staged"]["bytes"] / max(total, 1), 3), "sent": sent,
            **{key: counters[key] for key in ("source_bytes", "upcall_read", "stage_evicted_reads", "prefetch_wasted", "order_mismatches")}}
    return epochs, max(sent, counters["source_bytes"]), total, more


def off_percent(total, epochs):
    """How far a sum is from what was asked for: bytes at least, whole pages at most."""
    least, most = (sum(epoch[key] for epoch in epochs) for key in ("bytes", "page_bytes"))
    return 100 * max(0, least - total, total - most) / least


def compare(bench, dataset, job, kib):
    memory, direct, ours = [], [], []
    for _ in range(bench.rounds):
        benchlib.touch_memory()
        memory.append(job_of(dataset, job, dataset.path, 1)[0])
        with Simulated(bench, dataset.path, kib, keep_cache=True) as source:
            direct.append(job_of(dataset, job, source.directory, 1)[0])
        with Simulated(bench, dataset.path, kib, keep_cache=True) as source:
            index_of(bench, dataset, source)
            ours.append(through_a_mount(bench, dataset, job, source))
    emit_known(bench, f"known_{dataset.kind}_ra{kib}", {"direct": direct, "memory": memory}, ours)


def emit_known(bench, name, others, ours):
    def beside(figure):
        return {side: round(statistics.median(map(figure, epochs)), 4) for side, epochs in others.items()}

    for epoch in range(EPOCHS):
        of = [run[0][epoch] for run in ours]
        bench.emit(f"{name}_epoch{epoch}_stall", "% of compute", list(map(percent, of)), goal=("<=", 1), **beside(percent),
                   **{f"{key}_s": round(statistics.median(one[key] for one in of), 4) for key in ("longest", "compute")})
        bench.emit(f"{name}_epoch{epoch}_first", "s", [one["first"] for one in of], **beside(lambda one: one["first"]))
    asked = [sum(epoch["bytes"] for epoch in run[0]) for run in ours]
    bench.emit(f"{name}_bytes", "x asked", [run[1] / bytes_ for run, bytes_ in zip(ours, asked)], goal=("<=", 1.1), **ours[-1][3])
    bench.emit(f"{name}_counted", "% off what was asked for", [off_percent(run[2], run[0]) for run in ours], goal=("<=", 1),
               counted=ours[-1][2], asked=asked[-1], asked_pages=sum(epoch["page_bytes"] for epoch in ours[-1][0]))


def index_of(bench, dataset, source):
    """The table of records is of a source's path."""
    if dataset.records:
        benchlib.run(f"{bench.build}/src/cli/clairfs", "index", source.directory, "--snapshot-dir", f"{bench.temp}/snapshots", "--records",
                     dataset.records)


def run(bench):
    wanted = [kind for kind in KINDS if bench.wants_scenario(kind, SMOKE)]
    if not wanted:
        raise Failed(f"no kind '{bench.args.scenarios}', there are: {' '.join(KINDS)}")
    with connections(bench):
        for kind in wanted:
            with Job(bench.args.clients_python, kind, bench.temp) as job:
                dataset = Dataset(bench, job, kind)
                for kib in READAHEAD_KIB[1 if bench.size.is_smoke else 0:]:
                    compare(bench, dataset, job, kib)
            shutil.rmtree(dataset.path)
    say_missed(bench, "known")


# --- records ---

RECORD_BYTES, RECORD_FILES = 100_000, 4


def make_records(bench):
    """Files of records that follow each other; returns [(file, offset)] by number, and the list of them."""
    data, places = f"{bench.temp}/data", []
    os.mkdir(data)
    noise = random.Random(15)
    for i in range(RECORD_FILES):
        with open(f"{data}/shard{i}.bin", "wb") as file:
            for at in range(0, (bench.size.record_mib << 20) - RECORD_BYTES, RECORD_BYTES):
                file.write(noise.randbytes(RECORD_BYTES))
                places.append((i, at))
    with open(f"{bench.temp}/list", "w", encoding="ascii") as file:
        file.writelines(f"shard{i}.bin {at} {RECORD_BYTES}\n" for i, at in places)
    return data, places


def time_records(directory, places, order):
    """us of each pread."""
    fds = [os.open(f"{directory}/shard{i}.bin", os.O_RDONLY) for i in range(RECORD_FILES)]
    room, took, clock = bytearray(RECORD_BYTES), [], time.perf_counter_ns
    for number in order:
        file, at = places[number]
        begin = clock()
        got = os.preadv(fds[file], (room,), at)
        took.append((clock() - begin) / 1e3)
        if got != RECORD_BYTES:
            raise Failed(f"{directory}: {got} bytes of a record")
    for fd in fds:
        os.close(fd)
    return took


def staged_records(bench, data, places, spec, order):
    """Times of the second half of an epoch, whose records are there; READs of it, and of these which the kernel had dropped.

    The stage has room for it. What is pushed at first, before the order is followed, is read by then."""
    half = len(order) // 2
    with bench.mount(data, order=f"{spec}:records=1:epochs=1", ram="1G", debug={"stage": half * RECORD_BYTES * 21 // 20}, revalidate=0,
                     control_reads="off") as mount:
        time_records(mount.mountpoint, places, order[:half + half // 10])

        def is_pushed():
            before = mount.counters()["stage_pushed"]
            time.sleep(0.5)
            return before == mount.counters()["stage_pushed"] >= half
        benchlib.wait_for("the second half of an epoch in the kernel", is_pushed,
                          said=lambda: f"{mount.counters()['stage_pushed']} pushed")
        before = mount.counters()
        took = time_records(mount.mountpoint, places, order[half + half // 10:])
        after = mount.counters()
        return took, {key: after[key] - before[key] for key in ("upcall_read", "upcall_open", "stage_evicted_reads", "stage_pushed")}


def records(bench):
    data, places = make_records(bench)
    benchlib.run(f"{bench.build}/src/cli/clairfs", "index", data, "--snapshot-dir", f"{bench.temp}/snapshots", "--import",
                 f"{bench.temp}/list")
    sides, upcalls, half = {"clairfs": [], "native": []}, [], len(places) // 2
    for r in range(bench.rounds):
        spec = f"torch-distributed:seed={r}:world=1"
        order = [int(n) for n in benchlib.run(f"{bench.build}/src/cli/clairfs", "order", spec, "--n", len(places)).split()]
        benchlib.touch_memory()
        for name in ("clairfs", "native") if r % 2 else ("native", "clairfs"):
            if name == "native":
                sides[name].append(time_records(data, places, order[half + half // 10:]))
                continue
            took, asked = staged_records(bench, data, places, spec, order)
            sides[name].append(took)
            upcalls.append(asked)
    emit_records(bench, sides, upcalls, len(sides["clairfs"][0]))
    say_missed(bench, "records")


def emit_records(bench, sides, upcalls, n):
    mib = n * RECORD_BYTES / (1 << 20)
    for name, rounds in sides.items():
        bench.emit(f"records_{name}_us", "us/record", [statistics.fmean(took) for took in rounds],
                   **{key: round(statistics.median(statistics.quantiles(took, n=10)[at] for took in rounds), 2)
                      for key, at in (("p50", 4), ("p90", 8))})
    both = list(zip(sides["clairfs"], sides["native"]))
    bench.emit("records_ratio", "x native page cache", [statistics.fmean(a) / statistics.fmean(b) for a, b in both], goal=("<=", 1.3))
    bench.emit("records_p50_ratio", "x native page cache, median of single reads",
               [statistics.median(a) / statistics.median(b) for a, b in both], goal=("<=", 1.3))
    bench.emit("records_upcalls", "open+read upcalls/MiB", [(one["upcall_read"] + one["upcall_open"]) / mib for one in upcalls],
               goal=("<=", 1), **{key: [one[key] for one in upcalls] for key in ("stage_evicted_reads", "stage_pushed")})
