# SPDX-License-Identifier: Apache-2.0
"""Jobs that read a fifth of the dataset, without a word of configuration: shuffled it is taken for no order that it is not, in order
the rest of the dataset is not read from the source, and the same classes by name are an order of their own."""
import os

import mountkit
import orders
import tap
from mountkit import rng

N, EPOCHS = 4000, 3
PART = N // 5


def dataset(place, per_class):
    """Files by number; classes of so many files each."""
    names = [f"n{i // per_class:03d}/{i:05d}.jpg" for i in range(N)]
    data = {name: rng.randbytes(rng.randrange(1, 4096)) for name in names}
    for name, content in data.items():
        mountkit.write_file(os.path.join(place.source, name), content)
    return data, names


def parts(place):
    names = [f"train/n{i % 10}/{i:05d}.jpg" for i in range(N)] + [f"val/n{i % 10}/{i:05d}.jpg" for i in range(200)]
    data = {name: rng.randbytes(rng.randrange(1, 4096)) for name in names}
    for name, content in data.items():
        mountkit.write_file(os.path.join(place.source, name), content)
    return data, sorted(names)


def job(place, per_class, sequence_of):
    """Reads EPOCHS epochs; in the middle of each it computes until the daemon has had its time."""
    data, names = dataset(place, per_class)
    wrong = []
    with place.mount(recover="quick") as mount:
        read = 0
        for epoch in range(EPOCHS):
            sequence = sequence_of(epoch)
            for at, i in enumerate(sequence):
                if mount.read(names[i]) != data[names[i]]:
                    wrong.append(names[i])
                read += 1
                if at in (100, len(sequence) // 2):
                    mount.wait_for(lambda s: s["counters"]["sample_opens"] >= read and not s["order"]["search"]["is_searching"],
                                   f"epoch {epoch}: the daemon has seen {read} opens")
        tap.equal(wrong, [], "every byte was right")
        return mount.wait_for(lambda s: sum(c["reads"] for c in s["reads"].values()) >= read, "all reads are classified")


def shuffled(place):
    """Seeds that nobody types, of the first fifth: a Subset, a smoke test."""
    stats = job(place, 8, lambda epoch: orders.randperm(PART, 3123456789 + 7 * epoch))
    tap.equal(stats["order"]["search"]["found"], "", "a shuffled fifth of the dataset is no order that is found")
    # but for pages that the kernel dropped
    tap.ok(PART <= stats["counters"]["source_reads"] <= PART + PART // 50, "and nothing else is read from the source", stats["counters"])


def in_order(place):
    stats = job(place, 8, lambda epoch: range(PART))
    tap.equal(stats["order"]["search"]["found"], "sequential", "the first fifth in its order is one")
    tap.ok(stats["counters"]["source_reads"] <= PART + PART // 10 + N // 8, "the rest of the dataset is not read for it", stats["counters"])


def one_class(place):
    stats = job(place, PART, lambda epoch: [PART + i for i in orders.distributed(PART, 1, 0, 5, epoch)])
    tap.equal(stats["order"]["search"]["found"], "torch-distributed:seed=5:under=n001", "one class of five, shuffled, is found by its directory")
    # but for pages that the kernel dropped
    tap.ok(PART <= stats["counters"]["source_reads"] <= PART + PART // 50, "and nothing else is read from the source", stats["counters"])


def seeded(place, part, behind, when):
    """torch.manual_seed(42), a loader that shuffles a Subset of the first samples, and a validation loader between the epochs."""
    generator = orders.Mt19937(42)
    words = [generator.u32() for _ in range(32)]
    data, names = parts(place)
    train, val = [n for n in names if n.startswith("train/")], [n for n in names if n.startswith("val/")]
    wrong, read = [], 0
    with place.mount(recover="quick") as mount:
        for epoch in range(EPOCHS):
            for at, i in enumerate(orders.randperm(part, words[6 * epoch + 3])):
                wrong += [] if mount.read(train[i]) == data[train[i]] else [train[i]]
                read += 1
                if at in (40, part // 2):
                    mount.wait_for(lambda s, read=read: s["counters"]["sample_opens"] >= read and
                                   not s["order"]["search"]["is_searching"], f"epoch {epoch}: the daemon has seen {read} opens")
            for name in val:
                mount.read(name)
                read += 1
        stats = mount.stats()
        tap.equal(wrong, [], "every byte was right")
        tap.equal(stats["order"]["search"]["found"], f"torch-loader:seed=42:{behind}draws=6:first={part}:under=train",
                  f"a shuffled Subset of the first {part} is found in its {when} epoch")
        tap.ok(stats["order"]["epoch"]["match_percent"] >= 95, "and followed", stats["order"]["epoch"])
        text = mountkit.good("status", mount.mountpoint).decode()
        tap.ok(f"the job reads the first {part} of the {len(train)} samples below train/" in text, "status says what is read", text)


def seeded_fifth(place):
    """A round part: it is asked about before anybody can know what the job reads."""
    seeded(place, N // 5, "", "first")


def seeded_odd(place):
    seeded(place, 777, "before=6:", "second")


mountkit.run(shuffled, in_order, one_class, seeded_fifth, seeded_odd)
