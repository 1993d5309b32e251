# SPDX-License-Identifier: Apache-2.0
"""What it costs to compare a record of the store with its sums at each read (store_verify=always) and not only at the first.

One store is filled, then read at random with the one and the other in turns, on the same segments; a ratio is that of a
round. `first` reads the payload only, `always` also the page of the seal, and both sums: what is between them is a page
from the drive and a pass over bytes that the drive has just written into memory. The wait of a single read is depth 1;
depth 16 is how a mount reads ahead, where the drive is the limit or the CPUs are. A drive that is slower than this one
makes the ratio smaller, not larger.

`verify_mount` is what a job sees of it: mounts with a store that has everything and an arena that is a sixth of it, read in
the order by four threads as fast as they can; the first epoch is left out. There the sums are made ahead of the reader, and
leave the bytes in the CPU's caches for the copy into the kernel that follows.
"""
import os

import benchlib
import benchstore

SIZES = (16 << 10, 110 << 10, 128 << 10, 1 << 20)  # 110 KiB: an image; its last page has room for the seal
DEPTHS = (1, 16)
GOAL = 1.05  # times as long as with `first`, on a mount


class VerifyBench(benchstore.StoreBench):
    def read(self, directory, size, depth):
        sides = {verify: lambda v=verify: self.read_ours(directory, size, depth, v) for verify in ("first", "always")}
        results = self.in_turns(sides)
        first, always = results["first"], results["always"]
        what = f"verify_{size >> 10}k_depth{depth}"
        self.emit(f"{what}_time", "x as long as with first", [a["read_mbps"] / b["read_mbps"] for a, b in zip(first, always)],
                  first_mbps=benchstore.median(a["read_mbps"] for a in first),
                  always_mbps=benchstore.median(a["read_mbps"] for a in always))
        self.emit(f"{what}_cpu", "us/record more than with first",
                  [a["read_cpu"] - b["read_cpu"] for a, b in zip(always, first)],
                  first_cpu=benchstore.median(a["read_cpu"] for a in first),
                  always_cpu=benchstore.median(a["read_cpu"] for a in always))

    def mount_side(self, data, spec, orders, verify):
        """Files per second and CPU of the daemon per file of all epochs but the first; nothing may come from the source."""
        with self.bench.mount(data, order=spec, ram="64M", store_dir=self.store, store_bytes="4G", store_keep_free=0,
                              store_verify=verify, control_reads="off") as mount:
            pid, results = mount.stats()["pid"], []
            for epoch, order in enumerate(orders):
                if epoch == 1:
                    cpu, before = benchlib.cpu_seconds(pid), mount.counters()
                benchlib.drop_caches()  # else the kernel still has most of it
                results.append(self.bench.reader(mount.mountpoint, f"{data}.index", order, 4))
            # Less than the kernel's tick it cannot be said to be.
            cpu, after = max(benchlib.cpu_seconds(pid) - cpu, 1 / os.sysconf("SC_CLK_TCK")), mount.settled()
        n = self.bench.size.verify_files * (len(orders) - 1)
        return {"us": sum(1e6 / r["files_per_s"] for r in results[1:]) / len(results[1:]), "cpu": cpu * 1e6 / n,
                "from_source": (after["source_reads"] - before["source_reads"]) / n,
                "from_store": (after["store_reads"] - before["store_reads"]) / n}

    def mounts(self):
        n, spec = self.bench.size.verify_files, "torch-distributed:seed=7"
        data = self.bench.dataset(n)
        orders = [benchlib.order(self.build, spec, n, e, f"{self.bench.temp}/order{e}")
                  for e in range(self.bench.size.verify_epochs)]
        with benchlib.work_dir(self.args.disk) as self.store:
            self.mount_side(data, spec, orders, "off")  # fills it
            sides = {v: lambda v=v: self.mount_side(data, spec, orders, v) for v in ("first", "always")}
            results = self.in_turns(sides)
        first, always = results["first"], results["always"]
        more = {key: benchstore.median(r[key] for r in always) for key in ("from_source", "from_store")}
        for key, name in (("us", "time"), ("cpu", "cpu")):
            self.emit(f"verify_mount_{name}", f"x {'as long' if key == 'us' else 'CPU of the daemon'} as with first",
                      [a[key] / b[key] for a, b in zip(always, first)], goal=("<=", GOAL) if key == "us" else None,
                      first_us=benchstore.median(r[key] for r in first), always_us=benchstore.median(r[key] for r in always), **more)

    def run(self):
        self.mounts()
        for size in SIZES:
            with benchlib.work_dir(self.args.disk) as directory:
                self.ours("fill", directory, payload=size, bytes=self.total, writers=benchstore.WRITERS, batch=benchstore.BATCH)
                for depth in DEPTHS:
                    self.read(directory, size, depth)


def run(bench):
    VerifyBench(bench).run()
