# SPDX-License-Identifier: Apache-2.0
"""Orders told to a mount that runs: before the job, in the middle of an epoch, wrongly, again, from a container in which
only the mount is seen, by somebody who may not, and with the environment that Slurm and torchrun give a job.

Whatever touches the mount is a child with a time limit: a daemon that hangs must fail a test, not hang it.
"""
import os
import sys
import tempfile

import mounted
import tap
from mounted import CLAIRFS, Mount, run

SAMPLES = 1200

IOCTL = """
import fcntl, struct, sys
with open(sys.argv[1] + "/.clairfs/order", "rb") as f:
    hint = bytearray(struct.pack("<Ii4088s", 1, 0, sys.argv[2].encode()))
    fcntl.ioctl(f, 3 << 30 | len(hint) << 16 | 0xCF << 8 | 1, hint)
version, status, text = struct.unpack("<Ii4088s", hint)
print(status, text.split(b"\\0")[0].decode())
"""


STRANGER = "import fcntl, os, struct, sys\nos.setgroups([])\nos.setgid(65534)\nos.setuid(65534)\n"


class Dataset:
    def __init__(self, temp):
        self.source = os.path.join(temp, "source")
        for i in range(SAMPLES):
            path = os.path.join(self.source, f"c{i % 3}", f"s{i}")
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as f:
                f.write(b"%d" % i * 100)
        self.paths = mounted.samples(self.source)

    def in_order(self, spec, epoch=0):
        return [self.paths[i] for i in mounted.order(spec, SAMPLES, epoch)]


def before_the_job(mount, data):
    spec = "torch-randperm:seed=7"
    tap.equal(mount.cat("order"), "none\n", "without an order the file says so")
    told = mount.announce(spec)
    tap.equal((told.returncode, told.stdout, told.stderr), (0, spec + "\n", ""), "announce prints the order in force")
    order = mount.order()
    tap.equal((order["spec"], order["state"]), (spec, "waiting"), "announced before the job, the start is prefetched")
    tap.equal(mount.cat("order"), spec + "\n", "and the file shows it")
    tap.ok(mount.read(data.in_order(spec)[:300]), "the job reads")
    tap.ok(mount.wait(lambda: mount.order()["state"] == "following"), "and is followed", mount.order())
    tap.ok(mount.wait(lambda: mount.order()["epoch"]["position"] == 300), "to where it is", mount.order())


def wrong_spec(mount):
    before = mount.cat("order")
    for spec, word in (("torch-randpern:seed=1", 'did you mean "torch-randperm"'), ("torch-randperm", '"seed" is missing'),
                       ("torch-distributed:world=2:rank=2", "outside the world"), ("", "KIND"),
                       ("list:path=/nowhere/at/all", "/nowhere/at/all")):
        told = mount.announce(spec)
        lines = told.stderr.splitlines()
        tap.ok(told.returncode in (1, 2) and len(lines) == 1 and word in lines[0], f"announce '{spec}' is refused", told)
        direct = run(sys.executable, "-c", IOCTL, mount.point, spec)
        tap.ok(direct.stdout.startswith("-") and word in direct.stdout, f"the mount says the same of '{spec}'", direct)
    answer = mount.cat("announce/torch-distributed:sed=2")
    tap.equal(answer, 'error: order torch-distributed: unknown key "sed", did you mean "seed"?\n', "a lookup answers likewise")
    tap.equal(mount.cat("order"), before, "and the order stays as it was")


def second_announce(mount, data):
    spec = "torch-distributed:seed=3:world=2:rank=1"
    tap.equal(mount.announce(spec).stdout, spec + "\n", "a second announce")
    order = mount.order()
    tap.equal((order["spec"], order["state"]), (spec, "waiting"), "replaces the first")
    mount.read(data.in_order(spec)[:200])
    tap.ok(mount.wait(lambda: mount.order()["state"] == "following"), "and is followed", mount.order())
    told = mount.announce("none")
    tap.equal((told.stdout, mount.order()["state"]), ("none\n", "no_order"), "none takes it back")
    tap.equal(mount.order()["why"], "the order was taken back", "status says so")


