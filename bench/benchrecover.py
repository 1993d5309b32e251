# SPDX-License-Identifier: Apache-2.0
"""Orders nobody told: three jobs of the real PyTorch on mounts without any configuration.

Each reads 10^5 files (a smoke run fewer) by 4 loader workers. What is measured is how much of the first epoch was opened before the order was
followed (the time of the search is in it, at the job's own pace), how many of the reads after that were served by the
kernel, and what the search cost. The arbitrary seed needs a long epoch: all seeds take minutes of a core.
"""
import json
import os
import subprocess
import threading
import time

import benchlib
from benchlib import Failed

FILE_BYTES = 2048
BATCH, WORKERS = 32, 4
JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")
# name, arguments of the job, milliseconds a batch takes
SCENARIOS = [
    ("distributed", ["--seed", "0"], 15),
    ("manual_seed", ["--manual-seed", "42"], 15),
    ("arbitrary", ["--manual-seed", "3456789012"], 170),
]
SMOKE = ("distributed", "manual_seed")  # the search of all seeds takes minutes of a core


def make_dataset(path, files):
    for i in range(files):
        folder = f"{path}/class{i // 1000:03d}"
        if i % 1000 == 0:
            os.makedirs(folder)
        with open(f"{folder}/{i:06d}.png", "wb") as file:
            file.write(i.to_bytes(8, "little") * (FILE_BYTES // 8))


class Watcher(threading.Thread):
    """Looks at the mount until the order is followed, and notes what was opened until then."""

    def __init__(self, mount):
        super().__init__(daemon=True)
        self.mount, self.is_over, self.found, self.said = mount, threading.Event(), None, []

    def run(self):
        while not self.is_over.wait(0.02):
            stats = self.mount.stats()
            search = stats["order"]["search"]
            if search["is_full"] and search["seconds_left"]:
                self.said.append(search["doing"])
            if stats["order"]["state"] == "following":
                self.found = stats
                return


def served(stats):
    reads = {name: one["reads"] for name, one in stats["reads"].items()}
    return reads, sum(reads.values())


def run_job(bench, mount, data, arguments, compute_ms):
    watcher = Watcher(mount)
    watcher.start()
    command = [bench.args.torch_python, "-W", "ignore", JOB, mount.mountpoint, "--list-from", data, "--epochs", "1",
               "--batch", BATCH, "--workers", WORKERS, "--compute-ms", compute_ms, *arguments]
    begin = time.monotonic()
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    seconds = time.monotonic() - begin
    watcher.is_over.set()
    watcher.join()
    if done.returncode:
        raise Failed(done.stderr.decode().strip()[-500:])
    return watcher, json.loads(done.stdout.splitlines()[-1]), seconds


def scenario(bench, data, name, arguments, compute_ms):
    options = {"debug": {"recover_threads": os.cpu_count()}} if name == "arbitrary" else {}
    with bench.mount(data, ram="512M", **options) as mount:
        watcher, epoch, _ = run_job(bench, mount, data, arguments, compute_ms)
        mount.settled()
        end = mount.stats()
    if not watcher.found and bench.size.is_smoke:  # an epoch of moments may be over before anybody has looked
        return bench.emit(f"recover_{name}", "% of the epoch until followed", [100], opens=end["counters"]["sample_opens"])
    if not watcher.found:
        raise Failed(f"{name}: the order was not followed: {end['order']}")
    before, n_before = served(watcher.found)
    after, n_after = served(end)
    staged = (after["staged"] - before["staged"]) / max(n_after - n_before, 1)
    opens = watcher.found["counters"]["sample_opens"]
    bench.emit(f"recover_{name}", "% of the epoch until followed", [100 * opens / bench.size.recover_files], opens=opens,
               found_after=end["order"]["search"]["found_after_opens"], staged_after=round(100 * staged, 2),
               samples_per_s=epoch["samples_per_s"], search_core_s=round(end["order"]["search"]["cpu_seconds"], 2),
               spec=end["order"]["search"]["found"], said=watcher.said[len(watcher.said) // 2:][:1])


def run(bench):
    data = f"{bench.temp}/data-recover"
    make_dataset(data, bench.size.recover_files)
    for name, arguments, compute_ms in SCENARIOS:
        if bench.wants_scenario(name, SMOKE):
            benchlib.drop_caches()
            scenario(bench, data, name, arguments, compute_ms)
