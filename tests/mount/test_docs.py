# SPDX-License-Identifier: Apache-2.0
"""Every command in README, CONTRIBUTING, the guides and the manual pages works as it stands there: in their order, by a shell,
on real mounts. Options, fstab lines and specs are taken by the program, Python says what the module has, and the words of the
troubleshooting page are those of the program.
"""
import os
import re
import shlex
import sys

import docs
import mountkit
import tap
from mountkit import CLAIRFS, environment, mount_type, program, read_file, rng, write_file

PACKAGE = os.path.join(tap.ROOT, "packaging", "python")

# Commands that need what is not here; clairfs in them is run all the same. By their first word.
ELSEWHERE = {
    "torchrun": "PyTorch's launcher: tests/mount/test_announce_torch.py sets what it sets",
    "apptainer": "a container runtime",
    "enroot": "a container runtime",
    "srun": "Slurm",
    "sbatch": "Slurm",
    "python": "the reader's own training",
    "sudo": "installs; packaging/check does so into a directory of its own",
    "meson": "builds and tests the tree: what runs this test",
    "ninja": "the same",
    "packaging/quickstart": "tests/bench/test_bench_smoke.py",
    "packaging/check": "what runs this test",
    "packaging/soak": "tests/redteam/test_soak.py",
    "packaging/install-deps": "installs packages",
    "bench/run": "tests/bench/test_bench_smoke.py runs each",
    "git": "the reader's own branch",
}


