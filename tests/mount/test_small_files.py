# SPDX-License-Identifier: Apache-2.0
"""Many small files, and a prefetcher that is farther ahead of the readers than the kernel is to know inodes: staging waits
for the readers, and gives up on nothing."""
import jobs
import mountkit
import tap
from mountkit import rng

N = 24000
LOOKUPS = 16384  # FS_LOOKUPS_AHEAD
CHUNK = 1000


def the_stage_follows_the_readers(place):
    data = place.files([rng.randrange(1, 2000) for _ in range(N)])
    sequence = list(range(N))
    rng.shuffle(sequence)
    # No inode is made known but for a push, so the bound is met at once.
    with place.mount(order=place.list_file(sequence) + ":epochs=1", ram="256M",
                     debug={"stage": "128M", "inodes_ahead": 0}) as mount:
        job, account = jobs.Job(mount, data), jobs.Account(mount)
        mount.wait_for(lambda s: s["counters"]["stage_lookups_refused"] > 0, "more would be pushed than the kernel is to know")
        for at in range(0, N, CHUNK):
            # What others make the kernel drop is pushed again: it counts twice, which asks for less.
            ahead = min(at + LOOKUPS - CHUNK, N - N // 100)
            mount.wait_for(lambda s, want=ahead: s["counters"]["stage_pushed"] >= want, f"at {at}: {ahead} were pushed")
            job.read(sequence[at:at + CHUNK])
        tap.equal(job.wrong, [], "every byte is right")
        counters = account.settled(N)
        served = counters["reads"]["staged"] + jobs.dropped(counters)
        tap.ok(served >= N * 98 // 100, "98 of 100 are staged when they are read", counters["reads"], jobs.dropped(counters))
        # The first round, and from then on one in sixteen; twice that for opens that come in bursts.
        refused = counters["stage_lookups_refused"]
        tap.ok(refused <= 2 * 4096 + N // 8, "what has to wait is not asked for again and again", refused)


mountkit.run(the_stage_follows_the_readers)
