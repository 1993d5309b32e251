#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop with the real PyTorch DataLoader and a sleeping GPU; one JSON line per epoch.

Order: DistributedSampler(seed=S) of one rank with set_epoch, the most common one in HPC jobs, or with --manual-seed that of
DataLoader(shuffle=True) after torch.manual_seed. The samples are numbered as
torchvision's ImageFolder numbers them. A sample is read with open().read(); by default nothing is decoded, so that the figures
show reading. Stall is the time spent in next(iterator), as PyTorch's profiler would show it.
"""
import argparse
import bisect
import itertools
import json
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def image_folder(root):
    """The list torchvision.datasets.ImageFolder makes: class directories and walks sorted."""
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    paths = []
    for name in classes:
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            paths += [os.path.join(folder, f) for f in sorted(files) if f.lower().endswith(EXTENSIONS)]
    return paths


class Files(Dataset):
    def __init__(self, paths, args):
        self.paths, self.decode_ms, self.spins, self.twice = paths, args.decode_ms, args.spin, args.twice
        self.elsewhere, self.every, self.root = args.elsewhere, args.elsewhere_every, args.root

    def __len__(self):
        return len(self.paths)

    def path(self, index):
        if self.elsewhere and index % self.every == self.every // 2:
            return os.path.join(self.elsewhere, os.path.relpath(self.paths[index], self.root))
        return self.paths[index]

    def decode(self):
        end = time.perf_counter() + self.decode_ms / 1000
        if not self.spins:
            time.sleep(self.decode_ms / 1000)
        while time.perf_counter() < end:
            pass

    def __getitem__(self, index):
        for length in (64, -1) if self.twice else (-1,):
            with open(self.path(index), "rb") as file:
                size = len(file.read(length))
        if self.decode_ms:
            self.decode()
        return size


class Records(Files):
    """Samples of one length, one behind the other in the files. Each process has the files open."""

    def __init__(self, paths, args):
        super().__init__(paths, args)
        self.length = args.record_bytes
        self.begins = list(itertools.accumulate((os.path.getsize(path) // self.length for path in paths), initial=0))
        self.files = {}

    def __len__(self):
        return self.begins[-1]

    def __getitem__(self, index):
        at = bisect.bisect(self.begins, index) - 1
        if at not in self.files:
            self.files[at] = open(self.paths[at], "rb", 0)
        size = len(os.pread(self.files[at].fileno(), self.length, (index - self.begins[at]) * self.length))
        if self.decode_ms:
            self.decode()
        return size


def train(args):
    # The same names are read below every root: list once, where it is cheap.
    listed = image_folder(args.list_from or args.root)
    base = args.list_from or args.root
    paths = [os.path.join(args.root, os.path.relpath(p, base)) for p in listed]
    if not paths:
        sys.exit(f"{base}: no class directories with images")
    dataset = Records(paths, args) if args.record_bytes else Files(paths, args)
    sampler = None
    if args.manual_seed is None:
        sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=args.seed)
    else:
        torch.manual_seed(args.manual_seed)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler, shuffle=not sampler, num_workers=args.workers,
                        prefetch_factor=args.prefetch_factor if args.workers else None)
    batches = len(loader)
    for epoch in range(args.epochs):
        if sampler:
            sampler.set_epoch(epoch)
        start = time.monotonic()
        stall = total = 0
        iterator = iter(loader)
        for step in range(batches):
            asked = time.monotonic()
            sizes = next(iterator)
            stall += time.monotonic() - asked
            total += int(sizes.sum())
            time.sleep(args.compute_ms / 1000)
            if args.progress and (step + 1) * 50 // batches != step * 50 // batches:
                print(json.dumps({"progress": epoch * batches + step + 1, "total": args.epochs * batches}), flush=True)
        seconds = time.monotonic() - start
        print(json.dumps({"epoch": epoch, "samples": len(dataset), "bytes": total, "seconds": round(seconds, 3),
                          "samples_per_s": round(len(dataset) / seconds, 1), "stall_seconds": round(stall, 3),
                          "torch": torch.__version__}), flush=True)
        if args.step:
            sys.stdin.readline()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--list-from", help="list the samples here instead (a fast copy of the same tree)")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--compute-ms", type=float, default=10)
    parser.add_argument("--decode-ms", type=float, default=0, help="a worker sleeps for so long after each sample")
    parser.add_argument("--spin", action="store_true", help="it does not sleep but works")
    parser.add_argument("--twice", action="store_true", help="each file is opened for its head first, then for all of it")
    parser.add_argument("--elsewhere", metavar="ROOT", help="one file of so many is read below another root, so that a mount does not "
                        "hear of it")
    parser.add_argument("--elsewhere-every", type=int, default=10000)
    parser.add_argument("--record-bytes", type=int, help="samples are so long each, one behind the other in the files")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--manual-seed", type=int)
    parser.add_argument("--progress", action="store_true")
    parser.add_argument("--step", action="store_true", help="wait for a line on stdin after each epoch")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
