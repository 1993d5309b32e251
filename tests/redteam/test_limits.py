# SPDX-License-Identifier: Apache-2.0
"""Little of everything: descriptors, address space, memory of a cgroup, room for the store, inotify, io_uring. Every read is
right in each, nothing is killed, and what does not work for it is said in one clear line, or two, never in hundreds.

Nothing of the machine is changed: limits are those of the daemon or of a child cgroup that is removed again, and io_uring and
inotify are refused by a seccomp filter of the daemon alone.
"""
import contextlib
import errno
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from redkit import warnings_of
import mountkit
import tap
from mountkit import CLAIRFS, Crew, Mount, program, rng

MIB = 1 << 20


class Limited(Mount):
    """A mount with nothing but these options: the defaults are what is tried. prefix starts the daemon."""

    def __init__(self, place, options, prefix=(), user=None):
        mountkit.Daemon.__init__(self, place, "clairfs")
        self.mountpoint = place.mnt
        options = {"snapshot_dir": place.snapshots, "recover": "off", "control_reads": "off", **options}
        argv = [*prefix, CLAIRFS, "mount", "-f", "-o", mountkit.options_text(options), place.source, place.mnt]
        who = {"user": user, "group": user, "extra_groups": []} if user else {}
        self.start(argv, mountkit.environment(place), **who)
        self.wait_mounted(self.mountpoint)
        mountkit.wait_until(lambda: " is mounted on " in self.text() or self.process.poll() is not None, "the mount is ready")
        self.check_alive()


def read_twice(mount, data, name, readers=8):
    """Every byte, by several at once; then by one."""
    wrong = []

    def work(number):
        for at, (path, content) in enumerate(data.items()):
            if at % readers == number and mount.read(path) != content:
                wrong.append(path)
    for n in (readers, 1):
        crew, readers = Crew(), n
        for number in range(n):
            crew.add(work, number)
        tap.no_findings(crew.join(), f"{name}: no read fails, {n} readers")
    tap.equal(wrong, [], f"{name}: every byte is right")
    mount.check_alive()


def says(mount, name, most=3):
    said = warnings_of(mount)
    tap.ok(len(said) <= most, f"{name}: {len(said)} warnings, {most} at most", *said[:20])
    for line in said:
        tap.note(line)
    return said


def descriptors(place):
    data = place.files([rng.choice((100, 5000, 70000, 300000)) for _ in range(300)])
    for limit in (64, 128, 256):
        store = place.path(f"kept{limit}")
        os.mkdir(store, 0o700)
        options = {"order": place.list_file(range(300)), "store_dir": store, "store_keep_free": 0, "store_bytes": "64M", "ram": "32M"}
        with Limited(place, options, ("prlimit", f"--nofile={limit}:{limit}")) as mount:
            read_twice(mount, data, f"{limit} descriptors")
            says(mount, f"{limit} descriptors")


def address_space(place):
    data = place.files([rng.choice((100, 5000, 70000, MIB)) for _ in range(300)])
    for limit in (64, 512, 1024):
        name = f"an address space of {limit} MiB"
        try:
            with Limited(place, {"order": place.list_file(range(300))}, ("prlimit", f"--as={limit * MIB}")) as mount:
                read_twice(mount, data, name)
                says(mount, name)
        except mountkit.Failed as e:
            said = str(e).splitlines()[1:]
            tap.ok(limit < 100 and len(said) <= 2, f"{name}: it mounts, or two lines say why not where that is too little", e)


def large_files(place, n, size):
    """Files that are mostly holes: many bytes to hold, few on the disk."""
    for i in range(n):
        with open(os.path.join(place.source, f"f{i:04d}"), "wb") as file:
            file.truncate(size)
            for _ in range(3):
                os.pwrite(file.fileno(), rng.randbytes(4096), rng.randrange(0, size - 4096))


@contextlib.contextmanager
def small_cgroup(limit):
    """The file that takes a process's id in, of a child cgroup with so much memory; version 1 or 2, what this machine has."""
    if os.path.exists("/sys/fs/cgroup/cgroup.controllers"):
        root, limits = "/sys/fs/cgroup", {"memory.max": limit, "memory.swap.max": 0}
        with contextlib.suppress(OSError):
            with open(f"{root}/cgroup.subtree_control", "w", encoding="ascii") as file:
                file.write("+memory")
    else:
        root, limits = "/sys/fs/cgroup/memory", {"memory.limit_in_bytes": limit}
    path = f"{root}/clairfs-redteam-{os.getpid()}"
    os.mkdir(path)
    try:
        for name, value in limits.items():
            with contextlib.suppress(FileNotFoundError):  # a kernel without swap accounting
                with open(f"{path}/{name}", "w", encoding="ascii") as file:
                    file.write(str(value))
        yield f"{path}/cgroup.procs"
    finally:
        mountkit.wait_until(lambda: not mountkit.read_file(f"{path}/cgroup.procs"), "the cgroup is empty", 30)
        mountkit.wait_until(lambda: removed(path), "the cgroup is removed", 30)


