# SPDX-License-Identifier: Apache-2.0
"""Runs of bench/run that take seconds, and what must be right about their results whatever the machine: names, units and
finite numbers in every line, the conditions beside them, and no two results of one name."""
import json
import math
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount")]

import mountkit
import tap

BUILD = os.environ["CLAIRFS_BUILD"]
BENCH = os.path.join(tap.ROOT, "bench")
TIMEOUT = 1800  # nothing is measured here, and only a hang takes so long
README = "above\n<!-- figures of bench/results/smoke: begin -->\n<!-- figures: end; bench/run readme takes them -->\nbelow\n"


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def infinite(value):
    """Numbers in it that are none."""
    if isinstance(value, dict):
        return [x for one in value.values() for x in infinite(one)]
    if isinstance(value, list):
        return [x for one in value for x in infinite(one)]
    return [value] if isinstance(value, float) and not math.isfinite(value) else []


def wrong_line(line, numbers):
    """What is not as it must be in one result; `numbers` must be there."""
    if not isinstance(line, dict):
        return ["not an object"]
    found = [f"{key} is {line.get(key)!r}" for key in numbers if not is_number(line.get(key))]
    if not re.fullmatch(r"[A-Za-z0-9_.]+", str(line.get("name", ""))):
        found.append(f"name is {line.get('name')!r}")
    if not isinstance(line.get("unit"), str) or not line["unit"].strip():
        found.append(f"unit is {line.get('unit')!r}")
    found += [f"{value} is no number" for value in infinite(line)]
    if not found and "min" in numbers and not line["min"] <= line["value"] <= line["max"]:
        found.append(f"{line['value']} is not within {line['min']} to {line['max']}")
    if not found and "rounds" in numbers and line["rounds"] < 1:
        found.append("no round")
    return found


SAVED = ("value", "min", "max", "rounds", "cores", "load", "bench_seconds")


def wrong_results(text, numbers=SAVED, repeat=False):
    """Findings about lines of JSON; repeat: programs that print one name for several settings."""
    found, names = [], []
    for number, row in enumerate(text.splitlines(), 1):
        try:
            line = json.loads(row)
        except ValueError as error:
            found.append(f"line {number}: {error}: {row[:200]}")
            continue
        found += [f"line {number}: {what}: {row[:200]}" for what in wrong_line(line, numbers)]
        if "cores" in numbers and not re.fullmatch(r"[0-9a-f]{7,40}\+?|unknown", str(line.get("commit"))):
            found.append(f"line {number}: commit is {line.get('commit')!r}")
        names.append(line.get("name"))
    if not names:
        found.append("no result")
    return found + [f"{name} is there twice" for name in sorted({n for n in names if names.count(n) > 1}) if not repeat]


def environment(place, **more):
    os.makedirs(place.path("tmp"), exist_ok=True)
    return {**os.environ, "TMPDIR": place.path("tmp"), "PYTHONDONTWRITEBYTECODE": "1", **more}


def program(place, *argv, **more):
    try:
        return mountkit.program(*argv, timeout=TIMEOUT, env=environment(place, **more), cwd=place.root)
    except subprocess.TimeoutExpired as error:
        raise mountkit.Failed(f"{argv}: still running after {TIMEOUT} s: {(error.stderr or b'')[-2000:]!r}") from None


def bench_run(place, *argv, **more):
    """bench/run --smoke; all it makes is in the place."""
    for folder in ("data", "disk", "results"):
        os.makedirs(place.path(folder), exist_ok=True)
    if not os.path.exists(place.path("README.md")):
        mountkit.write_file(place.path("README.md"), README.encode())
    return program(place, sys.executable, f"{BENCH}/run", "--smoke", "--build", BUILD, "--data", place.path("data"), "--disk",
                   place.path("disk"), "--results", place.path("results"), "--readme", place.path("README.md"), *argv, **more)


def check_results(place, names):
    """The files of results that `names` must have left."""
    for name in names:
        path = place.path("results", "smoke", f"{name}.json")
        text = mountkit.read_file(path).decode() if os.path.exists(path) else ""
        tap.no_findings(wrong_results(text), f"{name}: runs to its end, and its results have names, units, numbers and conditions")


def self_test():
    good = {"name": "a_1.5ms", "unit": "us", "value": 2, "min": 1.5, "max": 2, "rounds": 1, "cores": 2, "load": 0, "bench_seconds": 1,
            "commit": "0123abc+", "said": ["words"]}
    line = json.dumps(good)
    tap.no_findings(wrong_results(line), "a good result is fine")
    for part, change in (("name is", {"name": "a b"}), ("unit is", {"unit": " "}), ("value is nan", {"value": math.nan}),
                         ("max is inf", {"max": math.inf}), ("value is None", {"value": None}), ("value is True", {"value": True}),
                         ("not within", {"min": 3}), ("no round", {"rounds": 0}), ("load is", {"load": None}),
                         ("commit is", {"commit": ""}), ("is no number", {"p50": [math.nan]})):
        tap.finds(wrong_results(json.dumps({**good, **change})), part, f"found in a result: {part}")
    tap.finds(wrong_results(line + "\n" + line), "twice", "two results of one name are found")
    tap.finds(wrong_results(""), "no result", "a benchmark that printed nothing is found")
    tap.finds(wrong_results(line[:-1]), "line 1", "half a line is found")


def make_images(place):
    for i in range(64):
        mountkit.write_file(place.path("source", f"class{i % 4}", f"{i:05d}.png"), bytes([i]) * 4000)


def quickstart(place, *argv):
    """The comparison for people, on some small images."""
    make_images(place)
    done = program(place, sys.executable, f"{BENCH}/quickstart.py", "--build", BUILD, "--epochs", 2, "--latency-ms", 1, *argv, place.source)
    rows = re.findall(r"^(source|clairfs) +(\d) +[\d.]+ +[\d.]+ +[\d.]+ ", done.out.decode(), re.M)
    tap.equal((done.code, rows), (0, [(side, epoch) for side in ("source", "clairfs") for epoch in "01"]),
              "quickstart: both sides, each epoch") or tap.note(done)
    tap.ok(b"times as fast" in done.out and b"staged" in done.out, "quickstart: what came of it", done)
    said = re.search(rb"by the stopwatch: (-?[\d.]+) s in 2 epochs\n +by the mount's account: (.*)\n", done.out)
    tap.ok(said and b"over yet" not in said[2] and b"judged so far" not in said[2],
           "quickstart: the stopwatch, and beside it the account of all epochs, or why there is none", done)
