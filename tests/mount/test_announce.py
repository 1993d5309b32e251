# SPDX-License-Identifier: Apache-2.0
"""Orders told to a mount that runs: before the job, in the middle of an epoch, wrongly, again, from a container in which
only the mount is seen, by somebody who may not, and with the environment that Slurm and torchrun give a job.

What a launcher tells a job must come from the test alone, so its variables are taken out of the environment first.
"""
import contextlib
import errno
import fcntl
import os
import signal
import struct
import subprocess
import sys

import mountkit
import tap
from mountkit import CLAIRFS, good, program, write_file

SAMPLES = 1200
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_NODEID",
             "SLURM_LOCALID", "SLURM_TASKS_PER_NODE", "CLAIRFS_ORDER"):
    os.environ.pop(name, None)


STRANGER = "import fcntl, os, struct, sys\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"

LAST_PART = """
import fcntl, struct, sys
with open(sys.argv[1] + "/.clairfs/control", "rb") as f:
    part = bytearray(struct.pack("<IiQII1000s6800s", 1, 0, 1, 1, 1, b"", b""))
    fcntl.ioctl(f, 3 << 30 | len(part) << 16 | 0xCF << 8 | 2, part)
print(struct.unpack_from("<Ii", part)[1])
"""


class Job:
    """What the cases do with a mount."""

    def __init__(self, place, mount, paths):
        self.place, self.mount, self.point, self.paths = place, mount, mount.mountpoint, paths

    def announce(self, spec, **env):
        return mountkit.clairfs("announce", self.point, spec, env={**os.environ, **env})

    def cat(self, name):
        return self.mount.read(f".clairfs/{name}").decode()

    def order(self):
        return self.mount.stats()["order"]

    def read(self, paths):
        for path in paths:
            self.mount.read(path)

    def in_order(self, spec, epoch=0):
        text = good("order", spec, "--n", SAMPLES, "--epoch", epoch)
        return [self.paths[int(i)] for i in text.split()]

    def becomes(self, name, **wanted):
        """The order gets into such a state."""
        def has():
            order = self.order()
            order["position"] = order["epoch"]["position"]
            return all(order[key] == value for key, value in wanted.items())
        try:
            mountkit.wait_until(has, name)
        except mountkit.Failed:
            tap.equal(self.order(), wanted, name)
        else:
            tap.ok(True, name)


def make_source(place):
    for i in range(SAMPLES):
        write_file(f"{place.source}/c{i % 3}/s{i}", b"%d" % i * 100)
    return [line.split("\t")[1] for line in good("index", place.source).decode().splitlines()]


def before_the_job(job):
    spec = "torch-randperm:seed=7"
    tap.equal(job.cat("control"), "none\n", "without an order the file says so")
    told = job.announce(spec)
    tap.equal((told.code, told.out.decode(), told.lines), (0, spec + "\n", []), "announce prints the order in force")
    order = job.order()
    tap.equal((order["spec"], order["state"]), (spec, "waiting"), "announced before the job, the start is prefetched")
    tap.equal(job.cat("control"), spec + "\n", "and the file shows it")
    job.read(job.in_order(spec)[:300])
    job.becomes("the job is followed to where it is", state="following", position=300)


def wrong_spec(job):
    before = job.cat("control")
    for spec, word in (("torch-randpern:seed=1", 'did you mean "torch-randperm"'), ("torch-randperm", '"seed" is missing'),
                       ("torch-distributed:world=2:rank=2", "outside the world"), ("", "KIND"),
                       ("list:path=/nowhere/at/all", "/nowhere/at/all")):
        told = job.announce(spec)
        tap.ok(told.code in (1, 2) and len(told.lines) == 1 and word in told.lines[0], f"announce '{spec}' is refused", told)
        direct = program(sys.executable, "-c", mountkit.TELL, job.point, spec).out.decode()
        tap.ok(direct.startswith("-") and word in direct, f"the mount says the same of '{spec}'", direct)
    answer = job.cat("announce/torch-distributed:sed=2")
    tap.equal(answer, 'error: order torch-distributed: unknown key "sed", did you mean "seed"?\n', "a lookup answers likewise")
    tap.equal(job.cat("control"), before, "and the order stays as it was")


