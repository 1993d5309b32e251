# SPDX-License-Identifier: Apache-2.0
"""A job that asks for a mount has it, as its user; one that does not is left alone. Asked by comment, by the option of the
SPANK plugin, in a batch script, by the site for all."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import tap
from slurmkit import HAS_V1, OTHER, USER, Cluster, dataset, read_file, run, write_file

READ = "cat $CLAIRFS_MNT/*.bin | sha1sum; cat $CLAIRFS_SOURCE/*.bin | sha1sum"
ATTRIBUTES = "grep $CLAIRFS_MNT /proc/mounts"


def is_same(out):
    lines = out.split("\n")
    return len(lines[0]) > 40 and lines[0] == lines[1]


def srun_reads_through_the_mount(place):
    source, _ = dataset(place)
    with Cluster(place) as c:
        said = c.variables(comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "mounted", "the job is told that there is a mount")
        tap.equal(said.get("SOURCE"), source, "and of what")
        tap.ok(is_same(c.shell(READ, comment=f"clairfs:{source}")), "its bytes are the source's")
        line = c.shell(ATTRIBUTES, comment=f"for the records clairfs:{source},order=sequential,ram=32M")
        tap.ok(line.split()[2] == "fuse.clairfs", "they come through the mount, also with options and other words", line)
        tap.ok({"ro", "nosuid", "nodev"} <= set(line.split()[3].split(",")), "it is read-only, nosuid, nodev", line)
        tap.ok("allow_other" not in line, "and for nobody else", line)
        tap.equal(c.variables(), {}, "a job that asks for nothing is told nothing")
        tap.equal(c.variables(comment="clairfs-like words"), {}, "nor is one with another comment")


def daemon_is_the_user(place):
    source, _ = dataset(place)
    with Cluster(place, site=["memory_all = 64G"]) as c:
        job = c.sbatch(f"echo begun; while [ ! -e {place.path('end')} ]; do sleep 0.1; done", comment=f"clairfs:{source}")
        c.wait_output(job, "begun")
        daemons = c.daemons()
        tap.equal(len(daemons), 2, "a daemon and its guard run")
        for pid in daemons:
            with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                status = dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
            ids = {status[name].strip() for name in ("Uid", "Gid")}
            tap.equal(ids, {"10\t10\t10\t10"}, "as the user in all ids")
            tap.equal(status["CapPrm"], "0" * 16, "without capabilities")
            tap.equal(status["NoNewPrivs"], "1", "and without a way to new ones")
            tap.ok("0" not in status["Groups"].split(), "root's groups are not among theirs", status["Groups"])
            tap.equal(os.getsid(pid) == os.getsid(0), False, "in a session of its own")
            tap.equal({os.readlink(f"/proc/{pid}/fd/{fd}") for fd in (1, 2) if os.path.exists(f"/proc/{pid}/fd/{fd}")} - {"/dev/null"},
                      set(), "with nothing open that slurmd waits for")
        mine = f"{c.run}/{job}"
        tap.equal((os.stat(mine).st_uid, os.stat(mine).st_mode & 0o22), (0, 0), "the job's directory is root's alone to write")
        groups = [f for f in c.own_cgroups() if f"job_{job}_" in f]
        tap.ok(groups or not HAS_V1, "it has a cgroup of its own", c.own_cgroups())
        for group in groups if HAS_V1 else []:
            limit = int(read_file(f"{group}/memory.limit_in_bytes"))
            # ram=64M, a quarter of it pushed ahead, 64 requests of 1 MiB: half of the limit is for page cache.
            tap.equal(int(read_file(f"{os.path.dirname(group)}/memory.limit_in_bytes")), 64 << 30, "below that of all of them together")
            tap.ok(2 * (64 + 16 + 64) << 20 <= limit < 1 << 30, "with a limit by what its mount is meant to need", limit)
        write_file(place.path("end"), b"")
        c.wait_end(job)


def project_that_only_a_group_may_read(place):
    """As on clusters: the user is in the project's group, and that is the only way in."""
    source, _ = dataset(place)
    group = 4242
    os.chown(source, 0, group)
    os.chmod(source, 0o750)
    text = read_file("/etc/group") + f"clairfs-project:x:{group}:{USER}\n".encode()
    write_file(place.path("group"), text)
    # The controller does not know of the group: slurmd looks by itself.
    with Cluster(place, etc_group=place.path("group"), slurm=["LaunchParameters=disable_send_gids"]) as c:
        out = c.shell(f"id -G; echo $CLAIRFS_STATUS; {READ}", comment=f"clairfs:{source}").split("\n", 2)
        tap.ok(str(group) in out[0].split(), "the job is in the group", out)
        tap.equal(out[1], "mounted", "so is its daemon")
        tap.ok(is_same(out[2]), "and its bytes are the source's")
        said = c.variables(user=OTHER, comment=f"clairfs:{source}")
        tap.equal(said.get("STATUS"), "bypass", "a user who is not has no mount")


def batch_script_asks(place):
    source, _ = dataset(place)
    with Cluster(place) as c:
        job = c.sbatch(f"#SBATCH --comment=clairfs:{source}\n{READ}\nsrun sh -c 'echo status $CLAIRFS_STATUS'\n")
        c.wait_end(job)
        out = c.job_output(job)
        tap.ok(is_same(out), "the batch script reads through the mount", out)
        tap.ok("status mounted" in out, "so do its steps", out)


def option_of_the_plugin(place):
    source, _ = dataset(place)
    other, _ = dataset(place, name="other")
    plugin = os.environ["CLAIRFS_SPANK"]
    with Cluster(place, spank=plugin) as c:
        said = c.variables(options=[f"--clairfs={source}"])
        tap.equal((said.get("STATUS"), said.get("SOURCE")), ("mounted", source), "srun --clairfs=SPEC mounts")
        said = c.variables(options=[f"--clairfs={source}"], comment=f"clairfs:{other}")
        tap.equal(said.get("SOURCE"), source, "the option comes before the comment")
        job = c.sbatch(f"#SBATCH --clairfs={source}\necho status $CLAIRFS_STATUS\n")
        c.wait_end(job)
        tap.ok("status mounted" in c.job_output(job), "#SBATCH --clairfs=SPEC mounts", c.job_output(job))
        tap.equal(c.variables(options=["--clairfs=$(touch /tmp/x)"]).get("STATUS"), "bypass", "what no spec is mounts nothing")


def site_mounts_for_all(place):
    source, _ = dataset(place)
    other, _ = dataset(place, name="other")
    os.mkdir(place.path("reports"), 0o755)
    with Cluster(place, site=[f"spec = {source}", f"report_dir = {place.path('reports')}"]) as c:
        # In the way of the first job's report: who writes into it waits for a reader.
        os.mkfifo(place.path("reports", f".clairfs-{c.next_job}-{c.nodes[0]}.json"))
        tap.equal(c.variables().get("SOURCE"), source, "a job that says nothing has what the site gives")
        tap.equal(c.variables(comment=f"clairfs:{other}").get("SOURCE"), other, "its own wish comes first")
        tap.equal(c.variables(comment="clairfs:off"), {}, "and it may decline")
    reports = os.listdir(place.path("reports"))
    tap.equal(len(reports), 2, "each mount left a report")
    for name in reports:
        st = os.stat(place.path("reports", name))
        tap.equal((st.st_uid, st.st_mode & 0o777), (10, 0o440), "which is the user's to read")


run(srun_reads_through_the_mount, daemon_is_the_user, project_that_only_a_group_may_read, batch_script_asks, option_of_the_plugin, site_mounts_for_all)
