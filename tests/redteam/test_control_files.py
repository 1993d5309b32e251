# SPDX-License-Identifier: Apache-2.0
"""The files of .clairfs under attack: thousands of announces and lookups by somebody who may not, after which the owner's
commands work as before; and nobody learns what is in a file through an announce, root without capabilities included.
"""
import ctypes
import errno
import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from redkit import STRANGER, User, look, pick
import mountkit
import tap
from mountkit import CLAIRFS, good, write_file

N_FILES = 200
SECRET = b"root:$6$topsecret:19000:0"


def ioctl(mountpoint, number, data):
    """(status, answer) of an ioctl on the control file, or an errno."""
    try:
        fd = os.open(os.path.join(mountpoint, ".clairfs", "control"), os.O_RDONLY)
        try:
            room = bytearray(data)
            fcntl.ioctl(fd, 3 << 30 | len(room) << 16 | 0xCF << 8 | number, room)
            return struct.unpack_from("<Ii", room)[1], bytes(room)
        finally:
            os.close(fd)
    except OSError as e:
        return e.errno


def announce(mountpoint, spec):
    return ioctl(mountpoint, 1, struct.pack("<Ii4088s", 1, 0, spec.encode()))


def lookup(mountpoint, spec):
    """What `cat announce/SPEC` shows, or an errno."""
    return look("read", os.path.join(mountpoint, ".clairfs", "announce", spec.replace("/", "%2F")))


def flood(mountpoint, first, n):
    """Announces, lookups and parts of lists, each another one; how many were answered in which way."""
    counts = {}
    for i in range(first, first + n):
        spec = f"torch-randperm:seed={i}"
        if i % 3 == 0:
            got = announce(mountpoint, spec)
        elif i % 3 == 1:
            got = lookup(mountpoint, spec)
        else:
            got = ioctl(mountpoint, 2, struct.pack("<IiQII1000s6800s", 1, 0, 0, 0, 1, b"", bytes(4)))
        what = errno.errorcode.get(got, got) if isinstance(got, int) else "text" if isinstance(got, bytes) else f"status {got[0]}"
        counts[what] = counts.get(what, 0) + 1
    return counts


def files(place):
    for i in range(N_FILES):
        write_file(f"{place.source}/c{i % 3}/s{i}", b"%d" % i * 100)


def timed(*argv):
    start = time.monotonic()
    good(*argv)
    return (time.monotonic() - start) * 1000


def flooded(place):
    """Ten thousand by another user; then by who has mounted, one spec after the other as a job does that tells each epoch."""
    files(place)
    with User(STRANGER, STRANGER) as stranger, place.mount(allow_other="on") as mount:
        point, n = mount.mountpoint, pick(10000, 100000)
        good("announce", point, "sequential:epochs=7")
        before = min(timed("status", point) for _ in range(3))
        counts = {}
        for at in range(0, n, 1000):
            for what, count in stranger(flood, point, at, 1000).items():
                counts[what] = counts.get(what, 0) + count
        tap.note(f"{n} by another user were answered: {counts}")
        tap.ok("status 0" not in counts, "none of another user's is taken", counts)
        times = sorted(timed("status", point) for _ in range(9))
        tap.note(f"bench: clairfs status took {before:.1f} ms before and {times[4]:.1f} ms (median of 9, at most {times[-1]:.1f}) after")
        tap.equal(mount.stats()["order"]["spec"], "sequential:epochs=7", "the order is what it was")
        tap.equal(good("announce", point, "torch-randperm:seed=5"), b"torch-randperm:seed=5\n", "who has mounted announces as before")
        tap.equal(good("top", "--once", point)[:0], b"", "clairfs top shows it")
        for i in range(1000):
            spec = f"torch-randperm:seed=5:epochs={i + 1}"
            got = lookup(point, spec)
            if got != f"{spec}\n".encode():
                tap.ok(False, f"the {i}. lookup of one's own is answered", got)
                break
        else:
            tap.ok(True, "a thousand lookups of one's own are answered")
        done = mountkit.clairfs("status", point)
        tap.equal(done.code, 0, "and status works after them")
        peak = mountkit.read_file(f"/proc/{mount.process.pid}/status").decode()
        rss = int(peak.split("VmHWM:")[1].split()[0]) // 1024
        tap.ok(rss < 64 + 128, f"all that took no memory to speak of: {rss} MiB at most")
        tap.ok(len(os.listdir(f"/proc/{mount.process.pid}/fd")) < 200, "and no descriptors")


