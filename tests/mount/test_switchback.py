# SPDX-License-Identifier: Apache-2.0
"""The cache steps aside in blocks of steps: their reads are misses, every byte is right, and a number with an interval comes out.

How large it is depends on the machine, so nothing is said of that. The reader takes one sample after the other, as the one
worker of a loader does, and goes on only when the mount has heard of what it opened.
"""
import os

import mountkit
import tap
from mountkit import clairfs, good, read_file, rng

N, BATCH, BLOCK = 3200, 2, 16  # a block: four times workers * prefetch_factor batches
LOADER = f"batch={BATCH}:workers=1:prefetch_factor=2"


def options(order, **more):
    # A small stage: what is pushed before the order is confirmed stays in the kernel.
    return {"order": order, "debug": {"stage": "512K", "ghost_bytes": 0}, **more}


def read_all(mount, names, data, epoch):
    """One pass in the order of the job; the names of those that were read wrong."""
    wrong = []
    for at, number in enumerate(good("order", mount.stats()["order"]["spec"], "--n", N, "--epoch", epoch).split()):
        name = names[int(number)]
        if mount.read(name) != data[name]:
            wrong.append(name)
        if at % BLOCK == BLOCK - 1:
            mount.wait_for(lambda s, n=at + 1: s["counters"]["sample_opens"] >= n, "the opens are heard of")
        if at == 4 * BLOCK:
            mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is confirmed")
    return wrong


def metric(mount, name):
    lines = read_file(mount.path(".clairfs", "metrics")).decode().splitlines()
    return [float(line.split()[1]) for line in lines if line.startswith(name)]


def steps_aside(place):
    data = place.files([rng.randrange(1, 4000) for _ in range(N)])
    names = sorted(data)
    spec = f"torch-distributed:seed={rng.randrange(1 << 31)}:epochs=1:{LOADER}"
    report = place.path("report.json")
    with place.mount(**options(spec, switchback=10, report=report)) as mount:
        wrong = read_all(mount, names, data, 0)
        stats = mount.wait_for(lambda s: s["gpu_wait"]["switchback"]["removed_seconds"] is not None, "there is a number")
        stats = mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= N, "all reads have their class")
        said = stats["gpu_wait"]["switchback"]
        tap.no_findings(wrong, "every byte is that of the source")
        tap.ok(said["share"] == 0.1 and said["is_possible"] and said["blocks"] >= said["blocks_needed"], "blocks are measured",
               said)
        tap.ok(said["low_seconds"] <= said["removed_seconds"] <= said["high_seconds"], "the number has an interval", said)
        tap.equal(said["steps"] + said["steps_through"], N // BATCH, "every step is in one part or the other")
        tap.ok(said["reads"] > 0, "samples of the blocks were held out", said)
        tap.ok(stats["reads"]["miss"]["reads"] >= said["reads"], "and read from the source", stats["reads"])
        tap.equal(stats["counters"]["control_reads"], 0, "they are no control reads")
        tap.equal(stats["counters"]["prefetch_failed"], 0, "and nobody's failure")
        tap.equal(metric(mount, "clairfs_switchback_reads_total "), [said["reads"]], "metrics say the same")
        tap.equal(len(metric(mount, 'clairfs_gpu_wait_removed_estimate_seconds_total{source="switchback",rank="0"}')), 1,
                  "as does the estimate's source")
        text = clairfs("status", mount.mountpoint).out.decode()
        tap.ok("by switchback " in text and " +- " in text, "status says it with the interval", text)


def not_possible(place):
    place.files([100] * 20)
    with place.mount(**options("sequential:batch=2", switchback="0.5%")) as mount:
        for name in sorted(os.listdir(mount.mountpoint)):
            mount.read(name)
        # The order is accounted for a moment after it is in force.
        words = "by switchback not known: the order does not say batch= and workers="
        said = mount.wait_for(lambda s: words in s["gpu_wait"]["words"], "words say why")["gpu_wait"]
        tap.ok(not said["switchback"]["is_possible"] and said["switchback"]["removed_seconds"] is None,
               "without workers= there are no blocks", said)


def off(place):
    place.files([100] * 20)
    with place.mount(**options(f"sequential:{LOADER}")) as mount:
        said = mount.stats()["gpu_wait"]
        tap.ok("switchback" not in said["words"] and said["switchback"]["share"] == 0, "by default it is off", said)


mountkit.run(steps_aside, not_possible, off)
