# SPDX-License-Identifier: Apache-2.0
"""TAP for test scripts, and the tree they look at.

A script collects cases with ok() / equal() / no_findings() and ends with done(). Like the kit for C, a case that fails
does not end the script. Skipping is a failure when CLAIRFS_TEST_NOSKIP=1.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(os.environ.get("CLAIRFS_SOURCE") or pathlib.Path(__file__).resolve().parents[2])

_count = 0
_failed = 0


def ok(good, name, *details):
    """One test point; the details are printed when it is not good."""
    global _count, _failed
    _count += 1
    if not good:
        _failed += 1
        for detail in details:
            for line in str(detail).splitlines() or [""]:
                print("# " + line)
    print(f"{'ok' if good else 'not ok'} {_count} - {name}", flush=True)
    return bool(good)


def equal(got, want, name):
    return ok(got == want, name, f"got  {got!r}", f"want {want!r}")


def no_findings(findings, name):
    """Good when a lint found nothing."""
    return ok(not findings, name, *findings)


def finds(findings, part, name):
    """Good when a lint, run on something made up, complained about it: the proof that it can fail."""
    return ok(any(part in f for f in findings), name, f"wanted a finding with {part!r}, got:", *findings)


def skip(name, reason):
    global _count
    if os.environ.get("CLAIRFS_TEST_NOSKIP") == "1":
        ok(False, name, f"skipped ({reason}), but CLAIRFS_TEST_NOSKIP=1")
        return
    _count += 1
    print(f"ok {_count} - {name} # SKIP {reason}", flush=True)


def failures():
    """How many test points were not good so far."""
    return _failed


def note(text):
    for line in str(text).splitlines():
        print("# " + line, flush=True)


def done():
    print(f"1..{_count}")
    sys.exit(1 if _failed else 0)


def tree_files(root=ROOT):
    """The files that are or would be committed, relative to root, sorted."""
    try:
        out = subprocess.run(
            ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=root, check=True, capture_output=True).stdout
        names = [n for n in out.decode("utf-8", "surrogateescape").split("\0") if n]
        # An empty answer is a tree inside somebody else's repository that ignores it.
        if names:
            return sorted(n for n in set(names) if os.path.isfile(os.path.join(root, n)))
    except (OSError, subprocess.CalledProcessError):
        pass  # a tree from an archive, or one made by a test: take what lies there
    names = []
    for folder, folders, files in os.walk(root):
        folders[:] = [f for f in folders if not f.startswith((".git", "build", "__pycache__"))]
        names += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(names)


def read(name, root=ROOT):
    return (pathlib.Path(root) / name).read_text(encoding="utf-8", errors="surrogateescape")


class MadeUpTree:
    """A directory with the given files {name: text}, for showing that a lint finds what it should."""

    def __init__(self, files):
        self.files = files

    def __enter__(self):
        self.tmp = tempfile.TemporaryDirectory(prefix="clairfs-lint-")
        root = pathlib.Path(self.tmp.name)
        for name, text in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    def __exit__(self, *_):
        self.tmp.cleanup()