class Desk:
    """A place with the directories that the documents speak of, and clairfs in the path."""

    def __init__(self, place):
        self.place = place
        self.data = {}
        for i in range(150):
            name = f"{'train' if i < 120 else 'val'}/class{i % 3}/img{i:03}.jpg"
            self.data[name] = rng.randbytes(rng.randrange(100, 20_000))
            write_file(f"{place.source}/{name}", self.data[name])
        for name in ("index.json", "shard.00000.mds", "shard.00001.mds", "shard.00002.mds"):
            for part in ("train", "val"):
                write_file(place.path("shards", part, name), read_file(os.path.join(tap.ROOT, "tests", "golden", "format", "mds", name)))
        for folder in ("bin", "cwd/reports", "nvme/clairfs", "node-exporter"):
            os.makedirs(place.path(folder))
        os.chmod(place.path("nvme/clairfs"), 0o700)
        os.chmod(place.path("nvme"), 0o700)
        # The index is kept in the place; with little memory unless a document says how much.
        self.script("clairfs", f'if [ "$1" = mount ]; then shift; set -- mount -o snapshot_dir={place.snapshots},ram=64M "$@"; fi\n'
                               f'case "$*" in *--records*|order*--source*) set -- "$@" --snapshot-dir {place.snapshots};; esac\n'
                               f'exec {shlex.quote(CLAIRFS)} "$@"\n')
        os.symlink(CLAIRFS, place.path("bin/mount.clairfs"))
        # Charts are drawn by libraries that keep what they have asked for.
        self.environment = environment(place, LSAN_OPTIONS=f"suppressions={tap.ROOT}/tests/mount/lsan.supp:print_suppressions=0",
                                       PATH=f"{place.path('bin')}:{os.environ['PATH']}",
                                       PYTHONPATH=PACKAGE)
        for name in ("CLAIRFS_ORDER", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID"):
            self.environment.pop(name, None)

    def script(self, name, text):
        path = self.place.path("bin", name)
        write_file(path, b"#!/bin/sh\n" + text.encode())
        os.chmod(path, 0o755)

    def here(self, text):
        """With the paths of this place in it."""
        for name, path in (("/lustre/imagenet", self.place.source), ("/mnt/imagenet", self.place.mnt), ("/mnt/data", self.place.mnt),
                           ("/lustre/shards", self.place.path("shards")),
                           ("/nvme/", self.place.path("nvme") + "/"),
                           ("/var/lib/prometheus/node-exporter", self.place.path("node-exporter"))):
            text = text.replace(name, path)
        return text

    def run(self, *argv):
        return program(*argv, cwd=self.place.path("cwd"), env=self.environment)

    def shell(self, text, what):
        done = self.run("sh", "-ec", self.here(text))
        return tap.ok(done.code == 0, what, text, done)


def first_line(text):
    return next(line for line in text.splitlines() if line.strip())


def check_elsewhere(desk, name, body):
    """Each line is a command that is named above; what is clairfs in it is run."""
    parsed = desk.run("sh", "-nc", body)
    tap.equal(parsed.code, 0, f"{name}: a shell reads: {first_line(body)}")
    for line in filter(None, (re.sub(r"(^|\s)#.*", "", line).strip() for line in body.splitlines())):
        words = shlex.split(line)
        tap.ok(words[0] in ELSEWHERE or words[0] == "clairfs", f"{name}: it is known where this is run: {line}")
        if "clairfs" in words:
            desk.shell(shlex.join(words[words.index("clairfs"):]), f"{name}: {line}")


def check_document(place, name):
    desk, text = Desk(place), tap.read(name)
    known = {"", "sh", "sh elsewhere", "python", "ini", "fstab", "text", "c"}
    tap.equal(sorted(docs.kinds_of(text) - known), [], f"{name}: each block says what it is")
    tap.ok(not re.search(r"^( {4}|\t)(clairfs|meson|ninja|packaging/|bench/) ?\w", text, re.M), f"{name}: commands stand in blocks")
    for kind, body in docs.FENCE.findall(text):
        if kind == "sh":
            desk.shell(body, f"{name}: {first_line(body)}")
        elif kind == "sh elsewhere":
            check_elsewhere(desk, name, body)
        elif kind == "ini":
            check_ini(desk, name, body)
        elif kind == "fstab":
            check_fstab(desk, name, body)
        elif kind == "python":
            check_python(desk, name, body)
    check_specs(desk, name, text)
    tap.equal(mount_type(place.mnt), None, f"{name}: what it mounts it unmounts")


def check_ini(desk, name, body):
    path = desk.place.path("options.conf")
    write_file(path, body.encode())
    done = program(CLAIRFS, "mount", "-c", path, "--print-config")
    told = dict(re.findall(r"^(\w+) = (.*)$", body, re.M))
    shown = dict(re.findall(r"^(\w+) = (.*)$", done.out.decode(), re.M))
    tap.ok(done.code == 0 and told and all(shown.get(k) == v for k, v in told.items()), f"{name}: the program takes these options", done)


def check_fstab(desk, name, body):
    source, mountpoint, kind, options = body.split()[:4]
    done = desk.run("mount.clairfs", desk.here(source), desk.here(mountpoint), "-o", f"{options},snapshot_dir={desk.place.snapshots}")
    sample = next(iter(desk.data))
    tap.ok(kind == "clairfs" and done.code == 0 and mountkit.read_file(desk.place.path("mnt", sample)) == desk.data[sample],
           f"{name}: mount(8)'s helper mounts what this line says", done)
    desk.shell("clairfs umount /mnt/imagenet", f"{name}: and it unmounts")


def check_python(desk, name, body):
    what = first_line(body.replace("import clairfs\n", "", 1))
    tap.equal(sorted(docs.names_used(body) - docs.module_names()), [], f"{name}: the module has what is used: {what}")
    if docs.imports_of(body) == {"clairfs"} and "loader" not in body:
        desk.shell("clairfs mount /lustre/imagenet /mnt/imagenet", f"{name}: a mount for it")
        done = desk.run(sys.executable, "-c", desk.here(body))
        tap.equal((done.code, done.err), (0, b""), f"{name}: it runs: {what}")
        desk.shell("clairfs umount /mnt/imagenet", f"{name}: and it is told")


def check_specs(desk, name, text):
    for spec in docs.specs_in(text):
        if "path=" in spec:
            continue  # of a file that the reader has; those of lists are made and run by the blocks
        done = desk.run(CLAIRFS, "order", spec, "--source", desk.place.source, "--head", "1")
        if done.code and b"stand for" not in done.err and (b"shards" in done.err or b"no table of them" in done.err):
            done = desk.run(CLAIRFS, "order", spec, "--n", "1000", "--head", "1")  # as many as its shards have
        if done.code and (b"which a table of records says" in done.err or b'"under" needs' in done.err):  # of shards whose table a block has made
            done = desk.run("clairfs", "order", spec, "--source", desk.place.path("shards"), "--head", "1")
            done.err = b"" if b"note: it numbers" in done.err else done.err
        tap.equal((done.code, done.err), (0, b""), f"{name}: an order that the program knows: {spec}")


def document(name):
    def case(place):
        check_document(place, name)
    case.__name__ = re.sub(r"\W", "_", name)
    return case


def manuals(place):
    desk = Desk(place)
    for name in docs.manual_pages():
        page = tap.read(name)
        lines = docs.examples(page)
        tap.ok(lines or name.endswith(".5"), f"{name} has examples")
        for line in lines:
            helper = re.sub(r"^mount -t clairfs -o (\S+) (\S+) (\S+)$", r"mount.clairfs \2 \3 -o " + f"snapshot_dir={place.snapshots}," + r"\1", line)
            needs_mount = re.search(r"/mnt/", helper) and " mount" not in f" {helper}"
            if needs_mount and mount_type(place.mnt) is None:
                desk.shell("clairfs mount -o report=reports /lustre/imagenet /mnt/imagenet", f"{name}: a mount for it")
            elif " mount" in f" {helper}" and mount_type(place.mnt):
                desk.shell("clairfs umount /mnt/imagenet", f"{name}: the mount before")
            desk.shell(helper, f"{name}: {line}")
        check_specs(desk, name, re.sub(r"^\.(?!Dl).*", "", page, flags=re.M))
    if mount_type(place.mnt):
        desk.shell("clairfs umount /mnt/imagenet", "the last mount")


def words_of_the_program(_):
    texts = docs.program_texts()
    tap.ok(len(texts) > 1000, "the program has words", len(texts))
    tap.ok(docs.is_said("mountpoint ... is not empty", texts) and not docs.is_said("mountpoint ... is not emptied", texts),
           "they are compared")
    said = docs.phrases(tap.read("packaging/doc/troubleshooting.md"))
    tap.ok(len(said) > 50, "the troubleshooting page quotes the program", len(said))
    tap.no_findings([p for p in said if not docs.is_said(p, texts)], "and the program says just that")
    rules = tap.read("packaging/prometheus/clairfs.rules.yml")
    alerts = re.findall(r"alert: (\w+)", rules)
    told = [p for p in docs.phrases(tap.read("packaging/doc/operators.md")) if p.startswith("Clairfs")]
    tap.equal(told, alerts, "the operator guide explains every alert")
    named = set(re.findall(r"`((?:redteam|mount)/test_\w+)`", tap.read("packaging/doc/operators.md")))
    tap.ok(named and all(os.path.exists(f"{tap.ROOT}/tests/{n}.py") for n in named), "the tests that the threat model names are there", named)


mountkit.run(*[document(name) for name in docs.markdown_files()], manuals, words_of_the_program)
