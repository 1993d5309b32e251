# SPDX-License-Identifier: Apache-2.0
"""What a mount says about the GPU wait it removed, with a real DataLoader over a slow source.

How much it is depends on the machine, so here only what must hold on any: the bounds are in order, every name is there and
says the same in stats.json and metrics, and a job none of whose reads were served by the cache removes nothing. Figures are
made by bench/run removed. Passes are judged however busy the CPUs are (cpu_pressure): other tests run beside this one.
"""
import contextlib
import json
import mmap
import os
import re
import time

import mountkit
import tap
from mountkit import Slowfs, clairfs, good, program, read_file, rng

N, RECORDS, BATCH, WORKERS = 200, 400, 8, 2
JUDGED = {"ghost_bytes": 0, "cpu_pressure": 100}  # debug: no page cache, however busy the CPUs are
OF_PASS = ("reads", "removed_lower_seconds", "removed_replay_seconds", "removed_upper_seconds")
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "train_torch.py")


def train(place, mount, seed, epochs, *more, n=N):
    python = os.environ.get("CLAIRFS_TORCH_PYTHON")
    if not python:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    done = program(python, JOB, mount.mountpoint, "--list-from", place.source, "--epochs", epochs, "--batch", BATCH,
                   "--workers", WORKERS, "--compute-ms", 2, "--seed", seed, *more, timeout=600, cwd="/")
    if done.code:
        raise mountkit.Failed(f"training: {done}")
    # What is counted next is known a moment after the last read.
    mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= epochs * n, "all reads are classified")


def judged(mount, epochs):
    """The numbers when all passes were judged, or it was said why not."""
    return mount.wait_for(lambda s: s["gpu_wait"]["passes_judged"] + s["gpu_wait"]["passes_unjudged"] >= epochs,
                          "all passes are judged")


def metrics(mount):
    """{name with labels: value}"""
    text = read_file(mount.path(".clairfs", "metrics")).decode()
    return {m[1]: float(m[2]) for m in re.finditer(r"^(clairfs_\S+) (\S+)$", text, re.M)}


NO_ORDER = "not known: the order of the job is not known, so nothing was fetched ahead"
NOTHING_READ = "not known: no pass over the dataset is over yet"
RANK_NAMES = (("removed_lower_seconds", "gpu_wait_removed_seconds_total"),
              ("removed_upper_seconds", "gpu_wait_removed_upper_seconds_total"),
              ("read_latency_saved_seconds", "read_latency_saved_seconds_total"))


def differences(wait, text, said):
    """What stats.json, metrics and status do not say alike."""
    pairs = [(f"clairfs_{name}{{rank=\"{one['rank']}\"}}", one[key]) for one in wait["ranks"] for key, name in RANK_NAMES]
    pairs.append(("clairfs_control_reads_total", wait["control"]["reads"]))
    found = [(name, text.get(name), value) for name, value in pairs if name not in text or abs(text[name] - value) >= 1e-6]
    found += [] if f"gpu wait  {wait['words']}\n" in said else [("status", said, wait["words"])]
    for one in wait["ranks"]:
        name = f'clairfs_gpu_wait_removed_estimate_seconds_total{{source="replay",rank="{one["rank"]}"}}'
        found += [] if name in text else [(name, None, "the estimate says what it is from")]
    return found


def check_consistent(what, mount):
    """Each of them is read in a moment of its own, and one more read may be told in between: so until they agree."""
    last = []

    def agree():
        last[:] = mount.stats()["gpu_wait"], metrics(mount), clairfs("status", mount.mountpoint).out.decode()
        return not differences(*last)
    try:
        mountkit.wait_until(agree, "stats.json, metrics and status agree")
    except mountkit.Failed:
        pass  # said by the next line
    tap.no_findings(differences(*last), f"{what}: stats.json, metrics and status say the same")
    wait, text, _ = last
    for one in [{"rank": "node", "removed_replay_seconds": wait["removed_estimate_seconds"], **wait}, *wait["ranks"]]:
        tap.ok(0 <= one["removed_lower_seconds"] <= one["removed_replay_seconds"] <= one["removed_upper_seconds"] or
               not one["passes_judged"], f"{what}: lower <= estimate <= upper, {one['rank']}", one)
    tap.ok(text["clairfs_control_reads_total"] <= text['clairfs_reads_total{class="miss",tier="pfs"}'],
           f"{what}: control reads are misses", text)


