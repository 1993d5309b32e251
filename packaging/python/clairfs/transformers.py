# SPDX-License-Identifier: Apache-2.0
"""Announces the loaders of a Hugging Face Trainer:

    trainer = transformers.Trainer(..., callbacks=[clairfs.transformers.Callback()])

The Trainer makes its loader when the training begins: one that get_train_dataloader() gave before is another, which nobody
reads. For each evaluation it makes a new one, and shows it when the first step is over. The order of that is told then, if
it has one that does not depend on chance, for all evaluations to come.
"""
import warnings

import transformers

import clairfs


class Callback(transformers.TrainerCallback):
    """mountpoint: where clairfs is mounted; by default the mount that the datasets' files are in, else the only one."""

    def __init__(self, mountpoint=None):
        self.mountpoint = mountpoint
        self._seen = None
        self._told = set()

    def on_train_begin(self, args, state, control, train_dataloader=None, **kwargs):
        if train_dataloader is None:
            return
        try:
            clairfs._announce_loader(train_dataloader, self.mountpoint)
        except Exception as e:  # whatever it is, the training goes on
            warnings.warn(f"clairfs: {e}", stacklevel=2)

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if eval_dataloader is None or id(eval_dataloader) == self._seen:
            return
        self._seen = id(eval_dataloader)  # once per evaluation
        try:
            clairfs._announce_known(eval_dataloader, self.mountpoint, self._told)
        except Exception as e:  # whatever it is, the training goes on
            warnings.warn(f"clairfs: {e}", stacklevel=2)

    def on_evaluate(self, args, state, control, **kwargs):
        self._seen = None
