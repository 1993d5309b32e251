# SPDX-License-Identifier: Apache-2.0
"""How long a training loop waits for its data: clairfs.watch and clairfs.DataLoader.

A step is a batch that the loop asked for (t_request), had (t_ready) and was done with (t_next). The records go to the mount
(include/clairfs/hint.h: struct clairfs_steps), two hundred at a time or once a second: one system call. That is made
between two steps and is in the time of neither.

Steps of one loop that are made while another has a batch are within that batch's step: a validation in the middle of an
epoch. Whether the other goes on is known only when it does; one that was kept and forgotten, its first batch shown to
somebody, must not make the whole training a part of it. So such steps wait until it is known.

It must never get in the way: the batches, their order, exceptions and the life of the loader's iterator are what they would
be without it, and whatever cannot be sent is dropped and counted. It has no thread and no lock, because processes that load
data are forked off at any time.
"""
import atexit
import fcntl
import itertools
import os
import struct
import sys
import time
import weakref

_now = time.monotonic_ns

_MAGIC, _VERSION, _AT_ONCE, _JOB_NAME = 0x53464C43, 1, 198, 32
_HEAD = struct.Struct(f"=IIIIQQ{_JOB_NAME}s")
_STEP = struct.Struct("=IIQQQQ")
_SIZE = _HEAD.size + _AT_ONCE * _STEP.size
_POWERPC_LIKE = os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha"))
_IOC_STEPS = (4 << 29 if _POWERPC_LIKE else 1 << 30) | _SIZE << 16 | 0xCF << 8 | 3
_FIRST, _LEFT, _INNER, _LOADER_SHIFT, _MAX_LOADER = 1, 2, 4, 16, 65535
_SEND_NS = 1_000_000_000
_INNER_MAX = 1024  # steps that wait; with more of them the loop around them is not one


def _number(name):
    try:
        return int(os.environ[name])
    except (KeyError, ValueError):
        return None


def _rank_and_world():
    """As torch.distributed says if it runs, else torchrun, else Slurm; else one process."""
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except Exception:  # half imported, or of a version that has none of it
        pass
    for rank_name, world_name in (("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")):
        rank, world = _number(rank_name), _number(world_name)
        if rank is not None and world is not None and 0 <= rank < world < 1 << 32:
            return rank, world
    return 0, 1


def _job_name():
    for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "TORCHELASTIC_RUN_ID"):
        value = os.environ.get(name, "")
        if value and value != "none":
            return value.encode("ascii", "replace")[:_JOB_NAME - 1]
    return b""


class _Sink:
    """Where records go: a mount, or a file."""

    def __init__(self, process, mountpoint, file):
        self._process, self._file = process, file
        self._directory = None if mountpoint is None else os.path.join(mountpoint, ".clairfs")
        self.records, self.lost, self.sent_ns = [], 0, _now()

    def flush(self):
        records, self.records = self.records, []
        self.sent_ns = _now()
        for at in range(0, len(records), _AT_ONCE):
            part = records[at:at + _AT_ONCE]
            try:
                self._send(part)
                self.lost = 0
            except Exception:  # it is ours alone
                self.lost += len(part)

    def _send(self, part):
        process = self._process
        data = bytearray(_HEAD.pack(_MAGIC, _VERSION, process.world, len(part), process.run_ns, self.lost, process.job))
        for record in part:
            data += _STEP.pack(process.rank, *record)
        if self._file is not None:  # one write: several processes may share the file
            fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
            return
        fd = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(fd, _IOC_STEPS, data.ljust(_SIZE, b"\0"))
        finally:
            os.close(fd)


