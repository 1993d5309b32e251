# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer and the Hugging Face Trainer, the real ones, over a mount with train/ and val/: their callbacks tell
the order of both from the first epoch on, and the job reads what it reads without them. And the line that seems right, but
announces a loader that nobody reads, changes nothing and says so.
"""
import json
import os

import mountkit
import tap
from mountkit import write_file

PYTHON = os.environ.get("CLAIRFS_TORCH_PYTHON")
PACKAGE = os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python")
TRAIN, VAL, EPOCHS = 300, 40, 3
for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "CLAIRFS_ORDER"):
    os.environ.pop(name, None)

JOB = r"""
import json, os, sys, warnings
point, package, how, told, epochs = *sys.argv[1:5], int(sys.argv[5])
sys.path.insert(0, package)
import torch
from torch.utils.data import DataLoader, Dataset
import clairfs

class Folder(Dataset):  # as torchvision's ImageFolder: classes by name, in each sorted(os.walk)
    def __init__(self, root):
        self.root, self.samples = root, []
        for number, name in enumerate(sorted(os.listdir(root))):
            for folder, _, files in sorted(os.walk(os.path.join(root, name))):
                self.samples += [(os.path.join(folder, f), number) for f in sorted(files)]
    def __len__(self):
        return len(self.samples)
    def __getitem__(self, i):
        with open(self.samples[i][0], "rb") as f:
            byte = f.read()[0]
        return {"x": torch.tensor([float(byte)]), "labels": torch.tensor([float(i)])}

train, val = Folder(f"{point}/train"), Folder(f"{point}/val")
read = {"train": [], "val": []}

def specs():
    if told == "plain":
        return []
    with open(f"{point}/.clairfs/stats.json") as f:
        stats = json.load(f)
    return [job["spec"] for job in stats["jobs"]]

seen = []  # orders in force in the middle of each epoch

def lightning_job():
    import logging
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning
    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
        def training_step(self, batch, _):
            read["train"] += batch["labels"].flatten().tolist()
            return self.layer(batch["x"] / 256).mean()
        def validation_step(self, batch, _):
            if not self.trainer.sanity_checking:
                read["val"] += batch["labels"].flatten().tolist()
        def on_train_batch_end(self, outputs, batch, number):
            if number == 20:
                seen.append(specs())
        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)
        def train_dataloader(self):
            return DataLoader(train, batch_size=8, shuffle=True, num_workers=2 if how == "lightning-workers" else 0)
        def val_dataloader(self):
            return DataLoader(val, batch_size=8)
    callbacks = [] if told == "plain" else [clairfs.lightning.Callback()]
    lightning.Trainer(max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                      enable_model_summary=False, callbacks=callbacks).fit(Model())

