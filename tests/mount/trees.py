# SPDX-License-Identifier: Apache-2.0
"""Source trees with everything a dataset may hold, and what a mount of one must show."""
import os
import socket
import stat

from mountkit import read_file, rng, write_file

KIB, MIB = 1 << 10, 1 << 20


def make_odd_tree(root):
    """Ordinary samples, and beside them all that goes wrong elsewhere."""
    for folder in range(3):
        for i in range(25):
            write_file(f"{root}/class{folder}/img{i:03d}.jpg", rng.randbytes(rng.randrange(1, 200 * KIB)))
    for size in (0, 1, 4095, 4096, 4097, 8192, 128 * KIB - 1, 128 * KIB, 128 * KIB + 1, MIB - 1, MIB, MIB + 1, 2 * MIB,
                 3 * MIB, 3 * MIB + 4095, 20 * MIB):
        write_file(f"{root}/sizes/{size}", rng.randbytes(size))
    for name in (b"blank in name", b" leading", b"new\nline", b"tab\there", b"back\\slash", b"quo\"te'", b"-dash", b"*?[x]",
                 b"comma,colon:percent%20", b"\xff\xfe no utf-8 \x80", "ünïcödé-日本".encode(), b"l" * 255, b".hidden",
                 b"..dots"):
        write_file(os.path.join(os.fsencode(root), b"names", name), b"content of " + name)
    for folder in (b".hidden folder", b"\xc3\x28", b"a\nb", b"deep/" + b"/".join(b"d%d" % i for i in range(40))):
        write_file(os.path.join(os.fsencode(root), b"folders", folder, b"file"), b"in " + folder)
    os.mkdir(f"{root}/empty folder")
    os.mkdir(f"{root}/links")
    os.symlink("../sizes/4097", f"{root}/links/relative")
    os.symlink(f"{root}/sizes/8192", f"{root}/links/absolute")
    os.symlink("relative", f"{root}/links/to a link")
    os.symlink("../class1", f"{root}/links/folder")
    os.symlink("nowhere", f"{root}/links/dangling")
    os.symlink("itself", f"{root}/links/itself")
    os.symlink("..", f"{root}/links/upward")
    os.link(f"{root}/sizes/4096", f"{root}/links/hard")
    with open(f"{root}/sizes/sparse", "wb") as file:
        file.truncate(5 * MIB)
        file.seek(3 * MIB - 100)
        file.write(rng.randbytes(5000))
    write_file(f"{root}/unreadable", b"for root only")
    os.chmod(f"{root}/unreadable", 0)
    os.mkfifo(f"{root}/fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{root}/socket")


def content(root):
    """{relative path: bytes, or None for a directory}, as bytes paths: symlinks are followed; what leads nowhere, back
    to a directory above, or to no file or directory is left out."""
    found = {}
    root = os.fsencode(root)

    def walk(folder, above):
        for name in os.listdir(os.path.join(root, folder)):
            path = os.path.join(folder, name)
            try:
                st = os.stat(os.path.join(root, path))
            except OSError:
                continue
            if stat.S_ISREG(st.st_mode):
                found[path] = read_file(os.path.join(root, path))
            elif stat.S_ISDIR(st.st_mode) and (st.st_dev, st.st_ino) not in above:
                found[path] = None
                walk(path, above | {(st.st_dev, st.st_ino)})
    top = os.stat(root)
    walk(b"", {(top.st_dev, top.st_ino)})
    return found


def listing(root):
    """The same paths as a mount shows them: {path: is a directory}."""
    found = {}
    root = os.fsencode(root)
    todo = [b""]
    while todo:
        folder = todo.pop()
        with os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                path = os.path.join(folder, entry.name)
                found[path] = entry.is_dir()
                if found[path]:
                    todo.append(path)
    return found
