# SPDX-License-Identifier: Apache-2.0
"""Steps of training loops, told to a mount: what is right is counted for its rank, what cannot be right is left out, and
nothing of it gets in a loop's way. Without PyTorch."""
import fcntl
import os
import struct
import sys
import time
import types

import mountkit
import tap

sys.path.insert(0, os.path.join(os.environ["CLAIRFS_SOURCE"], "packaging", "python"))
for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "CLAIRFS_STEPS_FILE"):
    os.environ.pop(name, None)
import clairfs
from clairfs import _steps

S = 10**9


def send(mount, records, world=4, run=None, magic=_steps._MAGIC, version=1, count=None, lost=0, job=b"job-1"):
    """0, or the errno of the ioctl. A record: rank, flags, step, request, ready, next."""
    count = len(records) if count is None else count
    data = bytearray(_steps._HEAD.pack(magic, version, world, count, mount.run if run is None else run, lost, job))
    for record in records:
        data += _steps._STEP.pack(*record)
    fd = os.open(mount.path(".clairfs"), os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, _steps._IOC_STEPS, data.ljust(_steps._SIZE, b"\0"))
        return 0
    except OSError as e:
        return e.errno
    finally:
        os.close(fd)


def ranks(mount):
    return {r["rank"]: r for r in mount.stats()["hook"]["ranks"]}


def start(mount):
    """Times that the mount can believe: all of them lie between its start and now."""
    mount.run = time.monotonic_ns()
    mountkit.wait_until(lambda: time.monotonic_ns() > mount.run + 10_000_000, "time passes")
    return mount.run


def records(place):
    place.files([100] * 4)
    with place.mount() as mount:
        t = start(mount)
        good = [(2, 1, 0, t, t + 3000, t + 10000), (2, 0, 1, t + 10000, t + 11000, t + 20000)]
        inner = [(2, 4, 2, t + 12000, t + 13000, t + 14000)]
        tap.equal(send(mount, good + inner), 0, "records are taken")
        got = ranks(mount)
        tap.equal(sorted(got), [2], "by their rank")
        tap.equal((got[2]["steps"], got[2]["world"], got[2]["restarts"]), (3, 4, 0), "all of them")
        tap.ok(abs(got[2]["wait_seconds"] - 5e-6) < 1e-12, "the waits are added up", got)
        tap.ok(abs(got[2]["span_seconds"] - 20e-6) < 1e-12, "the time of a step within another is not counted twice", got)
        tap.ok(abs(got[2]["first_wait_seconds"] - 3e-6) < 1e-12, "first batches are told apart", got)
        tap.ok(abs(got[2]["au_percent"] - 75) < 1e-6, "and give the utilisation", got)
        tap.equal(mount.stats()["hook"]["job"], "job-1", "the job has its name")

        later = t + 20000
        bad = {
            "a rank beyond the world": (4, 0, 3, later, later, later),
            "ready before it was asked for": (2, 0, 3, later + 1, later, later + 1),
            "over before it was ready": (2, 0, 3, later, later + 2, later + 1),
            "no time at all": (2, 0, 3, 0, 0, 0),
            "an unknown flag": (2, 8, 3, later, later, later),
            "a step beyond all": (2, 0, 1 << 48, later, later, later),
            "before the mount": (2, 0, 3, 1, 2, 3),
            "in the future": (2, 0, 3, later, later, time.monotonic_ns() + 10**6 * S),
            "overlapping": (2, 0, 3, t + 19999, later, later),
        }
        for what, record in bad.items():
            refused = mount.counters()["hook_refused"]
            tap.equal(send(mount, [record]), 0, f"{what}: no error for the loop")
            tap.equal((mount.counters()["hook_refused"] - refused, ranks(mount)[2]["steps"]), (1, 3), f"{what}: is left out")
        tap.equal(mount.counters()["hook_steps"], 3, "the rest is what was counted")

        long = (2, 4, 9, mount.run, later, later)  # within another step, where overlaps are no sign of an error
        before = ranks(mount)[2]["steps"]
        for _ in range(50):
            send(mount, [long] * 198)
        got = ranks(mount)[2]
        tap.ok(got["wait_seconds"] <= mount.stats()["mount"]["uptime_seconds"], "nobody waits longer than the mount is there", got)
        more = got["steps"] - before

        tap.equal(send(mount, [(2, 0, 0, later, later, later)], run=mount.run - 1), 0, "an older process of the rank")
        tap.equal(ranks(mount)[2]["steps"], 3 + more, "is not heard any more")
        tap.equal(send(mount, [(2, 0, 0, later, later + 1, later + 1)], run=mount.run + 1), 0, "a newer one")
        tap.equal((ranks(mount)[2]["steps"], ranks(mount)[2]["restarts"]), (4 + more, 1), "takes the rank over")
        send(mount, [], lost=17)
        tap.equal(mount.counters()["hook_lost"], 17, "what loops could not send is known")

        tap.equal([send(mount, [], magic=1), send(mount, [], version=2), send(mount, [], count=199)], [71] * 3,
                  "other protocols are told so (EPROTO)")
        many = [(1000 + i, 0, 0, later, later, later) for i in range(198)]
        send(mount, many, world=2000)
        send(mount, [(2000 + r[0], *r[1:]) for r in many], world=4000)
        tap.equal(len(ranks(mount)), 256, "there is an end to the ranks of a node")
        noise = [mountkit.rng.randbytes(40) for _ in range(198)]
        tap.equal(send(mount, [_steps._STEP.unpack(n) for n in noise], world=1 << 31), 0, "any bytes do no harm")
        mount.check_alive()


