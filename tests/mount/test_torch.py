# SPDX-License-Identifier: Apache-2.0
"""A real PyTorch DataLoader reads through the mount, in the order that the spec of its sampler says.

The environment variable CLAIRFS_TORCH_PYTHON names a Python with PyTorch (packaging/install-deps --torch makes one).
"""
import json
import os

import mountkit
import tap
from mountkit import program, rng

N, EPOCHS = 320, 3


def train(place, mount, kind, seed):
    python = os.environ.get("CLAIRFS_TORCH_PYTHON")
    if not python:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    job = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_job.py")
    done = program(python, job, kind, mount.mountpoint, place.source, seed, EPOCHS, timeout=600, cwd="/")
    if done.code:
        raise mountkit.Failed(f"{kind}: {done}")
    return json.loads(done.out)["epochs"]


def check_bytes(what, epochs, data, per_epoch):
    for number in range(EPOCHS):
        found = [e[2] for e in epochs if e[1] == number]
        tap.equal((sum(f["items"] for f in found), sum(f["equal"] for f in found)), (per_epoch, per_epoch),
                  f"{what}, epoch {number}: every sample was read and is the source's")
        tap.equal(sum(f["bytes"] for f in found), sum(map(len, data.values())), f"{what}, epoch {number}: all bytes")


def check_followed(what, epochs, mount):
    for number in range(EPOCHS):
        says = [e[3] for e in epochs if e[1] == number]
        tap.ok(all(s["state"] not in ("lost", "no_order") for s in says),
               f"{what}, epoch {number}: the order is not given up", says)
    mount.wait_for(lambda s: s["order"]["state"] == "finished", "all epochs are read")
    tap.ok(True, f"{what}: all {EPOCHS} epochs were recognised")
    # How a read was served is known a moment after its open was seen.
    opens = N * EPOCHS
    stats = mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= opens, f"{opens} reads are classified")
    counters = stats["counters"]
    tap.ok(counters["sample_opens"] >= opens and counters["prefetch_useful"] > 0 and counters["order_mismatches"] == 0,
           f"{what}: status counts every open, and none of them was unexpected", counters)
    tap.ok(stats["reads"]["staged"]["reads"] > 0, f"{what}: the kernel served reads by itself", stats["reads"])


def distributed_sampler(place):
    data = place.files([rng.randrange(1, 100 << 10) for _ in range(N)])
    seed = rng.randrange(1 << 31)
    spec = f"torch-distributed:seed={seed}:world=2:ranks=0-1:epochs={EPOCHS}:batch=8:workers=2"
    with place.mount(order=spec) as mount:
        epochs = train(place, mount, "distributed", seed)
        check_bytes("DistributedSampler", epochs, data, N)
        check_followed("DistributedSampler", epochs, mount)


def same_permutation(place):
    data = place.files([rng.randrange(1, 100 << 10) for _ in range(N)])
    seed = rng.randrange(1 << 31)
    with place.mount(order=f"torch-randperm:seed={seed}:epochs={EPOCHS}:batch=8:workers=2") as mount:
        epochs = train(place, mount, "randperm", seed)
        check_bytes("randperm", epochs, data, N)
        check_followed("randperm", epochs, mount)


def random_sampler(place):
    """The order is not known: an ordinary cache, right all the same."""
    data = place.files([rng.randrange(1, 100 << 10) for _ in range(N)])
    with place.mount(order="torch-randperm:seed=1") as mount:
        epochs = train(place, mount, "plain", rng.randrange(2, 1 << 31))
        check_bytes("RandomSampler with another seed", epochs, data, N)
        mount.wait_for(lambda s: s["order"]["state"] == "lost", "the order is given up")
        tap.ok(True, "RandomSampler with another seed: the order is given up")


mountkit.run(distributed_sampler, same_permutation, random_sampler)
