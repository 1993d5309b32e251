# SPDX-License-Identifier: Apache-2.0
"""What the plan must reach, in virtual time: `bench/run sim`. Deterministic, so one run is the result.

One node and a permutation per epoch: source reads at most N - C plus the loader's window in every steady epoch, nothing
written to the store after it is full, stall within 2 points of the bound. Several nodes: hits within 0.01 of exact MIN, at
10 % cache and 16 nodes twice those of NoPFS's placement. Bursts of +-90 %: stall at most 2 % where a single clairvoyant
tier can ride them out. The job is that of the reference: 16 workers, batch 64, 1 ms of CPU a sample, 10,000 samples/s.
"""
import json

import benchlib

SAMPLES = 100_000
SAMPLE_BYTES = 110_592
VALID = 5_000  # samples of a validation set
NEED_MBPS = SAMPLE_BYTES * 10_000 / 1e6
LOADER = {"batch": 64, "workers": 16, "prefetch-factor": 2, "decode-ms": 1, "compute-ms": 6.4,
          "source-latency-ms": 1.5, "hit-us": 0, "sample-bytes": SAMPLE_BYTES}
WINDOW = 16 * 2 * 64  # what the loader's workers may be ahead
CACHE_FRACTIONS = (0.25, 0.5, 0.75)
BANDWIDTH_RATIOS = (0.25, 0.5, 0.8, 1.25)
# amplitude, period as a share of the epoch, bandwidth ratio: where the reference reaches 2 %
BURSTS = ((0.5, 0.25, 0.5), (0.5, 0.25, 0.65), (0.9, 0.25, 0.55), (0.9, 0.25, 0.8), (0.5, 1.0, 0.55), (0.9, 1.0, 0.65))
# nodes, epochs, cache as a share of the dataset
NODES = ((4, 40, 0.05), (4, 40, 0.1), (4, 40, 0.25), (16, 90, 0.05), (16, 90, 0.1), (16, 90, 0.25), (64, 200, 0.05))


def simulate(build, policies, **options):
    """{policy: its object of the JSON}."""
    argv = [f"{build}/src/cli/clairfs", "simulate", "--json", "--policy", ",".join(policies)]
    for name, value in {**LOADER, **{k.replace("_", "-"): v for k, v in options.items()}}.items():
        argv += [f"--{name}", str(value)]
    out = json.loads(benchlib.run(*argv))
    return {run["policy"]: run for run in out.get("runs", [out])}


