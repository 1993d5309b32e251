# SPDX-License-Identifier: Apache-2.0
"""Jobs of the real PyTorch that read one directory of a mount, `train/`, and validate on another, `val/`, without a word of
configuration: found from what they open, with the numbers that files have below that directory, followed through the
validation passes between the epochs, and not thrown off by a look at the validation set before the first epoch.

Who wins, the job or the search for its order, is up to the machine, so the job computes in the middle of the epochs it is
recognised by until the order is found (as in test_recover_torch).
"""
import json
import os
import re

import mountkit
import tap
from mountkit import good, program, rng

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
TRAIN, VAL, CLASSES, EPOCHS = 2000, 160, 8, 4
ODD = 417  # first samples, no round number of them

JOB = r"""
import json, os, sys, time, torch
from torch.utils.data import DataLoader, Dataset, Subset, random_split
from torch.utils.data.distributed import DistributedSampler
point, source, case, epochs = *sys.argv[1:4], int(sys.argv[4])

class Folder(Dataset):
    "As ImageFolder lists a directory: its classes by name, the files of each by name."
    def __init__(self, part):
        self.names = [f"{part}/{c}/{f}" for c in sorted(os.listdir(f"{point}/{part}")) for f in sorted(os.listdir(f"{point}/{part}/{c}"))]
    def __len__(self):
        return len(self.names)
    def __getitem__(self, i):
        both = []
        for root in (point, source):
            with open(f"{root}/{self.names[i]}", "rb") as f:
                both.append(f.read())
        assert both[0] == both[1], self.names[i]
        return i

def compute(what, is_done, seconds=120, is_sure=True):
    end = time.monotonic() + seconds
    while True:
        with open(f"{point}/.clairfs/stats.json", "rb") as f:
            order = json.load(f)["order"]
        if is_done(order, order["search"]):
            return True
        if time.monotonic() > end and not is_sure:
            return False
        if time.monotonic() > end:
            sys.exit(f"{what}: {order}")
        time.sleep(0.01)

train, val = Folder("train"), Folder("val")
some = len(train) // 5
if case == "subset":
    train = Subset(train, range(int(sys.argv[5])))
if case == "split":
    train = random_split(train, [some, len(train) - some], generator=torch.Generator().manual_seed(7))[0]
first = int(case in ("subset", "split"))  # the epoch in which it is found
torch.manual_seed(42)
world = {"manual": 0, "model": 0, "subset": 0, "split": 0, "two_ranks": 2}.get(case, 1)
if case == "model":
    model = torch.nn.Linear(320, 320)  # draws its weights before the loader draws
samplers = [DistributedSampler(train, world, rank) for rank in range(world)]
loaders = [DataLoader(train, batch_size=16, num_workers=2, sampler=s) for s in samplers]
if not world:
    loaders = [DataLoader(train, batch_size=16, num_workers=4, shuffle=True)]
validation = DataLoader(val, batch_size=16, num_workers=2)
read = {"train": 0, "val": 0}
is_known, looks = case != "looked", 0
while not is_known:  # the opens of one worker that is starved are no order
    looks += 1
    read["val"] += sum(len(batch) for batch in validation)
    is_known = compute("validation is recognised", lambda order, search: search["orders_found"] > 0 and not search["is_searching"],
                       20, looks == 6)
for epoch in range(epochs):
    for s in samplers:
        s.set_epoch(epoch)
    if epoch == first + 1:
        compute("the next epoch is fetched", lambda order, search: order["epoch"]["lead"] >= 0.9 * len(train))
    for i, batches in enumerate(zip(*loaders)):
        read["train"] += sum(len(batch) for batch in batches)
        if i == len(loaders[0]) // 2 and epoch == first:
            compute(f"epoch {epoch}: the order of train/ is found", lambda order, search:
                    search["found"].endswith(":under=train") and search["orders_found"] > 0 and not search["is_searching"])
    read["val"] += sum(len(batch) for batch in validation)
print(json.dumps({**read, "looks": looks}))
"""


