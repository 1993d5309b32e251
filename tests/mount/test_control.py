# SPDX-License-Identifier: Apache-2.0
"""The control files against those who share the node: another user of an allow_other mount, root in a container without a
single capability, and a source that hangs. None of them may take .clairfs from the others, or see what is in a file that
they could not read themselves.
"""
import errno
import os
import signal
import struct
import subprocess
import sys
import time

import mountkit
import tap
from mountkit import CLAIRFS, good, program, write_file

SAMPLES = 400
STRANGER = {"user": 65534, "group": 65534, "extra_groups": []}
SECRET = b"root:$6$do-not-show-this:19000\n"

TOUCH = """
import fcntl, os, struct, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
point = sys.argv[1] + "/.clairfs"
held = [os.open(point + "/stats.json", os.O_RDONLY) for _ in range(300)]
assert os.read(held[-1], 9)
try:
    print("the oldest is still kept", os.read(held[0], 9))
except OSError as e:
    assert e.errno == 116, e
control = os.open(point + "/control", os.O_RDONLY)
for i in range(int(sys.argv[2])):
    try:
        with open(f"{point}/announce/sequential:epochs={i}", "rb") as f:
            assert f.read().startswith(b"error: only root"), i
    except OSError as e:
        print("lookup", i, e)
        break
    hint = bytearray(struct.pack("<Ii4088s", 1, 0, b"sequential"))
    fcntl.ioctl(control, 3 << 30 | len(hint) << 16 | 0xCF << 8 | 1, hint)
    assert struct.unpack_from("<Ii", hint)[1] == -1
print("touched")
sys.stdout.flush()
sys.stdin.readline()
"""


def make_source(place):
    for i in range(SAMPLES):
        write_file(f"{place.source}/c{i % 3}/s{i}", b"%d" % i * 100)
    return [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]


def answers(mount, what):
    """All that status and its like need; says how long the slowest took, which is for people: nothing depends on it."""
    slowest, empty = 0, []
    for _ in range(20):
        for name in "stats.json", "metrics", "config", "control":
            start = time.monotonic()
            text = mount.read(".clairfs/" + name)
            slowest = max(slowest, time.monotonic() - start)
            empty += [name] if not text else []
    tap.note(f"{what}: the slowest of 80 control files took {slowest * 1000:.1f} ms")
    tap.no_findings(empty, f"{what}: root is answered")


def crowd(place):
    """Another user looks up and announces thousands of times, and keeps files open."""
    make_source(place)
    with place.mount(allow_other="yes") as mount:
        answers(mount, "before")
        held = os.open(mount.path(".clairfs", "stats.json"), os.O_RDONLY)
        argv = [sys.executable, "-c", TOUCH, mount.mountpoint, "10000"]
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            tap.equal(other.stdout.readline(), b"touched\n",
                      "another user is answered 10000 times, and refused")
            answers(mount, "after 10000 announces and lookups of another user")
            tap.equal(mountkit.clairfs("status", mount.mountpoint).code, 0, "status answers")
            told = mountkit.clairfs("announce", mount.mountpoint, "sequential")
            tap.equal((told.code, told.out), (0, b"sequential\n"), "announce answers")
            tap.equal(mount.stats()["announced"]["count"], 1, "what was refused was never queued")
            other.communicate(b"\n")
        text = os.read(held, 1 << 20)
        tap.ok(len(text) == os.fstat(held).st_size and text.startswith(b"{"), "what root had open before is still there")
        os.close(held)


def epochs_by_lookup(place):
    """A job that tells one spec per epoch."""
    make_source(place)
    with place.mount() as mount:
        wrong = [i for i in range(600) if mount.read(f".clairfs/announce/sequential:start_epoch={i + 1}") !=
                 b"sequential:start_epoch=%d\n" % (i + 1)]
        tap.no_findings(wrong, "600 specs are told by lookups")
        tap.equal(mountkit.clairfs("status", mount.mountpoint).code, 0, "and status answers")


def bare_root(*argv):
    """Root without a single capability, as in a container."""
    return program("setpriv", "--inh-caps=-all", "--bounding-set=-all", "--ambient-caps=-all", *argv)


def foreign_files(place):
    """Whatever names a file elsewhere gets not a byte of it."""
    make_source(place)
    secret = place.path("secret", "shadow")
    write_file(secret, SECRET)
    write_file(secret + ".u32", SECRET)
    os.chmod(secret, 0)
    with place.mount(allow_other="yes") as mount:
        os.symlink(secret, place.source + "/link")
        os.symlink(place.path("secret"), place.source + "/dir")
        here = os.path.relpath(secret, place.source)
        for path in (secret, secret + ".u32", "/etc/passwd", "/proc/self/environ", "/dev/zero", here, place.source + "/link",
                     "link", "dir/shadow", place.source + "/../secret/shadow", place.source + "x/c0/s1",
                     mount.mountpoint + "/link", "c0/../../secret/shadow"):
            for spec in [f"list:path={path}"] + ([f"megatron:records=0:path={path}"] if "secret" in path else []):
                told = bare_root(sys.executable, "-c", mountkit.TELL, mount.mountpoint, spec).out.decode()
                name = spec.replace("/", "%2F")
                seen = b"" if len(name) > 255 else bare_root("cat", f"{mount.mountpoint}/.clairfs/announce/{name}").out
                tap.ok(told.startswith(f"-{errno.EXDEV} ") and "not beneath the source" in told and
                       (not seen or b"not beneath the source" in seen), f"{spec} is refused", told, seen)
        everything = b"".join(mount.read(".clairfs/" + n) for n in ("answer", "control", "stats.json", "metrics"))
        everything += mount.text().encode()
        tap.ok(b"do-not-show" not in everything and b"root:" not in everything, "no byte of it is in an answer or the log")
        # Beneath the source a file may be read, but is not shown either.
        for name, text, line in (("bad", b"1\n2\ndo-not-show\n", "line 3: expected"), ("big", b"7777777\n", "line 1: expected"),
                                 ("odd.u32", struct.pack("<I", 7777777), "entry 1: expected"),
                                 ("twice", b"# epoch 4141\n1\n# epoch 4141\n2\n", "line 3: the epoch")):
            write_file(f"{place.source}/{name}", text)
            told = program(sys.executable, "-c", mountkit.TELL, mount.mountpoint, f"list:path={name}").out.decode()
            tap.ok(line in told and not any(b in told for b in ("do-not", "7777", "4141")), f"{name}: the place, not the bytes", told)


