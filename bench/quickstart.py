#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains through a slow source and through clairfs on top of it, and prints both. Called by packaging/quickstart."""
import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile

import benchlib
from benchlib import Clairfs, Failed

SPEC = "torch-distributed:seed=42:world=1:rank=0:batch=16:workers=4:prefetch_factor=2:epochs={epochs}"


class Bar:
    """Progress on a terminal; nothing in a pipe."""

    def __init__(self, title):
        self.title, self.tty = title, sys.stderr.isatty()

    def show(self, done, total):
        if self.tty:
            filled = 40 * done // max(1, total)
            sys.stderr.write(f"\r{self.title:<28} [{'#' * filled}{'.' * (40 - filled)}] {100 * done // max(1, total):3d} %")
            sys.stderr.flush()

    def end(self):
        if self.tty:
            sys.stderr.write("\r\033[K")


def client(args, root, temp):
    """The training job: PyTorch where there is one, else a C program of the same access pattern."""
    if args.python:
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "train_torch.py")
        return [args.python, "-W", "ignore::UserWarning", script, root, "--list-from", args.data, "--epochs", str(args.epochs), "--progress", "--step"]
    orders = [a for e in range(args.epochs) for a in ("--order", f"{temp}/order{e}")]
    return [f"{args.build}/bench/loader", "--index", f"{temp}/index", *orders, "--skip", "0", "--progress", "--step", root]


def train(args, title, root, temp, counters):
    """Runs the job; a list of its epochs, with the daemon's counters of each where there is one."""
    bar, rows, before = Bar(title), [], counters()
    benchlib.drop_caches()  # neither side reads what the other has just read
    job = subprocess.Popen(client(args, root, temp), stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    for line in job.stdout:
        report = json.loads(line)
        if "progress" in report:
            bar.show(report["progress"], report["total"])
            continue
        after = counters()
        report["counters"] = {k: after[k] - before.get(k, 0) for k in after}
        before = after
        rows.append(report)
        job.stdin.write("next\n")
        job.stdin.flush()
    bar.end()
    if job.wait():
        raise Failed(f"{title}: the training job failed")
    return rows


def read_shares(row):
    counters = row["counters"]
    reads = {c: counters.get(f"reads_{c}", 0) for c in ("staged", "arena", "late", "store", "miss")}
    total = sum(reads.values())
    if not total:
        return "", ""
    upcalls = sum(counters[f"upcall_{o}"] for o in ("open", "read", "ioctl", "getattr", "lookup"))
    shares = " ".join(f"{100 * reads[c] / total:6.1f}" for c in reads)
    return shares, f"{upcalls / row['samples']:8.3f}"


def verdict(mount, epochs):
    """What the mount says of GPU wait, once it has judged every epoch, or has said why not: some seconds after the last read."""
    def is_over():
        said.update(mount.stats()["gpu_wait"])
        return said["passes_judged"] + said["passes_unjudged"] >= epochs
    said = {}
    with contextlib.suppress(Failed):  # then what there is, with how much of it
        benchlib.wait_for("the verdict on GPU wait", is_over, 30)
    return said


def account(results, said, epochs):
    """The stopwatch and the mount's account side by side: a line each."""
    slow, fast = (sum(r["seconds"] for r in rows) for _, rows in results)
    lines = [f"GPU wait removed, by the stopwatch: {slow - fast:.1f} s in {epochs} epochs",
             f"            by the mount's account: {said['words']}"]
    if said["passes_judged"] != epochs:
        return lines
    slack = 0.02 * slow  # two walls differ by as much by chance
    if not said["removed_lower_seconds"] - slack <= slow - fast <= said["removed_upper_seconds"] + slack:
        lines.append("They do not agree; the stopwatch counts.")
    return lines


def print_table(results):
    print(f"\n{'':<10} {'epoch':>5} {'seconds':>8} {'samples/s':>10} {'stall s':>8}   "
          f"staged  arena   late  store   miss %  upcalls/sample")
    for title, rows in results:
        for row in rows:
            shares, upcalls = read_shares(row)
            print(f"{title:<10} {row['epoch']:>5} {row['seconds']:>8.2f} {row['samples_per_s']:>10.1f} "
                  f"{row['stall_seconds']:>8.2f}   {shares} {upcalls:>15}")
    slow, fast = (sum(r["seconds"] for r in rows) for _, rows in results)
    print(f"\n{slow:.1f} s through the source, {fast:.1f} s through clairfs: {slow / fast:.2f} times as fast.")
    print("Stall is the time the training loop waited for a batch. A sleep stands in for the GPU. Upcalls: requests of the")
    print("kernel that the daemon had to answer; Python before 3.14 causes one (ioctl) in every open().")


@contextlib.contextmanager
def slow_source(args, temp):
    if args.gluster:
        here = os.path.dirname(os.path.abspath(__file__))
        with benchlib.gluster(f"{here}/gluster", f"{temp}/gluster") as mnt:
            print("copying the dataset to a GlusterFS volume of two bricks")
            shutil.copytree(args.data, f"{mnt}/data", symlinks=False)
            yield f"{mnt}/data"
    else:
        print(f"source: {args.data} behind {args.latency_ms} ms a request, {args.mbps} MB/s")
        with benchlib.slowfs(args.build, args.data, f"{temp}/source", args.latency_ms, args.mbps):
            yield f"{temp}/source"


def compare(args, temp):
    n = benchlib.index(args.build, args.data, f"{temp}/index")
    if not n:
        raise Failed(f"{args.data}: no samples found")
    spec = SPEC.format(epochs=args.epochs)
    for e in range(args.epochs):
        benchlib.order(args.build, spec, n, e, f"{temp}/order{e}")
    job = "PyTorch's DataLoader" if args.python else "a C program in the place of PyTorch"
    print(f"{n} samples, {args.epochs} epochs, read by {job}")
    with slow_source(args, temp) as source:
        results = [("source", train(args, "through the source", source, temp, dict))]
        # Of a small dataset the usual share would be too few to say anything.
        options = {"order": spec, "snapshot_dir": f"{temp}/snapshots",
                   "control_reads": f"1/{min(1024, max(8, n * args.epochs // 32))}"}
        with Clairfs(args.build, source, f"{temp}/mnt", **options) as mount:
            results.append(("clairfs", train(args, "through clairfs", mount.mountpoint, temp, mount.settled)))
            said = verdict(mount, args.epochs)
            print(benchlib.run(mount.binary, "status", mount.mountpoint).decode())
    print_table(results)
    print("\n" + "\n".join(account(results, said, args.epochs)))
    binary = os.path.relpath(f"{args.build}/src/cli/clairfs")
    print(f"\nclairfs is {binary}: it needs no installing. Next: {binary} mount SOURCE MOUNTPOINT,")
    print(f"{binary} simulate --workload resnet50, {binary} --help.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True)
    parser.add_argument("--python", help="interpreter that can import torch")
    parser.add_argument("--gluster", action="store_true")
    parser.add_argument("--latency-ms", type=float, default=10)
    parser.add_argument("--mbps", type=float, default=1000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("data")
    args = parser.parse_args()
    benchlib.end_as_failed()
    args.data = os.path.realpath(args.data)
    try:
        with tempfile.TemporaryDirectory(prefix="clairfs-quickstart-", ignore_cleanup_errors=True) as temp:
            compare(args, temp)
    except Failed as failed:
        print(f"quickstart: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
