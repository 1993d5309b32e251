#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The jobs of bench/run ordinary: written as the frameworks' own tutorials write them, and without a word about clairfs.

    ordinary_job.py HOW ROOT

ROOT has train/ and val/, each an image folder. A step sleeps instead of computing. On stdout a line of JSON for each event, with
the time of the clock that all processes of a machine share: an epoch begins, its last batch is there.
"""
import argparse
import json
import shutil
import sys
import tempfile
import time

import torch
import torch.distributed
import torch.multiprocessing
from PIL import Image
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset

from train_torch import image_folder

PIXELS = 64


def say(event, epoch, **more):
    print(json.dumps({"event": event, "epoch": epoch, "t": time.monotonic(), **more}), flush=True)


class Images(Dataset):
    """torchvision's ImageFolder, less torchvision."""

    def __init__(self, root):
        self.paths = image_folder(root)

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        with Image.open(self.paths[i]) as image:
            pixels = torch.frombuffer(bytearray(image.convert("RGB").tobytes()[:PIXELS]), dtype=torch.uint8)
        return {"x": pixels.float() / 255, "labels": torch.tensor([float(i)])}


def loader_of(args, data, **more):
    return DataLoader(data, batch_size=args.batch, num_workers=args.workers, **more)


def validate(args, data):
    for _ in loader_of(args, data):
        time.sleep(args.compute_ms / 4000)


def train_epoch(args, loader, epoch, step=lambda batch: None):
    say("begin", epoch)
    for batch in loader:
        step(batch)
        time.sleep(args.compute_ms / 1000)
    say("end", epoch)


def plain(args, loader, first=0, epochs=None):
    """The loop of the tutorial: an epoch, then the validation set."""
    val = Images(f"{args.root}/val")
    for epoch in range(first, first + (epochs or args.epochs)):
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)
        train_epoch(args, loader, epoch)
        validate(args, val)


def distributed(args):
    data = Images(f"{args.root}/train")
    plain(args, loader_of(args, data, sampler=DistributedSampler(data, num_replicas=1, rank=0, seed=args.seed)))


def rank_main(rank, args, store):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    data, val = Images(f"{args.root}/train"), Images(f"{args.root}/val")
    sampler = DistributedSampler(data)
    loader = loader_of(args, data, sampler=sampler)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(PIXELS, 1))

    def step(batch):
        model(batch["x"]).mean().backward()
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        if rank == 0:
            train_epoch(args, loader, epoch, step)
            validate(args, val)
        else:
            for batch in loader:
                step(batch)
                time.sleep(args.compute_ms / 1000)
        torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def two_ranks(args):
    args.batch, args.workers = args.batch // 2, args.workers // 2
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(rank_main, (args, f"{folder}/store"), nprocs=2)


def resnet50():
    """The convolutions of torchvision's, which draws each twice: the layer's own weights, then kaiming_normal_."""
    layers, width_in = [torch.nn.Conv2d(3, 64, 7, bias=False)], 64
    for width, blocks in (64, 3), (128, 4), (256, 6), (512, 3):
        for block in range(blocks):
            layers += [torch.nn.Conv2d(width_in, width, 1, bias=False), torch.nn.Conv2d(width, width, 3, bias=False),
                       torch.nn.Conv2d(width, 4 * width, 1, bias=False)]
            if block == 0:
                layers.append(torch.nn.Conv2d(width_in, 4 * width, 1, bias=False))
            width_in = 4 * width
    layers.append(torch.nn.Linear(2048, 1000))
    for layer in layers[:-1]:
        torch.nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return torch.nn.Sequential(*layers)


def manual_seed(args):
    torch.manual_seed(42)
    model = resnet50()
    plain(args, loader_of(args, Images(f"{args.root}/train"), shuffle=True))
    del model


def unseeded(args):
    plain(args, loader_of(args, Images(f"{args.root}/train"), shuffle=True))


def subset(args):
    torch.manual_seed(42)
    data = Images(f"{args.root}/train")
    plain(args, loader_of(args, Subset(data, range(len(data) // 5)), shuffle=True))


def resume(args):
    """From the middle of epoch 1 on."""
    import accelerate
    data = Images(f"{args.root}/train")
    loader = loader_of(args, data, sampler=DistributedSampler(data, num_replicas=1, rank=0, seed=args.seed))
    loader.sampler.set_epoch(1)
    train_epoch(args, accelerate.skip_first_batches(loader, len(loader) // 2), 1)
    validate(args, Images(f"{args.root}/val"))
    if args.epochs > 1:
        plain(args, loader, 2, args.epochs - 1)


def lightning(args):
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning as L
    L.seed_everything(42)
    train, val = Images(f"{args.root}/train"), Images(f"{args.root}/val")
    batches = -(-len(train) // args.batch)

    class Model(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(PIXELS, 1)

        def on_train_epoch_start(self):
            say("begin", self.current_epoch)

        def training_step(self, batch, number):
            time.sleep(args.compute_ms / 1000)
            if number == batches - 1:
                say("end", self.current_epoch)
            return self.layer(batch["x"]).mean()

        def validation_step(self, _batch, _number):
            time.sleep(args.compute_ms / 4000)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    L.Trainer(max_epochs=args.epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
              enable_model_summary=False).fit(Model(), loader_of(args, train, shuffle=True), loader_of(args, val))


def trainer(args):
    """With --checkpoint: goes on from there. With --stop: ends in the middle of epoch 1, and leaves it there."""
    import transformers
    transformers.utils.logging.set_verbosity_error()
    train, val = Images(f"{args.root}/train"), Images(f"{args.root}/val")
    batches = -(-len(train) // args.batch)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(PIXELS, 1)

        def forward(self, x, labels):
            time.sleep(args.compute_ms / (1000 if self.training else 4000))
            out = self.layer(x)
            return {"loss": out.mean(), "logits": out}

    class Events(transformers.TrainerCallback):
        def on_epoch_begin(self, _args, state, _control, **_):
            say("begin", int(state.epoch))

        def on_step_end(self, _args, state, control, **_):
            if state.global_step % batches == 0:
                say("end", state.global_step // batches - 1)
            if args.stop and state.global_step == batches + batches // 2:
                control.should_save = control.should_training_stop = True

    where = args.checkpoint or tempfile.mkdtemp()
    done = transformers.Trainer(
        Model(), transformers.TrainingArguments(
            output_dir=where, num_train_epochs=args.epochs, per_device_train_batch_size=args.batch,
            per_device_eval_batch_size=args.batch, dataloader_num_workers=args.workers, eval_strategy="no" if args.stop else "epoch",
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, logging_strategy="no"),
        train_dataset=train, eval_dataset=val, callbacks=[Events()])
    done.train(resume_from_checkpoint=bool(args.checkpoint) and not args.stop)
    if not args.checkpoint:
        shutil.rmtree(where)


JOBS = {job.__name__: job for job in (distributed, two_ranks, manual_seed, unseeded, subset, resume, lightning, trainer)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("how", choices=JOBS)
    parser.add_argument("root")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--compute-ms", type=float, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint", help="trainer: a directory")
    parser.add_argument("--stop", action="store_true", help="trainer: in the middle of epoch 1, with a checkpoint")
    args = parser.parse_args()
    torch.set_num_threads(1)
    JOBS[args.how](args)


if __name__ == "__main__":
    sys.exit(main())
