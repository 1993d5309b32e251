# SPDX-License-Identifier: Apache-2.0
"""inotify watches belong to all processes of a user: a mount takes one for each directory, or none, and says so. Runs in a user
namespace of its own, whose limit can be lowered without touching the machine's."""
import os
import sys

LIMIT, RESERVE = "/proc/sys/user/max_inotify_watches", 1024
if "CLAIRFS_WATCHES_INSIDE" not in os.environ:
    os.environ["CLAIRFS_WATCHES_INSIDE"] = "1"
    os.execvp("unshare", ["unshare", "--user", "--map-root-user", "--mount", sys.executable, *sys.argv])

import mountkit
import tap
from mountkit import good, write_file

DIRS = 40


def limit_to(watches):
    with open(LIMIT, "w", encoding="ascii") as file:
        file.write(str(watches))


def held_by(pid):
    """inotify watches of a process, by the kernel's count."""
    found = 0
    for fd in os.listdir(f"/proc/{pid}/fdinfo"):
        with open(f"/proc/{pid}/fdinfo/{fd}", encoding="ascii") as file:
            found += sum(line.startswith("inotify wd") for line in file)
    return found


def all_or_none(place):
    for number in range(DIRS):
        os.mkdir(f"{place.source}/d{number}")
        write_file(f"{place.source}/d{number}/s", b"sample")
    for limit, want in ((RESERVE + DIRS, DIRS), (RESERVE + DIRS - 1, 0), (RESERVE // 2, 0)):
        limit_to(limit)
        with place.mount() as mount:
            told, text = mount.stats()["mount"], good("status", mount.mountpoint).decode()
            tap.equal((told["watches"], held_by(mount.process.pid)), (want, want), f"{want} watches of {limit} are taken for {DIRS}")
            tap.equal(told["is_watch_complete"], want == DIRS, "whether all is watched is known")
            said = [line for line in text.splitlines() if "watched" in line]
            tap.equal(len(said), 0 if want else 1, "status says when nothing is, in one line")
            tap.ok(want or f"{DIRS} directories" in said[0] and f"max_user_watches is {limit} " in said[0], "and why", said)
            opens = mount.counters()["upcall_open"]
            mount.read("d1/s")
            seen = mount.wait_for(lambda s: s["counters"]["sample_opens"] == 1, "the open is seen")["counters"]["upcall_open"]
            tap.ok(want or seen > opens, "by a request, where nothing is watched", opens, seen)


mountkit.run(all_or_none)
