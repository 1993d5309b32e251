# SPDX-License-Identifier: Apache-2.0
"""A validation set that nobody announces: read once between two epochs, it is there before it is read again."""
import os

import jobs
import mountkit
import orders
import tap
from jobs import Account, Job, dropped
from mountkit import good, rng

TRAIN, VAL = 500, 120
FIRST = 16  # reads of it before the first time that it is foreseen at all
HEAD = 32  # samples of it that are waited for: within what the readers are apart


def tree(place, folder, n):
    data = {f"{folder}/c{i % 4}/{i:05d}.bin": rng.randbytes(rng.randrange(20 << 10, 60 << 10)) for i in range(n)}
    for path, content in data.items():
        mountkit.write_file(os.path.join(place.source, path), content)
    return data


def is_ahead(stats, epoch):
    """The epoch is read, and the first samples of the validation set are in RAM."""
    order = stats["order"]
    here = (order["epoch"]["number"], order["epoch"]["position"])
    return order["validation"]["expected"] == VAL and here == (epoch + 1, 0) and order["epoch"]["lead"] >= HEAD


def second_validation_is_there_before_it_is_read(place):
    """More than fits into RAM."""
    train, val = tree(place, "train", TRAIN), tree(place, "val", VAL)
    spec = "torch-distributed:seed=3:epochs=9:batch=8:workers=2:under=train"
    with place.mount(ram="16M") as mount:
        tap.equal(good("announce", place.mnt, spec).decode(), spec + "\n", "the order of train/ is announced")
        job, validation, whole = Job(mount, train), Job(mount, val), Account(mount)
        for epoch in range(2):
            job.epoch(epoch, orders.distributed(TRAIN, 1, 0, 3, epoch))
            if epoch:
                stats = mount.wait_for(lambda s: is_ahead(s, epoch), f"epoch {epoch} ends, the first of val/ are in RAM")
                text = good("status", place.mnt).decode()
                tap.ok(f"expects {VAL} validation samples after epoch {epoch}" in " ".join(text.split()), "status says so", text)
                whole.settled(job.opens + validation.opens)  # or earlier reads would be counted with the next
                account = Account(mount)
                validation.read(range(HEAD))
                counters = account.settled(HEAD)
                reads = counters["reads"]
                tap.ok(reads["miss"] + reads["late"] + reads["store"] <= dropped(counters),
                       f"epoch {epoch}: they are served from RAM, but for what the kernel has dropped", counters)
            else:
                stats = mount.stats()
                tap.equal(stats["order"]["validation"], {"expected": 0, "read": 0, "foreseen": 0}, "the first time nobody knows")
                validation.read(range(HEAD))
            validation.read(range(HEAD, VAL))
            stats = mount.wait_for(lambda s: s["order"]["readers"]["outside"] == VAL * (epoch + 1), "all of val/ was seen")
            tap.equal(stats["order"]["state"], "following", f"epoch {epoch}: and the order is followed")
            tap.equal(stats["order"]["validation"]["foreseen"], VAL * (epoch + 1) - FIRST, f"epoch {epoch}: all but the very first were foreseen")
        tap.equal((stats["order"]["readers"]["lost"], stats["counters"]["order_mismatches"]), (0, 0),
                  "nothing of it counts against the order")
        tap.equal(job.wrong + validation.wrong, [], "every byte was right")


mountkit.run(second_validation_is_there_before_it_is_read)
