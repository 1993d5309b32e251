# SPDX-License-Identifier: Apache-2.0
"""Metrics outside of the mount: the textfile of a node exporter, judged by promtool.

It may never cost the mount anything: what happens to directory or disk is counted, and reads go on.
"""
import os
import re
import signal
import stat
import subprocess

import mountkit
import tap
from mountkit import DEADLINE, clairfs, read_file, wait_until, write_file

NAME = re.compile(r"^(clairfs_\w+)", re.MULTILINE)


def setup(place, **options):
    """A mount that publishes, with the records of the place. The directory is place.path("prom")."""
    os.environ["XDG_RUNTIME_DIR"] = place.path("run")
    for name in ("prom", "run"):
        os.makedirs(place.path(name), exist_ok=True)
    if not os.listdir(place.source):
        place.files([1000, 70000])
    return place.mount(**{"metrics_textfile": place.path("prom"), "debug": {"metrics_interval": 1}, **options})


def textfiles(place):
    return sorted(os.listdir(place.path("prom")))


def textfile(place):
    """The path of the one file that is there by and by."""
    names = wait_until(lambda: [n for n in textfiles(place) if n.endswith(".prom")], "a textfile")
    return place.path("prom", names[0])


def promtool(text):
    """promtool's complaints; one that is not installed is a complaint as well."""
    try:
        done = subprocess.run(["promtool", "check", "metrics"], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=DEADLINE, check=False)
    except OSError as e:
        return [f"promtool: {e.strerror} (packaging/install-deps --test)"]
    lines = done.stdout.decode(errors="replace").splitlines()
    return lines if lines or not done.returncode else [f"exit code {done.returncode}"]


def both_ways(place):
    with setup(place, order="sequential:epochs=2") as mount:
        for name in os.listdir(place.source):
            mount.read(name)
        path = textfile(place)
        # Ranks have rows from the first look of the accounting on.
        mount.wait_for(lambda s: s["gpu_wait"]["ranks"], "the rank of the order is known")
        wait_until(lambda: b"clairfs_gpu_wait_removed_seconds_total{" in read_file(path), "the textfile knows it as well")
        texts = {"virtual file": read_file(mount.path(".clairfs", "metrics")), "textfile": read_file(path)}
        for name, text in texts.items():
            tap.no_findings(promtool(text), f"promtool accepts the {name}")
        names = {name: set(NAME.findall(text.decode())) for name, text in texts.items()}
        tap.ok(names["virtual file"] == names["textfile"], "both have the same names", names)
        heads = {name: [line for line in text.splitlines() if line.startswith(b"#")] for name, text in texts.items()}
        tap.ok(heads["virtual file"] == heads["textfile"], "and the same help")
        rows = [line for line in texts["textfile"].decode().splitlines() if not line.startswith("#")]
        word = os.path.basename(path)[len("clairfs_"):-len(".prom")]
        tap.ok(rows and all(f'mount="{word}"' in row for row in rows), "each row of the textfile says which mount", rows[:3])
        tap.ok(f'src="{place.source}",mountpoint="{place.mnt}"'.encode() in texts["textfile"], "mount_info has the paths")
        mode = stat.S_IMODE(os.stat(path).st_mode)
        tap.equal(oct(mode), "0o644", "the textfile can be read by the exporter's user")
        first = os.stat(path).st_ino
        wait_until(lambda: os.stat(path).st_ino != first, "the textfile is written again")
        tap.ok(mount.counters()["textfile_errors"] == 0, "nothing failed", mount.counters())
    tap.equal(textfiles(place), [], "no textfile after unmounting")
    tap.equal(os.listdir(place.path("run", "clairfs")), [], "no record after unmounting")


