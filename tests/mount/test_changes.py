# SPDX-License-Identifier: Apache-2.0
"""The source changes while it is mounted, or fails. A change is seen when the file is fetched next or checked
(revalidate=1 below), one fetch never mixes two versions, and errors reach the reader of that file as they are."""
import errno
import mmap
import os

import mountkit
import tap
from mountkit import Crew, Slowfs, read_file, rng, wait_until, write_file

SMALL = 64 << 10


def reopened(read, *args):
    """What a reader gets who opens the file again when it was replaced after it had opened it (ESTALE)."""
    for _ in range(1000):
        try:
            return read(*args)
        except OSError as e:
            if e.errno != errno.ESTALE:
                raise
    return read(*args)


def attempt(path):
    """Content of a file, or the errno of what failed."""
    try:
        return reopened(read_file, path)
    except OSError as e:
        return e.errno


def read_direct(path, size=1 << 20):
    """The whole file in one READ, past the kernel's page cache: exactly what one fetch gave."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, size) as room:
            return room[:os.preadv(fd, [room], 0)]
    finally:
        os.close(fd)


def eventually(mount, name, want, old, what):
    """Reads until it is as wanted; until then only the old content may be seen. want: bytes or errnos."""
    seen = []

    def is_there():
        got = attempt(mount.path(name))
        is_new = got in want if isinstance(want, tuple) else got == want
        if not is_new and got != old and got not in seen:
            seen.append(got)
        return is_new
    wait_until(is_there, f"{name}: {what}")
    # While sizes change a reader may see as much of a version as its own fstat allows.
    strange = [s if isinstance(s, int) else f"{len(s)} bytes" for s in seen
               if isinstance(s, int) or not (isinstance(want, bytes) and want.startswith(s) or old.startswith(s))]
    tap.no_findings(strange, f"{what}: seen, and before that only what was there before")


def change(place, name, how, new):
    """Changes a file of the source."""
    path = os.path.join(place.source, name)
    if how == "in place":
        fd = os.open(path, os.O_WRONLY)
        try:
            if os.fstat(fd).st_size != len(new):
                os.ftruncate(fd, 0)
            os.pwrite(fd, new, 0)
        finally:
            os.close(fd)
    elif how == "by rename":
        write_file(path + ".new", new)
        os.rename(path + ".new", path)
    elif how == "vanishes":
        os.unlink(path)
    elif how == "becomes a directory":
        os.unlink(path)
        os.mkdir(path)


def one_change_each(place):
    old = place.files([SMALL] * 8 + [3 << 20] * 2)
    new = {"s00000.bin": ("in place", rng.randbytes(SMALL), "same size, other bytes"),
           "s00001.bin": ("in place", rng.randbytes(1000), "shrinks"),
           "s00002.bin": ("in place", rng.randbytes(SMALL * 2 + 17), "grows"),
           "s00003.bin": ("by rename", rng.randbytes(SMALL), "is replaced by one of the same size"),
           "s00004.bin": ("by rename", rng.randbytes(SMALL + 5000), "is replaced by a larger one"),
           "s00005.bin": ("by rename", b"", "is replaced by an empty one"),
           "s00008.bin": ("by rename", rng.randbytes(3 << 20), "a file of several pieces is replaced"),
           "s00009.bin": ("in place", rng.randbytes((2 << 20) + 1), "a file of several pieces shrinks")}
    with place.mount(revalidate=1) as mount:
        tap.ok(all(mount.read(name) == content for name, content in old.items()), "as it was")
        for name, (how, content, _) in new.items():
            change(place, name, how, content)
        change(place, "s00006.bin", "vanishes", None)
        change(place, "s00007.bin", "becomes a directory", None)
        for name, (_, content, what) in new.items():
            eventually(mount, name, content, old[name], what)
            wait_until(lambda: os.stat(mount.path(name)).st_size == len(content), f"{what}: fstat shows the size")
        eventually(mount, "s00006.bin", (errno.ENOENT,), old["s00006.bin"], "vanishes: ENOENT")
        eventually(mount, "s00007.bin", (errno.EISDIR, errno.ENOENT, errno.ESTALE), old["s00007.bin"],
                   "becomes a directory: an error")
        stats = mount.wait_for(lambda s: s["counters"]["source_changed"] >= 8, "changes are counted")
        tap.ok(stats["counters"]["source_changed"] >= 8, "changes are counted")
        os.rmdir(place.path("source", "s00007.bin"))
        for name in ("s00006.bin", "s00007.bin"):
            write_file(place.path("source", name), content := rng.randbytes(7000))
            wait_until(lambda: attempt(mount.path(name)) == content, f"{name} is back")
        tap.ok(True, "a file that is back can be read again")


def changes_before_the_fetch(place):
    """Nobody has read it yet, so nothing may be held: the very first read must be right, without waiting."""
    place.files([SMALL] * 40)
    with place.mount(revalidate=0) as mount:
        new = {}
        for i in range(20):
            name = f"s{i:05d}.bin"
            new[name] = rng.randbytes(SMALL)
            change(place, name, "by rename" if i % 2 else "in place", new[name])
        got = {name: attempt(mount.path(name)) for name in new}
        tap.equal([name for name in new if got[name] != new[name]], [], "the first read of a changed file sees the change")
        for name in ("s00030.bin", "s00031.bin"):
            os.unlink(place.path("source", name))
            tap.equal(attempt(mount.path(name)), errno.ENOENT, "the first read of a file that has vanished: ENOENT")


def pages_of(versions, got):
    """Whether each page is that of one of the versions."""
    return all(any(got[at:at + 4096] == v[at:at + 4096][:len(got) - at] for v in versions)
               for at in range(0, len(got), 4096))


def whole_version(versions, got):
    """One version, or as much of it as the size of another one allows."""
    shortest = min(map(len, versions))
    return len(got) >= shortest and any(v.startswith(got) for v in versions)


def alternating(place):
    """Two versions in turn, by rename and in place, under four readers."""
    place.files([SMALL] * 4)
    names = {"rename.bin": "by rename", "resize.bin": "by rename", "inplace.bin": "in place"}
    versions = {"rename.bin": [b"A" * 100000, b"B" * 100000], "resize.bin": [b"C" * 60000, b"D" * 90001],
                "inplace.bin": [b"E" * 100000, b"F" * 100000]}
    for name in names:
        write_file(place.path("source", name), versions[name][0])
    counts = {"reads": 0, "B": 0, "A": 0}
    findings = []
    with place.mount(revalidate=1) as mount:
        crew = Crew()

        def check(name, how, got):
            counts["reads"] += 1
            counts["A"] += got[:1] in (b"A", b"C", b"E")
            counts["B"] += got[:1] in (b"B", b"D", b"F")
            # A read through the page cache may meet the moment in which the kernel exchanges pages, and a writer in
            # place is seen half way by whoever reads the source itself. A fetch of what was renamed is all or nothing.
            if how == "direct" and names[name] == "by rename":
                is_good = whole_version(versions[name], got)
            else:
                is_good = len(got) >= min(map(len, versions[name])) and pages_of(versions[name], got)
            if not is_good and len(findings) < 10:
                runs = [(got[at:at + 1], at) for at in range(len(got)) if at == 0 or got[at] != got[at - 1]]
                findings.append(f"{name}, {how}: {len(got)} bytes: {runs[:8]}")

        def reader(number):
            while not crew.is_over.is_set():
                for name in names:
                    if number % 2:
                        check(name, "direct", reopened(read_direct, mount.path(name)))
                    else:
                        check(name, "cached", reopened(read_file, mount.path(name)))
                    if number == 0:
                        fd = os.open(mount.path(name), os.O_RDONLY)
                        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
                        os.close(fd)

        def writer():
            turn = 0
            while not crew.is_over.is_set():
                turn += 1
                for name, how in names.items():
                    change(place, name, how, versions[name][turn % 2])
                crew.is_over.wait(rng.random() * 0.02)
        crew.add(writer)
        for number in range(4):
            crew.add(reader, number)
        try:
            wait_until(lambda: crew.errors or findings or counts["A"] > 300 and counts["B"] > 300, "both versions are seen")
        finally:
            errors = crew.stop()
        tap.no_findings(errors, "no read fails while files are replaced")
        tap.no_findings(findings, "no fetch mixes two versions")
        for name, how in names.items():
            last = rng.randbytes(70000)
            change(place, name, how, last)
            wait_until(lambda: attempt(mount.path(name)) == last, f"{name}: the last version is seen")
        tap.ok(True, "the last version is what stays")
        tap.note(counts)


def changes_under_an_order(place):
    """Samples fetched ahead change before they are read."""
    data = place.files([SMALL] * 60)
    names = sorted(data)
    sequence = list(range(60))
    rng.shuffle(sequence)
    with place.mount(order=place.list_file(sequence), revalidate=1) as mount:
        for sample in sequence[:20]:
            mount.read(names[sample])
        mount.wait_for(lambda s: s["order"]["epoch"]["lead"] >= 40 or s["order"]["epoch"]["position"] >= 60,
                       "the rest is fetched ahead")
        new = {}
        for sample in sequence[20::3]:
            new[names[sample]] = rng.randbytes(rng.choice([SMALL, 5000, SMALL + 4096]))
            change(place, names[sample], "by rename", new[names[sample]])
        gone = names[sequence[21]]
        os.unlink(place.path("source", gone))
        wrong = []
        for sample in sequence[20:]:
            name = names[sample]
            got = attempt(mount.path(name))
            if name == gone or name in new:
                want = errno.ENOENT if name == gone else new[name]
                if got not in (want, data[name]) and not (name in new and whole_version([new[name], data[name]], got)):
                    wrong.append(f"{name} is neither the old nor the new version")
                eventually(mount, name, (want,) if name == gone else want, data[name], f"{name} changed when staged")
            elif got != data[name]:
                wrong.append(f"{name}, which has not changed, differs")
        tap.no_findings(wrong, "samples fetched ahead that changed: one version or the other, and soon the new one")


def errors_of_the_source(place):
    data = place.files([SMALL] * 40, "s{:05d}.bin")
    names = sorted(data)
    bad, lost = "s00007.bin", "s00011.bin"
    for spec in (None, place.list_file(range(40))):
        what = "with an order" if spec else "without order"
        write_file(place.path("source", lost), data[lost])
        with Slowfs(place, place.source, place.path("slow"), "--latency-ms", "1", "--eio", bad) as slow:
            with place.mount(source=slow.mountpoint, **({"order": spec} if spec else {})) as mount:
                os.unlink(place.path("source", lost))
                crew = Crew()
                results = [{} for _ in range(4)]

                def reader(mine):
                    for _ in range(2):
                        for name in names:
                            mine.setdefault(name, set()).add(attempt(mount.path(name)))
                for mine in results:
                    crew.add(reader, mine)
                tap.no_findings(crew.join(), f"{what}: the readers end")
                tap.ok(all(r[bad] == {errno.EIO} for r in results), f"{what}: EIO of the source is EIO for the reader",
                       [r[bad] for r in results])
                tap.ok(all(errno.ENOENT in r[lost] and r[lost] <= {errno.ENOENT, data[lost]} or r[lost] == {data[lost]}
                           for r in results), f"{what}: a lost file is ENOENT, or what was held of it")
                wait_until(lambda: attempt(mount.path(lost)) in (errno.ENOENT, data[lost]), "lost file")
                others = [n for r in results for n in names if n not in (bad, lost) and r[n] != {data[n]}]
                tap.equal(others, [], f"{what}: every other file is read as it is")
                counters = mount.counters()
                tap.ok(counters["source_errors"] > 0 and counters["read_errors"] > 0, f"{what}: errors are counted")


mountkit.run(one_change_each, changes_before_the_fetch, alternating, changes_under_an_order, errors_of_the_source)
