# SPDX-License-Identifier: Apache-2.0
"""job_container/tmpfs gives each job a mount namespace of its own, made after the prolog: it has a copy of the mount, which
stays there when the epilog takes the mount of the machine away."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, dataset, mountkit, run, wait_until, write_file


def shell(c, script, **kwargs):
    """The plugin of this version fights with itself when one job ends and the next begins: it refuses that one before it runs
    ("ns base mount failed"), and the node is not ready."""
    def attempt():
        done = c.srun("sh", "-c", script, **kwargs)
        if done.code and b"not ready" in done.err:
            mountkit.program("scontrol", "update", f"nodename={c.nodes[0]}", "state=resume", env=c.env)
            return None
        return done
    done = wait_until(attempt, "the plugin takes a job", 60)
    tap.equal(done.code, 0, "the job runs")
    return done.out.decode().split()


def reads_in_a_namespace(place):
    source, _ = dataset(place)
    write_file(place.path("slurm", "job_container.conf"), f"AutoBasePath=true\nBasePath={place.path('private')}\n".encode())
    with Cluster(place, own_shm=True, site=["epilog_wait = 3"], slurm=["JobContainerType=job_container/tmpfs"]) as c:
        for _ in range(3):
            out = shell(c, "echo $CLAIRFS_STATUS; readlink /proc/self/ns/mnt; cat $CLAIRFS_MNT/*.bin | wc -c", comment=f"clairfs:{source}")
            tap.equal(out[0], "mounted", "it has its mount")
            tap.ok(out[1] != os.readlink("/proc/self/ns/mnt"), "in a namespace of its own", out)
            tap.equal(out[2], "200000", "and reads through it")


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
