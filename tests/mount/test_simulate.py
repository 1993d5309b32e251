# SPDX-License-Identifier: Apache-2.0
"""`clairfs simulate`: the keys of its JSON, its words for people, and one clear line for what is impossible."""
import json
import os
import subprocess
import tempfile

import tap

BINARY = os.environ["CLAIRFS"]
SMALL = ["--samples", "2000", "--sample-bytes", "64K", "--epochs", "3", "--batch", "10", "--workers", "4",
         "--compute-ms", "10", "--source-latency-ms", "2", "--source-mbps", "80"]
PER_EPOCH = ("hit_ratio", "source_reads", "store_writes", "epoch_seconds", "stall_seconds", "bound_seconds")
SOURCE = os.environ["CLAIRFS_SOURCE"]
SUPPRESSIONS = f"suppressions={SOURCE}/tests/mount/lsan.supp:print_suppressions=0"
WORKLOADS = os.path.join(SOURCE, "conf", "workloads")


def simulate(*args, workloads=WORKLOADS):
    return subprocess.run([BINARY, "simulate", *args], stdin=subprocess.DEVNULL, capture_output=True, timeout=300,
                          env={**os.environ, "CLAIRFS_WORKLOADS": workloads, "LSAN_OPTIONS": SUPPRESSIONS}, check=False)


def parsed(*args):
    done = simulate(*args, "--json")
    tap.ok(done.returncode == 0 and not done.stderr, f"simulate {' '.join(args[-4:])} --json", done)
    return json.loads(done.stdout)


def check_one(run, policy, epochs):
    tap.equal(run["policy"], policy, f"{policy}: its name")
    tap.equal([key for key in PER_EPOCH if len(run[key]) != epochs], [], f"{policy}: a number per epoch")
    tap.ok(all(0 <= h <= 1 for h in run["hit_ratio"]), f"{policy}: hit ratios", run["hit_ratio"])
    tap.ok(sum(run["epoch_seconds"]) >= sum(run["bound_seconds"]) * (1 - 1e-9), f"{policy}: not faster than the bound", run)
    sums = [sum(run["read_classes"][c][e] for c in run["read_classes"]) for e in range(epochs)]
    tap.equal(sums, run["reads"], f"{policy}: every read is in one class")


def check_json():
    run = parsed(*SMALL, "--cache-fraction", "0.5", "--policy", "clairfs")
    check_one(run, "clairfs", 3)
    # 1000 of 2000 fit; the stage beside them (a quarter) holds what is due next, at the end of an epoch that is of the next one
    tap.ok(run["source_reads"][0] >= 2000 and run["source_reads"][2] >= 1000 - 250, "never fewer reads than the bound", run)
    tap.equal(run["store_writes"], [0, 0, 0], "without a store nothing is written")
    tap.equal(run["setup"]["samples"], 2000, "the setup is there")
    runs = parsed(*SMALL, "--cache-bytes", "64M", "--policy", "all")["runs"]
    tap.ok(len(runs) > 10, "all policies", [r["policy"] for r in runs])
    for run in runs:
        check_one(run, run["policy"], 3)
    runs = parsed(*SMALL, "--policy", "lru,bound")["runs"]
    tap.equal([r["policy"] for r in runs], ["lru", "bound"], "policies in the order asked for")


def check_text():
    done = simulate(*SMALL)
    text = done.stdout.decode()
    tap.ok(done.returncode == 0 and not done.stderr, "the table", done)
    for word in ("clairfs", "lru", "bound", "stall", "2000 samples", "torch-distributed:seed=1"):
        tap.ok(word in text, f"the table has {word}", text)
    tap.equal(simulate(*SMALL).stdout, done.stdout, "the same seed gives the same bytes")
    tap.ok(simulate(*SMALL, "--seed", "2").stdout != done.stdout, "another seed gives others")


def check_workloads():
    run = parsed("--workload", "default", "--policy", "clairfs")
    tap.equal((run["setup"]["samples"], len(run["reads"])), (64, 10), "a workload by its name")
    done = simulate("--workload", "default", "--policy", "clairfs", "--json", workloads="")
    tap.ok(done.returncode == 0 and json.loads(done.stdout)["setup"]["samples"] == 64,
           "also where nothing is installed, from where it was built", done)
    run = parsed("--epochs", "2", "--workload", os.path.join(WORKLOADS, "default.conf"), "--policy", "lru")
    tap.equal((run["setup"]["samples"], len(run["reads"])), (64, 2), "the command line goes before a workload's file")
    run = parsed("--policy", "lru", "--order", "list:path=" + os.path.join(DIR, "list"), "--samples", "5",
                 "--sample-bytes", "4K", "--batch", "1", "--workers", "1", "--prefetch-factor", "1", "--window", "0",
                 "--cache-bytes", "12K", "--epochs", "1")
    tap.equal(run["source_reads"], [10], "LRU on the trace of the textbooks")


