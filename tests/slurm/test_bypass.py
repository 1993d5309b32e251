# SPDX-License-Identifier: Apache-2.0
"""Trouble of the cache is never the job's: it runs, in time, on its source, and is told why. No node is drained, unless the
site asked for just that."""
import os
import signal
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import Cluster, dataset, mountkit, run, wait_until, write_file


def bypass(c, what, part, source=None, **kwargs):
    said = c.variables(**kwargs)
    tap.equal(said.get("STATUS"), "bypass", f"{what}: the job runs without a mount")
    tap.ok(part in said.get("REASON", ""), f"{what}: it is told why", said)
    tap.equal(said.get("MNT"), source, f"{what}: it is sent to its source")


def wishes_that_cannot_be_met(place):
    source, _ = dataset(place)
    closed, _ = dataset(place, name="closed")
    os.chmod(closed, 0o700)
    with Cluster(place, site=["ram_max = 64M"]) as c:
        bypass(c, "no such source", "No such file", source + "/none", comment=f"clairfs:{source}/none")
        bypass(c, "closed to the user", "Permission denied", closed, comment=f"clairfs:{closed}")
        bypass(c, "a file", "not a directory", source + "/s00001.bin", comment=f"clairfs:{source}/s00001.bin")
        bypass(c, "a bad order", "order", source, comment=f"clairfs:{source},order=no-such-kind")
        bypass(c, "a bad size", "ram", source, comment=f"clairfs:{source},ram=lots")
        bypass(c, "an option that is not the job's", "may not set", comment=f"clairfs:{source},store_dir=/etc")
        bypass(c, "two wishes", "more than once", comment=f"clairfs:{source} clairfs:{source}")
        bypass(c, "a relative path", "absolute", comment="clairfs:data")
        bypass(c, "a path that goes up", "..", comment=f"clairfs:{source}/../data")
        for text in ("$(touch HERE)", "`touch HERE`", "/a;touch HERE", "/a|b", "/a&b", "/a\ttab", "/a'b", '/a"b', "/a\\b", "/é", ""):
            text = text.replace("HERE", place.path("hacked")).replace(" ", "%")
            said = c.variables(comment="clairfs:" + text)
            tap.equal(said.get("STATUS"), "bypass", f"no spec: {text!r}")
        tap.ok(not os.path.exists(place.path("hacked")), "nothing of it was run")


def site_that_is_broken(place):
    source, _ = dataset(place)
    with Cluster(place, site=["no_such_option = 1"]) as c:
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said, {}, "a file of the site that is wrong mounts nothing, and the job runs")
        c.write_site(c.nodes[0], ["run_dir = /proc/none"], [])
        tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "nor does one whose run_dir cannot be made")
        c.write_site(c.nodes[0], [], ["allow_other = on"])
        bypass(c, "allow_other", "allow_other", source, comment=f"clairfs:{source}")
        c.write_site(c.nodes[0], [], [])
        os.chmod(c.conf(), 0o666)
        tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "nor is one taken that others can write")
        os.chmod(c.conf(), 0o644)
        os.rename(c.clairfs, c.clairfs + ".away")
        tap.equal(c.variables(comment=f"clairfs:{source}"), {}, "a node without the program runs the job")
        os.rename(c.clairfs + ".away", c.clairfs)
        tap.equal(c.variables(comment=f"clairfs:{source}").get("STATUS"), "mounted", "and when all is well there is a mount")


def source_that_hangs(place):
    """The index of a source that does not answer is never made: the prolog returns, the epilog ends the daemon."""
    _, _ = dataset(place, n=3)
    slow = place.path("slow")
    with mountkit.Slowfs(place, place.source, slow) as server:
        with Cluster(place, site=["prolog_wait = 0.3", "epilog_wait = 0.5"]) as c:
            mountkit.send(server.process, signal.SIGSTOP)
            try:
                said = c.variables(comment=f"clairfs:{slow}")
                tap.equal((said.get("STATUS"), said.get("MNT")), ("bypass", slow), "the job runs meanwhile")
                tap.ok("not ready" in said.get("REASON", ""), "it is told why", said)
                c.wait_idle()
                tap.no_findings(c.findings(), "and its epilog ends what waits for the source")
            finally:
                mountkit.send(server.process, signal.SIGCONT)


def leftovers_that_stay(place):
    """What an earlier job of the number left cannot be taken away: what that one was told is not told again."""
    source, _ = dataset(place)
    with Cluster(place) as c:
        mine = f"{c.run}/{c.next_job}"
        os.makedirs(mine + "/data")
        write_file(mine + "/status", f"clairfs-status 1\nready\nsource {source}/old\n".encode())
        mountkit.program("mount", "-t", "tmpfs", "none", mine + "/data")
        try:
            bypass(c, "leftovers that stay", "earlier job", source, comment=f"clairfs:{source}")
            c.wait_idle()
            tap.equal(c.job_dirs(), [mine], "it was the job of that number")
        finally:
            mountkit.program("umount", mine + "/data")
        c.must(c.clairfs, "hook", "reap", "-c", c.conf())


def site_that_wants_to_drain(place):
    source, _ = dataset(place)
    with Cluster(place, site=["prolog_drains = on"]) as c:
        job = c.sbatch("echo ran", comment="clairfs:nonsense")
        wait_until(lambda: "drain" in c.node_states()[c.nodes[0]], "the node is drained", 30)
        c.must("scancel", job)
        wait_until(lambda: not c.must("squeue", "-h"), "the job is gone", 30)
        c.must("scontrol", "update", f"nodename={c.nodes[0]}", "state=resume")
        wait_until(lambda: c.node_states()[c.nodes[0]] == "idle", "the node is back", 30)
        tap.ok("ran" not in c.job_output(job), "then, and only then, the prolog fails and the job does not run")
        tap.equal(c.variables(comment=f"clairfs:{source}").get("STATUS"), "mounted", "other jobs run")


run(wishes_that_cannot_be_met, site_that_is_broken, source_that_hangs, leftovers_that_stay, site_that_wants_to_drain)
