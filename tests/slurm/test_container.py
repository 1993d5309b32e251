# SPDX-License-Identifier: Apache-2.0
"""job_container/tmpfs gives each job a mount namespace of its own, made after the prolog: it has a copy of the mount, which
stays there when the epilog takes the mount of the machine away."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import FOREVER, Cluster, dataset, run, write_file


def mount_in_a_namespace(place):
    source, _ = dataset(place)
    os.mkdir(place.path("private"))
    # /tmp is private then: everything of the test would be hidden, were it not bound elsewhere.
    with Cluster(place, cgroup=True, site=["epilog_wait = 3"],
                 slurm=["JobContainerType=job_container/tmpfs"]) as c:
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "mounted", "the job has its mount")
        out = c.shell("readlink /proc/self/ns/mnt; cat $CLAIRFS_MNT/*.bin | wc -c", comment=f"clairfs:{source}").split()
        tap.ok(out[0] != os.readlink("/proc/self/ns/mnt"), "in a namespace of its own", out)
        tap.equal(out[1], "200000", "and reads through it")
        job = c.sbatch(f"cat $CLAIRFS_MNT/*.bin | wc -c; sleep {FOREVER}", comment=f"clairfs:{source}")
        c.wait_output(job, "200000")
        c.must("scancel", job)


run(mount_in_a_namespace)
