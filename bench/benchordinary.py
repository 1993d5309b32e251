# SPDX-License-Identifier: Apache-2.0
"""Ordinary jobs of the real frameworks on mounts without any configuration: train/ and val/ below one root, read from a source with
a latency of 10 ms. bench/ordinary_job.py has the jobs.

Each is run with recover=off (its first epoch) and as it is, in turns. What is said of each, with its goal:

  followed  opens of the first epoch until the order is followed, in % of it: 2 (a resumed job's: 100, that is the next epoch). What a
            trainer opens of val/ before its first epoch begins is not of it; what it does so later is counted
  staged    of all opens after that, which the kernel served: 99 %. The others are in it, too: those of the first pass over val/, which
            nobody can foresee, and those whose pages the kernel had dropped again (some machines do so after two seconds: README.md);
            how many these were stands beside it
  source    reads of the source for each sample that the jobs read at all, as all of them fit into memory: 1.02
  wall      first epoch against that with recover=off: 1.01
  words     of `clairfs status` that were false

Of staged, source and words it is the worst round that counts: they are no times, which a busy machine would excuse.

An unseeded loader's seed is found among all, so its epochs are longer: there it is the core-seconds of an epoch's search that have a
goal (110). Pass many rounds on a quiet machine before the walls are believed.
"""
import json
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

import benchlib
from benchlib import Failed

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "ordinary_job.py")
LATENCY_MS, CLASSES, SIDE, EPOCHS = 10, 20, 32, 3
# What no job here does. Those that resume may be said to have resumed.
FALSE_WORDS = ("jumped ahead", "another reader", "in another order", "resumed in the middle", "the order that was told",
               "left an epoch", "set_epoch is not called", "earlier epoch", "later epoch", "though a later one", "an epoch ahead",
               "the epoch again", "from the first epoch", "had no place", "does not read in the order")


class Scenario:
    """jobs: arguments of ordinary_job.py of each; part: of train/ that is read; first: of an epoch that the job begins with."""

    def __init__(self, name, *jobs, part=1.0, first=1.0, compute=50, followed=2, is_all_seeds=False):
        self.name, self.jobs, self.part, self.first, self.compute = name, jobs, part, first, compute
        self.followed, self.is_all_seeds = followed, is_all_seeds
        self.is_resume = first < 1
        self.has_checkpoint = any("--checkpoint" in job for job in jobs)


CHECKPOINT = ("trainer", "--checkpoint", "CHECKPOINT")
SCENARIOS = [
    Scenario("distributed", ("distributed",)),
    Scenario("two_ranks", ("two_ranks",)),
    Scenario("manual_seed", ("manual_seed",)),
    Scenario("lightning", ("lightning",)),
    Scenario("trainer", ("trainer",)),
    Scenario("resume", ("resume",), first=0.5, followed=100),
    Scenario("trainer_resume", CHECKPOINT, first=0.5, followed=100),
    Scenario("subset", ("subset",), part=0.2),
    Scenario("two_jobs", ("distributed", "--seed", 0), ("distributed", "--seed", 1000)),
    Scenario("unseeded", ("unseeded",), compute=650, followed=100, is_all_seeds=True),
]
SMOKE = ("resume", "lightning", "trainer")  # importing the frameworks is what takes its time


def png(rng):
    """A small image that no compression makes smaller."""
    rows = b"".join(b"\0" + rng.randbytes(3 * SIDE) for _ in range(SIDE))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 0)) + chunk(b"IEND", b""))


def make_dataset(path, size):
    rng = random.Random(1)
    for part, files in ("train", size.ordinary_train), ("val", size.ordinary_val):
        for i in range(files):
            folder = f"{path}/{part}/n{i * CLASSES // files:04d}"
            os.makedirs(folder, exist_ok=True)
            with open(f"{folder}/{i:06d}.png", "wb") as file:
                file.write(png(rng))


