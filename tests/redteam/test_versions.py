# SPDX-License-Identifier: Apache-2.0
"""Files that change, by every way of changing and of reading. What is promised:

  - the first read of a file that changed before it gives exactly the new version, never cut off or filled up;
  - an open never gets bytes of two versions of a file that was replaced: it gets one of them whole, or ESTALE (EIO where a
    mapping or a program cannot say that), and then the next open gets the new one;
  - bytes are always those of a version, of its whole length; only of a file changed in place may one open see both, as on the
    source itself, and the next one does not;
  - once revalidation has seen it the new version is what opens get.

A cell is (change, size, reader) with a file of its own; the cases are the moments of the change. The short form gives each
change and size two readers by chance, CLAIRFS_REDTEAM=long all of them.
"""
import contextlib
import errno
import os
import random
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from redkit import HELD, IS_LONG, PAGE, WHOLE, Busy, Held, User, change, is_page_mix, pick, read_by, reads, words
import mountkit
import tap
from mountkit import Crew, rng, wait_until, write_file

KIB = 1 << 10
SIZES = (0, 1, 100, 4095, 4096, 4097, 100 * KIB, 300 * KIB, 3 << 20)
NOT_WHOLE = (errno.ESTALE, errno.EIO)
GONE = (errno.ENOENT, errno.ESTALE, errno.EIO)
# name: (how, size afterwards of one of n bytes, or None: there is no such change of that size)
CHANGES = {
    "grows, replaced": ("rename", lambda n: n * 2 + 17),
    "shrinks, replaced": ("rename", lambda n: n // 2 if n else None),
    "same size, replaced": ("rename", lambda n: n or None),
    "grows in place": ("in place", lambda n: n * 2 + 17 if n else None),
    "shrinks in place": ("in place", lambda n: n // 2 if n > 1 else None),
    "same size in place": ("in place", lambda n: n or None),
    "empty, is filled": ("in place", lambda n: 50000 if n == 0 else None),
    "is emptied in place": ("in place", lambda n: 0 if n else None),
    "is emptied, replaced": ("rename", lambda n: 0 if n else None),
    "vanishes": ("gone", lambda n: 0),
    "removed and made anew": ("again", lambda n: n),
    "removed and made anew, larger": ("again", lambda n: n + 5000),
}


class Cell:
    """One file with what it is before and after its change."""

    def __init__(self, place, number, what, size, reader):
        self.what, self.size, self.reader = what, size, reader
        self.how, after = CHANGES[what]
        # A directory in which nothing is renamed keeps its times.
        self.name = f"{self.how}{number % 4}/f{number:04d}"
        self.path = os.path.join(place.source, self.name)
        self.old, self.new = rng.randbytes(size), rng.randbytes(after(size))
        # What is removed and made anew may get the number of the file that was: then nothing tells it from one in place.
        self.is_replaced = self.how not in ("in place", "again")
        self.is_over = False
        write_file(self.path, self.old)

    def apply(self):
        change(self.path, self.new, self.how)

    def say(self, got):
        return f"{self.what}, {self.size} bytes, {self.reader}: {words(got, {'old': self.old, 'new': self.new})}"

    def is_new(self, got):
        return got in GONE if self.how == "gone" else got == self.new

    def is_right_once(self, got, is_held=False):
        """What one open may get while the change is not noticed; is_held: it was there before the change."""
        if self.is_new(got) or got == self.old:
            return True
        if is_held and not self.is_replaced and not isinstance(got, int) and self.old.startswith(got):
            return len(got) > len(self.new)  # it was in the middle when the file was cut off before it
        if isinstance(got, int):
            return got in NOT_WHOLE
        return not self.is_replaced and len(got) in (len(self.old), len(self.new)) and \
            not (self.new.startswith(got) or self.old.startswith(got)) and is_page_mix(got, (self.old, self.new))


def cells_of(place, readers, sizes=SIZES):
    cells = []
    for what, (_, after) in CHANGES.items():
        for size in sizes:
            if after(size) is not None:
                for reader in readers if IS_LONG else rng.sample(readers, 2):
                    cells.append(Cell(place, len(cells), what, size, reader))
    return cells


def verdict(cells, wrong, promise):
    """A test point for each change; wrong: [(cell, text)]."""
    for what in dict.fromkeys(cell.what for cell in cells):
        n = sum(cell.what == what for cell in cells)
        tap.no_findings([text for cell, text in wrong if cell.what == what], f"{what}: {promise} ({n} cells)")


def job(mount, cell):
    return cell.reader, mount.path(cell.name), rng.randrange(1 << 30)


def read_each(user, mount, cells):
    """What each cell's reader gets, a few at a time."""
    got = []
    for at in range(0, len(cells), 8):
        got += user(reads, [job(mount, cell) for cell in cells[at:at + 8]])
    return got


def is_read_as(user, mount, cells, want, what):
    """All of them, right: what each case begins with."""
    got = read_each(user, mount, cells)
    tap.no_findings([cell.say(g) for cell, g in zip(cells, got) if g != getattr(cell, want)], what)


def first_reads(user, mount, cells, when):
    got = read_each(user, mount, cells)
    verdict(cells, [(c, c.say(g)) for c, g in zip(cells, got) if not c.is_new(g)], f"{when}: the first read gives the new version")


def before_the_first_read(place):
    cells = cells_of(place, WHOLE)
    with User(0, 0) as user, place.mount() as mount:
        # The kernel has been told of half of them: their old sizes are what it believes in.
        for cell in cells[::2]:
            os.stat(mount.path(cell.name))
        for cell in cells:
            cell.apply()
        first_reads(user, mount, cells, "before the first read")


def through_a_snapshot(place):
    cells = cells_of(place, WHOLE)
    with User(0, 0) as user:
        with place.mount() as mount:
            is_read_as(user, mount, cells[:40], "old", "as it was")
        for cell in cells:
            cell.apply()
        with place.mount() as mount:
            first_reads(user, mount, cells, "between two mounts")


def after_a_read(place):
    """With revalidation: the old version or the new one, and soon the new one."""
    cells = cells_of(place, WHOLE)
    with User(0, 0) as user, place.mount(revalidate=1) as mount:
        is_read_as(user, mount, cells, "old", "as it was")
        for cell in cells:
            cell.apply()
        wrong, left = [], cells

        def all_new():
            nonlocal left
            for cell, got in zip(left, read_each(user, mount, left)):
                cell.is_over = cell.is_new(got)
                if not cell.is_right_once(got):
                    wrong.append((cell, cell.say(got)))
            left = [cell for cell in left if not cell.is_over]
            return not left
        try:
            wait_until(all_new, "new versions", 60)
        except mountkit.Failed:
            wrong += [(cell, f"{cell.what}, {cell.size} bytes, {cell.reader}: the new version is never seen") for cell in left]
        verdict(cells, wrong, "after a read: one version, and after revalidation the new one")


def go_on_reading(mountpoint, names, seed, n):
    """In the process of a user: reads by every way, dropping what is cached now and then. [(name, how, what was read)]"""
    rng2, found = random.Random(seed), []
    for _ in range(n):
        name, how = rng2.choice(names), rng2.choice(WHOLE)
        path = os.path.join(mountpoint, name)
        found.append((name, how, read_by(how, path, seed)))
        if rng2.random() < 0.4:
            with contextlib.suppress(OSError):  # ESTALE: it was replaced between the open and the question for its size
                drop_tail(path, rng2.choice((0, 0.5)))
    return found


def through_empty(place):
    """Full, empty, full again, under readers that go on reading: an emptied file's pages of zeros are never of the next one."""
    names = [f"f{i}" for i in range(12)]
    versions = {name: [rng.randbytes(rng.choice((4096, 20000, 100000)))] for name in names}
    for name in names:
        write_file(os.path.join(place.source, name), versions[name][0])
    got, users = [], [User(0, 0) for _ in range(4)]
    try:
        with place.mount(revalidate=1) as mount:
            crew = Crew()

            def reader(user, seed):
                while not crew.is_over.is_set():
                    seed += 1
                    for found in user(go_on_reading, mount.mountpoint, names, seed, 10):
                        got.append(found if isinstance(found[2], int) or found[2] not in versions[found[0]] else None)
            for number, user in enumerate(users):
                crew.add(reader, user, rng.randrange(1 << 30) + number)
            for turn in range(pick(8, 200)):
                for name in names:
                    data = b"" if turn % 2 == 0 else rng.randbytes(rng.choice((4095, 4097, 20000, 150000)))
                    versions[name].append(data)
                    change(os.path.join(place.source, name), data, "rename")
                wait_until(lambda: all(os.stat(mount.path(n)).st_size == len(versions[n][-1]) for n in names), "sizes are seen", 60)
            tap.no_findings(crew.stop(), "the readers end")
            last = {name: mountkit.read_file(mount.path(name)) for name in names}
            tap.equal([n for n in names if last[n] != versions[n][-1]], [], "the last versions are seen")
    finally:
        for user in users:
            user.close()
    odd = [g for g in got if g and not isinstance(g[2], int)]
    zeros = [g for g in odd if any(g[2][at:at + PAGE].count(0) > 100 for at in range(0, len(g[2]), PAGE))]
    tap.note(f"{len(got)} reads, {sum(g is not None for g in got) - len(odd)} errors, {len(odd)} of an open that met a change")
    tap.no_findings([f"{n} by {how}: {words(data, dict(enumerate(versions[n])))} of {list(map(len, versions[n]))[-4:]}" for n, how, data in zeros][:20],
                    f"files that are emptied and filled again: {len(zeros)} reads had zeros of no version")


def second_reads(user, mount, cells, got, when, is_held=False):
    """After an open that met the change (all but the old version) the next one gets the new version."""
    wrong = [(c, c.say(g)) for c, g in zip(cells, got) if not c.is_right_once(g, is_held)]
    noticed = [c for c, g in zip(cells, got) if g != c.old]
    again = read_each(user, mount, noticed)
    wrong += [(c, "the open after: " + c.say(g)) for c, g in zip(noticed, again) if not c.is_new(g)]
    tap.note(f"{when}: {sum(g in NOT_WHOLE for g in got if isinstance(g, int))} of {len(got)} opens got an error, "
             f"{sum(g == c.old for c, g in zip(cells, got))} the old version")
    verdict(cells, wrong, f"{when}: one version or ESTALE, and then the new one")


def drop_tail(path, share=0.5):
    """Lets the kernel forget what it has cached of a file behind that share of it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        at = int(os.fstat(fd).st_size * share)
        os.posix_fadvise(fd, (at + PAGE - 1) // PAGE * PAGE, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


def tail_dropped(place):
    """The head is in the page cache, the tail is not. Nothing but the READ of the tail can find the change (revalidate=0)."""
    cells = cells_of(place, WHOLE, [size for size in SIZES if size > PAGE])
    with User(0, 0) as user, place.mount(revalidate=0, ram="16M") as mount:
        is_read_as(user, mount, cells, "old", "as it was")
        for cell in cells:
            drop_tail(mount.path(cell.name))
            cell.apply()
        second_reads(user, mount, cells, read_each(user, mount, cells), "head cached, tail dropped")


def held_open(place):
    cells = cells_of(place, HELD)
    with User(0, 0) as user, place.mount(revalidate=0, ram="16M") as mount:
        got = []
        for at in range(0, len(cells), 16):
            part = cells[at:at + 16]
            got += user(_held, mount.mountpoint, [(c.reader, c.name, c.path, c.size, c.new, c.how) for c in part])
        second_reads(user, mount, cells, got, "open across the change", is_held=True)


def _held(mountpoint, todo):
    """In the process of the user: it may hang, the test may not."""
    held = [Held(reader, os.path.join(mountpoint, name), min(PAGE, max(1, size // 3)), 1) for reader, name, _, size, _, _ in todo]
    for _, _, path, _, new, how in todo:
        change(path, new, how)
    return [h.finish() for h in held]


def grown_round(place, number, n):
    """n files that are replaced by larger ones before their first read; how many of the reads were wrong."""
    source = place.path(f"grown{number}")
    names = [f"d{i % 16}/f{i:05d}" for i in range(n)]
    for name in names:
        write_file(os.path.join(source, name), rng.randbytes(rng.choice((0, 100, 100, 3000, 5000, 40000))))
    new = {}
    readers = ("python", "cat", "cp", "dd", "odd", "python")
    if number % 2:  # the index comes from a snapshot, made before
        with place.mount(source=source):
            pass

    def grow():
        for name in names:
            path = os.path.join(source, name)
            new[name] = rng.randbytes(os.path.getsize(path) * 2 + rng.randrange(1, 9000))
            change(path, new[name], "rename")
    if number % 2:
        grow()
    wrong = []
    with User(0, 0) as user, place.mount(source=source) as mount:
        for name in names[::2]:
            os.stat(mount.path(name))
        if number % 2 == 0:
            grow()
        for at in range(0, n, 20):
            part = names[at:at + 20]
            jobs = [(readers[(at + i) % len(readers)], mount.path(name), at) for i, name in enumerate(part)]
            for (how, *_), name, got in zip(jobs, part, user(reads, jobs)):
                if got != new[name]:
                    wrong.append(f"{how}: {words(got, {'new': new[name]})} of {len(new[name])}")
    return wrong


def grown_files(place):
    total, size = pick((500, 250), (10000, 1000))
    wrong = []
    with Busy(8):
        for number in range(total // size):
            wrong += grown_round(place, number, size)
    tap.no_findings(wrong[:20], f"at load 8, {len(wrong)} of {total} first reads of files that had grown were not the new version")


mountkit.run(before_the_first_read, through_a_snapshot, after_a_read, through_empty, tail_dropped, held_open, grown_files)
