# SPDX-License-Identifier: Apache-2.0
"""clairfs.watch and clairfs.DataLoader with the real PyTorch: a job reads what it would read without them, in whatever way
it uses its loaders, and the mount hears of every step."""
import json
import os

import mountkit
import tap

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
PACKAGE = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
SAMPLES = 64
KEPT = 7  # loaders that were used before
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID",
             "TORCHELASTIC_RUN_ID", "CLAIRFS_STEPS_FILE", "CLAIRFS_ORDER"):
    os.environ.pop(name, None)

JOB = r"""
import copy, json, pickle, sys
point, package, how = sys.argv[1:4]
sys.path.insert(0, package)
import clairfs
assert "torch" not in sys.modules
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Files(Dataset):
    root = point
    def __len__(self):
        return 64
    def __getitem__(self, i):
        if i == 1000:
            raise ValueError("no such sample")
        with open(f"{point}/s{i:05}.bin", "rb") as f:
            f.read()
        return {"number": i, "words": [str(i)]}

class Stream(IterableDataset):
    root = point
    def __iter__(self):
        return iter(range(10))

def loader(*arguments, **keys):
    if how == "plain":
        return DataLoader(*arguments, **keys)
    if how == "class":
        return clairfs.DataLoader(*arguments, **keys)
    return clairfs.watch(DataLoader(*arguments, **keys))

def flat(batch):
    return batch["number"].tolist() + list(batch["words"][0]) if isinstance(batch, dict) else batch.tolist()

torch.manual_seed(7)
files, seen, loaders = Files(), [], []
def use(name, made, limit=None):
    loaders.append(made)
    read = []
    for i, batch in enumerate(made):
        if i == limit:
            break
        read.append(flat(batch))
    try:
        length = len(made)
    except TypeError:
        length = "none"
    seen.append([name, length, read])

use("epoch", loader(files, batch_size=8, shuffle=True, num_workers=2))
use("again", loaders[0])
use("no workers", loader(files, batch_size=5, shuffle=True, drop_last=True))
use("left early", loader(files, batch_size=4, shuffle=True, num_workers=2, persistent_workers=True), 3)
use("from the start again", loaders[-1], 5)
use("a stream", loader(Stream(), batch_size=3))
train, check = loader(files, batch_size=8, num_workers=1), loader(files, batch_size=16)
loaders += [train, check]
for batch in train:
    seen.append(["train", flat(batch)])
    if batch["number"][0] == 16:
        seen.append(["check", [flat(b) for b in check]])
both = loader(files, batch_size=16)
loaders.append(both)
for a, b in zip(both, both):
    seen.append(["two at once", flat(a), flat(b)])
loaders.append(loader(files, batch_size=8, num_workers=1))
sample = iter(loaders[-1])  # to look at, and kept
loaders.append(loader(files, batch_size=8, shuffle=True, num_workers=2))
seen.append(["kept", flat(next(sample))])
for _ in range(2):
    seen.append(["an epoch after it", [flat(b) for b in loaders[-1]]])
bad = loader(files, sampler=[1, 1000, 2], num_workers=1)
loaders.append(bad)
try:
    for batch in bad:
        seen.append(["before it fails", flat(batch)])
except ValueError as e:
    seen.append(["fails", type(e).__name__, "no such sample" in str(e)])
copied = copy.deepcopy(loader(files, batch_size=32, num_workers=0))
use("copied", copied)
use("pickled", pickle.loads(pickle.dumps(loader(Stream(), batch_size=5))))
made = loader(files, batch_size=8, prefetch_factor=3, num_workers=1)
seen.append(["attributes", made.batch_size, made.prefetch_factor, made.num_workers, isinstance(made, DataLoader) or how == "watch"])
del batch, train, check, both, a, b
out = {"seen": seen, "after": torch.rand(1).item()}
if how != "plain":
    out["wait"] = sum({id(made): made.summary()["wait_seconds"] for made in loaders}.values())
    out["steps"] = sum({id(made): made.summary()["steps"] for made in loaders}.values())
print(json.dumps(out))
"""


def job(place, point, how, **env):
    done = mountkit.program(PYTHON, "-W", "error", "-c", JOB, point, PACKAGE, how, timeout=600, env={**os.environ, **env})
    if done.code:
        raise mountkit.Failed(f"{how}: {done}")
    return json.loads(done.out)


def jobs(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    place.files([100] * SAMPLES)
    plain = job(place, place.source, "plain")
    tap.ok(len(plain["seen"]) > 15, "the job does what it is written for", plain)
    for how, env, rank, world, name in (
            ("watch", {"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "9", "SLURM_JOB_ID": "77"}, 3, 8, "77"),
            ("class", {}, 0, 1, "")):
        with place.mount() as mount:
            told = job(place, mount.mountpoint, how, **env)
            tap.equal(told["seen"], plain["seen"], f"{how}: the job reads the same, in the same order")
            tap.equal(told["after"], plain["after"], f"{how}: the random generator is where it would be")
            stats = mount.stats()
            tap.equal(len(stats["hook"]["ranks"]), 1, f"{how}: one rank was heard of")
            heard = stats["hook"]["ranks"][0]
            tap.equal((heard["rank"], heard["world"], stats["hook"]["job"]), (rank, world, name), f"{how}: which, and of what job")
            tap.equal(heard["steps"], told["steps"], f"{how}: every step was told")
            tap.ok(abs(heard["wait_seconds"] - told["wait"]) < 1e-6, f"{how}: and how long it waited", heard, told["wait"])
            tap.equal((stats["counters"]["hook_refused"], stats["counters"]["hook_lost"]), (0, 0), f"{how}: all of it was good")
    job(place, place.source, "watch", CLAIRFS_STEPS_FILE=place.path("steps"))
    flags = {}
    for flag, loader, *_ in mountkit.steps_in(place.path("steps")):
        flags.setdefault(loader, []).append(bool(flag & 4))
    tap.ok(any(all(one) for one in flags.values()), "the validation is within the steps of the training", flags)
    tap.equal(len(flags[KEPT]), 1, "of the iterator that is kept there is one step")
    tap.equal(flags[KEPT + 1], [False] * 16, "and the epochs after it are not within that")
    told = job(place, place.source, "class")
    tap.equal(told["seen"], plain["seen"], "without a mount it reads the same")
    tap.ok(told["steps"] > 0, "and has its own sums", told["steps"])


mountkit.run(jobs)
