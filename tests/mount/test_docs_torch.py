# SPDX-License-Identifier: Apache-2.0
"""The Python in README and in the user guide runs as it stands there, with the real PyTorch, Lightning and transformers, on a
mount that then knows the order. Before it stands what a reader has: a dataset, a model, a step of training.
"""
import os

import docs
import mountkit
import tap
from mountkit import program, write_file

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
PACKAGE = os.path.join(tap.ROOT, "packaging", "python")
HERE = {"clairfs", "torch", "lightning", "transformers"}  # the rest is not installed with packaging/install-deps --torch
for variable in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "CLAIRFS_ORDER"):
    os.environ.pop(variable, None)

READER = r"""
import functools, logging, os, sys
import torch, torch.distributed
from torch.utils.data import DataLoader, Dataset
point = sys.argv[1]
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)

def leave():
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()

class Files(Dataset):
    def __init__(self):
        self.root = os.path.join(point, "train")
        self.samples = [(os.path.join(self.root, c, f), 0) for c in sorted(os.listdir(self.root))
                        for f in sorted(os.listdir(os.path.join(self.root, c)))]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, i):
        with open(self.samples[i][0], "rb") as f:
            return {"x": torch.tensor([float(f.read()[0])]), "labels": torch.tensor([0.0])}

dataset, train = Files(), lambda batch: None
loader = DataLoader(dataset, batch_size=8, sampler=torch.utils.data.distributed.DistributedSampler(dataset))
"""

LIGHTNING = r"""
import lightning
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def training_step(self, batch, _):
        return self.layer(batch["x"]).mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
    def train_dataloader(self):
        return DataLoader(dataset, batch_size=8, shuffle=True)
model = Model()
leave()
lightning.Trainer = functools.partial(lightning.Trainer, max_epochs=1, accelerator="cpu", logger=False, enable_checkpointing=False,
                                      enable_progress_bar=False, enable_model_summary=False)
"""

TRANSFORMERS = r"""
import transformers
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
    def forward(self, x, labels):
        out = self.layer(x)
        return {"loss": out.mean(), "logits": out}
model = Model()
leave()
args = transformers.TrainingArguments(output_dir=sys.argv[3], num_train_epochs=1, per_device_train_batch_size=8, save_strategy="no",
                                      report_to="none", use_cpu=True, disable_tqdm=True, logging_strategy="no")
transformers.Trainer = functools.partial(transformers.Trainer, model, args, train_dataset=dataset) \
    if "trainer.train" not in sys.argv[4] else transformers.Trainer
"""


def reader_of(body):
    code = READER
    if "lightning" in body:
        code += LIGHTNING + "import clairfs.lightning\n"
    if "transformers" in body:
        code += TRANSFORMERS + "import clairfs.transformers\n"
    return code


def run_block(place, number, body):
    code = reader_of(body) + body.replace("/mnt/imagenet", place.mnt).replace("range(90)", "range(2)").replace("num_workers=8", "num_workers=1")
    with place.mount(recover="off") as mount:
        done = program(PYTHON, "-c", code, place.mnt, place.path(f"rendezvous-{number}"), place.path("out"), body, timeout=600, cwd="/",
                       env={**os.environ, "PYTHONPATH": PACKAGE})
        what = " ".join(line.strip() for line in body.splitlines() if "clairfs" in line)[:90]
        tap.ok(done.code == 0, f"it runs: {what}", done)
        tap.ok("clairfs:" not in done.err.decode(), "without a warning of the module", done.err.decode())
        if "announce" in body or "fit" in body or "trainer.train" in body:
            said = mount.stats()["announced"]
            tap.ok(said["count"] > 0 and not said["is_refused"], "and the mount was told an order", said)


def the_python_of_the_documents(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    for i in range(64):
        write_file(f"{place.source}/train/c{i % 3}/{i:04}.jpg", bytes([i]) * 100)
    number = 0
    for name in docs.markdown_files():
        for body in docs.blocks(tap.read(name), "python"):
            needs = docs.imports_of(body)
            if needs <= HERE and ("loader" in body or "rainer" in body):
                number += 1
                tap.note(name)
                run_block(place, number, body)
    tap.ok(number >= 5, "there is Python in the documents", number)


mountkit.run(the_python_of_the_documents)
