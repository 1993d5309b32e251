# SPDX-License-Identifier: Apache-2.0
"""Jobs that do something else than the order says, and what the mount makes of it, in words."""
import os
import re

import jobs
import mountkit
import orders
import tap
from jobs import Job
from mountkit import good, rng

TRAIN, VAL = 1500, 200


def tree(place, folder, n, name="{}.jpg"):
    """Images in three classes, numbered without leading zeros: a natural sort differs from one by characters."""
    data = {}
    for i in range(n):
        path = f"{folder}/c{i % 3}/" + name.format(i)
        data[path] = rng.randbytes(rng.randrange(1, 2000))
        mountkit.write_file(os.path.join(place.source, path), data[path])
    return data


def natural_key(text):
    """timm's."""
    return [int(s) if s.isdigit() else s for s in re.split(r"(\d+)", text.lower())]


def following(mount):
    return mount.wait_for(lambda s: s["order"]["state"] == "following", "the order is followed")


def doing(place):
    """What `clairfs status` says about the job."""
    for line in good("status", place.mnt).decode().splitlines():
        if line.strip().startswith("the job "):
            return line.strip()
    raise mountkit.Failed("status says nothing about the job")


def validation_between_epochs(place):
    train, val = tree(place, "train", TRAIN), tree(place, "val", VAL)
    with place.mount(order="torch-distributed:seed=3:under=train") as mount:
        job, validation = Job(mount, train), Job(mount, val)
        validation.read(range(20))
        mount.wait_for(lambda s: s["order"]["readers"]["outside"] >= 20, "the reads before the first epoch are seen")
        tap.equal(jobs.state_of(mount), "waiting", "a sanity check on the validation set is no start of the order")
        for epoch in range(2):
            job.epoch(epoch, orders.distributed(TRAIN, 1, 0, 3, epoch), burst=250)
            validation.read(range(VAL))
            stats = mount.wait_for(lambda s: s["order"]["readers"]["outside"] >= 20 + VAL * (epoch + 1),
                                   "validation reads are seen")
            tap.equal(stats["order"]["state"], "following", f"epoch {epoch}: followed after the validation")
            text = doing(place)
            words = f"has read {VAL} of {VAL} validation samples expected after epoch {epoch}"
            tap.ok(words in text, "status says what is read", text)
        job.epoch(2, orders.distributed(TRAIN, 1, 0, 3, 2)[:500], burst=250)
        stats = following(mount)
        tap.equal((stats["order"]["readers"]["lost"], stats["counters"]["order_mismatches"]), (0, 0),
                  "validation reads count neither for nor against the order")
        tap.equal(job.wrong + validation.wrong, [], "every byte was right")


def files_in_another_order(place):
    """The index has a/10.jpg before a/2.jpg, and val beside train; the job has neither."""
    train = tree(place, "train", TRAIN)
    tree(place, "val", VAL)
    names = sorted(train, key=natural_key)
    with place.mount(order="torch-distributed:seed=9:epochs=5:batch=10") as mount:
        job = Job(mount, train, names)
        sequence = orders.distributed(TRAIN, 1, 0, 9, 0)
        job.read(sequence[:700])
        stats = mount.wait_for(lambda s: "sort=" in s["order"]["spec"], "the job's own order of the files is found")
        tap.equal(stats["order"]["spec"], "torch-distributed:seed=9:epochs=5:batch=10:sort=timm:under=train",
                  "a job that lists train/ as timm does is recognised")
        job.read(sequence[700:900])
        following(mount)
        job.epoch(0, sequence, burst=100, start=900)
        job.epoch(1, orders.distributed(TRAIN, 1, 0, 9, 1)[:1000], burst=250)
        stats = mount.wait_for(lambda s: s["order"]["epoch"]["position"] == 1000, "the reads are seen")
        tap.equal((stats["order"]["state"], stats["order"]["epoch"]["number"]), ("following", 1),
                  "and followed into the next epoch")
        tap.ok("the files are numbered in another way than was told" in mount.text(), "the log says so")
        tap.equal(job.wrong, [], "every byte was right")