class _Process:
    """What all loops of this process share. A process that is forked off begins anew."""

    def __init__(self):
        self.run_ns = _now()
        self.steps, self.loaders, self.loops = itertools.count(), itertools.count(), itertools.count()
        self.open = {}  # loops that have a batch and have not asked for the next, by number: references to them
        self.inner = []  # steps made meanwhile: (sink, record, how many loops around it)
        self.sinks = {}
        self.rank = self.world = self.job = None

    def sink(self, mountpoint, file):
        if mountpoint is None and file is None:
            return None
        if self.rank is None:
            self.rank, self.world = _rank_and_world()
            self.job = _job_name()
        key = (mountpoint, file)
        if key not in self.sinks:
            self.sinks[key] = _Sink(self, mountpoint, file)
        return self.sinks[key]

    def around(self, number):
        """How many loops this one is within."""
        try:
            return sum(1 for other in self.open if other < number)
        except RuntimeError:  # a loop of another thread, without a lock between us
            return 0

    def settle(self, levels):
        """The steps that wait are within `levels` loops less than it seemed."""
        waiting, self.inner = self.inner, []
        for sink, record, around in waiting:
            sink.records.append((record[0] | (_INNER if around > levels else 0), *record[1:]))
        for sink in {id(sink): sink for sink, _, _ in waiting}.values():
            if len(sink.records) >= _AT_ONCE:
                sink.flush()

    def forget(self):
        """The outermost loop does not go on: its step was over when the first one within it began."""
        try:
            number = min(self.open, default=None)
            loop = self.open.pop(number, lambda: None)()
            others = [other for other in (ref() for ref in self.open.values()) if other is not None]
            began = min([record[2] for _, record, _ in self.inner] + [other._request for other in others], default=0)
            if loop is not None and loop._ready:
                loop._over(max(began, loop._ready), _LEFT, False)
            for other in others:
                other._around = max(other._around - 1, 0)
            self.settle(1)
        except RuntimeError:  # a loop of another thread
            pass

    def flush(self):
        if self.inner:
            self.forget()
        for sink in list(self.sinks.values()):
            if sink.records:
                sink.flush()


_process = _Process()


def _begin_anew():
    global _process
    _process = _Process()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _process.flush())


class _Tally:
    """Sums over all loops of one loader, and where its steps are told."""

    def __init__(self, mountpoint, file):
        self.mountpoint = mountpoint
        self.file = os.environ.get("CLAIRFS_STEPS_FILE") if file is None else os.fspath(file)
        self.is_looked_up = mountpoint is not None or self.file is not None
        self.loader = None
        self.steps = self.wait_ns = self.first_wait_ns = self.compute_ns = 0

    def begin(self, loader):
        """The sink and the number of the loader, for a loop that begins."""
        if not self.is_looked_up:
            self.is_looked_up = True
            self.mountpoint = _mount_of(loader)
        if self.loader is None or self.loader[0] is not _process.steps:
            self.loader = (_process.steps, min(next(_process.loaders), _MAX_LOADER))
        return _process.sink(self.mountpoint, self.file), self.loader[1] << _LOADER_SHIFT

    def __getstate__(self):  # of a copy
        return {**self.__dict__, "loader": None}

    def summary(self):
        time_ns = self.wait_ns + self.compute_ns
        return {"steps": self.steps, "wait_seconds": self.wait_ns / 1e9, "first_wait_seconds": self.first_wait_ns / 1e9,
                "compute_seconds": self.compute_ns / 1e9, "au_percent": 100 * self.compute_ns / time_ns if time_ns else 0.0}


def _mount_of(loader):
    """The mount that the loader's files are in, or None: then nothing is told."""
    import clairfs
    try:
        return clairfs.mountpoint_of(clairfs._dataset_of(clairfs._inner_loader(loader)))
    except Exception:  # whatever a dataset does when it is asked for its root
        return None


