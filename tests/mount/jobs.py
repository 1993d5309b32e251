# SPDX-License-Identifier: Apache-2.0
"""A training job that reads in an order, at the pace at which the mount is ready for it.

The job waits before each burst until the daemon says that the burst is in RAM, so "prefetched" is a fact and not a race.
What the kernel drops between that moment and the read is counted by the daemon and accepted: see Account.
"""
import os
import threading

import mountkit
import tap
from mountkit import Crew

FOLLOWED = ("checking", "following", "slowed", "finished")


class Account:
    """How the reads of a stretch were served, and whether misses among them have an explanation."""

    def __init__(self, mount):
        self.mount, self.start = mount, mount.stats()

    def change(self, stats=None):
        stats = stats or self.mount.stats()
        counters = {k: v - self.start["counters"][k] for k, v in stats["counters"].items()}
        counters["reads"] = {k: v["reads"] - self.start["reads"][k]["reads"] for k, v in stats["reads"].items()}
        return counters

    def settled(self, opens):
        """The change once every open of a sample was seen (the watcher hears of them later)."""
        return self.change(self.mount.wait_for(
            lambda s: s["counters"]["sample_opens"] - self.start["counters"]["sample_opens"] >= opens
            and sum(c["reads"] for c in s["reads"].values()) - sum(c["reads"] for c in self.start["reads"].values()) >= opens,
            f"{opens} opens of samples are seen and counted"))


def dropped(counters):
    """Reads whose pages were pushed and are gone, with or without their inode."""
    return counters["stage_evicted_reads"] + counters["upcall_forget"]


class Job:
    """One node: `ranks` readers that share the sequence as the order deals it out."""

    def __init__(self, mount, data, names=None):
        self.mount, self.data = mount, data
        self.names = names or sorted(data)
        self.opens = 0
        self.wrong = []

    def read(self, sequence):
        for sample in sequence:
            name = self.names[sample]
            if self.mount.read(name) != self.data[name]:
                self.wrong.append(name)
        self.opens += len(sequence)

    def wait_ready(self, epoch, at, length, burst):
        """Until the reader's position is known to be `at` and the burst after it is in RAM."""
        def is_ready(stats):
            order, now = stats["order"], stats["order"]["epoch"]
            if order["state"] not in ("waiting", *FOLLOWED):
                return True  # the burst will show what that means
            here = (now["number"], now["position"])
            is_here = here >= (epoch, at) or at == 0 and here == (epoch - 1, now["length"])
            return is_here and (now["lead"] >= burst or order["state"] == "finished")
        self.mount.wait_for(is_ready, f"epoch {epoch}, position {at}: {burst} of {length} are in RAM")

    def epoch(self, epoch, sequence, burst=32, start=0, readers=1):
        """Reads sequence[start:] in bursts, each by several readers at once."""
        for at in range(start, len(sequence), burst):
            part = sequence[at:at + burst]
            self.wait_ready(epoch, at, len(sequence), len(part))
            if readers == 1:
                self.read(part)
                continue
            crew = Crew()
            for number in range(readers):
                crew.add(self.read_part, part[number::readers])
            self.opens += len(part)
            errors = crew.join()
            if errors:
                raise mountkit.Failed("\n".join(errors))

    def read_part(self, part):
        """read() for threads: opens are counted by the caller."""
        for sample in part:
            name = self.names[sample]
            if self.mount.read(name) != self.data[name]:
                self.wrong.append(name)


def state_of(mount):
    return mount.stats()["order"]["state"]


def memory_peak(pid):
    """Most RAM the process ever had, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    raise mountkit.Failed(f"process {pid} has no VmHWM")
