# SPDX-License-Identifier: Apache-2.0
"""Jobs of several nodes, here several slurmd of one machine: each node mounts for itself and cleans up after itself."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, dataset, run, write_file


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


run(every_node_has_a_mount, one_node_in_trouble)
