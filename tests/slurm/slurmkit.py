# SPDX-License-Identifier: Apache-2.0
"""A real Slurm on this machine: munged, slurmctld and one or more slurmd in a private directory, started and always taken
down again. Its prolog, epilog and task prolog are the scripts of packaging/slurm; only the paths in them are others.

As in tests/mount each case gets a Place. When it is over the cluster must be as it was: no mount, no process, no directory
of a job, no cgroup, every node idle. Job numbers begin at random, so that several clusters of one machine do not meet.
"""
import contextlib
import os
import re
import shutil
import signal
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "mount"))
import guard
import mountkit
import tap
from mountkit import CLAIRFS, Failed, program, read_file, rng, wait_until, write_file

HOST = socket.gethostname().split(".")[0]
HOOKS = ("prolog", "epilog", "task-prolog")
USER, OTHER = "uucp", "games"  # of every Debian; other tests are others
FOREVER = 600  # seconds that a job sleeps which is to be ended
CGROUPS = "/sys/fs/cgroup"
HAS_V1 = os.path.isdir(CGROUPS + "/memory")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def environ_of(pid):
    with contextlib.suppress(OSError):
        return read_file(f"/proc/{pid}/environ").split(b"\0")
    return []


def has_ended(pid):
    """Who has taken it over may be long in looking: nothing is held by what is left of it."""
    try:
        return read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()[0] in (b"Z", b"X")
    except OSError:
        return True


