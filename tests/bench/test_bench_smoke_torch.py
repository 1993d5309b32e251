# SPDX-License-Identifier: Apache-2.0
"""Benchmarks that train with the real PyTorch still run; as test_bench_smoke.py. The search of all seeds is left out."""
import os
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import smoke
import mountkit
import tap

JOBS = ("recover", "removed", "gpu", "ordinary", "warm")


def torch_python():
    python = os.environ.get("CLAIRFS_TORCH_PYTHON")
    if not python:
        raise mountkit.Failed("CLAIRFS_TORCH_PYTHON is not set: it must name a Python that has PyTorch")
    return python


def jobs(place):
    done = smoke.bench_run(place, *JOBS, "--save", "smoke", "--torch-python", torch_python())
    tap.ok(done.code == 0, "bench/run --smoke ends well with " + " ".join(JOBS), done)
    smoke.check_results(place, JOBS)


def without_gpu(place):
    done = smoke.program(place, sys.executable, f"{smoke.BENCH}/run", "gpu", "--build", smoke.BUILD, "--torch-python", torch_python(),
                         CUDA_VISIBLE_DEVICES="")
    tap.ok(done.code == 1 and len(done.lines) == 1 and "has no GPU with CUDA" in done.lines[0] and not done.out,
           "gpu says in one line that there is none", done)


def quickstart(place):
    smoke.quickstart(place, "--python", torch_python())


mountkit.run(jobs, without_gpu, quickstart)
