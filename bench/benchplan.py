# SPDX-License-Identifier: Apache-2.0
"""How often the mount reads the source beside the least that any policy must.

4000 files of 110 KiB over the simulated source, four epochs of a shuffle, `ram=` of a share of the data: of N files C fit, so the
first epoch reads N and each later one N - C at least, whatever is kept. One reader or four that share the order, which let go of
the pages that they have read: else the kernel keeps them as well, beyond `ram=`, and the mount reads less than the bound. No
compute: the hardest case, as nothing is early then.

What is asked for beyond that is what is fetched near the end of a pass for the room of samples that the next pass needs (the
horizon), and samples dropped before their use ("wasted").
"""
import os
import struct
import threading
import time

import benchlib

PAGE = 4096


class Readers:
    """Threads that take the next file of the order, each one."""

    def __init__(self, n, mountpoint, names, order, keeps_pages=False):
        self.mountpoint, self.names, self.order, self.keeps_pages = mountpoint, names, order, keeps_pages
        self.lock, self.next, self.errors = threading.Lock(), 0, []
        self.waited = [0.0] * n
        self.threads = [threading.Thread(target=self.work, args=(i,)) for i in range(n)]

    def take(self):
        with self.lock:
            self.next += 1
            return self.next - 1

    def read(self, name, room):
        fd = os.open(os.path.join(self.mountpoint, name), os.O_RDONLY)
        try:
            while os.readv(fd, [room]) > 0:
                pass
            if not self.keeps_pages:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)

    def work(self, number):
        room = bytearray(1 << 20)
        try:
            while (at := self.take()) < len(self.order):
                start = time.perf_counter()
                self.read(self.names[self.order[at]], room)
                self.waited[number] += time.perf_counter() - start
        except OSError as e:
            self.errors.append(e)

    def run(self):
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()
        if self.errors:
            raise benchlib.Failed(f"a reader: {self.errors[0]}")
        return max(self.waited)


def names_of(index):
    with open(index, encoding="utf-8") as file:
        return [line.split("\t")[1] for line in file]


def orders_of(bench, spec, n, epochs):
    found = []
    for epoch in range(epochs):
        with open(benchlib.order(bench.build, spec, n, epoch, f"{bench.temp}/order"), "rb") as file:
            found.append(struct.unpack(f"<{n}I", file.read()))
    return found


def one_run(bench, names, case, seed):
    """Reads of the source over those that must be, wasted samples over issued ones, and what the first epoch waited."""
    readers, share, latency, epochs, ram = case
    n, spec = len(names), f"torch-randperm:seed={seed}:epochs={epochs}"
    orders, slow = orders_of(bench, spec, n, epochs), f"{bench.temp}/slow"
    with benchlib.slowfs(bench.build, f"{bench.temp}/data{n}", slow, latency, 0):
        benchlib.drop_caches()
        with bench.mount(slow, order=spec, ram=ram, control_reads="off", revalidate=0) as mount:
            waited = [Readers(readers, mount.mountpoint, names, order).run() for order in orders]
            counters = mount.settled()
    bound = n + (epochs - 1) * (n - min(n, n * share // 100))
    return counters["source_reads"] / bound, 100 * counters["prefetch_wasted"] / counters["prefetch_issued"], waited[0]


def run(bench, epochs=4, readers=(1, 4), shares=(100, 50, 25), latencies=(5, 10)):
    n = bench.size.job_files
    if bench.size.is_smoke:
        readers, shares, latencies = (4,), (50,), (5,)
    data = bench.dataset(n)
    names = names_of(f"{data}.index")
    size = os.path.getsize(os.path.join(data, names[0]))
    for latency in latencies:
        for share in shares:
            ram = max(n * share // 100 * ((size + PAGE - 1) // PAGE) * PAGE, 16 << 20)
            for count in readers:
                case = (count, share, latency, epochs, ram)
                runs = [one_run(bench, names, case, seed) for seed in range(bench.rounds)]
                tag = f"{share}percent_{count}readers_{latency}ms"
                bench.emit(f"plan_reads_{tag}", "x what must be", [r[0] for r in runs], goal=("<=", 1.01))
                bench.emit(f"plan_wasted_{tag}", "% of issued", [r[1] for r in runs], goal=("<=", 0.2))
                bench.emit(f"plan_epoch0_{tag}", "s waited", [r[2] for r in runs])
