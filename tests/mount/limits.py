# SPDX-License-Identifier: Apache-2.0
"""Limits of memory for what a test starts: a cgroup of its own, of whichever version the machine has, and resource limits."""
import atexit
import errno
import os

import mountkit
from mountkit import CLAIRFS, read_file

# A sanitizer reserves terabytes and keeps what was freed: small limits are for builds without one.
IS_SANITIZED = any(word in read_file(CLAIRFS) for word in (b"__asan_init", b"__tsan_init", b"__msan_init"))


def hierarchies():
    """Where cgroups with a memory controller may be made: [(is_v2, directory)], the nearest first."""
    mounted, own = [], {}
    with open("/proc/self/cgroup", encoding="ascii") as file:
        for line in file:
            number, kinds, path = line.rstrip("\n").split(":", 2)
            if number == "0" and not kinds or "memory" in kinds.split(","):
                own[not kinds] = path
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            kind, _, options = after.split()[:3]
            if kind == "cgroup2" or kind == "cgroup" and "memory" in options.split(","):
                mounted.append((kind == "cgroup2", *before.split()[3:5]))
    found = []
    for is_v2, root, at in mounted:
        path = own.get(is_v2, "/")
        below = path[len(root.rstrip("/")):] if path.startswith(root) else ""
        parts = [part for part in below.split("/") if part]
        found += [(is_v2, os.path.join(at, *parts[:n])) for n in range(len(parts), -1, -1)]
    return found


class NoCgroup(mountkit.Failed):
    """As in a container whose hierarchy is read-only."""


class Cgroup:
    """A cgroup with a limit, for the processes that are started with prefix()."""

    def __init__(self, limit):
        self.path, why = None, []
        for is_v2, parent in hierarchies():
            try:
                self.make(is_v2, parent, limit)
                return
            except OSError as e:
                why.append(f"{parent}: {e}")
                self.remove()
        raise NoCgroup(f"no cgroup with a limit of memory can be made here: {why}")

    def make(self, is_v2, parent, limit):
        self.is_v2 = is_v2
        if is_v2 and "memory" not in read_file(os.path.join(parent, "cgroup.subtree_control")).decode().split():
            raise OSError(errno.ENOTSUP, "children have no memory controller")
        path = os.path.join(parent, f"clairfs-test-{os.getpid()}-{mountkit.rng.randrange(1 << 32)}")
        os.mkdir(path)
        self.path = path
        with open(os.path.join(path, "memory.max" if is_v2 else "memory.limit_in_bytes"), "w", encoding="ascii") as file:
            file.write(str(limit))

    def prefix(self):
        return ["sh", "-c", 'echo $$ > "$0" && exec "$@"', os.path.join(self.path, "cgroup.procs")]

    def number(self, name):
        return int(read_file(os.path.join(self.path, name)))

    def values(self, name):
        return {key: int(value) for key, value in (line.split() for line in
                read_file(os.path.join(self.path, name)).decode().splitlines())}

    def kills(self):
        return self.values("memory.events" if self.is_v2 else "memory.oom_control")["oom_kill"]

    def held(self):
        """Bytes that cannot be reclaimed."""
        stat = self.values("memory.stat")
        if self.is_v2:
            return self.number("memory.current") - stat["active_file"] - stat["inactive_file"] - stat["slab_reclaimable"]
        return self.number("memory.usage_in_bytes") - stat["total_active_file"] - stat["total_inactive_file"]

    def remove(self):
        def is_gone():
            try:
                os.rmdir(self.path)
            except OSError as e:  # a process of it is about to end
                if e.errno != errno.EBUSY:
                    raise
                return False
            return True
        if self.path:
            mountkit.wait_until(is_gone, f"{self.path} is empty", 60)
            self.path = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is None:
            self.remove()
        else:  # what runs in it is ended with the place
            atexit.register(self.remove)


def limited(what, kib):
    """What starts a program under a resource limit (of sh's ulimit)."""
    return ["sh", "-c", f'ulimit -{what} {kib} && exec "$@"', "sh"]