def dropped_capabilities():
    """Root that is nothing but the owner of root's files: what a container's root often is."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # no new privileges
    for number in range(64):
        libc.prctl(24, number, 0, 0, 0)  # bounding set; those that the kernel does not have fail
    libc.prctl(8, 0, 0, 0, 0)
    assert libc.syscall({"x86_64": 126, "aarch64": 91}[os.uname().machine], struct.pack("<Ii", 0x20080522, 0), bytes(24)) == 0


class Powerless(User):
    """uid 0 without any capability."""

    def __init__(self):
        super().__init__(0, 0, before=None)
        self(dropped_capabilities)


def texts_of(mount):
    """All that anybody may read of a mount's control files."""
    found = {}
    for name in os.listdir(mount.path(".clairfs")):
        path = mount.path(".clairfs", name)
        if name != "announce" and not os.path.isdir(path):
            found[name] = look("read", path)
    return found


def no_contents(place):
    """Files that the asker may not read: of another user, of a 0700 directory, and of root where root has no capabilities."""
    files(place)
    secrets = []
    for number, (uid, bits) in enumerate(((STRANGER, 0o600), (STRANGER + 1, 0o640), (0, 0o600))):
        path = place.path("host", f"secret{number}")
        write_file(path, SECRET + b"%d\nsecond line with-a-secret\n1\n2\n" % number)
        os.chown(path, uid, uid)
        os.chmod(path, bits)
        secrets.append(path)
    os.chmod(place.path("host"), 0o755)
    with place.mount(allow_other="on") as mount:
        leaks = []
        with Powerless() as root, User(STRANGER + 2, STRANGER + 2) as stranger:
            tap.equal(root(look, "read", secrets[0]), errno.EACCES, "root without capabilities cannot read the file itself")
            for who, user in (("root without capabilities", root), ("another user", stranger)):
                # What that root owns it may read, and tell; what may not be read must not be told.
                for path in secrets[:2] if user is root else secrets:
                    for spec in (f"list:path={path}", f"list:path={path}:epochs=1"):
                        for got in (user(announce, mount.mountpoint, spec), user(lookup, mount.mountpoint, spec)):
                            text = got if isinstance(got, bytes) else b"" if isinstance(got, int) else got[1]
                            if b"secret:" in text or b"with-a" in text or b"topsecret" in text:
                                leaks.append(f"{who}: {spec}: {text[:300].strip(bytes(1))!r}")
                        leaks += [f"{who}: {spec}: {name} shows it" for name, text in texts_of(mount).items()
                                  if isinstance(text, bytes) and b"topsecret" in text]
        tap.no_findings(leaks, "no answer and no control file has a byte of a file that the asker may not read")
        tap.ok(b"topsecret" not in mount.text().encode(), "nor the log")


def a_list_that_hangs(place):
    """A list file on a filesystem that hangs, told by who may: others' lookups are answered meanwhile, and can be killed."""
    files(place)
    write_file(place.path("lists", "order"), b"".join(b"%d\n" % i for i in range(N_FILES)))
    with mountkit.Slowfs(place, place.path("lists"), place.path("slow")) as slow:
        with place.mount(allow_other="on") as mount:
            os.kill(slow.process.pid, signal.SIGSTOP)
            tellers = []
            try:
                for n in range(3):
                    spec = f"list:path={place.path('slow', 'order')}:epochs={n + 1}"
                    tellers.append(subprocess.Popen([CLAIRFS, "announce", mount.mountpoint, spec],
                                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
                with User(STRANGER, STRANGER) as stranger:
                    got = stranger(lookup, mount.mountpoint, "sequential", seconds=20)
                    tap.ok(not isinstance(got, bytes) or got.startswith(b"error"), "another user's lookup is refused, not queued", got)
                tap.equal(json.loads(good("status", "--json", mount.mountpoint))["order"]["state"], "no_order", "status answers meanwhile")
                for teller in tellers:
                    teller.kill()
                gone = [teller.wait(20) for teller in tellers]
                tap.equal(len(gone), 3, "who waits can be killed")
            except (subprocess.TimeoutExpired, mountkit.Failed) as e:
                tap.ok(False, "nobody hangs behind a list that hangs", e)
            finally:
                os.kill(slow.process.pid, signal.SIGCONT)
                for teller in tellers:
                    teller.kill()
                    teller.wait()


mountkit.run(flooded, no_contents, a_list_that_hangs)