class Cluster:
    """`with Cluster(place) as c`. site: lines for [hook]; mount: lines for [mount]; slurm: lines for slurm.conf."""

    def __init__(self, place, nodes=1, site=(), mount=(), slurm=(), hooks=HOOKS, cgroup=False, spank=None, scripts=None,
                 expire=120, own_shm=False, etc_group=None):
        self.place = place
        self.root = place.path("slurm")
        self.run = place.path("run")
        self.local = place.path("local")
        for folder in ("munge", "state", "log", "bin"):
            os.makedirs(self.path(folder), mode=0o755)
        os.makedirs(self.local, mode=0o755)
        # The build may be where other users see nothing.
        self.clairfs = self.path("bin", "clairfs")
        shutil.copy(CLAIRFS, self.clairfs)
        self.nodes = [HOST] if nodes == 1 else [f"n{i}" for i in range(1, nodes + 1)]
        self.cgroup = cgroup and HAS_V1
        self.expire, self.own_shm, self.etc_group = expire, own_shm, etc_group
        self.next_job = rng.randrange(1000, 60000000)
        write_file(self.path("log", "hooks.log"), b"")
        os.chmod(self.path("log", "hooks.log"), 0o666)
        for node in self.nodes:
            self.write_site(node, site, mount)
        self.write_hooks(hooks, scripts or {})
        self.write_slurm(slurm, spank)
        self.env = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SLURM_CONF": self.path("slurm.conf"), "LANG": "C.UTF-8"}

    def path(self, *parts):
        return os.path.join(self.root, *parts)

    def conf(self, node=None):
        return self.path(f"clairfs-{node or self.nodes[0]}.conf")

    def run_dir(self, node=None):
        return self.run if len(self.nodes) == 1 else f"{self.run}-{node}"

    def write_site(self, node, site, mount):
        lines = ["[hook]", f"run_dir = {self.run_dir(node)}", f"local_dir = {self.local}", *site,
                 "[mount]", "ram = 64M", "recover = off", "control_reads = off", *mount]
        write_file(self.conf(node), "".join(f"{line}\n" for line in lines).encode())

    def write_hooks(self, hooks, scripts):
        for name in HOOKS:
            text = "#!/bin/sh\n"
            if name in hooks:
                text = read_file(os.path.join(os.environ["CLAIRFS_BUILD"], "packaging", "slurm", f"{name}.sh")).decode()
                text, n = re.subn(r"(?m)^clairfs=\"/.*/bin/clairfs\"$", f"clairfs={self.clairfs}", text)
                if n != 1 or "@" in text:
                    raise Failed(f"{name}.sh was not made for its prefix: {text}")
                text = text.replace("#!/bin/sh\n", f"#!/bin/sh\nexec 2>>{self.path('log', 'hooks.log')}\n", 1)
                # slurmd's environment names the node; a task's does as well.
                text = text.replace(f"hook {name}", f'hook {name} -c "{self.path("clairfs-")}$SLURMD_NODENAME.conf"')
            write_file(self.path(name + ".sh"), scripts.get(name, text).encode())
            os.chmod(self.path(name + ".sh"), 0o755)

    def write_slurm(self, more, spank):
        ports = free_ports(1 + len(self.nodes))
        many = len(self.nodes) > 1
        lines = ["ClusterName=ci", f"SlurmctldHost={HOST}(127.0.0.1)", "SlurmUser=root", "AuthType=auth/munge",
                 f"AuthInfo=socket={self.path('munge/sock')},cred_expire={self.expire}", "CredType=cred/munge", f"SlurmctldPort={ports[0]}",
                 f"SlurmctldPidFile={self.path('slurmctld.pid')}", f"SlurmdPidFile={self.path('slurmd-%n.pid')}",
                 f"StateSaveLocation={self.path('state')}", f"SlurmdSpoolDir={self.path('spool-%n')}",
                 f"SlurmctldLogFile={self.path('log/slurmctld.log')}", f"SlurmdLogFile={self.path('log/slurmd-%n.log')}",
                 "SlurmdDebug=verbose", "JobAcctGatherType=jobacct_gather/none",
                 "AccountingStorageType=accounting_storage/none", "SelectType=select/cons_tres",
                 "SelectTypeParameters=CR_Core_Memory", "MpiDefault=none", "ReturnToService=2", "KillWait=2",
                 "PropagateResourceLimits=NONE", f"PlugStackConfig={self.path('plugstack.conf')}",
                 f"Prolog={self.path('prolog.sh')}", f"Epilog={self.path('epilog.sh')}",
                 f"TaskProlog={self.path('task-prolog.sh')}", "PrologFlags=Alloc,Contain", "PrologEpilogTimeout=30",
                 f"FirstJobId={self.next_job}", "MaxJobId=67043328", "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
                 "ProctrackType=proctrack/" + ("cgroup" if self.cgroup else "linuxproc"),
                 "TaskPlugin=task/" + ("cgroup" if self.cgroup else "none"), "SlurmdParameters=config_overrides"]
        for node, port in zip(self.nodes, ports[1:]):
            host = f"NodeHostname={HOST} " if many else ""
            lines.append(f"NodeName={node} {host}NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=4000 State=UNKNOWN")
        lines.append(f"PartitionName=debug Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8")
        write_file(self.path("slurm.conf"), "".join(f"{line}\n" for line in [*lines, *more]).encode())
        write_file(self.path("cgroup.conf"), b"CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
                   if self.cgroup else b"")
        write_file(self.path("plugstack.conf"), f"required {spank}\n".encode() if spank else b"")

    # --- life ---

    def start_munge(self):
        write_file(self.path("munge/key"), os.urandom(1024))
        os.chmod(self.path("munge/key"), 0o600)
        args = [f"--{name}={self.path('munge', file)}" for name, file in
                (("key-file", "key"), ("socket", "sock"), ("pid-file", "pid"), ("log-file", "log"), ("seed-file", "seed"))]
        self.must("/usr/sbin/munged", "--force", *args)

    def start_slurmd(self, node, *options):
        # Others of this machine may have mounts in /dev/shm, which one plugin does not expect. Who is in which group is
        # the machine's as well.
        own = "umount -l /dev/shm; umount -l /dev/shm; mount -t tmpfs shm /dev/shm; " if self.own_shm else ""
        if self.etc_group:
            own += f"mount --bind {self.etc_group} /etc/group; "
        prefix = ("unshare", "--mount", "sh", "-c", own + "exec \"$@\"", "sh") if own else ()
        self.must(*prefix, "/usr/sbin/slurmd", *options, "-N", node, "-f", self.path("slurm.conf"))

    def must(self, *argv, **kwargs):
        done = program(*argv, env=self.env, **kwargs)
        if done.code:
            raise Failed(f"{argv}: {done}")
        return done.out.decode().strip()

    def __enter__(self):
        guard.tell("+" + self.root)
        try:
            self.start_munge()
            self.must("/usr/sbin/slurmctld", "-f", self.path("slurm.conf"))
            for node in self.nodes:
                self.start_slurmd(node)
            self.wait_idle()
        except BaseException:
            self.show_logs()
            self.stop()
            raise
        return self

    def __exit__(self, kind, *_):
        try:
            if kind is None:
                self.wait_idle()
                self.look_for_findings()
            else:
                self.show_logs()
        finally:
            self.stop()

    def stop(self):
        steps = self.steps()
        for pid in steps:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.end([self.path(name) for name in ("slurmctld.pid", *(f"slurmd-{node}.pid" for node in self.nodes), "munge/pid")])
        for node in self.nodes:
            self.remove_cgroups(node)
        for pid in self.daemons():  # after a failure: nobody has ended them
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for folder in self.own_cgroups():
            with contextlib.suppress(Failed, OSError):
                wait_until(lambda path=folder: not read_file(path + "/cgroup.procs"), "the cgroup is empty", 10)
                os.rmdir(folder)

    def end(self, pid_files):
        """At once: what they would still write nobody reads, and they wait for timers of theirs."""
        pids = {}
        for path in pid_files:
            with contextlib.suppress(OSError, ValueError):
                pids[path] = int(read_file(path))
                os.kill(pids[path], signal.SIGKILL)
        for path, pid in pids.items():
            wait_until(lambda pid=pid: has_ended(pid), f"{path} ends", 5)
            with contextlib.suppress(OSError):
                os.unlink(path)

    def remove_cgroups(self, node):
        """Of Slurm: the job directories of this cluster, then what is empty above them."""
        if not self.cgroup:
            return
        for controller in os.listdir(CGROUPS):
            top = f"{CGROUPS}/{controller}/slurm_{node}"
            for folder, _, _ in os.walk(top, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def steps(self):
        """Processes of Slurm's steps and of the jobs in them."""
        want = b"SLURM_CONF=" + self.path("slurm.conf").encode()
        return [int(p) for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid() and want in environ_of(p)
                and int(p) not in self.own_pids()]

    def own_pids(self):
        found = set()
        for name in ["slurmctld.pid", *(f"slurmd-{node}.pid" for node in self.nodes), "munge/pid"]:
            with contextlib.suppress(OSError, ValueError):
                found.add(int(read_file(self.path(name))))
        return found

    # --- what is there ---

    def node_states(self):
        return dict(line.split() for line in self.must("sinfo", "-h", "-N", "-o", "%N %T").splitlines())

    def wait_idle(self):
        """No job, every epilog over."""
        wait_until(lambda: set(self.node_states().values()) <= {"idle", "drained"} and not self.must("squeue", "-h"),
                   "the cluster is idle", 60)

    def daemons(self):
        """The daemons of jobs: {pid: arguments}."""
        return {pid: text for pid, text in guard.processes_of(self.root).items() if " hook serve " in text}

    def mounts(self):
        if not self.own_shm and not self.etc_group:
            return [os.fsdecode(path) for path, kind in guard.mounts_below(self.place.root) if kind == b"fuse.clairfs"]
        pid = int(read_file(self.path(f"slurmd-{self.nodes[0]}.pid")))
        return [line.split()[4] for line in read_file(f"/proc/{pid}/mountinfo").decode().splitlines()
                if self.place.root in line and " fuse.clairfs " in line]

    def job_dirs(self):
        return sorted(f"{self.run_dir(n)}/{name}" for n in self.nodes if os.path.isdir(self.run_dir(n))
                      for name in os.listdir(self.run_dir(n)) if name != ".lock")

    def own_cgroups(self):
        """Cgroups of the daemons of this cluster's jobs."""
        found = []
        for top in (CGROUPS + "/memory/clairfs", CGROUPS + "/clairfs", CGROUPS + "/unified/clairfs"):
            if os.path.isdir(top):
                found += [f"{top}/{name}" for name in os.listdir(top) if (m := re.match(r"job_(\d+)_", name))
                          and self.next_job <= int(m[1]) < self.next_job + 10000]
        return found

    def findings(self):
        found = [f"still mounted: {path}" for path in self.mounts()]
        found += [f"still running: {text}" for text in self.daemons().values()]
        found += [f"left: {path}" for path in self.job_dirs() + self.own_cgroups()]
        found += [f"node {name} is {state}" for name, state in self.node_states().items() if state != "idle"]
        return found

    def look_for_findings(self):
        """A process that has been killed, or a controller that is slow, may take a moment. What was left behind stays."""
        with contextlib.suppress(Failed):
            wait_until(lambda: not self.findings(), "nothing is left", 20)
        if not tap.no_findings(self.findings(), "the cluster is as it was: nothing mounted, running or left, no node drained"):
            self.show_logs()
            for path in self.job_dirs():
                tap.note(f"{path}: {sorted(os.listdir(path))}")

    def log_of_node(self, node=None):
        return read_file(self.path("log", f"slurmd-{node or self.nodes[0]}.log")).decode(errors="replace")

    def show_logs(self):
        for name in sorted(os.listdir(self.path("log"))):
            tap.note(f"--- {name}")
            tap.note("\n".join(read_file(self.path("log", name)).decode(errors="replace").splitlines()[-60:]))

    # --- jobs ---

    def run_as(self, user, *argv, **kwargs):
        return program("runuser", "-u", user, "--", "env", "-i", *(f"{k}={v}" for k, v in self.env.items()), *argv, cwd="/tmp", **kwargs)

    def srun(self, *argv, user=USER, options=(), comment=None, timeout=60):
        comment = () if comment is None else (f"--comment={comment}",)
        return self.run_as(user, "srun", "--mem=100", *comment, *options, *argv, timeout=timeout)

    def shell(self, script, **kwargs):
        """The job's output; it must succeed."""
        done = self.srun("sh", "-c", script, **kwargs)
        if done.code:
            raise Failed(f"srun: {done}")
        return done.out.decode()

    def variables(self, **kwargs):
        """What the task prolog told the job: {name without CLAIRFS_: value}."""
        lines = self.shell("env", **kwargs).splitlines()
        return dict(line[len("CLAIRFS_"):].split("=", 1) for line in lines if line.startswith("CLAIRFS_"))

    def sbatch(self, script, *options, user=USER, comment=None):
        """The number of the job; its output is in a file that job_output() reads."""
        folder = self.place.path("out-" + user)
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o777)
        path = os.path.join(folder, f"job-{len(os.listdir(folder))}.sh")
        write_file(path, b"#!/bin/sh\n" + script.encode())
        comment = () if comment is None else (f"--comment={comment}",)
        done = self.run_as(user, "sbatch", "--parsable", "--mem=100", f"--output={folder}/%j.out", *comment, *options, path)
        if done.code:
            raise Failed(f"sbatch: {done}")
        return int(done.out)

    def job_output(self, job, user=USER):
        with contextlib.suppress(OSError):
            return read_file(self.place.path("out-" + user, f"{job}.out")).decode(errors="replace")
        return ""

    def wait_output(self, job, text, user=USER):
        wait_until(lambda: text in self.job_output(job, user), f"job {job} says {text!r}", 60)

    def wait_end(self, job):
        """Until no epilog of it runs."""
        wait_until(lambda: not program("squeue", "-h", "-j", str(job), env=self.env).out.strip(), f"job {job} ends", 60)
        self.wait_idle()


