# SPDX-License-Identifier: Apache-2.0
"""What a person can do wrong gives one line that says what, the right exit code, and leaves nothing behind."""
import os

import guard
import mountkit
import tap
from mountkit import CLAIRFS, clairfs, environment, mount_type, program, write_file

FAILED, USAGE = 1, 2
# Options of earlier versions.
MOVED = ("stage", "inodes_ahead", "stagers", "scan_threads", "recover_threads", "source_engine", "store_engine",
         "store_pins", "ghost_bytes", "cpu_pressure", "open", "metrics_interval", "plan_tape")


def one_line(done, code, parts, name):
    """Exactly one line on stderr with all the parts, nothing on stdout."""
    parts = [parts] if isinstance(parts, str) else parts
    is_good = done.code == code and len(done.lines) == 1 and not done.out and done.err.endswith(b"\n")
    lowered = done.lines[0].lower() if done.lines else ""
    tap.ok(is_good and all(p.lower() in lowered for p in parts) and lowered.startswith("clairfs"), name,
           f"wanted exit code {code} and one line with {parts}", done)


class Attempts:
    """Mounts that must not happen."""

    def __init__(self, place):
        self.place = place
        place.files([100, 200, 300])

    def mount(self, code, parts, name, *, source=None, mnt=None, options=(), more=()):
        place = self.place
        source = place.source if source is None else source
        mnt = place.mnt if mnt is None else mnt
        listed = ",".join([f"snapshot_dir={place.snapshots}", *options])
        before = guard.mounts_below(place.root)
        # In the background, as people do it: the error has to come through the pipe from the daemon.
        one_line(clairfs("mount", "-o", listed, *more, source, mnt, env=environment(place)), code, parts, name)
        if guard.mounts_below(place.root) != before:
            tap.ok(False, f"{name}: nothing is mounted", guard.mounts_below(place.root))
            program("umount", "-l", mnt)


def paths(place):
    a = Attempts(place)
    write_file(place.path("file"), b"x")
    a.mount(FAILED, ["source", "no such"], "source missing", source=place.path("missing"))
    a.mount(FAILED, ["source", "not a directory"], "source is a file", source=place.path("file"))
    a.mount(FAILED, ["source"], "source is below a file", source=place.path("file", "x"))
    a.mount(FAILED, ["mountpoint", "no such"], "mountpoint missing", mnt=place.path("missing"))
    a.mount(FAILED, ["mountpoint", "no such"], "mountpoint below a missing directory", mnt=place.path("missing", "mnt"))
    a.mount(FAILED, ["mountpoint", "not a directory"], "mountpoint is a file", mnt=place.path("file"))
    a.mount(USAGE, ["mountpoint"], "mountpoint is empty text", mnt="")
    a.mount(FAILED, ["source"], "source is empty text", source="")
    a.mount(USAGE, "inside", "mountpoint is the source", mnt=place.source)
    os.makedirs(place.path("source", "sub"))
    a.mount(USAGE, "inside", "mountpoint is below the source", mnt=place.path("source", "sub"))
    a.mount(USAGE, "inside", "source is below the mountpoint", source=place.path("source", "sub"), mnt=place.source)
    os.symlink(place.source, place.path("link"))
    a.mount(USAGE, "inside", "mountpoint is the source under another name", mnt=place.path("link", "sub"))
    os.makedirs(place.path("full", "x"))
    a.mount(FAILED, ["mountpoint", "not empty"], "mountpoint is not empty", mnt=place.path("full"))


def mounted_twice(place):
    a = Attempts(place)
    with place.mount() as mount:
        a.mount(FAILED, ["mountpoint", "already mounted"], "mountpoint is mounted already")
        tap.equal(mount.stats()["pid"], mount.process.pid, "the first mount still serves")
        os.mkdir(place.path("other"))
        # A second view of one source is fine.
        done = clairfs("mount", "-o", f"snapshot_dir={place.snapshots},ram=64M", place.source, place.path("other"),
                       env=environment(place))
        tap.ok(done.code == 0 and mount_type(place.path("other")), "the same source on another mountpoint is fine", done)
        tap.equal(clairfs("umount", place.path("other")).code, 0, "it unmounts")