def killed(place):
    def kill(**options):
        mount = setup(place, **options)
        textfile(place)
        mountkit.send(mount.process, signal.SIGKILL)
        mount.process.wait(mountkit.DEADLINE)
        return mount
    kill()
    # It may have been writing the next one.
    tap.equal(len([n for n in textfiles(place) if n.endswith(".prom")]), 1, "a killed daemon leaves its textfile")
    tap.equal(clairfs("umount", place.mnt).code, 0, "umount of the dead mount")
    tap.equal(textfiles(place), [], "and umount removes it")
    kill()
    subprocess.run(["umount", "-l", place.mnt], check=True)
    clairfs("umount", place.mnt)
    tap.equal(textfiles(place), [], "also when somebody else had unmounted it")
    kill()
    with place.mount():
        tap.equal(textfiles(place), [], "the next mount of the same place removes it, without the option, too")
    kill()
    with setup(place, metrics_textfile=place.path("other.prom")):
        wait_until(lambda: os.path.exists(place.path("other.prom")), "the new textfile")
        tap.equal(textfiles(place), [], "or with another one")
    tap.ok(not os.path.exists(place.path("other.prom")), "which is removed in the end")


def meddled_record(place):
    """Nothing but a textfile of the user's own is removed because of what a record says."""
    mount = setup(place)
    textfile(place)
    record = place.path("run", "clairfs", os.listdir(place.path("run", "clairfs"))[0])
    mountkit.send(mount.process, signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    write_file(place.path("precious.txt"), b"x")
    write_file(place.path("of-others.prom"), b"x")
    os.chown(place.path("of-others.prom"), 65534, 65534)
    os.symlink("precious.txt", place.path("link.prom"))
    for line in (place.path("precious.txt"), place.path("of-others.prom"), place.path("link.prom"), "precious.txt",
                 "x" * 5000 + ".prom", "/\0.prom", "/", ".prom", ""):
        write_file(record, line.encode() + b"\n")
        clairfs("umount", place.mnt)
    tap.ok(all(os.path.lexists(place.path(n)) for n in ("precious.txt", "of-others.prom", "link.prom")),
           "records that were meddled with remove nothing", os.listdir(place.root))
    os.chmod(place.path("run", "clairfs"), 0o777)
    with setup(place) as mount:
        textfile(place)
        tap.equal(os.listdir(place.path("run", "clairfs")), [], "a directory of records that others can write is not used")


def failures(place):
    """The directory goes away and comes back; then its filesystem is full."""
    with setup(place) as mount:
        path = textfile(place)
        os.rename(place.path("prom"), place.path("away"))
        errors = mount.wait_for(lambda s: s["counters"]["textfile_errors"] >= 2, "errors are counted")
        for name in os.listdir(place.source):
            tap.equal(mount.read(name), read_file(os.path.join(place.source, name)), f"{name} is read meanwhile")
        tap.equal(mount.text().count("metrics_textfile"), 1, "one warning, however often it fails")
        os.mkdir(place.path("prom"))
        wait_until(lambda: os.path.exists(path), "it is written again")
        mount.wait_for(lambda s: s["counters"]["textfile_writes"] > errors["counters"]["textfile_writes"], "and counted")
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "none", place.path("prom")], check=True)
        before = mount.counters()["textfile_errors"]
        mount.wait_for(lambda s: s["counters"]["textfile_errors"] > before + 1, "a full filesystem is an error")
        tap.ok(not os.path.exists(path), "and never half a file", textfiles(place))
        # The thread may be writing just now.
        subprocess.run(["umount", "-l", place.path("prom")], check=True)
    tap.equal(textfiles(place), [], "unmounted as usual")


def bad_options(place):
    setup_file = place.path("plain")
    write_file(setup_file, b"")
    for option, word in ((f"metrics_textfile={setup_file}", "metrics_textfile"),
                         ("metrics_textfile=/nowhere/at-all", "metrics_textfile"),
                         (f"metrics_textfile={place.mnt}", "metrics_textfile"),
                         (f"metrics_textfile={place.mnt}/../mnt/s.prom", "metrics_textfile"),
                         ("metrics_socket=/tmp/s", "metrics_textfile"),  # an option that is gone
                         ("debug=metrics_interval:0", "metrics_interval")):
        done = clairfs("mount", "-o", f"snapshot_dir=none,{option}", place.source, place.mnt)
        tap.ok(done.code == 2 and len(done.lines) == 1 and word in done.lines[0], f"refused: {option[:40]}", done)


mountkit.run(both_ways, killed, meddled_record, failures, bad_options)
