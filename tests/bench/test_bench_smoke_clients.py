# SPDX-License-Identifier: Apache-2.0
"""The benchmarks with real clients of shard formats still run; as test_bench_smoke.py."""
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import smoke
import mountkit
import tap


def clients(place):
    python = os.environ.get("CLAIRFS_CLIENTS_PYTHON")
    if not python:
        raise mountkit.Failed("CLAIRFS_CLIENTS_PYTHON is not set: it must name a Python that has the clients")
    done = smoke.bench_run(place, "clients", "known", "--save", "smoke", "--clients-python", python)
    tap.ok(done.code == 0, "bench/run --smoke ends well with clients", done)
    smoke.check_results(place, ("clients", "known"))


def unknown(place):
    done = smoke.bench_run(place, "clients", "--scenarios", "npz,hdf6")
    tap.ok(done.code == 1 and "no client 'hdf6', there are: npz " in done.lines[-1] and not done.out, "a client that there is not", done)
    done = smoke.bench_run(place, "known", "--scenarios", "npy")
    tap.ok(done.code == 1 and "no kind 'npy', there are: webdataset " in done.lines[-1] and not done.out, "likewise a kind", done)


def every_kind(place):
    """Those that a smoke run leaves out are read once here, in a moment."""
    done = smoke.bench_run(place, "known", "--scenarios", "webdataset,tfrecord,tfrecord_large,litdata", "--save", "smoke", "--clients-python",
                           os.environ["CLAIRFS_CLIENTS_PYTHON"])
    tap.ok(done.code == 0, "bench/run known ends well with the other kinds", done)
    smoke.check_results(place, ("known",))


mountkit.run(clients, every_kind, unknown)