def a_wrong_seed_keeps_its_spec(place):
    train = tree(place, "train", TRAIN)
    with place.mount(order="torch-distributed:seed=1") as mount:
        job = Job(mount, train)
        job.read(orders.randperm(TRAIN, 123456))
        job.read(orders.randperm(TRAIN, 123457))
        stats = mount.wait_for(lambda s: s["order"]["readers"]["lost_reads"] > 1000
                               and s["order"]["readers"]["numberings_tried"] >= 4,
                               "the order is lost, and ways to list the files are tried")
        tap.equal(stats["order"]["spec"], "torch-distributed:seed=1", "no way to list the files explains a wrong seed")
        tap.ok("does not read in the order that was told" in doing(place), "status says that it is not the order")
        tap.equal(job.wrong, [], "every byte was right")


def set_epoch_is_forgotten(place):
    train = tree(place, "train", TRAIN)
    with place.mount(order="torch-distributed:seed=5") as mount:
        job = Job(mount, train)
        sequence = orders.distributed(TRAIN, 1, 0, 5, 0)
        job.epoch(0, sequence, burst=250)
        job.read(sequence[:400])
        mount.wait_for(lambda s: s["order"]["epoch"]["number"] == 0 and s["order"]["epoch"]["position"] == 400,
                       "the second pass is recognised")
        text = doing(place)
        tap.ok("reads epoch 0 again: set_epoch is not called" in text, "status says what the job forgot", text)
        job.epoch(0, sequence, burst=250, start=400)
        job.epoch(0, sequence[:250], burst=250)
        stats = following(mount)
        tap.equal((stats["order"]["readers"]["lost"], stats["counters"]["resyncs"]), (0, 1), "and that is noticed once")
        tap.equal(job.wrong, [], "every byte was right")


def epochs_are_left_early(place):
    train = tree(place, "train", TRAIN)
    with place.mount(order="torch-distributed:seed=6:batch=16:workers=2") as mount:
        job = Job(mount, train)
        for epoch in range(3):
            job.read(orders.distributed(TRAIN, 1, 0, 6, epoch)[:640])
            mount.wait_for(lambda s: (s["order"]["epoch"]["number"], s["order"]["epoch"]["position"]) == (epoch, 640),
                           f"epoch {epoch} is followed up to where the job leaves it")
        stats = following(mount)
        tap.equal(stats["order"]["readers"]["lost"], 0, "epochs that are left early are followed, each from its start")
        tap.ok("left an epoch before its end" in doing(place), "and status says so")
        tap.equal(job.wrong, [], "every byte was right")


def a_second_job(place):
    train = tree(place, "train", TRAIN)
    with place.mount(order="torch-distributed:seed=7:batch=16:workers=2") as mount:
        first, second = Job(mount, train), Job(mount, train)
        one, other = orders.distributed(TRAIN, 1, 0, 7, 0), orders.randperm(TRAIN, 4711)
        first.read(one[:200])
        following(mount)
        for at in range(200, 1200):
            first.read(one[at:at + 1])
            second.read(other[at:at + 1])
        stats = mount.wait_for(lambda s: s["order"]["epoch"]["position"] >= 1190, "the first job's reads are seen")
        tap.equal((stats["order"]["state"], stats["order"]["readers"]["lost"]), ("following", 0),
                  "the first job is followed beside a second one")
        text = doing(place)
        tap.ok(re.search(r"[345]\d % of the reads are in another order", text),
               "status says who else is there", text)
        first.read(one[1200:])
        first.epoch(1, orders.distributed(TRAIN, 1, 0, 7, 1)[:500], burst=250)
        following(mount)
        tap.ok("another order" not in doing(place), "and no more when it has gone", doing(place))
        tap.equal(first.wrong + second.wrong, [], "every byte was right")


mountkit.run(validation_between_epochs, files_in_another_order, a_wrong_seed_keeps_its_spec, set_epoch_is_forgotten,
             epochs_are_left_early, a_second_job)
