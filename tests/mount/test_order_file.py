# SPDX-License-Identifier: Apache-2.0
"""`echo SPEC > .clairfs/order`: the one file of a read-only mount that can be written is a FIFO. Whoever writes reaches the
daemon, whatever is written is taken or refused, and nobody who comes near it hangs.

Every child has a time limit and is killed, not asked: a process that waits for a FIFO ends by a signal.
"""
import os
import subprocess
import sys

import mountkit
import tap
from mountkit import good, program, rng, wait_until, write_file

SAMPLES = 400
STRANGER = "import os, sys\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"


def make_source(place):
    for i in range(SAMPLES):
        write_file(f"{place.source}/s{i:04}", b"%d" % i * 50)


def order_file(mount):
    return mount.path(".clairfs", "order")


def announced(mount):
    return mount.stats()["announced"]


def write(mount, data):
    """As a shell does: opens for writing, creates if need be, cuts; one write."""
    fd = os.open(order_file(mount), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        os.write(fd, data)
    finally:
        os.close(fd)


def told(mount, data, count=1):
    """Writes, and waits until so many more orders were taken or refused; what is said then."""
    before = announced(mount)["count"]
    write(mount, data)
    wait_until(lambda: announced(mount)["count"] >= before + count, f"{data[:60]!r} is answered")
    return announced(mount)


def written_by_a_shell(place):
    make_source(place)
    with place.mount() as mount:
        path = order_file(mount)
        done = program("sh", "-c", f"echo torch-randperm:seed=11 > {path}")
        tap.equal((done.code, done.err), (0, b""), "a shell writes an order")
        wait_until(lambda: mount.stats()["order"].get("spec") == "torch-randperm:seed=11", "it is in force")
        tap.equal(program("cat", path).out, b"torch-randperm:seed=11\n", "who reads gets the order in force")
        tap.equal(mount.read(".clairfs/answer"), b"torch-randperm:seed=11\n", "and .clairfs/answer what became of it")
        for i in good("order", "torch-randperm:seed=11", "--n", SAMPLES).split()[:200]:
            mount.read(f"s{int(i):04}")
        mount.wait_for(lambda s: s["order"]["state"] == "following" and s["order"]["epoch"]["position"] == 200,
                       "the job is followed")
        tap.ok(True, "a job that reads so is followed")
        said = told(mount, b"  sequential:epochs=2 \r\n\n\n")
        tap.equal((said["answer"], said["is_refused"]), ("sequential:epochs=2", False), "blanks and empty lines are nothing")
        said = told(mount, b"torch-randperm:seed=1\ntorch-randperm:seed=2\ntorch-randperm:seed=3", 3)
        tap.equal(said["answer"], "torch-randperm:seed=3", "several lines are several orders, the last one without its end")
        tap.equal(told(mount, b"none\n")["answer"], "none", "none takes it back")
        tap.equal(mount.stats()["order"]["state"], "no_order", "and counts")


def junk(place):
    make_source(place)
    with place.mount(order="sequential") as mount:
        for data, count, word in (
                (b"torch-randpern:seed=1\n", 1, "did you mean"),
                (b"sequential\0:epochs=1\n", 1, "zero byte"),
                (b"\0\n", 1, "zero byte"),
                (b"sequential:epochs=" + b"1" * 4080 + b"\n", 1, "longer than 4087 bytes"),
                (b" " * 4088 + b"sequential\n", 1, "longer than 4087 bytes"),
                (b"list:path=/" + b"a" * 40000 + b"\n", 1, "longer than 4087 bytes"),
                (b"\x1b[2J\xff\xfe\n", 1, ""),
                (b"=:=:=\n" * 50, 50, "")):
            said = told(mount, data, count)
            tap.ok(said["is_refused"] and word in said["answer"] and "\x1b" not in said["answer"],
                   f"{data[:30]!r} is refused", said)
        before = announced(mount)["count"]
        for _ in range(20):
            write(mount, rng.randbytes(rng.randrange(1, 3000)).replace(b"\n", b"\r") + b"\n")
        wait_until(lambda: announced(mount)["count"] == before + 20, "every line of junk is counted")
        said = told(mount, b"torch-randperm:seed=77\n")
        tap.equal(said["answer"], "torch-randperm:seed=77", "after junk an order is taken")
        log = mount.text()
        tap.ok("was not taken" in log and "\x1b" not in log, "the log says what was refused", log[-3000:])
        status = told(mount, b"nonsense\n") and good("status", mount.mountpoint).decode()
        tap.ok("the last one announced was refused: " in status and "nonsense" in status, "status does, too", status)
        tap.equal(mount.stats()["order"]["spec"], "torch-randperm:seed=77", "and the order stays")


def many(place):
    """Writers at once, and more orders than anybody needs, while a job reads."""
    make_source(place)
    with place.mount() as mount:
        before = announced(mount)["count"]
        script = f"for i in 1 2 3 4 5 6 7 8 9 10; do echo torch-randperm:seed=$1$i > {order_file(mount)} || exit 1; done"
        writers = [subprocess.Popen(["sh", "-c", script, "sh", str(n)]) for n in range(6)]
        for i in range(SAMPLES):
            mount.read(f"s{i:04}")
        codes = [w.wait(mountkit.DEADLINE) for w in writers]
        tap.equal(codes, [0] * 6, "six writers at once end")
        wait_until(lambda: announced(mount)["count"] == before + 60, "every order is counted")
        tap.equal(announced(mount)["refused"], 0, "and none is mixed up with another")
        before = announced(mount)["count"]
        for i in range(200):  # one comes when the reader is about to go, or between two readers
            write(mount, b"sequential\n")
            if i % 2:
                os.stat(order_file(mount))
        wait_until(lambda: announced(mount)["count"] == before + 200, "no line is lost, however the writers come")
        told(mount, b"sequential\n" * 300, 300)  # the writer is held up, nothing is heaped up
        tap.equal(told(mount, b"sequential:epochs=5\n")["answer"], "sequential:epochs=5", "the planner goes on")


def one_after_another(place):
    """The next writer comes while the line of the one before is taken: the reader must not leave between its lookup and its open."""
    make_source(place)
    with place.mount(order="sequential") as mount:
        lost = 0
        for _ in range(10000):
            try:
                write(mount, b"sequential\0\n")
            except BrokenPipeError:
                lost += 1
        tap.equal(lost, 0, "10,000 writers, each right behind the other, find a reader")
        wait_until(lambda: announced(mount)["count"] == 10000, "and all are heard")


def nobody_hangs(place):
    """What people and backups do to directories."""
    make_source(place)
    with place.mount(order="sequential") as mount:
        folder, copy = mount.path(".clairfs"), place.path("copy")
        for argv in (["ls", "-la", folder], ["find", folder, "-type", "f"], ["grep", "-r", "nowhere", mount.mountpoint],
                     ["grep", "-r", "nowhere", folder], ["cp", "-r", folder, copy], ["stat", order_file(mount)],
                     ["tar", "-cf", "/dev/null", folder], ["du", "-a", folder], ["file", order_file(mount)],
                     ["find", mount.mountpoint, "-exec", "stat", "-c", "%n", "{}", "+"]):
            try:
                done = program("timeout", "-k", "1", "100", *argv)
                tap.ok(done.code < 124 or done.code == 127, " ".join(argv[:2]) + " ends", done)
            except subprocess.TimeoutExpired:
                tap.ok(False, " ".join(argv[:2]) + " ends")
        for _ in range(300):
            os.stat(order_file(mount))
        fd = os.open(order_file(mount), os.O_RDONLY | os.O_NONBLOCK)  # a reader that does not wait
        os.close(fd)
        fd = os.open(order_file(mount), os.O_RDWR)
        os.write(fd, b"torch-randperm:seed=5\n")
        wait_until(lambda: announced(mount)["count"] == 1, "a writer that reads as well is heard")
        os.close(fd)
        tap.equal(announced(mount)["answer"], "torch-randperm:seed=5", "open for both, a line is taken at its end")
        fd = os.open(order_file(mount), os.O_WRONLY)
        tap.equal(told(mount, b"sequential\n")["answer"], "sequential", "a writer that says nothing holds up nobody")
        tap.equal(mount.read("s0000"), b"0" * 50, "nor does it hold up reads")
        os.close(fd)


WITHOUT_LOOKUP = """if True:
    import os, sys, time
    at = os.open(sys.argv[1], os.O_PATH)
    for i in range(2):
        time.sleep(float(sys.argv[2]))  # longer than a reader waits for us after the lookup
        fd = os.open(f"/proc/self/fd/{at}", os.O_WRONLY)
        os.write(fd, b"torch-randperm:seed=%d\\n" % i)
        os.close(fd)"""


def without_a_lookup(place):
    make_source(place)
    with place.mount() as mount:
        done = program(sys.executable, "-c", WITHOUT_LOOKUP, order_file(mount), "0.1")
        tap.equal(done.code, 0, "a writer who does not look the name up again is found", )
        wait_until(lambda: announced(mount)["count"] == 2, "and heard")
        target = place.path("bound")
        write_file(target, b"")
        script = f"mount --bind {order_file(mount)} {target} && sleep 0.1 && echo sequential:epochs=7 > {target}"
        done = program("unshare", "-m", "sh", "-c", script)
        tap.equal(done.code, 0, "so is one who has the file bound elsewhere")
        wait_until(lambda: announced(mount)["answer"] == "sequential:epochs=7", "that is heard")


def strangers(place):
    make_source(place)
    with place.mount(allow_other="yes", order="sequential") as mount:
        for mode in "w", "r":
            done = program(sys.executable, "-c", STRANGER + f"open(sys.argv[1], {mode!r})", order_file(mount))
            tap.ok(done.code == 1 and b"PermissionError" in done.err, f"another user may not open it ({mode})", done)
        tap.equal((announced(mount)["count"], mount.stats()["order"]["spec"]), (0, "sequential"), "and nothing has happened")
        st = os.stat(order_file(mount))
        tap.equal((oct(st.st_mode), st.st_uid), (oct(0o10600), os.geteuid()), "it is a FIFO of the one who mounted")


def detached(place):
    """The daemon cannot reach a mount that is only held by those who are in it: no reader, and that is said."""
    make_source(place)
    with place.mount() as mount:
        inside = os.open(mount.mountpoint, os.O_PATH)
        program("umount", "-l", mount.mountpoint)
        for flags in os.O_WRONLY, os.O_RDONLY:
            try:
                os.close(os.open(f"/proc/self/fd/{inside}/.clairfs/order", flags))
                tap.ok(False, "open in a detached mount fails")
            except OSError as e:
                tap.equal(e.errno, mountkit.errno.ENXIO, "open in a detached mount: nobody is at the other end")
        os.close(inside)
        mount.wait()


def ends(place):
    """A writer that is in the middle when the mount ends."""
    make_source(place)
    with place.mount() as mount:
        write(mount, b"sequential\n")
        done = mountkit.clairfs("umount", mount.mountpoint)
        tap.equal(done.code, 0, "an unmount right after writing")
        mount.wait()
    mount = place.mount()
    fd = os.open(order_file(mount), os.O_WRONLY)
    os.write(fd, b"sequential")
    wait_until(lambda: mount.stats(), "the mount answers")
    mountkit.send(mount.process, mountkit.signal.SIGTERM)
    mount.wait()
    try:
        os.write(fd, b":epochs=1\n")
        tap.ok(False, "a writer learns that the daemon has ended")
    except BrokenPipeError:
        tap.ok(True, "a writer learns that the daemon has ended")
    os.close(fd)
    mount = place.mount()
    fd = os.open(order_file(mount), os.O_WRONLY)
    mountkit.send(mount.process, mountkit.signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    try:
        while True:
            os.write(fd, b"\n" * 4096)
    except BrokenPipeError:
        tap.ok(True, "and that it was killed")
    os.close(fd)
    program("umount", "-l", place.mnt)


mountkit.run(written_by_a_shell, junk, many, one_after_another, nobody_hangs, without_a_lookup, strangers, detached, ends)
