# SPDX-License-Identifier: Apache-2.0
"""GPU wait removed, as the mount says it, beside the difference that a stopwatch shows.

A job of the real PyTorch reads a source with stated latency: directly, and through a mount, alternating. The difference of
the two walls is what the mount has removed. Goals, each marked as reached or missed in the results:

  where the source makes the job wait   |estimate - measured| is at most a tenth of what was measured
  everywhere                            the lower bound is at most what was measured, the upper one at least that, in every round
  A/A                                   lower bound 0, estimate at most 1 % of the epochs
  compute-bound, in RAM                 likewise: there was nothing to remove

The source has a latency (slow_source, prep_bound), a link that is too narrow (narrow_link, small_cache: most of the dataset is
read again in every epoch), or is just too slow (marginal: a tenth of a small difference is less than two walls differ by chance).

A/A is a mount that serves nothing from its cache: every sample is held out and read from the source when it is wanted, and
there are fewer reads than the accounting takes control reads of (2000 of one size), or the rest would be hits. That there
were hardly any is a goal, too: with hits it is no A/A. In RAM: the page cache that Linux would have had holds the dataset after
the first epoch, which the direct side gets from a source that is as fast then; so its source has no latency.

What happens in ordinary jobs: workers that work when they decode (spinning), CPUs that others keep busy all the time (busy_cpus: a
null, and one in which no number can be told, so refusing is right), a page cache that has the dataset already, of a source that
keeps its pages (page_cache_warm), a mount that is told nothing (no_configuration), one epoch and nothing behind it (last_pass), a
read in ten thousand that the mount does not hear of (lost_open), files that are opened twice in a row (two_reads).

Samples that are records of 100 KB in larger files, which the job has open and jumps in: where each takes the source's latency (records),
where they share its link and memory has room for a third of them (records_narrow), and where none is served (records_no_hits).

Each line of stderr has the stopwatch, the three numbers, and whether the first lies between the outer two; a round in which the
mount says that it does not know is neither right nor wrong, and counted (refused: none, where the job gives no reason).

Otherwise the workers decode by sleeping, so that they do not take the CPU from the daemon and the simulated source. The source keeps
no pages from one open to the next, so there is no page cache to be subtracted (debug=ghost_bytes:0). Epochs are compared without
the start of the workers: it is the same on both sides. The walls of a loaded machine are not known to better than a
hundredth: a lower bound is too high when it is above what was measured by more than that.
"""
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import time

import benchlib

BATCH, WORKERS, EPOCHS = 16, 4, 2
WALL_SHARE = 0.01
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")


class Scenario:
    """What is measured: the job of train_torch.py. bench: what the results are of. latency of the source, compute of a step, decoding of a sample in ms; share: of control reads. is_null: there is nothing
    to remove; is_aa: and nothing is served by the cache. job: more arguments of it; spinners: processes for each CPU that do
    nothing but take it; is_warm: the source's pages are in memory; is_plain: the mount is told nothing; lost: one of so many
    reads is past the mount; may_refuse: that nothing can be told is a good answer; is_small: what is removed is hardly more than two walls differ by chance."""
    bench = "removed"

    def __init__(self, name, latency, compute, decode, share="1/16", files=2048, is_null=False, is_aa=False, ghost=0, mbps=0,
                 ram="256M", batch=BATCH, switchback="off", epochs=EPOCHS, job=(), spinners=0, is_warm=False, is_plain=False, lost=0,
                 may_refuse=False, workers=WORKERS, is_small=False):
        self.name, self.latency, self.compute, self.decode, self.share = name, latency, compute, decode, share
        self.files, self.is_null, self.is_aa, self.ghost, self.mbps = files, is_null or is_aa, is_aa, ghost, mbps
        self.ram, self.batch, self.switchback = ram, batch, switchback
        self.epochs, self.job, self.spinners, self.is_warm, self.is_plain = epochs, list(job), spinners, is_warm, is_plain
        self.lost, self.may_refuse, self.workers, self.is_small = lost, may_refuse, workers, is_small
        self.rows = []  # of each round the epochs as the job says them, read directly and through the mount

    @property
    def label(self):
        return f"{self.bench}_{self.name}"

    @property
    def spec(self):
        return f"torch-distributed:seed=42:batch={self.batch}:workers={self.workers}:prefetch_factor=2"

    def made_smaller(self, size):
        self.files = min(self.files, size.removed_files)

    def dataset(self, bench):
        return bench.dataset(self.files)

    def prepare(self, bench, source):
        """What comes before a mount of the source."""

    def argv(self, bench, root, listed, past):
        """The job. past: where the reads are that a mount does not hear of."""
        argv = [bench.args.torch_python, JOB, root, "--list-from", listed, "--epochs", self.epochs, "--batch", self.batch,
                "--workers", self.workers, "--compute-ms", self.compute, "--decode-ms", self.decode, *self.job]
        if past and self.lost:
            argv += ["--elsewhere", past, "--elsewhere-every", min(self.lost, self.files)]
        return argv

    def emit_off(self, bench, name, told):
        """told: the estimate, what was measured, and the wall that this is a part of."""
        if self.is_small:
            bench.emit(f"{self.label}_{name}", "% of the epochs", [100 * abs(guess - truth) / wall for guess, truth, wall in told],
                       goal=("<=", 200 * WALL_SHARE))
        else:
            bench.emit(f"{self.label}_{name}", "% of measured", [100 * abs(guess - truth) / max(abs(truth), 1e-9) for guess, truth, _ in told],
                       goal=("<=", 10))

    def emit_more(self, bench, rounds):
        """What this scenario says besides."""
        if self.switchback != "off":
            emit_switchback(bench, self, rounds)