def beneath_the_source(place):
    paths = make_source(place)
    with place.mount() as mount:
        write_file(f"{place.source}/lists/order.txt", "".join(f"{p}\n" for p in reversed(paths)).encode())
        for path in "lists/order.txt", f"{place.source}/lists/order.txt", f"{mount.mountpoint}/lists/order.txt":
            told = program(sys.executable, "-c", mountkit.TELL, mount.mountpoint, f"list:path={path}").out.decode()
            tap.equal(told, f"0 list:path={path}\n", f"{path} is read")
            seen = mount.read(".clairfs/announce/list:path=" + path.replace("/", "%2F"))
            tap.equal(seen.decode(), f"list:path={path}\n", "also for a lookup")


def handed_over(place):
    """Lists elsewhere come as bytes, read with the rights of who announces."""
    paths = make_source(place)
    with place.mount() as mount:
        def epoch(length):
            return mount.wait_for(lambda s: s["order"]["epoch"]["length"] == length, f"an epoch of {length}")

        def announce(path, keys=""):
            return mountkit.clairfs("announce", mount.mountpoint, f"list:path={path}{keys}", cwd=place.root)
        write_file(place.path("l", "text"), "".join(f"{p}\n" for p in paths[:390]).encode())
        write_file(place.path("l", "heads"), b"# epoch 0\n1\n2\n3\n# epoch 1\n4\n5\n")
        write_file(place.path("l", "n.u32"), struct.pack("<3500I", *(i % SAMPLES for i in range(3500))))
        write_file(place.path("l", "n.u64"), struct.pack("<7Q", *range(7)))
        for path, length in ((place.path("l", "text"), 390), ("l/text", 390), (place.path("l", "heads"), 3),
                             (place.path("l", "n.u32"), 3500), (place.path("l", "n.u64"), 7)):
            told = announce(path, ":batch=5")
            tap.ok(told.code == 0 and told.out == b"list:path=told:batch=5\n" or told.out.startswith(b"list:path=told:epochs=2"),
                   f"{path} is handed over", told)
            epoch(length)
        write_file(place.path("l", "bad"), b"0\nnothing\n")
        told = announce(place.path("l", "bad"))
        tap.ok(told.code and len(told.lines) == 1 and "line 2: expected" in told.lines[0], "a wrong one names the line", told)
        told = announce("/nowhere/at/all")
        tap.ok(told.code and len(told.lines) == 1 and "/nowhere/at/all" in told.lines[0], "one that is not there", told)
        package = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
        script = "import sys; sys.path.insert(0, sys.argv[1]); import clairfs; print(clairfs.announce(sys.argv[2], sys.argv[3]))"
        told = program(sys.executable, "-I", "-c", script, package, "list:path=" + place.path("l", "text"), mount.mountpoint)
        tap.equal(told.out, b"list:path=told\n", "the Python module does the same")
        epoch(390)


def hung_list(place):
    """A list on a part of the source that hangs: others are answered, and who waits can be interrupted and killed."""
    make_source(place)
    write_file(place.path("lists", "order"), b"1\n2\n")
    os.mkdir(place.source + "/slow")
    with mountkit.Slowfs(place, place.path("lists"), place.path("slow")) as slow:
        with place.mount(allow_other="yes") as mount:
            program("mount", "--bind", slow.mountpoint, place.source + "/slow")
            os.kill(slow.process.pid, signal.SIGSTOP)
            name = mount.path(".clairfs", "announce", "list:path=slow%2Forder")
            wanting = []
            try:
                for argv in (["cat", name], [sys.executable, "-c", mountkit.TELL, mount.mountpoint, "list:path=slow/order"]):
                    wanting.append(subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
                mountkit.wait_until(lambda: "order-make" in mountkit.threads_of(mount.process.pid), "the file is being opened")
                answers(mount, "while a list hangs")
                seen = program("cat", mount.path(".clairfs", "announce", "sequential"), **STRANGER)
                tap.ok(seen.out.startswith(b"error: only root") and [p.poll() for p in wanting] == [None, None],
                       "another user is answered while they wait", seen)
                for process in wanting:
                    process.kill()
                    process.wait(60)
                tap.ok(True, "whoever waits can be killed")
                told = mountkit.clairfs("announce", mount.mountpoint, "sequential")
                tap.equal((told.code, told.out), (0, b"sequential\n"), "and the next order is taken")
            finally:
                os.kill(slow.process.pid, signal.SIGCONT)
                for process in wanting:
                    process.kill()
                    process.communicate()
                program("umount", "-l", place.source + "/slow")


mountkit.run(crowd, epochs_by_lookup, foreign_files, beneath_the_source, handed_over, hung_list)