def removed(path):
    with contextlib.suppress(OSError):
        os.rmdir(path)
    return not os.path.exists(path)


def memory_of_a_cgroup(place):
    """Default budgets, 600 MiB read in an order, 256 MiB of memory."""
    n, size = 150, 4 * MIB
    large_files(place, n, size)
    names = sorted(os.listdir(place.source))
    with small_cgroup(256 * MIB) as procs:
        with Limited(place, {"order": place.list_file(list(range(n)) * 2)},
                     ("sh", "-c", f'echo $$ > {procs} && exec "$@"', "sh")) as mount:
            wrong = []

            def work(number):
                for name in names[number::4] * 2:
                    if mount.read(name) != mountkit.read_file(os.path.join(place.source, name)):
                        wrong.append(name)
            crew = Crew()
            for number in range(4):
                crew.add(work, number)
            tap.no_findings(crew.join(), "a cgroup with 256 MiB: no read fails, nothing is killed")
            tap.equal(wrong, [], "and every byte is right")
            mount.check_alive()
            gauges = mount.stats()["gauges"]
            tap.ok(gauges["arena_limit_bytes"] <= 192 * MIB, "the default budget leaves room in the cgroup", gauges["arena_limit_bytes"])
            text = mountkit.good("status", place.mnt).decode()
            tap.ok("cgroup" in text, "and status says where it comes from", text)


def full_store(place):
    """A drive of 4 MiB, and somebody who fills it while it is used."""
    data = place.files([64 << 10] * 200)
    small = place.path("small")
    os.mkdir(small)
    if program("mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "clairfs-test", small).code:
        raise mountkit.Failed("mount of a tmpfs")
    with contextlib.ExitStack() as stack:
        stack.callback(program, "umount", small)
        options = {"store_dir": small, "store_bytes": "64M", "store_keep_free": 0, "ram": "16M"}
        with Limited(place, options) as mount:
            read_twice(mount, data, "a full drive")
            with contextlib.suppress(OSError):
                with open(os.path.join(small, "theirs"), "wb", buffering=0) as file:
                    while file.write(bytes(1 << 16)):
                        pass
            read_twice(mount, data, "a drive that somebody fills")
            says(mount, "a full drive")


# Loads a seccomp filter that answers some system calls with an errno, as containers and exhausted limits do, and becomes the
# daemon. The first argument: NUMBER=ERRNO,...
REFUSING = """
import ctypes, os, struct, sys
rows = [(0x20, 0, 0, 0)]
for pair in sys.argv[1].split(","):
    number, error = map(int, pair.split("="))
    rows += [(0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error)]
rows.append((0x06, 0, 0, 0x7fff0000))
room = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *row) for row in rows))
class Program(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.byref(Program(len(rows), ctypes.addressof(room))), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.argv[2], sys.argv[2:])
"""
CALLS = {"x86_64": (294, 254), "aarch64": (26, 27)}  # inotify_init1, inotify_add_watch; io_uring_setup is 425 everywhere


def refusing(number, error):
    return sys.executable, "-c", REFUSING, f"{number}={error}"


def inotify(place):
    """The user who mounts has used up what inotify gives one: instances, or watches."""
    data = place.files([rng.choice((100, 70000)) for _ in range(200)])
    init, add = CALLS[os.uname().machine]
    for number, error, word in ((init, errno.EMFILE, "max_user_instances"), (add, errno.ENOSPC, "max_user_watches")):
        with Limited(place, {"order": place.list_file(range(200)), "ram": "32M"}, refusing(number, error)) as mount:
            read_twice(mount, data, f"{word} used up")
            said = says(mount, f"{word} used up")
            tap.ok(any(word in line for line in said), f"{word} used up: a line says what to raise", said)


def io_uring(place):
    data = place.files([rng.choice((100, 5000, 70000, MIB)) for _ in range(200)])
    for engine, prefix in (("pool", ()), ("auto", refusing(425, errno.EPERM))):
        what = f"engines {engine}" + (", io_uring refused" if prefix else "")
        store = place.path("kept-" + engine)
        os.mkdir(store, 0o700)
        options = {"order": place.list_file(range(200)), "ram": "32M", "debug": {"source_engine": engine, "store_engine": engine},
                   "store_dir": store, "store_bytes": "64M", "store_keep_free": 0}
        with Limited(place, options, prefix) as mount:
            read_twice(mount, data, what)
            tap.equal((mount.stats()["engines"]["source"], mount.stats()["engines"]["store"]), ("pool", "pool"), f"{what}: threads read")
            says(mount, what)


mountkit.run(descriptors, address_space, memory_of_a_cgroup, full_store, inotify, io_uring)