RECORD_BYTES, RECORDS_EACH = 100_000, 512


class Records(Scenario):
    """Samples are records of larger files, and the job jumps between them. What they hold says nothing here."""

    @property
    def spec(self):
        return f"{super().spec}:world=1:records=1"

    def dataset(self, bench):
        path = f"{bench.temp}/records{self.files}"
        if os.path.isdir(path):
            return path
        os.makedirs(f"{path}/class")
        with open(f"{path}.list", "w", encoding="ascii") as places:
            for first in range(0, self.files, RECORDS_EACH):
                name, n = f"class/{first:08d}.jpg", min(RECORDS_EACH, self.files - first)
                with open(f"{path}/{name}", "wb") as file:
                    file.write(os.urandom(n * RECORD_BYTES))
                places.writelines(f"{name} {i * RECORD_BYTES} {RECORD_BYTES}\n" for i in range(n))
        return path

    def prepare(self, bench, source):
        benchlib.run(f"{bench.build}/src/cli/clairfs", "index", source, "--snapshot-dir", f"{bench.temp}/snapshots", "--import",
                     f"{self.dataset(bench)}.list")

    def argv(self, bench, root, listed, past):
        return [*super().argv(bench, root, listed, past), "--record-bytes", RECORD_BYTES]


SCENARIOS = [
    Scenario("slow_source", 20, 30, 1),
    Scenario("narrow_link", 2, 30, 1, mbps=40),
    Scenario("small_cache", 2, 30, 1, mbps=25, ram="64M"),
    Scenario("marginal", 10, 42, 1),
    Scenario("compute_bound", 5, 80, 1, is_null=True),
    Scenario("prep_bound", 4, 10, 12),
    Scenario("in_ram", 0, 5, 1, is_null=True, ghost="1T", may_refuse=True),
    Scenario("switchback", 40, 10, 1, batch=2, switchback=10),
    Scenario("no_hits", 20, 30, 1, share="1/1", files=960, is_aa=True),
    Scenario("spinning", 4, 10, 8, files=1024, job=["--spin"], may_refuse=True),
    Scenario("busy_cpus", 1, 40, 1, files=1024, is_null=True, spinners=2, may_refuse=True),
    Scenario("page_cache_warm", 10, 20, 1, files=1024, is_null=True, ghost="auto", is_warm=True),
    Scenario("no_configuration", 5, 10, 1, files=8192, is_plain=True),
    Scenario("last_pass", 20, 30, 1, epochs=1, lost=1000),
    Scenario("lost_open", 5, 10, 1, files=10240, lost=10000),
    Scenario("two_reads", 10, 30, 1, job=["--twice"]),
    Records("records", 20, 30, 1),
    Records("records_narrow", 2, 30, 1, mbps=40, ram="64M"),
    # What fits would be asked for again at once, for the next pass, while its reader is at it.
    Records("records_no_hits", 20, 30, 1, share="1/1", files=960, ram="24M", is_aa=True),
]
VERDICT_SECONDS = 8  # after the job: five without a read, and what it takes to be told


# One that emits each kind of line: goals of what was removed, the measurement by stepping aside, the nulls.
SMOKE = ("switchback", "no_hits", "page_cache_warm", "last_pass", "two_reads", "records")
SMOKE_JUDGED = ("switchback", "watched")  # those whose verdict a smoke run waits for; the second is of benchgpu.py


