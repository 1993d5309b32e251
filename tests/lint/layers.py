# SPDX-License-Identifier: Apache-2.0
"""Includes follow the layer table of src/meson.build.

A file of src/M may include "clairfs/X.h" and "clairfs/X/....h" only for X = M and the modules in M's row, no "../" path,
and no private header of another module. The installed header hint.h belongs to nobody. And no row says more than is true: each
module that it names is included by a file of that module.
"""
import ast
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

FREE_HEADERS = {"hint"}  # for everybody
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.M)


def layer_table(meson_build):
    """{module: set of modules below} from the text of src/meson.build."""
    body = re.search(r"^layers = (\[.*?^\])", meson_build, re.M | re.S)
    if not body:
        return {}
    # The third column is variables of meson: quote them, and the table is a Python literal.
    text = re.sub(r"#.*", "", body.group(1))
    text = re.sub(r"(?<!')\b([A-Za-z_]\w*_dep)\b(?!')", r"'\1'", text)
    return {row[0]: set(row[1]) for row in ast.literal_eval(text)}


def check_table(table):
    findings = []
    seen = set()
    for module, below in table.items():
        findings += [f"src/meson.build: {module} uses {m}, which has no row above it" for m in sorted(below - seen)]
        seen.add(module)
    return findings


def check_file(name, text, module, table, private):
    """Findings for one file of src/<module>; private: header file name -> modules that own one of that name."""
    allowed = table[module] | {module}
    findings = []
    for quote, target in INCLUDE.findall(text):
        where = f"{name}: includes {target}"
        if ".." in target.split("/"):
            findings.append(f"{where}: no paths with ..")
            continue
        if target.startswith("clairfs/"):
            used = target.split("/")[1].removesuffix(".h")
            if used not in allowed | FREE_HEADERS:
                findings.append(f"{where}: {module} may use {', '.join(sorted(allowed - {module})) or 'nothing'}")
        elif quote == '"':
            owners = private.get(os.path.basename(target), set())
            if "/" in target or (owners and module not in owners):
                findings.append(f"{where}: a private header of another module")
    return findings


def modules_of(text):
    """The modules whose public headers are included."""
    return {target.split("/")[1].removesuffix(".h") for _, target in INCLUDE.findall(text) if target.startswith("clairfs/")}


def check_used(table, used):
    return [f"src/meson.build: {module} does not use {m}" for module, below in table.items() for m in sorted(below - used[module])]


def check_tree(root):
    table = layer_table(tap.read("src/meson.build", root))
    if not table:
        return ["src/meson.build: no layer table"]
    findings = check_table(table)
    files = [f for f in tap.tree_files(root) if f.endswith((".c", ".h"))]
    private, used = {}, {module: set() for module in table}
    for name in files:
        parts = name.split("/")
        if parts[0] == "src" and name.endswith(".h"):
            private.setdefault(parts[-1], set()).add(parts[1])
    for name in files:
        parts = name.split("/")
        if parts[0] == "src" and len(parts) > 2:
            module = parts[1]
        elif parts[:2] == ["include", "clairfs"] and len(parts) > 2:
            module = parts[2].removesuffix(".h")  # a header is bound like its module
        else:
            continue
        if module in FREE_HEADERS:
            continue
        if module not in table:
            findings.append(f"{name}: {module} has no row in src/meson.build")
            continue
        findings += check_file(name, tap.read(name, root), module, table, private)
        used[module] |= modules_of(tap.read(name, root))
    return findings + check_used(table, used)


TABLE = """
layers = [
  ['base', [], [threads_dep, inih_dep]],   # ground
  ['order', ['base'], []],
  ['fs', ['order'], [fuse_dep]],
  ['cli', ['fs', 'base'], []],
]
"""


def self_test():
    tap.equal(layer_table(TABLE), {"base": set(), "order": {"base"}, "fs": {"order"}, "cli": {"fs", "base"}},
              "the table is read")
    tap.finds(check_table({"base": {"fs"}, "fs": {"base"}}), "base uses fs", "a row that goes up is found")
    good = {
        "src/meson.build": TABLE,
        "src/order/a.c": '#include "clairfs/base/err.h"\n#include "clairfs/order.h"\n#include "order_priv.h"\n',
        "src/order/order_priv.h": "#include <stdio.h>\n",
        "src/cli/main.c": '#include "clairfs/fs.h"\n#include "clairfs/base/err.h"\n#include "clairfs/hint.h"\n',
        "include/clairfs/fs.h": '#include "clairfs/order.h"\n',
    }
    with tap.MadeUpTree(good) as root:
        tap.no_findings(check_tree(root), "a made-up tree that keeps the rules is clean")
    bad = {
        "up": ("src/order/b.c", '#include "clairfs/fs.h"\n', "order may use base"),
        "up in a header": ("include/clairfs/order.h", '#include "clairfs/fs.h"\n', "order may use base"),
        "up with <>": ("src/base/b.c", "# include <clairfs/order.h>\n", "base may use nothing"),
        "..": ("src/fs/b.c", '#include "../order/order_priv.h"\n', "no paths with .."),
        "a private header": ("src/fs/b.c", '#include "order_priv.h"\n', "private header"),
        "a private header by path": ("src/cli/b.c", '#include "order/order_priv.h"\n', "private header"),
        "an unknown module": ("src/new/b.c", "\n", "new has no row"),
        "a row that says too much": ("src/cli/main.c", '#include "clairfs/base/err.h"\n', "cli does not use fs"),
    }
    for what, (name, text, part) in bad.items():
        with tap.MadeUpTree({**good, name: text}) as root:
            tap.finds(check_tree(root), part, f"found: {what}")


self_test()
tap.no_findings(check_tree(tap.ROOT), "the tree keeps its layers")
tap.done()