def middle_of_an_epoch(mount, data):
    spec = "torch-randperm:seed=99"
    reads = data.in_order(spec)
    mount.read(reads[:400])
    mount.announce(spec)
    tap.ok(mount.wait(lambda: mount.order()["state"] == "following" and mount.order()["epoch"]["position"] == 400),
           "announced in the middle of an epoch, the job is followed from there without another read", mount.order())
    mount.read(reads[400:700])
    tap.ok(mount.wait(lambda: mount.order()["epoch"]["position"] == 700), "and on", mount.order())


def shell(mount, temp, data):
    wrote = run("sh", "-c", f"echo sequential > {mount.point}/.clairfs/order")
    tap.ok(wrote.returncode != 0 and "ead-only" in wrote.stderr, "the kernel refuses writes to a read-only mount", wrote)
    tap.equal(mount.cat("announce/sequential:epochs=2"), "sequential:epochs=2\n", "a lookup announces")
    tap.equal(mount.order()["spec"], "sequential:epochs=2", "and counts")
    with open(os.path.join(temp, "list"), "w", encoding="utf-8") as f:
        f.writelines(f"{p}\n" for p in reversed(data.paths))
    name = f"announce/list:path={temp}/list".replace(temp + "/", temp.replace("/", "%2F") + "%2F")
    tap.equal(mount.cat(name), f"list:path={temp}/list\n", "a path in the name, escaped")
    mount.read(list(reversed(data.paths))[:300])
    tap.ok(mount.wait(lambda: mount.order()["state"] == "following"), "a list of paths is followed", mount.order())
    listing = run("ls", f"{mount.point}/.clairfs")
    tap.ok("announce" in listing.stdout.split() and "order" in listing.stdout.split(), "both are listed", listing)
    inside = run("ls", "-a", f"{mount.point}/.clairfs/announce")
    tap.equal(inside.stdout.split(), [".", ".."], "listing the directory announces nothing")


def container(mount, temp):
    """A mount namespace of its own, in which the mount is all there is of clairfs."""
    inside = os.path.join(temp, "inside")
    os.mkdir(inside)
    script = f"""mount --bind {mount.point} {inside} && umount -l {mount.point} &&
        cat {inside}/.clairfs/announce/torch-randperm:seed=5 && {CLAIRFS} announce {inside} torch-randperm:seed=6 &&
        exec {sys.executable} -c "$0" {inside} torch-randperm:seed=8"""
    told = run("unshare", "-m", "sh", "-c", script, IOCTL)
    tap.equal(told.stdout.split("\n"), ["torch-randperm:seed=5", "torch-randperm:seed=6", "0 torch-randperm:seed=8", ""],
              "from a container: lookup, command, ioctl")
    tap.equal(mount.order()["spec"], "torch-randperm:seed=8", "reach the daemon outside")


def environment(mount):
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8"}
    torchrun = {"RANK": "1", "WORLD_SIZE": "4"}
    for env, spec, want in (
            (slurm, "torch-distributed:seed=1", "torch-distributed:seed=1:world=8:rank=3"),
            ({**slurm, **torchrun}, "torch-distributed:seed=1", "torch-distributed:seed=1:world=4:rank=1"),
            ({**slurm, "RANK": "1"}, "torch-distributed", "torch-distributed:world=8:rank=3"),
            (slurm, "torch-distributed:world=2", "torch-distributed:world=2"),
            (slurm, "torch-distributed:world=9:ranks=0-1", "torch-distributed:world=9:ranks=0-1"),
            ({"RANK": "x", "WORLD_SIZE": "y"}, "torch-randperm:seed=1", "torch-randperm:seed=1"),
            ({"RANK": "0", "WORLD_SIZE": "1"}, "torch-distributed:seed=2", "torch-distributed:seed=2")):
        tap.equal(mount.announce(spec, env).stdout, want + "\n", f"{spec} with {env}")
    before = mount.cat("order")
    for rank, world in (("x", "4"), ("-1", "4"), ("4", "4"), ("0", "0"), ("0", "99999999999999999999"), ("", "4"),
                        ("0", "4:seed=3"), ("0\n", "4"), ("\x1b[2J", "4")):
        told = mount.announce("torch-distributed:seed=1", {"RANK": rank, "WORLD_SIZE": world})
        lines = told.stderr.splitlines()
        tap.ok(told.returncode == 2 and len(lines) == 1 and "environment variable" in lines[0] and "\x1b" not in lines[0],
               f"RANK={rank!r} WORLD_SIZE={world!r} is refused with one line", told)
    tap.equal(mount.cat("order"), before, "nothing of that came through")


