#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training job whose steps are real: a network learns from JPEG images that a DataLoader reads and decodes; one JSON line per epoch.

Order and list of samples as in train_torch.py, without --manual-seed. A step copies a batch to the GPU, without waiting for it, and
runs the network forth and back in bfloat16. With --sync each step waits for its loss, as jobs do that log it; without it the
processor is ahead of the GPU, as far as CUDA lets it.

  seconds        the epoch, from where the loop asks for its iterator until the GPU has finished
  stall_seconds  spent in next(iterator)
  idle_seconds   of the epoch without the GPU's work. That is from where the copy of a batch begins to where the step ends, by events
                 that the GPU itself takes the time of; it is busy in between but for the gaps between two kernels
  step_ms        a step when nothing is waited for: the median of some in the beginning, on a batch that is there

--make writes the dataset: photographs' size and bytes, but of noise. It needs no GPU, and --device cpu --model tiny no torchvision.
"""
import argparse
import io
import json
import os
import random
import statistics
import sys
import time

import numpy
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

from train_torch import image_folder

CLASSES, WARM_STEPS = 10, 30
PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "packaging", "python")


def make(directory, files, width):
    """Images of a few kinds, each file with bytes of its own behind the image, which no decoder reads."""
    rng, kinds = numpy.random.default_rng(1), []
    for _ in range(min(files, 32)):
        shape = (width * 3 // 4, width, 3)
        coarse = rng.integers(0, 256, (shape[0] // 16 + 1, shape[1] // 16 + 1, 3)).repeat(16, 0).repeat(16, 1)
        noisy = coarse[:shape[0], :shape[1]] * 0.5 + rng.normal(64, 40, shape)
        out = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype("uint8")).save(out, "JPEG", quality=90)
        kinds.append(out.getvalue())
    for i in range(files):
        folder = os.path.join(directory, f"class{i % CLASSES}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"{i:06d}.jpg"), "wb") as file:
            file.write(kinds[i % len(kinds)] + i.to_bytes(8, "little"))


class Images(Dataset):
    """A square of the image, at random and mirrored at random, as bytes: the GPU makes numbers of them."""

    def __init__(self, paths, side):
        self.paths, self.side = paths, side

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            data = file.read()
        pixels = numpy.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        top, left = (random.randrange(length - self.side + 1) for length in pixels.shape[:2])
        pixels = pixels[top:top + self.side, left:left + self.side]
        if random.random() < 0.5:
            pixels = pixels[:, ::-1]
        return torch.from_numpy(pixels.copy()), index % CLASSES


def network(name):
    if name == "tiny":
        return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 7, 4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
                                   torch.nn.Linear(8, CLASSES))
    import torchvision
    return getattr(torchvision.models, name)(num_classes=CLASSES)


class HostEvent:
    """Without a GPU everything is over when it returns."""

    def record(self):
        self.at = time.perf_counter()

    def elapsed_time(self, other):
        return (other.at - self.at) * 1000


class Trainer:
    def __init__(self, args):
        self.device, self.is_gpu, self.is_synced = args.device, args.device != "cpu", args.sync
        torch.backends.cudnn.benchmark = True
        self.model = network(args.model).to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.01, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()

    def event(self):
        event = torch.cuda.Event(enable_timing=True) if self.is_gpu else HostEvent()
        event.record()
        return event

    def step(self, images, labels):
        """The events around the step."""
        begin = self.event()
        images, labels = images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        # (batch, height, width, channel) is what channels_last has in memory: no byte is moved.
        images = images.permute(0, 3, 1, 2).float().div_(127.5).sub_(1)
        with torch.autocast("cuda" if self.is_gpu else "cpu", torch.bfloat16):
            loss = self.loss(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        end = self.event()
        if self.is_synced:
            loss.item()
        return begin, end

    def finish(self):
        if self.is_gpu:
            torch.cuda.synchronize()

    def step_ms(self, batch, side):
        """Also the choice of the fastest kernels, and all that only the first step has to do."""
        images = torch.randint(0, 256, (batch, side, side, 3), dtype=torch.uint8)
        labels = torch.arange(batch) % CLASSES
        if self.is_gpu:
            images, labels = images.pin_memory(), labels.pin_memory()
        took = []
        for _ in range(WARM_STEPS if self.is_gpu else 2):
            events = self.step(images, labels)
            self.finish()
            took.append(events[0].elapsed_time(events[1]))
        return statistics.median(took[len(took) // 2:])


def train(args):
    base = args.list_from or args.root
    paths = [os.path.join(args.root, os.path.relpath(path, base)) for path in image_folder(base)]
    if not paths:
        sys.exit(f"{base}: no class directories with images")
    trainer = Trainer(args)
    step_ms = trainer.step_ms(args.batch, args.side)
    dataset = Images(paths, args.side)
    sampler = DistributedSampler(dataset, num_replicas=1, rank=0, seed=args.seed)
    loader = DataLoader(dataset, batch_size=args.batch, sampler=sampler, num_workers=args.workers, prefetch_factor=args.prefetch_factor,
                        pin_memory=trainer.is_gpu)
    if args.watch:
        sys.path.insert(0, PACKAGE)
        import clairfs
        loader = clairfs.watch(loader)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        start, stall, steps = time.monotonic(), 0, []
        iterator = iter(loader)
        while True:
            asked = time.monotonic()
            batch = next(iterator, None)
            stall += time.monotonic() - asked
            if batch is None:
                break
            steps.append(trainer.step(*batch))
        trainer.finish()
        seconds = time.monotonic() - start
        busy = sum(begin.elapsed_time(end) for begin, end in steps) / 1000
        print(json.dumps({"epoch": epoch, "samples": len(paths), "steps": len(steps), "seconds": round(seconds, 3),
                          "stall_seconds": round(stall, 3), "idle_seconds": round(seconds - busy, 3), "step_ms": round(step_ms, 2),
                          "device": torch.cuda.get_device_name() if trainer.is_gpu else "cpu", "torch": torch.__version__}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("--make", type=int, metavar="FILES", help="write so many images there, and end")
    parser.add_argument("--width", type=int, default=448, help="of these images; their height is three quarters of it")
    parser.add_argument("--list-from", help="list the samples here instead (a fast copy of the same tree)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--prefetch-factor", type=int, default=2)
    parser.add_argument("--side", type=int, default=224, help="of the square that the network sees")
    parser.add_argument("--model", default="resnet50", help="of torchvision, or tiny")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--sync", action="store_true", help="each step waits for its loss")
    parser.add_argument("--watch", action="store_true", help="the loader is watched by clairfs.watch")
    parser.add_argument("--seed", type=int, default=42)
    args = parser.parse_args()
    if args.make:
        make(args.root, args.make, args.width)
    else:
        train(args)


if __name__ == "__main__":
    main()
