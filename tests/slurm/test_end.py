# SPDX-License-Identifier: Apache-2.0
"""However a job ends, its mount goes with it: cancelled, out of time, out of memory, requeued, with its mount in use, with
its daemon killed or stopped."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import FOREVER, USER, Cluster, dataset, has_ended, read_file, run, wait_until

READ_ON = f"cat $CLAIRFS_MNT/*.bin > /dev/null; echo $CLAIRFS_STATUS; sleep {FOREVER}"


def begin(c, source, *options, script=READ_ON):
    job = c.sbatch(script, *options, comment=f"clairfs:{source}")
    c.wait_output(job, "mounted")
    tap.equal((len(c.mounts()), len(c.daemons())), (1, 2), "the job reads through its mount")
    return job


def ended(c, what):
    c.wait_idle()
    tap.no_findings(c.findings(), f"{what}: nothing is left")


def cancelled(c, source):
    c.must("scancel", begin(c, source))
    ended(c, "scancel")
    job = begin(c, source)
    c.must("scancel", "--signal=KILL", "--full", job)
    ended(c, "scancel with SIGKILL")


def out_of_time(c, source):
    """The controller looks at limits each half a minute from its start on, whatever it is told: others go first."""
    job = begin(c, source)
    c.must("scontrol", "update", f"jobid={job}", "EndTime=now")
    wait_until(lambda: not c.must("squeue", "-h"), "the job is out of time", 120)
    ended(c, "the time limit")


def out_of_memory(c, source):
    hungry = "import mmap; m = mmap.mmap(-1, 1 << 29); [m.__setitem__(i, 1) for i in range(0, 1 << 29, 4096)]; print('alive')"
    limit = "" if c.cgroup else "ulimit -v 400000; "
    job = c.sbatch(f"echo $CLAIRFS_STATUS; {limit}cat $CLAIRFS_MNT/*.bin > /dev/null; python3 -c \"{hungry}\"; sleep 0",
                   comment=f"clairfs:{source}")
    c.wait_end(job)
    out = c.job_output(job)
    tap.ok("mounted" in out and "alive" not in out, "the job was killed for its memory", out)
    ended(c, "out of memory")


def requeued(place):
    source, _ = dataset(place)
    os.mkdir(place.path("reports"), 0o755)
    # Slurm lets it wait for two minutes, until slurmd has forgotten the job: else it runs no prolog for that number.
    with Cluster(place, cgroup=True, expire=5, site=[f"report_dir = {place.path('reports')}"]) as c:
        job = begin(c, source, "--requeue", "--open-mode=append",
                    script=f"cat $CLAIRFS_MNT/*.bin > /dev/null; echo $CLAIRFS_STATUS $SLURM_RESTART_COUNT.; sleep {FOREVER}")
        first = set(c.daemons())
        c.must("scontrol", "requeue", job)
        wait_until(lambda: c.must("squeue", "-h", "-o", "%T") == "PENDING", "the job waits once more", 60)
        tap.no_findings([f for f in c.findings() if "node" not in f], "requeue: nothing is left while it waits")
        c.must("scontrol", "update", f"jobid={job}", "StartTime=now+10")
        c.wait_output(job, "mounted 1.")
        tap.equal((len(c.mounts()), len(c.daemons())), (1, 2), "it is mounted once more, under the same number")
        tap.ok(not first & set(c.daemons()), "by another daemon")
        c.must("scancel", job)
        ended(c, "requeue")
        names = {f"clairfs-{job}-{c.nodes[0]}.json", f"clairfs-{job}-{c.nodes[0]}.run2.json"}
        tap.equal(set(os.listdir(place.path("reports"))), names, "each run has left a report")


def mount_in_use(c, source):
    """Something of the machine is in the mount while the epilog runs; a daemon of the job's has gone on."""
    # A process that Slurm loses: proctrack/linuxproc follows parents only, and its parent has ended.
    is_in_it = c.place.path("out-" + USER, "in")
    job = begin(c, source, script=f"cd $CLAIRFS_MNT; (setsid sh -c 'exec 3< s00001.bin; : > {is_in_it}; sleep {FOREVER}' &); cd /; "
                f"while [ ! -e {is_in_it} ]; do sleep 0.1; done; echo $CLAIRFS_STATUS; sleep {FOREVER}")
    mountpoint = c.mounts()[0]
    lost = [int(p) for p in os.listdir("/proc") if p.isdigit() and is_in(p, mountpoint)]
    tap.ok(lost, "a process that Slurm does not know is in the mount")
    c.must("scancel", job)
    ended(c, "a mount in use")
    tap.ok(not any(has_ended(pid) for pid in lost), "while that process lived on", lost)
    for pid in lost:
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass


