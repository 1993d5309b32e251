# SPDX-License-Identifier: Apache-2.0
"""clairfs trace: every line is an event, events of a lane lie side by side or within each other, and they tell what happened."""
import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import time

import mountkit
import tap
from mountkit import CLAIRFS, clairfs, read_file

CHUNK = 24 + 400 * 40  # struct trace_chunk
TAKE = 3 << 30 | CHUNK << 16 | 0xCF << 8 | 16


class Trace:
    """`clairfs trace` while the with block runs; events afterwards."""

    def __init__(self, place, mount, name="trace.pfw"):
        self.mount, self.path = mount, place.path(name)
        taken = mount.counters()["upcall_ioctl"]
        self.begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.process = subprocess.Popen([CLAIRFS, "trace", mount.mountpoint, "--seconds", "3600", "-o", self.path],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=mountkit.environment(place))
        # The second one: the first has begun it.
        mount.wait_for(lambda s: s["counters"]["upcall_ioctl"] >= taken + 2, "somebody traces")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.complaints = self.process.communicate(timeout=mountkit.DEADLINE)[1].decode()
        self.code = self.process.returncode
        self.end = time.clock_gettime(time.CLOCK_MONOTONIC)
        self.text = read_file(self.path).decode() if os.path.exists(self.path) else ""
        self.events = by_line(self.text)
        self.spans = [e for e in self.events if e["ph"] == "X"]

    def of(self, name, **args):
        return [e for e in self.spans if e["name"] == name and all(e["args"].get(k) == v for k, v in args.items())]


def by_line(text):
    """As dfanalyzer reads a file: each line that is whole is an event."""
    return [json.loads(line.rstrip(",")) for line in text.split("\n")[:-1] if line not in ("[", "]")]


def by_dict(text):
    """As Perfetto reads it: after a [, objects one after the other, whatever white space and commas are between."""
    decoder, found = json.JSONDecoder(), []
    at = text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \n,":
            at += 1
        if at == len(text) or text[at] == "]":
            return found
        try:
            event, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError:  # not all of it is there
            return found
        found.append(event)


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def malformed(event):
    """What the trace event format asks of an event, or what is wrong with this one."""
    if not all(isinstance(event.get(key), str) for key in ("name", "ph")):
        return "name and ph are strings"
    if not all(type(event.get(key)) is int and 0 <= event[key] < 1 << 31 for key in ("pid", "tid")):
        return "pid and tid are numbers of processes and threads"
    if not isinstance(event.get("args"), dict):
        return "args is an object"
    if event["ph"] == "M":
        return None if event["name"] in ("process_name", "thread_name") and isinstance(event["args"].get("name"), str) else "a name"
    if event["ph"] != "X":
        return "complete events and names only"
    if not all(is_number(event.get(key)) and event[key] >= 0 for key in ("ts", "dur")):
        return "ts and dur are microseconds"
    return None if isinstance(event.get("cat"), str) and set(event) == {"id", "name", "cat", "pid", "tid", "ts", "dur", "ph", "args"} \
        else "a category, and nothing that a viewer might take for something else"


def check_format(trace, what):
    tap.no_findings([f"{malformed(e)}: {e}" for e in trace.events if malformed(e)], f"{what}: events are as the format has them")
    kinds = "".join(e["ph"] for e in trace.events)
    tap.ok(kinds.lstrip("M").strip("X") == "", f"{what}: names come first", kinds)
    begins = [e["ts"] for e in trace.spans]
    tap.equal(begins, sorted(begins), f"{what}: in the order in which they began")
    tap.equal(by_dict(trace.text), trace.events, f"{what}: line by line and object by object it is the same")
    if trace.path.endswith(".json"):
        tap.equal(json.loads(trace.text), trace.events, f"{what}: and as one array")
    # Whoever wrote it may have been killed, or the disk full: what is whole is found.
    lines, wrong = trace.text.split("\n"), []
    for cut in sorted(mountkit.rng.sample(range(2, len(trace.text)), min(200, len(trace.text) - 2))):
        part = trace.text[:cut]
        whole = part.count("\n") - 1
        got = by_line(part)
        if got != trace.events[:whole] or by_dict(part)[:whole] != got or len(by_dict(part)) > whole + 1:
            wrong.append(cut)
    tap.equal(wrong, [], f"{what}: cut anywhere, the events before are there ({len(lines)} lines)")


def within(inner, outer):
    # Times are microseconds with a fraction: a nanosecond may be lost in a double.
    return outer["ts"] - 0.01 <= inner["ts"] and inner["ts"] + inner["dur"] <= outer["ts"] + outer["dur"] + 0.01


