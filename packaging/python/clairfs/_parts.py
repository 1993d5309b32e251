# SPDX-License-Identifier: Apache-2.0
"""Datasets that are one directory of the mount, numbered as the mount can number it (keys under= and sort=).

The mount says how many files such a numbering has; if the dataset has as many, all of them below that directory and in
that sort order, both are the same list. So no file need be looked at, of a million.
"""
import os

_KEYS_MAX = 500  # bytes of under=


def _torchvision_key(path):
    """Classes by name; in each sorted(os.walk(...)); in each directory the sorted names. None: not in a class."""
    folder, _, name = path.rpartition("/")
    return (folder.partition("/")[0], folder, name) if folder else None


_SORTS = (("torchvision", _torchvision_key), ("path", lambda path: path))


def _is_sorted(paths, root, key):
    """Whether all are below the root, in this order, and none of them twice."""
    at, last = len(root), None
    for path in paths:
        path = os.fspath(path)
        if not path.startswith(root):
            return False
        now = key(path[at:])
        if now is None or (last is not None and now <= last):
            return False
        last = now
    return True


def _folder_of(base, paths):
    """The directory that the dataset lists, as its paths have it, with '/' at its end."""
    root = getattr(base, "root", None)
    if not isinstance(root, (str, os.PathLike)) or not os.fspath(paths[0]).startswith(os.fspath(root).rstrip("/") + "/"):
        root = os.path.commonpath([os.path.dirname(os.fspath(path)) for path in paths])
    return os.fspath(root).rstrip("/") + "/"


def _escaped(name):
    return name.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def part_of(base, paths, mountpoint, count):
    """Keys of a spec (":under=train:sort=torchvision") by which the mount numbers its files as the dataset does, or None.
    count(keys): how many files there are then, or None."""
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        return None
    try:
        root = _folder_of(base, paths)
    except ValueError:  # relative and absolute ones
        return None
    inside = os.path.relpath(os.path.realpath(root), os.path.realpath(mountpoint))
    if inside == ".." or inside.startswith("../") or not inside.isprintable() or len(inside.encode()) > _KEYS_MAX:
        return None
    under = "" if inside == "." else ":under=" + _escaped(inside)
    for sort, key in _SORTS:
        keys = f"{under}:sort={sort}"
        if _is_sorted(paths, root, key) and count(keys) == len(paths):
            return keys
    return None