def with_control_reads(place):
    place.files([rng.randrange(1, 100 << 10) for _ in range(N)], "c/s{:05d}.png")
    seed = rng.randrange(1 << 31)
    spec = f"torch-distributed:seed={seed}:batch={BATCH}:workers={WORKERS}:prefetch_factor=2"
    with Slowfs(place, place.source, place.path("slow"), "--latency-ms", "5"), \
            place.mount(place.path("slow"), order=spec, control_reads="1/4", debug=JUDGED) as mount:
        begin = time.monotonic()
        # One epoch: where a sample is read again within a second, its two reads count as one, and passes have holes.
        train(place, mount, seed, 1)
        judged(mount, 1)
        check_consistent("control reads", mount)
        wait = mount.stats()["gpu_wait"]
        tap.equal((wait["passes_judged"], wait["passes_unjudged"], wait["passes_open"]), (1, 0, 0), "control reads: judged")
        one, = wait["ranks"]
        tap.equal((one["workers"], one["prefetch"], one["batch"]), (WORKERS, 2, BATCH), "the shape of the loader is that of the order")
        tap.ok(wait["control"]["used"] >= wait["control"]["needed"] > 0, "the verdict rests on control reads", wait["control"])
        tap.ok(one["reads"] + wait["control"]["unplaced_reads"] == wait["reads"] <= N, "no read is counted twice", wait)
        verdict, = one["verdicts"]
        tap.equal([verdict["why"]] + [verdict[key] for key in OF_PASS], ["judged"] + [one[key] for key in OF_PASS],
                  "the verdict on the only pass is the total")
        end = time.monotonic()
        tap.ok(begin <= verdict["began_seconds"] <= verdict["ended_seconds"] <= end and
               verdict["took_seconds"] == one["judged_seconds"], "the pass is where it was in time", (begin, verdict, end))


