# SPDX-License-Identifier: Apache-2.0
"""GPU wait removed, as the mount says it, beside the difference that a stopwatch shows.

A job of the real PyTorch reads a source with stated latency: directly, and through a mount, alternating. The difference of
the two walls is what the mount has removed; its lower bound must not be above it (in 95 % of the runs), its estimate within
a tenth. The nulls must say nothing: every sample held out (A/A), a job that computes for so long that the source was fast
enough, and one that decodes for so long.

The workers decode by sleeping, so that they do not take the CPU from the daemon and the simulated source. The source keeps
no pages from one open to the next, so there is no page cache to be subtracted (ghost_bytes=0). Epochs are compared without
the start of the workers: it is the same on both sides.
"""
import json
import os
import subprocess
import time

import benchlib

FILES, BATCH, WORKERS, EPOCHS = 2048, 16, 4, 2
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")
SPEC = f"torch-distributed:seed=42:batch={BATCH}:workers={WORKERS}:prefetch_factor=2"
# name, latency of the source, compute of a step, decoding of a sample (all ms), share of control reads
SCENARIOS = [
    ("slow_source", 20, 30, 1, "1/16"),
    ("marginal", 10, 42, 1, "1/16"),
    ("compute_bound", 5, 80, 1, "1/16"),
    ("prep_bound", 4, 10, 12, "1/16"),
    ("no_hits", 20, 30, 1, "1/1"),
]


def train(bench, root, listed, compute_ms, decode_ms):
    """Wall time of the epochs."""
    argv = [bench.args.torch_python, JOB, root, "--list-from", listed, "--epochs", EPOCHS, "--batch", BATCH, "--workers",
            WORKERS, "--compute-ms", compute_ms, "--decode-ms", decode_ms]
    done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=600, check=False)
    if done.returncode:
        raise benchlib.Failed(f"train_torch.py: {done.stderr.decode(errors='replace').strip()}")
    return sum(json.loads(line)["seconds"] for line in done.stdout.splitlines())


def judged(mount):
    """What the mount says once it has judged all passes."""
    end = time.monotonic() + 60
    while True:
        said = mount.stats()["gpu_wait"]
        if said["passes_judged"] + said["passes_unjudged"] >= EPOCHS or time.monotonic() > end:
            return said
        time.sleep(0.2)


def one_round(bench, data, scenario, is_direct_first):
    _, latency, compute, decode, share = scenario
    slow = f"{bench.temp}/slow"
    with benchlib.slowfs(bench.build, data, slow, latency, 0):
        def direct():
            return train(bench, slow, data, compute, decode)

        def ours():
            with bench.mount(slow, order=SPEC, ram="256M", control_reads=share, ghost_bytes=0) as mount:
                return train(bench, mount.mountpoint, data, compute, decode), judged(mount)

        if is_direct_first:
            without = direct()
            wall, said = ours()
        else:
            wall, said = ours()
            without = direct()
    return without, wall, said


def run(bench):
    data = bench.dataset(FILES)
    too_high = runs = 0
    for scenario in SCENARIOS:
        name = scenario[0]
        rounds = [one_round(bench, data, scenario, r % 2 == 0) for r in range(bench.args.rounds)]
        measured = [without - wall for without, wall, _ in rounds]
        said = [s for _, _, s in rounds]
        walls = [wall for _, wall, _ in rounds]
        bench.emit(f"removed_{name}_measured", "s", measured)
        bench.emit(f"removed_{name}_lower", "s", [s["removed_lower_seconds"] for s in said])
        bench.emit(f"removed_{name}_estimate", "s", [s["removed_estimate_seconds"] for s in said],
                   worst_of_wall=round(max(abs(s["removed_estimate_seconds"] - m) / (m + w)
                                           for s, m, w in zip(said, measured, walls)), 4),
                   words=said[-1]["words"])
        bench.emit(f"removed_{name}_upper", "s", [s["removed_upper_seconds"] for s in said],
                   unjudged=sum(s["passes_unjudged"] for s in said))
        bench.emit(f"removed_{name}_control", "reads", [s["control"]["reads"] for s in said],
                   cost_seconds=round(max(s["control"]["cost_seconds"] for s in said), 3),
                   wall_seconds=round(min(walls), 2))
        runs += len(said)
        # A wall of a loaded machine is not known to better than a hundredth.
        too_high += sum(s["removed_lower_seconds"] > m + 0.01 * w for s, m, w in zip(said, measured, walls))
    bench.emit("removed_lower_above_measured", "% of runs", [100 * too_high / runs], runs=runs)