def check(trace, place, what):
    """What holds of every trace."""
    tap.ok(trace.code == 0 and trace.complaints == "", f"{what}: ends well when it is interrupted", trace.code, trace.complaints)
    tap.ok(all(e["ph"] in "XM" for e in trace.events) and {e["id"] for e in trace.events} and
           len({e["id"] for e in trace.events}) == len(trace.events), f"{what}: each event has an id")
    tap.no_findings([e for e in trace.spans if not trace.begin * 1e6 <= e["ts"] + e["dur"] <= trace.end * 1e6 or e["dur"] < 0],
                    f"{what}: all of it ended while it was traced")
    check_format(trace, what)
    tap.equal({e["pid"] for e in trace.events}, {trace.mount.process.pid}, f"{what}: the process is the daemon")
    named = {e["tid"] for e in trace.events if e["name"] == "thread_name"}
    tap.ok(named >= {e["tid"] for e in trace.spans}, f"{what}: every lane has a name")
    findings = []
    for lane in {e["tid"] for e in trace.spans}:
        open_spans = []
        for e in sorted((e for e in trace.spans if e["tid"] == lane), key=lambda e: (e["ts"], -e["dur"])):
            while open_spans and open_spans[-1]["ts"] + open_spans[-1]["dur"] <= e["ts"] + 0.01:
                open_spans.pop()
            if open_spans and not within(e, open_spans[-1]):
                findings.append(f"lane {lane}: {e} and {open_spans[-1]}")
            open_spans.append(e)
    tap.no_findings(findings, f"{what}: spans of a lane lie side by side or within each other")
    for e in trace.of("source_read") + trace.of("store_read") + trace.of("source_check"):
        parents = [p for p in trace.of("fetch", file=e["args"]["file"]) + trace.of("prefetch", file=e["args"]["file"])
                   if p["tid"] == e["tid"] and p["args"]["piece"] == e["args"]["piece"] and within(e, p)]
        if not parents and e["tid"] < 40000:  # those are of fetches that began before
            findings.append(f"{e} is in no fetch")
    tap.no_findings(findings, f"{what}: what tiers read is within the fetch that wanted it")
    tap.ok(place.root not in trace.text and ".bin" not in trace.text, f"{what}: no names of files")


def demand(place):
    """No order: every read is a miss, with its fetch and its read of the source inside."""
    data = place.files([1000, 70000, 1500000, 300000, 4096])
    with place.mount() as mount:
        with Trace(place, mount) as trace:
            for name in data:
                mount.read(name)
        check(trace, place, "misses")
        index = sorted(data)
        for i, name in enumerate(index):
            reads = trace.of("read", file=i)
            tap.ok(sum(e["args"]["bytes"] for e in reads) >= len(data[name]), f"{name} was read: all its bytes", reads)
            first = min(reads, key=lambda e: e["ts"])
            fetches = [e for e in trace.of("fetch", file=i, piece=first["args"]["piece"]) if within(e, first)]
            tap.ok(first["args"]["class"] == "miss" and fetches, "its first READ waited for a fetch", first, trace.of("fetch", file=i))
            tap.equal(sum(e["args"]["bytes"] for e in trace.of("source_read", file=i)), len(data[name]),
                      "the source was read for it once")
        with Trace(place, mount, "second.json") as trace:
            mountkit.drop_caches()
            for name in data:
                mount.read(name)
        check(trace, place, "a second trace")
        tap.equal(trace.of("source_read"), [], "from memory: no read of the source")
        os.unlink(os.path.join(place.source, index[0]))
        with Trace(place, mount, "third.json") as trace:
            pass
        check(trace, place, "a trace of nothing")
        tap.equal(trace.spans, [], "nothing happened")


