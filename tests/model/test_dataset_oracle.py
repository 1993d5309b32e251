# SPDX-License-Identifier: Apache-2.0
"""The dataset index against Python itself.

Random trees with the oddest names a filesystem takes. What the mount would show of them (symlinks followed, loops and
dangling ones left out) is made as a second, plain tree; there the framework's own way of listing runs: os.walk, sorted.
Order, kinds and attributes must be the same. Then the tree is changed at random and opened again with the snapshot:
the answer must be that of a fresh look.

    test_dataset_oracle.py [SEED]
"""
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile

import tap

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
DUMP = os.path.join(os.environ.get("CLAIRFS_BUILD", "build"), "tests", "model", "dump_dataset")
ROUNDS = 25
MUTATIONS = 8

# Prefixes of each other, characters around '/', hidden, blank, control, non-UTF-8 of every kind (lone continuation,
# truncated, overlong, surrogate, beyond U+10FFFF), U+E000 and astral ones, which sort behind the escapes.
STEMS = [b"a", b"a-", b"a-b", b"a.", b"a0", b"ab", b"A", b"b", b"n01440764", b".hidden", b"two words", b"new\nline",
         b"\x01", b"~", b"\xc3\xa9", b"\xe4\xb8\xad", b"\xed\x9f\xbf", b"\xee\x80\x80", b"\xef\xbf\xbd",
         b"\xf0\x9f\x98\x80", b"\x80", b"\xbf", b"\xff", b"a\xff", b"a\xfe", b"\xe2\x82", b"\xe2\x82a", b"\xc0\xaf",
         b"\xe0\x80\xaf", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf0\x9f\x98", b"\xf8\x88",
         b"\xf0\x80\x80\x80", b"a\xe4\xb8\xadb", b"a\xe4\xb8", b"\xe2\x84\xaa", b"\xc4\xb0", b"x" * 255, b"\xff" * 250]
TAILS = [b"", b".jpg", b".JPG", b".JpEg", b".png", b".txt", b".tiff", b".webp", b".jpg.txt", b".jp", b"jpg", b".gif",
         b".tif", b".ppm"]


def image_folder(root):
    """torchvision: find_classes, then make_dataset."""
    found = []
    for name in sorted(e.name for e in os.scandir(root) if e.is_dir()):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            for file in sorted(files):
                if file.lower().endswith(EXTENSIONS):
                    found.append(os.path.relpath(os.path.join(folder, file), root))
    return found


def all_files(root):
    return sorted(os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files)


def all_dirs(root):
    return {os.path.relpath(os.path.join(d, s), root) for d, dirs, _ in os.walk(root) for s in dirs}


def auto_layout(root):
    files = all_files(root)
    images = [f for f in files if f.lower().endswith(EXTENSIONS)]
    tops = {f.split("/")[0] for f in files if "/" in f}
    with_image = {f.split("/")[0] for f in images if "/" in f}
    return "imagefolder" if with_image and tops == with_image and 2 * len(images) >= len(files) else "files"


def materialise(source, view, above=()):
    """What a mount of source shows, as plain directories and empty files; returns how many names are left out."""
    os.mkdir(view)
    st = os.stat(source)
    above = above + ((st.st_dev, st.st_ino),)
    skipped = 0
    for name in os.listdir(source):
        path = os.path.join(source, name)
        try:
            st = os.stat(path)
        except OSError:
            skipped += 1
            continue
        if stat.S_ISDIR(st.st_mode) and (st.st_dev, st.st_ino) in above:
            skipped += 1
        elif stat.S_ISDIR(st.st_mode):
            skipped += materialise(path, os.path.join(view, name), above)
        elif stat.S_ISREG(st.st_mode):
            open(os.path.join(view, name), "wb").close()
        else:
            skipped += 1
    return skipped


