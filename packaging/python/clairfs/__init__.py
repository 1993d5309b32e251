# SPDX-License-Identifier: Apache-2.0
"""Tells a clairfs mount the order in which a training job is going to read its samples.

    loader = torch.utils.data.DataLoader(dataset, sampler=DistributedSampler(dataset), ...)
    clairfs.announce(loader)

and, if it is told, how long the job waits for them:

    for batch in clairfs.watch(loader):

Nothing else changes in the job. Known samplers become a spec that the mount computes every epoch from. Of any other the
index list is handed over at the start of each epoch, before the first sample is read: this is exact whatever the sampler
does, but it begins later, and until then nothing changes in the mount. Nothing but the mount need be shared with the daemon.

Frameworks that make their loaders themselves have callbacks: clairfs.lightning.Callback, clairfs.transformers.Callback.

The module imports nothing but the standard library, torch least of all: types are told by their names.

It must never change what the job reads, and never hide that the mount did not take the order: that is an AnnounceError
(or a warning, where the job is running already).
"""
import array
import contextlib
import copy
import errno
import fcntl
import importlib
import itertools
import json
import os
import re
import struct
import sys
import warnings
import weakref

from clairfs._parts import part_of
from clairfs._steps import _rank_and_world, _Watched, data_loader_class, watch

__all__ = ["announce", "mountpoint_of", "send", "watch", "AnnounceError"]
__version__ = "0.1.0"

# include/clairfs/hint.h: struct clairfs_hint and clairfs_list, and their ioctls
_VERSION, _VERSION_NAMELESS = 2, 1
_HINT = struct.Struct("=Ii4024s64s")
_POWERPC_LIKE = os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha"))
_DIRECTION = 6 << 29 if _POWERPC_LIKE else 3 << 30
_ANNOUNCE = _DIRECTION | _HINT.size << 16 | 0xCF << 8 | 1
_PART = 1700
_LIST = struct.Struct(f"=IiQII936s64s{4 * _PART}s")
_LAST, _BYTES, _WIDTHS, _NAMED, _VERSION_NUMBERS, _VERSION_BYTES = 1, 2, {".u32": 4, ".u64": 8}, 16, 1, 2
_ANNOUNCE_LIST = _DIRECTION | _LIST.size << 16 | 0xCF << 8 | 2
_INO_OF_SAMPLE = 2

_LARGE = 214748363  # more samples than this: torch's versions differ
_NONE = object()
# They begin epochs that they do not read: generators are drawn from more often than epochs say.
_TRAINERS = frozenset(("lightning", "pytorch_lightning", "fastai", "ignite"))


class AnnounceError(Exception):
    """The mount did not take the order; the message is one line."""


def __getattr__(name):  # torch, and other frameworks, are loaded by who asks for them
    if name in ("lightning", "transformers"):
        return importlib.import_module("clairfs." + name)
    if name != "DataLoader":
        raise AttributeError(f"module 'clairfs' has no attribute {name!r}")
    globals()[name] = data_loader_class()
    return globals()[name]


def send(spec, mountpoint):
    """Announces a spec ("none": no order any more; "?" changes nothing) and returns it in canonical form. A list that is not beneath the mount's
    source is read here and handed over."""
    path, keys = _list_of(spec)
    if path is not None and not os.path.isabs(path):
        return _send_file(path, keys, mountpoint)  # meant from here, not from the source
    text = spec.encode()
    if len(text) >= 4024 or b"\0" in text:
        raise AnnounceError("the order is longer than 4023 bytes or has a zero byte")
    name = _name_of(spec, mountpoint)
    hint = bytearray(_HINT.pack(_VERSION, 0, text, name))
    try:
        with open(os.path.join(mountpoint, ".clairfs", "control"), "rb") as f:
            _tell(f, _ANNOUNCE, hint)
    except OSError as e:
        raise AnnounceError(f"{mountpoint}: {_why(e)}") from e
    _, status, answer, _ = _HINT.unpack(hint)
    line = answer.split(b"\0")[0].decode(errors="replace")
    if status == -errno.EXDEV and path is not None:
        return _send_file(path, keys, mountpoint)
    if status < 0:
        raise AnnounceError(line)
    _has_told(spec, name, mountpoint)
    return line


