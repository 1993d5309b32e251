# SPDX-License-Identifier: Apache-2.0
"""Tells a clairfs mount the order in which a training job is going to read its samples.

    loader = torch.utils.data.DataLoader(dataset, sampler=DistributedSampler(dataset), ...)
    clairfs.announce(loader)

Nothing else changes in the job. Known samplers become a spec that the mount computes every epoch from. Of any other the
index list is handed over at the start of each epoch, before the first sample is read: this is exact whatever the sampler
does, but it begins later and writes 4 bytes per sample into a temporary file that the daemon must be able to read.

The module imports nothing but the standard library, torch least of all: types are told by their names.

It must never change what the job reads, and never hide that the mount did not take the order: that is an AnnounceError
(or a warning, where the job is running already).
"""
import array
import errno
import fcntl
import json
import os
import shutil
import struct
import sys
import tempfile
import warnings

__all__ = ["announce", "mountpoint_of", "send", "AnnounceError"]
__version__ = "0.1.0"

# include/clairfs/hint.h: struct clairfs_hint and CLAIRFS_IOC_ANNOUNCE
_VERSION = 1
_HINT = struct.Struct("=Ii4088s")
_POWERPC_LIKE = os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha"))
_DIRECTION = 6 << 29 if _POWERPC_LIKE else 3 << 30
_ANNOUNCE = _DIRECTION | _HINT.size << 16 | 0xCF << 8 | 1


class AnnounceError(Exception):
    """The mount did not take the order; the message is one line."""


def send(spec, mountpoint):
    """Announces a spec ("none": no order any more) and returns it in canonical form."""
    text = spec.encode()
    if len(text) >= 4088 or b"\0" in text:
        raise AnnounceError("the order is longer than 4087 bytes or has a zero byte")
    hint = bytearray(_HINT.pack(_VERSION, 0, text))
    try:
        with open(os.path.join(mountpoint, ".clairfs", "control"), "rb") as f:
            fcntl.ioctl(f, _ANNOUNCE, hint)
    except OSError as e:
        raise AnnounceError(f"{mountpoint}: {_why(e)}") from e
    _, status, answer = _HINT.unpack(hint)
    line = answer.split(b"\0")[0].decode(errors="replace")
    if status < 0:
        raise AnnounceError(line)
    return line


def _why(error):
    if error.errno in (errno.ENOENT, errno.ENOTTY):
        return "not a clairfs mount that takes orders"
    if error.errno == errno.EPROTO:
        return "the mount speaks another version of the protocol than this module"
    return error.strerror


def announce(what, mountpoint=None):
    """Announces the order of a DataLoader, a sampler, a list of sample numbers, or a spec; returns the spec.

    mountpoint: where clairfs is mounted, as this process sees it; by default the mount that the dataset's files are in,
    else the only one there is. Sample numbers must be those of the mount (clairfs index): true for torchvision's
    ImageFolder, and for datasets that list their files sorted.

    Of the processes of a node one announces for all (torchrun's LOCAL_RANK 0); the others return the same spec.
    """
    if isinstance(what, str):
        return send(what, mountpoint or mountpoint_of(None))
    if isinstance(what, (list, tuple, range, array.array)):
        return _send_list(what, mountpoint or mountpoint_of(None))
    dataset = _dataset_of(what)
    mountpoint = mountpoint or mountpoint_of(dataset)
    sampler = getattr(what, "sampler", what)
    base, indices = _unwrap(dataset)
    _check_size(base, mountpoint)
    spec = None if indices is not None else _spec_of(sampler)
    if spec and what is not sampler and not _is_plain(what):
        spec = None
    if spec is None:
        if what is sampler:
            raise AnnounceError(f"{_name(sampler)}: its order is known only while it runs; announce its DataLoader")
        return _follow(what, mountpoint, indices)
    spec += _shape_of(what)
    return send(spec, mountpoint) if _speaks_for_node() else spec


# --- which mount ---

def _mounts():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            fields = line.split()
            if fields[fields.index("-", 6) + 1] == "fuse.clairfs":
                yield fields[4].encode("latin-1", "replace").decode("unicode_escape") if "\\" in fields[4] else fields[4]


def mountpoint_of(dataset):
    """The clairfs mount that a dataset's files are in, or the only one."""
    mounts = sorted(set(_mounts()), key=len, reverse=True)
    dataset, _ = _unwrap(dataset)
    root = getattr(dataset, "root", None)
    if isinstance(root, (str, os.PathLike)):
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
    return type(thing).__module__.startswith("torch.utils.data.") and type(thing).__name__ in names


def _dataset_of(what):
    for holder in (what, getattr(what, "sampler", None)):
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


def _check_size(dataset, mountpoint):
    """Numbers of another list of files would be worse than none."""
    try:
        n = len(dataset)
        with open(os.path.join(mountpoint, ".clairfs", "stats.json"), encoding="utf-8") as f:
            samples = json.load(f)["dataset"]["samples"]
    except (TypeError, OSError, ValueError, KeyError):
        return
    if n != samples:
        raise AnnounceError(f"the dataset has {n} samples, the mount {samples}: their numbers are not the same")


