# SPDX-License-Identifier: Apache-2.0
"""The table of threads in src/README.md names those that the code starts, with their modules, and no others.

A thread is started by thr_start, or by crew_run of dataset, and its name is a literal there. The exceptions are on the list below:
an engine of io numbers its threads, behind the name that it was given in a struct io_params.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

TABLE = "src/README.md"
ENGINES = {"src/io/pool.c", "src/io/uring.c"}
ENGINE_NAME = re.compile(r'\bstruct io_params \w+ = \{\s*\.name = "([^"]+)"')
GIVEN = {"src/dataset/crew.c"}  # who calls crew_run says it
STARTER = "src/base/thr.c"  # the one place that may call pthread_create
START = re.compile(r'\b(?:thr_start|crew_run)\(\s*(?:[^,()"]|\([^()]*\))+,\s*("[^"]*"|[A-Za-z_]\w*)')
COMMENT = re.compile(r"/\*.*?\*/", re.S)
NO_THREAD = {"main"}  # the row of the thread that nobody starts


def threads_of_code(files):
    """({(name, module)}, findings) of {file name: text}."""
    found, findings = set(), []
    numbered = {name + "-N" for text in files.values() for name in ENGINE_NAME.findall(text)}
    for name, text in files.items():
        module = name.split("/")[1]
        text = COMMENT.sub("", text)
        if name == STARTER:
            continue
        if re.search(r"\bpthread_create\(", text):
            findings.append(f"{name}: pthread_create, which only {STARTER} may call")
        for what in START.findall(text):
            if what.startswith('"'):
                found.add((what.strip('"'), module))
            elif name in ENGINES:
                found |= {(made, module) for made in numbered}
            elif name not in GIVEN:
                findings.append(f"{name}: a thread whose name {what} is no literal: say in threads.py what comes of it")
    return found, findings


def threads_of_table(text):
    """{(name, module)}"""
    part = re.search(r"^## Threads\n(.*?)(?=^## )", text, re.M | re.S)
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \|", part[1] if part else "", re.M)
    found = set()
    for names, modules in rows:
        if names in ("name", "---") or names in NO_THREAD:
            continue
        found |= {(n, m.strip()) for n in re.findall(r"`([^`]+)`", names) or [names] for m in modules.split(",")}
    return found


def check(files, table):
    code, findings = threads_of_code(files)
    told = threads_of_table(table)
    findings += [f"{TABLE}: no row for the thread {n} of {m}" for n, m in sorted(code - told)]
    findings += [f"{TABLE}: {m} starts no thread {n}" for n, m in sorted(told - code)]
    return findings


def check_unthreaded(builds, sources):
    """tests/meson.build's unthreaded_modules and unthreaded_tests; builds: text of the build files of tests, sources: {file name: text}, also of tests."""
    modules = re.findall(r"'(\w+)'", re.search(r"unthreaded_modules = \[(.*?)\]", builds)[1])
    tests = re.findall(r"'(\w+)'", re.search(r"unthreaded_tests = \[(.*?)\]", builds, re.S)[1])
    mine = {n for n in sources if n.startswith("src/") and n.split("/")[1] in modules}
    for name, module in re.findall(r"\['(test_\w+)', '(\w+)'", builds):
        if module in modules or name in tests:
            mine |= {n for n in sources if n.endswith(f"/{name}.c")}
    findings = [f"tests/meson.build: unthreaded_modules has {m}, which has no source" for m in modules if not any(n.startswith(f"src/{m}/") for n in mine)]
    return findings + [f"{n}: starts a thread, and tests/meson.build says that it starts none" for n in sorted(mine)
                       if re.search(r"\b(thr_start|crew_run|pthread_create)\(", COMMENT.sub("", sources[n]))]


def check_tree(root):
    names = tap.tree_files(root)
    files = {n: tap.read(n, root) for n in names if n.startswith("src/") and n.endswith(".c")}
    tests = {n: tap.read(n, root) for n in names if n.startswith("tests/") and n.endswith(".c")}
    builds = "".join(tap.read(n, root) for n in names if n.startswith("tests/") and n.endswith("meson.build"))
    return check(files, tap.read(TABLE, root)) + check_unthreaded(builds, {**files, **tests})


def self_test():
    table = "## Threads\n| name | module | x |\n| --- | --- | --- |\n| main | daemon | 1 |\n| `a`, `b` | fs | 2 |\n| `r` | io, fs | 1 |\n\n## X\n"
    code = {"src/fs/f.c": 'rc = thr_start(&fs->t[i(0)],\n\t"a", f, fs, err);\n x(thr_start(&t, "b", g, o[1], e));\n crew_run(o, "r", f, x);',
            "src/io/i.c": 'thr_start(&t, "r", f, x, e); /* thr_start(&t, "z", 0) */'}
    tap.no_findings(check(code, table), "a table that is right is clean")
    tap.finds(check(dict(code, **{"src/fs/g.c": 'thr_start(&t, "c", f, x, e)'}), table), "no row for the thread c of fs", "a thread without a row")
    tap.finds(check({"src/fs/f.c": code["src/fs/f.c"]}, table), "io starts no thread r", "a row without a thread")
    tap.finds(check(dict(code, **{"src/fs/g.c": "thr_start(&t, text, f, x, e)"}), table), "is no literal", "a name that is made")
    engine = {"src/io/pool.c": "thr_start(&w->thr, name, f, w, e)", "src/fs/g.c": 'struct io_params p = { .name = "s", .n = 1 };'}
    tap.finds(check(dict(code, **engine), table), "no row for the thread s-N of io", "threads of an engine")
    tap.finds(check(dict(code, **{"src/fs/g.c": "pthread_create(&t, 0, f, x)"}), table), "pthread_create", "a thread of its own")
    builds = "unthreaded_modules = ['plan']\nunthreaded_tests = ['test_g']\n['test_p', 'plan', []], ['test_f', 'fs', []], ['test_g', 'fs', []]"
    calm = {"src/plan/p.c": "", "src/fs/f.c": "thr_start(&t)", "tests/unit/test_p.c": "", "tests/unit/test_f.c": "pthread_create(&t)"}
    tap.no_findings(check_unthreaded(builds, calm), "modules and tests without threads are clean")
    tap.finds(check_unthreaded(builds, dict(calm, **{"tests/unit/test_p.c": "pthread_create(&t)"})), "test_p.c: starts a thread", "a test with a thread")
    tap.finds(check_unthreaded(builds, dict(calm, **{"tests/unit/test_g.c": "thr_start(&t)"})), "test_g.c: starts a thread", "one that is named")
    tap.finds(check_unthreaded(builds, {}), "has no source", "a module that is not there")


self_test()
tap.no_findings(check_tree(tap.ROOT), "the table of threads is what the code starts")
tap.done()