def is_in(pid, mountpoint):
    try:
        return os.readlink(f"/proc/{pid}/cwd").startswith(mountpoint)
    except OSError:
        return False


def daemon_killed_or_stopped(c, source):
    for number, what in ((signal.SIGKILL, "killed"), (signal.SIGSTOP, "stopped")):
        job = begin(c, source)
        daemon = next(pid for pid in c.daemons() if read_file(f"/proc/{pid}/comm") == b"clairfs\n")
        os.kill(daemon, number)
        c.must("scancel", job)
        ended(c, f"a daemon that was {what}")


def steps_after_the_daemon_died(place, c, source):
    """Later steps of the job are sent to the source."""
    job = c.sbatch(f"echo $CLAIRFS_STATUS; while [ ! -e {place.path('go')} ]; do sleep 0.1; done; "
                   "srun sh -c 'echo then $CLAIRFS_STATUS $CLAIRFS_MNT'", comment=f"clairfs:{source}")
    c.wait_output(job, "mounted")
    for pid in c.daemons():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not c.daemons(), "the daemon is gone")
    open(place.path("go"), "w", encoding="ascii").close()
    c.wait_end(job)
    tap.ok(f"then bypass {source}\n" in c.job_output(job), "a step that begins without its daemon reads the source",
           c.job_output(job))


def dead_mount_of_another_job(place, c, source):
    """A user has two jobs on the node. The daemon of one dies, then the other ends; a step of the first still reads its source."""
    first = c.sbatch(f"echo $CLAIRFS_STATUS; while [ ! -e {place.path('go')} ]; do sleep 0.1; done; "
                     "srun --overlap sh -c 'echo then $CLAIRFS_STATUS $CLAIRFS_MNT'", comment=f"clairfs:{source}")
    c.wait_output(first, "mounted")
    daemons = c.daemons()
    second = c.sbatch(READ_ON, comment=f"clairfs:{source}")
    c.wait_output(second, "mounted")
    for pid in daemons:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not set(daemons) & set(c.daemons()), "the daemon of the first is gone")
    c.must("scancel", second)
    wait_until(lambda: not os.path.exists(f"{c.run}/{second}"), "the second is cleaned up after", 60)
    # Its epilog goes on with what the user left.
    wait_until(lambda: str(second) not in c.must("squeue", "-h", "-o", "%A").split(), "its epilog is over", 60)
    tap.ok(f"{c.run}/{first}/data" in c.mounts(), "the dead mount of the first stays as long as its job", c.mounts())
    c.must("umount", f"{c.run}/{first}/data")
    open(place.path("go"), "w", encoding="ascii").close()
    c.wait_end(first)
    tap.ok(f"then bypass {source}\n" in c.job_output(first), "and a bare directory is not taken for a mount", c.job_output(first))


def with_cgroups(place):
    """One cluster: a new one waits some seconds before it runs the first script."""
    source, _ = dataset(place)
    with Cluster(place, cgroup=True, slurm=["OverTimeLimit=0"]) as c:
        cancelled(c, source)
        out_of_memory(c, source)
        c.write_site(c.nodes[0], ["epilog_wait = 1"], [])
        daemon_killed_or_stopped(c, source)
        c.write_site(c.nodes[0], [], [])
        out_of_time(c, source)


def without_cgroups(place):
    source, _ = dataset(place)
    with Cluster(place) as c:
        for case in (steps_after_the_daemon_died, dead_mount_of_another_job):
            case(place, c, source)
            ended(c, case.__name__.replace("_", " "))
            os.unlink(place.path("go"))
        c.write_site(c.nodes[0], ["epilog_wait = 2"], [])
        mount_in_use(c, source)


run(with_cgroups, without_cgroups, requeued)