def _alone(spec):
    """The rank that this process tells an order for, if it does not speak for its node: the others of the node tell theirs."""
    place, told = _place(), re.search(":rank=([0-9]+)", spec or "")
    rank, world = _rank_and_world()
    if place and place[1] == 1:
        return None
    if told:
        return int(told[1])
    return rank if spec in (None, "none") and world > 1 and not place else None


def _name_of(spec, mountpoint):
    """What this process tells after an order for its rank is its next one, and what it takes back is what it told."""
    alone, before = _alone(spec), _told_names.get(mountpoint)
    return before if before and (alone is None or spec == "none") else _own_name(alone)


def _has_told(spec, name, mountpoint):
    """An order that it told before it told for its rank is over: the name is another one now."""
    if spec.startswith("?") or ":job=" in spec:
        return
    before = _told_names.pop(mountpoint, None)
    if spec == "none":
        return
    _told_names[mountpoint] = name
    if before and before != name:
        with contextlib.suppress(AnnounceError):
            send("none:job=" + before.decode(), mountpoint)


def _own_name(rank=None):
    """The name of the job that this process is of, as clairfs_job_name() of hint.h says it: the same name is the same job.
    rank: it tells for this one alone, so what the others tell is not its next order."""
    name, more, separator = os.environ.get("SLURM_JOB_ID"), os.environ.get("SLURM_STEP_ID"), "."
    if not name and os.environ.get("TORCHELASTIC_RUN_ID"):
        name, separator = os.environ["TORCHELASTIC_RUN_ID"], "-"
        more = os.environ.get("MASTER_PORT") if name == "none" else None
    elif not name:
        name = f"session-{os.getsid(0)}"
        try:
            more = os.readlink("/proc/self/ns/pid")[5:].rstrip("]")
        except OSError:
            more = None
        more = None if more == "4026531836" else more
    alone = b"" if rank is None else b"-rank%d" % int(rank)
    return re.sub(rb"[^0-9A-Za-z._-]", b"_", os.fsencode(name + separator + more if more else name)[:63 - len(alone)]) + alone


def _ioctl(f, number, data):
    """Once more when a signal came, whose handler has run by then."""
    while True:
        try:
            return fcntl.ioctl(f, number, data)
        except InterruptedError:
            pass


def _tell(f, number, data):
    """An older mount knows no names, and is told without."""
    try:
        return _ioctl(f, number, data)
    except OSError as e:
        if e.errno != errno.EPROTO:
            raise
    if number == _ANNOUNCE:
        struct.pack_into("=I", data, 0, _VERSION_NAMELESS)
        struct.pack_into("64s", data, _HINT.size - 64, b"")
    else:
        flags, = struct.unpack_from("=I", data, 16)
        struct.pack_into("=I", data, 16, flags & ~_NAMED)
    return _ioctl(f, number, data)


def _list_of(spec):
    """The path and the other keys of a spec "list:...", or (None, "")."""
    kind, *pairs = spec.split(":")
    paths = [pair[5:] for pair in pairs if pair.startswith("path=")]
    if kind != "list" or len(paths) != 1:
        return None, ""
    path = re.sub("%(3A|2C|2F|25)", lambda code: chr(int(code[1], 16)), paths[0], flags=re.IGNORECASE)
    return path, ":".join(pair for pair in pairs if not pair.startswith("path="))


def _why(error):
    if error.errno in (errno.ENOENT, errno.ENOTTY):
        return "not a clairfs mount that takes orders"
    if error.errno == errno.EPROTO:
        return "the mount speaks another version of the protocol than this module"
    return error.strerror


