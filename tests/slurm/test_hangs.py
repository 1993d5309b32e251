# SPDX-License-Identifier: Apache-2.0
"""What does not answer, and hooks that meet: an epilog goes on, and leaves what it cannot do to the next one. One that waited
would be killed by slurmd after half a minute, and the node drained, which every case looks at."""
import contextlib
import ctypes
import ctypes.util
import fcntl
import os
import signal
import struct
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import FOREVER, USER, Cluster, dataset, guard, mountkit, read_file, run, wait_until, write_file

LATE = "the mount is not ready: the index of the dataset is being made"
libc = ctypes.CDLL(ctypes.util.find_library("c"), use_errno=True)


@contextlib.contextmanager
def stopped(server):
    mountkit.send(server.process, signal.SIGSTOP)
    try:
        yield
    finally:
        mountkit.send(server.process, signal.SIGCONT)


def hooks_log(c):
    return read_file(c.path("log", "hooks.log")).decode()


def reap(c):
    return int(c.must(c.clairfs, "hook", "reap", "-c", c.conf()).rsplit(" ", 1)[1])


def report_dir_that_hangs(place):
    source, _ = dataset(place)
    os.makedirs(place.path("far", "reports"))
    with mountkit.Slowfs(place, place.path("far"), place.path("slow")) as server:
        with Cluster(place, site=[f"report_dir = {place.path('slow', 'reports')}", "epilog_wait = 1"]) as c:
            job = c.sbatch(f"echo $CLAIRFS_STATUS; sleep {FOREVER}", comment=f"clairfs:{source}")
            c.wait_output(job, "mounted")
            with stopped(server):
                c.must("scancel", job)
                c.wait_end(job)
                tap.no_findings(c.findings(), "an epilog goes on without its report, and takes all away")


def dead_mount(path, uid):
    """As of a user whose daemon has died."""
    os.makedirs(path, exist_ok=True)
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id={uid},group_id={uid}".encode()
    if libc.mount(b"/gone", path.encode(), b"fuse.clairfs", 1 | 2 | 4, options) < 0:
        raise mountkit.Failed(f"mount: {os.strerror(ctypes.get_errno())}")
    os.close(fd)


def dead_mounts_on_a_path_that_hangs(place):
    source, _ = dataset(place)
    names = [f"mnt{i}" for i in range(6)]  # more than there is time for
    for name in names:
        os.makedirs(place.path("far", name))
    points = [place.path("slow", name) for name in names]
    with mountkit.Slowfs(place, place.path("far"), place.path("slow")) as server:
        for point in points:
            dead_mount(point, 10)
        dead_mount(place.path("near"), 10)
        with Cluster(place) as c:
            with stopped(server):
                # As long as the kernel believes what it knows of the path nothing hangs.
                wait_until(lambda: mountkit.program("timeout", "-s", "KILL", "1", "stat", points[0]).code == -9, "the path hangs")
                tap.equal(c.variables(comment=f"clairfs:{source}").get("STATUS"), "mounted", "a job of its user")
                c.wait_idle()
                left = [os.fsdecode(path) for path, kind in guard.mounts_below(place.root) if kind == b"fuse.clairfs"]
                tap.equal(left, points, "its epilog takes away the dead mount that it can reach, and goes on")
                done = c.must(c.clairfs, "check", "-c", c.conf())
                tap.ok("bad" not in done and "mounts not looked at" in done, "check does not look at all of them", done)
            c.variables(comment=f"clairfs:{source}")
            c.wait_idle()
            tap.equal(c.mounts(), [], "the next epilog takes away the others")


def answers_of_squeue(place):
    """What jobs left goes only when Slurm has said so, in full."""
    with Cluster(place, site=[f"squeue = {place.path('squeue')}"]) as c:
        def answer(script):
            write_file(place.path("squeue"), b"#!/bin/sh\n" + script.encode())
            os.chmod(place.path("squeue"), 0o755)
            write_file(f"{c.run}/11/status", b"")
            n = reap(c)
            tap.equal(bool(c.job_dirs()), n == 0, "what it says is what it does")
            return n
        many = "i=0; while [ $i -lt 20000 ]; do echo \"9$i COMPLETED\"; i=$((i+1)); done; "
        for script, what in ((many + "echo 11 RUNNING", "a job behind 300 kB of others"),
                             ("echo 11 SIGNALING", "a rare state"), ("echo 11 WHATEVER", "a state nobody knows"),
                             ("echo 12 RUNNING; exit 1", "a failure"), ("printf '12 RUNNING\\n11'", "half an answer"),
                             ("head -c 5000000 /dev/zero | tr '\\0' '\\n'", "more than anybody asked for"),
                             (f"trap '' TERM; exec >&-; exec sleep {FOREVER}", "a program that does not end"),
                             (f"trap '' TERM; exec sleep {FOREVER}", "no answer")):
            tap.equal(answer(script), 0, f"{what}: the job is here")
        os.unlink(place.path("squeue"))
        tap.equal(reap(c), 0, "no such program: the job is here")
        tap.equal(answer(many + "echo 11 COMPLETED"), 1, "a last state: the job is gone")
        tap.equal(answer("true"), 1, "nothing: the job is gone")
        c.write_site(c.nodes[0], ["squeue ="], [])
        write_file(f"{c.run}/11/status", b"")
        anyone = os.open(f"{c.run}/11", os.O_RDONLY | os.O_DIRECTORY)
        fcntl.flock(anyone, fcntl.LOCK_SH)  # whoever may open a directory may lock it
        done = mountkit.program(c.clairfs, "hook", "reap", "-c", c.conf(), env=c.env)
        tap.ok(done.out.endswith(b" 1\n"), "a site without squeue: what has no daemon goes, whoever holds its directory", done)
        tap.ok(not c.job_dirs(), "and is not there any more", done)
        os.close(anyone)


