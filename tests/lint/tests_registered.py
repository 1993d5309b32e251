# SPDX-License-Identifier: Apache-2.0
"""No orphans: every test file is in the meson.build of its directory, and every row there has its file.

C tests are tests/<dir>/test_*.c, mount and cluster tests test_*.py, and in tests/lint every script is a test.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap


def is_test(directory, base):
    if directory == "lint":
        return base.endswith(".py")
    return re.match(r"test_.*\.(c|py)$", base)


def check_tree(root):
    on_disk = {}
    for name in tap.tree_files(root):
        parts = name.split("/")
        if parts[0] != "tests" or len(parts) < 3 or parts[1] == "lib":
            continue
        on_disk.setdefault(parts[1], set())
        if len(parts) == 3 and is_test(parts[1], parts[2]):
            on_disk[parts[1]].add(parts[2].rsplit(".", 1)[0])
        elif is_test(parts[1], parts[-1]) and len(parts) > 3:
            yield f"{name}: test files lie directly in tests/{parts[1]}"
    for directory, names in sorted(on_disk.items()):
        path = os.path.join(root, "tests", directory, "meson.build")
        text = tap.read(path, root) if os.path.exists(path) else ""
        text = re.sub(r"#.*", "", text)
        words = set(re.findall(r"'([^']+)'", text))
        rows = re.findall(r"^\s*\[?\s*'(\w+)'", text, re.M)
        for name in sorted(names - words):
            yield f"tests/{directory}/{name}: not in tests/{directory}/meson.build, so it never runs"
        for name in sorted(set(rows) - names):
            if name.startswith("test_"):
                yield f"tests/{directory}/meson.build: {name} has no file"
        for name in sorted({r for r in rows if rows.count(r) > 1}):
            yield f"tests/{directory}/meson.build: {name} is there twice"


def self_test():
    def findings(build, files):
        tree = {f"tests/unit/{f}": "" for f in files}
        with tap.MadeUpTree({**tree, "tests/unit/meson.build": build}) as root:
            return list(check_tree(root))
    row = "tests = [\n  ['test_a', 'base', ['more.c']],\n]\n"
    tap.no_findings(findings(row, ["test_a.c", "more.c"]), "a registered test is fine")
    tap.finds(findings(row, ["test_a.c", "test_b.c"]), "test_b: not in", "an orphan is found")
    tap.finds(findings(row.replace("  [", "  # ["), ["test_a.c"]), "test_a: not in", "a row in a comment does not count")
    tap.finds(findings(row, []), "test_a has no file", "a row without file is found")
    tap.finds(findings(row + row, ["test_a.c"]), "twice", "a doubled row is found")
    tap.finds(findings(row, ["test_a.c", "deep/test_c.c"]), "directly", "a test in a deeper directory is found")
    with tap.MadeUpTree({"tests/lint/new.py": "", "tests/lint/meson.build": "tests = [\n]\n"}) as root:
        tap.finds(list(check_tree(root)), "new: not in", "an orphan lint is found")
    with tap.MadeUpTree({"tests/other/test_x.py": ""}) as root:
        tap.finds(list(check_tree(root)), "test_x: not in", "a directory without meson.build is found")


self_test()
tap.no_findings(list(check_tree(tap.ROOT)), "every test of the tree is registered")
tap.done()