def python(mount, temp):
    """The module, with a Python that has nothing but the standard library."""
    package = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
    script = """if True:
        import sys
        sys.path.insert(0, sys.argv[2])
        import clairfs
        print(clairfs.announce("torch-randperm:seed=21:epochs=3", sys.argv[1]))
        print(clairfs.announce(range(1199, -1, -1), sys.argv[1]).split(":")[0])
        for wrong in "torch-randpern:seed=1", "sequential:path=x" * 500, [5000], [0, -1]:
            try:
                print("took", wrong, clairfs.announce(wrong, sys.argv[1]))
            except (clairfs.AnnounceError, OverflowError) as e:
                print(type(e).__name__, len(str(e).splitlines()))
        try:
            clairfs.announce("sequential", "/")
        except clairfs.AnnounceError as e:
            print(e)
        print(sorted(m for m in sys.modules if m.split(".")[0] in ("torch", "numpy")))"""
    told = run(sys.executable, "-I", "-c", script, mount.point, package, env={"TMPDIR": temp})
    tap.equal(told.stdout.splitlines(), ["torch-randperm:seed=21:epochs=3", "list", "AnnounceError 1", "AnnounceError 1",
                                         "AnnounceError 1", "OverflowError 1", "/: not a clairfs mount that takes orders", "[]"],
              "the Python module announces specs and lists, and says what is wrong")
    tap.note(told.stderr)
    tap.equal([f for f in os.listdir(temp) if f.startswith("clairfs-")], [], "no list file stays behind")
    tap.ok(mount.order()["spec"].startswith("list:path="), "the list is in force")


def stranger(temp, data):
    with Mount(temp, data.source, "allow_other") as mount:
        told = run(sys.executable, "-c", STRANGER + IOCTL, mount.point, "sequential")
        tap.ok(told.stdout.startswith("-1 ") and "only root" in told.stdout, "another user may not announce", told)
        seen = run("cat", f"{mount.point}/.clairfs/announce/sequential", user=65534, group=65534, extra_groups=[])
        tap.ok(seen.stdout.startswith("error: only root"), "nor by a lookup", seen)
        tap.equal(mount.cat("order"), "none\n", "but may read what is in force")


def order_of_the_environment(temp, data):
    env = {"CLAIRFS_ORDER": "torch-distributed:seed=4", "SLURM_PROCID": "1", "SLURM_NTASKS": "2"}
    with Mount(temp, data.source, env=env) as mount:
        tap.equal(mount.order()["spec"], "torch-distributed:seed=4:world=2:rank=1", "CLAIRFS_ORDER is the default of order")
    with Mount(temp, data.source, "order=sequential", env=env) as mount:
        tap.equal(mount.order()["spec"], "sequential", "option order wins over it")
    point = os.path.join(temp, "unused")
    os.mkdir(point)
    told = run(CLAIRFS, "mount", data.source, point, env={"CLAIRFS_ORDER": "nonsense"})
    tap.ok(told.returncode == 2 and len(told.stderr.splitlines()) == 1 and "nonsense" in told.stderr, "a wrong one is refused",
           told)


def not_a_mount(temp):
    told = run(CLAIRFS, "announce", temp, "sequential")
    tap.ok(told.returncode == 1 and "not a clairfs mount" in told.stderr, "announce needs a mount", told)


def main():
    with tempfile.TemporaryDirectory() as temp:
        os.chmod(temp, 0o755)
        data = Dataset(temp)
        with Mount(temp, data.source) as mount:
            before_the_job(mount, data)
            wrong_spec(mount)
            second_announce(mount, data)
            middle_of_an_epoch(mount, data)
            shell(mount, temp, data)
            container(mount, temp)
            environment(mount)
            python(mount, temp)
        stranger(temp, data)
        order_of_the_environment(temp, data)
        not_a_mount(temp)
    tap.done()


main()