class Watcher(threading.Thread):
    """Looks at the mount: when was it that all jobs were followed, and what is said of them?"""

    def __init__(self, mount, jobs):
        super().__init__(daemon=True)
        self.mount, self.jobs, self.is_over = mount, jobs, threading.Event()
        self.found, self.opens, self.said = None, [], set()

    def is_followed(self, stats):
        """A look at the validation set, which some trainers begin with, is an order as well."""
        return sum(job["state"] == "following" and ":under=val" not in job["spec"] for job in stats["jobs"]) >= self.jobs

    def run(self):
        while not self.is_over.wait(0.2 if self.found else 0.02):
            stats = self.mount.stats()
            self.opens.append((time.monotonic(), stats["counters"]["sample_opens"]))
            self.said |= {stats["order"]["search"]["doing"]} | {job["doing"] for job in stats["jobs"]}
            if not self.found and self.is_followed(stats):
                self.found = stats

    def opens_at(self, when):
        return max((opens for at, opens in self.opens if at <= when), default=0)


def start_job(bench, scenario, argv, root, epochs, checkpoint):
    argv = [checkpoint if a == "CHECKPOINT" else a for a in argv]
    compute = 2 if bench.size.is_smoke else scenario.compute
    command = [bench.args.torch_python, "-W", "ignore", JOB, *argv, root, "--epochs", epochs, "--compute-ms", compute]
    out, err = tempfile.TemporaryFile(dir=bench.temp), tempfile.TemporaryFile(dir=bench.temp)
    return subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=out, stderr=err), out, err


def text_of(file):
    file.seek(0)
    return file.read().decode(errors="replace")


def run_jobs(bench, scenario, root, epochs):
    """Events of all jobs, in the order of time."""
    events = []
    checkpoint = f"{bench.temp}/checkpoint"
    running = [start_job(bench, scenario, argv, root, epochs, checkpoint) for argv in scenario.jobs]
    try:
        for job, out, err in running:
            if job.wait(timeout=1200):
                raise Failed(f"{scenario.name}: {text_of(err).strip()[-500:]}")
            events += [json.loads(line) for line in text_of(out).splitlines() if line.startswith('{"event"')]
    finally:
        for job, out, err in running:
            if job.poll() is None:
                job.terminate()
                job.wait()
            out.close()
            err.close()
    return sorted(events, key=lambda event: event["t"])


def first_epoch(events):
    """From its begin to its end, of the slowest job."""
    epoch = events[0]["epoch"]
    return max(e["t"] for e in events if e["event"] == "end" and e["epoch"] == epoch) - events[0]["t"]


def classes(stats):
    return {name: one["reads"] for name, one in stats["reads"].items()}


def false_words(scenario, said):
    true = ("another reader", "in another order") if len(scenario.jobs) > 1 else ("resumed",) if scenario.is_resume else ()
    false = [word for word in FALSE_WORDS if not any(one in word for one in true)]
    return sorted(text for text in said if any(word in text for word in false))


def run_off(bench, scenario, source):
    """The first epoch's seconds where nothing is looked for. A checkpoint is of a job that wanted all epochs."""
    with bench.mount(source, recover="off") as mount:
        return first_epoch(run_jobs(bench, scenario, mount.mountpoint, EPOCHS if scenario.has_checkpoint else 2 if scenario.is_all_seeds else 1))