def announce(what, mountpoint=None, job=None):
    """Announces the order of a DataLoader, a sampler, a list of sample numbers, or a spec; returns the spec, or "list": then
    each epoch of the loader is handed over when it begins, and until the first one does nothing is told.

    mountpoint: where clairfs is mounted, as this process sees it; by default the mount that the dataset's files are in,
    else the only one there is. Sample numbers are those of the mount (clairfs index). Where the dataset says the paths of
    its files (torchvision's ImageFolder) they are compared, and translated if need be; else the dataset must list the
    mount's files sorted, and have all of them.

    Loaders of different datasets (training and validation) are followed side by side, each until its next order. job: a
    name for the order, where that is not what is meant; the same name replaces. Without one the order is that of this process's
    job, by Slurm's job and step, else the run of torchrun, else the session: several trainings in one of these need names.
    Processes that tell for their rank alone are jobs of their own.

    Of the processes of a node one announces for all (torchrun's LOCAL_RANK 0); the others return the same.
    """
    if isinstance(what, str):
        what += f":job={job}" if job else ""
        # One that says the ranks of this process is not the others'.
        is_own = ":rank=" in what
        return send(what, mountpoint or mountpoint_of(None)) if is_own or _speaks_for_node() else what
    if isinstance(what, (list, tuple, range, array.array)):
        if not len(what):
            raise AnnounceError("the list is empty: nothing was announced")
        return _send_list(what, mountpoint or mountpoint_of(None), "epochs=1" + (f":job={job}" if job else ""))
    if hasattr(what, "get_train_dataloader"):
        raise AnnounceError("a Trainer makes its loaders itself: give it the callback clairfs.transformers.Callback()")
    told = _announce_loader(what, mountpoint, job)
    if told == "list" and _is_prepared(what) and "transformers.trainer" in sys.modules:
        warnings.warn("clairfs: nothing is announced before this DataLoader is read. A Trainer makes its loaders itself, and "
                      "reads no other: for that there is the callback clairfs.transformers.Callback()", stacklevel=2)
    return told


def _announce_loader(what, mountpoint, job=None):
    """Likewise, of what has a dataset."""
    loader = _inner_loader(what)
    dataset = _dataset_of(loader)
    mountpoint = mountpoint or mountpoint_of(dataset)
    indices, part = _numbers_of(dataset, mountpoint)
    spec = _spec_of(what, loader) if indices is None else None
    if spec is None and not hasattr(loader, "batch_sampler"):
        raise AnnounceError(f"{_name(what)}: its order is known only while it runs; announce its DataLoader")
    name = job or _job_of(loader, dataset)
    keys = part + (f":job={name}" if name else "")
    if spec is not None:
        return send(spec + keys, mountpoint) if _speaks_for_node() else spec + keys
    return _follow(loader, mountpoint, indices, keys)


def _announce_known(what, mountpoint, told):
    """Announces a loader that is being read already, if its order is a spec. told: the specs of before, not told again."""
    loader = _inner_loader(what)
    dataset = _dataset_of(loader)
    mountpoint = mountpoint or mountpoint_of(dataset)
    indices, part = _numbers_of(dataset, mountpoint)
    spec = _spec_of(what, loader) if indices is None else None
    if spec is None or spec + part in told:
        return
    if _speaks_for_node():
        send(f"{spec}{part}:job={_new_name()}", mountpoint)
    told.add(spec + part)


def _new_name():
    """Of one more order of this process: no other's, and nothing that the job draws from is drawn from."""
    return "loader-" + os.urandom(4).hex()


class _Loaders:
    """The loaders that were announced and are still there. The first one's order has no name, as that of any job: it is the
    process's. Those of other datasets beside it have names, else each would replace the one before."""

    def __init__(self):
        self.known = []  # (reference to the loader, its dataset's id, name)
        self.free = []  # names of those that are gone

    def name_of(self, loader, dataset):
        self.free += [name for loader_of, _, name in self.known if loader_of() is None and name]
        self.known = [one for one in self.known if one[0]() is not None]
        for _, known, name in self.known:
            if known == id(dataset):
                break
        else:
            name = None
            if any(name is None for _, _, name in self.known):
                name = self.free.pop() if self.free else _new_name()
        self.known.append((weakref.ref(loader), id(dataset), name))
        return name


_loaders = _Loaders()


def _job_of(loader, dataset):
    try:
        return _loaders.name_of(loader, dataset)
    except TypeError:  # no reference to it can be made
        return None


# --- which mount ---

def _mounts():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            fields = line.split()
            if fields[fields.index("-", 6) + 1] == "fuse.clairfs":
                yield re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), fields[4])


def mountpoint_of(dataset):
    """The clairfs mount that a dataset's files are in, or the only one."""
    mounts = sorted(set(_mounts()), key=len, reverse=True)
    dataset, _ = _unwrap(dataset)
    roots = [getattr(dataset, "root", None)] + (_paths_of(dataset) or [])[:1]
    for root in (r for r in roots if isinstance(r, (str, os.PathLike))):
        path = os.path.realpath(root)
        for mount in mounts:
            if os.path.commonpath([path, mount]) == mount:
                return mount
    if len(mounts) == 1:
        return mounts[0]
    raise AnnounceError("several clairfs mounts: name the mountpoint" if mounts else "nothing of clairfs is mounted here")


