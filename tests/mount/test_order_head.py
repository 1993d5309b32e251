# SPDX-License-Identifier: Apache-2.0
"""clairfs order --head prints the beginning of what it prints without, in the memory of a beginning; and an epoch that does not
fit into memory is refused with one line."""
import os
import subprocess

import mountkit
import tap
from mountkit import CLAIRFS, clairfs, good, program, rng, write_file

SPECS = ("sequential", "torch-randperm:seed={}", "torch-distributed:seed={}:world=4:ranks=1-2", "torch-loader:seed={}:num_samples=77",
         "accelerate:seed={}:world=3:batch=4", "numpy-legacy:seed={}", "python-random:seed={}", "ffcv:seed={}:world=2")
MIB = 1 << 20


def same_beginning(place):
    del place
    for spec in SPECS:
        text, n = spec.format(rng.randrange(1000)), rng.randrange(1, 500)
        for more in ((), ("--epoch", "2"), ("--rank", "0")):
            whole = good("order", text, "--n", n, *more).split()
            head = rng.randrange(1, n + 10)
            tap.equal(good("order", text, "--n", n, "--head", head, *more).split(), whole[:head], f"{text} {more} --head {head} of {n}")
    tap.equal(good("order", "sequential", "--n", 9, "--head", 0), b"", "--head 0 prints nothing")


def memory_of_a_beginning(place):
    del place
    for spec in ("torch-randperm:seed=1:large=0", "torch-distributed:seed=1:world=8:large=0", "sequential"):
        process = subprocess.Popen([CLAIRFS, "order", spec, "--n", "4000000000", "--head", "10"], stdout=subprocess.PIPE)
        lines = process.stdout.read().split()
        process.stdout.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        tap.ok(process.returncode == 0 and len(lines) == 10, f"{spec}: ten of four billion", lines)
        tap.ok(usage.ru_maxrss * 1024 < 512 * MIB, f"{spec}: not in 16 GiB of memory", f"{usage.ru_maxrss} KiB")


def what_does_not_fit(place):
    write_file(place.path("meminfo"), b"MemTotal: 2000 kB\nMemFree: 900 kB\nMemAvailable: 1000 kB\n")
    script = 'mount --bind "$1" /proc/meminfo; shift; exec "$@"'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", place.path("meminfo"), CLAIRFS, "order"]
    done = program(*command, "numpy-legacy:seed=1", "--n", 1000000, "--head", 3)
    tap.ok(done.code == 1 and len(done.lines) == 1 and not done.out and "memory" in done.lines[0] and "3 MiB" in done.lines[0],
           "an epoch that does not fit is refused with one line", done)
    done = program(*command, "numpy-legacy:seed=1", "--n", 1000, "--head", 3)
    tap.ok(done.code == 0 and len(done.out.split()) == 3, "one that fits is not", done)
    done = clairfs("order", "numpy-legacy:seed=1", "--n", 1000000, "--head", 3)
    tap.ok(done.code == 0 and len(done.out.split()) == 3, "nor is the same one where there is memory", done)


mountkit.run(same_beginning, memory_of_a_beginning, what_does_not_fit)
