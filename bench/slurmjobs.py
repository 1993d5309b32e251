#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What jobs of a real Slurm cost on a node, for bench/run slurm: {"name": ..., "values": [...]} a line, seconds or counts.

The cluster is that of tests/slurm, with the scripts of packaging/slurm; their prolog and epilog also write down when they
begin and end. As root.
"""
import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [f"{ROOT}/tests/lib", f"{ROOT}/tests/mount", f"{ROOT}/tests/slurm"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--files", type=int, default=1300000, help="of the dataset: names and sizes, no bytes")
    parser.add_argument("--jobs", type=int, default=200, help="back to back")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    os.environ.update({"CLAIRFS": f"{args.build}/src/cli/clairfs", "CLAIRFS_SLOWFS": f"{args.build}/bench/slowfs",
                       "CLAIRFS_BUILD": args.build, "CLAIRFS_SOURCE": ROOT})
    return args


ARGS = arguments()
import guard  # noqa: E402 (they want the variables)
import mountkit  # noqa: E402
from slurmkit import Cluster, back_to_back, dataset, read_file, wait_until  # noqa: E402


def tell(name, values):
    print(json.dumps({"name": name, "values": values}), flush=True)


def make_files(folder, n):
    """As ImageNet: a thousand classes. Sizes are set, but no byte is stored."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=755,nr_inodes={2 * n + 10000}", "files", folder], check=True)
    per_class = max(1, n // 1000)
    for i in range(n):
        if i % per_class == 0:
            path = f"{folder}/train/n{i // per_class:08d}"
            os.makedirs(path)
        fd = os.open(f"{path}/{i:08d}.JPEG", os.O_CREAT | os.O_WRONLY, 0o644)
        os.ftruncate(fd, 110000 + i % 5000)
        os.close(fd)


def time_hooks(c):
    """Each of them writes two times a run."""
    for hook in ("prolog", "epilog"):
        path, log = c.path(f"{hook}.sh"), c.path("log", f"{hook}-times")
        lines = read_file(path).decode().split("\n")
        at = next(i for i, line in enumerate(lines) if f"hook {hook}" in line)
        lines[at:at + 1] = [f"began=$(date +%s.%N); {lines[at]}; rc=$?; echo $began $(date +%s.%N) >>{log}; (exit $rc)"]
        mountkit.write_file(path, "\n".join(lines).encode())


def times_of(c, hook):
    rows = [line.split() for line in read_file(c.path("log", f"{hook}-times")).decode().splitlines()]
    return [float(end) - float(begin) for begin, end in rows]


def warm_index(place):
    """Prolog to usable mount: the prolog returns when the mount answers, and the job is told so."""
    os.mkdir(place.path("big"))
    make_files(place.path("big"), ARGS.files)
    try:
        with Cluster(place, site=["prolog_wait = 30"]) as c:
            time_hooks(c)
            for _ in range(ARGS.rounds + 1):  # the first one makes the index
                out = c.shell("echo $CLAIRFS_STATUS; ls $CLAIRFS_MNT/train | wc -l", comment=f"clairfs:{place.path('big')}").split()
                if out[0] != "mounted" or int(out[1]) < 1:
                    raise mountkit.Failed(f"the job has no mount: {out}")
                c.wait_idle()
            tell("slurm_prolog_first", times_of(c, "prolog")[:1])
            tell("slurm_prolog_warm", times_of(c, "prolog")[1:])
            tell("slurm_epilog", times_of(c, "epilog"))
    finally:
        subprocess.run(["umount", "-l", place.path("big")], check=True)


def is_reading(c, mountpoint):
    """Whether a process of a job has a file of the mount open."""
    for pid in c.steps():
        with contextlib.suppress(OSError):
            if any(os.readlink(f"/proc/{pid}/fd/{fd}").startswith(mountpoint) for fd in os.listdir(f"/proc/{pid}/fd")):
                return True
    return False


def source_that_hangs(place):
    """The worst that an epilog meets: a read waits for a source that does not answer any more."""
    dataset(place)
    slow = place.path("slow")
    with mountkit.Slowfs(place, place.source, slow) as server, Cluster(place) as c:
        time_hooks(c)
        for i in range(ARGS.rounds):
            go = place.path(f"go{i}")
            job = c.sbatch(f"echo $CLAIRFS_STATUS; while [ ! -e {go} ]; do sleep 0.1; done; cat $CLAIRFS_MNT/data/*.bin",
                           comment=f"clairfs:{slow}")
            c.wait_output(job, "mounted")
            mountkit.send(server.process, signal.SIGSTOP)
            try:
                mountkit.write_file(go, b"")
                wait_until(lambda mnt=f"{c.run}/{job}/data/": is_reading(c, mnt), "the job reads")
                c.must("scancel", job)
                c.wait_end(job)
            finally:
                mountkit.send(server.process, signal.SIGCONT)
        tell("slurm_epilog_source_hangs", times_of(c, "epilog"))


def many(place):
    source, _ = dataset(place, n=10)
    with Cluster(place, slurm=["MaxArraySize=1001"]) as c:
        said = back_to_back(c, source, ARGS.jobs, 600)
        left = c.findings()
        tell("slurm_jobs_mounted", [sum(status == "mounted" for _, status in said)])
        tell("slurm_left", [sum(not text.startswith("node ") for text in left)])
        tell("slurm_nodes_drained", [sum(text.startswith("node ") for text in left)])
        for text in left:
            print(text, file=sys.stderr)


def main():
    guard.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for work in (warm_index, source_that_hangs, many):
        place = mountkit.Place()
        try:
            work(place)
        except mountkit.Failed as error:
            print(f"{work.__name__}: {error}", file=sys.stderr)
            return 1
        finally:
            place.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