def records(place, length, **options):
    """Through a mount that was told their order, one epoch of a job that jumps between records of that length in larger files: what is
    said of it."""
    files = 4
    place.files([RECORDS // files * length] * files, "c/s{:05d}.png")
    mountkit.write_file(place.path("list"), "".join(f"c/s{f:05d}.png {i * length} {length}\n" for f in range(files)
                                                    for i in range(RECORDS // files)).encode())
    seed = rng.randrange(1 << 31)
    spec = f"torch-distributed:seed={seed}:world=1:batch={BATCH}:workers={WORKERS}:prefetch_factor=2:records=1"
    with Slowfs(place, place.source, place.path("slow"), "--latency-ms", "5"):
        good("index", place.path("slow"), "--snapshot-dir", place.snapshots, "--import", place.path("list"))
        with place.mount(place.path("slow"), order=spec, debug=JUDGED, **options) as mount:
            train(place, mount, seed, 1, "--record-bytes", length, "--compute-ms", 25, n=RECORDS * 19 // 20)
            yield mount


def of_records(place):
    # More than memory has room for: of what the kernel has side by side it reads on, and then nobody hears of a reader.
    for mount in records(place, 100_000, control_reads="1/4", ram="16M"):
        judged(mount, 1)
        check_consistent("records", mount)
        wait = mount.stats()["gpu_wait"]
        tap.equal((wait["passes_judged"], wait["passes_unjudged"]), (1, 0), "records: judged, as samples that are files are")
        one, = wait["ranks"]
        tap.equal((one["workers"], one["prefetch"], one["batch"]), (WORKERS, 2, BATCH), "records: steps are of records")
        tap.ok(one["reads"] >= RECORDS * 19 // 20, "records: those that nobody was heard of at have their places, too", one)
        tap.ok(wait["control"]["used"] >= wait["control"]["needed"] > 0, "records: some were left to the source", wait["control"])
        tap.ok(wait["removed_upper_seconds"] > 0, "records: waiting for them was removed", wait["words"])


def of_long_records(place):
    for mount in records(place, 140_000, control_reads="1/4"):
        mount.wait_for(lambda s: s["gpu_wait"]["why"] != NOTHING_READ, "it is said why not")
        wait = mount.stats()["gpu_wait"]
        tap.ok("a record of more than 128 KiB" in wait["why"], "long records: why nothing is said", wait["why"])
        tap.equal((wait["passes_judged"], wait["passes_unjudged"], wait["control"]["reads"]), (0, 0, 0),
                  "long records: and none is left to the source for it")


def nothing_from_the_cache(place):
    place.files([rng.randrange(1, 100 << 10) for _ in range(N)], "c/s{:05d}.png")
    seed = rng.randrange(1 << 31)
    spec = f"torch-distributed:seed={seed}:batch={BATCH}:workers={WORKERS}:prefetch_factor=2"
    with place.mount(order=spec, control_reads="1/1", debug=JUDGED,
                     report=place.path("report.json")) as mount:
        train(place, mount, seed, 1)
        stats = judged(mount, 1)
        check_consistent("all held out", mount)
        wait = stats["gpu_wait"]
        tap.equal(wait["passes_judged"], 1, "all held out: judged")
        tap.equal((wait["removed_lower_seconds"], wait["removed_estimate_seconds"], wait["removed_upper_seconds"]),
                  (0, 0, 0), "all held out: nothing was removed")
        tap.equal(wait["words"].split(":")[0], "it would not have helped", "all held out: said in words")
        controls = wait["control"]["reads"]
    job = json.loads(good("report", "--json", place.path("report.json")))
    said = job["removed"]
    tap.equal((said["at_least_seconds"], said["upper_bound_for_the_job_seconds"], said["words"]), (0, 0, wait["words"]),
              "all held out: so does the report, in the same words")
    tap.ok(job["data"]["control_reads"] >= controls > 0 and job["data"]["control_seconds"] > 0,
           "all held out: with its control reads", job["data"])


def keeps(mount, touched=()):
    """What the mount has found out about the page cache of its source's client. touched: maps whose pages are used meanwhile."""
    def is_known():
        for pages in touched:
            pages[0]
        found.update(mount.stats()["gpu_wait"]["page_cache"])
        return found["warm_percent"] is not None
    found = {}
    mountkit.wait_until(is_known, "the source has told whether its pages are kept")
    return found


def mapped(stack, path):
    """The file's pages, read and mapped until the stack ends."""
    with open(path, "rb") as file:
        file.read()
        return stack.enter_context(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))


def page_cache_of_the_source(place):
    """A client that drops its pages at every open (FUSE unless it is told otherwise) would have saved the job nothing; one that
    keeps them would, and has what was read before the mount was there."""
    place.files([rng.randrange(1, 20 << 10) for _ in range(100)], "c/s{:05d}.png")
    slow = place.path("slow")
    with Slowfs(place, place.source, slow), place.mount(slow) as mount:
        found = keeps(mount)
        tap.equal((found["source_keeps_pages"], found["warm_percent"]), ("no", 0), f"pages that are dropped: {found}")
    with Slowfs(place, place.source, slow, "--keep-cache"):
        with place.mount(slow) as mount:
            found = keeps(mount)
            tap.equal(found["source_keeps_pages"], "yes", f"pages that are kept: {found}")
        # Some kernels drop pages that nobody uses after two seconds: these stay mapped, and are used.
        with contextlib.ExitStack() as maps:
            half = [mapped(maps, os.path.join(slow, "c", name)) for name in sorted(os.listdir(os.path.join(slow, "c")))[:50]]
            mount = maps.enter_context(place.mount(slow))
            found = keeps(mount, half)
            tap.equal(found["source_keeps_pages"], "yes", f"pages that are kept: {found}")
            tap.ok(40 <= found["warm_percent"] <= 70, "and half of them are there when the mount begins", found)
    with Slowfs(place, place.source, slow), place.mount(slow, debug={"ghost_bytes": 0}) as mount:
        mount.read("c/s00000.png")
        mount.wait_for(lambda s: s["gpu_wait"]["reads"], "a read is told")
        tap.equal(mount.stats()["gpu_wait"]["page_cache"], {"ghost_bytes": 0, "source_keeps_pages": "unknown", "warm_percent": None,
                                                            "saved_seconds": 0}, "who says how much page cache there is is not asked")


@contextlib.contextmanager
def overlay(lower, mountpoint):
    os.makedirs(mountpoint, exist_ok=True)
    os.makedirs(f"{mountpoint}-empty", exist_ok=True)
    done = program("mount", "-t", "overlay", "overlay", "-o", f"ro,lowerdir={lower}:{mountpoint}-empty", mountpoint)
    if done.code:
        raise mountkit.Failed(f"mount of overlayfs: {done}")
    try:
        yield mountpoint
    finally:
        program("umount", mountpoint)


def pages_that_cannot_be_seen(place):
    """Files of overlayfs have their pages elsewhere: not seen is not the same as not there."""
    place.files([rng.randrange(1, 20 << 10) for _ in range(100)], "c/s{:05d}.png")
    with overlay(place.source, place.path("overlay")) as root, place.mount(root) as mount:
        mountkit.wait_until(lambda: "cl-pages" not in mountkit.threads_of(mount.process.pid), "the source was asked")
        mount.read("c/s00000.png")
        found = mount.wait_for(lambda s: s["gpu_wait"]["reads"], "the answer is taken in before that read")["gpu_wait"]["page_cache"]
        tap.equal((found["source_keeps_pages"], found["warm_percent"]), ("unknown", None), f"pages that cannot be seen: {found}")


def without_order(place):
    place.files([100] * 20)
    with place.mount(control_reads="1/4") as mount:
        tap.equal(mount.stats()["gpu_wait"]["words"], NO_ORDER, "no order: said at once")
        for name in sorted(os.listdir(mount.mountpoint)):
            mount.read(name)
        stats = mount.wait_for(lambda s: s["gpu_wait"]["control"]["unplaced_reads"] == 20, "all reads are told")
        check_consistent("no order", mount)
        tap.equal(stats["gpu_wait"]["words"], NO_ORDER, "no order: said in words")
        good("announce", mount.mountpoint, "sequential")
        said = clairfs("status", mount.mountpoint).out.decode()
        tap.ok(f"gpu wait  {NOTHING_READ}" in said, "an order that nobody has read in is an order", said)
    with place.mount(order="sequential") as mount:
        said = clairfs("status", mount.mountpoint).out.decode()
        tap.ok(f"gpu wait  {NOTHING_READ}\n" in said, "told when mounted: likewise", said)


def an_order_for_each_epoch(place):
    """A job that lists its samples tells an order at each epoch, and goes on at once. When reads are decided is the machine's
    matter, but no pass may vanish: in the end each is judged, or it is said why not."""
    epochs, report = 4, place.path("report.json")
    place.files([rng.randrange(1, 20 << 10) for _ in range(N)], "c/s{:05d}.png")
    names = sorted(os.listdir(os.path.join(place.source, "c")))
    with place.mount(control_reads="1/4", debug=JUDGED, report=report) as mount:
        for epoch in range(epochs):
            spec = f"torch-randperm:seed={rng.randrange(1 << 31)}:epochs=1:batch={BATCH}:workers=1:prefetch_factor=2"
            good("announce", mount.mountpoint, spec)
            for sample in good("order", spec, "--n", N, "--epoch", 0).split():
                mount.read(f"c/{names[int(sample)]}")
            # Two reads of a sample within a second are told as one, with the place of the later one.
            mount.wait_for(lambda s, all=(epoch + 1) * N: sum(c["reads"] for c in s["reads"].values()) >= all,
                           "all reads are classified")
    with open(report, encoding="utf-8") as file:
        wait = json.load(file)["stats"]["gpu_wait"]
    tap.equal((wait["passes_judged"] + wait["passes_unjudged"], wait["passes_open"]), (epochs, 0),
              "an order each: every pass is accounted for")
    verdicts = wait["ranks"][0]["verdicts"]
    tap.equal([v["order"] for v in verdicts], list(range(1, epochs + 1)), "each with its own verdict")
    tap.ok(wait["passes_judged"] >= 1, "and not all of them are left out", wait)
    tap.equal(("passes not judged" in wait["words"] or "pass not judged" in wait["words"]), wait["passes_unjudged"] > 0,
              f"what is left out is said: {wait['words']}")


def two_ranks(place):
    """The report has the job's estimate: of the rank with most, replayed."""
    place.files([rng.randrange(1, 20 << 10) for _ in range(N)], "c/s{:05d}.png")
    names = sorted(os.listdir(os.path.join(place.source, "c")))
    spec = f"torch-distributed:seed={rng.randrange(1 << 31)}:world=2:ranks=0-1:epochs=1:batch={BATCH}:workers=1:prefetch_factor=2"
    orders = [good("order", spec, "--n", N, "--epoch", 0, "--rank", rank).split() for rank in range(2)]
    with Slowfs(place, place.source, place.path("slow"), "--latency-ms", "5"), \
            place.mount(place.path("slow"), order=spec, control_reads="1/4", debug=JUDGED,
                        report=place.path("report.json")) as mount:
        for samples in zip(*orders):
            for sample in samples:
                mount.read(f"c/{names[int(sample)]}")
        mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= N, "all reads are classified")
    with open(place.path("report.json"), encoding="utf-8") as file:
        ranks = json.load(file)["ranks"]
    tap.equal([(r["rank"], r["world"], r["removed"]["passes_judged"]) for r in ranks], [(0, 2, 1), (1, 2, 1)], "both were judged")
    waits = [replayed(r["replay"]) for r in ranks]
    # Which reads were seen is the machine's matter, but most are in any pass that is judged.
    tap.ok(all(0.9 * (N // 2 // BATCH) <= len(w) <= -(-N // 2 // BATCH) for w in waits), "with the waits for each batch", waits)
    removed = json.loads(good("report", "--json", place.path("report.json")))["removed"]
    both = waits[0].keys() & waits[1].keys()
    want = max(sum(w[k][1] - w[k][0] for k in both) for w in waits) / 1e6
    want = min(max(want, 0), removed["upper_bound_for_the_job_seconds"])
    tap.ok(abs(removed["estimate_seconds"] - want) < 1e-6, "the estimate for the job", removed, want)
    tap.equal((removed["estimate_groups"], removed["estimate_groups_missing"], removed["estimate_steps_per_group"]),
              (len(both), len(waits[0].keys() ^ waits[1].keys()), 1), "of every step that both know")
    tap.ok(removed["at_least_seconds"] <= removed["estimate_seconds"] or removed["estimate_groups_missing"],
           "no less than the bound", removed)


def replayed(log):
    """{step: (microseconds waited, microseconds without the mount)}"""
    pairs = enumerate(zip(log["with_us"], log["without_us"]), log["first"])
    return {step: pair for step, pair in pairs if None not in pair}


mountkit.run(with_control_reads, of_records, of_long_records, nothing_from_the_cache, page_cache_of_the_source,
             pages_that_cannot_be_seen, without_order, an_order_for_each_epoch, two_ranks)
