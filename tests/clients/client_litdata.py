# SPDX-License-Identifier: Apache-2.0
"""litdata, chunks in a local directory, shuffled, by the workers of its loader."""
import os

os.environ["LITDATA_DISABLE_VERSION_CHECK"] = "1"
import litdata
import torch
from litdata.streaming import Cache
from records import blobs

HAS_WORKERS = True
RECORD = 60000


def write(directory, size, how):
    os.mkdir(f"{directory}/lit")
    cache = Cache(f"{directory}/lit", chunk_bytes=4 << 20)
    for i, blob in enumerate(blobs(size, RECORD)):
        cache[i] = {"image": torch.frombuffer(bytearray(blob), dtype=torch.uint8), "label": i}
    cache.done()
    cache.merge()


def read(directory, part, parts, epoch, how):
    dataset = litdata.StreamingDataset(f"{directory}/lit", shuffle=True, seed=42 + epoch)
    loader = litdata.StreamingDataLoader(dataset, batch_size=1, num_workers=parts if parts > 1 else 0)
    for batch in loader:
        yield int(batch["label"][0]), batch["image"][0].numpy().tobytes()
