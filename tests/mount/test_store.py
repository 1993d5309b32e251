# SPDX-License-Identifier: Apache-2.0
"""Samples kept on a local drive from one epoch to the next: the source is asked less, nothing is visible, nothing is left,
and a drive that is full costs speed only."""
import contextlib
import json
import os

import mountkit
import tap
from jobs import Account, Job, dropped
from mountkit import program, rng, wait_until

N, SIZE = 320, 64 << 10  # 20 MiB, more than the RAM below
OPTIONS = {"ram": "16M", "store_keep_free": 0, "store_keep": "off"}


def spec_of(place, epochs):
    sequences = []
    for _ in range(epochs):
        sequence = list(range(N))
        rng.shuffle(sequence)
        sequences.append(sequence)
    lines = [line for epoch, sequence in enumerate(sequences) for line in (f"# epoch {epoch}", *sequence)]
    return place.list_file(lines), sequences


def kept(mount):
    return mount.stats()["gauges"]["store_bytes"]


def everything_fits(place):
    data = place.files([SIZE] * N)
    spec, sequences = spec_of(place, 8)
    with place.mount(order=spec, store_dir=place.store, store_bytes="64M", **OPTIONS) as mount:
        job = Job(mount, data)
        tap.ok(mount.stats()["engines"]["store"] in ("pool", "uring"), "the store runs", mount.stats()["engines"])
        tap.equal(os.listdir(place.store), [], "nothing is visible in the store's directory")
        # How soon everything is written depends on the machine, that it will be does not.
        epoch = 0
        while epoch < 7 and kept(mount) < N * SIZE:
            job.epoch(epoch, sequences[epoch])
            epoch += 1
        tap.ok(kept(mount) >= N * SIZE, f"after {epoch} epochs everything is kept", kept(mount), mount.counters())
        account = Account(mount)
        job.epoch(epoch, sequences[epoch])
        counters = account.settled(N)
        tap.equal(counters["source_reads"], 0, "then an epoch reads nothing from the source")
        tap.ok(counters["store_reads"] > 0 and counters["store_errors"] == 0, "it comes from the store", counters)
        written = mount.counters()["store_bytes_written"]
        tap.ok(written < 2 * N * SIZE, f"every sample was written once: {written} bytes")
        gauges = mount.stats()["gauges"]
        tap.equal(gauges["store_expected_bytes"], N * (SIZE + 4096), "it was expected to take a page for each seal")
        tap.ok(0.9 * N * SIZE <= gauges["store_payload_bytes"] <= N * SIZE, "what it holds are samples", gauges)
        text = mountkit.good("status", place.mnt).decode()
        tap.ok("bytes written per byte read" in text and "% of it samples" in text, "status says what the drive was asked", text)
        metrics = mountkit.read_file(os.path.join(place.mnt, ".clairfs", "metrics")).decode()
        tap.ok(all(f"clairfs_store_{name}" in metrics for name in ("bytes_written_total", "read_bytes_total", "payload_bytes",
               "expected_bytes", "sealed_bytes_total", "reserved_bytes_total")), "and so does the text for Prometheus", metrics)
        tap.equal(job.wrong, [], "every byte was right")
        tap.equal(os.listdir(place.store), [], "still nothing is visible")


def half_fits(place):
    data = place.files([SIZE] * N)
    spec, sequences = spec_of(place, 8)
    with place.mount(order=spec, store_dir=place.store, store_bytes="10M", **OPTIONS) as mount:
        job = Job(mount, data)
        epoch = 0
        while epoch < 4 and kept(mount) < 9 << 20:
            job.epoch(epoch, sequences[epoch])
            epoch += 1
        pinned = kept(mount) // (SIZE + 8192)  # at least so many samples
        tap.ok(9 << 20 <= kept(mount) <= 10 << 20, "the store fills its budget and no more", kept(mount))
        account = Account(mount)
        for more in range(2):
            job.epoch(epoch + more, sequences[epoch + more])
        counters = account.settled(2 * N)
        # The start of the epoch after is fetched ahead as well: at most what RAM holds.
        ahead = (16 << 20) // SIZE
        tap.ok(counters["source_reads"] <= 2 * (N - pinned) + ahead + dropped(counters),
               "the source is asked for what does not fit only", f"{pinned} samples are kept", counters)
        tap.equal(job.wrong, [], "every byte was right")


