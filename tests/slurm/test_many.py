# SPDX-License-Identifier: Apache-2.0
"""Two hundred jobs, eight at a time, of which some are cancelled: nothing accumulates."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import USER, Cluster, dataset, read_file, run, wait_until

JOBS = 200


def two_hundred_jobs(place):
    source, _ = dataset(place, n=10)
    with Cluster(place, slurm=["MaxArraySize=1001"]) as c:
        c.sbatch("cat $CLAIRFS_MNT/*.bin | cksum; echo $CLAIRFS_STATUS", f"--array=1-{JOBS}%8", "--mem=50", comment=f"clairfs:{source}")
        wait_until(lambda: not c.must("squeue", "-h"), "all jobs have ended", 400)
        c.wait_idle()
        folder = place.path("out-" + USER)
        said = [read_file(os.path.join(folder, name)).decode().split() for name in os.listdir(folder) if name.endswith(".out")]
        tap.equal(len(said), JOBS, "all ran")
        tap.equal({text[-1] for text in said}, {"mounted"}, "all had a mount")
        tap.equal(len({text[0] for text in said}), 1, "all read the same")


run(two_hundred_jobs)