def dataset(place, n=40, size=5000, name="data"):
    """A source that everybody may read: {path: bytes}."""
    data = {f"{name}/s{i:05d}.bin": rng.randbytes(size) for i in range(n)}
    for path, content in data.items():
        write_file(os.path.join(place.source, path), content)
    return os.path.join(place.source, name), {os.path.basename(p): c for p, c in data.items()}


def back_to_back(c, source, jobs, seconds):
    """So many jobs, eight at a time, each of which reads all of the source: [(sum of what it read, status of its mount)]. The cluster
    has to allow arrays of that size."""
    c.sbatch("cat $CLAIRFS_MNT/*.bin | cksum; echo $CLAIRFS_STATUS", f"--array=1-{jobs}%8", "--mem=50", comment=f"clairfs:{source}")
    wait_until(lambda: not c.must("squeue", "-h"), "all jobs have ended", seconds)
    c.wait_idle()
    folder = c.place.path("out-" + USER)
    said = [read_file(os.path.join(folder, name)).decode().split() for name in os.listdir(folder) if name.endswith(".out")]
    return [(words[0], words[-1]) if words else ("", "") for words in said]


def let_users_mount():
    """The device of a machine without udev may be root's alone."""
    mode = os.stat("/dev/fuse").st_mode & 0o777
    guard.tell(f"mode /dev/fuse {mode:o}")
    os.chmod("/dev/fuse", 0o666)


run = mountkit.run
__all__ = ["Cluster", "FOREVER", "HAS_V1", "OTHER", "USER", "back_to_back", "dataset", "guard", "has_ended", "let_users_mount", "mountkit", "read_file", "run", "wait_until", "write_file"]