class Strange:
    """An iterator that goes on after its end, as no iterator should, and knows when it is dropped."""

    def __init__(self, log):
        self.log, self.n, self.shade = log, 0, "blue"

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        if self.n == 3:
            raise StopIteration
        if self.n == 5:
            raise KeyError("broken sample")
        return self.n

    def __del__(self):
        self.log.append("dropped")


def transparent(place):
    """watch() without a mount: what a loop sees is what it would see without."""
    batches = [None, 0, "", {"a": 1}, [], object(), float("nan")]
    got = list(clairfs.watch(batches))
    tap.ok(len(got) == len(batches) and all(a is b for a, b in zip(got, batches)), "batches of any kind are the same objects")
    tap.equal(len(clairfs.watch(batches)), 7, "the length is the loader's")
    for loader in (batches, [], iter(batches), (b for b in batches), range(0)):
        watched = clairfs.watch(loader)
        tap.equal((bool(watched), hasattr(watched, "__len__")), (bool(loader), hasattr(loader, "__len__")),
                  f"{type(loader).__name__}: true and of a length as without")
    try:
        len(clairfs.watch(iter(batches)))
        tap.ok(False, "no length where the loader has none")
    except TypeError:
        tap.ok(True, "no length where the loader has none")
    log = []
    loop = iter(clairfs.watch(Strange(log)))
    tap.equal([next(loop), next(loop), next(loop, "end"), next(loop)], [1, 2, "end", 4], "the end is not an end of ours")
    tap.equal(loop.shade, "blue", "attributes are the iterator's")
    try:
        next(loop)
        tap.ok(False, "an exception comes through")
    except KeyError as e:
        tap.ok(e.args == ("broken sample",) and e.__cause__ is None and e.__context__ is None, "an exception comes through", e)
    tap.equal(log, [], "the iterator lives as long as it is used")
    del loop
    tap.equal(log, ["dropped"], "and not longer")
    for _ in clairfs.watch(Strange(log)):
        break
    tap.equal(log, ["dropped"] * 2, "also when a loop is left early")
    watched = clairfs.watch(Strange(log))
    watched.shade = "red"
    tap.equal((watched.shade, watched._watched.shade), ("red", "red"), "attributes are the loader's, set and read")
    tap.equal(watched.summary()["steps"], 0, "a loader that was not read")

    def endless():
        while True:
            yield 1
    watched = clairfs.watch(endless())
    for i, _ in enumerate(watched):
        if i == 9:
            break
    sums = watched.summary()
    tap.equal(sums["steps"], 10, "the step a loop was left in is a step")
    tap.ok(0 <= sums["first_wait_seconds"] <= sums["wait_seconds"] and 0 <= sums["au_percent"] <= 100, "sums", sums)


    def slow_start():
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            pass
        yield from range(1000)
    watched = clairfs.watch(slow_start())
    for _ in watched:
        pass
    sums = watched.summary()
    tap.ok(0.2 <= sums["first_wait_seconds"] < sums["wait_seconds"], "of all waits one is the first batch's", sums)
    tap.ok("torch" not in sys.modules, "torch was not loaded")


def places(place):
    """Who a process is, as its launcher says."""
    for env, want in (
            ({}, (0, 1, b"")),
            ({"RANK": "3", "WORLD_SIZE": "8", "SLURM_PROCID": "9", "SLURM_NTASKS": "10", "SLURM_JOB_ID": "77"}, (3, 8, b"77")),
            ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "TORCHELASTIC_RUN_ID": "none"}, (1, 2, b"")),
            ({"RANK": "x", "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "r" * 99}, (0, 1, b"r" * 31)),
            ({"RANK": "8", "WORLD_SIZE": "8", "PBS_JOBID": "5.host"}, (0, 1, b"5.host")),
            ({"RANK": "-1", "WORLD_SIZE": "8"}, (0, 1, b""))):
        os.environ.update(env)
        tap.equal((*_steps._rank_and_world(), _steps._job_name()), want, f"rank, world and job of {env}")
        for name in env:
            del os.environ[name]
    os.environ.update({"RANK": "3", "WORLD_SIZE": "8"})
    runs = types.SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 5,
                                 get_world_size=lambda: 6)
    for module, want in ((runs, (5, 6)), (types.SimpleNamespace(is_available=lambda: False), (3, 8)), (object(), (3, 8))):
        sys.modules["torch.distributed"] = module
        tap.equal(_steps._rank_and_world(), want, "torch.distributed says it where it runs")
        del sys.modules["torch.distributed"]
    del os.environ["RANK"], os.environ["WORLD_SIZE"]


