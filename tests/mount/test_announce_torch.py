# SPDX-License-Identifier: Apache-2.0
"""The Python module with the real PyTorch: which samplers become a spec, that the others are followed from their first
sample on, and that a job reads exactly what it would read without clairfs."""
import json
import os
import re

import mountkit
import tap
from mountkit import good, write_file

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
PACKAGE = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
SAMPLES = 600
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID",
             "CLAIRFS_ORDER"):
    os.environ.pop(name, None)

JOB = r"""
import json, os, sys, time, warnings
point, package, case, told, names = sys.argv[1:6]
sys.path.insert(0, package)
import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, Sampler, SequentialSampler,
                              Subset, SubsetRandomSampler, WeightedRandomSampler)
from torch.utils.data.distributed import DistributedSampler
import clairfs
warnings.simplefilter("default" if case.startswith(("stateful", "accelerate", "lightning")) else "error")
with open(names) as f:
    paths = json.load(f)

class Files(Dataset):
    root = point
    def __init__(self, paths):
        self.names = paths
    def __len__(self):
        return len(self.names)
    def __getitem__(self, i):
        with open(f"{point}/{self.names[i]}", "rb") as f:
            f.read()
        return i

class Folder(Files):  # says its files, as torchvision's ImageFolder does
    def __init__(self, paths):
        super().__init__(paths)
        self.samples = [(f"{point}/{p}", 0) for p in paths]

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

files = Files(paths)
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
    if case == "folder":
        return DataLoader(Folder(paths), sampler=DistributedSampler(files, 2, 1, seed=5), **common)
    if case == "folder-other-sort":
        return DataLoader(Folder(paths[::-1]), sampler=DistributedSampler(files, 2, 1, seed=5), **common)
    if case == "folder-first-rank":
        return DataLoader(Folder(paths[::-1]), sampler=DistributedSampler(files, 2, 0, seed=5), **common)
    if case == "folder-part":
        part = Folder(paths[100:350])
        return DataLoader(part, shuffle=True, generator=generator(3), **common)
    if case == "folder-elsewhere":
        other = Folder(paths)
        other.samples = [(__file__ if "__file__" in globals() else "/etc/passwd", 0)] * len(paths)
        return DataLoader(other, shuffle=True)
    if case == "generator-sampler":
        return DataLoader(files, sampler=RandomSampler(files, generator=generator(6)), **common)
    if case == "generator-both":
        return DataLoader(files, shuffle=True, generator=generator(7), persistent_workers=True, **common)
    if case == "generator-used":
        used = generator(8)
        torch.rand(1, generator=used)
        return DataLoader(files, shuffle=True, generator=used, **common)
    if case == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader
        return StatefulDataLoader(files, shuffle=True, generator=generator(9), **common)
    if case == "stateful-plain":
        from torchdata.stateful_dataloader import StatefulDataLoader
        return StatefulDataLoader(files, shuffle=True, **common)
    if case.startswith("accelerate"):
        from accelerate import Accelerator
        from accelerate.data_loader import prepare_data_loader
        if case == "accelerate-two":
            return prepare_data_loader(DataLoader(files, shuffle=True, **common), num_processes=2, process_index=1,
                                       put_on_device=False, use_seedable_sampler=True, data_seed=17)
        if case == "accelerate-plain":
            return Accelerator(cpu=True).prepare(DataLoader(files, shuffle=True, **common))
        return prepare_data_loader(DataLoader(files, shuffle=True, **common), put_on_device=False,
                                   use_seedable_sampler=True, data_seed=17)
    if case.startswith("lightning"):
        return DataLoader(files, shuffle=True, batch_size=8,
                          generator=generator(3) if case == "lightning-generator" else None)

def lightning_epochs(loader):
    import logging
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning
    warnings.simplefilter("ignore")
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight, self.read = torch.nn.Parameter(torch.zeros(1)), []
        def on_train_epoch_start(self):
            self.read.append([])
        def training_step(self, batch, _):
            self.read[-1] += [int(i) for i in batch]
            return self.weight.sum()
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)
    model = Model()
    lightning.Trainer(max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False).fit(model, loader)
    return model.read

def followed():  # what the mount makes of it, as soon as that is good
    end = time.monotonic() + 100
    while True:
        with open(f"{point}/.clairfs/stats.json") as f:
            state = json.load(f)["order"]["state"]
        if state in ("following", "finished") or time.monotonic() > end:
            return state
        time.sleep(0.01)

def plain_epochs(loader):
    epochs = []
    for epoch in range(2 if case != "endless" else 0):
        if hasattr(loader.sampler, "set_epoch") and case != "distributed-resumed":
            loader.sampler.set_epoch(epoch)
        epochs.append([int(i) for batch in loader for i in (batch if torch.is_tensor(batch) and batch.dim() else [batch])])
    return epochs

for case in case.split(","):
    torch.manual_seed(42)
    loader = loader_of(case)
    answer = {}
    if told == "told":
        try:
            answer["spec"] = clairfs.announce(loader, point)
        except clairfs.AnnounceError as e:
            answer["error"] = str(e)
    if not answer.get("error"):
        answer["epochs"] = (lightning_epochs if case.startswith("lightning") else plain_epochs)(loader)
        answer["after"] = torch.rand(1).item()
        if told == "told" and os.environ.get("LOCAL_RANK", "0") == "0":  # else it has told nothing
            answer["state"] = followed()
    print(json.dumps(answer))
"""


