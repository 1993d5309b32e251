# SPDX-License-Identifier: Apache-2.0
"""A job that asks for a mount by its comment has it, as its user, and nothing is left when it has ended."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, dataset, run


def srun_reads_through_the_mount(place):
    source, files = dataset(place)
    with Cluster(place) as c:
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "mounted", "the job is told that there is a mount")
        out = c.shell("cat $CLAIRFS_MNT/s00007.bin | sha1sum; sha1sum < $CLAIRFS_SOURCE/s00007.bin; grep $CLAIRFS_MNT /proc/mounts",
                      comment=f"clairfs:{source}")
        lines = out.splitlines()
        tap.equal(lines[0], lines[1], "its bytes are the source's")
        tap.ok("fuse.clairfs" in lines[2], "they come through the mount", lines[2])
        tap.ok({"ro", "nosuid", "nodev"} <= set(lines[2].split()[3].split(",")), "which is read-only, nosuid, nodev", lines[2])


run(srun_reads_through_the_mount)