# --- what the job reads ---

def _name(thing):
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _is(thing, *names):
    """Exactly one of these types of torch, no class derived from it: that may do anything."""
    return type(thing).__module__.startswith(("torch.utils.data.", "torchdata.stateful_dataloader.")) and \
        type(thing).__name__ in names


def _dataset_of(what):
    batches = getattr(what, "batch_sampler", None)
    for holder in (what, getattr(what, "sampler", None), getattr(batches, "sampler", None)):
        for name in ("dataset", "data_source"):
            if hasattr(holder, name):
                return getattr(holder, name)
    return None


def _unwrap(dataset):
    """The dataset below Subsets, and the numbers there of the samples above, or None."""
    indices = None
    while _is(dataset, "Subset"):
        inner = dataset.indices
        indices = [int(inner[i]) for i in indices] if indices is not None else [int(i) for i in inner]
        dataset = dataset.dataset
    return dataset, indices


def _paths_of(dataset):
    """The paths of a dataset's samples by its own numbers, or None: as torchvision's folders say it, and many others."""
    for name in ("samples", "imgs", "files", "paths", "image_paths", "filenames"):
        items = getattr(dataset, name, None)
        if not isinstance(items, (list, tuple)) or not items:
            continue
        first = items[0][0] if isinstance(items[0], (list, tuple)) and items[0] else items[0]
        if isinstance(first, (str, os.PathLike)) and (os.path.isabs(first) or "/" in os.fspath(first) and os.path.exists(first)):
            return [i[0] for i in items] if first is not items[0] else list(items)
    return None


def _number(path, device):
    st = os.stat(path)
    if st.st_dev != device:
        raise AnnounceError(f"{os.fspath(path)!r} is not in the mount")
    return st.st_ino - _INO_OF_SAMPLE


def _samples_of_mount(mountpoint):
    try:
        with open(os.path.join(mountpoint, ".clairfs", "stats.json"), encoding="utf-8") as f:
            return json.load(f)["dataset"]["samples"]
    except OSError as e:
        raise AnnounceError(f"{mountpoint}: {_why(e)}") from e
    except (ValueError, KeyError, TypeError):
        raise AnnounceError(f"{mountpoint}: not a clairfs mount that takes orders") from None


def _count_of(mountpoint):
    """How many files the mount numbers with such keys; None if it cannot say."""
    def count(keys):
        try:
            return int(send(f"?sequential{keys}", mountpoint).split()[0])
        except (AnnounceError, ValueError):
            return None
    return count


