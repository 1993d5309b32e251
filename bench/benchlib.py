# SPDX-License-Identifier: Apache-2.0
"""What quickstart and bench/run share: mounts that are always taken down again, and the daemon's own counters."""
import contextlib
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import types


class Failed(Exception):
    """One line for a person."""


IDLE_LOAD = 0.5  # figures are taken below it, or say that they were not
TOUCHED_BYTES = 1 << 30  # before each side
HERE = os.path.dirname(os.path.abspath(__file__))

# What a benchmark does how often: in full, and in a smoke run, whose figures mean nothing.
SIZES = {
    "staged_files": (2000, 240), "staged_skip": (200, 40),
    "job_files": (4000, 320),
    "noorder_files": (2000, 120), "noorder_head": (600, 60), "gluster_head": (2000, 120),
    "hook_steps": (100000, 4000),
    "recover_files": (100000, 4000), "seeds": (32 << 20, 1 << 16),
    "ordinary_train": (8121, 320), "ordinary_val": (500, 48),
    "removed_files": (1 << 20, 96), "judged_seconds": (60, 10),
    "store_mib": (1024, 8), "store_records": (1000000, 1000), "store_reserved": (1 << 30, 16 << 20), "store_seconds": (1, 0.1),
    "verify_files": (4000, 64), "verify_epochs": (4, 2),
    "gpu_files": (1 << 20, 64),
    "warm_files": (3000, 120), "warm_epochs": (4, 2),
    "shard_mib": (64, 20), "shard_records": (240, 48),
    "client_mib": (64, 8), "known_mib": (384, 8), "known_npz_mb": (1000, 12), "known_quiet_s": (6, 0.5), "record_mib": (32, 8),
    "slurm_files": (1300000, 2000), "slurm_jobs": (200, 6),
    "sim_scale": (1, 0.02),
    "touched_bytes": (TOUCHED_BYTES, 1 << 20),
}


def sizes(is_smoke):
    return types.SimpleNamespace(is_smoke=is_smoke, **{name: both[is_smoke] for name, both in SIZES.items()})


