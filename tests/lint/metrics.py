# SPDX-License-Identifier: Apache-2.0
"""Dashboard and alert rules use metrics that exist, with labels that exist, promtool accepts the rules and their test,
and nothing adds up seconds of ranks that wait for each other.

The table of metrics is include/clairfs/metrics/list.h. A rule about a metric that was renamed never fires, and nobody
notices until it should have.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

LIST = "include/clairfs/metrics/list.h"
DASHBOARD = "packaging/grafana/clairfs.json"
RULES = "packaging/prometheus/clairfs.rules.yml"
RULES_TEST = "packaging/prometheus/clairfs.rules.test.yml"
# Those that no row of the table has: mount and instance are given by who collects.
LABELS_OF_ALL = {"instance", "mount"}
ROW = re.compile(r'X\((\w+),(?:\s*[A-Z_]+,)?\s*"(\w+)",\s*"((?:[^"\\]|\\.)*)",')


def table(text):
    """{name of a series: its labels} of the header."""
    found = {"clairfs_mount_info": {"job", "user", "src", "mountpoint", "version"} | LABELS_OF_ALL}
    text = text.replace("\\\n", "\n")
    ranks, hists = text.index("#define METRICS_RANK_LIST"), text.index("#define METRICS_HIST_LIST")
    for match in ROW.finditer(text):
        labels = set(re.findall(r'(\w+)=\\"', match[3])) | LABELS_OF_ALL
        names = ["clairfs_" + match[2]]
        if ranks < match.start() < hists:
            labels.add("rank")
        if match.start() > hists:
            names = [names[0] + suffix for suffix in ("_bucket", "_sum", "_count")]
            labels.add("le")
        for name in names:
            found.setdefault(name, set()).update(labels)
    return found


def check_text(where, text, known):
    """What a text names that is not there."""
    findings = [f"{where}: no metric {name}" for name in sorted(set(re.findall(r"(?<!/)\bclairfs_\w+", text)) - set(known))]
    for name, inside in re.findall(r"\b(clairfs_\w+)\{([^}]*)\}", text):
        for label in re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*[\"']", inside):
            if name in known and label not in known[name]:
                findings.append(f"{where}: {name} has no label {label}")
    return findings


def check_ranks(where, text, known):
    """Sums over ranks, which wait for each other: their seconds are the same ones."""
    return [f"{where}: {name} is added up over ranks"
            for by, name in re.findall(r"\bsum\b\s*(?:by\s*\(([^)]*)\))?[\s(]*(?:\w+\()?(clairfs_\w+)", text)
            if "rank" in known.get(name, ()) and "rank" not in re.findall(r"\w+", by)]


def expressions(dashboard):
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield f"panel {panel['title']!r}", target["expr"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            yield f"variable {variable['name']}", variable["definition"]


def check_layout(dashboard):
    """Panels have ids of their own and do not lie upon each other."""
    findings, taken, ids = [], {}, set()
    for panel in dashboard["panels"]:
        if panel["id"] in ids:
            findings.append(f"second panel with id {panel['id']}")
        ids.add(panel["id"])
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                if (x, y) in taken or x >= 24:
                    findings.append(f"{panel['title']} lies upon {taken.get((x, y), 'the edge')}")
                taken[x, y] = panel["title"]
    return sorted(set(findings))


def promtool(*argv, cwd=None):
    """Complaints; a tool that is missing is one as well."""
    try:
        done = subprocess.run(["promtool", *argv], cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=120, check=False)
    except OSError as e:
        return [f"promtool: {e.strerror} (packaging/install-deps --test)"]
    return done.stdout.decode(errors="replace").splitlines() if done.returncode else []


def check_expressions(found):
    """promtool has no check of a dashboard, but reads the same expressions in rules."""
    rules = [{"record": f"panel{i}", "expr": text.replace("$__rate_interval", "5m")} for i, (_, text) in enumerate(found)]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
        file.flush()
        return promtool("check", "rules", file.name)


def self_test():
    header = ('#define METRICS_LIST(X) \\\n\tX(A, COUNTER, "reads_total", "class=\\"x\\",tier=\\"y\\"", \\\n\t  "Help (x).") \\\n'
              '\tX(B, GAUGE, "b", "", "Help.")\n#define METRICS_RANK_LIST(X) \\\n\tX(C, COUNTER_NS, "c_total", "", "H.")\n'
              '#define METRICS_HIST_LIST(X) \\\n\tX(D, "d_seconds", "tier=\\"ram\\"", \\\n\t  "H.")\n')
    known = table(header)
    tap.equal({n: sorted(l - LABELS_OF_ALL) for n, l in known.items() if n != "clairfs_mount_info"},
              {"clairfs_reads_total": ["class", "tier"], "clairfs_b": [], "clairfs_c_total": ["rank"],
               "clairfs_d_seconds_bucket": ["le", "tier"], "clairfs_d_seconds_sum": ["le", "tier"],
               "clairfs_d_seconds_count": ["le", "tier"]}, "the table is read")
    good = 'sum by (le) (rate(clairfs_d_seconds_bucket{tier="ram",mount=~"$mount"}[5m])) / clairfs_reads_total{class!="x"}'
    tap.no_findings(check_text("x", good, known), "what exists is accepted")
    tap.finds(check_text("x", "rate(clairfs_read_total[5m])", known), "no metric clairfs_read_total", "a wrong name is found")
    tap.finds(check_text("x", "clairfs_b{tier='ram'}", known), "has no label tier", "a wrong label is found")
    tap.finds(check_text("x", "clairfs_d_seconds", known), "no metric", "a histogram is no series by itself")
    alone = "sum by (mount, rank) (rate(clairfs_c_total[5m])) / max(clairfs_c_total) + sum(clairfs_b)"
    tap.no_findings(check_ranks("x", alone, known), "ranks by themselves are accepted")
    for wrong in ("sum(clairfs_c_total)", "sum by (mount) (rate(clairfs_c_total[5m]))", "1 - sum by(le) (clairfs_c_total{a='b'})"):
        tap.finds(check_ranks("x", wrong, known), "clairfs_c_total is added up", f"a sum over ranks is found: {wrong}")
    tap.ok(check_expressions([("x", "rate(clairfs_b[5m]")]), "an expression with a mistake is found")
    panels = [{"id": 1, "title": t, "gridPos": {"x": 0, "y": 0, "w": 2, "h": 2}} for t in "ab"]
    tap.finds(check_layout({"panels": panels}), "b lies upon a", "panels that lie upon each other are found")


self_test()
known = table(tap.read(LIST))
tap.ok(len(known) > 80, "the table of metrics", sorted(known))
dashboard = json.loads(tap.read(DASHBOARD))
shown = list(expressions(dashboard))
tap.no_findings([f for where, text in shown for f in check_text(where, text, known)],
                f"the dashboard uses metrics that exist ({len(shown)} expressions)")
tap.no_findings([f for where, text in shown for f in check_ranks(where, text, known)], "the dashboard adds up no ranks")
tap.no_findings(check_expressions([(w, text) for w, text in shown if not text.startswith("label_values")]),
                "promtool accepts the dashboard's expressions")
tap.no_findings(check_layout(dashboard), "the dashboard's panels have room")
for name in (RULES, RULES_TEST):
    tap.no_findings(check_text(name, tap.read(name), known), f"{name} uses metrics that exist")
tap.no_findings(check_ranks(RULES, tap.read(RULES), known), "the rules add up no ranks")
alerts = re.findall(r"- alert: (\w+)", tap.read(RULES))
tested = re.findall(r"alertname: (\w+)\n\s+exp_alerts:", tap.read(RULES_TEST))
tap.equal(sorted(alerts), sorted(tested), "every alert is seen to be raised in the rules' test")
tap.no_findings(promtool("check", "rules", str(tap.ROOT / RULES)), "promtool accepts the rules")
tap.no_findings(promtool("test", "rules", os.path.basename(RULES_TEST), cwd=tap.ROOT / os.path.dirname(RULES_TEST)),
                "promtool: the rules' test passes")
tap.done()
