# SPDX-License-Identifier: Apache-2.0
"""What a node has to survive: jobs of several users at once, mounts that users make themselves, a slurmd that is killed with
everything on it, and leftovers of jobs that nobody cleaned up after."""
import os
import shutil
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import FOREVER, OTHER, USER, Cluster, dataset, guard, let_users_mount, read_file, run, wait_until, write_file

WAIT = f"cat $CLAIRFS_MNT/*.bin | sha1sum; echo $CLAIRFS_STATUS $CLAIRFS_MNT.; sleep {FOREVER}"


def two_users_at_once(place):
    source, _ = dataset(place)
    with Cluster(place) as c:
        jobs = {user: c.sbatch(WAIT, user=user, comment=f"clairfs:{source}") for user in (USER, OTHER)}
        for user, job in jobs.items():
            c.wait_output(job, "mounted", user)
        tap.equal(len(c.mounts()), 2, "each of two jobs has a mount of its own")
        tap.equal({c.job_output(j, u).split()[0] for u, j in jobs.items()}, {c.job_output(jobs[USER]).split()[0]},
                  "both read the same bytes")
        for user, other in ((USER, OTHER), (OTHER, USER)):
            mine, theirs = (f"{c.run}/{jobs[u]}" for u in (user, other))
            done = c.run_as(user, "sh", "-c", f"ls {theirs}/data || cat {theirs}/data/s00001.bin")
            tap.ok(done.code != 0 and not done.out, f"{user} does not get into the mount of {other}", done)
            done = c.run_as(user, "sh", "-c", f"cat {theirs}/record {theirs}/status {mine}/record")
            tap.ok(done.code != 0 and not done.out, "nor sees what is written about their job", done)
            done = c.run_as(user, "sh", "-c", f"touch {mine}/x {c.run}/x; rm -rf {mine}; mv {mine} {mine}-; ln -s /etc {c.run}/77")
            tap.ok(done.code != 0 and c.job_dirs() == sorted(f"{c.run}/{j}" for j in jobs.values()),
                   "nor changes anything of their own job's", os.listdir(c.run))
        c.must("scancel", jobs[USER])
        c.must("squeue")
        wait_until(lambda: len(c.mounts()) == 1, "the first one's mount goes", 60)
        tap.equal(c.run_as(OTHER, "cat", f"{c.run}/{jobs[OTHER]}/data/s00001.bin").out, read_file(source + "/s00001.bin"),
                  "the end of one leaves the other alone")
        c.must("scancel", jobs[OTHER])


def mounts_of_the_users_own(place):
    """A mount made in the batch script dies with the job's processes, or lives on; the epilog takes both away, and leaves
    those of other users, and of the user's own that live elsewhere, alone."""
    source, _ = dataset(place)
    let_users_mount()
    points = {}
    for name in ("dies", "lives", "elsewhere", "theirs"):
        points[name] = place.path("mnt-" + name)
        os.mkdir(points[name])
        os.chown(points[name], *((5, 60) if name == "theirs" else (10, 10)))
    with Cluster(place, cgroup=True) as c:
        def mount(path):
            return f"{c.clairfs} mount -o snapshot_dir=none,ram=32M,recover=off {source} {path}"
        for name, user in (("elsewhere", USER), ("theirs", OTHER)):
            done = c.run_as(user, "sh", "-c", mount(points[name]))
            tap.equal(done.code, 0, f"a mount outside of Slurm: {name}")
        job = c.sbatch(f"{mount(points['dies'])}; cat {points['dies']}/s00001.bin | wc -c; echo done")
        c.wait_end(job)
        tap.ok("5000\ndone" in c.job_output(job), "a job mounts for itself", c.job_output(job))
        there = {os.fsdecode(path) for path, _ in guard.mounts_below(place.root)}
        tap.ok(points["dies"] not in there, "what it leaves behind, dead or alive, is taken away", there)
        tap.equal(there, {points["elsewhere"], points["theirs"]}, "and nothing else")
        for name in ("elsewhere", "theirs"):
            c.must(c.clairfs, "umount", points[name])


def mount_that_outlives_its_job(place):
    """Where Slurm loses processes (proctrack/linuxproc), the daemon of a job's own mount lives on."""
    source, _ = dataset(place)
    let_users_mount()
    point = place.path("mnt-lives")
    os.mkdir(point)
    os.chown(point, 10, 10)
    with Cluster(place) as c:
        job = c.sbatch(f"{c.clairfs} mount -o snapshot_dir=none,ram=32M,recover=off {source} {point} && echo done")
        c.wait_end(job)
        tap.ok("done" in c.job_output(job), "a job mounts for itself", c.job_output(job))
        tap.equal(guard.mounts_below(place.root), [], "its mount is gone")
        wait_until(lambda: not [t for t in guard.processes_of(place.root).values() if "clairfs mount" in t], "and its daemon")


