# SPDX-License-Identifier: Apache-2.0
"""Mounts that nobody told an order: jobs of four reader processes are recognised from what they open, a search never gets
in the way of an order that is told or of an unmount, and bytes are right whatever happens."""
import multiprocessing
import os

import mountkit
import orders
import tap
from mountkit import good, rng

N, WORKERS, BATCH = 1600, 4, 8


def reader(point, names, data, batches, rounds, in_step):
    """A loader worker; its exit code is the number of files that differ."""
    bad = 0
    for turn in range(rounds):
        for i in batches[turn] if turn < len(batches) else []:
            bad += mountkit.read_file(os.path.join(point, names[i])) != data[names[i]]
        if turn % 2:
            in_step.wait(mountkit.DEADLINE)
    os._exit(min(bad, 100))


def read_epoch(mount, names, data, sequence):
    """As a DataLoader does: batch b is read by worker b % WORKERS, all at once, none more than two batches ahead of another."""
    batches = [sequence[i:i + BATCH] for i in range(0, len(sequence), BATCH)]
    in_step, pids = multiprocessing.Barrier(WORKERS), []
    for worker in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            try:
                reader(mount.mountpoint, names, data, batches[worker::WORKERS], -(-len(batches) // WORKERS), in_step)
            finally:
                os._exit(101)
        pids.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]


def samples(place, n=N):
    data = place.files([rng.randrange(1, 4096) for _ in range(n)])
    return data, sorted(data)


def search(stats):
    return stats["order"]["search"]


def recognised(what, place, sequence_of, want, epochs=3, **options):
    data, names = samples(place)
    with place.mount(recover="quick", **options) as mount:
        mount.read(names[5])  # somebody looks at a file before
        for epoch in range(epochs):
            tap.equal(read_epoch(mount, names, data, sequence_of(epoch)), [0] * WORKERS,
                      f"{what}, epoch {epoch}: bytes are the source's")
            stats = mount.wait_for(lambda s: search(s)["found"] and not search(s)["is_searching"], "an order is found")
            tap.equal(search(stats)["found"], want, f"{what}, epoch {epoch}: the order is recognised")
            if epoch == 0:  # what readers come first for does not count as fetched ahead
                mount.wait_for(lambda s: s["order"]["epoch"]["lead"] > 0, "the next epoch is fetched")
        stats = mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")
        tap.equal(stats["order"]["spec"], want, f"{what}: and is the one in force")
        tap.ok(stats["counters"]["prefetch_useful"] > 0, f"{what}: samples were there before they were read", stats["counters"])
        tap.ok("(quick)" in search(stats)["doing"], f"{what}: status says how it was found", search(stats))
        tap.ok(want in good("status", mount.mountpoint).decode(), f"{what}: so does the command")


def distributed_sampler(place):
    recognised("DistributedSampler", place, lambda e: orders.distributed(N, 2, 1, 3, e), "torch-distributed:seed=3:world=2:rank=1")


def loader_after_manual_seed(place):
    generator = orders.Mt19937(42)
    words = [generator.u32() for _ in range(16)]
    recognised("manual_seed(42)", place, lambda e: orders.randperm(N, words[4 * e + 3]), "torch-loader:seed=42")


def resumed_in_the_middle(place):
    """Epoch 17 of seed 3 from its half on, and nobody says where that is."""
    recognised("resumed", place, lambda e: orders.distributed(N, 1, 0, 3, 17 + e)[0 if e else N // 2:], "torch-distributed:seed=20")


def files_in_their_order(place):
    recognised("shuffle=False", place, lambda e: list(range(N)), "sequential")


def job_of_unknown_seed(place, mount, names, data):
    tap.equal(read_epoch(mount, names, data, orders.randperm(N, 3456789012)[:400]), [0] * WORKERS,
              "an arbitrary seed: bytes are the source's while all seeds are tried")
    return mount.wait_for(lambda s: search(s)["is_full"], "all seeds are being tried")


def unmounted_while_searching(place):
    data, names = samples(place)
    with place.mount(recover="full", debug={"recover_threads": 1}) as mount:
        stats = job_of_unknown_seed(place, mount, names, data)
        tap.ok("looking for one" in search(stats)["doing"], "status says so", search(stats))
        stats = mount.stats()
        # Minutes of a core are left: it was cut, and did not come to its end before the unmount.
        tap.ok(search(stats)["is_full"] and search(stats)["progress"] < 0.9, "the search goes on when the mount is taken down",
               search(stats))
    tap.ok("found the order" not in mount.text(), "an unmount cuts the search short", mount.text())


def told_while_searching(place):
    data, names = samples(place)
    with place.mount(recover="full", debug={"recover_threads": 1}) as mount:
        job_of_unknown_seed(place, mount, names, data)
        good("announce", mount.mountpoint, "torch-randperm:seed=3456789012")
        stats = mount.wait_for(lambda s: not search(s)["is_searching"], "the search ends")
        tap.equal(search(stats)["doing"], "the order was told", "an order that is told ends the search")
        read_epoch(mount, names, data, orders.randperm(N, 3456789012)[400:800])
        stats = mount.wait_for(lambda s: s["order"]["state"] == "following", "the order told is followed")
        tap.equal(stats["order"]["spec"], "torch-randperm:seed=3456789012", "and stays in force")
        good("announce", mount.mountpoint, "none")
        tap.equal(search(mount.stats())["doing"], "told to follow no order", "nor is one looked for after 'none'")


def wrong_order_told(place):
    """The seed told is 7; the job uses 8 and another world."""
    data, names = samples(place)
    with place.mount(recover="quick", order="torch-distributed:seed=7:world=2:rank=0") as mount:
        # When it is noticed, and how often the kernel loses or delays an open, is up to the machine.
        for epoch in range(12):
            read_epoch(mount, names, data, orders.distributed(N, 4, 2, 900, epoch))
            if search(mount.wait_for(lambda s: not search(s)["is_searching"], "searches end"))["found"]:
                break
        stats = mount.stats()
        tap.ok(search(stats)["found"].startswith("torch-distributed:seed=90"), "an order that is wrong is replaced", search(stats))
        tap.ok(search(stats)["found"].endswith(":world=4:rank=2"), "by the one that is read", search(stats))


def switched_off(place):
    data, names = samples(place, 300)
    with place.mount(recover="off") as mount:
        read_epoch(mount, names, data, orders.randperm(300, 1))
        stats = mount.wait_for(lambda s: s["counters"]["sample_opens"] >= 300, "all opens are seen")
        tap.equal(search(stats)["searches"], 0, "recover=off: nothing is looked for")
        tap.equal(stats["order"]["state"], "no_order", "recover=off: no order")


mountkit.run(distributed_sampler, loader_after_manual_seed, resumed_in_the_middle, files_in_their_order, unmounted_while_searching,
             told_while_searching, wrong_order_told, switched_off)