class Tree:
    def __init__(self, rng, base):
        self.rng = rng
        self.source = os.path.join(base, "source")
        self.outside = os.path.join(base, "outside")
        self.rewritten = set()  # real paths of files changed in place
        for top in (self.source, self.outside):
            os.mkdir(top)
        self.plain = rng.random() < 0.3
        for _ in range(rng.choice([0, 3, 20, 60])):
            self.add()
        for _ in range(3):
            self.add_file(self.outside)

    def name(self):
        tail = self.rng.choice(TAILS[:5] if self.plain else TAILS)
        stem = self.rng.choice(STEMS)[:255 - len(tail)]
        return os.fsdecode(stem + tail)

    def folders(self, top=None):
        return [d for d, _, _ in os.walk(top or self.source)]

    def files(self):
        return [os.path.join(d, f) for d, _, files in os.walk(self.source) for f in files]

    def links(self):
        return [p for d, dirs, files in os.walk(self.source) for p in (os.path.join(d, n) for n in dirs + files)
                if os.path.islink(p)]

    def add_file(self, folder):
        path = os.path.join(folder, self.name())
        if not os.path.lexists(path):
            with open(path, "wb") as f:
                f.write(b"x" * self.rng.choice([0, 0, 1, 5000]))
            os.utime(path, ns=(0, self.rng.randrange(-10**18, 2 * 10**18)))
            os.chmod(path, self.rng.choice([0o644, 0o400, 0o777]))
        return path

    def add_folder(self, folder):
        path = os.path.join(folder, self.name() if self.rng.random() < 0.5 else self.rng.choice("abc"))
        if len(os.fsencode(path)) < 2000 and not os.path.lexists(path):
            os.mkdir(path)
            for _ in range(self.rng.randrange(4)):
                self.add_file(path)

    def add_link(self, folder):
        path = os.path.join(folder, self.name())
        # Links to directories multiply each other, so there are few.
        folders = self.folders() if len([p for p in self.links() if os.path.isdir(p)]) < 3 else []
        targets = folders + self.files() + [self.outside] * bool(folders) + self.all_outside()
        target = self.rng.choice(targets + ["nowhere", "../nowhere"])
        if not os.path.lexists(path) and len(os.fsencode(path)) < 1000:
            os.symlink(target, path)

    def all_outside(self):
        return [os.path.join(self.outside, n) for n in os.listdir(self.outside)]

    def add_special(self, folder):
        path = os.path.join(folder, self.name())
        if not os.path.lexists(path):
            os.mkfifo(path)

    def add(self):
        folder = self.rng.choice(self.folders())
        how = [self.add_file] * 6 + [self.add_folder] * 3
        if not self.plain:
            how += [self.add_link, self.add_special]
        self.rng.choice(how)(folder)

    def remove(self):
        path = self.rng.choice(self.files() + self.folders()[1:] + self.links() or [None])
        if path and os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        elif path:
            os.unlink(path)

    def rename(self):
        path = self.rng.choice(self.files() + self.folders()[1:] + [None])
        new = os.path.join(self.rng.choice(self.folders()), self.name())
        if path and not os.path.lexists(new) and not new.startswith(path + "/") and len(os.fsencode(new)) < 2000:
            os.rename(path, new)

    def swap(self):
        """A directory becomes a file of the same name, a file a directory, a directory another one."""
        path = self.rng.choice(self.files() + self.folders()[1:] + [None])
        if not path:
            return
        was_folder = os.path.isdir(path) and not os.path.islink(path)
        if was_folder:
            shutil.rmtree(path)
        else:
            os.unlink(path)
        if was_folder and self.rng.random() < 0.5:
            open(path, "wb").close()
        else:
            os.mkdir(path)
            self.add_file(path)

    def touch_folder(self):
        path = self.rng.choice(self.folders())
        if self.rng.random() < 0.5:
            os.chmod(path, self.rng.choice([0o755, 0o700, 0o711]))
        else:
            os.utime(path, ns=(0, self.rng.randrange(10**18)))

    def rewrite(self):
        files = [p for p in self.files() if os.path.isfile(p)]
        if files:
            path = self.rng.choice(files)
            with open(path, "ab") as f:
                f.write(b"more")
            self.rewritten.add(os.path.realpath(path))

    def change_outside(self):
        names = self.all_outside()
        if names and self.rng.random() < 0.5:
            os.unlink(self.rng.choice(names))
        else:
            self.add_file(self.outside)

    def stamps(self):
        found = {}
        for top in (self.source, self.outside):
            for folder in self.folders(top):
                st = os.stat(folder)
                found[folder] = ((st.st_mtime_ns, st.st_ctime_ns, st.st_ino), sorted(os.listdir(folder)),
                                 [os.readlink(p) for n in sorted(os.listdir(folder))
                                  if os.path.islink(p := os.path.join(folder, n))])
        return found

    def mutate(self):
        before = self.stamps()
        for _ in range(self.rng.randrange(4)):
            self.rng.choice([self.add, self.add, self.remove, self.rename, self.swap, self.touch_folder, self.rewrite,
                             self.change_outside])()
        # Two changes within one tick of a coarse clock look like one: go on until the directory shows the second.
        # (The mount's rule of two seconds does that for real; here the clock pretends that they have passed.)
        for folder, now in self.stamps().items():
            while folder in before and before[folder][0] == os_stamp(folder) and before[folder][1:] != now[1:]:
                os.utime(folder)