def run_on(bench, scenario, source):
    with bench.mount(source) as mount:
        watcher = Watcher(mount, len(scenario.jobs))
        watcher.start()
        events = run_jobs(bench, scenario, mount.mountpoint, 2 if scenario.is_all_seeds else EPOCHS)
        watcher.is_over.set()
        watcher.join()
        mount.settled()
        end = mount.stats()
    n_first = bench.size.ordinary_train * scenario.part * scenario.first * len(scenario.jobs)
    found = watcher.found or end
    before = watcher.opens_at(events[0]["t"])
    distinct = bench.size.ordinary_train * scenario.part + bench.size.ordinary_val
    search = end["order"]["search"]
    dropped, opens = (end["counters"][name] - found["counters"][name] for name in ("stage_evicted_reads", "sample_opens"))
    staged = classes(end)["staged"] - classes(found)["staged"]
    return {"wall": first_epoch(events), "followed": 100 * (found["counters"]["sample_opens"] - before) / n_first,
            "is_found": watcher.found is not None, "staged": 100 * staged / max(opens, 1),
            "dropped": 100 * dropped / max(opens, 1), "reads": classes(end), "source": end["counters"]["source_reads"] / distinct,
            "false": false_words(scenario, watcher.said), "said": sorted(watcher.said)[:12], "spec": search["found"],
            "specs": [job["spec"] for job in end["jobs"]], "core_s": search["cpu_seconds"], "orders": search["orders_found"]}


def make_checkpoint(bench, data):
    """A job that was ended in the middle of epoch 1. It reads what the source is made of, as nothing of it is measured."""
    done = [bench.args.torch_python, "-W", "ignore", JOB, "trainer", data, "--epochs", EPOCHS, "--compute-ms", 0, "--stop",
            "--checkpoint", f"{bench.temp}/checkpoint"]
    benchlib.run(*done)


def emit_worst(bench, name, unit, values, goal, **more):
    worst = min(values) if goal[0] == ">=" else max(values)
    bench.emit(name, unit, [worst], goal=goal, min=round(min(values), 4), max=round(max(values), 4), rounds=len(values), **more)


def emit(bench, scenario, sides):
    on, name, last = [on for _, on in sides], f"ordinary_{scenario.name}", sides[-1][1]
    bench.emit(f"{name}_followed", "% of the first epoch", [one["followed"] for one in on], goal=("<=", scenario.followed),
               is_found=all(one["is_found"] for one in on), spec=last["spec"], specs=last["specs"], orders=last["orders"])
    emit_worst(bench, f"{name}_staged", "% of the opens after that", [one["staged"] for one in on], (">=", 99), reads=last["reads"],
               dropped=[round(one["dropped"], 4) for one in on])
    emit_worst(bench, f"{name}_source", "reads/sample that is read", [one["source"] for one in on], ("<=", 1.02))
    if scenario.is_all_seeds:
        bench.emit(f"{name}_search", "core-seconds/epoch", [one["core_s"] / 2 for one in on], goal=("<=", 110))
    bench.emit(f"{name}_wall", "x the first epoch with recover=off", [one["wall"] / off for off, one in sides], goal=("<=", 1.01),
               seconds=round(statistics.median(one["wall"] for one in on), 2), off_seconds=round(statistics.median(off for off, _ in sides), 2),
               search_core_s=round(last["core_s"], 2))
    false = sorted({text for one in on for text in one["false"]})
    emit_worst(bench, f"{name}_words", "false words", [len(one["false"]) for one in on], ("<=", 0), said=false or last["said"])


def run(bench):
    data, slow = f"{bench.temp}/data-ordinary", f"{bench.temp}/slow-ordinary"
    make_dataset(data, bench.size)
    for scenario in (s for s in SCENARIOS if bench.wants_scenario(s.name, SMOKE)):
        sides = []
        if scenario.has_checkpoint:
            make_checkpoint(bench, data)
        for r in range(bench.rounds):
            with benchlib.slowfs(bench.build, data, slow, LATENCY_MS, 0):
                off = run_off(bench, scenario, slow) if r % 2 == 0 else None
                on = run_on(bench, scenario, slow)
                sides.append((off or run_off(bench, scenario, slow), on))
        emit(bench, scenario, sides)
    goals = [line for line in bench.lines if "goal" in line]
    missed = [line["name"] for line in goals if not line["reached"]]
    print(f"bench: ordinary: {len(missed)} of {len(goals)} goals missed {' '.join(missed)}".rstrip(), file=sys.stderr)