def killed(place):
    data = place.files([SIZE] * N)
    spec, sequences = spec_of(place, 2)
    mount = place.mount(order=spec, store_dir=place.store, store_bytes="64M", **OPTIONS)
    job = Job(mount, data)
    job.epoch(0, sequences[0])
    mount.wait_for(lambda s: s["gauges"]["store_bytes"] > 0, "something is kept")
    mountkit.send(mount.process, mountkit.signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    tap.equal(os.listdir(place.store), [], "a killed daemon leaves nothing in the store's directory")
    tap.equal(mountkit.clairfs("umount", place.mnt).code, 0, "its mount can be taken down")


def full_drive(place):
    data = place.files([SIZE] * N)
    spec, sequences = spec_of(place, 3)
    small = place.path("small")
    os.mkdir(small)
    done = program("mount", "-t", "tmpfs", "-o", "size=4m,mode=0700", "clairfs-test", small)
    if done.code:
        raise mountkit.Failed(f"mount of a tmpfs: {done}")
    with contextlib.ExitStack() as stack:
        stack.callback(program, "umount", small)
        for budget in ("0", "64M"):
            with place.mount(order=spec, store_dir=small, store_bytes=budget, **OPTIONS) as mount:
                job = Job(mount, data)
                for epoch in range(2):
                    job.epoch(epoch, sequences[epoch])
                tap.equal(job.wrong, [], f"a drive of 4 MiB, store_bytes={budget}: every byte is right")
                tap.ok(kept(mount) <= 4 << 20, "what is kept fits", kept(mount))
                tap.equal(mount.counters()["read_errors"], 0, "no read failed")
                tap.equal(os.listdir(small), [], "nothing is visible on it")
        # And somebody else fills the drive while the store uses it.
        with place.mount(order=spec, store_dir=small, store_bytes="3M", **OPTIONS) as mount:
            job = Job(mount, data)
            with contextlib.suppress(OSError):
                with open(os.path.join(small, "theirs"), "wb", buffering=0) as file:
                    while file.write(bytes(1 << 16)):
                        pass
            for epoch in range(2):
                job.epoch(epoch, sequences[epoch])
            tap.equal(job.wrong, [], "a drive that somebody else fills: every byte is right")
            os.unlink(os.path.join(small, "theirs"))
        wait_until(lambda: os.statvfs(small).f_bfree * os.statvfs(small).f_frsize >= 4 << 20, "the space is given back")
        tap.ok(True, "the space is given back when the mount ends")


def warm(place):
    """The next job, after an orderly end and after a kill, reads what was kept from the store."""
    data = place.files([SIZE] * (N - 2) + [3 << 19, 100])
    spec, sequences = spec_of(place, 4)
    store, total = place.path("kept"), sum(map(len, data.values()))
    os.mkdir(store, 0o755)
    options = {**OPTIONS, "store_keep": "on", "store_bytes": "64M", "store_dir": store, "order": spec}
    mount = place.mount(**options)
    job = Job(mount, data)
    epoch = 0
    while epoch < 3 and mount.stats()["store"]["record_bytes"] < total:
        job.epoch(epoch, sequences[epoch])
        epoch += 1
    mount.wait_for(lambda s: s["store"]["record_bytes"] >= total, "everything is kept")
    wrong = job.wrong
    tap.equal(os.stat(store).st_mode & 0o7777, 0o700, "the store's directory is closed to others")
    tap.ok(all(os.stat(os.path.join(store, name)).st_mode & 0o77 == 0 for name in os.listdir(store)), "and so are its files")
    mountkit.send(mount.process, mountkit.signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    tap.equal(mountkit.clairfs("umount", place.mnt).code, 0, "its mount can be taken down")
    for what in ("after kill -9", "after an orderly end", "with a store that is verified at the first read"):
        if "first" in what:
            options["store_verify"] = "first"
        with place.mount(**options) as mount:
            job = Job(mount, data)
            account = Account(mount)
            job.epoch(0, sequences[0])
            counters = account.settled(N)
            tap.equal(counters["source_reads"], 0, f"{what} an epoch reads nothing from the source")
            written = mount.counters()["store_bytes_written"]
            tap.ok(written < SIZE, "and writes no sample to the store", written)  # a footer for what the killed one left
            tap.equal(mount.counters()["store_errors"], 0, "no record was wrong")
            wrong += job.wrong
    changed = next(iter(data))
    with open(place.path("source", changed), "r+b") as file:
        file.write(b"another version")
    data[changed] = b"another version" + data[changed][15:]
    with place.mount(**options) as mount:
        job = Job(mount, data)
        job.epoch(0, sequences[0])
        wrong += job.wrong
    tap.equal(wrong, [], "every byte was right, also of a file that has changed meanwhile")


def below(place):
    """What is mounted below the source may be exchanged between two jobs for a filesystem whose files have the same numbers:
    a persistent store has nothing of it."""
    folder, store, half = place.path("source", "below"), place.path("lasting"), N // 2
    for path in (place.path("source", "a"), folder, store):
        os.mkdir(path, 0o700)
    options = {**OPTIONS, "store_keep": "on", "store_bytes": "64M", "store_dir": store}
    home = place.files([SIZE] * half, name="a/{:05d}.bin")
    spec, sequences = spec_of(place, 4)
    for what in ("a filesystem", "another one in its place"):
        done = program("mount", "-t", "tmpfs", "-o", "size=16m,mode=0755", "clairfs-test", folder)
        if done.code:
            raise mountkit.Failed(f"mount of a tmpfs: {done}")
        with contextlib.ExitStack() as stack:
            stack.callback(program, "umount", folder)
            data = {**home, **place.files([SIZE] * half, name="below/{:05d}.bin")}
            with place.mount(order=spec, **options) as mount:
                job, epoch = Job(mount, data), 0
                while epoch < 3 and (epoch < 2 or mount.stats()["store"]["record_bytes"] < half * SIZE):
                    job.epoch(epoch, sequences[epoch])
                    epoch += 1
                mount.wait_for(lambda s: s["store"]["record_bytes"] >= half * SIZE, "what is at home is kept")
                tap.equal(job.wrong, [], f"{what} below the source: every byte is right")
        listed = json.loads(mountkit.good("store", "ls", "--json", store))
        tap.equal(listed["records"], half, "and nothing of it is in the store")


def temporary(place):
    """A budget without a directory: a private store in the job's TMPDIR, or a message that says what is missing."""
    data = place.files([SIZE] * 4)
    command = ["mount", "-o", f"store_bytes=16M,store_keep_free=0,snapshot_dir={place.snapshots}", place.source, place.mnt]
    env = mountkit.environment(place, TMPDIR=place.store)
    done = mountkit.clairfs(*command, env=env)
    tap.equal((done.code, done.lines), (0, []), "a budget and TMPDIR are enough for a private store")
    tap.ok(json.loads(mountkit.good("status", "--json", place.mnt))["store"]["is_persistent"] is False, "it is private")
    for name, content in data.items():
        with open(place.path("mnt", name), "rb") as file:
            tap.ok(file.read() == content, f"{name} is right")
    tap.equal(os.listdir(place.store), [], "nothing is visible in TMPDIR")
    tap.equal(mountkit.clairfs("umount", place.mnt).code, 0, "it can be unmounted")
    del env["TMPDIR"]
    done = mountkit.clairfs(*command, env=env)
    tap.ok(done.code == 2 and len(done.lines) == 1 and "TMPDIR" in done.lines[0], "without TMPDIR one line says so", done)


mountkit.run(everything_fits, half_fits, killed, full_drive, warm, below, temporary)