@contextlib.contextmanager
def busy(processes):
    """Others keep the CPUs busy."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


def read_all(root):
    """Into the page cache, many at once as each waits for the source."""
    paths = [os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names]

    def read(path):
        with open(path, "rb") as file:
            file.read()
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(read, paths))


def train(bench, root, listed, scenario, past=None):
    """The epochs, as the job says them."""
    return [json.loads(line) for line in benchlib.run(*scenario.argv(bench, root, listed, past)).splitlines()]


def seconds(epochs):
    return sum(epoch["seconds"] for epoch in epochs)


def judged(mount, epochs, seconds):
    """What the mount says once it has judged all passes, and after how long."""
    begin = time.monotonic()
    while True:
        said, took = mount.stats()["gpu_wait"], time.monotonic() - begin
        if said["passes_judged"] + said["passes_unjudged"] >= epochs or took > seconds:
            return {**said, "verdict_seconds": took}
        time.sleep(0.2)


def about(said):
    """The estimate, or None."""
    return None if said["removed_estimate_source"] == "none" else said["removed_estimate_seconds"]


def is_refused(said, scenario):
    """Nothing is said of some of the epochs."""
    return said["passes_judged"] < scenario.epochs


def is_between(said, truth, wall):
    """Lower bound, truth, upper bound; walls are not known better than WALL_SHARE."""
    slack = WALL_SHARE * wall
    return said["removed_lower_seconds"] - slack <= truth <= said["removed_upper_seconds"] + slack


def hits(stats):
    """Reads that did not go to the source."""
    return sum(c["reads"] for name, c in stats["reads"].items() if name != "miss")


def one_round(bench, data, scenario, is_direct_first):
    """Walls without and with the mount, what it says, and its hits."""
    slow = f"{bench.temp}/slow"
    options = {} if scenario.is_plain else {"order": scenario.spec, "ram": scenario.ram, "control_reads": scenario.share,
                                            "debug": {"ghost_bytes": scenario.ghost}, "switchback": scenario.switchback}
    with benchlib.slowfs(bench.build, data, slow, scenario.latency, scenario.mbps, scenario.is_warm), \
            busy(scenario.spinners * (os.cpu_count() or 1)):
        scenario.prepare(bench, slow)

        def direct():
            if scenario.is_warm:
                read_all(slow)
            return train(bench, slow, data, scenario)

        def ours():
            if scenario.is_warm:
                read_all(slow)
            with bench.mount(slow, **options) as mount:
                rows = train(bench, mount.mountpoint, data, scenario, past=slow)
                is_waited_for = not bench.size.is_smoke or scenario.name in SMOKE_JUDGED
                said = judged(mount, scenario.epochs, bench.size.judged_seconds if is_waited_for else 1)
                return rows, said, hits(mount.stats())

        without = direct() if is_direct_first else None
        rows, said, served = ours()
        without = without or direct()
        scenario.rows.append((without, rows))
        return seconds(without), seconds(rows), said, served


def emit_switchback(bench, scenario, rounds):
    """What the mount has measured by itself, and how often its interval has the difference of the walls in it. That is of reads
    and opens; the interval is of chance alone, and the opens of a source cost next to nothing in the mount: so the goal is that
    of the estimate."""
    said = [s["switchback"] for _, _, s, _ in rounds]
    known = [(d - w, one) for (d, w, _, _), one in zip(rounds, said) if one["removed_seconds"] is not None]
    if known:
        bench.emit(f"{scenario.label}_by_switchback", "s", [one["removed_seconds"] for _, one in known], blocks=said[-1]["blocks"],
                   spoiled=said[-1]["blocks_spoiled"], low=[round(one["low_seconds"], 3) for _, one in known],
                   high=[round(one["high_seconds"], 3) for _, one in known], cost=[round(one["cost_seconds"], 3) for _, one in known])
    if len(known) == len(rounds):
        bench.emit(f"{scenario.label}_by_switchback_off", "% of measured",
                   [100 * abs(one["removed_seconds"] - m) / max(abs(m), 1e-9) for m, one in known], goal=("<=", 10))
    inside = sum(one["low_seconds"] <= measured <= one["high_seconds"] for measured, one in known)
    bench.emit(f"{scenario.label}_in_interval", "% of rounds", [100 * inside / len(rounds)])


def emit_goals(bench, scenario, rounds):
    """The goals that this scenario has a say in."""
    bench.emit(f"{scenario.label}_verdict", "s after the job", [s["verdict_seconds"] for _, _, s, _ in rounds],
               goal=("<=", VERDICT_SECONDS))
    told = [(d, w, s) for d, w, s, _ in rounds if about(s) is not None and not is_refused(s, scenario)]
    # The numbers below are of the others.
    bench.emit(f"{scenario.label}_refused", "% of rounds", [100 * (len(rounds) - len(told)) / len(rounds)],
               goal=None if scenario.may_refuse else ("<=", 0), passes_judged=[s["passes_judged"] for _, _, s, _ in rounds],
               passes=scenario.epochs)
    if not scenario.is_null:
        if told:
            scenario.emit_off(bench, "estimate_off", [(about(s), d - w, w) for d, w, s in told])
        return
    # Of all rounds the worst: a null has no noise to be forgiven.
    bench.emit(f"{scenario.label}_null_lower", "s", [max(s["removed_lower_seconds"] for _, _, s, _ in rounds)], goal=("<=", 0))
    if told:
        bench.emit(f"{scenario.label}_null_estimate", "% of the epochs", [max(100 * about(s) / w for _, w, s in told)], goal=("<=", 1))
    if scenario.is_aa:
        # Where one epoch follows the other a few samples are read before the plan has held them out.
        bench.emit(f"{scenario.label}_hits", "% of reads", [max(100 * served / (EPOCHS * scenario.files) for *_, served in rounds)],
                   goal=("<=", 2))


def emit_numbers(bench, scenario, rounds):
    walls, said = [w for _, w, _, _ in rounds], [s for _, _, s, _ in rounds]
    bench.emit(f"{scenario.label}_measured", "s", [d - w for d, w, _, _ in rounds], wall_seconds=round(min(walls), 2))
    for key in ("lower", "estimate", "upper"):
        if key == "estimate" and None in map(about, said):
            continue
        bench.emit(f"{scenario.label}_{key}", "s", [s[f"removed_{key}_seconds"] for s in said], words=said[-1]["words"],
                   unjudged=sum(s["passes_unjudged"] for s in said))
    bench.emit(f"{scenario.label}_control", "reads", [s["control"]["reads"] for s in said],
               cost_seconds=round(max(s["control"]["cost_seconds"] for s in said), 3))


def show(scenario, rounds):
    """A line for a person, of each round."""
    for number, (direct, wall, said, _) in enumerate(rounds):
        truth, guess = direct - wall, about(said)
        numbers = (f"at least {said['removed_lower_seconds']:.2f}, " + (f"about {guess:.2f}, " if guess is not None else "") +
                   f"at most {said['removed_upper_seconds']:.2f}")
        if is_refused(said, scenario):
            verdict = f"{said['passes_judged']} of {scenario.epochs} epochs judged: {said['words']}"
        else:
            verdict = f"{numbers}: {'between' if is_between(said, truth, wall) else 'NOT BETWEEN THE BOUNDS'}"
        print(f"bench: {scenario.bench}: {scenario.name} {number}: stopwatch {truth:.2f} s ({direct:.1f} - {wall:.1f}), {verdict}", file=sys.stderr)


def run(bench, scenarios=SCENARIOS, smoke=SMOKE):
    not_above = runs = not_below = uppers = 0
    for scenario in (s for s in scenarios if bench.wants_scenario(s.name, smoke)):
        scenario.made_smaller(bench.size)
        data = scenario.dataset(bench)
        rounds = [one_round(bench, data, scenario, r % 2 == 0) for r in range(bench.rounds)]
        show(scenario, rounds)
        emit_numbers(bench, scenario, rounds)
        emit_goals(bench, scenario, rounds)
        scenario.emit_more(bench, rounds)
        # A bound of 0 claims nothing, and must not count as right; nulls have a goal of their own.
        claims = [(s["removed_lower_seconds"], d - w + WALL_SHARE * w) for d, w, s, _ in rounds if s["removed_lower_seconds"] > 0]
        runs += len(claims)
        not_above += sum(lower <= most for lower, most in claims)
        # Of epochs that were left out the upper bound knows nothing.
        most = [(s["removed_upper_seconds"], d - w - WALL_SHARE * w) for d, w, s, _ in rounds if not is_refused(s, scenario)]
        uppers += len(most)
        not_below += sum(upper >= least for upper, least in most)
    name = scenarios[0].bench
    if runs:
        bench.emit(f"{name}_lower_not_above_measured", "% of rounds", [100 * not_above / runs], goal=(">=", 100), runs=runs)
    if uppers:
        bench.emit(f"{name}_upper_not_below_measured", "% of rounds", [100 * not_below / uppers], goal=(">=", 100), runs=uppers)
    goals = [line for line in bench.lines if "goal" in line]
    missed = [line["name"] for line in goals if not line["reached"]]
    print(f"bench: {name}: {len(missed)} of {len(goals)} goals missed {' '.join(missed)}".rstrip(), file=sys.stderr)
