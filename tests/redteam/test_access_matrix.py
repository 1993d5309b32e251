# SPDX-License-Identifier: Apache-2.0
"""Nobody reads through the mount what they could not read through the source, give or take `revalidate` seconds.

Every cell is one file (or directory) of a source with one kind of permissions, looked at by four users through the source
and through a mount of root with allow_other. The permissions are there before the mount, come while it runs (before the
first read, after everybody has read, after it was fetched ahead), or between two mounts with a snapshot.

Bytes that the source refuses are a failure, as are bytes that differ. Less than the source gives is a failure for plain
files; with ACLs, symlinks and directories that somebody may not enter it is counted and printed.
"""
import errno
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from redkit import GROUP, MEMBER, OWNER, STRANGER, User, look, looks
import mountkit
import tap
from mountkit import Failed, program, write_file

SECONDS = 20  # for revalidate=1 on a machine with other things to do
OPTIONS = {"allow_other": "on", "revalidate": 1}
MODES = (0o644, 0o640, 0o600, 0o604, 0o444, 0o000)


def acl(*entries):
    def work(path, _):
        os.chown(path, OWNER, GROUP)
        os.chmod(path, 0o644 if entries[0].startswith("open") else 0o640)
        done = program("setfacl", "-m", ",".join(entries).replace("open,", ""), path)
        if done.code:
            raise Failed(f"setfacl: {done}")
    return work


def mode(uid, bits):
    def work(path, _):
        os.chown(path, uid, GROUP)
        os.chmod(path, bits)
    return work


def link(target):
    """The file becomes a symlink, as somebody does who may write in that part of the source."""
    def work(path, outside):
        os.rename(path, path + ".was")
        os.symlink(target.format(outside=outside, source=os.path.join(os.path.dirname(outside), "source")), path)
    return work


def hard_link(path, outside):
    os.unlink(path)
    os.link(os.path.join(outside, "secret"), path)


def folder(bits):
    def work(path, _):
        os.chown(os.path.dirname(path), OWNER, GROUP)
        os.chmod(os.path.dirname(path), bits)
    return work


def folder_link(target):
    """The directory above becomes a symlink."""
    def work(path, outside):
        above = os.path.dirname(path)
        os.rename(above, above + ".was")
        os.symlink(target.format(outside=outside, source=os.path.join(os.path.dirname(outside), "source")), above)
    return work


def folder_acl(*entries):
    def work(path, _):
        os.chmod(os.path.dirname(path), 0o755)
        program("setfacl", "-m", ",".join(entries), os.path.dirname(path))
    return work


# name: (makes it so, is it plain: then less than the source is a failure)
CELLS = {f"{'owner' if uid else 'root'}'s {bits:04o}": (mode(uid, bits), True) for uid in (0, OWNER) for bits in MODES}
CELLS.update({
    "ACL allows a user": (acl(f"u:{STRANGER}:r"), False),
    "ACL denies a user": (acl("open", f"u:{STRANGER}:---"), False),
    "ACL denies a group": (acl("open", f"g:{GROUP}:---"), False),
    "ACL with a mask": (acl(f"u:{STRANGER}:r", "m::---"), False),
    "symlink inside": (link("../plain/target"), False),
    "symlink to a closed file": (link("../plain/closed"), False),
    "symlink into a 0700 directory": (link("../shut/target"), False),
    "symlink out, to an open file": (link("{outside}/open"), False),
    "symlink out, to a secret": (link("{outside}/secret"), False),
    "symlink out, relative": (link("../../outside/secret"), False),
    "symlink out, through ..": (link("../plain/../../outside/secret"), False),
    "absolute symlink inside": (link("{source}/plain/target"), False),
    "absolute symlink to a closed file": (link("{source}/plain/closed"), False),
    "hard link to a secret": (hard_link, False),
    "directory 0755": (folder(0o755), True),
    "directory 0750": (folder(0o750), False),
    "directory 0711": (folder(0o711), False),
    "directory 0700": (folder(0o700), False),
    "directory with an ACL": (folder_acl(f"u:{STRANGER}:---"), False),
    "directory becomes a symlink out": (folder_link("{outside}"), False),
    "directory becomes a symlink to a shut one": (folder_link("{source}/shut"), False),
})