def questions(job):
    before, told = job.cat("control"), job.mount.stats()["announced"]
    tap.equal(job.announce("?").out.decode(), before, "a question is answered with the order in force")
    tap.equal(job.announce("?sequential:under=c1:epochs=2").out.decode(), "400 sequential:epochs=2:under=c1\n",
              "or with how many samples an order numbers")
    tap.equal(job.announce("?torch-randperm:seed=1").out.decode(), "1200 torch-randperm:seed=1\n", "all of them")
    wrong = job.announce("?sequential:under=c9")
    tap.ok(wrong.code and len(wrong.lines) == 1 and 'no directory "c9"' in wrong.lines[0], "or with what is wrong", wrong)
    tap.equal((job.cat("control"), job.mount.stats()["announced"]), (before, told), "and nothing has changed")


def second_announce(job):
    spec = "torch-distributed:seed=3:world=2:rank=1"
    tap.equal(job.announce(spec).out.decode(), spec + "\n", "a second announce")
    order = job.order()
    tap.equal((order["spec"], order["state"]), (spec, "waiting"), "replaces the first")
    job.read(job.in_order(spec)[:200])
    job.becomes("and is followed", state="following")
    told = job.announce("none")
    tap.equal((told.out, job.order()["state"]), (b"none\n", "no_order"), "none takes it back")
    tap.equal(job.order()["why"], "the order was taken back", "status says so")


def middle_of_an_epoch(job):
    spec = "torch-randperm:seed=99"
    reads = job.in_order(spec)
    job.read(reads[:400])
    job.announce(spec)
    job.becomes("announced in the middle of an epoch, the job is followed from there without another read",
                state="following", position=400)
    job.read(reads[400:700])
    job.becomes("and on", state="following", position=700)


def shell(job):
    job.announce("none")
    tap.equal(job.cat("announce/sequential:epochs=2"), "sequential:epochs=2\n", "a lookup announces")
    tap.equal(job.order()["spec"], "sequential:epochs=2", "and counts")
    path = job.place.path("source", "c0", "list")  # younger than the mount: no sample
    write_file(path, "".join(f"{p}\n" for p in reversed(job.paths)).encode())
    tap.equal(job.cat("announce/list:path=" + path.replace("/", "%2F")), f"list:path={path}\n", "a path in the name, escaped")
    job.read(list(reversed(job.paths))[:300])
    job.becomes("a list of paths is followed", state="following")
    # All by one thread and mostly within the second in which a repeated question is answered from memory.
    for spec in "sequential:epochs=5", "sequential:epochs=6", "sequential:epochs=5", "sequential:epochs=6":
        tap.equal(job.cat("announce/" + spec), spec + "\n", "a lookup")
        direct = program(sys.executable, "-c", mountkit.TELL, job.point, "sequential").out.decode()
        tap.equal(direct, "0 sequential\n", "another order in between")
        job.cat("announce/" + spec)
        tap.equal(job.cat("control"), spec + "\n", "the same question again is told again")
    listed = os.listdir(f"{job.point}/.clairfs")
    tap.ok("announce" in listed and "control" in listed, "both are listed", listed)
    tap.equal(os.listdir(f"{job.point}/.clairfs/announce"), [], "listing the directory announces nothing")


def container(job):
    """A mount namespace of its own, in which the mount is all there is of clairfs."""
    inside = job.place.path("inside")
    os.mkdir(inside)
    script = f"""mount --bind {job.point} {inside} && umount -l {job.point} &&
        cat {inside}/.clairfs/announce/torch-randperm:seed=5 && {CLAIRFS} announce {inside} torch-randperm:seed=6 &&
        {sys.executable} -c "$0" {inside} torch-randperm:seed=8"""
    told = program("unshare", "-m", "sh", "-c", script, mountkit.TELL)
    tap.equal(told.out.decode().split("\n"), ["torch-randperm:seed=5", "torch-randperm:seed=6", "0 torch-randperm:seed=8", ""],
              "from a container: lookup, command, ioctl")
    tap.equal([told["spec"] for told in job.mount.stats()["jobs"]], ["torch-randperm:seed=8", "torch-randperm:seed=6"],
              "reach the daemon outside; the command says a name, the others none")


def told_to_a_mount(place):
    paths = make_source(place)
    with place.mount() as mount:
        job = Job(place, mount, paths)
        for case in before_the_job, wrong_spec, questions, second_announce, middle_of_an_epoch, shell, container:
            case(job)