class Grid:
    def __init__(self, emit, build, scale):
        self.emit, self.build, self.scale, self.missed = emit, build, scale, 0

    def simulate(self, policies, samples=SAMPLES, **options):
        if "valid_samples" in options:
            options["valid_samples"] = int(options["valid_samples"] * self.scale)
        return simulate(self.build, policies, samples=int(samples * self.scale), **options)

    def line(self, name, unit, value, limit, **more):
        """A result with what it must reach beside it; smaller is better."""
        good = value <= limit
        self.missed += not good
        self.emit(name, unit, [value], must_be_at_most=round(limit, 4), reached=good, **more)

    def one_node(self):
        for f in CACHE_FRACTIONS:
            for rho in BANDWIDTH_RATIOS:
                run = self.simulate(["clairfs"], epochs=4, cache_fraction=f, source_mbps=NEED_MBPS * rho)["clairfs"]
                name = f"one_node_f{f}_rho{rho}"
                steady = run["steady"]
                self.line(f"{name}_stall", "% of compute", steady["stall_percent"], steady["bound_stall_percent"] + 2,
                          bound=round(steady["bound_stall_percent"], 3))
                self.line(f"{name}_reads", "source reads of the worst steady epoch", max(run["source_reads"][1:]),
                          SAMPLES * (1 - f) + WINDOW, bound=round(SAMPLES * (1 - f)))

    def store(self):
        for f, rho in ((0.4, 0.55), (0.4, 1.25), (0.65, 0.5)):
            run = self.simulate(["clairfs"], epochs=4, cache_fraction=0.1, store_fraction=f,
                           source_mbps=NEED_MBPS * rho)["clairfs"]
            name = f"store{f}_ram0.1_rho{rho}"
            self.line(f"{name}_stall", "% of compute", run["steady"]["stall_percent"],
                      run["steady"]["bound_stall_percent"] + 2, bound=round(run["steady"]["bound_stall_percent"], 3))
            self.line(f"{name}_writes_after_fill", "samples written in the last two epochs",
                      sum(run["store_writes"][2:]), 0)
            self.line(f"{name}_reads", "source reads of the worst epoch after the fill", max(run["source_reads"][2:]),
                      SAMPLES * (0.9 - f) + WINDOW, bound=round(SAMPLES * (0.9 - f)))

    def nodes(self):
        for nodes, epochs, f in NODES:
            runs = self.simulate(["clairfs", "nopfs", "bound"], nodes=nodes, epochs=epochs, cache_fraction=f,
                            source_mbps=NEED_MBPS, window=0, batch=8, workers=4, compute_ms=3.2)
            ours, nopfs, best = (runs[p]["total"]["hit_ratio"] for p in ("clairfs", "nopfs", "bound"))
            name = f"nodes{nodes}_f{f}"
            self.line(f"{name}_below_min", "hit ratio below exact MIN's", best - ours, 0.01, clairfs=round(ours, 4),
                      min_hit_ratio=round(best, 4), nopfs=round(nopfs, 4))
            if nodes == 16 and f == 0.1:
                self.line(f"{name}_nopfs_share", "NoPFS's hits / ours", nopfs / max(ours, 1e-9), 0.5)

    def validation(self):
        """From the second time on, against the same cache that knows all reads from the start."""
        for f, rho, every in ((0.25, 0.8, 1), (0.25, 1.25, 1), (0.5, 0.8, 1), (0.5, 0.8, 3)):
            runs = self.simulate(["clairfs", "belady", "pagecache"], epochs=2 * every + 2, cache_fraction=f,
                            source_mbps=NEED_MBPS * rho, valid_samples=VALID, valid_every=every)
            ours, best, without = (100 * sum(runs[p]["valid_stall_seconds"][every:]) / self.valid_compute(runs[p], every)
                                   for p in ("clairfs", "belady", "pagecache"))
            name = f"validation_f{f}_rho{rho}_every{every}"
            self.line(f"{name}_stall", "% of the validation's compute", ours, best + 2, known_from_the_start=round(best, 3),
                      page_cache=round(without, 1))
            self.line(f"{name}_reads", "source reads of the worst steady epoch", max(runs["clairfs"]["source_reads"][every:]),
                      SAMPLES + VALID - (SAMPLES + VALID) * f + 2 * WINDOW)

    @staticmethod
    def valid_compute(run, since):
        return sum(run["valid_seconds"][since:]) - sum(run["valid_stall_seconds"][since:])

    def bursts(self):
        for amplitude, period, rho in BURSTS:
            run = self.simulate(["clairfs"], samples=80_000, epochs=4, cache_fraction=0.5, burst_amplitude=amplitude,
                           burst_period_s=8 * period, source_mbps=NEED_MBPS * rho)["clairfs"]
            self.line(f"burst{amplitude}_period{period}_rho{rho}_stall", "% of compute", run["steady"]["stall_percent"], 2,
                      bound=round(run["steady"]["bound_stall_percent"], 3),
                      reads=round(sum(run["source_reads"][1:]) / 3 / 80_000, 3))


def run(emit, build, scale=1):
    """How many results miss what they must reach. With another scale the datasets are smaller, and what must be reached is
    not that of them: a smoke run."""
    grid = Grid(emit, build, scale)
    grid.one_node()
    grid.store()
    grid.nodes()
    grid.validation()
    grid.bursts()
    return grid.missed