class Tree:
    """A source with one directory per cell; everything is open to all until apply()."""

    def __init__(self, place, source=None):
        self.source = source or place.source
        self.outside = place.path("outside")
        os.makedirs(self.outside, exist_ok=True)
        for name, bits in (("open", 0o644), ("secret", 0o600), ("file", 0o600)):
            write_file(os.path.join(self.outside, name), b"outside, " + name.encode() + mountkit.rng.randbytes(3000))
            os.chmod(os.path.join(self.outside, name), bits)
        for path, bits in (("plain/target", 0o644), ("plain/closed", 0o600), ("shut/target", 0o644), ("shut/file", 0o644)):
            write_file(os.path.join(self.source, path), path.encode() + mountkit.rng.randbytes(3000))
            os.chmod(os.path.join(self.source, path), bits)
        os.chmod(os.path.join(self.source, "shut"), 0o700)
        self.paths, self.was = {}, {}
        for number, name in enumerate(CELLS):
            self.paths[name] = f"cell{number:02d}/file"
            self.was[name] = f"{name} ".encode() + mountkit.rng.randbytes(5000)
            write_file(os.path.join(self.source, self.paths[name]), self.was[name])

    def apply(self):
        for name, (work, _) in CELLS.items():
            work(os.path.join(self.source, self.paths[name]), self.outside)

    def jobs(self, root):
        """[(cell, what, path)]"""
        found = []
        for name, path in self.paths.items():
            found.append((name, "read", os.path.join(root, path)))
            found.append((name, "stat", os.path.join(root, path)))
            found.append((name, "list", os.path.join(root, os.path.dirname(path))))
        return found


class Users:
    """Four users with a process each."""

    def __init__(self):
        # Root looks last: what it reads the daemon has looked at, and that would hide what others are given first.
        self.all = {"stranger": User(STRANGER, STRANGER), "member": User(MEMBER, MEMBER, [GROUP]),
                    "owner": User(OWNER, OWNER, [GROUP]), "root": User(0, 0)}

    def __enter__(self):
        return self.all

    def __exit__(self, *_):
        for user in self.all.values():
            user.close()


def text_of(result):
    return errno.errorcode.get(result, result) if isinstance(result, int) else \
        f"{len(result)} bytes" if isinstance(result, bytes) else str(result)


def compare(users, tree, mountpoint):
    """(what is given beyond the source or differs, of that what was never open to them, what is given less of plain cells,
    how much is given less)."""
    more, never, less, n_less = [], [], [], 0
    for who, user in users.items():
        here, there = tree.jobs(tree.source), tree.jobs(mountpoint)
        want = user(looks, [job[1:] for job in here])
        got = user(looks, [job[1:] for job in there])
        for (name, what, _), w, g in zip(here, want, got):
            line = f"{name}: {what} by {who}: {text_of(g)}; the source: {text_of(w)}"
            if isinstance(g, int):
                is_less = not isinstance(w, int)
                n_less += is_less
                if is_less and CELLS[name][1]:
                    less.append(line)
            elif what == "stat" and "symlink" in name and "directory becomes" not in name:
                pass  # the mount shows the target as a file of its own: its size is told, its bytes are not
            elif isinstance(w, int) or what == "read" and g != w:
                more.append(line)
                if what == "read" and g != tree.was[name]:
                    never.append(line)
    return more, never, less, n_less


def settled(users, tree, mountpoint, what, is_at_once=False):
    """Looks until the mount gives no more than the source; what it gave at first is printed. What was open may be given a
    little longer, what never was may not."""
    first, never, less, n_less = compare(users, tree, mountpoint)
    more, end = first, time.monotonic() + SECONDS
    while (more or less) and time.monotonic() < end and not is_at_once:
        time.sleep(0.1)
        more, more_never, less, n_less = compare(users, tree, mountpoint)
        never += [line for line in more_never if line not in never]
    tap.no_findings(never, f"{what}: the mount never gives bytes that were never open to them")
    tap.no_findings(more, f"{what}: the mount gives nothing that the source refuses")
    tap.no_findings(less, f"{what}: plain files are given to all who may read them")
    tap.note(f"{what}: {len(first)} of {len(tree.jobs('')) * len(users)} looks gave more at first; {n_less} give less than the source")