def transformers_job():
    import transformers
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(1, 1)
        def forward(self, x, labels):
            read["train" if self.training else "val"].extend(labels.flatten().tolist())
            out = self.layer(x / 256)
            return {"loss": out.mean(), "logits": out}
    class Watch(transformers.TrainerCallback):
        def on_step_end(self, args, state, control, **_):
            if state.global_step % (state.max_steps // epochs) == 20:
                seen.append(specs())
    args = transformers.TrainingArguments(
        output_dir=os.environ["OUT"], accelerator_config={"use_seedable_sampler": how == "transformers"}, num_train_epochs=epochs, per_device_train_batch_size=8, per_device_eval_batch_size=8,
        eval_strategy="epoch", save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True, logging_strategy="no")
    callbacks = [Watch()] + ([clairfs.transformers.Callback()] if told == "callback" else [])
    trainer = transformers.Trainer(Model(), args, train_dataset=train, eval_dataset=val, callbacks=callbacks)
    if told == "line":
        seen.append([clairfs.announce(trainer.get_train_dataloader(), point)])
        with open(f"{point}/.clairfs/stats.json") as f:
            order = json.load(f)["order"]
        seen.append([order["state"], order["search"]["doing"]])
        return
    if told == "trainer":
        try:
            clairfs.announce(trainer, point)
        except clairfs.AnnounceError as e:
            seen.append(str(e))
        return
    trainer.train()

torch.manual_seed(7)
(lightning_job if how.startswith("lightning") else transformers_job)()
print(json.dumps({"read": read, "seen": seen, "after": torch.rand(1).item()}))
"""


def job(place, point, how, told):
    done = mountkit.program(PYTHON, "-c", JOB, point, PACKAGE, how, told, EPOCHS, timeout=600, cwd="/",
                            env={**os.environ, "OUT": place.path("out"), "PYTHONWARNINGS": "default"})
    if done.code:
        raise mountkit.Failed(f"{how}, {told}: {done}")
    return json.loads(done.out.splitlines()[-1]), done.err.decode()


def prepare(place):
    if not PYTHON:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    for part, n in ("train", TRAIN), ("val", VAL):
        for i in range(n):
            write_file(f"{place.source}/{part}/c{i % 3}/{i:04}.jpg", bytes([i % 256]) * 100)


def check(place, how, train_spec):
    plain, _ = job(place, place.source, how, "plain")
    tap.equal([len(plain["read"]["train"]), len(plain["read"]["val"])], [TRAIN * EPOCHS, VAL * EPOCHS], f"{how}: the job is one")
    with place.mount(recover="quick") as mount:
        told, err = job(place, mount.mountpoint, how, "callback")
        tap.equal(told["read"], plain["read"], f"{how}: the job reads the same with the callback")
        tap.equal(told["after"], plain["after"], f"{how}: the random generator is where it would be")
        tap.ok("clairfs: " not in err, f"{how}: and there is no warning", err)
        tap.equal(len(told["seen"]), EPOCHS, f"{how}: each epoch is looked at")
        for epoch, specs in enumerate(told["seen"]):
            tap.ok(specs and specs[0].startswith(train_spec) and ":sort=torchvision:under=train" in specs[0],
                   f"{how}: epoch {epoch}: the training's order is the first", specs)
            has_val = len(specs) == 2 and specs[1].startswith("sequential:batch=8:sort=torchvision:under=val:job=loader-")
            tap.ok(has_val or (epoch == 0 and how.startswith("transformers")), f"{how}: epoch {epoch}: the validation's is beside it", specs)
        # All of both loaders' reads but the sanity check and, with the Trainer, the first validation have a place.
        stats = mount.wait_for(lambda s: s["counters"]["sample_opens"] >= (TRAIN + VAL) * EPOCHS, f"{how}: all opens are seen")
        tap.ok(stats["counters"]["order_mismatches"] <= VAL, f"{how}: reads are where the orders have them", stats["counters"])


def lightning_hooks(place):
    prepare(place)
    check(place, "lightning", "list:path=told:epochs=1")
    check(place, "lightning-workers", "list:path=told:epochs=1")


def transformers_trainer(place):
    prepare(place)
    check(place, "transformers", "accelerate:batch=8:")
    check(place, "transformers-random", "list:path=told:epochs=1:batch=8:")


def a_loader_that_nobody_reads(place):
    prepare(place)
    with place.mount(recover="quick") as mount:
        before = mount.stats()["order"]["search"]["doing"]
        told, err = job(place, mount.mountpoint, "transformers-random", "line")
        tap.equal(told["seen"], [["list"], ["no_order", before]], "a loader that is followed changes nothing before it is read")
        tap.ok("clairfs.transformers.Callback" in err, "and the right way is said at once", err)
        tap.ok("never read" in err, "and at the end that it was for nothing", err)
        tap.equal(mount.stats()["announced"], {"count": 0, "refused": 0, "is_refused": False},
                  "nothing was announced")
        told, _ = job(place, mount.mountpoint, "transformers", "line")
        tap.ok(told["seen"][0][0].startswith("accelerate:batch=8:"), "one whose order is that of any other like it is told", told)
        told, _ = job(place, mount.mountpoint, "transformers", "trainer")
        tap.ok("clairfs.transformers.Callback" in told["seen"][0], "of a Trainer itself the right way is said", told)


mountkit.run(lightning_hooks, transformers_trainer, a_loader_that_nobody_reads)