def refused(part, *args, code=2):
    done = simulate(*args)
    lines = done.stderr.decode().splitlines()
    tap.ok(done.returncode == code and len(lines) == 1 and part in lines[0] and not done.stdout,
           f"simulate {' '.join(args)[-60:]}: one line about {part}", done)


def check_bad_input():
    tiny = ["--samples", "10", "--sample-bytes", "4K"]
    refused("--samples")
    refused("--sample-bytes", "--samples", "10")
    refused("--cache-bytes", *tiny, "--cache-bytes", "4000")
    refused("--source-mbps", *tiny, "--source-mbps", "0")
    refused("nodes", *tiny, "--nodes", "0")
    refused("--nodes", *tiny, "--nodes", "11")
    refused("compute_ms", *tiny, "--compute-ms", "nan")
    refused("compute_ms", *tiny, "--compute-ms", "-5")
    refused("samples", "--samples", "1e9", "--sample-bytes", "4K")
    refused("--policy", *tiny, "--policy", "best")
    refused("--policy", *tiny, "--policy", "lru,")
    refused("world", *tiny, "--order", "torch-distributed:world=0")
    refused("no option --no-such", *tiny, "--no-such")
    refused("more", *tiny, "more")
    refused("--workload", "--workload", "unet4d")
    refused("/no/such.conf", "--workload", "/no/such.conf", code=1)
    refused("--target-stall", *tiny, "--advise", "--target-stall", "-1")
    refused("--plot", *tiny, "--plot", "x.gif")
    refused("--dataset", "--dataset", DIR, "--samples", "3", "--source-mbps", "1", "--source-latency-ms", "1")
    refused("/no/such", "--dataset", "/no/such", code=1)
    with open(os.path.join(DIR, "bad.conf"), "w", encoding="utf-8") as file:
        file.write("[workload]\nsamples = 10\nsample_byte = 4K\n")
    refused("sample_bytes", "--workload", os.path.join(DIR, "bad.conf"))


def check_plot():
    heads = {"svg": b"<?xml", "png": b"\x89PNG"}
    for kind, head in heads.items():
        path = os.path.join(DIR, "chart." + kind)
        done = simulate(*SMALL, "--policy", "clairfs,lru,bound", "--plot", path)
        with open(path, "rb") as file:
            data = file.read()
        tap.ok(done.returncode == 0 and data.startswith(head) and len(data) > 2000, f"a chart as {kind}", done)
        tap.equal(done.stderr, b"", "a job that is not shortened says nothing")
    path = os.path.join(DIR, "long.svg")
    long = ["--samples", "400000", "--sample-bytes", "64K", "--compute-ms", "5", "--epochs", "2"]
    done = simulate(*long, "--policy", "bound", "--plot", path, "--json")
    figures = json.loads(done.stdout)
    tap.equal((figures["samples"], figures["shortened"]), (400000, 8), "a shortened job says so in its figures")
    tap.ok(b"one of 8 samples" in done.stderr, "and on standard error", done.stderr)
    hits = dict(zip(figures["cache_percent"], figures["runs"][0]["hit_ratio"]))
    tap.ok(abs(hits[50] - 0.5) < 0.01, "half of it cached is half of the reads, for the bound", figures)
    with open(path, "rb") as file:
        drawn = file.read().count(b"<use ")
    done = simulate(*long, "--samples", "50000", "--policy", "bound", "--plot", path)
    with open(path, "rb") as file:
        tap.ok(drawn > file.read().count(b"<use ") + 40, "and in a line more beneath the charts")
    refused("--compute-ms", *SMALL, "--compute-ms", "0", "--plot", path)
    refused("no/such/dir", *SMALL, "--policy", "bound", "--plot", os.path.join(DIR, "no/such/dir/chart.svg"), code=1)
    tap.equal([n for n in os.listdir(DIR) if n.endswith(".part")], [], "no half-written file is left")


