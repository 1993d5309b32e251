#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The option table is the only list of options: conf/clairfs.conf is what --print-config prints, and clairfs.conf(5) explains
each option. `--help` of each command works and names the command; each has a manual page of its own with its long options, and
clairfs(1) names them all. No page explains an option or a command that is not there, every page is installed, and what a page
refers to is there."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import tap

BINARY = os.environ["CLAIRFS"]


def output(*argv):
    return subprocess.run([BINARY, *argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=60, check=False)


def option_names(config):
    return re.findall(r"^#?\s*([a-z_]+)\s*=", config, re.MULTILINE)


def explained(page):
    """Names that `.It Cm` lines of a list of the page's first level explain."""
    listed, depth = [], 0
    for line in page.splitlines():
        depth += line.startswith(".Bl ") - line.startswith(".El")
        if line.startswith(".It Cm") and depth == 1:
            listed += [word for word in line.split()[2:] if word != ","]
    return listed


def long_options(text):
    return sorted(set(re.findall(r"--([a-z][a-z-]*)", text)) - {"help"})


def missing_pages(pages):
    """What .Xr says of pages that should be ours."""
    return [f"{name}: {' '.join(ref)}" for name, text in pages.items()
            for ref in re.findall(r"^\.Xr (\S*clairfs\S*) (\d)", text, re.MULTILINE) if ".".join(ref) not in pages]


def same(written, shown):
    """Sizes are printed with units: 4096 is 4K."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(shown[-1:])
    return float(written) == (float(shown[:-1]) * factor if factor else float(shown))


config = output("mount", "--print-config").stdout.decode()
MAN = os.path.join(tap.ROOT, "packaging", "man")
pages = {name: tap.read(f"packaging/man/{name}") for name in sorted(os.listdir(MAN))}
tap.equal(config, tap.read("conf/clairfs.conf"), "conf/clairfs.conf is what --print-config prints")
names = option_names(config)
tap.ok(len(names) > 10, "--print-config lists the options", names)
tap.equal(explained(pages["clairfs.conf.5"]), names, "clairfs.conf(5) explains every option, in the same order, and no other")

commands = re.findall(r"^  ([a-z]+) ", output("help").stdout.decode(), re.MULTILINE)
tap.ok("mount" in commands and "status" in commands, "help lists the commands", commands)
tap.equal(explained(pages["clairfs.1"]), commands, "clairfs(1) explains every command, in the same order, and no other")
tap.equal(sorted(pages), sorted(["clairfs.1", "clairfs.conf.5", "mount.clairfs.8"] + [f"clairfs-{c}.1" for c in commands]),
          "every command has a manual page of its own")
built = tap.read("packaging/meson.build")
tap.equal([name for name in pages if f"'man/{name}'" not in built], [], "every manual page is installed")
tap.equal(missing_pages(pages), [], "manual pages refer to pages that are there")
for command in commands:
    shown = output(command, "--help")
    text = shown.stdout.decode()
    page = pages.get(f"clairfs-{command}.1", "")
    tap.ok(shown.returncode == 0 and text.startswith(f"usage: clairfs {command}"), f"{command} --help", shown)
    tap.equal([o for o in long_options(text) if f"Fl Fl {o}" not in page], [], f"clairfs-{command}(1) has the long options of it")
    told = set(re.findall(r"^\.It Fl Fl ([a-z-]+)", page, re.MULTILINE)) - set(long_options(text))
    if command != "simulate":  # its table of options is below
        tap.equal(sorted(told), [], f"clairfs-{command}(1) explains no other")

rows = option_names(output("simulate", "--print-config").stdout.decode())
tap.ok(len(rows) > 10, "simulate --print-config lists the options", rows)
dashed = [name.replace("_", "-") for name in rows]
tap.equal([name for name in dashed if f".It Fl Fl {name} " not in pages["clairfs-simulate.1"]], [],
          "clairfs-simulate(1) explains simulate's options")

WORKLOADS = os.path.join(tap.ROOT, "conf", "workloads")
files = sorted(os.listdir(WORKLOADS))
built = tap.read("conf/meson.build")
tap.equal([f for f in files if f"'workloads/{f}'" not in built], [], "every workload is installed")
for wanted in ("unet3d", "resnet50", "cosmoflow", "bert", "dlrm", "retinanet", "default"):
    tap.ok(f"{wanted}.conf" in files, f"there is a workload {wanted}")
for name in files:
    text = tap.read(f"conf/workloads/{name}")
    parsed = output("simulate", "--workload", os.path.join(WORKLOADS, name), "--print-config")
    values = dict(re.findall(r"^([a-z_]+) = (.*)$", parsed.stdout.decode(), re.MULTILINE))
    wrong = [(key, value, values.get(key)) for key, value in re.findall(r"^([a-z_]+) = (\S+)$", text, re.MULTILINE)
             if key not in values or not same(value, values[key])]
    missing = [key for key in ("samples", "sample_bytes", "batch", "compute_ms", "epochs")
               if not re.search(rf"^{key} = ", text, re.MULTILINE)]
    tap.ok(parsed.returncode == 0 and not wrong and not missing, f"workload {name} is complete and read as it stands",
           parsed.stderr.decode(), wrong, missing)

tap.equal(explained(".Bl -tag\n.It Cm ram , stage\n.Bl -tag\n.It Cm off\n.El\n.El\n"), ["ram", "stage"], "explained options are found")
tap.equal(missing_pages({"a.1": ".Xr clairfs-none 1 ,\n.Xr mount 8\n"}), ["a.1: clairfs-none 1"], "a page that is missing is found")
tap.equal(option_names("# ram: words\nram = 1G\n#store_dir =\n"), ["ram", "store_dir"], "option names are found")
tap.done()