def node_that_was_killed(place):
    """slurmd, steps and daemons killed at once, as by a power cut; RUN_DIR and dead mounts are worse than a reboot leaves."""
    source, _ = dataset(place)
    with Cluster(place) as c:
        job = c.sbatch(WAIT, "--no-requeue", comment=f"clairfs:{source}")
        c.wait_output(job, "mounted")
        for pid in [*c.steps(), *c.daemons()]:
            os.kill(pid, signal.SIGKILL)
        c.end(c.path(f"slurmd-{c.nodes[0]}.pid"))
        for pid in c.steps():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not c.daemons(), "all is dead")
        tap.equal(len(c.job_dirs()), 1, "the job's directory is left")
        # Of jobs long gone: without a record, with a damaged one, of a process number that is another's now.
        write_file(f"{c.run}/11/status", b"")
        write_file(f"{c.run}/12/record", b"clairfs-job 1\njob 1")
        write_file(f"{c.run}/13/record", b"clairfs-job 1\njob 13\nuid 0\ngid 0\npid %d\nstart 17\n" % os.getpid())
        os.makedirs(f"{c.run}/13/data")
        c.start_slurmd(c.nodes[0], "-b")
        # The controller would notice by itself in some minutes.
        c.must("scancel", job)
        c.wait_idle()
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "mounted", "the next job has a mount")
        c.wait_idle()
        tap.no_findings(c.findings(), "and its epilog takes away what all of them left")


def links_in_the_way(place):
    """Links where hooks and daemons write: of root's directories they are refused, and in the user's own they lead nowhere
    that the user could not write."""
    source, _ = dataset(place)
    os.makedirs(place.path("precious"), 0o755)
    os.symlink(place.path("precious"), place.path("link"))
    with Cluster(place, site=[f"report_dir = {place.path('link')}"]) as c:
        tap.equal(c.variables(comment=f"clairfs:{source}").get("STATUS"), "mounted", "a report_dir that is a link")
        c.wait_idle()
        # The user's own directory: its index is not made there by root.
        index = f"{c.local}/10/index"
        tap.ok(os.path.isdir(index), "the user has a directory for the index")
        shutil.rmtree(index)
        os.symlink(place.path("precious"), index)
        c.variables(comment=f"clairfs:{source}")
        c.wait_idle()
        os.unlink(index)
        os.rename(f"{c.local}/10", f"{c.local}/was10")
        os.symlink(place.path("precious"), f"{c.local}/10")
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "bypass", "a link in place of a user's directory is not followed")
        c.wait_idle()
        c.write_site(c.nodes[0], [f"run_dir = {place.path('link')}"], [])
        tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "nor one in place of run_dir")
        c.wait_idle()
        c.write_site(c.nodes[0], [f"run_dir = {place.path('theirs')}"], [])
        os.mkdir(place.path("theirs"), 0o755)
        os.chown(place.path("theirs"), 10, 10)
        tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "nor is a run_dir used that is somebody else's")
        c.wait_idle()
        tap.equal((os.listdir(place.path("precious")), os.listdir(place.path("theirs"))), ([], []), "and nothing was written there")


def reap_and_check(place):
    source, _ = dataset(place)
    with Cluster(place, site=["squeue = /usr/bin/squeue"]) as c:
        job = c.sbatch(WAIT, comment=f"clairfs:{source}")
        c.wait_output(job, "mounted")
        done = c.must(c.clairfs, "check", "-c", c.conf())
        tap.ok("jobs with a mount: 1" in done and "bad" not in done, "check finds the node fit", done)
        write_file(f"{c.run}/11/status", b"")
        done = c.must(c.clairfs, "check", "-c", c.conf())
        tap.ok("note  job 11 has left something" in done, "check finds leftovers", done)
        tap.equal(c.must(c.clairfs, "hook", "reap", "-c", c.conf()), "jobs whose leftovers were taken away: 1", "reap takes them away")
        tap.equal((c.job_dirs(), len(c.mounts())), ([f"{c.run}/{job}"], 1), "and leaves the job that is here alone")
        os.chmod(c.run, 0o777)
        tap.equal(c.run_as("root", c.clairfs, "check", "-c", c.conf()).code, 1, "a run_dir that others can write is a fault")
        os.chmod(c.run, 0o755)
        c.must("scancel", job)


run(two_users_at_once, mounts_of_the_users_own, mount_that_outlives_its_job, node_that_was_killed, links_in_the_way,
    reap_and_check)
