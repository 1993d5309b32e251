# SPDX-License-Identifier: Apache-2.0
"""A store of several mounts at once: two and four daemons of one user under load on one directory, some of them killed on
the way; nobody else's directory is taken; and a drive that is full, read-only or gone costs speed only."""
import contextlib
import json
import os

import mountkit
import tap
from jobs import Account, Job
from mountkit import Crew, Failed, clairfs, program, rng

N, SIZE = 240, 48 << 10
OPTIONS = {"ram": "16M", "store_keep_free": 0, "store_bytes": "64M"}


def orders(place, name, epochs):
    sequences = [rng.sample(range(N), N) for _ in range(epochs)]
    lines = [line for epoch, sequence in enumerate(sequences) for line in (f"# epoch {epoch}", *sequence)]
    return place.list_file(lines, name), sequences


def kill(mount):
    mountkit.send(mount.process, mountkit.signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    done = clairfs("umount", mount.mountpoint)
    if done.code:
        raise Failed(f"umount of what is left of a killed daemon: {done}")


def store_at(*parts):
    path = os.path.join(*parts)
    os.mkdir(path, 0o700)
    return path


def kept_bytes(mount):
    return mount.stats()["store"]["record_bytes"]


class Node:
    """One job: its own mount and order, the store of everybody."""

    def __init__(self, place, data, number, store, n_epochs=2):
        self.place, self.data, self.store = place, data, store
        self.mountpoint = place.path(f"mnt{number}")
        os.makedirs(self.mountpoint, exist_ok=True)
        self.spec, self.sequences = orders(place, f"order{number}.txt", n_epochs)
        self.wrong, self.written, self.errors = [], 0, 0

    def mount(self):
        return self.place.mount(mountpoint=self.mountpoint, order=self.spec, store_dir=self.store, **OPTIONS)

    def end(self, mount):
        counters = mount.counters()
        self.written += counters["store_bytes_written"]
        self.errors += counters["store_errors"] + counters["read_errors"]
        mount.stop()

    def work(self, is_killed):
        mount = self.mount()
        if is_killed:
            # In the middle of the epoch; what its writer is doing in that moment is up to the machine.
            job = Job(mount, self.data)
            for at in range(0, N // 2, 32):
                job.wait_ready(0, at, N, 32)
                job.read(self.sequences[0][at:at + 32])
            self.wrong += job.wrong
            kill(mount)
            mount = self.mount()
        job = Job(mount, self.data)
        for epoch in range(2):
            job.epoch(epoch, self.sequences[epoch])
        self.wrong += job.wrong
        self.end(mount)


def concurrent(place, n):
    data = place.files([SIZE] * (N - 1) + [3 << 19], name=f"n{n}-{{:05d}}.bin")
    store = store_at(place.root, "shared")
    nodes = [Node(place, data, i, store) for i in range(n)]
    crew = Crew()
    for i, node in enumerate(nodes):
        crew.add(node.work, i % 2 == 1)  # every other one is killed
    tap.equal(crew.join(), [], f"{n} daemons on one store, half of them killed on the way: all come to their end")
    tap.equal([w for node in nodes for w in node.wrong], [], "every byte was right")
    tap.equal(sum(node.errors for node in nodes), 0, "no error of the store and no failed read")
    total = sum(map(len, data.values()))
    done = clairfs("store", "verify", store, "--json")
    found = json.loads(done.out)
    tap.ok(done.code == 0 and found["wrong"] == 0 and found["records"] > 0, "every record that they left is right", found)
    # One more job fills what is missing; the next finds all. A sample is kept when it is read, unless the writer has too much
    # to do or the store has just been full: then in a later epoch.
    last = Node(place, data, n, store, 30)
    mount = last.mount()
    job = Job(mount, data)
    for epoch, sequence in enumerate(last.sequences):
        job.epoch(epoch, sequence)
        if kept_bytes(mount) >= total:
            break
    tap.ok(kept_bytes(mount) >= total, "one more job keeps everything", mount.stats()["store"])
    last.end(mount)
    with last.mount() as mount:
        account = Account(mount)
        job = Job(mount, data)
        job.epoch(0, last.sequences[0])
        counters = account.settled(N)
        tap.equal(counters["source_reads"], 0, "a job that comes later reads nothing from the source")
        tap.equal(job.wrong + last.wrong, [], "and every byte is right")


def two_daemons(place):
    concurrent(place, 2)


def four_daemons(place):
    concurrent(place, 4)


def refused(place):
    """One line, exit code 1, and nothing happens to the directory."""
    place.files([100] * 3)
    ours = place.path("ours")
    os.mkdir(ours, 0o700)

    def check(directory, part, what):
        before = sorted(os.listdir(directory))
        done = clairfs("mount", "-o", mountkit.options_text({"snapshot_dir": place.snapshots, "store_dir": directory, **OPTIONS}),
                       place.source, place.mnt)
        tap.ok(done.code == 1 and len(done.lines) == 1 and part in done.lines[0], f"{what} is refused in one line", done)
        tap.equal(sorted(os.listdir(directory)), before, f"{what} stays as it was")

    os.symlink(ours, place.path("link"))
    check(place.path("link"), "store", "a symbolic link")
    os.chmod(ours, 0o777)
    check(ours, "others may write", "a directory that others may write to")
    os.chmod(ours, 0o700)
    mountkit.write_file(os.path.join(ours, "thesis.tex"), b"years of work")
    check(ours, "thesis.tex", "a directory with something else in it")
    os.unlink(os.path.join(ours, "thesis.tex"))
    os.chown(ours, 65534, 65534)
    check(ours, "belongs to user 65534", "a directory of another user")
    os.chown(ours, 0, 0)


def small_drive(stack, place, size):
    small = place.path("small")
    os.mkdir(small)
    done = program("mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "clairfs-test", small)
    if done.code:
        raise Failed(f"mount of a tmpfs: {done}")
    stack.callback(program, "umount", "-l", small)
    return small


def fill_up(path):
    with contextlib.suppress(OSError):
        with open(path, "wb", buffering=0) as file:
            while file.write(bytes(1 << 16)):
                pass


def epochs(mount, data, sequences):
    job = Job(mount, data)
    for epoch, sequence in enumerate(sequences):
        job.epoch(epoch, sequence)
    return job.wrong


def warned_once(mount, why):
    warnings = [line for line in mount.text().splitlines() if "warning" in line]
    tap.ok(len(warnings) == 1 and why in warnings[0] and "store" in warnings[0], f"one warning says why: {why}", mount.text())


def mounted_behind(place, options, why, what):
    """Mounted in the background, and taken away again: a warning is no reason not to, and the terminal hears of it."""
    done = clairfs("mount", "-o", mountkit.options_text({"snapshot_dir": place.snapshots, **options}), place.source, place.mnt)
    tap.equal((done.code, len(done.lines)), (0, 1), what)
    tap.ok(any("warning: store" in line and why in line for line in done.lines), f"it is said: {why}", done.lines)
    mountkit.good("umount", place.mnt)


def full_drive(place):
    data = place.files([SIZE] * N)
    spec, sequences = orders(place, "order.txt", 3)
    with contextlib.ExitStack() as stack:
        small = small_drive(stack, place, "4m")
        store = store_at(small, "store")
        with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
            tap.equal(epochs(mount, data, sequences[:2]), [], "a drive of 4 MiB: every byte is right")
            tap.equal(mount.counters()["read_errors"], 0, "no read failed")
        with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
            tap.ok(0 < kept_bytes(mount) <= 4 << 20, "what fitted is there in the next mount", mount.stats()["store"])
            tap.equal(epochs(mount, data, sequences[:2]), [], "and every byte is right")
        tap.equal(clairfs("store", "purge", store).code, 0, "it can be emptied")
        # Somebody else fills the drive, and makes room again.
        theirs = os.path.join(small, "theirs")
        fill_up(theirs)
        with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
            wrong = epochs(mount, data, sequences[:1])
            mount.wait_for(lambda s: s["store"]["is_off"] or s["store"].get("is_write_off"), "the store is switched off")
            tap.ok(mount.counters()["store_off_times"] > 0, "a full drive switches the store off, which is counted")
            os.unlink(theirs)
            mount.wait_for(lambda s: not s["store"].get("is_write_off"), "the store comes back")
            job = Job(mount, data)
            job.epoch(1, sequences[1])
            job.epoch(2, sequences[2])
            mount.wait_for(lambda s: s["store"]["record_bytes"] > 0, "something is kept")
            tap.equal(wrong + job.wrong, [], "it comes back when there is room, and every byte is right")


def read_only_drive(place):
    data = place.files([SIZE] * N)
    spec, sequences = orders(place, "order.txt", 3)
    with contextlib.ExitStack() as stack:
        small = small_drive(stack, place, "32m")
        store = store_at(small, "store")
        with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
            tap.equal(epochs(mount, data, sequences[:1]), [], "every byte is right")
            mount.wait_for(lambda s: s["store"]["record_bytes"] > 0, "something is kept")
        # Once it runs nobody can do this to it: its files are open for writing. (EROFS in the middle is a test in tests/fault.)
        done = program("mount", "-o", "remount,ro", small)
        if done.code:
            raise Failed(f"remount: {done}")
        mounted_behind(place, {"store_dir": store, "order": spec, **OPTIONS}, "Read-only", "a read-only drive is no reason not to mount")
        with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
            warned_once(mount, "Read-only")
            stats = mount.stats()
            tap.ok(stats["store"]["is_write_off"] and not stats["store"]["is_off"] and "written" in stats["store"]["why"],
                   "status says that it is not written", stats["store"])
            tap.equal((stats["gauges"]["store_off"], stats["counters"]["store_off_times"]), (1, 1), "which is counted")
            tap.equal(epochs(mount, data, sequences[:2]), [], "and every byte is right")
            tap.ok(mount.counters()["store_reads"] > 0, "what it holds is read from it", mount.counters())
            tap.equal(mount.counters()["store_bytes_written"], 0, "nothing was written")
            if program("mount", "-o", "remount,rw", small).code:
                raise Failed("remount")
            mount.wait_for(lambda s: not s["store"]["is_write_off"], "it is written again when that can be")
            tap.equal(epochs(mount, data, sequences[2:]), [], "then, too, every byte is right")
        tap.equal(clairfs("store", "verify", store).code, 0, "what it holds is right")


def closed_directory(place):
    """Nobody but its owner may look into it, who has taken that from himself: root without what makes it root."""
    data = place.files([SIZE] * 8)
    store = store_at(place.root, "closed")
    os.chmod(store, 0)
    prefix = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")
    with mountkit.Mount(place, place.source, place.mnt, {"store_dir": store, **OPTIONS}, prefix) as mount:
        warned_once(mount, "Permission denied")
        stats = mount.stats()
        tap.ok(stats["store"]["is_off"] and "without it" in stats["store"]["why"], "status says that there is none", stats["store"])
        tap.equal((stats["gauges"]["store_off"], stats["counters"]["store_off_times"]), (1, 1), "which is counted")
        tap.ok(b"store     none: its directory" in mountkit.good("status", place.mnt), "also in words")
        for name, content in data.items():
            with open(place.path("mnt", name), "rb") as file:
                tap.ok(file.read() == content, f"{name} is right")
    os.chmod(store, 0o700)


def full_from_the_start(place):
    data = place.files([SIZE] * 8)
    with contextlib.ExitStack() as stack:
        small = small_drive(stack, place, "4m")
        store = store_at(small, "store")
        theirs = os.path.join(small, "theirs")
        fill_up(theirs)
        mounted_behind(place, {"store_dir": store, **OPTIONS}, "No space left", "a full drive is no reason not to mount")
        with place.mount(store_dir=store, **OPTIONS) as mount:
            warned_once(mount, "No space left")
            for name, content in data.items():
                with open(place.path("mnt", name), "rb") as file:
                    tap.ok(file.read() == content, f"{name} is right")
            os.unlink(theirs)
            mount.wait_for(lambda s: not s["store"]["is_write_off"], "it comes back when there is room")
        tap.equal(clairfs("store", "ls", store).code, 0, "then it is a store")


def removed_directory(place):
    data = place.files([SIZE] * N)
    spec, sequences = orders(place, "order.txt", 3)
    store = store_at(place.root, "gone")
    with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
        wrong = epochs(mount, data, sequences[:1])
        mount.wait_for(lambda s: s["store"]["record_bytes"] > 0, "something is kept")
        for name in os.listdir(store):
            os.unlink(os.path.join(store, name))
        os.rmdir(store)
        job = Job(mount, data)
        for epoch in (1, 2):
            job.epoch(epoch, sequences[epoch])
        tap.equal(wrong + job.wrong, [], "removed while it is used: every byte is right")
        tap.equal(mount.counters()["read_errors"], 0, "no read failed")
    tap.ok(not os.path.exists(store), "it stays removed")


def cut_off_files(place):
    """Segments truncated below a running mount, or with bytes changed in them."""
    data = place.files([SIZE] * N)
    spec, sequences = orders(place, "order.txt", 3)
    store = store_at(place.root, "spoiled")
    with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
        wrong = epochs(mount, data, sequences[:2])
        mount.wait_for(lambda s: s["store"]["record_bytes"] > 0, "something is kept")
    def segments():
        return [os.path.join(store, name) for name in os.listdir(store) if name.startswith("seg-")]
    for path in segments():
        with open(path, "r+b") as file:
            file.seek(os.path.getsize(path) // 2)
            file.write(rng.randbytes(100000))
    tap.equal(clairfs("store", "verify", store).code, 1, "verify finds changed bytes")
    with place.mount(order=spec, store_dir=store, **OPTIONS) as mount:
        wrong += epochs(mount, data, sequences[:1])
        for path in segments():
            os.truncate(path, os.path.getsize(path) // 3)
        job = Job(mount, data)
        job.epoch(1, sequences[1])
        job.epoch(2, sequences[2])
        tap.equal(wrong + job.wrong, [], "changed bytes and files cut off below a mount: every byte is right")
        tap.equal(mount.counters()["read_errors"], 0, "no read failed")


mountkit.run(two_daemons, four_daemons, refused, full_drive, read_only_drive, closed_directory, full_from_the_start, removed_directory, cut_off_files)
