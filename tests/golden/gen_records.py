#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which bytes of the containers below format/ the real libraries read, one after the other, when they shuffle.

    python3 gen_records.py DIRECTORY > format/records.txt     (DIRECTORY: format/gpt; half a minute)

needs numpy, torch, mosaicml-streaming, litdata, megatron-core. Megatron's index files go to DIRECTORY. One run of a loader per line, blank-separated: the spec
that stands for it, the epoch, then FILE:OFFSET:LENGTH of each sample. What a library has read is looked up in formats.txt: the
shard and the number in it that it asked its own reader for.
"""
import importlib.metadata
import io
import os
import shutil
import sys
import tempfile
import types

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import numpy  # noqa: E402
import torch  # noqa: E402

OUT = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join("format", "gpt"))
FOLDER = tempfile.TemporaryDirectory()  # libraries write beside what they read
IN = os.path.join(FOLDER.name, "format")
shutil.copytree(os.path.join(os.path.dirname(os.path.abspath(__file__)), "format"), IN)
lines = []


def places():
    """{file: ["FILE:OFFSET:LENGTH"]} of formats.txt."""
    found = {}
    with open(os.path.join(IN, "formats.txt"), encoding="utf-8") as file:
        for line in file:
            if line[0] != "#":
                _, _, data, n, *records = line.split()
                if n not in ("whole", "refused"):
                    found[data] = [f"{data}:" + ":".join(r.split(":")[:2]) for r in records]
    return found


PLACES = places()


def tell(spec, epoch, reads):
    lines.append(f"{spec} {epoch} " + " ".join(PLACES[file][number] for file, number in reads))


def mosaic():
    package = types.ModuleType("streaming")  # without its __init__, which wants torchvision
    package.__path__ = [os.path.join(folder, "streaming") for folder in sys.path]
    sys.modules["streaming"] = package
    from streaming.base import StreamingDataset
    from streaming.base.format.base.reader import Reader
    reads = []
    inner = Reader.__getitem__

    def noted(self, number):
        reads.append(("mds/" + self.raw_data.basename, number))
        return inner(self, number)

    Reader.__getitem__ = noted
    for algorithm, more, keys in (("py1e", {}, ""), ("py1s", {"num_canonical_nodes": 2}, ":canonical_nodes=2"),
                                  ("py1br", {"shuffle_block_size": 8}, ":block=8")):
        dataset = StreamingDataset(local=os.path.join(IN, "mds"), shuffle=True, shuffle_algo=algorithm, shuffle_seed=42, batch_size=4,
                                   **more)
        for epoch in range(2):
            reads.clear()
            for _ in dataset:
                pass
            tell(f"mosaic-{algorithm}:seed=42:under=mds:batch=4{keys}", epoch, reads)


def litdata():
    from litdata import StreamingDataset
    from litdata.streaming.item_loader import PyTreeLoader
    reads = []
    inner = PyTreeLoader.load_item_from_chunk

    def noted(self, index, chunk_index, path, begin, *rest, **more):
        reads.append(("litdata/tensors/" + os.path.basename(path), index - begin))
        return inner(self, index, chunk_index, path, begin, *rest, **more)

    PyTreeLoader.load_item_from_chunk = noted
    dataset = StreamingDataset(os.path.join(IN, "litdata", "tensors"), shuffle=True, seed=7)
    for epoch in range(2):
        dataset.set_epoch(epoch + 1)
        reads.clear()
        for _ in dataset:
            pass
        tell("litdata:seed=7:under=litdata/tensors", epoch, reads)


def megatron():
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig
    from megatron.core.datasets.indexed_dataset import IndexedDataset
    from megatron.core.datasets.utils import Split
    reads = []
    inner = IndexedDataset.get

    def noted(self, number, *rest, **more):
        reads.append(("megatron/int32.bin", int(number)))
        return inner(self, number, *rest, **more)

    IndexedDataset.get = noted
    tokenizer = types.SimpleNamespace(vocab_size=1 << 20, eod=0, pad=0, unique_identifiers={"class": "none"})
    with tempfile.TemporaryDirectory() as cache:
        config = GPTDatasetConfig(random_seed=1234, sequence_length=8, split="1,0,0", path_to_cache=cache, tokenizer=tokenizer,
                                  reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
                                  create_attention_mask=False)
        text = IndexedDataset(os.path.join(IN, "megatron", "int32"))
        dataset = GPTDataset(text, "int32", numpy.arange(len(text), dtype=numpy.int32), 20, Split.train, config)
        starts = []
        for i in range(len(dataset)):
            reads.clear()
            dataset[i]
            starts.append(reads[0])
        for name in ("document", "sample", "shuffle"):
            array = getattr(dataset, f"{name}_index")
            numpy.save(os.path.join(OUT, f"int32-{name}_index.npy"), numpy.array(array))
    tell("megatron:path=GOLDEN/gpt/int32:under=megatron/int32.bin", 0, starts)


def arrays():
    from torch.utils.data.distributed import DistributedSampler
    rows = numpy.load(os.path.join(IN, "npy", "f4_2d.npy"), mmap_mode="r")
    for rank in range(2):
        sampler = DistributedSampler(rows, num_replicas=2, rank=rank, seed=3)
        for epoch in range(2):
            sampler.set_epoch(epoch)
            tell(f"torch-distributed:seed=3:world=2:rank={rank}:records=1:under=npy/f4_2d.npy", epoch,
                 [("npy/f4_2d.npy", i) for i in sampler])


def main():
    quiet = io.StringIO()
    shown, sys.stdout = sys.stdout, quiet  # the libraries talk
    os.makedirs(OUT, exist_ok=True)
    for part in (mosaic, litdata, megatron, arrays):
        part()
    sys.stdout = shown
    packages = ("mosaicml-streaming", "litdata", "megatron-core", "torch", "numpy")
    print("# LIVE: " + ", ".join(f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in packages) + ", gen_records.py")
    print("# spec epoch file:offset:length...")
    print("\n".join(lines))


main()