def environment(place):
    # A task of a step; the batch script of the same job, which runs on its first node.
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_NODEID": "1", "SLURM_LOCALID": "1",
             "SLURM_TASKS_PER_NODE": "2(x3),1(x2)"}
    batch = {"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_NODEID": "0", "SLURM_LOCALID": "0",
             "SLURM_TASKS_PER_NODE": "4(x2)"}
    torchrun = {"RANK": "1", "WORLD_SIZE": "4"}
    paths = make_source(place)
    with place.mount() as mount:
        job = Job(place, mount, paths)
        for env, spec, want in (
                (slurm, "torch-distributed:seed=1", "torch-distributed:seed=1:world=8:ranks=2-3"),
                (batch, "torch-distributed", "torch-distributed:world=8:ranks=0-3"),
                ({**slurm, "SLURM_NODEID": "4", "SLURM_PROCID": "7", "SLURM_LOCALID": "0"}, "torch-distributed",
                 "torch-distributed:world=8:rank=7"),
                ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, "torch-distributed", "torch-distributed"),
                ({**torchrun, "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, "torch-distributed",
                 "torch-distributed:world=4:ranks=0-1"),
                ({**torchrun, "LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "x"}, "torch-distributed",
                 "torch-distributed:world=4:rank=1"),
                ({**slurm, **torchrun}, "torch-distributed:seed=1", "torch-distributed:seed=1:world=4:rank=1"),
                ({**slurm, "RANK": "1"}, "torch-distributed", "torch-distributed:world=8:ranks=2-3"),
                (slurm, "torch-distributed:world=2", "torch-distributed:world=2"),
                (slurm, "torch-distributed:world=9:ranks=0-1", "torch-distributed:world=9:ranks=0-1"),
                ({"RANK": "x", "WORLD_SIZE": "y"}, "torch-randperm:seed=1", "torch-randperm:seed=1"),
                ({"RANK": "0", "WORLD_SIZE": "1"}, "torch-distributed:seed=2", "torch-distributed:seed=2")):
            tap.equal(job.announce(spec, **env).out.decode(), want + "\n", f"{spec} with {env}")
        before = job.cat("control")
        for rank, world in (("x", "4"), ("-1", "4"), ("4", "4"), ("0", "0"), ("0", "99999999999999999999"), ("", "4"),
                            ("0", "4:seed=3"), ("0\n", "4"), ("\x1b[2J", "4")):
            told = job.announce("torch-distributed:seed=1", RANK=rank, WORLD_SIZE=world)
            tap.ok(told.code == 2 and len(told.lines) == 1 and "environment variable" in told.lines[0] and
                   "\x1b" not in told.lines[0], f"RANK={rank!r} WORLD_SIZE={world!r} is refused with one line", told)
        for change in ({"SLURM_TASKS_PER_NODE": "2"}, {"SLURM_TASKS_PER_NODE": "2(x"}, {"SLURM_TASKS_PER_NODE": "x"},
                       {"SLURM_TASKS_PER_NODE": "99999999999(x99999999999)"}, {"SLURM_TASKS_PER_NODE": "2(x4)2"},
                       {"SLURM_TASKS_PER_NODE": ""}, {"SLURM_NODEID": "9"}, {"SLURM_LOCALID": "0"}, {"SLURM_NTASKS": "9"}):
            told = job.announce("torch-distributed", **{**slurm, **change})
            tap.ok(told.code == 2 and len(told.lines) == 1 and "give world and ranks" in told.lines[0],
                   f"{change} says nothing, and that is said", told)
        tap.equal(job.cat("control"), before, "nothing of that came through")


PYTHON = """if True:
    import os
    import sys
    sys.path.insert(0, sys.argv[2])
    import clairfs
    print(clairfs.announce("torch-randperm:seed=21:epochs=3", sys.argv[1]))
    print(clairfs.announce(range(1199, -1, -1), sys.argv[1]).split(":")[0])
    os.environ.update(RANK="1", LOCAL_RANK="1", LOCAL_WORLD_SIZE="2")
    print(clairfs.announce("torch-randperm:seed=99", sys.argv[1]))
    for name in "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE":
        del os.environ[name]
    for wrong in "torch-randpern:seed=1", "sequential:path=x" * 500, [], [5000], [0, -1]:
        try:
            print("took", wrong, clairfs.announce(wrong, sys.argv[1]))
        except (clairfs.AnnounceError, OverflowError) as e:
            print(type(e).__name__, len(str(e).splitlines()))
    try:
        clairfs.announce("sequential", "/")
    except clairfs.AnnounceError as e:
        print(e)
    import errno
    import fcntl
    import struct
    ioctl = fcntl.ioctl
    def older(f, number, data):  # a mount that knows no names
        if number & 255 == 1 and struct.unpack_from("=I", data)[0] != 1 or number & 255 == 2 and struct.unpack_from("=I", data, 16)[0] & 16:
            raise OSError(errno.EPROTO, "")
        return ioctl(f, number, data)
    fcntl.ioctl = older
    print(clairfs.announce("torch-randperm:seed=22", sys.argv[1]))
    print(clairfs.announce(range(1200), sys.argv[1]).split(":")[0])
    print(sorted(m for m in sys.modules if m.split(".")[0] in ("torch", "numpy")))"""


def python_module(place):
    """With a Python that has nothing but the standard library."""
    package = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
    paths = make_source(place)
    with place.mount() as mount:
        job = Job(place, mount, paths)
        told = program(sys.executable, "-I", "-c", PYTHON, job.point, package, env={**os.environ, "TMPDIR": place.root})
        tap.equal(told.out.decode().splitlines(),
                  ["torch-randperm:seed=21:epochs=3", "list", "torch-randperm:seed=99", "AnnounceError 1", "AnnounceError 1", "AnnounceError 1",
                   "AnnounceError 1", "OverflowError 1", "/: not a clairfs mount that takes orders",
                   "torch-randperm:seed=22", "list", "[]"],
                  "the Python module announces specs and lists, and says what is wrong")
        tap.note(told.err.decode(errors="replace"))
        tap.equal([f for f in os.listdir(place.root) if f.startswith("clairfs-")], [], "no list file stays behind")
        tap.ok(job.order()["spec"].startswith("list:path="), "the list is in force: the second process of a node told nothing")


class Parts:
    """A list in parts, by hand."""

    FORM = struct.Struct("<IiQII1000s6800s")

    def __init__(self, mount):
        self.file = os.open(mount.path(".clairfs", "control"), os.O_RDONLY)

    def send(self, numbers, token=0, keys=None, count=None, version=1, text=None):
        """(status, token, line), or an errno."""
        data = struct.pack(f"<{len(numbers)}I", *numbers)
        text = text if text is not None else (keys or "").encode()
        part = bytearray(self.FORM.pack(version, 0, token, keys is not None, len(numbers) if count is None else count, text, data))
        try:
            fcntl.ioctl(self.file, 3 << 30 | len(part) << 16 | 0xCF << 8 | 2, part)
        except OSError as e:
            return e.errno
        _, status, token, _, _, line, _ = self.FORM.unpack(part)
        return status, token, line.split(b"\0")[0].decode()


def lists_in_parts(place):
    make_source(place)
    with place.mount(order="sequential") as mount:
        parts = Parts(mount)
        status, first, _ = parts.send(range(100))
        tap.equal(status, 0, "a part of a list")
        status, second, _ = parts.send([5] * 1700)
        tap.ok(status == 0 and second != first, "another list is begun", second)
        status, _, line = parts.send([1], token=first)
        tap.equal((status, line), (-errno.ESTALE, "another list was begun meanwhile"), "the first one is gone")
        status, told, _ = parts.send([1], token=first, keys="")
        tap.equal((status, told), (-errno.ESTALE, first), "nor does its last part come through, or learn of the other list")
        tap.equal(mount.stats()["order"]["spec"], "sequential", "the order stays until a list is whole")
        tap.equal(parts.send([6, 7], token=second, keys="epochs=1")[0], 0, "the last part")
        mount.wait_for(lambda s: s["order"]["spec"] == "list:path=told:epochs=1" and s["order"]["epoch"]["length"] == 1702,
                       "the list is the order, with samples that come more than once")
        for sent, want, word in (
                (parts.send([1], token=second), errno.ESTALE, "begun"), (parts.send([1], token=999), errno.ESTALE, "begun"),
                (parts.send([SAMPLES], keys=""), errno.EINVAL, "out of range"),
                (parts.send([], keys=""), errno.EINVAL, "no samples"),
                (parts.send([1], keys="nonsense=1"), errno.EINVAL, "unknown key"),
                (parts.send([1], keys="path=/etc/passwd"), errno.EINVAL, "path")):
            tap.ok(isinstance(sent, tuple) and sent[0] == -want and word in sent[2], f"refused: {word}", sent)
        tap.equal((parts.send([1], count=1701), parts.send([1], version=2), parts.send([1], keys="", text=b"x" * 1000)),
                  (errno.EPROTO,) * 3, "counts, versions and texts that cannot be are refused")
        token, status = 0, 0
        for _ in range(1000):
            status, token, line = parts.send([0] * 1700, token=token)
            if status:
                break
        tap.ok(status == -errno.EFBIG and "more than" in line, "a list without end is refused", line)
        tap.equal(mount.stats()["order"]["spec"], "list:path=told:epochs=1", "and the order stays")
        os.close(parts.file)


def numbers_of_files(place):
    paths = make_source(place)
    with place.mount() as mount:
        wrong = [p for i, p in enumerate(paths) if os.stat(mount.path(p)).st_ino != i + 2]
        tap.no_findings(wrong, "the inode number of a sample is its number and 2 (hint.h)")


def stranger(place):
    paths = make_source(place)
    with place.mount(allow_other="yes") as mount:
        job = Job(place, mount, paths)
        told = program(sys.executable, "-c", STRANGER + mountkit.TELL, job.point, "sequential").out
        tap.ok(told.startswith(b"-1 ") and b"only root" in told, "another user may not announce", told)
        seen = program("cat", f"{job.point}/.clairfs/announce/sequential", user=65534, group=65534, extra_groups=[])
        tap.ok(seen.out.startswith(b"error: only root"), "nor by a lookup", seen)
        parts = Parts(mount)
        token = parts.send(range(100))[1]
        told = program(sys.executable, "-c", STRANGER + LAST_PART, job.point).out
        tap.equal(told, b"%d\n" % -errno.EPERM, "nor hand over the last part of a list")
        tap.equal(job.cat("control"), "none\n", "but may read what is in force")
        tap.equal(parts.send([3], token=token, keys="")[0], 0, "and has not destroyed a list that is in the making")
        mount.wait_for(lambda s: s["order"]["epoch"]["length"] == 101, "which is in force as a whole")
        os.close(parts.file)


def order_of_the_environment(place):
    make_source(place)
    env = {"CLAIRFS_ORDER": "torch-distributed:seed=4", "RANK": "1", "WORLD_SIZE": "2"}
    os.environ.update(env)
    try:
        with place.mount() as mount:
            tap.equal(mount.stats()["order"]["spec"], "torch-distributed:seed=4:world=2:rank=1",
                      "CLAIRFS_ORDER is the default of order")
        with place.mount(order="sequential") as mount:
            tap.equal(mount.stats()["order"]["spec"], "sequential", "option order wins over it")
    finally:
        for name in env:
            del os.environ[name]
    told = mountkit.clairfs("mount", place.source, place.mnt, env={**os.environ, "CLAIRFS_ORDER": "nonsense"})
    tap.ok(told.code == 2 and len(told.lines) == 1 and "nonsense" in told.lines[0], "a wrong one is refused", told)


def list_on_a_source_that_hangs(place):
    """Nobody waits for the file but who told it, and unmounting does not."""
    paths = make_source(place)
    write_file(place.path("lists", "order"), "".join(f"{p}\n" for p in paths).encode())
    os.mkdir(place.source + "/slow")
    with mountkit.Slowfs(place, place.path("lists"), place.path("slow")) as slow:
        try:
            with place.mount(recover="quick") as mount:
                program("mount", "--bind", slow.mountpoint, place.source + "/slow")
                os.kill(slow.process.pid, signal.SIGSTOP)
                argv = [CLAIRFS, "announce", mount.mountpoint, f"list:path={place.source}/slow/order"]
                teller = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                try:
                    mountkit.wait_until(lambda: "order-make" in mountkit.threads_of(mount.process.pid), "the file is being opened")
                    # The epoch of a seed that nobody told: finding it puts an order in force.
                    for line in good("order", "torch-randperm:seed=0", "--n", SAMPLES).split():
                        mount.read(paths[int(line)])
                    mount.wait_for(lambda s: s["order"].get("spec"), "an order is found and put in force meanwhile")
                    tap.equal(mount.read(".clairfs/answer"), b"nothing was announced\n", "the one that hangs is not")
                    mount.process.terminate()  # umount would say busy
                    mountkit.wait_until(lambda: f" {mount.mountpoint} ".encode() not in mountkit.read_file("/proc/self/mounts"),
                                        "the mount is taken away although the source hangs")
                    said = teller.communicate()[1].decode().splitlines()
                    # A thread whose request the source has taken cannot be ended: its process stays until there is an answer.
                    os.kill(slow.process.pid, signal.SIGCONT)
                    mount.wait()
                    tap.ok(teller.returncode in (1, 2) and len(said) == 1, "unmounting ends who waits, with one line", said)
                finally:
                    teller.kill()
                    teller.wait()
        finally:
            os.kill(slow.process.pid, signal.SIGCONT)
            program("umount", "-l", place.source + "/slow")


def not_a_mount(place):
    told = mountkit.clairfs("announce", place.source, "sequential")
    tap.ok(told.code == 1 and len(told.lines) == 1 and "not a clairfs mount" in told.lines[0], "announce needs a mount", told)


mountkit.run(told_to_a_mount, lists_in_parts, numbers_of_files, environment, python_module, stranger, order_of_the_environment,
             list_on_a_source_that_hangs, not_a_mount)
