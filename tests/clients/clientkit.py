# SPDX-License-Identifier: Apache-2.0
"""The clients there are, and the process that runs one: for tests/clients/test_clients.py and bench/run clients."""
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))


class ClientFailed(Exception):
    """What went wrong, for a person."""


# Name of a case: the client (client_NAME.py) and how it reads.
SMALL = {
    "npz": ("npz", ""),
    "memmap": ("memmap", ""),
    "webdataset": ("webdataset", ""),
    "tfrecord": ("tfrecord", ""),
    "hdf5_contiguous": ("hdf5", "contiguous"),
    "hdf5_chunked": ("hdf5", "chunked"),
    "parquet": ("parquet", "read"),
    "parquet_columns": ("parquet", "columns"),
    "parquet_mapped": ("parquet", "mapped"),
    "arrow": ("arrow", ""),
    "lmdb": ("lmdb", "plain"),
    "lmdb_locked": ("lmdb", "locked"),
}
LARGE = {
    "datasets": ("datasets", ""),
    "mosaic": ("mosaic", ""),
    "litdata": ("litdata", ""),
    "tfdata": ("tfdata", "stream"),
    "tfdata_interleave": ("tfdata", "interleave"),
    "ffcv_mapped": ("ffcv", "mapped"),
    "ffcv_paged": ("ffcv", "paged"),
    **{f"dlio_{how}": ("dlio", how) for how in ("npz", "npy", "hdf5", "tfrecord", "csv", "jpeg", "png", "indexed_binary",
                                                "mmap_indexed_binary")},
}


class Job:
    """The client's process: see job.py."""

    def __init__(self, python, name, folder):
        module, self.how = {**SMALL, **LARGE}[name]
        self.log = os.path.join(folder, "client.log")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([python, "-W", "ignore", os.path.join(HERE, "job.py"), module], stdin=subprocess.PIPE,
                                            stdout=subprocess.PIPE, stderr=log, cwd=folder, text=True)
        self.has_order = self.answer()["has_order"]

    def answer(self):
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": "the job ended"}
        if "error" in answer:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                raise ClientFailed(f"{answer['error']}\n{log.read()[-3000:]}")
        return answer

    def ask(self, **request):
        self.process.stdin.write(json.dumps({"how": self.how, **request}) + "\n")
        self.process.stdin.flush()
        return self.answer()

    def write(self, directory, size):
        self.ask(do="write", directory=directory, bytes=size)

    def order(self, directory, epochs):
        return self.ask(do="order", directory=directory, epochs=epochs)["names"]

    def read(self, directory, readers, epoch):
        return self.ask(do="read", directory=directory, readers=readers, epoch=epoch)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.stdin.close()
        self.process.stdout.close()
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