def told(place):
    """Loops that tell a mount: their steps arrive, nested ones as such; a fork is another process."""
    place.files([100] * 4)
    with place.mount() as mount:
        outer = clairfs.watch(range(300), mount.mountpoint)
        inner = clairfs.watch(range(3), mount.mountpoint)
        for i in outer:
            if i % 100 == 50:
                for _ in inner:
                    pass
        own = ranks(mount)[0]
        tap.equal((own["steps"], own["world"]), (309, 1), "every step arrives by the end of a loop")
        sums = [outer.summary(), inner.summary()]
        waits = sum(s["wait_seconds"] for s in sums)
        tap.ok(abs(own["wait_seconds"] - waits) < 1e-9, "the mount has the same sums", own, sums)
        span = sums[0]["wait_seconds"] + sums[0]["compute_seconds"]
        tap.ok(own["span_seconds"] <= span + 1e-9, "nested steps are within the time of the others", own, sums)
        for i in outer:
            if i == 4:
                break
        tap.equal(ranks(mount)[0]["steps"], 314, "and when a loop is left")

        loop = iter(outer)
        next(loop)
        child = os.fork()
        if child == 0:
            try:
                del loop  # the parent's step
                for _ in clairfs.watch(range(5), mount.mountpoint):
                    pass
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        tap.equal((ranks(mount)[0]["steps"], ranks(mount)[0]["restarts"]), (319, 1), "a child tells its own steps only")
        tap.equal(mount.counters()["hook_refused"], 0, "all of them were believed")
        del loop
        file = place.path("steps")
        for _ in clairfs.watch(range(250), file=file):
            pass
        tap.equal(os.path.getsize(file), 2 * 64 + 250 * 40, "a file gets records of the same form")
    for _ in outer:  # nobody there any more
        pass
    tap.equal(outer.summary()["steps"], 606, "a mount that is gone is no trouble")


def kept(place):
    """An iterator of which one batch was taken, and that is kept: what comes later is not within its step."""
    def run(code, name):
        file = place.path(name)
        env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(_steps.__file__)), "CLAIRFS_STEPS_FILE": file}
        done = mountkit.program(sys.executable, "-c", "import clairfs\n" + code, timeout=600, env=env)
        if done.code or done.err:
            raise mountkit.Failed(f"{name}: {done}")
        found = mountkit.steps_in(file)
        tap.equal(sorted(s[2] for s in found), list(range(len(found))), f"{name}: every step once")
        outer = [s for s in found if not s[0] & _steps._INNER]
        tap.ok(all(a[5] <= b[3] for a, b in zip(outer, outer[1:])), f"{name}: those that are not within another do not overlap", outer)
        inner = [s for s in found if s[0] & _steps._INNER]
        tap.ok(all(any(o[3] <= s[3] and s[5] <= o[5] for o in outer) for s in inner), f"{name}: those that are, are", inner)
        return found, inner

    train = "train = clairfs.watch(range(20))\n"
    found, inner = run(train + "one = iter(clairfs.watch(range(5)))\nnext(one)\nfor _ in train: pass\n", "kept for one epoch")
    tap.equal((len(found), len(inner)), (21, 0), "kept until the end")
    tap.equal([s[0] & _steps._LEFT for s in found].index(_steps._LEFT), 0, "its own step is left when the next one begins")
    found, inner = run(train + "one = iter(train)\nnext(one)\nfor _ in range(3):\n  for _ in train: pass\nnext(one)\n",
                       "of the same loader, for three")
    tap.equal((len(found), len(inner)), (62, 0), "and used again")
    found, inner = run(train + "one = iter(clairfs.watch(range(5)))\nnext(one)\ncheck = clairfs.watch(range(4))\n"
                       "for _ in range(2):\n  for i in train:\n    if i == 10:\n      for _ in check: pass\n",
                       "with a validation in the middle")
    tap.equal((len(found), len(inner), {s[1] for s in inner}), (49, 8, {2}), "which is within its step")
    found, inner = run("one = iter(clairfs.watch(range(5)))\nnext(one)\nfor _ in clairfs.watch(range(3000)): pass\n",
                       "for a long epoch")
    tap.equal((len(found), len(inner)), (3001, 0), "however long")
    found, inner = run(train + "check = clairfs.watch(range(4))\nfor i in train:\n  for _ in check: pass\n", "none")
    tap.equal((len(found), len(inner)), (100, 80), "a validation in each step")
    found, inner = run(train + "for i in train:\n  for _ in clairfs.watch(range(4)): pass\n  if i == 7: break\n", "left")
    tap.equal((len(found), len(inner)), (8 + 32, 32), "a loop that is left after a validation")


def any_mountpoint(place):
    """A mountpoint is found whatever its name, as mountinfo escapes some characters."""
    place.files([100])
    for name in ("\u6570\u636e set", "\u00e9 \\040 x", "a\tb"):
        os.mkdir(place.path(name))
        with mountkit.Mount(place, place.source, place.path(name), {}):
            found = clairfs.mountpoint_of(types.SimpleNamespace(root=place.path(name)))
            tap.equal(found, place.path(name), f"{name!r} is found")


mountkit.run(records, transparent, places, told, kept, any_mountpoint)