def prefetch_and_store(place):
    data = place.files([50000] * 60)
    store = {"store_dir": place.path("kept"), "store_bytes": "64M", "store_keep_free": "0"}
    os.mkdir(store["store_dir"], 0o700)
    with place.mount(**store) as mount:
        with Trace(place, mount) as trace:
            mountkit.good("announce", place.mnt, "sequential:epochs=2")  # from here on it fetches ahead
            mount.wait_for(lambda s: s["gauges"]["store_records"] and s["counters"]["stage_pushed"], "pushes, something stored")
            for name in sorted(data):
                mount.read(name)
        check(trace, place, "with an order")
        tap.ok(trace.of("prefetch") and trace.of("stage"), "prefetches and pushes are there", {e["name"] for e in trace.spans})
        tap.ok(trace.of("store_write"), "and writes to the store")
    with place.mount(**store) as mount:
        with Trace(place, mount) as trace:
            for name in sorted(data):
                mount.read(name)
        check(trace, place, "from the store")
        kept = {e["args"]["file"] for e in trace.of("store_read")}
        tap.ok(kept and kept == {e["args"]["file"] for e in trace.of("source_check")},
               "each is compared with the source, then read from the store", kept)
        tap.equal({e["args"]["file"] for e in trace.of("source_read")}, set(range(60)) - kept, "the others come from the source")
        tap.equal({e["args"]["file"] for e in trace.of("read", **{"class": "store"})}, kept, "and reads are of the class store")


def take(path, chunk, uid=None):
    """The ioctl itself, as a user: 0 or the errno."""
    child = os.fork()
    if child == 0:
        code = 255
        try:
            if uid is not None:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            fd = os.open(path, os.O_RDONLY)
            try:
                fcntl.ioctl(fd, TAKE, bytearray(chunk))
                code = 0
            except OSError as e:
                code = e.errno
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(place):
    """The daemon dies while it is traced: what there is is written."""
    place.files([1000])
    mount = place.mount()
    with Trace(place, mount) as trace:
        mount.read("s00000.bin")
        taken = mount.counters()["upcall_ioctl"]
        mount.wait_for(lambda s: s["counters"]["upcall_ioctl"] > taken + 1, "the read is taken")
        mount.process.kill()
        trace.process.wait(mountkit.DEADLINE)
    tap.ok(trace.code == 0 and len(trace.complaints.splitlines()) == 1, "one line says that the daemon is gone", trace.complaints)
    tap.ok(trace.of("read", file=0) and trace.of("source_read", file=0), "and what it did before is there", trace.text)
    mount.process.wait(mountkit.DEADLINE)
    tap.equal(clairfs("umount", place.mnt).code, 0, "unmounted")


def killed_itself(place):
    """Nothing is written before the end: no half of a file is left, and the mount goes on."""
    place.files([1000])
    with place.mount() as mount:
        trace = Trace(place, mount, "killed.pfw")
        mount.read("s00000.bin")
        trace.process.kill()
        trace.process.communicate(timeout=mountkit.DEADLINE)
        tap.ok(not os.path.exists(trace.path), "nothing is there")
        with Trace(place, mount, "next.pfw") as trace:
            pass
        check(trace, place, "the next trace")


def guarded(place):
    place.files([1000])
    os.chmod(place.mnt, 0o755)
    with place.mount(allow_other="on") as mount:
        control = mount.path(".clairfs", "control")
        good = struct.pack("=IIQQ", 1, 0, 0, 0).ljust(CHUNK, b"\0")
        tap.equal(take(control, good), 0, "the user who mounted may trace")
        tap.equal(take(control, good, 65534), errno.EACCES, "others may not")
        tap.equal(take(control, struct.pack("=I", 99).ljust(CHUNK, b"\0")), errno.EPROTO, "another version is told so")
        tap.equal(take(control, b"\xff" * CHUNK), errno.EPROTO, "nonsense as well")
        tap.equal(take(control, struct.pack("=IIQQ", 1, 2**32 - 1, 2**64 - 1, 2**64 - 1).ljust(CHUNK, b"\xff")), 0,
                  "and what only the daemon fills in does not matter")
        tap.equal(take(mount.path("s00000.bin"), good), errno.ENOTTY, "a file of the dataset knows nothing of it")
        done = clairfs("trace", place.mnt, "--seconds", "0.01")
        tap.ok(done.code == 0 and done.out.startswith(b"[\n") and not done.err, "to standard output", done)
        done = clairfs("trace", place.mnt, "--seconds", "0.01", "-o", place.path("no", "where"))
        tap.ok(done.code == 1 and len(done.lines) == 1 and place.path("no", "where") in done.lines[0], "a file that cannot be", done)
    for arguments in (["--seconds", "0"], ["--seconds", "x"], ["--seconds", "1e9"], ["--seconds"], ["--what"], ["a"]):
        done = clairfs("trace", place.mnt, *arguments)
        tap.ok(done.code == 2 and len(done.lines) == 1, f"usage: {arguments}", done)
    done = clairfs("trace", place.mnt)
    tap.ok(done.code == 1 and len(done.lines) == 1, "what is not mounted cannot be traced", done)


mountkit.run(demand, prefetch_and_store, killed, killed_itself, guarded)
