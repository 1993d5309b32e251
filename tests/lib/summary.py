#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up meson's reports: prints what failed or was skipped, then "N passed, N failed, N skipped".

Arguments are BUILD:LOG, a build directory and one of its reports (meson-logs/LOG.json has the verdict on each program, LOG.junit.xml
its test points), or "broken:NAME", a build that could not be made. A program that crashed, timed out or ended before its plan is a failure of
its own, whatever points it had passed; so is a report that is not there. With CI set in the environment a skip is a failure.
"""
import json
import os
import sys
import xml.etree.ElementTree as ET

GOOD = {"OK", "SKIP", "EXPECTEDFAIL"}
LINES_MOST = 12  # of what a program says about its failures


def points(path, count):
    """Counts the test points of one build; names those that failed or were skipped."""
    for case in ET.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '')} {case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            count["failed"] += 1
            print("FAILED:", name)
        elif case.find("skipped") is not None:
            count["skipped"] += 1
            print("SKIPPED:", name)
        else:
            count["passed"] += 1


def reasons(entry):
    """What the program says about its failed points: kits print it before the verdict. Of one that says nothing, its last words."""
    said, before = [], []
    for line in entry.get("stdout", "").splitlines():
        if line.startswith("not ok"):
            said += [*before, line]
        before = [*before, line] if line.startswith("# ") else []
    return said[:LINES_MOST] or (entry.get("stderr") or entry.get("stdout", "")).splitlines()[-LINES_MOST:]


def programs(path, count):
    """Programs without a good end. Their failed points were counted already; the program counts once more."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            if entry["result"] not in GOOD:
                count["failed"] += 1
                print("FAILED:", entry["name"], entry["result"])
                for said in reasons(entry):
                    print("   ", said[:300])


def main(builds):
    count = {"passed": 0, "failed": 0, "skipped": 0}
    for build in builds:
        try:
            if build.startswith("broken:"):
                raise OSError("could not be built")
            folder, _, log = build.rpartition(":")
            points(os.path.join(folder, "meson-logs", log + ".junit.xml"), count)
            programs(os.path.join(folder, "meson-logs", log + ".json"), count)
        except (OSError, ValueError, ET.ParseError) as error:
            count["failed"] += 1
            print(f"FAILED: {build}: {error}")
    print(f"{count['passed']} passed, {count['failed']} failed, {count['skipped']} skipped")
    return 1 if count["failed"] or not count["passed"] or (count["skipped"] and os.environ.get("CI")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
