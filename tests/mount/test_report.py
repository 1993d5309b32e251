# SPDX-License-Identifier: Apache-2.0
"""What a mount leaves behind when it is unmounted, and what `clairfs report` makes of the nodes of a job."""
import json
import os
import socket
import sys

import mountkit
import tap
from mountkit import clairfs, good

sys.path.insert(0, os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python"))
NAMES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID",
         "CLAIRFS_STEPS_FILE", "CLAIRFS_ORDER")
for name in NAMES:
    os.environ.pop(name, None)

LOOP = r"""
import sys
sys.path.insert(0, sys.argv[1])
import clairfs
for _ in clairfs.watch(range(int(sys.argv[3])), sys.argv[2] or None, sys.argv[4] or None):
    pass
"""


def loop(rank, steps, mountpoint="", file="", world=4, job="J1"):
    env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "SLURM_JOB_ID": job}
    done = mountkit.program(sys.executable, "-c", LOOP, os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python"),
                            mountpoint, steps, file, env=env)
    if done.code:
        raise mountkit.Failed(f"loop: {done}")


def one_line(done, code, words, what):
    tap.ok(done.code == code and not done.out and len(done.lines) == 1 and words in done.lines[0], what, done)


def merged(place):
    """Two nodes of a job, one after the other on this machine, and a rank that wrote a file."""
    data = place.files([4000] * 16)
    for node, ranks in enumerate(((0, 1), (2,))):
        with place.mount(order="sequential:epochs=1", report=place.path(f"node{node}")) as mount:
            for path, content in data.items():
                tap.equal(mount.read(path), content, f"{path} is read")
            for rank in ranks:
                loop(rank, 300 + rank, mount.mountpoint)
            mount.wait_for(lambda s: sum(r["reads"] for r in s["reads"].values()) == 16, "reads are counted")
        tap.ok(not [n for n in os.listdir(place.root) if n.startswith(".node")], "nothing else is left")
    loop(3, 200, file=place.path("steps3"))

    with open(place.path("node0"), encoding="utf-8") as file:
        report = json.load(file)
    tap.equal((report["format"], report["version"], report["job"]), ("clairfs-report", 1, "J1"), "a report of the job")
    tap.equal(report["data"]["reads"], 16, "what was read")
    tap.equal(report["data"]["read_bytes"], 64000, "and how much")
    tap.equal(report["data"]["least_source_bytes"], 64000, "whole passes have a bound")
    tap.ok(report["data"]["source_bytes"] >= 64000, "which was kept", report["data"])
    tap.ok(report["daemon"]["cpu_seconds"] > 0 and report["daemon"]["max_memory_bytes"] > 1 << 20, "what the daemon used")
    tap.equal(report["stats"]["dataset"]["samples"], 16, "all of stats.json")
    tap.equal([(r["rank"], r["steps"], len(r["log"]["wait_us"])) for r in report["ranks"]], [(0, 300, 300), (1, 301, 301)],
              "every step of every rank")

    files = [place.path("node0"), place.path("node1"), place.path("steps3")]
    job = json.loads(good("report", "--json", *files))
    tap.equal((job["job"], job["nodes"], job["world"], job["ranks_here"]), ("J1", 2, 4, 4), "all of them are one job")
    wait = job["gpu_wait"]
    logs = [r["log"]["wait_us"] for r in report["ranks"]]
    logs.append(json.load(open(place.path("node1"), encoding="utf-8"))["ranks"][0]["log"]["wait_us"])
    least = sum(max(log[k] for log in logs if k < len(log)) for k in range(302)) / 1e6
    most = sum(r["steps"]["wait_seconds"] for r in job["ranks"]) + 1e-6 * 302
    tap.ok(least - 1e-9 <= wait["wait_seconds"] <= most, "the slowest rank of each step, no sum of ranks", wait, least, most)
    tap.equal((wait["groups"], wait["groups_not_of_every_rank"], wait["is_lower_bound"]), (302, 102, True), "what is missing is said")
    tap.equal([job["removed"][key] for key in ("upper_bound_for_the_job_seconds", "estimate_seconds")], [None] * 2,
              "what is not known is null: the order knew no ranks")
    # Where the daemon was ahead of no read at all, it is known that it has removed nothing.
    tap.ok(job["removed"]["words"].startswith("not known: ") == (job["removed"]["at_least_seconds"] is None), "and said so",
           job["removed"])
    tap.equal({r["removed"]["at_least_seconds"] for r in job["ranks"] if r["rank"] in (0, 1)}, {None},
              "numbers of a node are not those of one of its ranks")
    tap.equal(job["data"]["reads"], 32, "reads of nodes are added up")
    text = good("report", *files).decode()
    tap.ok("slowest rank of each step" in text and "4 ranks of 4" in text, "a table for people", text)

    one_line(clairfs("report", files[0], files[0]), 1, "of the same mount", "a report given twice")
    one_line(clairfs("report", files[2], files[2]), 1, "rank 3 is in two of these", "steps given twice")
    loop(3, 5, file=place.path("other"), job="J2")
    one_line(clairfs("report", files[0], place.path("other")), 1, "different jobs, J1 and J2", "a report of another job")
    loop(3, 5, file=place.path("wide"), world=5)
    one_line(clairfs("report", files[0], place.path("wide")), 1, "a world of 4 and of a world of 5", "another world")


