#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The job of bench/run known: a loader with worker processes over samples within larger files, and a GPU that sleeps.

    known_job.py KIND

Lines on stdin, each a JSON object, each answered by one line:

    {"do": "write", "directory": D, "bytes": N, "shards": S}      the dataset; NPZ has ten files
    {"do": "begin", "directory": D, "epochs": [...], "workers": W, "prefetch": P, "compute_s": S}      makes the workers
    {"do": "epoch", "number": E}
    {"do": "end"}

An epoch is {"reads": [...], "batch": B}: names of files, or [file, number in it, offset, length], as KIND wants them. Its answer has
seconds and batches; what of it was compute and what the trainer waited, for the first batch and for all others; and what the readers
asked for: bytes, and bytes of whole pages.

webdataset, tfrecord and npz are the real libraries, which read files from front to back. MDS and litdata are readers of our own, as
those libraries pull gigabytes: they read the same places in the same order. Of MDS a sample is an open, 8 bytes of the shard's table,
and the sample. Of litdata a chunk is opened, advised (WILLNEED) and mapped.

Batches are dealt to workers in turns and taken in turns, as in PyTorch's loader; workers stay for all epochs. What was read is let go
of: else the kernel would keep all of this dataset, as it can't of one that is larger than memory.
"""
import builtins
import io
import itertools
import json
import mmap
import multiprocessing
import os
import struct
import sys
import time
import traceback

PAGE = 4096
IMAGE_BYTES = 110_000
VOLUMES = (50, 150, 90, 130, 70, 110, 140, 60, 120, 80)  # MB


def pages(offset, length):
    return (-(-(offset + length) // PAGE) - offset // PAGE) * PAGE


class Opened:
    """Files of the dataset that a library opens, which reads each one to its end. One is let go of when the next is opened."""

    def __init__(self, directory):
        self.directory, self.bytes, self.pages, self.fd = directory, 0, 0, None
        self.inner = builtins.open
        builtins.open = io.open = self

    def __call__(self, path, *args, **more):
        file = self.inner(path, *args, **more)
        if isinstance(path, str) and path.startswith(self.directory):
            self.let_go()
            size = os.fstat(file.fileno()).st_size
            self.bytes += size
            self.pages += pages(0, size)
            self.fd = os.dup(file.fileno())
        return file

    def let_go(self):
        if self.fd is not None:
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(self.fd)
            self.fd = None


class Whole:
    """A client that reads whole files."""

    def __init__(self, directory, worker, workers):
        self.directory, self.worker, self.workers = directory, worker, workers
        self.opened = Opened(directory)

    def batches(self, epoch):
        """What each batch asked for."""
        samples = self.samples(epoch)
        while True:
            before = (self.opened.bytes, self.opened.pages)
            if not list(itertools.islice(samples, epoch["batch"])):
                break
            yield self.opened.bytes - before[0], self.opened.pages - before[1]
        self.opened.let_go()

    def mine(self, epoch):
        """Files are dealt out."""
        return [f"{self.directory}/{name}" for name in epoch["reads"][self.worker::self.workers]]


def images(size, seed):
    import numpy
    random = numpy.random.default_rng(seed)
    for _ in range(max(1, size // IMAGE_BYTES)):
        yield random.integers(0, 256, IMAGE_BYTES, dtype=numpy.uint8).tobytes()


class WebDataset(Whole):
    """Shards in WebDataset's own order; an image and its class are a sample."""

    def __init__(self, directory, worker, workers):
        import webdataset
        super().__init__(directory, worker, workers)
        os.environ.update(RANK="0", WORLD_SIZE="1", WORKER=str(worker), NUM_WORKERS=str(workers))
        urls = [f"{directory}/{name}" for name in sorted(os.listdir(directory)) if name.endswith(".tar")]
        self.dataset = webdataset.WebDataset(urls, seed=42, shardshuffle=100, detshuffle=True, empty_check=False,
                                             nodesplitter=webdataset.shardlists.split_by_node)

    def samples(self, epoch):
        for sample in self.dataset:
            yield len(sample["jpg"])

    @staticmethod
    def write(directory, size, shards):
        import webdataset
        with webdataset.ShardWriter(f"{directory}/train-%06d.tar", maxcount=max(1, size // IMAGE_BYTES // shards), verbose=0) as writer:
            for i, image in enumerate(images(size, 1)):
                writer.write({"__key__": f"{i:08d}", "jpg": image, "cls": str(i % 1000)})


class TFRecord(Whole):
    def samples(self, epoch):
        from tfrecord.reader import tfrecord_iterator
        for path in self.mine(epoch):
            for record in tfrecord_iterator(path):
                yield len(record)

    @staticmethod
    def write(directory, size, shards):
        from tfrecord.writer import TFRecordWriter
        for s in range(shards):
            writer = TFRecordWriter(f"{directory}/train-{s:05d}-of-{shards:05d}")
            for i, image in enumerate(images(size // shards, s)):
                writer.write({"image": (image, "byte"), "label": (i, "int")})
            writer.close()


class NPZ(Whole):
    """A volume is a file, and a batch, as unet3d of MLPerf Storage has them."""

    def samples(self, epoch):
        import numpy
        for path in self.mine(epoch):
            with numpy.load(path) as file:
                yield file["x"].nbytes + file["y"].nbytes

    @staticmethod
    def write(directory, size, shards):
        import numpy
        for i, part in enumerate(VOLUMES):
            noise = numpy.random.default_rng(i).integers(0, 256, size * part // sum(VOLUMES), dtype=numpy.uint8)
            numpy.savez(f"{directory}/case_{i:05d}.npz", x=noise, y=numpy.int64(i))


class Records:
    """A reader of our own: a batch of places goes to each worker in turns."""

    def __init__(self, directory, worker, workers):
        self.directory, self.worker, self.workers = directory, worker, workers

    def batches(self, epoch):
        reads, batch = epoch["reads"], epoch["batch"]
        for at in range(self.worker * batch, len(reads), self.workers * batch):
            part = reads[at:at + batch]
            for read in part:
                self.read(*read)
            yield sum(read[3] for read in part), sum(pages(*read[2:]) for read in part)
        self.end()

    def end(self):
        pass

    @staticmethod
    def write_shards(directory, size, shards, name):
        """Both formats: the number of samples, where each begins and the last one ends, the samples. Returns [(name, samples)]."""
        found = []
        for k in range(shards):
            parts = list(images(size // shards, k))
            parts = [part[:len(part) - 997 * (i % 10)] for i, part in enumerate(parts)]
            begins = list(itertools.accumulate(map(len, parts), initial=4 * (len(parts) + 2)))
            with open(f"{directory}/{name(k)}", "wb") as file:
                file.write(struct.pack(f"<{len(begins) + 1}I", len(parts), *begins) + b"".join(parts))
            found.append((name(k), len(parts)))
        return found

    @staticmethod
    def write_index(directory, index):
        with open(f"{directory}/index.json", "w", encoding="utf-8") as file:
            json.dump(index, file)


class MDS(Records):
    """As MosaicML Streaming reads a local directory."""

    def read(self, name, number, offset, length):
        with open(f"{self.directory}/{name}", "rb", 0) as file:
            file.seek(4 * (1 + number))
            begin, end = struct.unpack("<2I", file.read(8))
            file.seek(begin)
            if (begin, end) != (offset, offset + length) or len(file.read(length)) != length:
                raise ValueError(f"{name} has no sample {number} at {offset}")
            os.posix_fadvise(file.fileno(), begin, length, os.POSIX_FADV_DONTNEED)

    @classmethod
    def write(cls, directory, size, shards):
        found = cls.write_shards(directory, size, shards, "shard.{:05d}.mds".format)
        cls.write_index(directory, {"version": 2, "shards": [
            {"format": "mds", "samples": n, "raw_data": {"basename": name}, "zip_data": None, "compression": None, "version": 2}
            for name, n in found]})


class LitData(Records):
    """As litdata reads a local directory: one chunk after the other, its items shuffled."""

    def __init__(self, directory, worker, workers):
        super().__init__(directory, worker, workers)
        self.name, self.file, self.view = None, None, None

    def read(self, name, number, offset, length):
        if name != self.name:
            self.end()
            self.name, self.file = name, open(f"{self.directory}/{name}", "rb", 0)
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)
            self.view = mmap.mmap(self.file.fileno(), 0, prot=mmap.PROT_READ)
        if len(self.view[offset:offset + length]) != length:
            raise ValueError(f"{name} has no item {number} at {offset}")

    def end(self):
        if self.file:
            self.view.close()
            os.posix_fadvise(self.file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            self.file.close()
        self.name, self.file = None, None

    @classmethod
    def write(cls, directory, size, shards):
        chunks = cls.write_shards(directory, size, shards, "chunk-0-{}.bin".format)
        cls.write_index(directory, {"chunks": [
            {"chunk_bytes": os.path.getsize(f"{directory}/{name}"), "chunk_size": n, "dim": None, "filename": name} for name, n in chunks],
            "config": {"chunk_bytes": 1 << 24, "chunk_size": None, "compression": None, "data_format": ["bytes"], "data_spec": "null"}})


KINDS = {"webdataset": WebDataset, "tfrecord": TFRecord, "npz": NPZ, "mds": MDS, "litdata": LitData}


def work(kind, request, worker, pipe):
    """A worker: the number of an epoch, then a word for each batch that may be made. It answers with the batch, and with None at the end."""
    try:
        client = kind(request["directory"], worker, request["workers"])
        pipe.send("ready")
        while (word := pipe.recv()) is not None:
            if word == "batch":
                continue  # asked for behind the end of an epoch
            batches = client.batches(request["epochs"][word])
            while True:
                pipe.recv()
                batch = next(batches, None)
                pipe.send(batch)
                if batch is None:
                    break
    except Exception:
        pipe.send(traceback.format_exc())


class Worker:
    def __init__(self, kind, request, number):
        context = multiprocessing.get_context("fork")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(kind, request, number, other), daemon=True)
        self.process.start()
        other.close()

    def take(self):
        answer = self.pipe.recv()
        if isinstance(answer, str) and answer != "ready":
            raise ChildProcessError(answer)
        return answer

    def begin(self, epoch, prefetch):
        self.pipe.send(epoch)
        for _ in range(prefetch):
            self.pipe.send("batch")

    def end(self):
        self.pipe.send(None)
        self.process.join(60)


def one_epoch(workers, number, request):
    """The trainer: takes a batch of each worker in turns, and computes."""
    start, waits, compute, asked, asked_pages, left = time.monotonic(), [], 0.0, 0, 0, list(workers)
    for worker in workers:
        worker.begin(number, request["prefetch"])
    while left:
        worker = left.pop(0)
        before = time.monotonic()
        batch = worker.take()
        after = time.monotonic()
        if batch is None:
            continue
        left.append(worker)
        worker.pipe.send("batch")
        waits.append(after - before)
        time.sleep(request["compute_s"])
        compute += time.monotonic() - after
        asked += batch[0]
        asked_pages += batch[1]
    return {"seconds": time.monotonic() - start, "batches": len(waits), "compute": compute, "first": waits[0], "waited": sum(waits[1:]),
            "longest": max(waits[1:], default=0), "bytes": asked, "page_bytes": asked_pages}


class Loader:
    def __init__(self, kind):
        self.kind, self.workers, self.request = kind, [], None

    def answer(self, request):
        if request["do"] == "epoch":
            return one_epoch(self.workers, request["number"], self.request)
        if request["do"] == "write":
            self.kind.write(request["directory"], request["bytes"], request["shards"])
        elif request["do"] == "begin":
            self.request = request
            self.workers = [Worker(self.kind, request, number) for number in range(request["workers"])]
            for worker in self.workers:
                worker.take()
        else:
            for worker in self.workers:
                worker.end()
        return {}


def main():
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what libraries print
    loader = Loader(KINDS[sys.argv[1]])
    for line in sys.stdin:
        try:
            answer = loader.answer(json.loads(line))
        except Exception:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), file=said, flush=True)


if __name__ == "__main__":
    main()
