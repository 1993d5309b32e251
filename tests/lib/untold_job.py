# SPDX-License-Identifier: Apache-2.0
"""What jobs have in common that read a mount whose order nobody told: files that are compared with the source's, and computing until
the mount knows more. Runs in the job's own Python, which needs nothing but the standard library for it."""
import json
import sys
import time


class Files:
    """A dataset: sample i is the file of that number, the same in the mount and in its source."""

    def __init__(self, n, name, *roots):
        self.n, self.name, self.roots = n, name, roots

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        read = []
        for root in self.roots:
            with open(f"{root}/{self.name.format(i)}", "rb") as f:
                read.append(f.read())
        assert all(data == read[0] for data in read), i
        return i


def compute(point, what, is_done, seconds=120):
    """Until is_done(order, search) of the mount's statistics; whoever waits in vain ends with what there is."""
    end = time.monotonic() + seconds
    while True:
        with open(f"{point}/.clairfs/stats.json", "rb") as f:
            order = json.load(f)["order"]
        if is_done(order, order["search"]):
            return
        if time.monotonic() > end:
            sys.exit(f"{what}: {order}")
        time.sleep(0.01)
