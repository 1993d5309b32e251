#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which number a file has: the sequences in which torchvision and timm list a tree, and those of Python's own ways.

The tree is made up of what tells the ways apart: digits with and without leading zeros, capitals, nested classes, names
around '/', extensions only one of them takes. Lines: "file PATH", in the order of sorted(paths), then "SORT UNDER I,I,..."
with the numbers of the files as listed. Paths are percent-encoded. timm's ties (img1.jpg, img01.jpg) stand as its os.walk
meets them, so names are listed by their bytes, as the mount lists them.
"""
import importlib
import importlib.metadata
import os
import sys
import tempfile
import types
import urllib.parse


def load(module):
    """A module of a package without the package's __init__, which wants models and compiled parts."""
    parts = module.split(".")
    folder = str(importlib.metadata.distribution(parts[0]).locate_file(parts[0]))
    for i in range(1, len(parts)):
        name = ".".join(parts[:i])
        if name not in sys.modules:
            sys.modules[name] = types.ModuleType(name)
            sys.modules[name].__path__ = [os.path.join(folder, *parts[1:i])]
    return importlib.import_module(module)


natural_key = load("timm.utils.misc").natural_key
find_images_and_targets = load("timm.data.readers.reader_image_folder").find_images_and_targets
torchvision_folder = load("torchvision.datasets.folder")

CLASSES = ["a", "A", "a-b", "a.b", "a0", "b2", "b10", "b02", "B2", "n01440764", "zebra", "Zebra", "10", "9", "é", "É",
           "中", "two words"]
FILES = ["1.jpg", "01.jpg", "001.JPG", "2.jpg", "10.jpg", "9.png", "img2.jpeg", "IMG2.JPEG", "img10.jpeg", "img010.jpeg",
         "a.bmp", "B.webp", "é.jpg", "É.jpg", "x.txt", ".hidden.jpg", ".jpg", "img.tiff", "1a.jpg", "1-a.jpg", "1_a.jpg",
         "18446744073709551616.jpg", "18446744073709551615.jpg"]
DEEP = ["sub/1.jpg", "sub-x/1.jpg", "sub/x/3.jpg", "sub2/1.jpg", "sub10/1.jpg", "SUB2/1.jpg"]


def tree():
    paths = ["top.jpg", "Top10.jpg", "top9.jpg", "train.jpg", "train/loose.jpg"]
    for number, name in enumerate(CLASSES):
        paths += [f"train/{name}/{f}" for k, f in enumerate(FILES) if (k + number) % 3]
        if number % 2 == 0:
            paths += [f"train/{name}/{f}" for f in DEEP]
        paths += [f"val/{name}/{f}" for f in FILES[:3]]
    return sorted(paths)


def in_byte_order(listing):
    """os.walk takes what os.scandir yields, in that sequence."""
    class Scan:
        def __init__(self, path="."):
            with listing(path) as entries:
                self.entries = iter(sorted(entries, key=lambda e: os.fsencode(e.name)))

        def __enter__(self):
            return self

        def __exit__(self, *_):
            return False

        def __iter__(self):
            return self

        def __next__(self):
            return next(self.entries)

        def close(self):
            pass
    return Scan


def walked(root):
    return [os.path.join(d, f) for d, _, files in os.walk(root) for f in files]


WAYS = {
    "torchvision": lambda root: [path for path, _ in torchvision_folder.make_dataset(
        root, extensions=torchvision_folder.IMG_EXTENSIONS)],
    "timm": lambda root: [path for path, _ in find_images_and_targets(root)[0]],
    "path": lambda root: sorted(walked(root)),
    "natural": lambda root: sorted(sorted(walked(root)), key=natural_key),
    "nocase": lambda root: sorted(sorted(walked(root)), key=str.lower),
    "walk": walked,
}


def main():
    names = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("torchvision", "timm"))
    print(f"# {names}, {os.path.basename(__file__)}")
    os.scandir = in_byte_order(os.scandir)
    with tempfile.TemporaryDirectory() as base:
        paths = tree()
        for path in paths:
            os.makedirs(os.path.dirname(os.path.join(base, path)), exist_ok=True)
            with open(os.path.join(base, path), "wb"):
                pass
        for path in paths:
            print("file", urllib.parse.quote(path))
        number = {path: i for i, path in enumerate(paths)}
        for under in ("", "train", "val", "train/a"):
            for name, way in WAYS.items():
                found = way(os.path.join(base, under) if under else base)
                print(name, under or "-", ",".join(str(number[os.path.relpath(p, base)]) for p in found))


if __name__ == "__main__":
    main()
