# SPDX-License-Identifier: Apache-2.0
"""The build found the features it is expected to find.

A lost dependency must be a red build, not a smaller program. config.h of the build is compared with the table in
expected-features; a build that leaves something out on purpose says so with CLAIRFS_FEATURES_FILE=<other table>.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap


def configured(config_h):
    return {name: int(value) for name, value in re.findall(r"^#define (HAVE_\w+) ([01])\s*$", config_h, re.M)}


def expected(table):
    """{feature: 0, 1 or "any"} from lines "HAVE_X 1"; '#' starts a comment."""
    want = {}
    for line in table.splitlines():
        words = line.split("#")[0].split()
        if words:
            name, value = words
            want[name] = value if value == "any" else int(value)
    return want


def compare(have, want):
    findings = [f"{name}: not in expected-features" for name in sorted(set(have) - set(want))]
    findings += [f"{name}: expected, but this build does not know it" for name in sorted(set(want) - set(have))]
    for name in sorted(set(have) & set(want)):
        if want[name] not in ("any", have[name]):
            findings.append(f"{name}: expected {want[name]}, the build has {have[name]}")
    return findings


def self_test():
    config = "#define HAVE_A 1\n\n#define HAVE_B 0\n#define OTHER 1\n"
    tap.equal(configured(config), {"HAVE_A": 1, "HAVE_B": 0}, "config.h is read")
    tap.no_findings(compare(configured(config), expected("HAVE_A 1\nHAVE_B 0 # why\n")), "equal tables are fine")
    tap.no_findings(compare(configured(config), expected("HAVE_A any\nHAVE_B any\n")), "any is any")
    tap.finds(compare({"HAVE_A": 0}, {"HAVE_A": 1}), "expected 1, the build has 0", "a lost feature is found")
    tap.finds(compare({"HAVE_A": 1}, {"HAVE_A": 0}), "expected 0, the build has 1", "a new feature is found")
    tap.finds(compare({"HAVE_A": 1}, {}), "not in expected-features", "an unlisted feature is found")
    tap.finds(compare({}, {"HAVE_A": 1}), "does not know it", "a feature that vanished from the build is found")


def main():
    self_test()
    build = os.environ.get("CLAIRFS_BUILD")
    if not tap.ok(build, "CLAIRFS_BUILD names a build", "run me through meson test"):
        return
    have = configured(tap.read("config.h", build))
    tap.ok(have, "the build's config.h has features")
    table = os.environ.get("CLAIRFS_FEATURES_FILE") or str(tap.ROOT / "tests/lint/expected-features")
    tap.no_findings(compare(have, expected(tap.read(table))), "the build has the expected features")


main()
tap.done()
