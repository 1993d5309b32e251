# SPDX-License-Identifier: Apache-2.0
"""Nothing of a machine it was written on gets into the tree.

Hosts of package registries and absolute paths below a home or a work directory mean nothing elsewhere, and go stale.
The patterns are put together from pieces, so that this file does not match itself.
"""
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

DOT = r"\."
HOSTS = [
    r"deb" + DOT + "debian" + DOT + "org",
    r"security" + DOT + "debian" + DOT + "org",
    r"ftp\.?\w*" + DOT + "debian" + DOT + "org",
    r"snapshot" + DOT + "debian" + DOT + "org",
    r"archive" + DOT + "ubuntu" + DOT + "com",
    r"py" + "pi" + DOT + "(org|python" + DOT + "org)",
    r"files" + DOT + "python" + "hosted" + DOT + "org",
    r"registry" + DOT + "npm" + "js" + DOT + "org",
    r"crates" + DOT + "io",
    r"proxy" + DOT + "golang" + DOT + "org",
    r"repo[.\w]*" + DOT + "maven" + DOT + "org",
    r"ruby" + "gems" + DOT + "org",
    r"conda" + DOT + "anaconda" + DOT + "org",
]
# At the start of a path only: the name in the middle of a relative path or of a URL is no absolute path.
PATHS = [r"(?<![\w./:~-])/" + name + r"/" for name in ("wo" + "rk", "ro" + "ot", "ho" + "me", "Us" + "ers")]
PATTERN = re.compile("|".join(r"(?<![\w-])" + h for h in HOSTS) + "|" + "|".join(PATHS))


def check_tree(root):
    findings = []
    for name in tap.tree_files(root):
        for number, line in enumerate(tap.read(name, root).split("\n"), 1):
            match = PATTERN.search(line)
            if match:
                findings.append(f"{name}:{number}: {match.group(0)}")
    return findings


def self_test():
    good = "see frame/wo" "rk/x, https://example.org/ho" "me/x, src/ro" "ot/a, the root directory /, /tmp/x, ~/ho" "me/\n"
    with tap.MadeUpTree({"a.md": good}) as root:
        tap.no_findings(check_tree(root), "harmless text is clean")
    bad = ["/wo" "rk/main/x.c", 'cd "/ro' 'ot/x"', "path=/ho" "me/me/x", "https://py" "pi.org/simple",
           "http://deb" ".deb" "ian.org/debian", "files.python" "hosted.org/x", "https://registry.np" "mjs.org",
           "(/wo" "rk/", "http://ftp.de" ".deb" "ian.org/"]
    for text in bad:
        with tap.MadeUpTree({"deep/b.txt": "line\n" + text + "\n"}) as root:
            tap.finds(check_tree(root), "deep/b.txt:2", f"found: {text[:3]}...{text[-3:]}")


self_test()
tap.no_findings(check_tree(tap.ROOT), "no registry hosts and no paths of a machine in the tree")
tap.done()
