# SPDX-License-Identifier: Apache-2.0
"""The Python module with the real PyTorch: which samplers become a spec, that the others are followed from their first
sample on, and that a job reads exactly what it would read without clairfs."""
import json
import os

import mountkit
import tap
from mountkit import good, write_file

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
PACKAGE = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
SAMPLES = 600
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "CLAIRFS_ORDER"):
    os.environ.pop(name, None)

JOB = r"""
import json, sys, warnings
point, package, case, told, names = sys.argv[1:6]
sys.path.insert(0, package)
import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler,
                              Subset, SubsetRandomSampler, WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler
import clairfs
warnings.simplefilter("error")
with open(names) as f:
    paths = json.load(f)

class Files(Dataset):
    root = point
    def __len__(self):
        return len(paths)
    def __getitem__(self, i):
        with open(f"{point}/{paths[i]}", "rb") as f:
            f.read()
        return i

class Backwards(Sampler):
    def __len__(self):
        return len(paths)
    def __iter__(self):
        return iter(range(len(paths) - 1, -1, -1))

class Pairs:
    def __len__(self):
        return 200
    def __iter__(self):
        return iter([[i, (i * 7 + 1) % 600] for i in range(200)])

class Derived(DistributedSampler):
    def __iter__(self):
        return reversed(list(super().__iter__()))

class Endless(IterableDataset):
    def __iter__(self):
        return iter(range(10))

files = Files()
common = dict(batch_size=8, num_workers=2)

def generator(seed):
    g = torch.Generator()
    g.manual_seed(seed)
    return g

def loader_of(case):
    if case == "sequential":
        return DataLoader(files, **common)
    if case == "distributed":
        return DataLoader(files, sampler=DistributedSampler(files, 2, 1, seed=5), prefetch_factor=3, **common)
    if case == "distributed-resumed":
        sampler = DistributedSampler(files, 7, 3, shuffle=False, drop_last=True, seed=1)
        sampler.set_epoch(4)
        return DataLoader(files, sampler=sampler, batch_size=4)
    if case == "torchrun":
        return DataLoader(files, sampler=DistributedSampler(files, 4, 3), **common)
    if case == "derived":
        return DataLoader(files, sampler=Derived(files, 2, 0), **common)
    if case == "shuffle":
        return DataLoader(files, shuffle=True, **common)
    if case == "persistent":
        return DataLoader(files, shuffle=True, persistent_workers=True, **common)
    if case == "generator":
        return DataLoader(files, shuffle=True, generator=generator(3), **common)
    if case == "replacement":
        return DataLoader(files, sampler=RandomSampler(files, True, 500, generator=generator(4)), **common)
    if case == "weighted":
        return DataLoader(files, sampler=WeightedRandomSampler([1.0 + i % 3 for i in range(600)], 400), **common)
    if case == "subset-random":
        return DataLoader(files, sampler=SubsetRandomSampler(range(100, 500)), **common)
    if case == "backwards":
        return DataLoader(files, sampler=Backwards(), **common)
    if case == "pairs":
        return DataLoader(files, batch_sampler=Pairs(), num_workers=2)
    if case == "no-batches":
        return DataLoader(files, batch_size=None, shuffle=True, num_workers=2)
    if case == "subset":
        return DataLoader(Subset(Subset(files, range(599, 99, -1)), range(0, 500, 2)), shuffle=True, **common)
    if case == "endless":
        return DataLoader(Endless())
    if case == "too-few":
        return DataLoader(torch.arange(599), shuffle=True)

torch.manual_seed(42)
loader = loader_of(case)
answer = {}
if told == "told":
    try:
        answer["spec"] = clairfs.announce(loader, point)
    except clairfs.AnnounceError as e:
        answer["error"] = str(e)
if not answer.get("error"):
    answer["epochs"] = []
    for epoch in range(2 if case != "endless" else 0):
        if hasattr(loader.sampler, "set_epoch") and case != "distributed-resumed":
            loader.sampler.set_epoch(epoch)
        read = [int(i) for batch in loader for i in (batch if torch.is_tensor(batch) and batch.dim() else [batch])]
        answer["epochs"].append(read)
    answer["after"] = torch.rand(1).item()
print(json.dumps(answer))
"""


