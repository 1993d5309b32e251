# SPDX-License-Identifier: Apache-2.0
"""Benchmarks that still run: each one for some seconds, with sizes that measure nothing.

No figure is looked at. What is: that it ends well, leaves nothing behind and prints what a reader of results can use; that
the table of README finds every figure it wants; and that something which is not installed is said in one line. What cannot
be here, and why, is in bench/README.md.
"""
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import smoke
import mountkit
import tap

TORCH = ("recover", "removed", "gpu", "ordinary", "warm")  # in test_bench_smoke_torch.py
CLIENTS = ("clients", "known")  # in test_bench_smoke_clients.py
ALONE = ("store", "verify", "metrics", "sim", "plan", "slurm")
README = ("staged", "stall", "cpu", "noorder", "hook", "gluster", "seeds", "shards", "records")
# Each program with arguments that make it quick; a program without has none, or is quick by itself.
MICRO = {"bench_arena": [20000, 64], "bench_dataset": [500, 10, 2], "bench_io": ["--seconds", 0.01], "bench_metrics": [],
         "bench_order": [20000], "bench_plan": [], "bench_recover": [1 << 16], "bench_stall": [], "bench_store": []}


def figures(place):
    """bench/run readme, with a copy of README and results of its own."""
    done = smoke.bench_run(place, "readme", *ALONE, "--leave-out", ",".join(TORCH))
    tap.ok(done.code == 0, "bench/run readme --smoke ends well", done)
    smoke.check_results(place, README + ALONE)
    text = mountkit.read_file(place.path("README.md")).decode()
    rows = text.splitlines()
    tap.ok(rows[0] == "above" and rows[-1] == "below" and "results/smoke: begin" in rows[1], "what is around the table stays", text)
    # All that is not of the benchmark that was left out.
    missing = [row for row in rows if "not taken" in row and "nobody told the order" not in row]
    tap.no_findings(missing, "README's table has every figure it wants")
    tap.ok(len(rows) > 15 and len(re.findall(r"\| [0-9a-f]{7,}\+?, load [0-9.]+(, \*\*not idle\*\*)? \|$", text, re.M)) >= 12,
           "and the commit and the load of each", text)


def over_gluster(place):
    """shards with another source, which clients has from the same place."""
    done = smoke.bench_run(place, "shards", "--source", "gluster", "--save", "smoke")
    tap.ok(done.code == 0 and "goals missed" in done.lines[-2], "bench/run shards --source gluster ends well, and says what it missed", done)
    smoke.check_results(place, ("shards-gluster",))
    tap.ok(not os.path.exists(place.path("results", "smoke", "shards.json")), "and keeps the results of the simulated source")


def all_are_run(place):
    done = smoke.program(place, sys.executable, f"{smoke.BENCH}/run", "--help")
    words = re.findall(r"^  (\w+) {2,}", done.out.decode().partition("\n\n")[2].partition("positional arguments")[0], re.M)
    tap.equal(sorted(words), sorted((*README, *ALONE, *TORCH, *CLIENTS, "readme", "table", "all")), "every benchmark is described, and run by a test")


def micro(place):
    sources = {name[:-2] for name in os.listdir(f"{smoke.BENCH}/micro") if name.endswith(".c")}
    tap.equal(sources, set(MICRO), "every program of bench/micro is here")
    for name, arguments in MICRO.items():
        done = smoke.program(place, f"{smoke.BUILD}/bench/micro/{name}", *arguments)
        findings = [repr(done)] if done.code else smoke.wrong_results(done.out.decode(), ("value",), repeat=True)
        tap.no_findings(findings, f"micro/{name} ends and prints names, units and numbers")


