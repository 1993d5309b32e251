# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one mount that told no order: processes of their own, with loader workers that they forked, which begin at the
same time or one after the other. Each is found and followed; the ranks of one are one job; and when a job's processes are
gone, killed or not, nothing is kept for it.

A job waits after every few reads for a word from the test, so that none runs ahead of what the daemon has seen.
"""
import os
import re
import signal
import subprocess
import sys

import mountkit
import orders
import tap
from mountkit import good

N, SIZE, STEP = 1600, 8192, 32
READERS = 16  # that the daemon tells apart

JOB = """
import multiprocessing, os, sys
mount, source = sys.argv[1], sys.argv[2]

def load(base, path):
    fd = os.open(base + "/" + path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)

def is_wrong(path):
    return load(mount, path) != load(source, path)

if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as workers:
        for line in sys.stdin:
            print(sum(workers.map(is_wrong, line.split(), chunksize=4)), flush=True)
"""

# Starts its ranks, each in a session of its own, as torchrun does, and passes on what they say.
LAUNCHER = """
import subprocess, sys
ranks = [subprocess.Popen([sys.executable, "-c", sys.argv[1], *sys.argv[2:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True, start_new_session=True) for _ in range(2)]
for line in sys.stdin:
    rank, _, rest = line.partition(" ")
    ranks[int(rank)].stdin.write(rest)
    ranks[int(rank)].stdin.flush()
    print(ranks[int(rank)].stdout.readline().strip(), flush=True)
for rank in ranks:
    rank.stdin.close()
    rank.wait()
"""


# Its workers are a program of their own, as multiprocessing spawns them, and end when told to: others are started then.
SPAWNER = """
import subprocess, sys
worker = None
for line in sys.stdin:
    if not line.strip():
        worker.communicate()
        worker = None
        print(0, flush=True)
        continue
    worker = worker or subprocess.Popen([sys.executable, "-c", *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
    worker.stdin.write(line)
    worker.stdin.flush()
    print(worker.stdout.readline().strip(), flush=True)
if worker:
    worker.communicate()
"""


class Job:
    """A process that reads a sequence of samples."""

    def __init__(self, place, mount, paths, sequence):
        self.mount, self.paths, self.sequence, self.at, self.wrong = mount, paths, sequence, 0, 0
        self.process = subprocess.Popen([sys.executable, "-c", JOB, mount.mountpoint, place.source], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, start_new_session=True)

    def ask(self, paths, prefix=""):
        self.process.stdin.write(prefix + " ".join(paths) + "\n")
        self.process.stdin.flush()
        self.wrong += int(self.process.stdout.readline())

    def read(self, n=STEP):
        self.ask([self.paths[i] for i in self.sequence[self.at:self.at + n]])
        self.at += n

    def is_at_end(self):
        return self.at >= len(self.sequence)

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)  # with its workers, which live on else
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Launched(Job):
    """One of two ranks that a launcher started."""

    def __init__(self, place, mount, paths, sequences):
        self.mount, self.paths, self.sequences, self.at, self.wrong = mount, paths, sequences, 0, 0
        self.sequence = sequences[0]
        self.process = subprocess.Popen([sys.executable, "-c", LAUNCHER, JOB, mount.mountpoint, place.source],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def read(self, n=STEP):
        for rank, sequence in enumerate(self.sequences):
            self.ask([self.paths[i] for i in sequence[self.at:self.at + n]], f"{rank} ")
        self.at += n


class Spawned(Job):
    """Whose workers are spawned for each epoch."""

    def __init__(self, place, mount, paths, sequence):
        self.mount, self.paths, self.sequence, self.at, self.wrong = mount, paths, sequence, 0, 0
        self.process = subprocess.Popen([sys.executable, "-c", SPAWNER, JOB, mount.mountpoint, place.source],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def end_workers(self):
        self.ask([])


def setting(place, recover="quick", **options):
    place.files([SIZE] * N)
    mount = place.mount(recover=recover, **options)
    return mount, [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]


def jobs_of(mount):
    return mount.stats()["jobs"]


def spec_of(job):
    """The same order found in a later epoch is counted from there."""
    return re.sub("(torch-distributed:seed=)[234]:", r"\g<1>1:", re.sub("(torch-loader:seed=42).*", r"\1", job["spec"]))


def specs(mount):
    return sorted(spec_of(job) for job in jobs_of(mount))


def opens(mount):
    return mount.stats()["counters"]["sample_opens"]


def is_searching(mount):
    search = mount.stats()["order"]["search"]
    return any(one["is_searching"] for one in (search, *search["others"]))


def read_all(mount, jobs, n=STEP):
    """Some reads of each, and the daemon hears of them and has looked at them: a job at full speed is far by then."""
    for job in jobs:
        before = opens(mount)
        job.read(n)
        mountkit.wait_until(lambda before=before: opens(mount) >= before + n // 2, "the daemon hears of the reads")
    mountkit.wait_until(lambda: not is_searching(mount), "searches end")


def read_until(mount, jobs, condition, what):
    """The jobs go on until it is so, or an epoch is over; then it must be so with what was read."""
    while not condition() and not any(job.is_at_end() for job in jobs):
        read_all(mount, jobs)
    mountkit.wait_until(condition, what)


def epochs_of(n_epochs, sequence_of):
    return [i for epoch in range(n_epochs) for i in sequence_of(epoch)]


def loader_of(seed):
    generator = orders.Mt19937(seed)
    words = [generator.u32() for _ in range(16)]
    return lambda epoch: orders.randperm(N, words[4 * epoch + 3])


RANKS = "torch-distributed:seed=1:world=4:ranks=0-1"  # of a job that has two more elsewhere
FIRST, SECOND = "torch-distributed:seed=1:world=2:rank=1", "torch-loader:seed=42"


def two(place, mount, paths):
    return [Job(place, mount, paths, epochs_of(3, lambda e: orders.distributed(N, 2, 1, 1, e))),
            Job(place, mount, paths, epochs_of(2, loader_of(42)))]


def followed(mount, spec):
    return any(spec_of(job) == spec and job["state"] == "following" for job in jobs_of(mount))


def are_found_and_followed(mount, jobs, what):
    read_until(mount, jobs, lambda: specs(mount) == sorted([FIRST, SECOND]), f"{what}: both are found")
    tap.ok(jobs[1].at <= 800, f"{what}: the orders of both are found", [job.at for job in jobs])
    read_until(mount, jobs, lambda: followed(mount, FIRST) and followed(mount, SECOND), f"{what}: both are followed")
    tap.ok(True, f"{what}: both are followed")
    pids = {FIRST: jobs[0].process.pid, SECOND: jobs[1].process.pid}
    read_until(mount, jobs, lambda: {spec_of(job): job.get("pid") for job in jobs_of(mount)} == pids, f"{what}: whose is each")
    tap.ok(True, f"{what}: whose each is, is known")
    text = good("status", mount.mountpoint).decode()
    for i, job in enumerate(jobs_of(mount)):
        line = f"job {i + 1}     {job['spec']}, found; read by process {job['pid']}"
        tap.ok(line in text.replace("seed=0:", ""), f"{what}: status has a line of job {i + 1}", text)
    tap.equal([job.wrong for job in jobs], [0, 0], f"{what}: all bytes were the source's")


def begun_at_once(place):
    mount, paths = setting(place)
    with mount:
        jobs = two(place, mount, paths)
        are_found_and_followed(mount, jobs, "at once")
        killed, left = jobs
        killed.kill()
        mountkit.wait_until(lambda: specs(mount) == [SECOND], "the job that was killed ends")
        tap.ok(True, "a job that is killed ends, the other goes on")
        text = good("status", mount.mountpoint).decode()
        tap.ok("the last job that has ended read torch-distributed:seed=" in text, "status says which has ended", text)
        read_all(mount, [left], 4 * STEP)
        tap.ok(followed(mount, SECOND), "the other one is followed still", jobs_of(mount))
        left.end()
        mountkit.wait_until(lambda: not jobs_of(mount), "the other one ends")
        one = Job(place, mount, paths, orders.distributed(N, 1, 0, 3, 0))
        read_until(mount, [one], lambda: specs(mount) == ["torch-distributed:seed=3"], "the next job is found")
        tap.ok(one.at <= 256, "the next job is found as one that is alone", one.at)
        one.end()


def begun_one_after_the_other(place):
    mount, paths = setting(place)
    with mount:
        jobs = two(place, mount, paths)
        read_until(mount, jobs[:1], lambda: followed(mount, FIRST), "the first is followed")
        are_found_and_followed(mount, jobs, "one after the other")
        for job in jobs:
            job.end()


def ranks_are_one_job(place):
    mount, paths = setting(place)
    with mount:
        ranks = Launched(place, mount, paths, [orders.distributed(N, 4, rank, 1, 0) for rank in range(2)])
        read_until(mount, [ranks], lambda: specs(mount) == [RANKS], "both ranks are found")
        tap.ok(ranks.at <= 256, "two ranks with a launcher are one job, found at once", ranks.at)
        read_until(mount, [ranks], ranks.is_at_end, "an epoch is read")
        stats = mount.stats()
        tap.equal([spec_of(job) for job in stats["jobs"]], [RANKS], "and stay one job")
        tap.ok(stats["order"]["epoch"]["match_percent"] >= 90, "which reads in its order", stats["order"]["epoch"])
        ranks.end()


def ranks_beside_another_job(place):
    mount, paths = setting(place)
    with mount:
        ranks = Launched(place, mount, paths, [epochs_of(4, lambda e, r=r: orders.distributed(N, 4, r, 1, e)) for r in range(2)])
        other = Job(place, mount, paths, epochs_of(2, loader_of(42)))
        want = sorted([RANKS, SECOND])
        read_until(mount, [ranks, other], lambda: specs(mount) == want, "the ranks are one job, the other one is another")
        tap.ok(True, "two ranks beside another job are one job")
        read_all(mount, [ranks, other], 4 * STEP)
        tap.equal(specs(mount), want, "and stay one")
        other.end()
        ranks.end()


def search_of_all_seeds_goes_on(place):
    """Two ranks may be one job whose seed is an unlikely one: nobody but the finder of everybody may find that."""
    mount, paths = setting(place, recover="full")
    with mount:
        ranks = Launched(place, mount, paths, [orders.distributed(N, 2, rank, 3735928559, 0) for rank in range(2)])
        search = lambda: mount.stats()["order"]["search"]
        while not search()["others"] and not ranks.is_at_end():
            before = opens(mount)
            ranks.read()
            mountkit.wait_until(lambda before=before: opens(mount) >= before + STEP, "the daemon hears of the reads")
            mountkit.wait_until(lambda: search()["is_full"] or not search()["is_searching"], "a look ends")
        mountkit.wait_until(lambda: len(search()["others"]) == 2, "each reader has a finder")
        for _ in range(4):
            before = opens(mount)
            ranks.read(8)
            mountkit.wait_until(lambda before=before: opens(mount) >= before + 8, "the daemon hears of the reads")
            mountkit.wait_until(lambda: all(one["searches"] >= 1 for one in search()["others"]), "finders look")
        tap.ok(search()["is_full"] and search()["searches"] >= 2, "the search of all seeds goes on for all readers", search())
        ranks.end()


def another_job_tells(place):
    """Whose order is looked for, that is none of the one who tells: it is looked for still."""
    mount, paths = setting(place)
    with mount:
        jobs = [Launched(place, mount, paths, [orders.randperm(N, 3735928559 + i) for i in range(2)])]
        read_until(mount, jobs, lambda: len(mount.stats()["order"]["search"]["others"]) == 2, "each reader has a finder")
        told = "torch-randperm:seed=1"
        teller = subprocess.Popen(["sh", "-c", '"$@"; read line', "sh", mountkit.CLAIRFS, "announce", mount.mountpoint, told],
                                  stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        mountkit.wait_until(lambda: [job["spec"] for job in jobs_of(mount)] == [told], "an order is told")
        read_all(mount, jobs, 3 * STEP)
        mountkit.wait_until(lambda: len(mount.stats()["order"]["search"]["others"]) == 2, "each reader has a finder still")
        tap.equal(mount.text().count("its order is looked for by itself"), 2, "it is the one that it had")
        teller.communicate()
        for job in jobs:
            job.end()


def spawned_workers_come_again(place):
    mount, paths = setting(place)
    with mount:
        spawner = Spawned(place, mount, paths, epochs_of(3, lambda e: orders.distributed(N, 2, 1, 1, e)))
        other = Job(place, mount, paths, epochs_of(2, loader_of(42)))
        read_until(mount, [spawner, other], lambda: followed(mount, FIRST) and followed(mount, SECOND) and
                   all(job.get("pid") for job in jobs_of(mount)), "both are followed")
        spawner.end_workers()
        other.kill()
        mountkit.wait_until(lambda: SECOND not in specs(mount), "the job that was killed ends")
        before = opens(mount)
        spawner.read(16)
        mountkit.wait_until(lambda: opens(mount) >= before + 16, "the daemon hears of the reads")
        tap.ok(followed(mount, FIRST), "a job whose workers have ended goes on while it is there itself", jobs_of(mount))
        tap.equal(spawner.wrong, 0, "all bytes were the source's")
        spawner.end()
        mountkit.wait_until(lambda: not jobs_of(mount), "it ends when it is gone itself")


def ends_alone(place):
    mount, paths = setting(place)
    with mount:
        job = Job(place, mount, paths, orders.distributed(N, 1, 0, 5, 0))
        spec = "torch-distributed:seed=5"
        read_until(mount, [job], lambda: followed(mount, spec), "the job is followed")
        mount.wait_for(lambda s: s["gauges"]["stage_bytes"] > 0 and s["jobs"][0].get("pid") == job.process.pid,
                       "samples are staged, and it is known for whom")
        job.kill()
        stats = mount.wait_for(lambda s: s["order"]["state"] == "no_order" and not s["jobs"], "the order ends")
        tap.equal(stats["order"]["why"], "its job has ended: its processes are gone", "the only job ends when it is killed")
        tap.equal(stats["gauges"]["stage_bytes"], 0, "nothing is staged for it")
        tap.ok(f"the job that read {spec} has ended" in good("status", mount.mountpoint).decode(), "status says so")
        # Somebody reads what it would have read next, so that the plan, if there were one, would go on with it.
        before, heard = mount.stats()["counters"]["prefetch_issued"], opens(mount)
        for i in job.sequence[job.at:job.at + 16]:
            mount.read(paths[i])
        mountkit.wait_until(lambda: opens(mount) >= heard + 16, "the daemon hears of the reads")
        tap.equal(mount.stats()["counters"]["prefetch_issued"], before, "nothing is fetched for it any more")
        tap.equal(mount.stats()["order"]["state"], "no_order", "there is no order that it could be fetched by")
        again = Job(place, mount, paths, orders.distributed(N, 1, 0, 5, 0))
        read_until(mount, [again], lambda: followed(mount, spec), "begun again, it is followed again")
        tap.ok(again.at <= 256, "begun again, it is found again", again.at)
        again.end()


def many_sessions(place):
    """Readers that live for one file each, in sessions of their own, do not take the finder away from a job."""
    mount, paths = setting(place)
    with mount:
        # Each another file: of what the kernel has, nobody is seen to read it.
        loop = 'cd "$0"; for i in 1 2 3 4; do for path in "$@"; do setsid -w cat "$path" > /dev/null; echo "$path"; sleep 0.1; done; done'
        crowd = subprocess.Popen(["sh", "-c", loop, mount.mountpoint, *(paths[997 * i % N] for i in range(N))],
                                 stdout=subprocess.PIPE)
        os.set_blocking(crowd.stdout.fileno(), False)
        seen = []

        def sessions():
            seen.append(crowd.stdout.read() or b"")
            return b"".join(seen).count(b"\n")

        mountkit.wait_until(lambda: sessions() >= READERS, "as many sessions have read as there are places for readers")
        jobs = two(place, mount, paths)
        at_first = sessions()
        are_found_and_followed(mount, jobs, "among many sessions")
        mountkit.wait_until(lambda: sessions() >= at_first + READERS, "as many again come and go beside both jobs")
        tap.ok(crowd.poll() is None, "they went on all the time", sessions())
        tap.equal(len(mount.stats()["jobs"]), 2, "and none of them is a job")
        crowd.kill()
        crowd.communicate()
        for job in jobs:
            job.end()


mountkit.run(begun_at_once, begun_one_after_the_other, ranks_are_one_job, ranks_beside_another_job, search_of_all_seeds_goes_on,
            another_job_tells, spawned_workers_come_again, ends_alone,
            many_sessions)
