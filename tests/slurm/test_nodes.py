# SPDX-License-Identifier: Apache-2.0
"""Jobs of several nodes, here several slurmd of one machine: each node mounts for itself and cleans up after itself."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, dataset, read_file, run, write_file


def every_node_has_a_mount(place):
    source, _ = dataset(place)
    with Cluster(place, nodes=3) as c:
        out = c.shell("echo $SLURMD_NODENAME $CLAIRFS_STATUS $CLAIRFS_MNT $(cat $CLAIRFS_MNT/*.bin | sha1sum)",
                      options=["-N3", "--ntasks-per-node=1"], comment=f"clairfs:{source}")
        lines = sorted(line.split() for line in out.splitlines())
        tap.equal([line[:2] for line in lines], [[n, "mounted"] for n in c.nodes], "all tasks are told of their node's mount")
        tap.equal(len({line[2] for line in lines}), 3, "each has one of its own")
        tap.equal(len({line[3] for line in lines}), 1, "all read the same bytes")


def one_node_in_trouble(place):
    """What goes wrong on one node is that node's: its tasks read the source."""
    source, _ = dataset(place)
    with Cluster(place, nodes=2) as c:
        write_file(c.run_dir("n2"), b"in the way")
        out = c.shell("echo $SLURMD_NODENAME $CLAIRFS_STATUS.", options=["-N2", "--ntasks-per-node=1"], comment=f"clairfs:{source}")
        tap.equal(sorted(out.split()), ["mounted.", ".", "n1", "n2"][1:2] + ["mounted.", "n1", "n2"], "the other has its mount")
        os.unlink(c.run_dir("n2"))
        out = c.shell("echo $SLURMD_NODENAME $CLAIRFS_STATUS.", options=["-N2", "--ntasks-per-node=1"], comment=f"clairfs:{source}")
        tap.equal(out.split().count("mounted."), 2, "and so have both, when it is mended")


def nothing_is_inherited(place):
    """A step begins with the environment of the batch script, and a job with that of who submitted it. What those were told is
    of their node and their job."""
    source, _ = dataset(place)
    show = "echo $SLURMD_NODENAME: ${CLAIRFS_STATUS-none} ${CLAIRFS_MNT-none} ${CLAIRFS_SOURCE-none} ${CLAIRFS_REASON-none}"
    with Cluster(place, nodes=2) as c:
        write_file(c.run_dir("n2"), b"in the way")
        job = c.sbatch(f"echo $CLAIRFS_STATUS\nsrun --ntasks-per-node=1 sh -c '{show}'\n", "-N2", comment=f"clairfs:{source}")
        c.wait_end(job)
        lines = c.job_output(job).splitlines()
        tap.ok("mounted" in lines, "the batch script has a mount", lines)
        tap.ok("n2: none none none none" in lines, "a step on a node without one is not told of it", lines)
        os.unlink(c.run_dir("n2"))
        folder = place.path("chained")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        script = os.path.join(folder, "script")
        write_file(script, f"#!/bin/sh\n{show}\n".encode())
        job = c.sbatch(f"echo $CLAIRFS_STATUS\nsbatch --mem=100 --wait --export=ALL -o {folder}/out {script}\n", comment=f"clairfs:{source}")
        c.wait_end(job)
        tap.ok("mounted" in c.job_output(job), "a job with a mount submits another", c.job_output(job))
        out = read_file(f"{folder}/out").decode()
        tap.ok("none none none none" in out, "which asked for nothing and has nothing", out)


run(every_node_has_a_mount, one_node_in_trouble, nothing_is_inherited)
