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


def the_sums_add_up(place):
    """Small samples: what is kept of each beside its bytes is no trifle, and status says how much that is."""
    n = 30000
    place.files([rng.randrange(1, 100) for _ in range(n)])
    with place.mount(order="sequential", ram="512M", debug={"stage": "1M"}) as mount:
        mount.wait_for(lambda s: s["gauges"]["arena_bytes"] >= n * 4096, "all are in the arena")
        stats = mount.stats()
        told = stats["memory"]["resident"]
        parts = sum(told[key] for key in ("arena", "samples_held", "index", "tables", "other"))
        tap.ok(abs(parts - told["bytes"]) <= MIB and told["bytes"] <= jobs.memory_peak(mount.process.pid), "the parts are the whole", told)
        tap.ok(told["peak"] >= told["bytes"] - MIB, "the most it had is known", told)
        tap.equal(told["arena"], stats["gauges"]["arena_bytes"], "of these the arena")
        tap.ok(300 * n <= told["samples_held"] <= 1000 * n, "lists of what it holds", told)
        tap.ok(60 * n <= told["index"] <= 120 * n, "the index", told)
        tap.ok(30 * n <= told["tables"] <= 100 * n, "tables", told)
        tap.ok(told["other"] < 32 * MIB, "little else", told)
        line = [line for line in mountkit.good("status", mount.mountpoint).decode().splitlines() if "the daemon has" in line]
        tap.ok(len(line) == 1 and "index" in line[0] and "arena" in line[0], "status says it", line)


def ram_is_for_what_comes_with_small_samples_too(place):
    n, ram = 60000, 32
    place.files([rng.randrange(1, 100) for _ in range(n)])
    with place.mount(order="sequential", ram=f"{ram}M", debug={"stage": "1M"}) as mount:
        for number in range(0, n, 3):
            mount.read(f"s{number:05d}.bin")
        memory = mount.wait_for(lambda s: s["gauges"]["arena_bytes"] >= s["memory"]["arena"] * 8 // 10, "the arena is full")["memory"]
        told, most = memory["resident"], ram * MIB + ram * MIB // 16 + ram * MIB // 10
        tap.ok(told["bytes"] - told["other"] <= most, "all together is what was told, a sixteenth, and a tenth for other reads", told, most)
        tap.ok(ram * MIB // 2 <= memory["arena"] < ram * MIB and memory["ram_now"] == memory["arena"], "samples have less of it", memory)
        text = mountkit.good("status", mount.mountpoint).decode()
        tap.ok("are for samples" in text and "shrunk" not in text, "status says it", text)


def orders_take_no_memory(place):
    """One order after the other, faster than they can be set up."""
    place.files([100] * 400)

    def tell(n):
        count = mount.stats()["announced"]["count"] + n
        for i in range(n):
            status, line = mount.tell(f"torch-randperm:seed={i % 2}")
            if status:
                tap.ok(False, "an order is taken", line)
        tap.equal(mount.stats()["announced"]["count"], count, "all are taken")

    with place.mount() as mount:
        tell(500)
        before = jobs.memory_peak(mount.process.pid)
        tell(1500)
        tap.ok(jobs.memory_peak(mount.process.pid) - before < 16 << 20, "thousands of orders take no memory", before, jobs.memory_peak(mount.process.pid))


mountkit.run(budget_is_kept, the_sums_add_up, ram_is_for_what_comes_with_small_samples_too, orders_take_no_memory)