def os_stamp(folder):
    st = os.stat(folder)
    return st.st_mtime_ns, st.st_ctime_ns, st.st_ino


def natural_key(text):
    """timm's, but that a digit is one of ASCII."""
    return [int(s) if s.isascii() and s.isdigit() else s for s in re.split("([0-9]+)", text.lower())]


def walked(root, topdown=True):
    """os.walk of the mount, which lists names by their bytes."""
    entries = sorted(os.scandir(root), key=lambda e: os.fsencode(e.name))
    own = [e.path for e in entries if not e.is_dir()]
    below = [p for e in entries if e.is_dir() for p in walked(e.path, topdown)]
    return own + below if topdown else below + own


def timm_takes(path):
    return os.path.splitext(os.path.basename(path))[1].lower() in (".png", ".jpg", ".jpeg")


WAYS = {
    "index": lambda root: sorted(walked(root)),
    "torchvision": lambda root: [os.path.join(root, p) for p in image_folder(root)],
    "timm": lambda root: sorted(filter(timm_takes, walked(root, topdown=False)), key=natural_key),
    "path": lambda root: sorted(walked(root)),
    "natural": lambda root: sorted(sorted(walked(root)), key=natural_key),
    "nocase": lambda root: sorted(sorted(walked(root)), key=str.lower),
    "walk": walked,
}


def wrong_numbers(tree, rng, base):
    """The ways of listing a part of the tree."""
    view = os.path.join(base, "view")
    shutil.rmtree(view, ignore_errors=True)
    materialise(tree.source, view)
    folder = rng.choice([d for d, _, _ in os.walk(view)])
    under = os.path.relpath(folder, view) if folder != view else ""
    wrong = []
    for name, way in WAYS.items():
        run = subprocess.run([DUMP, tree.source, "files", "-", "settled", "2", name, under], capture_output=True, timeout=240)
        got = [os.fsdecode(p) for p in run.stdout.split(b"\0")[:-1]]
        want = [os.path.relpath(p, view) for p in way(folder)]
        if run.returncode or got != want:
            wrong.append(f"numbers {name} below {under!r}: {run.stderr!r} {got!r}\n not {want!r}")
    return wrong


class Dump:
    def __init__(self, source, layout, snapshots="-", settled=True, threads=3):
        run = subprocess.run([DUMP, source, layout, snapshots, "settled" if settled else "fresh", str(threads)],
                             capture_output=True, timeout=240)
        self.error = run.stderr.decode(errors="replace") if run.returncode else ""
        records = run.stdout.split(b"\0")[:-1]
        if self.error:
            return
        words = records[0].decode().split()
        self.layout = words[0]
        self.from_snapshot, self.scanned, self.reused, self.stats, self.skipped = map(int, words[1:])
        self.entries = []
        for attr, path in zip(records[1::2], records[2::2]):
            kind, *numbers = attr.decode().split()
            self.entries.append((kind, os.fsdecode(path), tuple(map(int, numbers))))

    def paths(self, kind):
        return [p for k, p, _ in self.entries if k == kind]