def bad_input(place):
    mountkit.write_file(place.path("junk"), b"\0" * 1000)
    mountkit.write_file(place.path("empty"), b"")
    one_line(clairfs("report"), 2, "FILE", "no file")
    one_line(clairfs("report", "--nosuch", "x"), 2, "--nosuch", "an unknown option")
    one_line(clairfs("report", place.path("junk")), 1, place.path("junk"), "a file that is no report")
    one_line(clairfs("report", place.path("empty")), 1, "empty", "an empty file")
    one_line(clairfs("report", place.root), 1, "not a file", "a directory")
    os.mkfifo(place.path("pipe"))
    one_line(clairfs("report", place.path("pipe")), 1, "not a file", "a pipe that nobody writes to")
    one_line(clairfs("report", place.path("nothing")), 1, "No such file", "no such file")
    place.files([10])
    for path, words in ((place.path("no", "such", "dir"), "No such file"), (place.path("mnt", "r.json"), "within the mount")):
        done = clairfs("mount", "-o", f"report={path},snapshot_dir={place.snapshots}", place.source, place.mnt)
        one_line(done, 1, words, f"a mount whose report would be in {path}")


def places(place):
    """In a directory a report has a name of its own; one that cannot be written is a warning."""
    place.files([10])
    os.mkdir(place.path("reports"))
    for job in ("77", "../77", ""):
        mount = mountkit.Mount(place, place.source, place.mnt, {"report": place.path("reports")}, env={"SLURM_JOB_ID": job})
        with mount:
            pass
    names = sorted(os.listdir(place.path("reports")))
    host = socket.gethostname().split("/")[0]
    tap.equal([n.split(host)[0] for n in names], ["clairfs-..-", "clairfs-77-", "clairfs-nojob-"], "named after job and host")
    tap.ok(all(n.endswith(".json") for n in names), "and nothing else is there", names)
    job = json.loads(good("report", "--json", place.path("reports", names[1])))
    tap.equal((job["job"], job["gpu_wait"], job["ranks"]), ("77", None, []), "a job that told no steps")
    with place.mount(report=place.path("reports", "x.json")) as mount:
        os.rename(place.path("reports"), place.path("elsewhere"))
        mount.wait_for(lambda s: True, "it serves")
    tap.ok("no report in" in mount.text(), "a report that cannot be written is a warning", mount.text())


mountkit.run(merged, bad_input, places)
