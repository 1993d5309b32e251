# SPDX-License-Identifier: Apache-2.0
"""What a mount says about the GPU wait it removed, with a real DataLoader over a slow source.

How much it is depends on the machine, so here only what must hold on any: the bounds are in order, every name is there and
says the same in stats.json and metrics, and a job none of whose reads were served by the cache removes nothing. Figures are
made by bench/run removed.
"""
import json
import os
import re

import mountkit
import tap
from mountkit import Slowfs, clairfs, good, program, read_file, rng

N, BATCH, WORKERS = 200, 8, 2
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench", "train_torch.py")


def train(place, mount, seed, epochs):
    python = os.environ.get("CLAIRFS_TORCH_PYTHON")
    if not python:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    done = program(python, JOB, mount.mountpoint, "--list-from", place.source, "--epochs", epochs, "--batch", BATCH,
                   "--workers", WORKERS, "--compute-ms", 2, "--seed", seed, timeout=600, cwd="/")
    if done.code:
        raise mountkit.Failed(f"training: {done}")
    # What is counted next is known a moment after the last read.
    mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= epochs * N, "all reads are classified")


def judged(mount, epochs):
    """The numbers when all passes were looked at; a pass waits for control reads until the next ones or the end."""
    def is_over(stats):
        wait = stats["gpu_wait"]
        return wait["passes_judged"] + wait["passes_unjudged"] >= epochs or \
            (wait["why"] == "too few control reads so far" and wait["ranks"])
    return mount.wait_for(is_over, "all passes are judged")


def metrics(mount):
    """{name with labels: value}"""
    text = read_file(mount.path(".clairfs", "metrics")).decode()
    return {m[1]: float(m[2]) for m in re.finditer(r"^(clairfs_\S+) (\S+)$", text, re.M)}


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
            place.mount(place.path("slow"), order=spec, control_reads="1/4", ghost_bytes=0) as mount:
        # One epoch: where a sample is read again within a second, its two reads count as one, and passes have holes.
        train(place, mount, seed, 1)
        stats = judged(mount, 1)
        check_consistent("control reads", mount)
        for one in stats["gpu_wait"]["ranks"]:
            tap.ok(one["passes_judged"] == 0 or (one["workers"], one["prefetch"], one["batch"]) == (WORKERS, 2, BATCH),
                   "the shape of the loader is that of the order", one)
        reads = sum(r["reads"] for r in stats["gpu_wait"]["ranks"]) + stats["gpu_wait"]["control"]["unplaced_reads"]
        tap.ok(reads <= N + stats["gpu_wait"]["control"]["unplaced_reads"], "no read is counted twice", stats["gpu_wait"])


def nothing_from_the_cache(place):
    place.files([rng.randrange(1, 100 << 10) for _ in range(N)], "c/s{:05d}.png")
    seed = rng.randrange(1 << 31)
    spec = f"torch-distributed:seed={seed}:batch={BATCH}:workers={WORKERS}:prefetch_factor=2"
    with place.mount(order=spec, control_reads="1/1", ghost_bytes=0, report=place.path("report.json")) as mount:
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
    tap.equal(job["removed"], {"at_least_seconds": 0, "upper_bound_for_the_job_seconds": 0}, "all held out: so does the report")
    tap.ok(job["data"]["control_reads"] >= controls > 0 and job["data"]["control_seconds"] > 0,
           "all held out: with its control reads", job["data"])


def without_order(place):
    place.files([100] * 20)
    with place.mount(control_reads="1/4") as mount:
        for name in sorted(os.listdir(mount.mountpoint)):
            mount.read(name)
        stats = mount.wait_for(lambda s: s["gpu_wait"]["control"]["unplaced_reads"] == 20, "all reads are told")
        check_consistent("no order", mount)
        tap.equal(stats["gpu_wait"]["words"],
                  "not known: the order of the job is not known, so nothing was fetched ahead", "no order: said in words")


mountkit.run(with_control_reads, nothing_from_the_cache, without_order)
