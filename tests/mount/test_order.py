# SPDX-License-Identifier: Apache-2.0
"""An order that is right is followed, one that is wrong is given up, and the bytes are the same either way."""
import os

import jobs
import mountkit
import orders
import tap
from jobs import Account, Job, dropped
from mountkit import good, rng

N = 240
MANY = 2000


def small_files(place, n=N):
    """Samples that one READ can carry."""
    return place.files([rng.randrange(1, 100 << 10) for _ in range(n)])


def permutation(n, last=None):
    """Does not start with the sample that was read last: two opens in a row may be one event for the watcher."""
    while True:
        sequence = list(range(n))
        rng.shuffle(sequence)
        if sequence[0] != last:
            return sequence


def permutations(n, epochs):
    found = []
    for _ in range(epochs):
        found.append(permutation(n, found[-1][-1] if found else None))
    return found


def with_headings(sequences):
    return [line for epoch, sequence in enumerate(sequences) for line in (f"# epoch {epoch}", *sequence)]


def check_epoch(what, counters, opens):
    """An epoch that was awaited burst by burst."""
    reads = counters["reads"]
    tap.equal(sum(reads.values()), opens, f"{what}: every open is in exactly one class")
    ready = reads["staged"] + reads["arena"] + reads["late"]
    tap.ok(reads["miss"] <= dropped(counters) and ready + dropped(counters) >= opens,
           f"{what}: reads come from what was prefetched, but for what the kernel has dropped", counters)
    tap.equal(counters["prefetch_failed"], 0, f"{what}: no prefetch failed")


def list_is_followed(place):
    data = small_files(place)
    sequences = permutations(N, 3)
    spec = place.list_file(with_headings(sequences)) + ":epochs=3"
    with place.mount(order=spec) as mount:
        job = Job(mount, data)
        tap.equal(jobs.state_of(mount), "waiting", "before the first read: waiting")
        for epoch, sequence in enumerate(sequences):
            account = Account(mount)
            job.epoch(epoch, sequence)
            counters = account.settled(N)
            check_epoch(f"epoch {epoch}", counters, N)
            if epoch == 0:
                stats = mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")
                tap.ok(stats["order"]["is_followed"], "epoch 0: the order is confirmed and followed", stats["order"])
                mount.wait_for(lambda s: s["mount"]["is_open_refused"], "OPEN is refused")
                tap.ok(True, "epoch 0: OPEN is not asked any more once the order is confirmed")
            else:
                tap.equal(counters["upcall_open"], 0, f"epoch {epoch}: no OPEN reaches the daemon")
                tap.ok(counters["reads"]["staged"] > 0, f"epoch {epoch}: the kernel serves reads by itself", counters)
            tap.equal((counters["order_mismatches"], counters["resyncs"]), (0, 0), f"epoch {epoch}: no read was unexpected")
        mount.wait_for(lambda s: s["order"]["state"] == "finished", "the last epoch is over")
        text = good("status", place.mnt).decode()
        tap.ok("list" in text and "finished" in text, "after the last epoch: finished, and status says so", text)
        issued = mount.counters()["prefetch_issued"]
        job.read(permutation(N, sequences[-1][-1]))
        tap.equal(job.wrong, [], "every byte was right, after the end as well")
        tap.equal(mount.counters()["prefetch_issued"], issued, "after the last epoch nothing is prefetched")


def list_ends_with_its_file(place):
    data = small_files(place, 100)
    sequences = permutations(100, 2)
    with place.mount(order=place.list_file(with_headings(sequences))) as mount:
        job = Job(mount, data)
        for epoch, sequence in enumerate(sequences):
            job.epoch(epoch, sequence)
        mount.wait_for(lambda s: s["order"]["state"] == "finished", "the last heading's epoch is the last one")
        job.read(sequences[0])
        tap.equal(job.wrong, [], "after the last epoch of a list file every byte is right")
        tap.ok("warning" not in mount.text(), "and nothing is warned about", mount.text())