@contextlib.contextmanager
def held(c, job):
    """As another hook of this job does."""
    fd = os.open(f"{c.run}/.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, job, 1, 0))
        yield
    finally:
        os.close(fd)


def hooks_of_one_job(place):
    source, _ = dataset(place)
    with Cluster(place) as c:
        os.makedirs(c.run, 0o755)
        with held(c, c.next_job):
            tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "while another hook is at work on its number a job has no mount")
            c.wait_idle()
        job = c.sbatch(f"echo $CLAIRFS_STATUS; sleep {FOREVER}", comment=f"clairfs:{source}")
        c.wait_output(job, "mounted")
        with held(c, job):
            c.must("scancel", job)
            c.wait_end(job)
            tap.equal(c.job_dirs(), [f"{c.run}/{job}"], "its epilog leaves it to that one")
            tap.equal(hooks_log(c).count("another hook is at work"), 3, "and all of them say so")
            tap.equal(reap(c), 0, "so does reap")
        tap.equal(reap(c), 1, "which takes it away when nobody else does")


def index_that_is_being_made(place):
    """Nobody waits in a mount before it can answer; a step that begins later has it."""
    dataset(place, n=3)
    slow = place.path("slow")
    with mountkit.Slowfs(place, place.source, slow) as server, Cluster(place, site=["prolog_wait = 0.2"]) as c:
        with stopped(server):
            job = c.sbatch(f"echo $CLAIRFS_STATUS $CLAIRFS_REASON.; while [ ! -e {place.path('go')} ]; do sleep 0.1; done; "
                           "srun --overlap sh -c 'echo then $CLAIRFS_STATUS; cat $CLAIRFS_MNT/data/*.bin | wc -c'", comment=f"clairfs:{slow}")
            c.wait_output(job, f"bypass {LATE}.")
            tap.equal(c.mounts(), [], "nothing is mounted yet")
            tap.equal(mountkit.program("timeout", "20", "find", c.run).code, 0, "who walks over it does not wait")
            tap.equal(len(c.daemons()), 3, "there are a daemon, its guard, and who mounts")
        wait_until(c.mounts, "the mount comes")
        # The daemon says it after that.
        wait_until(lambda: b"\nready\n" in read_file(f"{c.run}/{job}/status"), "it is ready")
        tap.equal(len(c.daemons()), 2, "who mounts has ended")
        write_file(place.path("go"), b"")
        c.wait_end(job)
        tap.ok("then mounted\n15000\n" in c.job_output(job), "a step that begins later has it", c.job_output(job))


def inotify(path):
    fd = libc.inotify_init1(os.O_CLOEXEC)
    if libc.inotify_add_watch(fd, path.encode(), 0x10) < 0:  # closed, not written
        raise mountkit.Failed("inotify")
    return fd


def status_that_is_being_written(place):
    """The daemon writes it in place. A task prolog that finds half of it looks again."""
    with Cluster(place) as c:
        path = f"{c.run}/{c.next_job}/status"
        write_file(path, b"clairfs-status 1\n")
        os.chmod(path, 0o644)
        watch = inotify(path)
        env = {**c.env, "SLURM_JOB_ID": str(c.next_job)}
        with subprocess.Popen([c.clairfs, "hook", "task-prolog", "-c", c.conf()], env=env, stdout=subprocess.PIPE) as process:
            os.read(watch, 4096)  # it was read once
            write_file(path, b"clairfs-status 1\nfailed so\nsource /a\n")
            out = process.communicate(timeout=60)[0].decode()
        os.close(watch)
        tap.ok("export CLAIRFS_REASON=so\n" in out, "what it finds then is told", out)
        write_file(path, b"")
        done = mountkit.program(c.clairfs, "hook", "task-prolog", "-c", c.conf(), env=env)
        tap.ok(done.code == 0 and b"export" not in done.out, "one that is never whole is none", done)
        reap(c)


def record_of_another_version(place):
    """After an upgrade: the daemon of a job that is gone ends."""
    with Cluster(place, site=[f"squeue = {place.path('squeue')}", "epilog_wait = 1"]) as c:
        write_file(place.path("squeue"), b"#!/bin/sh\n")
        os.chmod(place.path("squeue"), 0o755)
        with subprocess.Popen(["sleep", str(FOREVER)]) as old:
            start = read_file(f"/proc/{old.pid}/stat").rpartition(b")")[2].split()[19].decode()
            write_file(f"{c.run}/11/record", f"clairfs-job 2\njob 11\nuid 0\ngid 0\nnew words\npid {old.pid}\nstart {start}\n".encode())
            os.makedirs(f"{c.run}/11/data")
            tap.equal(reap(c), 1, "its directory is taken away")
            tap.equal(old.wait(60), -signal.SIGTERM, "and its daemon was told to end")


run(report_dir_that_hangs, dead_mounts_on_a_path_that_hangs, answers_of_squeue, hooks_of_one_job, index_that_is_being_made,
    status_that_is_being_written, record_of_another_version)
