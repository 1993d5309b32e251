#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden vectors of FFCV's OrderOption.RANDOM, computed by its own traversal order and Loader.

    python3 gen_ffcv.py SOURCE > order/ffcv.txt          (needs numpy, torch, xxhash; seconds)

SOURCE is FFCV's source package, unpacked: it builds only beside OpenCV and libjpeg-turbo, and no order depends on either.
Its module with the random order is loaded without the package around it, and of its Loader the methods that ask for the
order of an epoch and cut it are taken as they stand.
"""
import ast
import importlib
import os
import sys
import types

import numpy
import torch

from vectors import IMAGENET, SIZES, emit, heading


def package(name, path):
    module = types.ModuleType(name)
    module.__path__ = [path]
    sys.modules[name] = module


def load_order(source):
    package("ffcv", os.path.join(source, "ffcv"))
    package("ffcv.traversal_order", os.path.join(source, "ffcv/traversal_order"))
    sys.modules["ffcv.reader"] = types.ModuleType("ffcv.reader")
    sys.modules["ffcv.reader"].Reader = None  # for a type annotation
    return importlib.import_module("ffcv.traversal_order.random").Random


def load_loader(source):
    """Loader with the methods of an epoch only."""
    with open(os.path.join(source, "ffcv/loader/loader.py"), encoding="utf-8") as file:
        tree = ast.parse(file.read())
    (loader,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Loader"]
    wanted = ("next_traversal_order", "__iter__", "__len__")
    loader.body = [node for node in loader.body if isinstance(node, ast.FunctionDef) and node.name in wanted]
    assert len(loader.body) == len(wanted)
    tree.body = [loader]
    names = {"np": numpy, "Compiler": types.SimpleNamespace(set_num_threads=lambda n: None),
             "EpochIterator": lambda loader, order: iter(order)}
    exec(compile(tree, "loader.py", "exec"), names)
    return names["Loader"]


def open_loader(classes, n, seed, batch, drop_last, distributed):
    """The rest of Loader's constructor that an order depends on."""
    order, loader_class = classes
    loader = loader_class()
    loader.indices = numpy.arange(n, dtype="uint64")
    loader.seed, loader.batch_size, loader.drop_last, loader.distributed = seed, batch, drop_last, distributed
    loader.num_workers, loader.code, loader.recompile, loader.next_epoch = 1, "", False, 0
    loader.traversal_order = order(loader)
    loader.first_traversal_order = loader.next_traversal_order()
    return loader


def run(classes, n, seed, epochs, world=1, rank=0, batch=1, drop_last=True):
    if world > 1:
        torch.distributed.get_world_size, torch.distributed.get_rank = lambda: world, lambda: rank
        torch.distributed.is_available = lambda: True
    loader = open_loader(classes, n, seed, batch, drop_last, world > 1)
    spec = f"ffcv:seed={seed}" + f":world={world}" * (world > 1) + f":batch={batch}" * (batch > 1)
    for epoch in range(max(epochs) + 1):
        samples = list(loader)
        if epoch in epochs:
            emit(spec + ":drop_last=0" * (not drop_last), n, epoch, rank, samples)


def main():
    source = sys.argv[1].rstrip("/")
    classes = load_order(source), load_loader(source)
    heading(f"FFCV {source.rsplit('-', 1)[1]}", f"numpy {numpy.__version__}", f"torch {torch.__version__}")
    for n in (0,) + SIZES:
        for seed in (0, 42, 2**32 - 1, 2**32, 2**64 - 2):
            run(classes, n, seed, (0, 1, 9))
        run(classes, n, 42, (0, 1), batch=4)
        run(classes, n, 42, (0, 1), batch=4, drop_last=False)
        for world in (2, 3, 7, 64) if n > 0 else ():
            for rank in sorted({0, world // 2, world - 1}):
                run(classes, n, 42, (0, 1), world, rank)
            run(classes, n, 42, (1,), world, world - 1, batch=3)
            run(classes, n, 42, (1,), world, world - 1, batch=3, drop_last=False)
    run(classes, IMAGENET, 42, (3,))
    run(classes, IMAGENET, 42, (1,), 7, 6, batch=256)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