class _Loop:
    """One iterator of a loader."""

    def __init__(self, iterator, tally, loader):
        self._iterator = iterator
        self._tally, self._process = tally, _process
        self._sink, self._flags = tally.begin(loader)
        self._number = next(_process.loops)
        self._is_first, self._around = _FIRST, 0
        self._step = self._request = self._ready = 0
        if any(record[0] >> _LOADER_SHIFT == self._flags >> _LOADER_SHIFT for _, record, _ in _process.inner):
            _process.forget()  # a second time through this loader: what is around it is no step

    def __iter__(self):
        return self

    def __next__(self):
        request = _now()
        process = self._process
        if self._ready:
            request = self._over(request, 0)
        self._around = process.around(self._number) if process.open else 0
        try:
            batch = next(self._iterator)
        except BaseException:
            if self._sink is not None and self._sink.records and process is _process:
                self._sink.flush()
            raise
        self._request, self._step = request, next(process.steps)
        process.open[self._number] = weakref.ref(self)
        self._ready = _now()
        return batch

    def _over(self, now, flag, may_send=True):
        """The step is over. Returns the time at which the next one begins."""
        ready, tally, sink, process = self._ready, self._tally, self._sink, self._process
        wait = ready - self._request
        self._ready = 0
        process.open.pop(self._number, None)
        tally.steps += 1
        tally.wait_ns += wait
        tally.compute_ns += now - ready
        first, self._is_first = self._is_first, 0
        if first:
            tally.first_wait_ns += wait
        if sink is None:
            return now
        record = (self._flags | first | flag, self._step, self._request, ready, now)
        if self._around and process.around(self._number):
            process.inner.append((sink, record, self._around))
            if len(process.inner) >= _INNER_MAX:
                process.forget()
        else:
            if process.inner and may_send:
                process.settle(0)
            sink.records.append((record[0] | (_INNER if self._around else 0), *record[1:]))
        if may_send and sink.records and (len(sink.records) >= _AT_ONCE or flag or now - sink.sent_ns >= _SEND_NS):
            sink.flush()
            return _now()
        return now

    def __del__(self):
        try:
            if self._ready and self._process is _process:  # else it is a copy that a fork made
                self._over(_now(), _LEFT)
        except Exception:  # the interpreter may be half gone
            pass

    def __getattr__(self, name):
        if name.startswith("__") or "_iterator" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._iterator, name)


class _Watched:
    """A loader whose loops are timed; all else is the loader's."""

    def __init__(self, loader, mountpoint, file):
        object.__setattr__(self, "_watched", loader)
        object.__setattr__(self, "_tally", _Tally(mountpoint, file))

    def __iter__(self):
        return _Loop(iter(self._watched), self._tally, self._watched)

    def __bool__(self):
        return bool(self._watched)

    def summary(self):
        """Of all loops so far: steps, wait_seconds (first_wait_seconds of it for first batches), compute_seconds,
        au_percent."""
        return self._tally.summary()

    def __getattr__(self, name):
        if name.startswith("__") or "_watched" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._watched, name)

    def __setattr__(self, name, value):
        setattr(self._watched, name, value)


class _WatchedSized(_Watched):
    """Likewise of a loader that has a length: who asks whether there is one gets the loader's answer."""

    def __len__(self):
        return len(self._watched)


def watch(loader, mountpoint=None, file=None):
    """Times the loops over a loader (any iterable) and tells the mount: `for batch in clairfs.watch(loader):`. What is
    watched is what the loop takes batches from: with accelerate, what prepare() has returned.

    mountpoint: where clairfs is mounted; by default the mount that the dataset's files are in, else the only one there is.
    file: the records go there instead, for clairfs report; by default CLAIRFS_STEPS_FILE of the environment, if it is set.
    Without either nothing is told, and .summary() still has the sums.
    """
    return (_WatchedSized if hasattr(type(loader), "__len__") else _Watched)(loader, mountpoint, file)


def data_loader_class():
    """torch's DataLoader with this in it."""
    import torch.utils.data

    class DataLoader(torch.utils.data.DataLoader):
        """torch.utils.data.DataLoader whose loops are timed as by clairfs.watch."""

        def __iter__(self):
            return _Loop(super().__iter__(), self._clairfs_tally(), self)

        def _clairfs_tally(self):
            tally = self.__dict__.get("_clairfs")
            if tally is None:
                tally = self.__dict__["_clairfs"] = _Tally(None, None)
            return tally

        def summary(self):
            """Of all loops so far: steps, wait_seconds (first_wait_seconds of it for first batches), compute_seconds,
            au_percent."""
            return self._clairfs_tally().summary()

    DataLoader.__module__, DataLoader.__qualname__ = "clairfs", "DataLoader"
    return DataLoader