def job(point, place, case, told, **env):
    """One job in a process of its own; what it read, and what it was told."""
    done = mountkit.program(PYTHON, "-c", JOB, point, PACKAGE, case, told, place.path("paths"), timeout=600,
                            env={**os.environ, **env})
    if done.code:
        raise mountkit.Failed(f"{case}: {done}")
    return json.loads(done.out)


def prepare(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    for i in range(SAMPLES):
        write_file(f"{place.source}/c{i % 2}/s{i:04}", b"%d" % i * 50)
    paths = [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]
    write_file(place.path("paths"), json.dumps(paths).encode())


def samplers(place):
    specs = {
        "sequential": "sequential:batch=8:workers=2:prefetch_factor=2",
        "distributed": "torch-distributed:seed=5:world=2:rank=1:batch=8:workers=2:prefetch_factor=3",
        "distributed-resumed": "torch-distributed:seed=1:world=7:rank=3:shuffle=0:drop_last=1:start_epoch=4:batch=4",
    }
    lists = ("derived", "shuffle", "persistent", "generator", "replacement", "weighted", "subset-random", "backwards", "pairs",
             "no-batches", "subset")
    prepare(place)
    with place.mount() as mount:
        for case in (*specs, *lists):
            plain, told = job(place.source, place, case, "plain"), job(mount.mountpoint, place, case, "told")
            tap.equal(told.get("spec"), specs.get(case, "list"), f"{case}: what is announced")
            tap.ok(plain.get("epochs") and told.get("epochs") == plain["epochs"], f"{case}: the job reads the same", told, plain)
            tap.equal(told.get("after"), plain.get("after"), f"{case}: the random generator is where it would be")
            mount.wait_for(lambda s: s["order"]["state"] in ("following", "finished"), f"{case}: is followed")


def computed_alike(place):
    """What the spec means to the mount is what the sampler gave."""
    prepare(place)
    with place.mount() as mount:
        told = job(mount.mountpoint, place, "distributed", "told")
    for epoch, read in enumerate(told["epochs"]):
        order = good("order", told["spec"], "--n", SAMPLES, "--epoch", epoch).split()
        tap.equal([int(i) for i in order], read, f"epoch {epoch} of the spec is what was read")


def torchrun(place):
    prepare(place)
    env = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    spec = "torch-distributed:seed=0:world=4:ranks=2-3:batch=8:workers=2:prefetch_factor=2"
    with place.mount() as mount:
        tap.equal(job(mount.mountpoint, place, "torchrun", "told", **env).get("spec"), spec, "a node's spec has all its ranks")
        tap.equal(mount.stats()["order"]["state"], "no_order", "the second process of a node leaves it to the first")
        told = job(mount.mountpoint, place, "torchrun", "told", **{**env, "LOCAL_RANK": "0", "RANK": "2"})
        tap.ok(told["spec"].endswith(":rank=3:batch=8:workers=2:prefetch_factor=2"), "a sampler of another rank is its own", told)
        told = job(mount.mountpoint, place, "shuffle", "told", **env)
        tap.ok("several processes" in told.get("error", ""), "a list of one process of several is refused", told)


def refused(place):
    prepare(place)
    with place.mount() as mount:
        told = job(mount.mountpoint, place, "endless", "told")
        tap.ok("error" in told, "what has no end is refused", told)
        told = job(mount.mountpoint, place, "too-few", "told")
        tap.equal(told.get("error"), "the dataset has 599 samples, the mount 600: their numbers are not the same",
                  "other files than the mount's are refused")
    told = job("/tmp", place, "shuffle", "told")
    tap.equal(told.get("error"), "/tmp: not a clairfs mount that takes orders", "no mount, no announcing")


mountkit.run(samplers, computed_alike, torchrun, refused)
