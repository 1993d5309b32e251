# SPDX-License-Identifier: Apache-2.0
"""DLIO, the benchmark under MLPerf Storage: its generator, loaders and readers. how: the format of its files.

DLIO throws away what it reads. Here its readers are made to keep it: their base class is told of each sample when the file is open,
and reads it a moment before they do.
"""
import hashlib
import os
import pickle
import sys
import tempfile
import traceback
import types

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
import h5py  # noqa: F401
import numpy
import pandas  # noqa: F401
import tensorflow  # noqa: F401
import torch  # noqa: F401


class Untraced:
    """In place of DLIO's tracer, whose newer versions it cannot import."""

    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def __getattr__(self, name):
        return lambda *given, **_: given[0] if given else None


tracer = types.ModuleType("dftracer.logger")
tracer.dftracer, tracer.dft_fn, tracer.DFTRACER_ENABLE = Untraced(), Untraced, False
sys.modules["dftracer"], sys.modules["dftracer.logger"] = types.ModuleType("dftracer"), tracer

HAS_WORKERS = True
# files, samples of a file, share of the size: numbers as text are longer, and slow to make
SHAPES = {"hdf5": (8, 4, 1), "tfrecord": (8, 16, 1), "indexed_binary": (8, 16, 1), "mmap_indexed_binary": (8, 16, 1), "csv": (8, 4, 16)}


def launch(directory, how, size, **settings):
    """DLIO's own main program, in this process. It is imported here, as its MPI may not be older than the process; what takes
    long to import is there already."""
    import dlio_benchmark.main
    files, samples, share = SHAPES.get(how, (12, 1, 1))
    framework = "tensorflow" if how == "tfrecord" else "pytorch"
    settings = {"framework": framework, "reader.data_loader": framework, "dataset.format": how, "dataset.data_folder": directory,
                "dataset.num_files_train": files, "dataset.num_files_eval": 0, "dataset.num_samples_per_file": samples,
                "dataset.record_length": size // share // files // samples, "dataset.record_length_stdev": 0,
                "dataset.record_length_resize": 4096, "dataset.generation_buffer_size": 1 << 20, "reader.batch_size": 1,
                "train.epochs": 1, "train.computation_time": 0, "workflow.checkpoint": False, **settings}
    with tempfile.TemporaryDirectory() as out:
        sys.argv = ["dlio", "workload=unet3d_h100", f"hydra.run.dir={out}", *(f"++workload.{k}={v}" for k, v in settings.items())]
        dlio_benchmark.main.main()


def write(directory, size, how):
    with open(f"{directory}/size", "w", encoding="ascii") as file:
        file.write(str(size))
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if how == "tfrecord":  # its generator calls a program of DALI's for an index that only DALI reads
                import dlio_benchmark.data_generator.tf_generator
                dlio_benchmark.data_generator.tf_generator.call = lambda argv: 0
            launch(directory, how, size, **{"workflow.generate_data": True, "workflow.train": False})
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    if os.waitpid(pid, 0)[1]:
        raise RuntimeError("DLIO made no data")
    os.makedirs(f"{directory}/valid", exist_ok=True)


def sample_of(reader, name, index):
    data = reader.open_file_map[name]
    if hasattr(reader, "file_map_ibr"):  # as DLIO takes it: where the index is mapped, byte by byte
        at, size = (int(part[index]) for part in reader.file_map_ibr[name])
        if hasattr(reader, "buffer_map"):
            return reader.buffer_map[name][at:at + size].tobytes()
        data.seek(at)
        return data.read(size)
    if isinstance(data, numpy.ndarray):
        return data.tobytes() if name.endswith(("png", "jpeg")) else data[index if name.endswith("csv") else (..., index)].tobytes()
    return data["records"][index].tobytes()


def keep(folder):
    """Processes and threads write what they have read."""
    from dlio_benchmark.reader.reader_handler import FormatReader

    def put(key, content):
        with open(f"{folder}/{os.getpid()}-{hashlib.sha256(key.encode()).hexdigest()}", "wb") as file:
            pickle.dump((key, content), file)

    def get_sample(reader, name, index):
        put(f"{os.path.basename(name)}:{index}", sample_of(reader, name, index))
    FormatReader.get_sample = get_sample
    return put


def keep_records(put):
    from dlio_benchmark.reader.tf_reader import TFReader
    parse = TFReader._parse_image

    def parse_image(reader, serialized):
        for record in serialized.numpy():
            put(hashlib.sha256(record).hexdigest(), record)
        return parse(reader, serialized)
    TFReader._parse_image = parse_image


def read(directory, part, parts, epoch, how):
    with open(f"{directory}/size", encoding="ascii") as file:
        size = int(file.read())
    with tempfile.TemporaryDirectory() as folder:
        put = keep(folder)
        if how == "tfrecord":
            keep_records(put)
        launch(directory, how, size, **{"workflow.generate_data": False, "workflow.train": True, "reader.read_threads": parts})
        for name in sorted(os.listdir(folder)):
            with open(f"{folder}/{name}", "rb") as file:
                yield pickle.load(file)
