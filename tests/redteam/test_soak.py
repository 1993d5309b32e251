# SPDX-License-Identifier: Apache-2.0
"""A smoke run of packaging/soak; and the same with a ledger that lies, which it must find."""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import redkit
import mountkit
import tap
from mountkit import program

SOAK = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "soak")


def soak(place, minutes, *more):
    """(what it ended with, {word of the summary: number})"""
    os.mkdir(place.path("soak"))
    log = place.path("soak.log")
    done = program(SOAK, minutes, "--seed", mountkit.SEED, "--dir", place.path("soak"), "--log", log, *more, timeout=600)
    text = mountkit.read_file(log).decode(errors="replace")
    summary = text.partition("---- summary")[2]
    numbers = {name: float(n) for name, n in re.findall(r"^\S+ (\D+?):? ([\d.]+)(?: MiB)?$", summary, re.M)}
    tap.equal(os.listdir(place.path("soak")), [], "it leaves no file")
    os.rmdir(place.path("soak"))
    return done, numbers, text


def short(place):
    done, numbers, text = soak(place, redkit.pick(0.2, 5))
    tap.ok(numbers.get("reads", 0) > 100 and numbers.get("events", 0) > 20, "it reads, and things happen", numbers)
    tap.equal((numbers.get("wrong reads"), numbers.get("hangs"), numbers.get("leftovers")), (0, 0, 0), "nothing is wrong")
    if not tap.ok(done.code == 0 and "result good" in text, "it ends well", done):
        tap.note(text)


def a_lie(place):
    done, numbers, _ = soak(place, 0.05, "--lie")
    tap.ok(done.code == 1 and numbers.get("wrong reads", 0) > 0, "a wrong byte is found, and the exit code says so", done, numbers)


def usage(_):
    for argv in ((), ("0",), ("x",), ("-1",)):
        tap.equal(program(SOAK, *argv).code, 2, f"soak {' '.join(argv)}: exit code 2")


mountkit.run(short, a_lie, usage)
