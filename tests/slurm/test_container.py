# SPDX-License-Identifier: Apache-2.0
"""job_container/tmpfs gives each job a mount namespace of its own, made after the prolog: it has a copy of the mount, which
stays there when the epilog takes the mount of the machine away."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import FOREVER, Cluster, dataset, mountkit, run, wait_until, write_file


def starts(c):
    if c.srun("true").code == 0:
        return True
    mountkit.program("scontrol", "update", f"nodename={c.nodes[0]}", "state=resume", env=c.env)
    return False


def reads_in_a_namespace(place):
    source, _ = dataset(place)
    write_file(place.path("slurm", "job_container.conf"), f"AutoBasePath=true\nBasePath={place.path('private')}\n".encode())
    with Cluster(place, own_shm=True, site=["epilog_wait = 3"], slurm=["JobContainerType=job_container/tmpfs"]) as c:
        # The first job after slurmd began may be refused by the plugin itself ("ns base mount failed").
        wait_until(lambda: starts(c), "the plugin is ready", 60)
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "mounted", "the job has its mount")
        out = c.shell("readlink /proc/self/ns/mnt; cat $CLAIRFS_MNT/*.bin | wc -c", comment=f"clairfs:{source}").split()
        tap.ok(out[0] != os.readlink("/proc/self/ns/mnt"), "in a namespace of its own", out)
        tap.equal(out[1], "200000", "and reads through it")
        job = c.sbatch(f"cat $CLAIRFS_MNT/*.bin | wc -c; sleep {FOREVER}", comment=f"clairfs:{source}")
        c.wait_output(job, "200000")
        tap.equal(len(c.mounts()), 1, "as the machine has it, too")
        c.must("scancel", job)


def mount_in_a_namespace(_):
    # The plugin hides /tmp, where the places of tests are.
    place = mountkit.Place("/var/tmp")
    try:
        reads_in_a_namespace(place)
        tap.no_findings(place.findings(), "nothing is left")
    finally:
        mountkit.program("umount", "-R", "-l", place.path("private"))
        place.close()


run(mount_in_a_namespace)
