# SPDX-License-Identifier: Apache-2.0
"""Announces the loaders of a Lightning Trainer:

    trainer = lightning.Trainer(callbacks=[clairfs.lightning.Callback()])

The Trainer makes, or makes over, its loaders itself, and begins to read the first epoch before any hook of a callback can
see them. They all pass through its strategy's process_dataloader when they are done and not yet read, so they are announced
there. The training's order is told first: it is the one that GPU wait is accounted for. Those of the validation follow.
"""
import importlib
import sys
import warnings

import clairfs


def _base():
    """Callback of the package that the job uses: it has two names."""
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            return sys.modules[name].Callback
    try:
        return importlib.import_module("lightning.pytorch").Callback
    except ImportError:
        return importlib.import_module("pytorch_lightning").Callback


class Callback(_base()):
    """mountpoint: where clairfs is mounted; by default the mount that the datasets' files are in, else the only one."""

    def __init__(self, mountpoint=None):
        super().__init__()
        self.mountpoint = mountpoint
        self._strategy, self._later, self._is_reading = None, [], False

    def setup(self, trainer, pl_module, stage):
        if self._strategy is not None:
            return
        clairfs._set_place(trainer.global_rank - trainer.local_rank, trainer.num_devices, trainer.local_rank)
        self._strategy = trainer.strategy
        process = trainer.strategy.process_dataloader

        def process_and_announce(dataloader):
            dataloader = process(dataloader)
            if trainer.training or self._is_reading or stage != "fit":
                self._announce(dataloader)
            else:
                self._later.append(dataloader)
            return dataloader

        trainer.strategy.process_dataloader = process_and_announce

    def teardown(self, trainer, pl_module, stage):
        if self._strategy is not None:
            vars(self._strategy).pop("process_dataloader", None)
        self._strategy, self._later, self._is_reading = None, [], False

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        """There is a batch, so the training's order is told."""
        self._is_reading = True
        while self._later:
            self._announce(self._later.pop(0))

    def _announce(self, dataloader):
        try:
            clairfs._announce_loader(dataloader, self.mountpoint)
        except Exception as e:  # whatever it is, the training goes on
            warnings.warn(f"clairfs: {e}", stacklevel=2)
