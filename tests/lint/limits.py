# SPDX-License-Identifier: Apache-2.0
"""Sizes, preprocessor conditions and licence lines.

Beyond the first number of a limit is a warning (printed), beyond the second a failure. Functions are found by their
shape in this project's style: a line that starts in column 0, ends a parameter list, and is followed by "{" alone.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

FILE_LINES = (500, 800)
HEADER_LINES = (200, 300)
FUNCTION_LINES = (50, 70)
PARAMETERS = (6, 7)
COLUMNS = (100, 120)

# Where #if may stand in a .c file or a private header, and why.
CONDITIONS_ALLOWED = [
    (r"^src/[^/]+/[^/]*_caps\.c$", "probes and fallbacks of a library or the kernel live here"),
    (r"^src/[^/]+/caps\.c$", "the same, for a module with one such file"),
    (r"^src/base/compat\.c$", "differences between C libraries"),
    (r"^src/fs/fuse_version\.h$", "the one place that knows libfuse versions"),
    (r"^src/io/uring[^/]*\.c$", "not compiled in without liburing"),
]
# Functions whose parameters another project has decided.
PARAMETERS_ALLOWED = {"fs_op_ioctl": "libfuse's fuse_lowlevel_ops.ioctl"}

SPDX = "SPDX-License-Identifier: Apache-2.0"
SPDX_FILES = re.compile(r"(\.(c|h|py|sh)|(^|/)meson\.build|(^|/)meson_options\.txt)$")
CONDITION = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif)\b(.*)$", re.M)


def blank_out(text):
    """The text with comments and strings emptied; lines keep their numbers."""
    def keep_lines(match):
        found = match.group(0)
        quote = found[0] if found[0] in "\"'" else ""
        return quote + "\n" * found.count("\n") + quote
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', keep_lines, text, flags=re.S)


def count_parameters(inside):
    depth = 0
    count = 1
    for c in inside:
        depth += c in "([{"
        depth -= c in ")]}"
        count += c == "," and depth == 0
    return 0 if inside.strip() in ("", "void") else count


def functions(text):
    """(name, first line, lines of the body with braces, parameters) of each function."""
    lines = blank_out(text).split("\n")
    for at, line in enumerate(lines):
        if line.rstrip() != "{" or at == 0:
            continue
        start = at
        while start > 0 and at - start < 12 and (start == at or lines[start][:1] in "\t "):
            start -= 1
        head = " ".join(l.strip() for l in lines[start:at])
        match = re.search(r"\b([A-Za-z_]\w*)\s*\((.*)\)[^()]*$", head)
        if not match or head.startswith("#"):
            continue
        name, inside = match.groups()
        first = re.search(r"\b([A-Za-z_]\w*)\s*\(", re.sub(r"__attribute__\s*\(\(.*?\)\)", "", head))
        if first and first.group(1) != name:
            name = first.group(1)
            inside = head[head.index(name + "(") + len(name) + 1:head.rindex(")")]
        end = at
        while end < len(lines) and lines[end].rstrip() != "}":
            end += 1
        yield name, at, end - at + 1, count_parameters(inside)


def over(findings, limit, value, text):
    """Sorts a value into warnings and failures."""
    warn, fail = limit
    if value > fail:
        findings["fail"].append(f"{text}: {value}, the limit is {fail}")
    elif value > warn:
        findings["warn"].append(f"{text}: {value}, better at most {warn}")


def is_include_guard(name, condition):
    return name.endswith(".h") and condition[0] == "ifndef" and condition[1].strip().startswith("CLAIRFS_")


def check_conditions(name, text):
    if any(re.search(pattern, name) for pattern, _ in CONDITIONS_ALLOWED):
        return []
    found = [c for c in CONDITION.findall(blank_out(text)) if not is_include_guard(name, c)]
    if name.startswith("include/"):
        found = [c for c in found if "__clang__" not in c[1] and "__cplusplus" not in c[1]]
    return [f"{name}: #{kind}{rest.rstrip()}: only in files on the list in limits.py" for kind, rest in found]


def check_c(name, text, findings):
    n_lines = text.count("\n")
    if name.endswith(".h"):
        over(findings, HEADER_LINES, n_lines, f"{name}: lines of a header")
    else:
        over(findings, FILE_LINES, n_lines, f"{name}: lines of a file")
    for function, line, size, parameters in functions(text):
        over(findings, FUNCTION_LINES, size, f"{name}:{line}: lines of {function}")
        if function not in PARAMETERS_ALLOWED:
            over(findings, PARAMETERS, parameters, f"{name}:{line}: parameters of {function}")
    findings["fail"] += check_conditions(name, text)
    for number, line in enumerate(text.split("\n"), 1):
        over(findings, COLUMNS, len(line.expandtabs(8)), f"{name}:{number}: columns")


def check_tree(root):
    findings = {"warn": [], "fail": []}
    for name in tap.tree_files(root):
        if not SPDX_FILES.search(name):
            continue
        text = tap.read(name, root)
        if SPDX not in "\n".join(text.split("\n")[:3]):
            findings["fail"].append(f"{name}: no line \"{SPDX}\" at its top")
        if name.endswith((".c", ".h")):
            check_c(name, text, findings)
    return findings


def function_of(n_lines, parameters="void"):
    return f"static int work({parameters})\n{{\n" + "\tx();\n" * (n_lines - 2) + "}\n"


def self_test():
    top = f"/* {SPDX} */\n"
    seven = ", ".join(f"int a{i}" for i in range(7))
    sample = ('int f(int a, void (*cb)(int x, int y),\n      char *c)\n{\n\treturn \'}\';\n}\n\n'
              'struct x {\n\tint a;\n};\n\nvoid g(void)\n{\n}\n')
    tap.equal(list(functions(sample)), [("f", 2, 3, 3), ("g", 11, 2, 0)], "functions and parameters are counted")
    good = {
        "src/io/uring_caps.c": top + "#if HAVE_URING\n#endif\n",
        "src/io/a.h": top + "#ifndef CLAIRFS_A_H\n#define CLAIRFS_A_H\n#endif\n",
        "src/io/a.c": top + '/*\n#if 0\n*/\n' + function_of(50, seven[:seven.rindex(",")]),
        "src/io/meson.build": f"# {SPDX}\n",
        "README.md": "no licence line needed\n",
    }
    with tap.MadeUpTree(good) as root:
        tap.equal(check_tree(root), {"warn": [], "fail": []}, "a made-up tree that keeps the limits is clean")
    cases = [
        ("fail", "src/a.c", top + "\n" * 801, "lines of a file: 802"),
        ("warn", "src/a.c", top + "\n" * 501, "lines of a file: 502"),
        ("fail", "include/clairfs/a.h", top + "\n" * 301, "lines of a header"),
        ("warn", "include/clairfs/a.h", top + "\n" * 201, "lines of a header"),
        ("fail", "src/a.c", top + function_of(71), "lines of work: 71"),
        ("warn", "src/a.c", top + function_of(51), "lines of work: 51"),
        ("warn", "src/a.c", top + function_of(5, seven), "parameters of work: 7"),
        ("fail", "src/a.c", top + function_of(5, seven + ", int b"), "parameters of work: 8"),
        ("fail", "src/a.c", top + " # ifdef X\n#endif\n", "only in files on the list"),
        ("fail", "src/fs/b.h", top + "#if X\n#endif\n", "only in files on the list"),
        ("fail", "src/a.c", "/* Copyright */\n", "no line"),
        ("fail", "tests/a.py", "import os\n", "no line"),
        ("fail", "x/run.sh", "#!/bin/sh\n", "no line"),
        ("fail", "x/meson.build", "\n", "no line"),
        ("fail", "src/a.c", top + "\t" * 15 + "x\n", "columns: 121"),
        ("warn", "src/a.c", top + "\t" * 12 + "12345\n", "columns: 101"),
    ]
    for kind, name, text, part in cases:
        with tap.MadeUpTree({name: text}) as root:
            tap.finds(check_tree(root)[kind], part, f"{kind}: {name}: {part}")


self_test()
result = check_tree(tap.ROOT)
for warning in result["warn"]:
    tap.note("warning: " + warning)
tap.no_findings(result["fail"], "the tree keeps the limits")
tap.done()
