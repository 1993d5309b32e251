# SPDX-License-Identifier: Apache-2.0
"""Two hundred jobs, eight at a time, of which some are cancelled: nothing accumulates."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, back_to_back, dataset, run

JOBS = 200


def two_hundred_jobs(place):
    source, _ = dataset(place, n=10)
    with Cluster(place, slurm=["MaxArraySize=1001"]) as c:
        said = back_to_back(c, source, JOBS, 400)
        tap.equal(len(said), JOBS, "all ran")
        tap.equal({status for _, status in said}, {"mounted"}, "all had a mount")
        tap.equal(len({content for content, _ in said}), 1, "all read the same")


run(two_hundred_jobs)