def run(*argv, timeout=600, **kwargs):
    """Output of a program; its error text in the exception when it fails."""
    done = subprocess.run([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=timeout, **kwargs)
    if done.returncode:
        raise Failed(f"{os.path.basename(str(argv[0]))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


@contextlib.contextmanager
def work_dir(base=None):
    path = tempfile.mkdtemp(prefix="clairfs-bench-", dir=base)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def wait_for(what, condition, seconds=60, said=None):
    """said: what is known of it, for the error text."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what}: not within {seconds} s" + (f", {said()}" if said else ""))
        time.sleep(0.005)


@contextlib.contextmanager
def slowfs(build, directory, mountpoint, latency_ms, mbps, keep_cache=False, readahead_kib=None, log=None):
    """The simulated source: `latency_ms` a request, `mbps` MB/s in all (0: no limit). Its client reads ahead 128 KiB unless told."""
    os.makedirs(mountpoint, exist_ok=True)
    daemon = subprocess.Popen([f"{build}/bench/slowfs", "-f", "--latency-ms", str(latency_ms), "--mbps", str(mbps),
                               *(["--keep-cache"] if keep_cache else []), *(["--log", log] if log else []),
                               directory, mountpoint], stdin=subprocess.DEVNULL)
    try:
        wait_for("slowfs", lambda: os.path.ismount(mountpoint) or daemon.poll() is not None)
        if daemon.poll() is not None:
            raise Failed("slowfs could not mount")
        if readahead_kib:
            set_readahead(mountpoint, readahead_kib)
        yield daemon
    finally:
        leave = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*leave, mountpoint], stderr=subprocess.DEVNULL, check=False)
        daemon.wait(timeout=60)


def set_readahead(mountpoint, kib):
    """What the kernel reads ahead of a filesystem: FUSE may not ask for more than 128 KiB, root may set it afterwards."""
    device = os.stat(mountpoint).st_dev
    try:
        with open(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb", "w", encoding="ascii") as file:
            file.write(str(kib))
    except OSError as error:
        raise Failed(f"the read-ahead of {mountpoint} cannot be set: {error.strerror}") from error


@contextlib.contextmanager
def gluster(script, directory):
    """A real GlusterFS volume below `directory`; yields where it is mounted."""
    try:
        run(script, "start", directory)
        yield os.path.join(directory, "mnt")
    finally:
        subprocess.run([script, "stop", directory], stdout=subprocess.DEVNULL, check=False)


def end(number, _frame):
    signal.signal(number, signal.SIG_IGN)
    sys.exit(128 + number)


def end_as_failed():
    """Who is ended (timeout, a scheduler) leaves by the same way as who fails: nothing stays mounted."""
    signal.signal(signal.SIGTERM, end)


@contextlib.contextmanager
def uninterrupted():
    """SIGTERM comes when this is over: a mount that was left alone while it is made would be there afterwards."""
    came = []
    before = signal.signal(signal.SIGTERM, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        if came:
            signal.raise_signal(signal.SIGTERM)


class Clairfs:
    """A mount; counters are read from its own stats.json."""

    def __init__(self, build, source, mountpoint, **options):
        self.binary = f"{build}/src/cli/clairfs"
        self.source, self.mountpoint, self.options = source, mountpoint, options

    def __enter__(self):
        os.makedirs(self.mountpoint, exist_ok=True)
        # Keys of debug are a dict.
        texts = {k: "+".join(f"{a}:{b}" for a, b in v.items()) if isinstance(v, dict) else str(v) for k, v in self.options.items()}
        options = ",".join(f"{k}={v.replace(',', chr(92) + ',')}" for k, v in texts.items())
        try:
            with uninterrupted():
                run(self.binary, "mount", *(["-o", options] if options else []), self.source, self.mountpoint)
        except SystemExit:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        try:
            run(self.binary, "umount", self.mountpoint)
        except Failed:
            run(self.binary, "umount", "-l", self.mountpoint)

    def stats(self):
        with open(os.path.join(self.mountpoint, ".clairfs", "stats.json"), encoding="utf-8") as file:
            return json.load(file)

    def settled(self):
        """Waits until every open has been put into its class (about a second after the last read)."""
        def is_settled():
            stats = self.stats()
            return sum(r["reads"] for r in stats["reads"].values()) >= stats["counters"]["sample_opens"]
        wait_for("the classes of all reads", is_settled)
        return self.counters()

    def counters(self):
        stats = self.stats()
        return {**stats["counters"], **{f"reads_{k}": v["reads"] for k, v in stats["reads"].items()}}


def commit():
    """What was measured; with a plus where the tree has changes to it that nobody can look up."""
    tree = ["git", "-C", os.path.dirname(HERE)]
    try:
        name = run(*tree, "rev-parse", "--short", "HEAD").decode().strip()
        changed = run(*tree, "status", "--porcelain", "--", "src", "include", "bench", ":!bench/results").strip()
    except (OSError, Failed):
        return "unknown"
    return name + "+" * bool(changed)


def machine(name_of_commit):
    """What stands beside every result: the load is that of now."""
    return {"cores": os.cpu_count(), "kernel": os.uname().release.split("-")[0], "commit": name_of_commit,
            "load": round(os.getloadavg()[0], 2)}


def wait_idle(seconds):
    """Until the machine is idle, or not any longer: its load stays for a minute after whoever made it."""
    end = time.monotonic() + seconds
    if os.getloadavg()[0] >= IDLE_LOAD and seconds > 0:
        print(f"bench: waiting for a load below {IDLE_LOAD}, at most {seconds} s", file=sys.stderr)
    while os.getloadavg()[0] >= IDLE_LOAD and time.monotonic() < end:
        time.sleep(1)


def index(build, source, out):
    """Writes the list of samples to a file and returns their number."""
    with open(out, "wb") as file:
        done = subprocess.run([f"{build}/src/cli/clairfs", "index", source], stdout=file, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise Failed(done.stderr.decode().strip())
    with open(out, "rb") as file:
        return sum(1 for _ in file)


def order(build, spec, n, epoch, out):
    with open(out, "wb") as file:
        file.write(run(f"{build}/src/cli/clairfs", "order", spec, "--n", n, "--epoch", epoch, "--binary", "u32"))
    return out


def touch_memory():
    """A hypervisor takes memory back that a virtual machine does not use, and whoever touches it next pays: 5 us a page, more
    than all that reading a file into it costs. So free memory is touched before each side, as on a machine that owns its own."""
    with open("/proc/meminfo", encoding="ascii") as file:
        available = next(int(line.split()[1]) * 1024 for line in file if line.startswith("MemAvailable"))
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0x8000)
    mmap.mmap(-1, max(mmap.PAGESIZE, min(TOUCHED_BYTES, available // 4)), flags=flags).close()


def drop_caches():
    """The kernel's page cache, everywhere on this machine; what was free is touched. False when it may not be dropped."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return False
    touch_memory()
    return True


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        for line in file:
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0