def check_reasons():
    """The words follow what limits the job."""
    job = ["--sample-bytes", "110K", "--batch", "64", "--workers", "8", "--compute-ms", "20", "--advise", "--memory", "1G"]
    advice = parsed("--samples", "20000", "--epochs", "1", "--source-latency-ms", "5", *job)
    tap.ok(advice["verdict"] == "helps" and "one epoch" in advice["why"], "one epoch: only prefetching helps", advice)
    tap.equal(advice["steps"], [], "and more memory is worth nothing")
    advice = parsed("--samples", "20000", "--epochs", "1", "--source-mbps", "200", *job)
    tap.ok(advice["verdict"] == "not_enough" and "for the first time" in advice["why"], "a source too slow for it", advice)
    advice = parsed("--samples", "20000", "--source-parallel", "2", *job)
    tap.ok("no more requests at once" in advice["why"], "a source that answers few requests at once", advice)
    tap.ok("more memory than the node has" in advice["why"], "memory the node does not have", advice)
    advice = parsed("--samples", "20000", "--source-mbps", "600", "--burst-amplitude", "0.9", "--burst-period-s", "4", *job)
    tap.ok("at times it gives 60 MB/s" in advice["why"], "a source that is slow at times", advice)
    advice = parsed("--samples", "64000", "--nodes", "32", "--epochs", "4", "--source-mbps", "200", *job)
    tap.ok(advice["verdict"] == "not_enough" and "reads most samples for the first time" in advice["why"],
           "one node of many, in few epochs", advice)
    advice = parsed("--samples", "9000", "--source-latency-ms", "10", *job)
    tap.ok(advice["verdict"] == "not_needed" and "Only in the first epoch" in advice["why"], "the first epoch is cold", advice)
    advice = parsed("--samples", "200000", "--source-latency-ms", "10", *job)
    tap.equal((advice["verdict"], advice["shortened"] > 1), ("helps", True), "a long job is shortened")
    ahead = (2 * 8 * 2 * 64 + 2 * 64) * 110 * 1024
    tap.equal(advice["smallest_memory"]["cache_bytes"], ahead, "but not what its loader has under way")
    tap.equal(advice["smallest_store"]["store_bytes"], 0, "which needs no store")
    refused("--compute-ms 0", "--samples", "100", *job, "--compute-ms", "0")


def check_advice():
    far = [*SMALL, "--source-latency-ms", "6"]
    advice = parsed(*far, "--advise", "--memory", "20M", "--target-stall", "10")
    tap.equal(advice["verdict"], "helps", "advice where a cache helps")
    least = advice["smallest_memory"]
    tap.ok(least["stall_percent"] <= 10 < advice["without"]["stall_percent"], "the smallest memory reaches the target", advice)
    # The source gives 80 MB/s, the job needs 65: it waits for latency, so very little will do.
    tap.ok(least["cache_bytes"] < 2000 * 65536 / 2, "and is less than the dataset", advice)
    tap.ok(advice["smallest_store"]["stall_percent"] <= 10, "so does the store", advice)
    tap.ok(len(advice["steps"]) > 3, "what more memory buys", advice)
    advice = parsed(*SMALL, "--advise", "--memory", "1G")
    tap.equal(advice["verdict"], "not_needed", "a dataset that fits into the page cache needs none")
    tap.ok("fits into the page cache" in advice["why"], "and that is said", advice["why"])
    advice = parsed(*SMALL, "--advise", "--memory", "20M", "--compute-ms", "1000")
    tap.ok(advice["verdict"] == "not_needed" and "bound by what it computes" in advice["why"], "nor does a slow job", advice)
    advice = parsed(*SMALL, "--advise", "--memory", "20M", "--decode-ms", "20")
    tap.ok(advice["verdict"] == "not_enough" and "decode" in advice["why"], "decoding is nothing a cache removes", advice)
    check_reasons()
    files = os.path.join(DIR, "files")
    os.mkdir(files)
    for i in range(40):
        with open(os.path.join(files, f"{i:03d}.bin"), "wb") as file:
            file.write(bytes(5000 + 100 * i))
    done = simulate("--dataset", files, "--batch", "4", "--compute-ms", "5", "--json", "--policy", "clairfs")
    setup = json.loads(done.stdout)["setup"]
    tap.equal((setup["samples"], setup["dataset_bytes"]), (40, sum(5000 + 100 * i for i in range(40))), "a measured dataset")
    tap.ok(setup["source_bytes_per_s"] > 0 and b"measured" in done.stderr, "and its source", done.stderr)
    with open(os.path.join(DIR, "paths"), "w", encoding="utf-8") as file:
        file.write("003.bin\n001.bin\n")
    stated = ["--dataset", files, "--source-mbps", "100", "--source-latency-ms", "1", "--policy", "lru"]
    run = parsed(*stated, "--order", f"list:path={DIR}/paths")
    tap.equal((run["reads"][0], run["source_bytes"][0]), (2, 5300 + 5100), "an order that names the files")
    done = simulate("--dataset", files, "--advise", "--memory", "1G")
    tap.ok(done.returncode == 0 and b"will not help" in done.stdout, "advice for a measured dataset", done)


with tempfile.TemporaryDirectory() as DIR:
    with open(os.path.join(DIR, "list"), "w", encoding="utf-8") as trace:
        trace.write("\n".join("012301401234") + "\n")
    check_json()
    check_text()
    check_workloads()
    check_bad_input()
    check_plot()
    check_advice()
tap.done()