def read_all(users, tree, mountpoint):
    for user in users.values():
        user(looks, [job[1:] for job in tree.jobs(mountpoint)])


def before_the_mount(place):
    tree = Tree(place)
    tree.apply()
    with Users() as users, place.mount(**OPTIONS) as mount:
        settled(users, tree, mount.mountpoint, "closed before the mount", is_at_once=True)


def before_the_first_read(place):
    tree = Tree(place)
    with Users() as users, place.mount(**OPTIONS) as mount:
        tree.apply()
        settled(users, tree, mount.mountpoint, "closed before the first read")


def before_anybody_looked(place):
    """Before revalidation comes by, so that the strangers' READs are what finds the other file."""
    tree = Tree(place)
    with Users() as users, place.mount(allow_other="on", revalidate=300) as mount:
        tree.apply()
        never = compare(users, tree, mount.mountpoint)[1]
        tap.no_findings(never, "a READ that finds another file: bytes that were never open to them are not given")


def after_a_read(place):
    tree = Tree(place)
    with Users() as users, place.mount(**OPTIONS) as mount:
        read_all(users, tree, mount.mountpoint)
        tree.apply()
        settled(users, tree, mount.mountpoint, "closed after all had read")


def after_staging(place):
    tree = Tree(place)
    with Users() as users:
        paths = [line.split("\t")[1] for line in mountkit.good("index", tree.source).decode().splitlines()]
        with place.mount(order=place.list_file(paths), **OPTIONS) as mount:
            mount.wait_for(lambda s: s["order"]["epoch"]["lead"] >= len(paths) - 5, "everything is fetched ahead")
            tree.apply()
            settled(users, tree, mount.mountpoint, "closed after it was fetched ahead")


def between_two_mounts(place):
    tree = Tree(place)
    with Users() as users:
        with place.mount(**OPTIONS) as mount:
            read_all(users, tree, mount.mountpoint)
        tree.apply()
        with place.mount(**OPTIONS) as mount:
            settled(users, tree, mount.mountpoint, "closed between two mounts")


def between_two_mounts_with_a_store(place):
    tree = Tree(place)
    store = place.path("kept")
    os.mkdir(store, 0o700)
    options = {**OPTIONS, "store_dir": store, "store_keep_free": 0, "store_bytes": "64M"}
    with Users() as users:
        with place.mount(**options) as mount:
            read_all(users, tree, mount.mountpoint)
        tree.apply()
        with place.mount(**options) as mount:
            settled(users, tree, mount.mountpoint, "closed between two mounts with a store")


def below_a_closed_directory(place):
    """Root mounts for others what lies below its own 0700 directory. They could not read it through the source."""
    closed = place.path("closed")
    os.mkdir(closed)
    tree = Tree(place, os.path.join(closed, "source"))
    os.chmod(closed, 0o700)
    with Users() as users, place.mount(source=tree.source, **OPTIONS) as mount:
        got = {who: user(looks, [job[1:] for job in tree.jobs(mount.mountpoint)]) for who, user in users.items()}
        given = {who: sum(not isinstance(g, int) for g in all_of) for who, all_of in got.items() if who != "root"}
        tap.equal(given, {who: 0 for who in given}, "a source below a 0700 directory: nothing for others")


def without_allow_other(place):
    tree = Tree(place)
    with Users() as users, place.mount(revalidate=1) as mount:
        root = users["root"](looks, [job[1:] for job in tree.jobs(mount.mountpoint)])
        tap.equal([r for r in root if isinstance(r, int)], [], "without allow_other who has mounted reads")
        for who in ("owner", "member", "stranger"):
            got = users[who](looks, [job[1:] for job in tree.jobs(mount.mountpoint)])
            tap.equal({text_of(g) for g in got}, {"EACCES"}, f"and {who} gets in nowhere")
            tap.equal(users[who](look, "list", mount.path(".clairfs")), errno.EACCES, "nor into .clairfs")


mountkit.run(before_the_mount, before_anybody_looked, before_the_first_read, after_a_read, after_staging, between_two_mounts,
             between_two_mounts_with_a_store, below_a_closed_directory, without_allow_other)
