# SPDX-License-Identifier: Apache-2.0
"""A mount for test scripts. The script itself never touches it: a daemon that hangs would hang it for good. Whatever goes
through the mount is a child with a time limit."""
import contextlib
import json
import os
import subprocess
import time

import tap

CLAIRFS = os.environ["CLAIRFS"]
PATIENCE = 120
# What a launcher tells a job must come from the test alone.
PLACE = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "CLAIRFS_ORDER")
CLEAN = {k: v for k, v in os.environ.items() if k not in PLACE}


def run(*argv, env=None, stdin="", **more):
    return subprocess.run(argv, input=stdin, capture_output=True, text=True, timeout=PATIENCE, check=False,
                          env={**CLEAN, **(env or {})}, **more)


def is_mounted(path):
    with open("/proc/self/mountinfo", encoding="utf-8") as f:
        return any(line.split()[4] == path for line in f)


class Mount:
    def __init__(self, temp, source, *options, env=None):
        self.point = os.path.join(temp, f"mnt{len(os.listdir(temp))}")
        os.mkdir(self.point)
        argv = [CLAIRFS, "mount", "-f", "-o", ",".join(("snapshot_dir=none", "ram=64M", *options)), source, self.point]
        self.daemon = subprocess.Popen(argv, env={**CLEAN, **(env or {})}, stdin=subprocess.DEVNULL, text=True,
                                       stderr=subprocess.PIPE)

    def __enter__(self):
        self.wait(lambda: is_mounted(self.point) and run(CLAIRFS, "status", self.point).returncode == 0)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(subprocess.TimeoutExpired):
            run("umount", "-l", self.point)
        try:
            self.daemon.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self.daemon.kill()
            self.daemon.communicate()
            tap.ok(False, "the daemon ends when it is unmounted")

    def wait(self, condition):
        """True as soon as the condition holds; False when it does not for a long time."""
        end = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > end or self.daemon.poll() is not None:
                return False
            time.sleep(0.02)
        return True

    def order(self):
        return json.loads(run(CLAIRFS, "status", self.point, "--json").stdout)["order"]

    def announce(self, spec, env=None):
        return run(CLAIRFS, "announce", self.point, spec, env=env)

    def cat(self, name):
        return run("cat", f"{self.point}/.clairfs/{name}").stdout

    def read(self, paths):
        """The job: opens and reads these files in this order."""
        return run(sys.executable, "-c", READER, stdin="\n".join(f"{self.point}/{p}" for p in paths)).returncode == 0

    def read(self, paths):
        """A job: opens and reads these files in this order."""
        return run("xargs", "-d", "\n", "cat", stdin="\n".join(f"{self.point}/{p}" for p in paths)).returncode == 0


def samples(source):
    """Paths of a source's samples by number."""
    return [line.split("\t")[1] for line in run(CLAIRFS, "index", source).stdout.splitlines()]


def order(spec, n, epoch=0):
    """Sample numbers of an epoch."""
    return [int(i) for i in run(CLAIRFS, "order", spec, "--n", str(n), "--epoch", str(epoch)).stdout.split()]