def options(place):
    a = Attempts(place)
    for option, parts in (
            ("odrer=sequential", ["odrer", "\"order\""]), ("stroe_dir=/tmp", ["stroe_dir", "store_dir"]),
            ("xyzzy=1", ["xyzzy"]), ("order", ["order"]), ("ram=", ["ram"]), ("ram=lots", ["ram", "lots"]),
            ("ram=1K", ["ram", "minimum"]), ("ram=-1", ["ram"]), ("ram=99999999999999999999", ["ram"]),
            ("debug=scan_threads:0", ["scan_threads", "minimum"]), ("debug=scan_threads:65", ["scan_threads", "maximum"]),
            ("debug=stagers:two", ["stagers"]), ("debug=stage:1M+stagers:9", ["stagers", "maximum"]),
            ("debug=source_engine:uringg", ["source_engine", "uring"]), ("layout=imagefodler", ["layout", "imagefolder"]),
            ("debug=open:never", ["open"]), ("debug=stagger:1", ["debug", "did you mean"]), ("debug=stage", ["stage:..."]),
            ("debug=ram:1G", ["ram"]), ("debug=ghost_bytes:much", ["ghost_bytes", "much"]), ("debug=ghost_bytes:", ["ghost_bytes"]),
            ("log_level=loud", ["log_level"]), ("allow_other=perhaps", ["allow_other"]),
            ("control_reads=2", ["control_reads", "1/N"]), ("control_reads=1/0", ["control_reads"]),
            ("control_reads=", ["control_reads"]),
            ("switchback=11", ["switchback", "0.1 to 10"]), ("switchback=0", ["switchback"]), ("switchback=", ["switchback"]),
            ("switchback=1e999", ["switchback"]), ("switchback=nan", ["switchback"]), ("switchback=5%%", ["switchback"]),
            ("revalidate=86401", ["revalidate", "maximum"]), ("source_max_inflight=0", ["source_max_inflight"]),
            ("rw", ["read-only"]), *((f"{name}=1", [name, f"debug={name}:VALUE"]) for name in MOVED),
            ("metrics_socket=/tmp/s", ["metrics_socket", "metrics_textfile"]), ("store_scrub_mbps=9", ["store_scrub_mbps", "store verify"])):
        a.mount(USAGE, parts, f"-o {option}", options=[option])
    a.mount(FAILED, ["store_dir", "no such"], "store_dir missing", options=[f"store_dir={place.path('missing')}"])
    write_file(place.path("file"), b"x")
    a.mount(FAILED, ["store", "not a directory"], "store_dir is a file", options=[f"store_dir={place.path('file')}"])


def order_specs(place):
    a = Attempts(place)
    for spec, parts in (
            ("torch-distribted", ["torch-distributed"]), ("", None), ("no-such-kind", ["no-such-kind"]),
            ("torch-distributed:sede=1", ["sede", "seed"]), ("torch-distributed:seed=abc", ["seed", "abc"]),
            ("torch-distributed:seed", ["seed"]), ("torch-distributed:seed=1:seed=2", ["seed", "twice"]),
            ("torch-distributed:world=2:rank=2", ["rank"]), ("torch-distributed:world=2:ranks=0-2", ["rank"]),
            ("torch-distributed:world=0", ["world"]), ("torch-distributed:seed=1.5", ["seed"]),
            ("torch-randperm:seed=1:", ["key"]), ("sequential:shuffle=1", ["shuffle"]), ("list", ["path"]),
            ("list:path=", ["path"])):
        if parts is not None:
            a.mount(USAGE, ["order", *parts], f"order={spec}", options=[f"order={spec}"])
            one_line(clairfs("order", spec, "--n", 10), USAGE, parts, f"clairfs order {spec}")


def list_files(place):
    a = Attempts(place)

    def attempt(content, code, parts, name):
        write_file(place.path("list.txt"), content)
        a.mount(code, ["order", "list.txt", *parts], name, options=[f"order=list:path={place.path('list.txt')}"])
    a.mount(FAILED, ["order", "no such"], "list file missing", options=[f"order=list:path={place.path('no.txt')}"])
    attempt(b"0\n1\n2\n3\n", USAGE, ["4", "out of range"], "index out of range in a list file: the line is named")
    attempt(b"0\ns00001.bin\nnope.bin\n", USAGE, ["3", "nope.bin"], "unknown path in a list file: the line is named")
    attempt(b"# epoch 0\n0\n# epoch 0\n1\n", USAGE, ["3"], "an epoch that occurs twice: the line is named")
    attempt(b"0\n# epoch 1\n1\n", USAGE, ["2"], "samples before the first heading: the line is named")
    attempt(b"", USAGE, [], "an empty list file")
    attempt(b"s00000.bin\0\n", USAGE, ["1"], "a NUL byte in a list file")
    a.mount(USAGE, ["order", "not a regular file"], "a directory as list file", options=[f"order=list:path={place.source}"])
    write_file(place.path("raw.u32"), b"\0\0\0\0\1\0\0")
    a.mount(USAGE, ["raw.u32", "multiple"], "a raw list that is cut off", options=[f"order=list:path={place.path('raw.u32')}"])


