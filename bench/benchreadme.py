# SPDX-License-Identifier: Apache-2.0
"""The table of figures in README.md, made from bench/results/<machine>/*.json and nothing else.

`bench/run readme` measures what the table needs and writes it, `bench/run table` only writes it, and so does every
`bench/run ... --save MACHINE` of the machine whose figures the table shows. tests/lint/figures.py compares the two.

A row says at which commit and load its figures were taken. What a file lacks is said to be not taken.
"""
import json
import math
import os
import re

from benchlib import IDLE_LOAD, Failed

BEGIN = re.compile(r"<!-- figures of bench/results/([\w.-]+): begin -->\n")
END = "<!-- figures: end; bench/run readme takes them -->\n"
NOT_TAKEN = "not taken"

# benchmark, what was measured, figures: {line} is its median and range, {line.key} one of its values
ROWS = [
    ("staged", "staged open + fstat + read + close of a 110 KiB file, one thread, against tmpfs",
     "{staged_clairfs_ratio} times as long; requests to the daemon per read: {staged_upcalls.value}"),
    ("staged", "the same against the first read of freshly written files, which move to the active list as pushed pages do",
     "{staged_clairfs_fresh_ratio}"),
    ("staged", "single reads of these, median",
     "staged {staged_clairfs_us.p50} us, tmpfs {staged_native_us.p50} us, freshly written {staged_fresh_us.p50} us"),
    ("staged", "single reads of these, median and 90th percentile, against tmpfs", "{staged_p50_ratio} and {staged_p90_ratio}"),
    ("staged", "the same against the first read of freshly written files", "{staged_p50_fresh_ratio} and {staged_p90_fresh_ratio}"),
    ("staged", "bindfs with kernel_cache against tmpfs, for comparison", "{staged_bindfs_ratio}"),
    ("stall", "stall after 200 samples, source with 5 ms latency, batch 16, 10 ms a batch, 4 workers",
     "{stall_clairfs_5ms} % of compute in {stall_clairfs_5ms.rounds} epochs; read directly {stall_direct_5ms} %"),
    ("stall", "stall after 200 samples, source with 10 ms latency, batch 16, 10 ms a batch, 4 workers",
     "{stall_clairfs_10ms} % of compute in {stall_clairfs_10ms.rounds} epochs; read directly {stall_direct_10ms} %"),
    ("cpu", "daemon CPU per prefetched 110 KiB sample, local source", "{cpu_local} us"),
    ("stall", "daemon CPU per prefetched 110 KiB sample, simulated source, 5 ms", "{cpu_slowfs_5ms} us"),
    ("stall", "peak memory with ram=128M", "{rss_ram128M_5ms} MiB"),
    ("hook", "`clairfs.watch`: what a step takes longer",
     "{hook_step} us told to a mount, {hook_step_without_mount} us when there is no mount"),
    ("noorder", "no order, random reads, simulated source, 5 ms: files/s against reading it directly",
     "{noorder_slowfs5ms_1threads} with 1 thread, {noorder_slowfs5ms_8threads} with 8"),
    ("gluster", "no order, random reads, GlusterFS on loopback: files/s against reading it directly",
     "{noorder_gluster_1threads} with 1 thread, {noorder_gluster_8threads} with 8"),
    ("shards", "no order, 100 KB at random places of large files, source of 10 ms, 200 MB/s and 4 MiB read-ahead, against reading it directly",
     "speed {shards_records_1readers_ra4096_epoch0_speed} with 1 reader, {shards_records_12readers_ra4096_epoch0_speed} with 12; bytes of the "
     "source {shards_records_1readers_ra4096_epoch0_bytes} and {shards_records_12readers_ra4096_epoch0_bytes}"),
    ("shards", "the same, large files from their beginning to their end",
     "speed {shards_streams_1readers_ra4096_epoch0_speed} with 1 reader, {shards_streams_12readers_ra4096_epoch0_speed} with 12; bytes of the "
     "source {shards_streams_1readers_ra4096_epoch0_bytes} and {shards_streams_12readers_ra4096_epoch0_bytes}"),
    ("records", "order known, records of 100 KB within large files that wait in the kernel, one `pread` each, against tmpfs",
     "{records_ratio} times as long, median of single reads {records_p50_ratio}; requests to the daemon per MiB: {records_upcalls.value}"),
    ("recover", "nobody told the order, 10^5 files, 4 PyTorch workers: part of the first epoch until followed",
     "`DistributedSampler` {recover_distributed} %, `manual_seed(42)` {recover_manual_seed} %, an arbitrary seed "
     "{recover_arbitrary} %"),
    ("seeds", "seeds of torch's generator tried per second and core",
     "{seeds_search} million with {seeds_search.isa}, all 2^32 in {seeds_search.core_seconds} s; "
     "{seeds_sieve_vector} million with neither AVX2 nor AVX-512"),
]
BENCHES = list(dict.fromkeys(bench for bench, *_ in ROWS))


def read_lines(folder, bench):
    """{name: line} of a file of results; empty where there is none."""
    path = os.path.join(folder, f"{bench}.json")
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        return {line["name"]: line for line in map(json.loads, file)}


def number(value):
    """Three significant digits, no more than four after the point."""
    if not isinstance(value, float):
        return str(value)
    if value == 0 or abs(value) >= 1000:
        return f"{value:.0f}"
    return f"{value:.{min(4, max(0, 2 - math.floor(math.log10(abs(value)))))}f}"


def figure(lines, name):
    name, _, key = name.partition(".")
    line = lines.get(name, {})
    if key or not line:
        return number(line[key]) if key in line else NOT_TAKEN
    if line["rounds"] == 1:
        return number(line["value"])
    return f"{number(line['value'])} ({number(line['min'])} to {number(line['max'])})"


def taken(lines, names):
    """When: the commit and the load, and whether the machine was idle then."""
    known = [lines[n] for n in (name.partition(".")[0] for name in names) if n in lines]
    load = known[0].get("load")
    if load is None:
        said = "load not recorded"
    else:
        said = f"load {load:.2f}" + (", **not idle**" if load >= IDLE_LOAD else "")
    return f"{known[0].get('commit', 'unknown')}, {said}"


def table(folder):
    rows = ["| what | measured: median (range) | commit and load at the start |", "| --- | --- | --- |"]
    for bench, what, text in ROWS:
        lines, names = read_lines(folder, bench), re.findall(r"\{([^}]+)\}", text)
        figures = {name: figure(lines, name) for name in names}
        if all(one == NOT_TAKEN for one in figures.values()):
            rows.append(f"| {what} | {NOT_TAKEN} | |")
            continue
        said = re.sub(r"\{([^}]+)\}", lambda match, figures=figures: figures[match[1]], text)
        rows.append(f"| {what} | {said} | {taken(lines, names)} |")
    return "\n".join(rows) + "\n"


def parts(text):
    """README's text before the table, the machine it is of, the table, and what follows."""
    begin = BEGIN.search(text)
    end = text.find(END)
    if not begin or end < begin.end():
        raise Failed("README: the two comments around the table of figures are not there")
    return text[:begin.start()], begin[1], text[begin.end():end], text[end:]


def machine_of(readme):
    with open(readme, encoding="utf-8") as file:
        return parts(file.read())[1]


def write(readme, results, machine):
    with open(readme, encoding="utf-8") as file:
        before, _, _, after = parts(file.read())
    text = f"{before}<!-- figures of bench/results/{machine}: begin -->\n{table(os.path.join(results, machine))}{after}"
    with open(readme, "w", encoding="utf-8") as file:
        file.write(text)
