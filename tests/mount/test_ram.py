# SPDX-License-Identifier: Apache-2.0
"""The RAM budget: what the daemon takes at most. Not in builds with a sanitizer, whose own memory is not the daemon's."""
import jobs
import mountkit
import tap
from mountkit import rng

MIB = 1 << 20
N = 500


def budget_is_kept(place):
    data = place.files([rng.choice([100, 5000, 200 << 10, 300 << 10, MIB]) for _ in range(N)])
    total = sum(map(len, data.values()))
    for ram in (16, 48):
        sequence = list(range(N))
        rng.shuffle(sequence)
        # Many requests at once and no waiting for anything: as full as it gets.
        with place.mount(order=place.list_file(sequence), ram=f"{ram}M", source_max_inflight=64) as mount:
            job = jobs.Job(mount, data)
            crew = mountkit.Crew()
            for number in range(4):
                crew.add(job.read_part, sequence[number::4])
            tap.no_findings(crew.join(), f"ram={ram}M: {total >> 20} MiB are read")
            job.read(sequence)
            tap.equal(job.wrong, [], f"ram={ram}M: every byte is right")
            peak, limit = jobs.memory_peak(mount.process.pid), ram * MIB * 11 // 10 + 64 * MIB + 100 * N
            tap.ok(peak <= limit, f"ram={ram}M: the daemon never had more than that, a tenth and 64 MiB", f"{peak >> 20} MiB",
                   mount.stats()["gauges"])
            gauges = mount.stats()["gauges"]
            tap.ok(gauges["arena_limit_bytes"] <= ram * MIB, f"ram={ram}M: the arena's limit is within it", gauges)


def orders_take_no_memory(place):
    """One order after the other, faster than they can be set up."""
    place.files([100] * 400)

    def write(n):
        count = mount.stats()["announced"]["count"] + n
        with open(mount.path(".clairfs", "order"), "wb", buffering=0) as file:
            for _ in range(n):
                file.write(b"torch-randperm:seed=3\n")
        mount.wait_for(lambda s: s["announced"]["count"] == count, "all are taken")

    with place.mount() as mount:
        write(500)
        before = jobs.memory_peak(mount.process.pid)
        write(1500)
        tap.ok(jobs.memory_peak(mount.process.pid) - before < 16 << 20, "thousands of orders take no memory", before, jobs.memory_peak(mount.process.pid))


mountkit.run(budget_is_kept, orders_take_no_memory)
