# SPDX-License-Identifier: Apache-2.0
"""Metrics outside of the mount: the textfile of a node exporter and the unix socket, both judged by promtool.

Neither may ever cost the mount anything: what happens to directory, disk or clients is counted, and reads go on.
"""
import os
import re
import signal
import socket
import stat
import subprocess

import mountkit
import tap
from mountkit import DEADLINE, clairfs, read_file, wait_until, write_file

NAME = re.compile(r"^(clairfs_\w+)", re.MULTILINE)


def setup(place, **options):
    """A mount that publishes, with the records of the place. Directory and socket are place.path("prom") and ("socket")."""
    os.environ["XDG_RUNTIME_DIR"] = place.path("run")
    for name in ("prom", "run"):
        os.makedirs(place.path(name), exist_ok=True)
    if not os.listdir(place.source):
        place.files([1000, 70000])
    return place.mount(**{"metrics_textfile": place.path("prom"), "metrics_interval": 1, **options})


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


def connect(place):
    s = socket.socket(socket.AF_UNIX)
    s.connect(place.path("socket"))  # without a timeout: it waits when the queue is full
    s.settimeout(mountkit.DEADLINE)
    return s


def talk(place, request):
    """Sends bytes and reads to the end: (head, body)."""
    with connect(place) as s:
        s.sendall(request)
        parts = []
        while True:
            try:
                part = s.recv(65536)
            except ConnectionResetError:  # more was sent than was read
                part = b""
            if not part:
                break
            parts.append(part)
    head, _, body = b"".join(parts).partition(b"\r\n\r\n")
    return head.decode(), body


def get(place, path="/metrics", method="GET"):
    return talk(place, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())


def three_ways(place):
    with setup(place, metrics_socket=place.path("socket"), order="sequential:epochs=2") as mount:
        for name in os.listdir(place.source):
            mount.read(name)
        path = textfile(place)
        # Ranks have rows from the first look of the accounting on.
        mount.wait_for(lambda s: s["gpu_wait"]["ranks"], "the rank of the order is known")
        wait_until(lambda: b"clairfs_gpu_wait_removed_seconds_total{" in read_file(path), "the textfile knows it as well")
        texts = {"virtual file": read_file(mount.path(".clairfs", "metrics")), "textfile": read_file(path),
                 "socket": get(place)[1]}
        for name, text in texts.items():
            tap.no_findings(promtool(text), f"promtool accepts the {name}")
        names = {name: set(NAME.findall(text.decode())) for name, text in texts.items()}
        tap.ok(names["virtual file"] == names["textfile"] == names["socket"], "all three have the same names", names)
        heads = {name: [line for line in text.splitlines() if line.startswith(b"#")] for name, text in texts.items()}
        tap.ok(heads["virtual file"] == heads["textfile"] == heads["socket"], "and the same help")
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
    tap.ok(not os.path.exists(place.path("socket")), "no socket after unmounting")
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
                         ("metrics_socket=/" + "x" * 108, "metrics_socket"),
                         (f"metrics_textfile={place.mnt}", "metrics_textfile"),
                         (f"metrics_socket={place.mnt}/../mnt/s", "metrics_socket"),
                         ("metrics_interval=0", "metrics_interval")):
        done = clairfs("mount", "-o", f"snapshot_dir=none,{option}", place.source, place.mnt)
        tap.ok(done.code == 2 and len(done.lines) == 1 and word in done.lines[0], f"refused: {option[:40]}", done)
    write_file(place.path("taken"), b"precious")
    for name in ("taken", "nowhere/socket"):
        with setup(place, metrics_textfile="", metrics_socket=place.path(name)) as mount:
            mount.read(os.listdir(place.source)[0])
            tap.ok("metrics_socket" in mount.text(), f"metrics_socket={name}: a warning, and the mount goes on")
    tap.equal(read_file(place.path("taken")), b"precious", "a file in the place of the socket is left alone")


def http(place):
    with setup(place, metrics_textfile="", metrics_socket=place.path("socket")):
        tap.equal(oct(stat.S_IMODE(os.lstat(place.path("socket")).st_mode)), "0o600", "only its user may connect")
        head, body = get(place)
        length = int(re.search(r"Content-Length: (\d+)", head)[1])
        tap.ok(head.startswith("HTTP/1.1 200 ") and length == len(body) > 1000 and "version=0.0.4" in head, "GET /metrics", head)
        tap.ok(get(place, "/metrics?x=1")[0].startswith("HTTP/1.1 200"), "a query is ignored")
        head, body = get(place, method="HEAD")
        tap.ok(head.startswith("HTTP/1.1 200 ") and body == b"", "HEAD", head, body)
        for request, code in ((b"GET /other HTTP/1.1\r\n\r\n", 404), (b"POST /metrics HTTP/1.1\r\n\r\n", 405), (b"\r\n\r\n", 400),
                              (b"GET\r\n\r\n", 400), (b"GET /metrics\r\n\r\n", 400), (b"GET /metrics HTTP/2\r\n\r\n", 400),
                              (b"GET / x HTTP/1.1\r\n\r\n", 400), (b"\0\xff\n\n", 400), (b"x" * 5000, 431)):
            head = talk(place, request)[0]
            tap.ok(head.startswith(f"HTTP/1.1 {code} "), f"{request[:30]!r}: {code}", head)


def hostile_clients(place):
    with setup(place, metrics_textfile="", metrics_socket=place.path("socket")) as mount:
        # More than it serves at once, saying nothing, half a request, or not taking their answer.
        idle = [connect(place) for _ in range(30)]
        for i, s in enumerate(idle):
            if i % 3:
                s.sendall(b"GET /metrics HTTP/1.1\r\n" + (b"\r\n" if i % 3 == 2 else b""))
        tap.ok(get(place)[0].startswith("HTTP/1.1 200"), "somebody polite is answered all the same")
        for s in idle:
            s.close()
        for _ in range(100):
            connect(place).close()
        tap.ok(get(place)[0].startswith("HTTP/1.1 200"), "also after many that leave at once")
        for name in os.listdir(place.source):
            tap.equal(mount.read(name), read_file(os.path.join(place.source, name)), f"{name} is read meanwhile")
        left = connect(place)  # is still there when the mount ends
    left.close()


def socket_life(place):
    mount = setup(place, metrics_textfile="", metrics_socket=place.path("socket"))
    mountkit.send(mount.process, signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    tap.ok(os.path.exists(place.path("socket")), "a killed daemon leaves its socket")
    clairfs("umount", place.mnt)
    with setup(place, metrics_textfile="", metrics_socket=place.path("socket")):
        tap.ok(get(place)[0].startswith("HTTP/1.1 200"), "which the next one replaces")
        os.mkdir(place.path("mnt2"))
        with place.mount(mountpoint=place.path("mnt2"), metrics_socket=place.path("socket")) as second:
            tap.ok("metrics_socket" in second.text(), "one that is in use is left alone, with a warning")
            tap.ok(f'mountpoint="{place.mnt}"'.encode() in get(place)[1], "and answers for its own mount")
        tap.ok(get(place)[0].startswith("HTTP/1.1 200"), "also when the second mount is gone")


mountkit.run(three_ways, killed, meddled_record, failures, bad_options, http, hostile_clients, socket_life)
