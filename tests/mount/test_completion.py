# SPDX-License-Identifier: Apache-2.0
"""What bash and zsh offer after `clairfs` is what the program takes: its commands, their long options, the option table with
its choices, the kinds of orders with their keys, and the mounts that are there. Wherever bash cuts words.
"""
import os
import re
import shlex

import mountkit
import tap
from mountkit import CLAIRFS, good, program

FOLDER = os.path.join(os.environ["CLAIRFS_BUILD"], "packaging")

BASH = r"""
. {file}
COMP_WORDBREAKS=$1 COMP_LINE=$2 COMP_POINT=${{#2}}
_clairfs clairfs
printf '%s\n' "${{COMPREPLY[@]}}"
"""

# The function as compinit would load it; compadd shows what it would add.
ZSH = r"""
compdef() {{ : }}
_files() {{ print FILES }}
compadd() {{ while [[ $1 != -- ]]; do shift; done; shift; local w; for w in "$@"; do [[ $w == $PREFIX* ]] && print -r -- $w; done; return 0 }}
words=("${{(@s: :)1}}"); CURRENT=$#words; PREFIX=$words[CURRENT]
source {file}
"""


def bash(line, breaks=" \t\n\"'@><=;|&(:"):
    done = program("bash", "--norc", "-c", BASH.format(file=shlex.quote(f"{FOLDER}/clairfs")), "bash", breaks, f"{CLAIRFS} {line}")
    if done.code or done.err:
        raise mountkit.Failed(f"bash: {line}: {done}")
    return sorted(filter(None, done.out.decode().split("\n")))


def zsh(line):
    done = program("zsh", "-fc", ZSH.format(file=shlex.quote(f"{FOLDER}/_clairfs")), "zsh", f"{CLAIRFS} {line}")
    if done.code or done.err:
        raise mountkit.Failed(f"zsh: {line}: {done}")
    return sorted(filter(None, done.out.decode().split("\n")))


def both(line, want, what):
    tap.equal(bash(line), sorted(want), f"bash: {what}")
    tap.equal(zsh(line), sorted(want), f"zsh: {what}")


def long_options(name):
    text = good(name, "--help").decode()
    found = set(re.findall(r"--[a-z][a-z-]*", text)) | {"--help"}
    if name == "simulate":
        table = good("simulate", "--print-config").decode()
        found |= {"--" + key.replace("_", "-") for key in re.findall(r"^([a-z_]+) =", table, re.M)}
    return found


def commands(_):
    names = re.findall(r"^  ([a-z]+) ", good("help").decode(), re.M)
    tap.ok(len(names) > 10, "there are commands", names)
    both("", names + ["help", "--help", "--version"], "the commands")
    both("um", ["umount"], "a command that has begun")
    for name in names:
        both(f"{name} --", long_options(name), f"the long options of {name}")
    both("mount -", long_options("mount") | {"-c", "-f", "-o"}, "short options")
    both("store ", ["ls", "verify", "purge"], "what store does")
    both("index --layout ", ["auto", "imagefolder", "files"], "values that the help names")
    both("index --records ", ["auto", "npy", "mds", "litdata", "megatron", "tfrecord", "tar", "zip", "parquet", "arrow", "kept", "none"],
         "more of them")


def options(_):
    table = good("mount", "--print-config").decode()
    keys = re.findall(r"^([a-z_]+) =", table, re.M)
    tap.ok(len(keys) > 10, "there are options", keys)
    both("mount -o ", [key + "=" for key in keys], "the option table")
    tap.equal(bash("bench -o "), sorted(key + "=" for key in keys), "bash: also after bench -o")
    choices = dict((key, words.split(", ")) for words, key in re.findall(r"^# one of: ([^;]*);[^\n]*\n([a-z_]+) =", table, re.M))
    choices.update((key, ["on", "off"]) for key in re.findall(r"^# on or off;[^\n]*\n([a-z_]+) =", table, re.M))
    tap.ok(len(choices) > 4 and "recover" in choices and "allow_other" in choices, "some have choices", choices)
    for key, words in choices.items():
        tap.equal(bash(f"mount -o ram=1G,{key}="), sorted(words), f"bash: the choices of {key}, behind another option")
        tap.equal(zsh(f"mount -o ram=1G,{key}="), sorted(f"ram=1G,{key}={word}" for word in words), f"zsh: the choices of {key}")
    tap.equal(bash("mount -o ram=1G,recover=", breaks=" \t\n"), sorted(f"ram=1G,recover={w}" for w in choices["recover"]),
              "bash: whole words where it cuts at blanks only")


def orders(_):
    kinds = [line.split()[0] for line in good("order", "--list").decode().splitlines()]
    both("order ", kinds, "the kinds of orders")
    tap.equal(bash("mount -o order=torch-d"), ["torch-distributed"], "bash: after option order")
    tap.equal(zsh("mount -o order=torch-d"), ["order=torch-distributed"], "zsh: after option order")
    for line in good("order", "--list").decode().splitlines():
        kind, keys = line.split()[0], re.sub(r"\([^)]*\)", "", line.split("keys: ")[1]).split()
        names = [re.match(r"[a-z_]+", key)[0] + "=" for key in keys if key != "or"]
        tap.equal(bash(f"order {kind}:"), sorted(names), f"bash: the keys of {kind}")
    tap.equal(zsh("order sequential:epochs=3:st"), ["sequential:epochs=3:start_epoch=", "sequential:epochs=3:start_step="],
              "zsh: keys behind other keys")


def mounts(place):
    place.files([100] * 3)
    with place.mount():
        for name in ("status", "umount", "top", "trace", "announce"):
            found = bash(f"{name} {place.root}/")
            tap.equal(found, [place.mnt], f"bash: mounts for {name}")
        tap.equal(zsh(f"status {place.root}/"), [place.mnt], "zsh: mounts")
        tap.ok({"none", "sequential"} <= set(bash(f"announce {place.mnt} ")), "bash: announce goes on with orders")
    tap.equal(bash(f"status {place.root}/"), [], "bash: none that is gone")
    tap.equal(zsh(f"mount {place.root}/"), ["FILES"], "zsh: files for mount")


mountkit.run(commands, options, orders, mounts)