def _place():
    """(first rank of this node, ranks on it, own place among them) as torchrun says, or None."""
    try:
        rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
        return rank - local, int(os.environ["LOCAL_WORLD_SIZE"]), local
    except (KeyError, ValueError):
        return None


def _speaks_for_node():
    place = _place()
    return not place or place[2] == 0


def _distributed(sampler):
    place = _place()
    spec = f"torch-distributed:seed={sampler.seed}:world={sampler.num_replicas}"
    if place and place[1] > 1 and sampler.rank == place[0] + place[2] and sampler.num_replicas >= place[0] + place[1]:
        spec += f":ranks={place[0]}-{place[0] + place[1] - 1}"
    else:
        spec += f":rank={sampler.rank}"
    spec += "" if sampler.shuffle else ":shuffle=0"
    spec += ":drop_last=1" if sampler.drop_last else ""
    return spec + (f":start_epoch={sampler.epoch}" if sampler.epoch else "")


def _spec_of(sampler):
    """The spec whose order this sampler's is, or None. torch's RandomSampler is None: its seed is drawn when it begins."""
    if _is(sampler, "SequentialSampler"):
        return "sequential"
    if _is(sampler, "DistributedSampler"):
        return _distributed(sampler)
    return None


def _is_plain(loader):
    """The loader reads what its sampler says, in batches."""
    return loader.batch_sampler is None or (_is(loader.batch_sampler, "BatchSampler")
                                            and loader.batch_sampler.sampler is loader.sampler)


def _shape_of(loader):
    shape = ""
    if getattr(loader, "batch_size", None):
        shape += f":batch={loader.batch_size}"
    if getattr(loader, "num_workers", None):
        shape += f":workers={loader.num_workers}"
        if getattr(loader, "prefetch_factor", None):
            shape += f":prefetch_factor={loader.prefetch_factor}"
    return shape


# --- index lists ---

def _escape(path):
    return path.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")


def _send_list(indices, mountpoint, more=":epochs=1"):
    """Hands over sample numbers. The daemon has read the file when it answers, so nothing stays behind."""
    numbers = array.array("I", indices)
    if numbers.itemsize != 4:
        raise AnnounceError("no 32-bit numbers on this machine")
    if sys.byteorder == "big":
        numbers.byteswap()
    folder = tempfile.mkdtemp(prefix="clairfs-")
    try:
        path = os.path.join(folder, "order.u32")
        with open(path, "wb") as f:
            numbers.tofile(f)
        return send(f"list:path={_escape(path)}{more}", mountpoint)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Followed:
    """Stands in for a sampler (or a batch sampler): the same values, with the whole epoch announced before the first."""

    def __init__(self, inner, tell):
        self._inner, self._tell = inner, tell

    def __iter__(self):
        epoch = list(self._inner)
        self._tell(epoch)
        yield from epoch

    def __len__(self):
        return len(self._inner)

    def __getattr__(self, name):  # set_epoch, batch_size...
        if name.startswith("__") or name in ("_inner", "_tell"):
            raise AttributeError(name)
        return getattr(self._inner, name)


def _teller(mountpoint, indices, shape, is_batches):
    def tell(epoch):
        numbers = [i for batch in epoch for i in batch] if is_batches else epoch
        try:
            numbers = [indices[i] for i in numbers] if indices is not None else [int(i) for i in numbers]
            _send_list(numbers, mountpoint, ":epochs=1" + shape)
        except (AnnounceError, OSError, OverflowError, TypeError, ValueError, IndexError) as e:
            warnings.warn(f"clairfs: the order of this epoch was not announced: {e}", stacklevel=2)
    return tell


def _follow(loader, mountpoint, indices):
    """Has every epoch announced when it begins."""
    try:
        len(loader.sampler)
    except TypeError:
        raise AnnounceError(f"{_name(loader.sampler)}: has no end, so it cannot be listed") from None
    place = _place()
    if place and place[1] > 1:
        raise AnnounceError(f"{_name(loader.sampler)}: with several processes on a node announce a spec, or one list for all")
    batches = loader.batch_sampler
    shape = _shape_of(loader)
    if isinstance(getattr(batches or loader, "sampler", None), _Followed) or isinstance(batches, _Followed):
        raise AnnounceError("this DataLoader is announced already")
    send("none", mountpoint)  # fails here and now when it is going to fail
    if batches is None:
        followed, holder, name = _Followed(loader.sampler, _teller(mountpoint, indices, shape, False)), loader, "sampler"
    elif _is_plain(loader):
        followed, holder, name = _Followed(batches.sampler, _teller(mountpoint, indices, shape, False)), batches, "sampler"
    else:
        followed, holder, name = _Followed(batches, _teller(mountpoint, indices, shape, True)), loader, "batch_sampler"
    object.__setattr__(holder, name, followed)  # DataLoader refuses the plain way once it is made
    return "list"
