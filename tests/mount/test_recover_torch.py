# SPDX-License-Identifier: Apache-2.0
"""Jobs of the real PyTorch on a mount without any configuration of its order: DistributedSampler, manual_seed(42) and
shuffle=True, the latter with a validation pass that draws numbers between the epochs, and behind a model that is made before the
loader and draws its weights from the same generator. Their orders are found in the first epoch and go on being followed in the
next ones.

Who wins, the job or the search for its order, is up to the machine: such a job reads an epoch in a third of a second, and the
search gives way to everything else. So the job computes: in the middle of the epochs it is recognised by until the order is
found, and before the next one until most of that is there. What the readers open first is no merit of the mount and not
counted, but there are never so many of those that an eighth of the dataset is not left.
"""
import os

import mountkit
import tap
from mountkit import good, program, rng

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
N, EPOCHS = 2000, 4

JOB = r"""
import sys, torch
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from untold_job import Files, compute
point, source, case, n, epochs = *sys.argv[1:4], *map(int, sys.argv[4:6])
taught = 2 if case == "validated" else 1  # epochs until the next one is known

def model(case):
    if case.startswith("model"):
        nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))

files = Files(n, "s{:05d}.bin", point, source)
torch.manual_seed(42)
model(case)
workers = 0 if case == "model, no workers" else 4
sampler = DistributedSampler(files, 2, 1) if case == "distributed" else None
loader = DataLoader(files, batch_size=16, num_workers=workers, sampler=sampler, shuffle=sampler is None)
read = 0
for epoch in range(epochs):
    if sampler:
        sampler.set_epoch(epoch)
    if epoch == taught:
        compute(point, "the next epoch is fetched", lambda order, search: order["epoch"]["lead"] >= 0.9 * len(loader) * loader.batch_size)
    for i, batch in enumerate(loader):
        read += len(batch)
        if i == len(loader) // 2 and epoch < taught:
            compute(point, f"epoch {epoch}: its order is found", lambda order, search:
                    search["orders_found"] > epoch and not search["is_searching"])
    if case == "validated":
        torch.rand(2)
print(read)
"""


def run(place, case, want, read):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    place.files([rng.randrange(1, 4096) for _ in range(N)])
    with place.mount(recover="quick") as mount:
        done = program(PYTHON, "-W", "ignore", "-c", JOB, mount.mountpoint, place.source, case, N, EPOCHS, timeout=600, cwd="/")
        tap.equal((done.code, done.out.split()), (0, [str(read).encode()]), f"{case}: every sample was read, and is the source's")
        stats = mount.wait_for(lambda s: s["order"]["search"]["found"] and not s["order"]["search"]["is_searching"],
                               f"{case}: an order is found")
        tap.ok(want(stats["order"]), f"{case}: it is the job's", stats["order"])
        stats = mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= read, f"{case}: all reads are classified")
        tap.ok(stats["counters"]["prefetch_useful"] >= N // 8, f"{case}: later epochs were fetched ahead", stats["counters"])


def distributed_sampler(place):
    run(place, "distributed", lambda o: o["spec"] == "torch-distributed:world=2:rank=1", N // 2 * EPOCHS)


def manual_seed(place):
    run(place, "manual", lambda o: o["spec"] == "torch-loader:seed=42", N * EPOCHS)


def manual_seed_and_other_draws(place):
    """Six words of the generator from epoch to epoch: found twice, the next ones are known before they begin."""
    run(place, "validated", lambda o: o["spec"] == "torch-loader:seed=42:before=6:draws=6", N * EPOCHS)


def weights_before_the_loader(place):
    """407050 words; all later epochs follow from the first."""
    for case in ("model", "model, no workers"):
        run(place, case, lambda o: o["spec"] == "torch-loader:seed=42:before=407050" and o["search"]["orders_found"] <= 2, N * EPOCHS)


LARGE = r"""
import sys, torch
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(42)
for _ in range(10):  # as much as torchvision's ResNet-50: convolutions are drawn when they are made, and then again
    nn.init.kaiming_normal_(nn.Conv2d(512, 512, 3).weight, mode="fan_out", nonlinearity="relu")
nn.Linear(2048, 1000)
for epoch in range(2):
    print(*[i for batch in DataLoader(range(int(sys.argv[1])), 16, shuffle=True, num_workers=2 * epoch) for i in batch.tolist()])
"""


def many_weights_before_the_loader(place):
    """49 million words. In a mount the search gives way to whatever else this machine does; on the command line it does not."""
    done = program(PYTHON, "-W", "ignore", "-c", LARGE, N, timeout=600, cwd="/")
    tap.ok(done.code == 0, "large: the loaders run", done.err)
    epochs = [line.split() for line in done.out.decode().splitlines()]
    specs = good("recover", "--n", N, *epochs[0][:30], timeout=600).decode().splitlines()
    tap.equal(specs[0], "torch-loader:seed=42:before=49240040", "large: one epoch tells what was drawn before the loader's seed")
    for epoch in range(2):
        order = good("order", specs[0], "--n", N, "--epoch", epoch).decode().split()
        tap.equal(order, epochs[epoch], f"large: epoch {epoch} is known")


mountkit.run(distributed_sampler, manual_seed, manual_seed_and_other_draws, weights_before_the_loader, many_weights_before_the_loader)
