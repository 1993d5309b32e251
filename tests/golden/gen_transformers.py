#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors of transformers' Trainer (kind accelerate, world 1): the batches of its own train data loader, epoch
after epoch, without a training step between."""
import importlib.metadata
import tempfile

import torch
from transformers import Trainer, TrainingArguments

import vectors
from vectors import IMAGENET, SIZES, Indices, as_list, emit, read_epoch


def trainer_loader(n, batch, folder, **arguments):
    settings = TrainingArguments(output_dir=folder, per_device_train_batch_size=batch, report_to=[], use_cpu=True,
                                 remove_unused_columns=False, **arguments)
    trainer = Trainer(model=torch.nn.Linear(1, 1), args=settings, train_dataset=Indices(n), data_collator=as_list)
    return trainer.get_train_dataloader()


def run(spec, n, batch, folder, epochs, **arguments):
    loader = trainer_loader(n, batch, folder, **arguments)
    for epoch in range(max(epochs) + 1):
        loader.set_epoch(epoch)
        samples = read_epoch(loader)
        if epoch in epochs:
            emit(f"{spec}:batch={batch}", n, epoch, 0, samples)


def main():
    vectors.heading(f"transformers {importlib.metadata.version('transformers')}",
                    f"accelerate {importlib.metadata.version('accelerate')}", f"PyTorch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        for n in SIZES:
            run("accelerate:seed=42", n, 4, folder, (0, 1, 3))
            run("accelerate:seed=7", n, 4, folder, (0, 2), seed=7)
            run("accelerate:seed=9", n, 4, folder, (1,), seed=7, data_seed=9)
            run("accelerate:seed=42:drop_last=1", n, 7, folder, (1,), dataloader_drop_last=True)
        run("accelerate:seed=42", IMAGENET, 256, folder, (1,))


if __name__ == "__main__":
    main()
