#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The option table is the only list of options: conf/clairfs.conf is what --print-config prints, and the man page explains
each option, every command and its long options. `--help` of each command works and names the command."""
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


def undocumented(names, page):
    """Names that no `.It Cm` line of the page lists."""
    listed = set()
    for line in page.splitlines():
        if line.startswith(".It Cm"):
            listed.update(word for word in line.split()[2:] if word != ",")
    return [name for name in names if name not in listed]


def same(written, shown):
    """Sizes are printed with units: 4096 is 4K."""
    factor = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}.get(shown[-1:])
    return float(written) == (float(shown[:-1]) * factor if factor else float(shown))


config = output("mount", "--print-config").stdout.decode()
page = tap.read("packaging/man/clairfs.1")
tap.equal(config, tap.read("conf/clairfs.conf"), "conf/clairfs.conf is what --print-config prints")
names = option_names(config)
tap.ok(len(names) > 10, "--print-config lists the options", names)
tap.equal(undocumented(names, page), [], "the man page explains every option")

commands = re.findall(r"^  ([a-z]+) ", output("help").stdout.decode(), re.MULTILINE)
tap.ok("mount" in commands and "status" in commands, "help lists the commands", commands)
tap.equal(undocumented(commands, page), [], "the man page explains every command")
for command in commands:
    shown = output(command, "--help")
    text = shown.stdout.decode()
    tap.ok(shown.returncode == 0 and text.startswith(f"usage: clairfs {command}"), f"{command} --help", shown)
    options = [o for o in re.findall(r"--([a-z-]+)", text) if f"Fl Fl {o}" not in page]
    tap.equal(options, [], f"the man page has the long options of {command}")

rows = option_names(output("simulate", "--print-config").stdout.decode())
tap.ok(len(rows) > 10, "simulate --print-config lists the options", rows)
dashed = [name.replace("_", "-") for name in rows]
tap.equal([name for name in dashed if f".It Fl Fl {name} " not in page], [], "the man page explains simulate's options")

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

tap.equal(undocumented(["ram", "no_such"], ".It Cm ram , stage\n"), ["no_such"], "a missing option is found")
tap.equal(option_names("# ram: words\nram = 1G\n#store_dir =\n"), ["ram", "store_dir"], "option names are found")
tap.done()
