# SPDX-License-Identifier: Apache-2.0
"""GPU wait removed, as the mount says it, beside a stopwatch and beside the GPU: benchremoved.py with steps that are real.

The job (train_gpu.py) trains a ResNet on a GPU with CUDA, on images that 12 workers read and decode. So a step takes what it takes,
decoding keeps CPUs busy, batches go by pinned memory, and the processor may be ahead of the GPU. The source is slowfs. Numbers and
goals are those of benchremoved.py; besides, by the GPU's own clock:

  idle_direct, idle_mount  how much of the epochs the GPU had no work, without and with the mount; what a step took in them
  idle_removed             the difference, which is what "GPU wait removed" is meant to be
  idle_between             lower bound, idle_removed, upper bound, as for the stopwatch
  idle_estimate_off        |estimate - idle_removed|, with the same goal as against the stopwatch

slow_source waits for the loss of each step, asynchronous does not, watched is slow_source under clairfs.watch, whose numbers are
there too. compute_bound has larger images and a faster source, so that hardly anything but the first batches is waited for; in null
even these are less than a hundredth of the epochs. With the small network of prep_bound decoding is slower than the GPU, so it waits
through the mount as well.

The mount gives the job more to do in less time. Where the CPUs are busy then, steps take longer, and the stopwatch shows less than the
GPU: that is not wait, and no number claims it.
"""
import os

import benchlib
import benchremoved

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_gpu.py")
HAS_GPU = "import torch; torch.zeros(1, device='cuda'); import torchvision"


class Scenario(benchremoved.Scenario):
    """latency of the source in ms; job: more arguments of it; more: as there."""
    bench = "gpu"

    def __init__(self, name, latency, job, model="wide_resnet50_2", files=6144, side=224, batch=128, **more):
        super().__init__(name, latency, None, None, share="1/64", files=files, ram="2G", batch=batch, workers=12, **more)
        self.shape, self.job = ["--model", model, "--side", side], list(job)

    def made_smaller(self, size):
        if size.is_smoke:
            self.files, self.batch, self.workers = size.gpu_files, 8, 2
            self.shape = ["--model", "tiny", "--device", "cpu", "--side", 32]

    def dataset(self, bench):
        path = f"{bench.temp}/images{self.files}"
        if not os.path.isdir(path):
            benchlib.run(bench.args.torch_python, JOB, path, "--make", self.files, "--width", 64 if bench.size.is_smoke else 448)
        return path

    def argv(self, bench, root, listed, past):
        return [bench.args.torch_python, JOB, root, "--list-from", listed, "--epochs", self.epochs, "--batch", self.batch,
                "--workers", self.workers, *self.shape, *self.job]

    def emit_more(self, bench, rounds):
        """What the GPU saw, and what the hook adds."""
        idle, steps = self.sums("idle_seconds"), self.sums("steps")
        first, removed = self.rows[0][0][0], [direct - mount for direct, mount in idle]
        for side, where in enumerate(("direct", "mount")):
            walls = [one[side] for one in rounds]
            bench.emit(f"{self.label}_idle_{where}", "% of the epochs", [100 * i[side] / wall for i, wall in zip(idle, walls)],
                       ms_of_step=[round(1000 * (wall - i[side]) / n[side], 2) for i, n, wall in zip(idle, steps, walls)],
                       alone_ms=first["step_ms"], device=first["device"], torch=first["torch"])
        bench.emit(f"{self.label}_idle_removed", "s", removed)
        self.emit_off_idle(bench, rounds, removed)
        self.emit_ways(bench, [said for _, _, said, _ in rounds])

    def sums(self, key):
        """Of the epochs of both sides, for each round."""
        return [tuple(sum(epoch[key] for epoch in side) for side in sides) for sides in self.rows]

    def emit_off_idle(self, bench, rounds, removed):
        told = [(wall, said, gone) for (_, wall, said, _), gone in zip(rounds, removed)
                if benchremoved.about(said) is not None and not benchremoved.is_refused(said, self)]
        if not told:
            return
        inside = sum(benchremoved.is_between(said, gone, wall) for wall, said, gone in told)
        bench.emit(f"{self.label}_idle_between", "% of rounds", [100 * inside / len(told)], goal=(">=", 100), runs=len(told))
        if not self.is_null:
            self.emit_off(bench, "idle_estimate_off", [(benchremoved.about(said), gone, wall) for wall, said, gone in told])

    def emit_ways(self, bench, said):
        """The estimate by both ways, and what the job itself told of its wait."""
        ranks = [one["ranks"][0] for one in said if one["ranks"]]
        stall = self.sums("stall_seconds")
        bench.emit(f"{self.label}_in_next_removed", "s", [direct - mount for direct, mount in stall])
        for key in ("replay", "hook") if "--watch" in self.job and ranks else ():
            bench.emit(f"{self.label}_by_{key}", "s", [one[f"removed_{key}_seconds"] for one in ranks])
        if "--watch" in self.job and ranks:
            bench.emit(f"{self.label}_told_wait", "s", [one["gpu_wait_seconds"] for one in ranks],
                       in_next=[round(mount, 3) for _, mount in stall], compute=[round(one["compute_seconds"], 3) for one in ranks])


SCENARIOS = [
    Scenario("slow_source", 10, ["--sync"]),
    Scenario("compute_bound", 2, ["--sync"], files=3072, side=320, is_small=True),
    Scenario("null", 1, ["--sync"], files=16384, side=320, batch=64, is_null=True),
    Scenario("watched", 10, ["--sync", "--watch"]),
    Scenario("asynchronous", 10, []),
    Scenario("prep_bound", 10, ["--sync"], model="resnet50"),
]
SMOKE = ("watched",)  # has all lines


def run(bench):
    if not bench.size.is_smoke:
        try:
            benchlib.run(bench.args.torch_python, "-c", HAS_GPU)
        except benchlib.Failed as error:
            raise benchlib.Failed(f"{bench.args.torch_python} has no GPU with CUDA, or no torchvision: {str(error).splitlines()[-1]}") from None
    benchremoved.run(bench, SCENARIOS, SMOKE)
