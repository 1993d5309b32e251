# SPDX-License-Identifier: Apache-2.0
"""README's table of figures is what bench/results says, and every result says where it comes from: commit and load.

A figure that was typed in, or that is older than the results beside it, is found; `bench/run table` writes the table again.
"""
import json
import math
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", *parts) for parts in (["lib"], ["..", "bench"])]
import benchreadme
import tap
from benchlib import Failed

RESULTS = "bench/results/"
# Programs of others and scenarios have lines of their own making; what all have in common is where they come from.
CONDITIONS = {"commit": str, "load": (int, float, type(None))}


def not_finite(text):
    raise ValueError(f"{text} is no number")


def check_results(root):
    for name in tap.tree_files(root):
        if not name.startswith(RESULTS) or not name.endswith(".json"):
            continue
        for number, row in enumerate(tap.read(name, root).splitlines(), 1):
            try:
                line = json.loads(row, parse_constant=not_finite)
            except ValueError as error:
                yield f"{name}:{number}: {error}"
                continue
            for key, kind in CONDITIONS.items():
                if key not in line or not isinstance(line[key], kind):
                    yield f"{name}:{number}: {key} is {line.get(key)!r}"


def check_table(root):
    try:
        _, machine, shown, _ = benchreadme.parts(tap.read("README.md", root))
    except Failed as error:
        return [str(error)]
    wanted = benchreadme.table(os.path.join(root, RESULTS, machine))
    return [f"README.md: {row}\n  is not what {RESULTS}{machine} says (bench/run table)" for row in shown.splitlines()
            if row not in wanted.splitlines()] or ([] if shown == wanted else ["README.md: rows are missing, or in another order"])


def check_tree(root):
    return list(check_results(root)) + check_table(root)


def self_test():
    number = benchreadme.number
    tap.equal([number(x) for x in (0.00061, 0.0601, 0.97, 1.9525, 27.59, 116.4, 1389.2, 0.0, -13.14, 6, "avx2")],
              ["0.0006", "0.0601", "0.970", "1.95", "27.6", "116", "1389", "0", "-13.1", "6", "avx2"], "three significant digits")
    line = {"name": "cpu_local", "unit": "us", "value": 99.5, "min": 94.44, "max": 102.2, "rounds": 3, "commit": "0123abc", "load": 0.12}

    def tree(table=None, **change):
        results = f"{RESULTS}m/cpu.json"
        text = json.dumps({**line, **change}) + "\n"
        with tap.MadeUpTree({results: text}) as root:
            table = table or benchreadme.table(os.path.join(root, RESULTS, "m"))
        return {results: text, "README.md": f"x\n<!-- figures of {RESULTS}m: begin -->\n{table}{benchreadme.END}y\n"}, table

    files, table = tree()
    with tap.MadeUpTree(files) as root:
        tap.no_findings(check_tree(root), "a table that was written from results is clean")
        tap.finds(table.splitlines(), "| 99.5 (94.4 to 102) us | 0123abc, load 0.12 |", "a row has figures, commit and load")
        tap.ok(table.count("| not taken | |") == len(benchreadme.ROWS) - 1, "what was not taken is said to be so", table)
        os.remove(os.path.join(root, RESULTS, "m", "cpu.json"))
        tap.finds(check_tree(root), "99.5", "figures without a result are found")
        benchreadme.write(os.path.join(root, "README.md"), os.path.join(root, RESULTS), "m")
        tap.no_findings(check_tree(root), "and written again")
    for part, changed in (("99.5", table.replace("99.5", "90.5")), ("load 0.12", table.replace("load 0.12", "load 0.02"))):
        with tap.MadeUpTree(tree(changed)[0]) as root:
            tap.finds(check_tree(root), "is not what", f"a row is found whose {part} was changed")
    with tap.MadeUpTree(tree(table + table.splitlines()[-1] + "\n")[0]) as root:
        tap.finds(check_tree(root), "in another order", "a row that is there twice is found")
    tap.finds(tree(load=0.5)[1].splitlines(), "load 0.50, **not idle** |", "a load of 0.5 is not idle, and the row says so")
    tap.finds(tree(load=None)[1].splitlines(), "load not recorded |", "a row says that nobody knows the load")
    for part, change in (("commit is None", {"commit": None}), ("load is 'low'", {"load": "low"}), ("no number", {"value": math.nan})):
        files = {f"{RESULTS}m/dlio.json": json.dumps({**line, **change}), "README.md": tree()[0]["README.md"]}
        with tap.MadeUpTree(files) as root:
            tap.finds(check_tree(root), part, f"found in a result: {part}")
    with tap.MadeUpTree({"README.md": "no table\n"}) as root:
        tap.finds(check_tree(root), "comments around", "a README without the table is found")


self_test()
tap.no_findings(check_tree(tap.ROOT), "README's figures are those of bench/results, which say where they come from")
tap.done()
