# SPDX-License-Identifier: Apache-2.0
"""What documents contain that a machine can check: commands, options, specs, Python, and the words of the program.

In Markdown a fenced block says what it is: `sh` (run), `sh elsewhere` (needs what is not here, each line is named in
test_docs.py), `python`, `ini`, `fstab`, `text`; one without a word is a picture. In manual pages the lines of EXAMPLES are run.
Paths that stand for a reader's own become those of the test's place.
"""
import ast
import glob
import os
import re

import tap

FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.M | re.S)
SPEC = re.compile(r"[a-z][a-z0-9.]*(?:-[a-z0-9.]+)*(?::[a-z_]+=[^:\s`'\",)|]+)+")
LITERALS = re.compile(r'"(?:[^"\\\n]|\\.)*"(?:(?:\s|PRI\w+)*"(?:[^"\\\n]|\\.)*")*')
FORMAT = re.compile(r"%[-+ #0]*[\d.*]*(?:ll|l|z|h)?[a-zA-Z%]")


def markdown_files():
    return ["README.md", "CONTRIBUTING.md"] + sorted(f"packaging/doc/{os.path.basename(f)}"
                                                     for f in glob.glob(f"{tap.ROOT}/packaging/doc/*.md"))


def manual_pages():
    return sorted(f"packaging/man/{f}" for f in os.listdir(f"{tap.ROOT}/packaging/man"))


def blocks(text, *kinds):
    return [body for kind, body in FENCE.findall(text) if kind in kinds]


def kinds_of(text):
    return {kind for kind, _ in FENCE.findall(text)}


def examples(page):
    """The commands of a manual page: its .Dl lines, but for those that are made of macros."""
    return [line[4:].replace("\\-", "-") for line in page.splitlines() if re.match(r"\.Dl (?![A-Z][a-z] )", line)]


def specs_in(text):
    """Every order that is written in code, in a command or in Python."""
    found = {s.rstrip(".") for s in SPEC.findall(text)}
    return sorted(s for s in found if not s.startswith("none:") and "..." not in s)


def phrases(text):
    """The code in the first cells of tables: what the program says."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| ")]
    return [p for cell in cells for p in re.findall(r"`([^`]+)`", cell)]


def program_texts():
    """All string constants of the program, with \0 where a format has a value."""
    found = set()
    for name in glob.glob(f"{tap.ROOT}/src/**/*.c", recursive=True):
        for literal in LITERALS.findall(tap.read(name)):
            joined = "".join(re.sub(r"PRI\w+", "u", part) if part.strip().startswith("PRI") else part
                             for part in re.split(r'"', literal) if not part.isspace())
            found.add(FORMAT.sub(lambda m: "%" if m[0] == "%%" else "\0", joined.replace("\\n", "\n").replace('\\"', '"')))
    return found


def is_said(phrase, texts):
    pattern = re.compile(".*?".join(re.escape(part) for part in phrase.split("...")), re.S)
    return any(pattern.search(text) for text in texts)


def module_names():
    """What the Python package has: {dotted name}."""
    folder = os.path.join(tap.ROOT, "packaging", "python", "clairfs")
    tree = ast.parse(tap.read(os.path.join(folder, "__init__.py")))
    names = {"clairfs.DataLoader"}
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(f"clairfs.{node.name}")
        if isinstance(node, ast.ImportFrom):
            names |= {f"clairfs.{alias.name}" for alias in node.names}
    for name in ("lightning", "transformers"):
        for node in ast.parse(tap.read(os.path.join(folder, f"{name}.py"))).body:
            if isinstance(node, ast.ClassDef):
                names |= {f"clairfs.{name}", f"clairfs.{name}.{node.name}"}
    return names


def names_used(code):
    """Dotted names that begin with clairfs, as far as they go."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Attribute) and ast.unparse(node).startswith("clairfs.") and re.fullmatch(r"[\w.]+", ast.unparse(node)):
            found.add(ast.unparse(node))
    return found


def imports_of(code):
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            found.add(node.module.split(".")[0])
    return found
