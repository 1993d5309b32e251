# SPDX-License-Identifier: Apache-2.0
"""The store's own path against fio on the same drive and, for reads, the same files, both around the page cache.

Both sides of a comparison run alternately, and the ratio is that of a round. Filling is measured as a mount does it: four
writers, each with its share of at most sixteen samples. fio writes sequentially into reserved space, with one write in
flight and with as many as the store has writers. The other ways of filling are printed to compare with.

Rates count payload: a record has one page more where the payload fills its last page, as these do. CPU is that of the
whole process, the program that asks included. A first read compares sums; `verify_cpu` is that of a store that compares
them at each read.
"""
import json
import os
import statistics

import benchlib

SIZES = (16 << 10, 128 << 10, 1 << 20)
WRITERS, BATCH = 4, 4
# writers, records put together, what it is called; the product's first
FILLS = [(WRITERS, BATCH, ""), (1, 1, "_1writer_single"), (2, 1, "_2writers_single"), (4, 1, "_4writers_single"),
         (1, 16, "_1writer_batch16")]
DEPTHS = (1, 16)
CPU_SIZE, CPU_DEPTH = 128 << 10, 16


def median(values):
    return round(statistics.median(values), 2)


class StoreBench:
    def __init__(self, bench):
        self.bench, self.args, self.build, self.emit = bench, bench.args, bench.build, bench.emit
        self.total = (self.args.store_mib or bench.size.store_mib) << 20
        # As a segment: what a write into a reservation costs depends on its size (src/tier/store_space.c).
        self.reserved, self.seconds = bench.size.store_reserved, bench.size.store_seconds

    def ours(self, mode, directory, **options):
        args = [a for name, value in options.items() for a in (f"--{name}", value)]
        out = benchlib.run(f"{self.build}/bench/micro/bench_store", mode, directory, *args)
        return {line["name"]: line["value"] for line in map(json.loads, out.splitlines())}

    @staticmethod
    def fio(name, engine, *flags, **options):
        """MB/s and CPU per request of one fio job, around the page cache."""
        args = [*(f"--{flag}" for flag in flags), *(f"--{key}={value}" for key, value in options.items())]
        job = json.loads(benchlib.run("fio", f"--name={name}", f"--ioengine={engine}", "--direct=1", "--randrepeat=0",
                                      "--norandommap=1", "--output-format=json", *args))["jobs"][0]
        side = job["read" if "read" in options["rw"] else "write"]
        cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1e3 / max(side["total_ios"], 1)
        return {"mbps": side["bw_bytes"] / 1e6, "cpu": cpu}

    def in_turns(self, sides):
        """What each side returned, by name, in rounds whose order is turned every time."""
        results = {name: [] for name in sides}
        for r in range(self.bench.rounds):
            names = list(sides) if r % 2 else list(reversed(sides))
            for name in names:
                results[name].append(sides[name]())
        return results

    def fill_ours(self, size, writers, batch):
        with benchlib.work_dir(self.args.disk) as directory:
            return self.ours("fill", directory, payload=size, bytes=self.total, writers=writers, batch=batch)

    def fill_fio(self, size, engine, depth):
        with benchlib.work_dir(self.args.disk) as directory:
            return self.fio("fill", engine, rw="write", filename=f"{directory}/file", bs=size, filesize=self.reserved, iodepth=depth,
                            io_size=self.total, fallocate="posix")

    def fill(self, size):
        sides = {name: lambda w=writers, b=batch: self.fill_ours(size, w, b) for writers, batch, name in FILLS}
        sides["fio"] = lambda: self.fill_fio(size, "psync", 1)
        sides["fio_deep"] = lambda: self.fill_fio(size, "io_uring", WRITERS)
        results = self.in_turns(sides)
        rates = {name: [x["mbps" if name.startswith("fio") else "fill_mbps"] for x in results[name]] for name in results}
        for writers, batch, name in FILLS:
            self.emit(f"store_fill_{size >> 10}k{name}_ratio", "x fio sequential write",
                      [a / b for a, b in zip(rates[name], rates["fio"])], goal=None if name else (">=", 0.8),
                      ours_mbps=median(rates[name]), fio_mbps=median(rates["fio"]), writers=writers, batch=batch,
                      cpu=median(x["fill_cpu"] for x in results[name]), fio_cpu=median(x["cpu"] for x in results["fio"]))
        self.emit(f"store_fill_{size >> 10}k_deep_ratio", f"x fio sequential write, {WRITERS} in flight",
                  [a / b for a, b in zip(rates[""], rates["fio_deep"])],
                  ours_mbps=median(rates[""]), fio_mbps=median(rates["fio_deep"]))

    def read_fio(self, directory, size, depth):
        files = sorted(f"{directory}/{name}" for name in os.listdir(directory) if name.startswith("seg-"))
        return self.fio("reads", "io_uring", "readonly", "fixedbufs", "registerfiles", rw="randread", filename=":".join(files),
                        bs=size, iodepth=depth, file_service_type="random", time_based=1, runtime=f"{int(self.seconds * 1000)}ms")

    def read_ours(self, directory, size, depth, verify):
        return self.ours("read", directory, payload=size, bytes=self.total, depth=depth, seconds=self.seconds, verify=verify)

    def reads(self, directory, size, depth):
        sides = {"first": lambda: self.read_ours(directory, size, depth, "first"),
                 "fio": lambda: self.read_fio(directory, size, depth)}
        is_cpu = (size, depth) == (CPU_SIZE, CPU_DEPTH)
        if is_cpu:
            sides["always"] = lambda: self.read_ours(directory, size, depth, "always")
        results = self.in_turns(sides)
        ours, fio = results["first"], results["fio"]
        what = f"store_read_{size >> 10}k_depth{depth}"
        self.emit(f"{what}_ratio", "x fio randread", [a["read_mbps"] / b["mbps"] for a, b in zip(ours, fio)], goal=(">=", 0.9),
                  ours_mbps=median(a["read_mbps"] for a in ours), fio_mbps=median(b["mbps"] for b in fio))
        more = {"verify_cpu": median(a["read_cpu"] for a in results["always"])} if is_cpu else {}
        self.emit(f"{what}_cpu", "us/record", [a["read_cpu"] for a in ours], goal=("<=", 5) if is_cpu else None,
                  fio_cpu=median(b["cpu"] for b in fio), first_read_cpu=median(a["first_read_cpu"] for a in ours), **more)
        self.emit(f"{what}_writes", "bytes written by reads", [a["read_writes"] for a in ours], goal=("<=", 0))

    def opens(self):
        n = self.args.store_records or self.bench.size.store_records
        with benchlib.work_dir(self.args.disk) as directory:
            self.ours("fill", directory, payload=4000, bytes=4000 * n, writers=WRITERS, batch=16)
            opens = [self.ours("open", directory, payload=4000, bytes=4000 * n) for _ in range(self.bench.rounds)]
        self.emit("store_open", "s", [o["open_seconds"] for o in opens], goal=("<=", 2), records=n)
        self.emit("store_index", "bytes/record", [o["index_bytes"] for o in opens], goal=("<=", 40), records=n)

    def run(self):
        for size in SIZES:
            self.fill(size)
            with benchlib.work_dir(self.args.disk) as directory:
                self.ours("fill", directory, payload=size, bytes=self.total, writers=WRITERS, batch=BATCH)
                for depth in DEPTHS:
                    self.reads(directory, size, depth)
        self.opens()


def run(bench):
    StoreBench(bench).run()
