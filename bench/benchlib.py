# SPDX-License-Identifier: Apache-2.0
"""What quickstart and bench/run share: mounts that are always taken down again, and the daemon's own counters."""
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time


class Failed(Exception):
    """One line for a person."""


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
def slowfs(build, directory, mountpoint, latency_ms, mbps):
    """The simulated source: `latency_ms` a request, `mbps` MB/s in all (0: no limit)."""
    os.makedirs(mountpoint, exist_ok=True)
    daemon = subprocess.Popen([f"{build}/bench/slowfs", "-f", "--latency-ms", str(latency_ms), "--mbps", str(mbps),
                               directory, mountpoint], stdin=subprocess.DEVNULL)
    try:
        wait_for("slowfs", lambda: os.path.ismount(mountpoint) or daemon.poll() is not None)
        if daemon.poll() is not None:
            raise Failed("slowfs could not mount")
        yield daemon
    finally:
        leave = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount3", "-u", "-z"]
        subprocess.run([*leave, mountpoint], stderr=subprocess.DEVNULL, check=False)
        daemon.wait(timeout=60)


@contextlib.contextmanager
def gluster(script, directory):
    """A real GlusterFS volume below `directory`; yields where it is mounted."""
    try:
        run(script, "start", directory)
        yield os.path.join(directory, "mnt")
    finally:
        subprocess.run([script, "stop", directory], stdout=subprocess.DEVNULL, check=False)


class Clairfs:
    """A mount; counters are read from its own stats.json."""

    def __init__(self, build, source, mountpoint, **options):
        self.binary = f"{build}/src/cli/clairfs"
        self.source, self.mountpoint, self.options = source, mountpoint, options

    def __enter__(self):
        os.makedirs(self.mountpoint, exist_ok=True)
        options = ",".join(f"{k}={str(v).replace(',', chr(92) + ',')}" for k, v in self.options.items())
        run(self.binary, "mount", *(["-o", options] if options else []), self.source, self.mountpoint)
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


def drop_caches():
    """The kernel's page cache, everywhere on this machine. False when it may not be dropped."""
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("1")
        return True
    except OSError:
        return False


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