def distributed_is_followed(place):
    data = small_files(place)
    seed = rng.randrange(1 << 32)
    spec = f"torch-distributed:seed={seed}:world=4:ranks=1-2:batch=8:workers=2"
    with place.mount(order=spec) as mount:
        job = Job(mount, data)
        for epoch in range(3):
            ranks = [orders.distributed(N, 4, rank, seed, epoch) for rank in (1, 2)]
            account = Account(mount)
            job.epoch(epoch, orders.merged(ranks), burst=24, readers=2)
            counters = account.settled(N // 2)
            # A sample that ends one epoch and starts the next may be seen as one open.
            check_epoch(f"2 of 4 ranks, epoch {epoch}", counters, N // 2)
        stats = mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")
        tap.ok(stats["order"]["is_followed"], "torch-distributed with two of four ranks is followed", stats["order"])
        tap.equal(job.wrong, [], "every byte was right")
        tap.equal(stats["order"]["spec"], f"torch-distributed:seed={seed}:world=4:ranks=1-2:batch=8:workers=2",
                  "the spec is reported in its canonical form")


def resumed(place):
    data = small_files(place)
    spec = "torch-distributed:seed=5:start_epoch=3:start_step=6:batch=16"
    with place.mount(order=spec) as mount:
        job = Job(mount, data)
        account = Account(mount)
        job.epoch(3, orders.distributed(N, 1, 0, 5, 3), start=6 * 16)
        check_epoch("resumed", account.settled(N - 6 * 16), N - 6 * 16)
        job.epoch(4, orders.distributed(N, 1, 0, 5, 4))
        stats = mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")
        tap.ok(stats["counters"]["order_mismatches"] == 0, "a job that goes on at a step is followed from there", stats)
        tap.equal(job.wrong, [], "every byte was right")


def pushed_reads_cost_nothing(place):
    """What was pushed and is still there is read without a single request to the daemon."""
    n = 64
    data = place.files([rng.randrange(1, 16 << 10) for _ in range(n)])
    sequences = permutations(n, 9)
    with place.mount(order=place.list_file(with_headings(sequences))) as mount:
        job = Job(mount, data)
        job.epoch(0, sequences[0])
        mount.wait_for(lambda s: s["order"]["state"] == "following" and s["mount"]["is_open_refused"], "OPEN is refused")
        a, b = mount.stats()["counters"], mount.stats()["counters"]
        cost = b["upcall_read"] - a["upcall_read"]  # of looking
        findings, staged = [], 0
        for epoch, sequence in enumerate(sequences[1:8], 1):
            for at in range(0, n, 16):
                burst = sequence[at:at + 16]
                job.wait_ready(epoch, at, n, len(burst))
                account = Account(mount)
                job.read(burst)
                counters = account.change()
                late = account.settled(len(burst))
                others = len(burst) - late["reads"]["staged"]
                staged += late["reads"]["staged"]
                # A file that is not staged takes one or two READs; so may one of which pages were dropped.
                if counters["upcall_read"] - cost > 2 * (others + dropped(late)):
                    findings.append(f"epoch {epoch} at {at}: {counters}")
                if counters["upcall_open"]:
                    findings.append(f"epoch {epoch} at {at}: OPEN was asked: {counters}")
        tap.no_findings(findings, "reads of pushed samples cause neither OPEN nor READ")
        tap.ok(staged > 0, "there were such reads")
        tap.equal(job.wrong, [], "every byte was right")
        tap.note(f"{staged} of {7 * n} reads were staged, {mount.counters()['stage_evicted_reads']} had lost their pages")


def is_still(mount, job, sequence, what):
    """An order that is not followed: reads go on, right, and nothing is prefetched."""
    before = mount.counters()
    seen = before["sample_opens"]
    job.read(sequence)
    mount.wait_for(lambda s: s["counters"]["sample_opens"] - seen >= len(sequence), "the opens are seen")
    after = mount.counters()
    tap.equal(after["prefetch_issued"], before["prefetch_issued"], f"{what}: nothing is prefetched")
    tap.equal(job.wrong, [], f"{what}: every byte is right")


def many_files(place):
    """So many that a read is rarely where it is expected by chance."""
    return place.files([rng.randrange(1, 3000) for _ in range(MANY)])


def wrong_order(place):
    data = many_files(place)
    with place.mount(order=place.list_file(permutation(MANY))) as mount:
        job = Job(mount, data)
        job.read(permutation(MANY))
        stats = mount.wait_for(lambda s: s["order"]["state"] == "lost", "the order is given up")
        tap.ok(not stats["order"]["is_followed"] and stats["order"]["why"], "a wrong order is lost, with a reason",
               stats["order"])
        text = good("status", place.mnt).decode()
        tap.ok(f"lost: {stats['order']['why']}" in text, "status says why", text)
        is_still(mount, job, permutation(MANY), "a wrong order")
        tap.ok(mount.counters()["order_mismatches"] > 0, "reads that were not expected are counted")


def abandoned(place):
    data = many_files(place)
    with place.mount(order="torch-randperm:seed=4") as mount:
        job = Job(mount, data)
        sequence = orders.randperm(MANY, 4)
        job.epoch(0, sequence, burst=200)
        job.epoch(1, sequence[:MANY // 2], burst=200)
        mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")
        for _ in range(2):
            job.read(permutation(MANY))  # another job, another shuffle
        mount.wait_for(lambda s: s["order"]["state"] == "lost", "the order is given up")
        tap.ok(True, "a job that reads in another order makes the order lost")
        is_still(mount, job, permutation(MANY), "an order that was abandoned")
        # The first job comes back.
        job.read(sequence)
        mount.wait_for(lambda s: s["order"]["is_followed"], "the order is found again")
        tap.ok(mount.counters()["resyncs"] > 0, "a job that comes back is recognised")
        tap.equal(job.wrong, [], "every byte was right")


def no_order(place):
    data = small_files(place)
    with place.mount() as mount:
        job = Job(mount, data)
        account = Account(mount)
        sequence = permutation(N)
        job.read(sequence)
        counters = account.settled(N)
        tap.equal(sum(counters["reads"].values()), N, "no order: every open is in exactly one class")
        tap.equal(counters["prefetch_issued"], 0, "no order: nothing is prefetched")
        tap.equal(jobs.state_of(mount), "no_order", "no order: the state says so")
        tap.equal(job.wrong, [], "no order: every byte is right")


def open_answered(place):
    data = small_files(place, 100)
    with place.mount(order="sequential", debug={"open": "answer"}) as mount:
        job = Job(mount, data)
        for epoch in range(2):
            account = Account(mount)
            job.epoch(epoch, list(range(100)))
            counters = account.settled(100)
        tap.ok(counters["upcall_open"] >= 100 and not mount.stats()["mount"]["is_open_refused"],
               "open=answer: every OPEN is answered", counters)
        check_epoch("open=answer, epoch 1", counters, 100)
        tap.equal(job.wrong, [], "every byte was right")


mountkit.run(list_is_followed, list_ends_with_its_file, distributed_is_followed, resumed, pushed_reads_cost_nothing,
             wrong_order, abandoned, no_order, open_answered)
