#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adds up meson's JUnit reports: prints what failed or was skipped, then "N passed, N failed, N skipped".

An argument "broken:NAME" stands for a build that could not be made: one failure. With CI set in the environment a skip
is a failure. No test at all is a failure.
"""
import os
import sys
import xml.etree.ElementTree as ET


def cases(path):
    for suite in ET.parse(path).getroot().iter("testsuite"):
        yield from ((suite.get("name", ""), case) for case in suite.iter("testcase"))


def main(paths):
    passed = failed = skipped = 0
    for path in paths:
        if path.startswith("broken:"):
            failed += 1
            print("FAILED: build", path[len("broken:"):])
            continue
        for suite, case in cases(path):
            name = f"{suite}: {case.get('classname', '')} {case.get('name', '')}"
            if case.find("failure") is not None or case.find("error") is not None:
                failed += 1
                print("FAILED:", name)
            elif case.find("skipped") is not None:
                skipped += 1
                print("SKIPPED:", name)
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or passed == 0 or (skipped and os.environ.get("CI")) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
