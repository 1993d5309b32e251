# SPDX-License-Identifier: Apache-2.0
"""What `clairfs status` says of ordinary jobs is true: of one whose order was found while it read, of one that has read an
epoch and not begun the next, of files that were only touched, and of how much the source was asked for ahead."""
import os

import mountkit
import orders
import tap
from jobs import Job
from mountkit import good, rng, write_file

N = 1600
FALSE = ("was told", "resumed", "jumped", "another")


def says(place):
    return good("status", place.mnt).decode()


def check_true(place, what, *words):
    text = says(place)
    tap.ok(all(word in text for word in words) and not any(word in text for word in FALSE), what, text)


def an_order_that_is_found(place):
    data = place.files([rng.randrange(1, 4096) for _ in range(N)])
    with place.mount(recover="quick") as mount:
        check_true(place, "nobody reads yet", "the job has read nothing yet")
        job, sequence = Job(mount, data), orders.distributed(N, 2, 1, 0, 0)
        job.read(sequence[:100])
        mount.wait_for(lambda s: s["order"]["state"] == "following" and s["order"]["epoch"]["position"] == 100,
                       "the order is found and followed")
        check_true(place, "it was found in the middle of an epoch: that is no resumed job, and nobody told it",
                   "order     torch-distributed:seed=0:world=2:rank=1\n", "found torch-distributed:seed=0:world=2:rank=1 after",
                   "the job reads epoch 0 of the order that was found, 12 % of it so far\n")
        job.read(sequence[100:])
        mount.wait_for(lambda s: s["order"]["epoch"]["number"] == 1, "the epoch is read")
        check_true(place, "and has read nothing of the next",
                   "the job has read an epoch to its end, and nothing yet of epoch 1 of the order that was found\n")
        job.read(orders.distributed(N, 2, 1, 0, 1)[:400])
        mount.wait_for(lambda s: s["order"]["epoch"]["position"] == 400, "the next one begins")
        check_true(place, "until it does", "the job reads epoch 1 of the order that was found, 50 % of it so far\n")
        tap.equal(job.wrong, [], "every byte was right")


def files_that_are_touched(place):
    data = place.files([1000] * 6)
    with place.mount(revalidate=1) as mount:
        for name in sorted(data):
            mount.read(name)
        tap.ok("have changed there" not in says(place), "nothing has changed")
        os.chmod(place.path("source", "s00000.bin"), 0o600)
        os.link(place.path("source", "s00001.bin"), place.path("link"))
        write_file(place.path("source", "s00002.bin"), rng.randbytes(2000))
        mount.wait_for(lambda s: s["counters"]["source_changed"] == 3, "the changes are seen")
        text = says(place)
        tap.ok("3 files have changed there, of which 2 in permissions, owner or links alone: they are read again as well\n" in text,
               "a chmod and a hard link are told from other bytes", text)


def samples_from_the_store(place):
    """The store gives the later epochs: the source is asked for each sample once."""
    data = place.files([rng.randrange(60_000, 100_000) for _ in range(600)])
    sequence = [orders.distributed(600, 1, 0, 0, epoch) for epoch in range(3)]
    with place.mount(order="torch-distributed:epochs=3", store_dir=place.store, store_bytes="100M", ram="20M", store_keep="no") as mount:
        job = Job(mount, data)
        for epoch in range(3):
            job.epoch(epoch, sequence[epoch], burst=20)
        counters = mount.counters()
        tap.ok(counters["store_reads"] > 300, "the store is read", counters)
        tap.ok(0 < counters["prefetch_issued"] <= counters["source_reads"], "what is asked of the source is counted, no more", counters)
        tap.ok(f"asked of the source {counters['prefetch_issued']}," in says(place), "and said")
        tap.equal(job.wrong, [], "every byte was right")


mountkit.run(an_order_that_is_found, files_that_are_touched, samples_from_the_store)