def tree(place):
    for part, n in (("train", TRAIN), ("val", VAL)):
        for i in range(n):
            mountkit.write_file(os.path.join(place.source, part, f"n{i % CLASSES}", f"{i:05d}.jpg"), rng.randbytes(rng.randrange(1, 4096)))


def run(place, case, is_it, n=TRAIN):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    tree(place)
    with place.mount(recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, place.source, case, EPOCHS, n, timeout=600, cwd="/")
        read = json.loads(done.out) if done.code == 0 else {}
        vals = EPOCHS + read.get("looks", 0)
        tap.equal((done.code, read.get("train"), read.get("val")), (0, n * EPOCHS, VAL * vals), f"{case}: every sample was read, and is the source's")
        stats = mount.wait_for(lambda s: not s["order"]["search"]["is_searching"], f"{case}: searches end")
        search = stats["order"]["search"]
        tap.ok(is_it(stats["order"]["spec"]), f"{case}: the order of train/ is in force", stats["order"])
        what = {"subset": f"first {n} of the {TRAIN} samples below train/", "split": f"a random split, {n} of the {TRAIN} samples below train/"}
        tap.ok(what.get(case, f"the job reads the {n} samples below train/, of {TRAIN + VAL}") in " ".join(good("status", place.mnt).decode().split()) or
               search["doing"].startswith("expected"), f"{case}: status says which part the job reads", search)
        stats = mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= n * EPOCHS + VAL * vals,
                               f"{case}: all reads are classified")
        tap.ok(stats["counters"]["prefetch_useful"] >= n // 8, f"{case}: later epochs were fetched ahead", stats["counters"])
        return stats


def distributed_sampler(place):
    stats = run(place, "distributed", lambda spec: spec == "torch-distributed:under=train")
    # While one of two workers is starved they look like two ranks, until four times as many samples were opened.
    tap.ok(stats["order"]["search"]["orders_found"] <= 2, "no other order is found, through all validations", stats["order"])
    tap.ok(stats["order"]["validation"]["foreseen"] >= VAL, "and what was validated on once is foreseen", stats["order"])


def two_ranks(place):
    """All ranks of a world read what one of a world of one does, in the same order. Where one began late it is found in a later
    epoch, which is the first one of another seed."""
    run(place, "two_ranks", lambda spec: re.fullmatch(r"torch-distributed(:seed=[0-3])?:under=train", spec))


def a_look_at_the_validation_set_first(place):
    run(place, "looked", lambda spec: spec == "torch-distributed:under=train")


def manual_seed(place):
    """Six words of the generator from epoch to epoch, as who reads train/ validates: found once, all later ones are known."""
    stats = run(place, "manual", lambda spec: spec == "torch-loader:seed=42:draws=6:under=train")
    tap.ok(stats["order"]["search"]["orders_found"] <= 2, "one order, or one more with a starved worker", stats["order"])


def a_model_before_the_loader(place):
    """A hundred thousand draws before the loader's first, in the numbers of train/: found in the first epoch all the same."""
    draws = 320 * 321
    stats = run(place, "model", lambda spec: spec == f"torch-loader:seed=42:before={draws}:draws=6:under=train")
    tap.ok(stats["order"]["search"]["orders_found"] <= 2, "one order, or one more with a starved worker", stats["order"])


def some_of_them(place):
    """The first fifth, shuffled, is all that the job numbers: known when it begins again."""
    run(place, "subset", lambda spec: spec == f"torch-loader:seed=42:before=6:draws=6:first={ODD}:under=train", ODD)


def a_random_split(place):
    run(place, "split", lambda spec: spec == f"torch-loader:seed=42:before=6:draws=6:split=7:first={TRAIN // 5}:under=train", TRAIN // 5)


mountkit.run(distributed_sampler, two_ranks, a_look_at_the_validation_set_first, manual_seed, a_model_before_the_loader, some_of_them, a_random_split)