def config_files(place):
    a = Attempts(place)

    def attempt(content, code, parts, name):
        write_file(place.path("c.conf"), content)
        a.mount(code, parts, name, more=["-c", place.path("c.conf")])
    a.mount(FAILED, ["missing.conf"], "config file missing", more=["-c", place.path("missing.conf")])
    attempt(b"[mount]\nram = 64M\nodrer = sequential\n", USAGE, ["c.conf:3", "odrer", "order"], "unknown option in a file")
    attempt(b"[mount]\nram = lots\n", USAGE, ["c.conf:2", "ram"], "bad value in a file")
    attempt(b"[mount]\n\n# comment\nnonsense\n", USAGE, ["c.conf:4"], "a line that is no setting")
    attempt(b"[mouth]\nram = 64M\n", USAGE, ["c.conf:2", "mouth"], "unknown section")
    attempt(b"[mount]\norder = torch-distribted\n", USAGE, ["torch-distributed"], "bad order in a file")
    attempt(b"[mount]\nram = " + b"9" * 5000 + b"\n", USAGE, ["c.conf:2"], "a line that is too long")


def commands(place):
    attempts = (
        ([], USAGE, "no command"), (["mount"], USAGE, "SOURCE and MOUNTPOINT"), (["mount", "a"], USAGE, "MOUNTPOINT"),
        (["mount", "a", "b", "c"], USAGE, "MOUNTPOINT"), (["mout", "a", "b"], USAGE, "'mount'"),
        (["xyzzy"], USAGE, "xyzzy"), (["umount"], USAGE, "MOUNTPOINT"), (["status"], USAGE, "MOUNTPOINT"),
        (["status", "a", "b"], USAGE, "MOUNTPOINT"), (["index"], USAGE, "SOURCE"), (["order"], USAGE, "SPEC"),
        (["order", "sequential"], USAGE, "--n"), (["order", "sequential", "--n", "ten"], USAGE, "--n"),
        (["order", "sequential", "--n", "-5"], USAGE, "--n"), (["order", "sequential", "--n", "0"], USAGE, "--n 0"),
        (["order", "sequential", "--n", "10", "--binary", "u16"], USAGE, "--binary"),
        (["order", "sequential", "--n", "10", "--head", "x"], USAGE, "--head"),
        (["order", "torch-distributed:world=2", "--n", "10", "--rank", "2"], USAGE, "rank"),
        (["order", "list:path=" + place.path("no.txt"), "--n", "10"], FAILED, "no.txt"),
        (["order", "sequential", "--n", "4294967295"], USAGE, "sample"),
        (["order", "sequential", "--n", "18446744073709551616"], USAGE, "--n"),
        (["index", place.path("missing")], FAILED, "missing"),
        (["index", "--layout", "nope", place.source], USAGE, "nope"), (["caps", "a", "b"], USAGE, "SOURCE"),
        (["caps", place.path("missing")], FAILED, "missing"),
        (["status", place.source], FAILED, "not a clairfs mount"), (["status", "/proc"], FAILED, "not a clairfs mount"),
        (["status", place.path("missing", "x")], FAILED, "no such"),
        (["umount", place.source], FAILED, "nothing is mounted"), (["umount", "/proc"], FAILED, "not a clairfs mount"),
        (["umount", place.path("missing", "x")], FAILED, "no such"))
    for argv, code, part in attempts:
        one_line(clairfs(*argv), code, part, f"clairfs {' '.join(argv)}".replace(place.root, "DIR"))
    tap.ok(mount_type("/proc"), "/proc is still mounted")
    for argv in (["mount", "-x", "a", "b"], ["status", "--jsno", "a"], ["order", "--nn", "3"], ["umount", "-q", "a"],
                 ["caps", "--x"], ["index", "--layuot", "files", "a"], ["mount", "-o"]):
        one_line(clairfs(*argv), USAGE, "", f"clairfs {' '.join(argv)}")
    for argv in (["--help"], ["--version"], *([c, "--help"] for c in ("mount", "umount", "status", "order", "index", "caps"))):
        done = clairfs(*argv)
        tap.ok(done.code == 0 and done.out and not done.err, f"clairfs {' '.join(argv)} prints help to stdout", done)
    done = program("sh", "-c", f'"{CLAIRFS}" order sequential --n 100000 | head -1')
    tap.ok(done.out == b"0\n" and not done.err, "a closed pipe is no error", done)
    done = program("sh", "-c", f'"{CLAIRFS}" order sequential --n 100000 >/dev/full')
    one_line(done, FAILED, "standard output", "a full disk is one")


mountkit.run(paths, mounted_twice, options, order_specs, list_files, config_files, commands)