def differences(dump, tree, base, want_layout, exact=True):
    """What the dump has wrong, as lines."""
    if dump.error:
        return [dump.error]
    view = os.path.join(base, "view")
    shutil.rmtree(view, ignore_errors=True)
    skipped = materialise(tree.source, view)
    layout = auto_layout(view) if want_layout == "auto" else want_layout
    samples = image_folder(view) if layout == "imagefolder" else all_files(view)
    wrong = []
    if dump.layout != layout:
        wrong.append(f"layout {dump.layout}, not {layout}")
    if dump.paths("S") != samples:
        wrong.append(f"samples {dump.paths('S')!r}\n not {samples!r}")
    if set(dump.paths("F")) != set(all_files(view)) - set(samples):
        wrong.append(f"other files {dump.paths('F')!r}")
    if set(dump.paths("D")) != all_dirs(view) | {"."} or len(dump.paths("D")) != len(all_dirs(view)) + 1:
        wrong.append(f"directories {dump.paths('D')!r}")
    if dump.skipped != skipped:
        wrong.append(f"skipped {dump.skipped}, not {skipped}")
    for kind, path, got in dump.entries:
        full = os.path.join(tree.source, path)
        st = os.stat(full)
        links = 2 + len([e for e in os.scandir(os.path.join(view, path)) if e.is_dir()]) if kind == "D" else 1
        want = (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_uid, st.st_gid, links)
        is_stale = not exact and os.path.realpath(full) in tree.rewritten and not os.path.islink(full)
        if got != want and not is_stale:
            wrong.append(f"{path!r}: {got}, not {want}")
    return wrong


def links_below(source, above=()):
    """Symlinks to files that the mount would show."""
    st = os.stat(source)
    above = above + ((st.st_dev, st.st_ino),)
    n = 0
    for e in os.scandir(source):
        if e.is_dir():
            st = os.stat(e.path)
            n += 0 if (st.st_dev, st.st_ino) in above else links_below(e.path, above)
        else:
            n += e.is_symlink() and e.is_file()
    return n


def check_reopen(tree, layout, snapshots, dump):
    """Nothing changed: one stat per directory and symlinked file, and one."""
    again = Dump(tree.source, layout, snapshots)
    if again.error or dump.error:
        return [again.error or dump.error]
    if again.entries != dump.entries:
        return ["the second open says something else than the first"]
    if again.skipped:
        return []
    wanted = (1, 0, len(dump.paths("D")), len(dump.paths("D")) + links_below(tree.source) + 1)
    got = (again.from_snapshot, again.scanned, again.reused, again.stats)
    return [] if got == wanted else [f"snapshot, scanned, reused, stats {got}, not {wanted}"]


def one_round(rng, number):
    wrong = []
    with tempfile.TemporaryDirectory(prefix="clairfs-oracle-") as base:
        snapshots = os.path.join(base, "snapshots")
        tree = Tree(rng, base)
        layout = "auto"
        for layout in ("imagefolder", "files", "auto"):
            wrong += differences(Dump(tree.source, layout, threads=rng.choice([1, 4])), tree, base, layout)
        wrong += wrong_numbers(tree, rng, base)
        dump = Dump(tree.source, layout, snapshots)
        wrong += differences(dump, tree, base, layout)
        wrong += check_reopen(tree, layout, snapshots, dump)
        for step in range(MUTATIONS):
            if wrong:
                break
            tree.mutate()
            layout = rng.choice(["auto", "auto", "imagefolder", "files"])
            dump = Dump(tree.source, layout, snapshots, settled=rng.random() < 0.8)
            found = differences(dump, tree, base, layout, exact=False)
            if not found and not dump.from_snapshot:
                found = ["the snapshot was not used"]
            wrong += [f"after change {step}: {f}" for f in found]
    tap.ok(not wrong, f"round {number}: order, kinds, attributes and the snapshot are as Python sees the tree", *wrong)


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else random.SystemRandom().randrange(2**32)
    tap.note(f"seed {seed}")
    for number in range(ROUNDS):
        one_round(random.Random(seed * 1000 + number), number)
    tap.done()


main()
