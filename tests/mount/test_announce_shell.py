# SPDX-License-Identifier: Apache-2.0
"""Orders told by those who have a shell and the mount, and nothing else: `cat .clairfs/announce/SPEC`. Whatever is told is taken
or refused, however many tell at once, and nobody who comes near .clairfs hangs.
"""
import os
import subprocess

import mountkit
import tap
from mountkit import good, program, write_file

SAMPLES = 400


def make_source(place):
    for i in range(SAMPLES):
        write_file(f"{place.source}/s{i:04}", b"%d" % i * 50)


def announced(mount):
    return mount.stats()["announced"]


def told_by_a_shell(place):
    make_source(place)
    with place.mount() as mount:
        folder = mount.path(".clairfs")
        done = program("sh", "-c", f"cat {folder}/announce/torch-randperm:seed=11")
        tap.equal((done.code, done.out, done.err), (0, b"torch-randperm:seed=11\n", b""), "a shell tells an order")
        tap.equal(mount.stats()["order"].get("spec"), "torch-randperm:seed=11", "it is in force")
        tap.equal(program("cat", f"{folder}/control").out, b"torch-randperm:seed=11\n", "who reads control gets the order in force")
        tap.equal(mount.read(".clairfs/answer"), b"torch-randperm:seed=11\n", "and answer what became of the last one")
        for i in good("order", "torch-randperm:seed=11", "--n", SAMPLES).split()[:200]:
            mount.read(f"s{int(i):04}")
        mount.wait_for(lambda s: s["order"]["state"] == "following" and s["order"]["epoch"]["position"] == 200,
                       "the job is followed")
        tap.ok(True, "a job that reads so is followed")
        tap.equal(mount.read(".clairfs/announce/none"), b"none\n", "none takes it back")
        tap.equal(mount.stats()["order"]["state"], "no_order", "and counts")
        done = program("sh", "-c", f"echo sequential > {folder}/order")
        tap.ok(done.code and b"ead-only" in done.err, "nothing can be written", done)
        done = mountkit.clairfs("umount", mount.mountpoint)
        tap.equal(done.code, 0, "an unmount right after that")
        mount.wait()


def junk(place):
    make_source(place)
    with place.mount(order="sequential") as mount:
        for spec, word in (
                (b"torch-randpern:seed=1", "did you mean"),
                (b"sequential:epochs=" + b"1" * 4005, ""),
                (b"list:path=/" + b"a" * 4012, ""),
                (b" " * 4023, ""),
                (b"\x1b[2J\xff\xfe", ""),
                (b"=:=:=", "")):
            status, line = mount.tell(spec)
            tap.ok(status < 0 and word in line and "\x1b" not in line, f"{spec[:30]!r} is refused", status, line)
            said = announced(mount)
            tap.ok(said["is_refused"] and word in said["answer"] and "\x1b" not in said["answer"], "and counted", said)
        before = announced(mount)
        for _ in range(20):
            size = mountkit.rng.randrange(1, 3000)
            said = bytes(mountkit.rng.randrange(1, 256) for _ in range(size))
            status, line = mount.tell(b"=" + said if said.startswith(b"?") else said)  # a question is not counted
            tap.ok(status < 0 and "\x1b" not in line, f"{size} bytes of junk are refused", line)
        now = announced(mount)
        tap.equal((now["count"], now["refused"]), (before["count"] + 20, before["refused"] + 20), "every one is counted")
        tap.equal(mount.tell("torch-randperm:seed=77"), (0, "torch-randperm:seed=77"), "after junk an order is taken")
        log = mount.text()
        tap.ok("was not taken" in log and "\x1b" not in log, "the log says what was refused", log[-3000:])
        mount.tell("nonsense")
        status = good("status", mount.mountpoint).decode()
        tap.ok("the last one announced was refused: " in status and "nonsense" in status, "status does, too", status)
        tap.equal(mount.stats()["order"]["spec"], "torch-randperm:seed=77", "and the order stays")


def many(place):
    """Shells at once, and more orders than anybody needs, while a job reads."""
    make_source(place)
    with place.mount() as mount:
        before = announced(mount)["count"]
        folder = mount.path(".clairfs", "announce")
        script = f"for i in 1 2 3 4 5 6 7 8 9 10; do cat {folder}/torch-randperm:seed=$1$i || exit 1; done"
        shells = [subprocess.Popen(["sh", "-c", script, "sh", str(n)], stdout=subprocess.PIPE) for n in range(1, 7)]
        for i in range(SAMPLES):
            mount.read(f"s{i:04}")
        for n, shell in enumerate(shells, 1):
            out = shell.communicate(timeout=mountkit.DEADLINE)[0].decode().split()
            tap.equal((shell.returncode, out), (0, [f"torch-randperm:seed={n}{i}" for i in range(1, 11)]),
                      f"shell {n} gets the answers to its own orders")
        now = announced(mount)
        tap.equal((now["count"], now["refused"]), (before + 60, 0), "every order is counted, and none is mixed up with another")
        tap.equal(mount.tell("sequential:epochs=5"), (0, "sequential:epochs=5"), "the planner goes on")


def nobody_hangs(place):
    """What people and backups do to directories."""
    make_source(place)
    with place.mount(order="sequential") as mount:
        folder, copy = mount.path(".clairfs"), place.path("copy")
        for argv in (["ls", "-la", folder], ["find", folder, "-type", "f"], ["grep", "-r", "nowhere", mount.mountpoint],
                     ["grep", "-r", "nowhere", folder], ["cp", "-r", folder, copy], ["stat", folder + "/announce"],
                     ["tar", "-cf", "/dev/null", folder], ["du", "-a", folder], ["file", folder + "/control"],
                     ["find", mount.mountpoint, "-exec", "stat", "-c", "%n", "{}", "+"]):
            try:
                done = program("timeout", "-k", "1", "100", *argv)
                tap.ok(done.code < 124 or done.code == 127, " ".join(argv[:2]) + " ends", done)
            except subprocess.TimeoutExpired:
                tap.ok(False, " ".join(argv[:2]) + " ends")
        tap.equal(announced(mount)["count"], 0, "and none of them tells an order")
        held = os.open(mount.path(".clairfs", "control"), os.O_RDONLY)
        tap.equal(mount.tell("torch-randperm:seed=5"), (0, "torch-randperm:seed=5"), "who has control open holds up nobody")
        tap.equal(mount.read("s0000"), b"0" * 50, "nor any reads")
        os.close(held)


mountkit.run(told_by_a_shell, junk, many, nobody_hangs)