def _numbers_of(dataset, mountpoint):
    """(numbers, keys): the mount's numbers of the dataset's samples, None when they are the same numbers, as the mount has
    them with these keys of a spec. Numbers of another list of files would be worse than none. Some hundred files are
    compared; where there is a difference the dataset may be a directory of the mount, else all files are."""
    base, indices = _unwrap(dataset)
    try:
        n = len(base)
    except TypeError:
        return indices, ""
    samples, paths = _samples_of_mount(mountpoint), _paths_of(base)
    numbers = None
    if paths and len(paths) == n:
        try:
            device = os.stat(mountpoint).st_dev
            some = {i: _number(paths[i], device) for i in {*range(0, n, max(1, n // 500)), n - 1}}
            if n != samples or any(i != number for i, number in some.items()):
                part = part_of(base, paths, mountpoint, _count_of(mountpoint))
                if part is not None:
                    return indices, part
                numbers = [_number(p, device) for p in paths]
                for number, path in zip(numbers, paths):
                    if not 0 <= number < samples:
                        raise AnnounceError(f"{os.fspath(path)!r} is no sample of the mount")
        except OSError as e:
            raise AnnounceError(f"{e.filename!r}: {e.strerror}") from e
    elif n != samples:
        raise AnnounceError(f"the dataset has {n} samples, the mount {samples}: their numbers are not the same")
    if indices is None:
        return numbers, ""
    return (indices if numbers is None else [numbers[i] for i in indices]), ""


_known_place = None
_told_names = {}  # by mountpoint: what this process has told its order under


def _set_place(first, ranks, own):
    """Where the framework says itself which ranks are on this node."""
    global _known_place
    _known_place = (first, ranks, own)


def _place():
    """(first rank of this node, ranks on it, own place among them) as a framework or torchrun says, or None."""
    if _known_place:
        return _known_place
    try:
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        return rank - local, int(os.environ["LOCAL_WORLD_SIZE"]), local
    except (KeyError, ValueError):
        return None


def _speaks_for_node():
    place = _place()
    return not place or place[2] == 0


def _ranks_of_node(rank, world):
    """The ranks that this node's processes have, if this process has this one; else it alone."""
    place = _place()
    if place and rank == place[0] + place[2] and world >= place[0] + place[1]:
        return range(place[0], place[0] + place[1])
    return range(rank, rank + 1)


def _ranks_text(rank, world):
    ranks = _ranks_of_node(rank, world)
    return f":ranks={ranks[0]}-{ranks[-1]}" if len(ranks) > 1 else f":rank={rank}"


def _distributed(sampler):
    spec = f"torch-distributed:seed={sampler.seed}:world={sampler.num_replicas}"
    spec += _ranks_text(sampler.rank, sampler.num_replicas)
    spec += "" if sampler.shuffle else ":shuffle=0"
    spec += ":drop_last=1" if sampler.drop_last else ""
    return spec + (f":start_epoch={sampler.epoch}" if sampler.epoch else "")


def _seed_of(generator):
    """The seed of a generator from which nothing was drawn so far, else None."""
    torch = sys.modules.get("torch")
    if torch is None or generator is None or generator.device.type != "cpu":
        return None
    fresh = torch.Generator()
    fresh.manual_seed(generator.initial_seed())
    return generator.initial_seed() if torch.equal(fresh.get_state(), generator.get_state()) else None


def _random(loader, sampler):
    """A RandomSampler whose generator is its own: that of torch is drawn from by everybody, and then nothing is known."""
    seed = _seed_of(sampler.generator)
    if seed is None or len(sampler.data_source) > _LARGE or not _TRAINERS.isdisjoint(sys.modules):
        return None
    if _place() and _place()[1] > 1:
        return None
    spec = f"torch-generator:seed={seed}" + (":persistent=1" if loader.persistent_workers else "")
    spec += "" if loader.generator is sampler.generator else ":sampler_only=1"
    spec += ":replacement=1" if sampler.replacement else ""
    return spec + (f":num_samples={sampler.num_samples}" if sampler.num_samples != len(sampler.data_source) else "")


def _stateful(loader, sampler):
    """torchdata's StatefulDataLoader with shuffle=True and a generator of its own."""
    seed = _seed_of(loader.generator) if loader.generator is sampler.generator else None
    if seed is None or sampler.replacement or sampler.num_samples != len(sampler.data_source):
        return None
    return f"torchdata-loader:seed={seed}:generator=1" + (":persistent=1" if loader.persistent_workers else "")


def _accelerated(what, sampler, batches):
    """A loader that accelerate has prepared: its sampler, and how it deals out batches."""
    spec = "accelerate"
    if _is_seedable(sampler):
        if sampler.replacement or sampler.num_samples != len(sampler.data_source) or len(sampler.data_source) > _LARGE:
            return None
        # The loader sets the epoch when it begins one.
        epoch = getattr(what, "iteration", None)
        epoch = epoch if isinstance(epoch, int) else sampler.epoch
        spec += f":seed={sampler.initial_seed}" + (f":start_epoch={epoch}" if epoch else "")
    elif _is(sampler, "SequentialSampler"):
        spec += ":shuffle=0"
    else:
        return None
    if _is_shard(batches):
        if not batches.batch_size:
            return None
        spec += f":world={batches.num_processes}" + _ranks_text(batches.process_index, batches.num_processes)
        spec += "" if batches.even_batches else ":even_batches=0"
    return spec + (":drop_last=1" if batches.drop_last else "")


def _is_seedable(sampler):
    return _name(sampler) == "accelerate.data_loader.SeedableRandomSampler"


def _is_shard(batches):
    return _name(batches) == "accelerate.data_loader.BatchSamplerShard"


def _spec_of(what, loader):
    """The spec whose order this loader's (or sampler's) is, or None."""
    batches = getattr(loader, "batch_sampler", None)
    inner = batches.batch_sampler if _is_shard(batches) else batches
    if inner is not None and not _is(inner, "BatchSampler"):
        return None
    sampler = inner.sampler if inner is not None else getattr(loader, "sampler", loader)
    spec = None
    if _is_shard(batches) or _is_seedable(sampler):
        spec = _accelerated(what, sampler, batches) if inner is not None else None
    elif _is(sampler, "SequentialSampler"):
        spec = "sequential" if not (_place() and _place()[1] > 1) else None
    elif _is(sampler, "DistributedSampler"):
        spec = _distributed(sampler)
    elif _is(sampler, "RandomSampler") and loader is not sampler:
        spec = (_stateful if _is_stateful(loader) else _random)(loader, sampler)
    return spec if spec is None else spec + _shape_of(loader, batches)


def _is_stateful(loader):
    return any(c.__module__.startswith("torchdata.") for c in type(loader).__mro__)


def _inner_loader(what):
    """The torch DataLoader in what accelerate, or watch, made of it."""
    while True:
        if isinstance(what, _Watched):
            what = what._watched
        elif "base_dataloader" in getattr(what, "__dict__", ()):
            what = what.base_dataloader
        else:
            return what


def _is_prepared(what):
    """accelerate has made it."""
    return any(c.__module__.startswith("accelerate.") for c in type(what).__mro__)


def _is_plain(loader):
    """The loader reads what its sampler says, in batches."""
    return loader.batch_sampler is None or _is(loader.batch_sampler, "BatchSampler")


def _shape_of(loader, batches):
    shape = ""
    size = getattr(loader, "batch_size", None) or getattr(batches, "batch_size", None)
    if isinstance(size, int) and size > 0:
        if _is_shard(batches) and batches.split_batches:
            size //= batches.num_processes
        shape += f":batch={size}"
    if getattr(loader, "num_workers", None):
        shape += f":workers={loader.num_workers}"
        if getattr(loader, "prefetch_factor", None):
            shape += f":prefetch_factor={loader.prefetch_factor}"
    return shape


# --- index lists ---

def _send_list(indices, mountpoint, keys="epochs=1"):
    """Hands over sample numbers, in parts: nothing but the mount need be shared with the daemon."""
    numbers = array.array("I", indices)
    if numbers.itemsize != 4:
        raise AnnounceError("no 32-bit numbers on this machine")
    size = 4 * _PART
    data = numbers.tobytes()
    parts = (data[at:at + size] for at in range(0, max(len(data), 1), size))
    _send_parts(parts, lambda part: len(part) // 4, _VERSION_NUMBERS, 0, keys, mountpoint)
    return "list"


def _send_file(path, keys, mountpoint):
    """Hands over a list file, read with the rights of this process."""
    try:
        with open(path, "rb") as f:
            parts = iter(lambda: f.read(4 * _PART), b"")
            return _send_parts(parts, len, _VERSION_BYTES, _BYTES | _WIDTHS.get(os.path.splitext(path)[1], 0), keys, mountpoint)
    except OSError as e:
        raise AnnounceError(f"{path!r}: {e.strerror}") from e


def _send_parts(parts, count, version, flags, keys, mountpoint):
    """Returns the mount's answer to the last one."""
    token, part, parts = 0, b"", iter(parts)
    name = _name_of(None, mountpoint)
    try:
        part = next(parts, b"")
        with open(os.path.join(mountpoint, ".clairfs", "control"), "rb") as f:
            while True:
                after = next(parts, None)
                is_last = after is None
                data = bytearray(_LIST.pack(version, 0, token, _NAMED | (flags | _LAST if is_last else flags & _BYTES),
                                            count(part), keys.encode() if is_last else b"", name, part.ljust(4 * _PART, b"\0")))
                _tell(f, _ANNOUNCE_LIST, data)
                _, status, token, _, _, answer, _, _ = _LIST.unpack(data)
                line = answer.split(b"\0")[0].decode(errors="replace")
                if status < 0:
                    raise AnnounceError(line)
                if is_last:
                    _has_told(keys, name, mountpoint)
                    return line
                part = after
    except OSError as e:
        raise AnnounceError(f"{mountpoint}: {_why(e)}") from e


def _innermost(sampler):
    """The sampler that a BatchSampler batches, or None unless all of them are torch's own: these draw from generators and
    keep no other state."""
    while type(sampler).__module__ == "torch.utils.data.sampler":
        if type(sampler).__name__ != "BatchSampler":
            return sampler
        sampler = sampler.sampler
    return None


def _ahead(sampler):
    """A list of the epoch that `sampler` will draw, with every generator left where it was; sampler as for _innermost."""
    import torch  # it is loaded: the sampler is torch's
    generator = getattr(_innermost(sampler), "generator", None)
    state, own = torch.random.get_rng_state(), None if generator is None else generator.get_state()
    try:
        return list(sampler)
    finally:
        torch.random.set_rng_state(state)
        if own is not None:
            generator.set_state(own)


class _Followed:
    """Stands in for a sampler (or a batch sampler): the same values, with the whole epoch announced before the first.
    A job that leaves an epoch early has drawn less than one that lists it, so torch's samplers draw again, as they would
    have done without us; others are listed once, because a second run of them may not be the first one's."""

    def __init__(self, inner, tell):
        self._inner, self._tell = inner, tell

    def __iter__(self):
        if _innermost(self._inner) is not None:
            self._tell(_ahead(self._inner))
            yield from self._inner
            return
        epoch = list(self._inner)
        self._tell(epoch)
        yield from epoch

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):  # set_epoch, batch_size...
        if name.startswith("__") or name in ("_inner", "_tell"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def _node_ranks(sampler):
    """Samplers like this one of all processes of the node. Only DistributedSampler says how others are dealt to."""
    if not _is(sampler, "DistributedSampler"):
        return None
    ranks = []
    for rank in _ranks_of_node(sampler.rank, sampler.num_replicas):
        ranks.append(copy.copy(sampler))
        ranks[-1].rank = rank
    return ranks


def _merged(epochs):
    """What processes read that run in step."""
    return [i for step in itertools.zip_longest(*epochs, fillvalue=_NONE) for i in step if i is not _NONE]


class _Readings:
    """Whether a loader that is followed was ever read. One that is never read tells nothing, and that is said when it
    goes, or when the process ends."""

    def __init__(self, loader):
        self.has_begun, self.pid = False, os.getpid()
        weakref.finalize(loader, self._gone)

    def _gone(self):
        if not self.has_begun and self.pid == os.getpid():
            warnings.warn("clairfs: a DataLoader was announced and never read, so no order was told. Frameworks that make their"
                          " own loaders have callbacks: clairfs.lightning.Callback, clairfs.transformers.Callback", stacklevel=2)


def _teller(mountpoint, indices, keys, inner, is_batches, readings):
    def tell(epoch):
        readings.has_begun = True
        if not _speaks_for_node() or not epoch:
            return
        numbers = [i for batch in epoch for i in batch] if is_batches else epoch
        try:
            ranks = _node_ranks(inner)
            if ranks and len(ranks) > 1:
                numbers = _merged([list(r) for r in ranks])
            numbers = [indices[i] for i in numbers] if indices is not None else [int(i) for i in numbers]
            _send_list(numbers, mountpoint, "epochs=1" + keys)
        except (AnnounceError, OSError, OverflowError, TypeError, ValueError, IndexError) as e:
            warnings.warn(f"clairfs: the order of this epoch was not announced: {e}", stacklevel=2)
    return tell


def _follow(loader, mountpoint, indices, keys):
    """Has every epoch announced when it begins. Until the first one does nothing changes: the loader may never be read."""
    batches = loader.batch_sampler
    if batches is None:
        holder, name = loader, "sampler"
    elif _is_plain(loader):
        holder, name = batches, "sampler"
    else:
        holder, name = loader, "batch_sampler"
    inner = getattr(holder, name)
    if isinstance(inner, _Followed):
        raise AnnounceError("this DataLoader is announced already")
    if _is_stateful(loader):
        raise AnnounceError(f"{_name(inner)}: a StatefulDataLoader keeps count of its sampler, so nobody else may draw from it;"
                            " give it a generator of its own, or announce a spec")
    try:
        len(inner)
    except TypeError:
        raise AnnounceError(f"{_name(inner)}: has no end, so it cannot be listed") from None
    place = _place()
    if place and place[1] > 1 and not _node_ranks(inner):
        raise AnnounceError(f"{_name(inner)}: with several processes on a node announce a spec, or one list for all")
    if _speaks_for_node():
        send("?", mountpoint)  # fails here and now when it is going to fail
    tell = _teller(mountpoint, indices, _shape_of(loader, batches) + keys, inner, name == "batch_sampler", _Readings(loader))
    # DataLoader refuses the plain way once it is made.
    object.__setattr__(holder, name, _Followed(inner, tell))
    return "list"