def without_tools(place):
    """Only the programs in this directory: neither bindfs nor fio."""
    os.makedirs(place.path("bin"))
    for name in ("umount", "mount", "fusermount3"):
        for folder in os.environ["PATH"].split(os.pathsep) + ["/usr/bin", "/bin"]:
            if os.path.exists(f"{folder}/{name}"):
                os.symlink(f"{folder}/{name}", place.path("bin", name))
                break
    done = smoke.bench_run(place, "staged", PATH=place.path("bin"))
    tap.ok(done.code == 0 and "bindfs is not installed" in done.lines[0], "staged says that bindfs is not installed, and goes on", done)
    names = re.findall(r'"name": "(\w+)"', done.out.decode())
    tap.ok("staged_clairfs_ratio" in names and not any("bindfs" in name for name in names), "without its side", names)
    for name, tool, *more in (("store", "fio"), ("gluster", "glusterd"), ("shards", "glusterd", "--source", "gluster")):
        done = smoke.bench_run(place, name, *more, PATH=place.path("bin"))
        tap.ok(done.code == 1 and len(done.lines) == 1 and f"{name}: {tool} is not installed" in done.lines[0] and not done.out,
               f"{name} says that {tool} is not installed", done)
    done = smoke.bench_run(place, "recover", "--torch-python", "/bin/false")
    tap.ok(done.code == 1 and len(done.lines) == 1 and "/bin/false has no PyTorch" in done.lines[0], "recover asks for PyTorch", done)
    done = smoke.bench_run(place, "clients", "--clients-python", "/bin/false")
    tap.ok(done.code == 1 and len(done.lines) == 1 and "/bin/false has no numpy" in done.lines[0], "clients asks for its Python", done)


def keeps_results(place):
    done = smoke.program(place, sys.executable, f"{smoke.BENCH}/run", "metrics", "--smoke", "--save", "nobody", "--build", smoke.BUILD)
    tap.ok(done.code == 2 and "--results of its own" in done.lines[-1], "the results of a smoke run are not kept beside real ones", done)
    done = smoke.bench_run(place, "sim", "staged", "--save", "smoke", "--build", place.path("no-build"))
    said = [line.split(":")[1].strip() for line in done.lines if line.startswith("bench: ")]
    tap.ok(done.code == 1 and not os.path.exists(place.path("results", "smoke")) and said == ["sim", "staged"],
           "a benchmark that fails keeps no result, and the next one has its turn", done)


def slow_to_say(place):
    """A build whose `clairfs mount` is not over when the mount is there already."""
    os.makedirs(place.path("build", "src", "cli"))
    os.symlink(f"{smoke.BUILD}/bench", place.path("build", "bench"))
    name = place.path("build", "src", "cli", "clairfs")
    mountkit.write_file(name, f'#!/bin/sh\n"{mountkit.CLAIRFS}" "$@" || exit\n[ "$1" != mount ] || sleep 1\n'.encode())
    os.chmod(name, 0o755)
    return place.path("build")


def ended(place):
    """SIGTERM while a mount is made: timeout, or a scheduler that has had enough."""
    smoke.make_images(place)
    build = slow_to_say(place)
    for folder in ("data", "tmp"):
        os.makedirs(place.path(folder), exist_ok=True)
    programs = {"bench/run": [f"{smoke.BENCH}/run", "plan", "--smoke", "--build", build, "--data", place.path("data")],
                "quickstart": [f"{smoke.BENCH}/quickstart.py", "--build", build, place.source]}

    def mounts():
        return [line for line in mountkit.read_file("/proc/self/mounts").decode().splitlines() if place.root in line]
    for name, argv in programs.items():
        running = subprocess.Popen([sys.executable, *argv], env=smoke.environment(place), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mountkit.wait_until(lambda: any("fuse.clairfs" in line for line in mounts()) or running.poll() is not None, f"{name} has its mount")
        running.terminate()
        tap.equal(running.wait(smoke.TIMEOUT), 128 + 15, f"{name} that is ended says so")
        tap.equal((mounts(), os.listdir(place.path("data")), os.listdir(place.path("tmp"))), ([], [], []), "and leaves no mount and no data")


def dlio(place):
    """DLIO itself is gigabytes (bench/README.md); what is ours of it can at least be started."""
    done = smoke.program(place, sys.executable, f"{smoke.BENCH}/dlio/run", "--help")
    tap.ok(done.code == 0 and b"--record-bytes" in done.out, "dlio/run starts", done)


def quickstart(place):
    smoke.quickstart(place)


smoke.self_test()
mountkit.run(figures, over_gluster, all_are_run, micro, without_tools, keeps_results, ended, quickstart, dlio)
