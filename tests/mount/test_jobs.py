# SPDX-License-Identifier: Apache-2.0
"""Several jobs on one mount: processes of their own that tell an order each and read by it at the same time, in a dataset
larger than the memory. Each is followed; one that is killed makes room for the other, whatever is read meanwhile; who tells its
next order is not one more, nor is another rank of the job; names and withdrawals are each job's own. Who tells says whose order
it is: by what the launcher says, the same from the command and from Python.

A job waits after every few reads for a word from the test, so that none runs ahead of what the daemon has seen.
"""
import errno
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys

import mountkit
import tap
from mountkit import good

SAMPLES, SIZE = 2000, 65536
RAM = 64 << 20  # about half of the samples
STEP = 20
PACKAGE = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
for name in ("SLURM_JOB_ID", "SLURM_STEP_ID", "TORCHELASTIC_RUN_ID", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID",
             "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "CLAIRFS_ORDER"):
    os.environ.pop(name, None)

JOB = """
import os, sys
mount, source = sys.argv[1], sys.argv[2]
sys.path.insert(0, sys.argv[3])
import clairfs

def announce(spec):
    try:
        return clairfs.send(spec, mount)
    except clairfs.AnnounceError as e:
        return str(e)

def load(base, path):
    fd = os.open(base + "/" + path, os.O_RDONLY)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)

for line in sys.stdin:
    words = line.split()
    if words[0] == "announce":
        print(announce(words[1]), flush=True)
    else:
        wrong = sum(load(mount, path) != load(source, path) for path in words[1:])
        print(wrong, flush=True)
"""


class Job:
    """A process that tells an order and reads by it; of a run of torchrun of its own, or of one with others."""

    def __init__(self, place, mount, paths, seed):
        self.paths, self.seed, self.at, self.wrong = paths, seed, 0, 0
        self.spec = f"torch-randperm:seed={seed}:batch=4:workers=2"
        self.name = f"run-{seed}"
        self.process = subprocess.Popen([sys.executable, "-c", JOB, mount.mountpoint, place.source, PACKAGE], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, env={**os.environ, "TORCHELASTIC_RUN_ID": self.name})

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def announce(self, spec=None):
        return self.ask("announce", spec or self.spec)

    def plan(self):
        self.order = [int(i) for i in good("order", self.spec, "--n", SAMPLES).split()]

    def read(self, n=STEP):
        self.wrong += int(self.ask("read", *(self.paths[i] for i in self.order[self.at:self.at + n])))
        self.at += n

    def read_of(self, other, n=1):
        self.wrong += int(self.ask("read", *(self.paths[i] for i in other.order[other.at:other.at + n])))
        other.at += n

    def end(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def jobs_of(mount):
    return mount.stats()["jobs"]


def job_of(mount, pid):
    """What status says of the job that this process has told, or None."""
    found = [job for job in jobs_of(mount) if job.get("pid") == pid]
    return found[0] if found else None


def placed(mount):
    """Reads that were where a job's order has them; what the plan wants because of them is asked for."""
    return sum(job["reads"] for job in jobs_of(mount))


def hits(mount):
    """Reads of what was asked for before, and all."""
    reads = mount.stats()["reads"]
    return sum(reads[name]["reads"] for name in ("staged", "arena", "late")), sum(r["reads"] for r in reads.values())


def two(place):
    place.files([SIZE] * SAMPLES)
    mount = place.mount(ram=RAM, debug={"stage": RAM // 8})
    paths = [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]
    jobs = [Job(place, mount, paths, seed) for seed in (11, 12)]
    for job in jobs:
        job.plan()
    return mount, jobs


def read_together(mount, jobs, rounds):
    for _ in range(rounds):
        for job in jobs:
            before = placed(mount)
            job.read()
            mountkit.wait_until(lambda before=before: placed(mount) >= before + STEP // 2, "the daemon hears of the reads")


def both_are_followed(place):
    mount, jobs = two(place)
    with mount:
        for job in jobs:
            tap.equal(job.announce(), job.spec, "a process tells its order")
        told = jobs_of(mount)
        tap.equal([job["spec"] for job in told], [job.spec for job in jobs], "both are in force")
        tap.equal([job["is_accounted"] for job in told], [True, False], "GPU wait is accounted for the first")
        tap.equal(mount.stats()["order"]["spec"], jobs[0].spec, "which is the order")
        read_together(mount, jobs, 10)
        for job in jobs:
            mountkit.wait_until(lambda job=job: job_of(mount, job.process.pid)["state"] == "following", "is followed")
            tap.ok(True, f"the job of seed {job.seed} is followed")
        before = hits(mount)
        read_together(mount, jobs, 20)
        mountkit.wait_until(lambda: hits(mount)[1] >= before[1] + 20 * STEP * 2 * 9 // 10, "reads are counted")
        after = hits(mount)
        share = (after[0] - before[0]) / (after[1] - before[1])
        tap.note(f"{share:.3f} of the reads of both were of what was prefetched")
        tap.ok(share > 0.8, "eight reads of ten are of what was prefetched, so those of both", share)
        text = good("status", mount.mountpoint).decode()
        tap.ok(f"job 2     {jobs[1].spec}, job {jobs[1].name}, told by process" in text, "status shows the second job", text)
        killed, left = jobs
        pid = killed.process.pid
        killed.kill()

        def has_ended():
            left.read_of(killed)  # somebody's reads are always where its order has one
            return job_of(mount, pid) is None
        mountkit.wait_until(has_ended, "the killed job ends")
        tap.ok(killed.at < SAMPLES, "the killed job ends while others read what it would have read", killed.at)
        now = jobs_of(mount)
        tap.equal([(job["spec"], job["is_accounted"]) for job in now], [(left.spec, True)], "a killed job ends, one is left")
        tap.equal(mount.stats()["order"]["spec"], left.spec, "whose order is the order from here on")
        read_together(mount, [left], 10)
        mountkit.wait_until(lambda: job_of(mount, left.process.pid)["state"] == "following", "goes on")
        tap.equal([job.wrong for job in jobs], [0, 0], "all bytes were the source's")
        left.end()


def each_its_own(place):
    mount, jobs = two(place)
    with mount:
        for job in jobs:
            job.announce()
        tap.equal(jobs[0].announce("sequential:epochs=3"), "sequential:epochs=3", "a job tells its next order")
        tap.equal([job["spec"] for job in jobs_of(mount)], ["sequential:epochs=3", jobs[1].spec], "which replaces its own only")
        tap.equal(jobs[1].announce("none"), "none", "a job takes its order back")
        tap.equal([job["spec"] for job in jobs_of(mount)], ["sequential:epochs=3"], "and the other one's stays")
        jobs[1].announce("torch-randperm:seed=5:job=eval")
        jobs[1].announce("torch-randperm:seed=6:job=sweep")
        tap.equal([job["name"] for job in jobs_of(mount)], ["run-11", "eval", "sweep"], "names are jobs of their own")
        told = mount.path(".clairfs", "announce", "torch-randperm:seed=7:job=eval")
        subprocess.run(["sh", "-c", 'exec cat "$0"', told], check=True, stdout=subprocess.DEVNULL)
        tap.ok(any(job["spec"] == "torch-randperm:seed=7:job=eval" for job in jobs_of(mount)), "a shell tells a name's next order", jobs_of(mount))
        tap.equal([job["name"] for job in jobs_of(mount)], ["run-11", "eval", "sweep"], "which is no job more")
        tap.equal(jobs[0].announce("none:job=sweep"), "none", "a name may be taken back by anybody")
        refused = jobs[0].announce("none:job=sweep")
        tap.ok("no job of that name" in refused, "once", refused)
        tap.equal([job["name"] for job in jobs_of(mount)], ["run-11", "eval"], "that job's only")
        tap.equal(jobs[1].announce("none:job=run-11"), "none", "so is one that its launcher has")
        tap.equal([job["name"] for job in jobs_of(mount)], ["eval"], "which is gone")
        for job in jobs:
            job.end()


def an_option_is_nobodys(place):
    place.files([SIZE] * SAMPLES)
    with place.mount(order="sequential:epochs=9") as mount:
        job = Job(place, mount, [], 11)
        tap.equal([job["spec"] for job in jobs_of(mount)], ["sequential:epochs=9"], "the order of the option is in force")
        job.announce()
        tap.equal([job["spec"] for job in jobs_of(mount)], [job.spec], "the first job that tells one replaces it")
        job.end()


def who_belongs_to_a_job(place):
    mount, (first, other) = two(place)
    with mount:
        rank, trained = (Job(place, mount, first.paths, seed) for seed in (11, 13))
        trained.plan()
        first.announce()
        other.announce()
        shell = subprocess.Popen(["sh", "-c", '"$0" announce "$1" "$2"; echo told; read line; true', mountkit.CLAIRFS,
                                  mount.mountpoint, trained.spec], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        while shell.stdout.readline() not in ("told\n", ""):
            pass
        tap.equal([job["pid"] for job in jobs_of(mount)], [first.process.pid, other.process.pid, shell.pid],
                  "two processes and a shell tell an order each")
        read_together(mount, [first, other, trained], 10)
        before = job_of(mount, first.process.pid)
        tap.equal(rank.announce(), rank.spec, "another rank of the first one tells the same order, when it is being read")
        tap.equal([job["spec"] for job in jobs_of(mount)], [job.spec for job in (first, other, trained)], "it is no job more")
        after = job_of(mount, first.process.pid)
        tap.ok(after["reads"] >= before["reads"] and after["position"] >= before["position"] > 0,
               "nor does its order begin again", (before, after))
        pid = other.process.pid
        mountkit.wait_until(lambda: all(job["quiet_seconds"] > 1.5 for job in jobs_of(mount)), "all rest")
        for process in first, shell:
            process.kill()
        shell.communicate()
        other.kill()
        mountkit.wait_until(lambda: job_of(mount, pid) is None, "the job that has no other process ends")
        tap.equal([job["spec"] for job in jobs_of(mount)], [first.spec, trained.spec],
                  "a job stays while one of its ranks is there, and one whose shell has left, when it rests")
        rank.kill()
        mountkit.wait_until(lambda: len(jobs_of(mount)) == 1, "it ends with its last rank")
        tap.equal([job["spec"] for job in jobs_of(mount)], [trained.spec], "the other one stays")
        trained.end()


def more_than_there_is_room_for(place):
    mount, jobs = two(place)
    with mount:
        for i in range(8):
            jobs[0].announce(f"torch-randperm:seed={i}:job=j{i}")
        tap.equal(len(jobs_of(mount)), 8, "eight jobs are planned for")
        tap.equal(jobs[0].announce("torch-randperm:seed=9:job=j9"), "torch-randperm:seed=9:job=j9", "one more is taken")
        names = [job["name"] for job in jobs_of(mount)]
        tap.ok(len(names) == 8 and "j9" in names, "one more replaces another", names)
        for job in jobs:
            job.end()


def from_python(mount, spec, env):
    return subprocess.run([sys.executable, "-c", "import sys; sys.path.insert(0, sys.argv[3]); import clairfs; "
                           "print(clairfs.announce(sys.argv[1], sys.argv[2]))", spec, mount.mountpoint, PACKAGE],
                          check=True, env=env, stdout=subprocess.PIPE, text=True).stdout


def from_command(mount, spec, env):
    done = mountkit.clairfs("announce", mount.mountpoint, spec, env=env)
    return done.out.decode() or str(done)


def names_of_launchers(place):
    """The command and the module say the same name, and then they are the same job."""
    place.files([SIZE] * 20)
    inside = os.readlink("/proc/self/ns/pid")[5:-1]
    session = f"session-{os.getsid(0)}" + ("" if inside == "4026531836" else "." + inside)
    cases = (({}, session),
             ({"SLURM_JOB_ID": "77"}, "77"),
             ({"SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "TORCHELASTIC_RUN_ID": "run"}, "77.3"),
             ({"TORCHELASTIC_RUN_ID": "run", "MASTER_PORT": "29500"}, "run"),
             ({"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}, "none-29500"),
             ({"TORCHELASTIC_RUN_ID": "none"}, "none"),
             ({"SLURM_JOB_ID": "", "TORCHELASTIC_RUN_ID": "a b:c/\xe4\n"}, "a_b_c____"),
             ({"TORCHELASTIC_RUN_ID": 70 * "r"}, 63 * "r"))
    with place.mount() as mount:
        for env, name in cases:
            env = {**os.environ, **env}
            for tell, other in (from_command, from_python), (from_python, from_command):
                tap.equal(tell(mount, "sequential:epochs=5", env), "sequential:epochs=5\n", f"{name}: tells an order")
                tap.equal(other(mount, "sequential:epochs=6", env), "sequential:epochs=6\n", f"{name}: tells its next one")
                tap.equal([(job["spec"], job["name"]) for job in jobs_of(mount)], [("sequential:epochs=6", name)],
                          f"{name}: the same name is the same job")
                other(mount, "none", env)
                tap.equal(jobs_of(mount), [], f"{name}: and takes it back")
        listed = place.path("list")
        mountkit.write_file(listed, b"3\n1\n2\n")
        env = {**os.environ, "TORCHELASTIC_RUN_ID": "lists"}
        from_command(mount, f"list:path={listed}", env)
        from_python(mount, f"list:path={listed}", env)
        tap.equal([job["name"] for job in jobs_of(mount)], ["lists"], "a list that is handed over has the name, too")
        for rank in "0", "1", "1":
            from_python(mount, f"torch-distributed:seed=4:world=2:rank={rank}", env)
            from_python(mount, f"list:path={listed}", {**env, "SLURM_PROCID": rank, "SLURM_NTASKS": "2"})
        tap.equal([(job["name"], job["spec"].split(":")[0]) for job in jobs_of(mount)],
                  [("lists", "list"), ("lists-rank0", "list"), ("lists-rank1", "list")],
                  "ranks that tell for themselves have jobs of their own")
        for rank in "0", "1":
            from_python(mount, "none", {**env, "SLURM_PROCID": rank, "SLURM_NTASKS": "2"})
        from_command(mount, "sequential:job=of-the-spec", env)
        tap.equal([job["name"] for job in jobs_of(mount)], ["lists", "of-the-spec"], "the name of a spec goes before it")
        program = mountkit.program("unshare", "-pf", "--mount-proc", mountkit.CLAIRFS, "announce", mount.mountpoint, "sequential:epochs=2")
        name = jobs_of(mount)[-1]["name"]
        tap.ok(program.code == 0 and re.fullmatch(r"session-0\.[0-9]+", name) and not name.endswith("4026531836"),
               "a session of a container is another one", program, name)


def say(mount, spec, version=2, job=b""):
    """(status, line) of the struct as it is, or an errno."""
    with open(mount.path(".clairfs", "control"), "rb") as f:
        hint = bytearray(struct.pack("<Ii4024s64s", version, 0, spec.encode(), job))
        try:
            fcntl.ioctl(f, 3 << 30 | len(hint) << 16 | 0xCF << 8 | 1, hint)
        except OSError as e:
            return e.errno
    return struct.unpack("<Ii4024s64s", hint)[1], struct.unpack("<Ii4024s64s", hint)[2].split(b"\0")[0].decode()


def names_are_checked(place):
    place.files([SIZE] * 20)
    with place.mount() as mount:
        for job in b"a\nb", b"\x1b[2J", b"\xff", b"\x7f":
            status, line = say(mount, "sequential", job=job)
            tap.ok(status == -errno.EINVAL and "printable ASCII" in line and len(line.splitlines()) == 1, f"{job} is no name", line)
            status, line = say(mount, "none:job=" + job.decode("latin-1"))
            tap.ok(status == -errno.EINVAL and "printable ASCII" in line, f"nor to take an order back", line)
        status, line = say(mount, "none:job=" + 64 * "x")
        tap.ok(status == -errno.EINVAL and "1 to 63 bytes" in line, "64 bytes are no name", line)
        status, line = say(mount, "sequential:job=" + 64 * "x")
        tap.ok(status == -errno.EINVAL and "1 to 63 bytes" in line, "nor in a spec", line)
        tap.equal(say(mount, "sequential", job=64 * b"x"), errno.EPROTO, "nor without an end")
        tap.equal(say(mount, "sequential", version=3), errno.EPROTO, "another version is none that is spoken")
        tap.equal(jobs_of(mount), [], "and nothing is in force")
        tap.equal(say(mount, "sequential", job=63 * b"~")[0], 0, "63 bytes are one")
        tap.equal(say(mount, "sequential:epochs=2", version=1, job=b"not looked at")[0], 0, "who speaks the first version says no name")
        tap.equal(say(mount, "sequential:epochs=3")[0], 0, "as who leaves it empty")
        told = mount.path(".clairfs", "announce", "sequential:epochs=4")
        subprocess.run(["sh", "-c", 'exec cat "$0"', told], check=True, stdout=subprocess.DEVNULL)
        tap.equal([(job["spec"], job.get("name")) for job in jobs_of(mount)], [("sequential", 63 * "~"), ("sequential:epochs=4", None)],
                  "all of these are the one job that has none")
        tap.equal(say(mount, "none"), (0, "none"), "which is taken back by them")
        status, line = say(mount, "none", job=b"somebody")
        tap.equal((status, jobs_of(mount)), (0, []), "the only job is taken back under any name")


mountkit.run(both_are_followed, each_its_own, an_option_is_nobodys, who_belongs_to_a_job, more_than_there_is_room_for,
             names_of_launchers, names_are_checked)
