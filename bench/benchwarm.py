# SPDX-License-Identifier: Apache-2.0
"""A source that is in the page cache already, 4 workers of the real PyTorch, no compute: there is no wait to remove, so what the
mount costs is all that shows. Samples per second of each epoch on the mount over those without it, with the order told and with
no configuration. The epochs of the three sides are in one round, which begins with another side each time; a side begins with an
epoch of its own that does not count (imports, names of files looked up for the first time, the order being found)."""
import json
import os
import statistics

import benchlib

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")
FILE_BYTES = 110 * 1024
SEED = 42


def make_dataset(path, files):
    data = os.urandom(FILE_BYTES)
    for i in range(files):
        folder = f"{path}/class{i // 500:03d}"
        if i % 500 == 0:
            os.makedirs(folder)
        with open(f"{folder}/{i:06d}.png", "wb") as file:
            file.write(data)


def epochs(bench, root, data):
    """Samples per second: the median of all epochs but the first."""
    out = benchlib.run(bench.args.torch_python, "-W", "ignore", JOB, root, "--list-from", data, "--epochs", bench.size.warm_epochs,
                       "--workers", 4, "--compute-ms", 0, "--seed", SEED)
    return statistics.median(json.loads(line)["samples_per_s"] for line in out.splitlines()[1:])


def run(bench):
    data = f"{bench.temp}/data-warm"
    make_dataset(data, bench.size.warm_files)

    def direct():
        return epochs(bench, data, data)

    def mounted(**options):
        with bench.mount(data, ram="1G", **options) as mount:
            return epochs(bench, mount.mountpoint, data)

    spec = f"torch-distributed:seed={SEED}:world=1:rank=0:batch=16:workers=4:prefetch_factor=2"
    sides = {"direct": direct, "told": lambda: mounted(order=spec), "untold": mounted}
    found = {name: [] for name in sides}
    for r in range(bench.rounds):
        benchlib.touch_memory()
        names = list(sides)[r % 3:] + list(sides)[:r % 3]
        for name in names:
            found[name].append(sides[name]())
    for name, least in (("told", 0.95), ("untold", 0.85)):
        bench.emit(f"warm_{name}", "x direct", [a / b for a, b in zip(found[name], found["direct"])], goal=(">=", least),
                   samples_per_s=round(statistics.median(found[name]), 1), direct=round(statistics.median(found["direct"]), 1))
