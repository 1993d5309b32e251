# SPDX-License-Identifier: Apache-2.0
"""Short sentences in what people read: half of them have at most 16 words, none more than 30.

Counted is running text of Markdown and of manual pages. Left out are code, tables, pictures, headings and synopses; a name in
`code` or in a macro is a word. A sentence ends with its full stop, or with the paragraph or list item.
Every text that is for readers is held to it. NOT_YET was for older ones, and is empty: add none.
"""
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

MEDIAN, LONGEST = 16, 30
HELD = re.compile(r"README\.md$|CONTRIBUTING\.md$|src/README\.md$|packaging/doc/[^/]+\.md$|packaging/man/[^/]+\.[1-9]$")
NOT_YET = frozenset()
WORD = re.compile(r"[^\W_]")
END = re.compile(r"[.!?]+[\"')\]*]*(?=\s|$)")
GLUE = "\x01"
SHORT = re.compile(r"\b(e\.g|i\.e|etc|vs|cf)\.")
BREAKS = {"It", "Pp", "Bl", "El", "Sh", "Ss", "Nd"}
SILENT = {"Dd", "Dt", "Os", "Dl", "Bd", "Ed", "Sh", "Ss", "Bl", "El", "Pp"}


def sentences(paragraph):
    """The word counts of a paragraph's sentences, with their text."""
    text = SHORT.sub(lambda m: m[1].replace(".", ""), " ".join(paragraph.split()))
    for part in END.sub("\0", text).split("\0"):
        words = [w for w in part.split() if WORD.search(w)]
        if words:
            yield len(words), part.strip()


def markdown(text):
    """Its paragraphs."""
    text = re.sub(r"<!--.*?-->", "\n\n", text, flags=re.S)
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = re.sub(r"`[^`]+`", lambda m: "code" + (m[0][-2] if m[0][-2] in "?" else ""), text)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)", r"\1", text)
    found, now, in_list = [], [], False
    for line in text.split("\n") + [""]:
        item = re.match(r"\s*([-*]|\d+\.) (.*)", line)
        is_code = re.match(r"(\t| {4})", line) and not in_list
        if not line.strip() or item or re.match(r"[#|]", line) or is_code:
            found.append(" ".join(now))
            now = []
        if item:
            in_list = True
            now = [item[2]]
        elif line.strip() and not re.match(r"[#|]", line) and not is_code:
            in_list = in_list and line.startswith(" ")
            now.append(line.strip())
    return [p for p in found if p]


def manual(text):
    """The same of a page in mdoc."""
    found, now, is_out = [], [], True
    for line in text.split("\n") + [".Pp"]:
        macro = re.match(r"\.([A-Z][a-z])(.*)", line)
        if not macro:
            if not is_out and not line.startswith("."):
                now.append(line)
            continue
        name, rest = macro[1], macro[2]
        if name in BREAKS:
            found.append(" ".join(now))
            now = []
        if name == "Sh":
            is_out = rest.strip() in ("NAME", "SYNOPSIS", "SEE ALSO", "EXAMPLES")
        if name == "Bd":
            is_out = True
        if name == "Ed":
            is_out = False
        if name in SILENT or name == "It" or is_out:
            continue
        words = [w.strip('"') for w in re.sub(r"\bNs\b", GLUE, rest).split() if not re.fullmatch(r"[A-Z][a-z]", w)]
        now.append(re.sub(f" ?{GLUE} ?", "", " ".join(words)).replace(" .", ".").replace(" ,", ","))
    return [re.sub(r"\\[&e]|\\-", "", p) for p in found if p.strip()]


def check_text(name, text):
    parts = markdown(text) if name.endswith(".md") else manual(text)
    counted = [s for p in parts for s in sentences(p)]
    found = [f"{name}: {n} words: {s[:100]}" for n, s in counted if n > LONGEST]
    median = statistics.median(n for n, _ in counted) if counted else 0
    return found + ([f"{name}: the median is {median} words, not {MEDIAN} or less"] if median > MEDIAN else [])


def check_tree(root, not_yet=NOT_YET):
    found = []
    for name in tap.tree_files(root):
        if HELD.fullmatch(name) and name not in not_yet:
            found += check_text(name, tap.read(name, root))
    return found + [f"tests/lint/sentences.py: {n} keeps to it: take it off NOT_YET" for n in sorted(not_yet)
                    if not check_text(n, tap.read(n, root))]


def of(number, end="."):
    return " ".join(["word"] * number) + end + "\n"


def self_test():
    good = "# A heading of any length\n\n" + of(16) + of(30) + of(9) + of(5) + "\n    " + of(50) + "\n```\n" + of(40) + "```\n" + \
        "| " + of(40) + "\n- " + of(20, "") + "- `a b c d e`, e.g. this " + of(20) + "\n  1. " + of(12)
    tap.no_findings(check_text("a.md", good), "headings, code and tables do not count, list items are texts of their own")
    tap.finds(check_text("a.md", of(31)), "31 words", "a sentence of 31 words is found")
    tap.finds(check_text("a.md", of(20, "") + of(15)), "a.md: 35 words",
              "a sentence that goes on in the next line is one")
    tap.finds(check_text("a.md", of(17) * 3), "the median is 17", "a median of 17 is found")
    page = ".Sh NAME\n.Nd " + of(40) + ".Sh SYNOPSIS\n" + of(40) + ".Sh DESCRIPTION\n" + of(9) + ".Pp\nThis\n.Cm that ,\nand\n"
    tap.no_findings(check_text("a.1", page + ".Ar it Ns = Ns Ar value .\n.Dl " + of(40)), "a manual page that keeps to it")
    tap.equal([n for p in manual(page + ".Ar it Ns = Ns Ar value .\n") for n, _ in sentences(p)], [9, 4], "macros are words")
    tap.finds(check_text("a.1", page + ".Cm one\n" + of(30)), "34 words", "a long sentence over several macros is found")
    for name in ("README.md", "packaging/doc/new.md", "packaging/man/new.8"):
        with tap.MadeUpTree({name: (".Sh A\n" if name[-1] == "8" else "") + of(31)}) as root:
            tap.finds(check_tree(root, set()), f"{name}: 31", f"{name} is looked at")
            tap.no_findings(check_tree(root, {name}), f"unless {name} is one of those that are not yet")
    with tap.MadeUpTree({"README.md": of(5)}) as root:
        tap.finds(check_tree(root, {"README.md"}), "take it off", "a text that got better leaves that list")


self_test()
tap.no_findings(check_tree(tap.ROOT), "the texts for readers have short sentences")
tap.done()
