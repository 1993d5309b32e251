# SPDX-License-Identifier: Apache-2.0
"""mosaicml-streaming, a local MDS directory, shuffled with its py1e, by the workers of a torch loader."""
import os
import sys
import types

# Importing the package imports its picture datasets, which want a torchvision built for the very torch that is installed.
package = types.ModuleType("streaming")
package.__path__ = [os.path.join(folder, "streaming") for folder in sys.path]
sys.modules["streaming"] = package

from records import blobs
from streaming.base.dataset import StreamingDataset
from streaming.base.format.mds import MDSWriter
from streaming.base.util import clean_stale_shared_memory
from torch.utils.data import DataLoader

HAS_WORKERS = True
RECORD = 60000


def write(directory, size, how):
    with MDSWriter(out=f"{directory}/mds", columns={"image": "bytes", "label": "int"}, size_limit=4 << 20) as writer:
        for i, blob in enumerate(blobs(size, RECORD)):
            writer.write({"image": blob, "label": i})


def read(directory, part, parts, epoch, how):
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=f"{directory}/mds", shuffle=True, shuffle_algo="py1e", shuffle_seed=42 + epoch, batch_size=8,
                               num_canonical_nodes=1, shuffle_block_size=1 << 18)
    # One worker is this process.
    for batch in DataLoader(dataset, batch_size=None, num_workers=parts if parts > 1 else 0):
        yield int(batch["label"]), batch["image"]