def jobs_of(point, place, cases, told, **env):
    """Jobs, one after the other in a process of its own; what each has read, and what it was told."""
    done = mountkit.program(PYTHON, "-c", JOB, point, PACKAGE, ",".join(cases), told, place.path("paths"), timeout=600,
                            env={**os.environ, **env})
    if done.code:
        raise mountkit.Failed(f"{cases}: {done}")
    return [json.loads(line) for line in done.out.splitlines()]


def job(point, place, case, told, **env):
    return jobs_of(point, place, [case], told, **env)[0]


def prepare(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    for i in range(SAMPLES):
        write_file(f"{place.source}/c{i % 2}/s{i:04}", b"%d" % i * 50)
    paths = [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]
    write_file(place.path("paths"), json.dumps(paths).encode())


def check(place, mount, specs):
    """Each case with a mount that is told and without one: the same samples, and what was told is right."""
    plain = jobs_of(place.source, place, specs, "plain")
    for case, before, told in zip(specs, plain, jobs_of(mount.mountpoint, place, specs, "told")):
        tap.equal(told.get("spec"), specs[case], f"{case}: what is announced")
        tap.ok(before.get("epochs") and told.get("epochs") == before["epochs"], f"{case}: the job reads the same", told, before)
        if not case.startswith("lightning"):  # it draws for itself
            tap.equal(told.get("after"), before.get("after"), f"{case}: the random generator is where it would be")
        tap.ok(told.get("state") in ("following", "finished"), f"{case}: is followed", told.get("state"))
        if told.get("spec") not in (None, "list"):
            follows_spec(case, told)


def follows_spec(case, told):
    """What the spec means to the mount is what the sampler gave."""
    words = dict(w.split("=") for w in told["spec"].split(":")[1:])
    first = int(words.get("start_epoch", 0))
    for epoch, read in enumerate(told["epochs"]):
        number = first + (0 if case == "distributed-resumed" else epoch)
        order = good("order", told["spec"], "--n", SAMPLES, "--epoch", number).split()
        tap.equal([int(i) for i in order], read, f"{case}: epoch {number} of the spec is what was read")


SHAPE = ":batch=8:workers=2:prefetch_factor=2"


def known_samplers(place):
    prepare(place)
    with place.mount() as mount:
        check(place, mount, {
            "sequential": "sequential" + SHAPE,
            "distributed": "torch-distributed:seed=5:world=2:rank=1:batch=8:workers=2:prefetch_factor=3",
            "distributed-resumed": "torch-distributed:seed=1:world=7:rank=3:shuffle=0:drop_last=1:start_epoch=4:batch=4",
            "folder": "torch-distributed:seed=5:world=2:rank=1" + SHAPE,
            "generator": "torch-generator:seed=3" + SHAPE,
            "generator-sampler": "torch-generator:seed=6:sampler_only=1" + SHAPE,
            "generator-both": "torch-generator:seed=7:persistent=1" + SHAPE,
            "replacement": "torch-generator:seed=4:sampler_only=1:replacement=1:num_samples=500" + SHAPE,
        })


def lists(place):
    prepare(place)
    cases = ("derived", "shuffle", "persistent", "generator-used", "weighted", "subset-random", "backwards", "pairs",
             "no-batches", "subset")
    with place.mount() as mount:
        check(place, mount, {case: "list" for case in cases})


def frameworks(place):
    prepare(place)
    with place.mount() as mount:
        check(place, mount, {
            "stateful": "torchdata-loader:seed=9:generator=1" + SHAPE,
            "accelerate": "accelerate:seed=17" + SHAPE,
            "accelerate-two": "accelerate:seed=17:world=2:rank=1" + SHAPE,
            "accelerate-plain": "list",
            "lightning": "list",
            "lightning-generator": "list",
        })
        told = job(mount.mountpoint, place, "stateful-plain", "told")
        tap.ok("generator of its own" in told.get("error", ""), "a StatefulDataLoader that counts is left alone", told)


def other_numbers(place):
    """The dataset's numbers are not the mount's: its paths say what is meant."""
    prepare(place)
    with place.mount() as mount:
        plain = job(place.source, place, "folder-other-sort", "plain")
        told = job(mount.mountpoint, place, "folder-other-sort", "told")
        tap.equal((told.get("spec"), told.get("epochs")), ("list", plain["epochs"]), "files sorted otherwise are translated")
        mount.wait_for(lambda s: s["order"]["state"] == "finished", "translated numbers are followed")
        tap.equal(mount.counters()["order_mismatches"], 0, "every read was expected")
        told = job(mount.mountpoint, place, "folder-part", "told")
        tap.equal(told.get("spec"), "list", "a part of the mount's files is a list")
        mount.wait_for(lambda s: s["order"]["state"] == "finished" and s["order"]["epoch"]["length"] == 250,
                       "which is followed")
        tap.equal(mount.counters()["order_mismatches"], 0, "and expected")
        told = job(mount.mountpoint, place, "folder-elsewhere", "told")
        tap.ok("is not in the mount" in told.get("error", ""), "files that are elsewhere are refused", told)
        # The first process of a node whose second one has this sampler: it speaks for both.
        ranks = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
        job(mount.mountpoint, place, "folder-first-rank", "told", **ranks)
        tap.equal(mount.stats()["order"]["epoch"]["length"], SAMPLES, "one process announces what all of its node read")


PARTS = r"""
import json, os, sys
point, package = sys.argv[1:]
sys.path.insert(0, package)
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset
from torch.utils.data.distributed import DistributedSampler
import torch, clairfs
os.chdir(point)

class Folder(Dataset):  # as torchvision's ImageFolder; classes may be in another order
    def __init__(self, root, reverse=False):
        self.root, self.samples = root, []
        for name in sorted(os.listdir(root), reverse=reverse):
            for folder, _, files in sorted(os.walk(os.path.join(root, name))):
                self.samples += [(os.path.join(folder, f), 0) for f in sorted(files)]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, i):
        with open(self.samples[i][0], "rb") as f:
            f.read()
        return i

class Files(Dataset):  # a sorted list of paths
    def __init__(self, root):
        self.files = sorted(os.path.join(folder, f) for folder, _, files in os.walk(root) for f in files)
    def __len__(self):
        return len(self.files)

def jobs():
    with open(f"{point}/.clairfs/stats.json") as f:
        return [job["spec"] for job in json.load(f)["jobs"]]

def seeded(dataset):
    return DataLoader(dataset, batch_size=8, sampler=RandomSampler(dataset, generator=torch.Generator().manual_seed(3)))

train, val = Folder(f"{point}/train"), Folder("val")
first = DataLoader(train, batch_size=8, sampler=DistributedSampler(train, 2, 0))
second = DataLoader(val, batch_size=4)
out = [clairfs.announce(first), clairfs.announce(second), jobs()]
third = DataLoader(train, batch_size=16)
out += [clairfs.announce(third), jobs()]
del second
fourth = DataLoader(Folder("val"), batch_size=2)
out += [clairfs.announce(fourth), jobs(), clairfs.announce("none:job=" + jobs()[1].split("job=")[1], point)]
del first, third, fourth
for dataset in Files(f"{point}/train"), Folder("train", reverse=True), Folder("extra"), Subset(train, range(50, 100)):
    loader = seeded(dataset)
    out.append(clairfs.announce(loader))
    if out[-1] == "list":
        next(iter(loader))
        out.append(jobs())
try:
    clairfs.announce(seeded(Folder("mixed")))
except clairfs.AnnounceError as e:
    out.append(str(e))
print(json.dumps(out))
"""


def parts_of_the_mount(place):
    """Datasets that are one directory of the mount, and such that are not quite."""
    for i in range(200):
        write_file(f"{place.source}/train/c{i % 3}{'/deep' if i % 7 == 0 else ''}/s{i:04}.jpg", b"%d" % i * 50)
        write_file(f"{place.source}/{'val' if i % 2 else 'extra'}/c{i % 2}-x/s{i:04}.jpg", b"%d" % i * 20)
    write_file(f"{place.source}/extra/labels.csv", b"1,2")
    write_file(f"{place.source}/mixed/c/1.jpg", b"2")
    write_file(f"{place.source}/mixed/c/readme.txt", b"text")
    with place.mount() as mount:
        done = mountkit.program(PYTHON, "-W", "error", "-c", PARTS, mount.mountpoint, PACKAGE, timeout=600)
        if done.code:
            raise mountkit.Failed(str(done))
        out = json.loads(done.out)
        train = "torch-distributed:world=2:rank=0:batch=8:sort=torchvision:under=train"
        tap.equal(out[0], train, "an image folder that is one directory")
        tap.ok(re.fullmatch(r"sequential:batch=4:sort=torchvision:under=val:job=loader-[0-9a-f]{8}", out[1]), "and another", out[1])
        tap.equal(out[2], [train, out[1]], "are two orders side by side")
        tap.equal((out[3], out[4]), ("sequential:batch=16:sort=torchvision:under=train", [out[3], out[1]]),
                  "a second loader of one of them takes the place of the first")
        tap.equal((out[5], out[6]), (out[1].replace("batch=4", "batch=2"), [out[3], out[5]]), "and one whose loader is gone leaves it")
        spec = "torch-generator:seed=3:sampler_only=1:batch=8"
        tap.equal(out[8], spec + ":sort=path:under=train", "files by their paths")
        tap.equal((out[9], out[10]), ("list", ["list:path=told:epochs=1:batch=8"]),
                  "classes in another order are a list of the mount's numbers")
        tap.equal(out[11], spec + ":sort=torchvision:under=extra", "the images of a directory that has more than images")
        tap.equal((out[12], out[13]), ("list", ["list:path=told:epochs=1:batch=8:sort=torchvision:under=train"]),
                  "a subset is a list of the directory's numbers")
        tap.ok(out[14].endswith("readme.txt' is no sample of the mount"), "a file that the mount has no number of is refused", out)


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
        endless, told = jobs_of(mount.mountpoint, place, ["endless", "too-few"], "told")
        tap.ok("error" in endless, "what has no end is refused", endless)
        tap.equal(told.get("error"), "the dataset has 599 samples, the mount 600: their numbers are not the same",
                  "other files than the mount's are refused")
    told = job("/tmp", place, "shuffle", "told")
    tap.equal(told.get("error"), "/tmp: not a clairfs mount that takes orders", "no mount, no announcing")


mountkit.run(known_samplers, lists, frameworks, other_numbers, parts_of_the_mount, torchrun, refused)
