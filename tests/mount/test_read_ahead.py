# SPDX-License-Identifier: Apache-2.0
"""The kernel reads as much ahead of a mount as of its source, while nobody has told an order and where a file is large. A read
within that is one request. Bytes are right, and who sets it otherwise has the last word."""
import contextlib
import hashlib
import mmap
import os

import mountkit
import tap
from mountkit import CLAIRFS, Slowfs, environment, program, rng

MIB = 1 << 20
SIZE = 8 * MIB
FILES = 3
KERNEL_KIB = 128  # of a FUSE filesystem that nobody has set


def setting(path):
    device = os.stat(path).st_dev
    return f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"


def read_ahead_kib(path):
    with open(setting(path), encoding="ascii") as file:
        return int(file.read())


def set_read_ahead_kib(path, kib):
    with open(setting(path), "w", encoding="ascii") as file:
        file.write(str(kib))


@contextlib.contextmanager
def source(place, kib, sizes=(SIZE,) * FILES):
    """A source of which the kernel reads so much ahead; yields its directory and what is in it."""
    data = place.files(sizes)
    slow = Slowfs(place, place.source, place.path("slow"), "--keep-cache")
    try:
        set_read_ahead_kib(slow.mountpoint, kib)
        yield slow.mountpoint, data
    finally:
        slow.stop()


def mount_has_what_the_source_has(place):
    with source(place, 4096) as (directory, _), place.mount(directory) as mount:
        tap.equal(read_ahead_kib(mount.mountpoint), 4096, "as much as the source")


def mount_is_left_alone(place):
    """Where that would be no more than it has, or where every file is fetched at once."""
    for kib in (64, KERNEL_KIB):
        with source(place, kib) as (directory, _), place.mount(directory) as mount:
            tap.equal(read_ahead_kib(mount.mountpoint), KERNEL_KIB, f"of a source that has {kib} KiB it is as the kernel has it")
    for name in os.listdir(place.source):
        os.unlink(os.path.join(place.source, name))
    with source(place, 4096, (MIB, 300000)) as (directory, _), place.mount(directory) as mount:
        tap.equal(read_ahead_kib(mount.mountpoint), KERNEL_KIB, "of small files likewise")


def order_that_is_told_takes_it_back(place):
    with source(place, 2048) as (directory, _):
        with place.mount(directory) as mount:
            for _ in range(2):
                tap.equal(read_ahead_kib(mount.mountpoint), 2048, "without an order it is as much as the source's")
                mount.tell("torch-randperm:seed=3")
                mount.wait_for(lambda s: read_ahead_kib(mount.mountpoint) == KERNEL_KIB, "an order that is told takes it back")
                mount.tell("none")
                mount.wait_for(lambda s: read_ahead_kib(mount.mountpoint) == 2048, "none gives it again")
        with place.mount(directory, order="torch-randperm:seed=3") as mount:
            tap.equal(read_ahead_kib(mount.mountpoint), KERNEL_KIB, "nor is it more where an order was told at the start")


def who_sets_it_has_the_last_word(place):
    with source(place, 4096) as (directory, _), place.mount(directory) as mount:
        set_read_ahead_kib(mount.mountpoint, 512)
        mount.tell("torch-randperm:seed=3")
        mountkit.wait_until(lambda: "somebody has set the read-ahead" in mount.text(), "the log says so")
        mount.tell("none")
        mount.tell("torch-randperm:seed=4")
        tap.equal(read_ahead_kib(mount.mountpoint), 512, "it stays as it was set")


def mount_where_it_cannot_be_set(place):
    """As in many containers: /sys is read-only. Nothing of the namespace is seen outside, so all is done there."""
    script = """
        mount -o remount,ro,bind /sys
        "$1" mount -f -o "$2" "$3" "$4" &
        trap "kill $! 2>/dev/null || true" EXIT
        until mountpoint -q "$4"; do kill -0 $!; sleep 0.1; done
        cat "$4"/* | sha256sum
        cat /sys/class/bdi/$(stat -c %Hd:%Ld "$4")/read_ahead_kb
        "$1" umount "$4"
        wait $!"""
    with source(place, 4096) as (directory, data):
        options = f"ram=64M,recover=off,snapshot_dir={place.snapshots},log_level=info"
        done = program("unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", CLAIRFS, options, directory, place.mnt,
                       env=environment(place))
        lines = done.out.decode().split()
        tap.equal(done.code, 0, "it is mounted all the same")
        tap.equal(lines[0], hashlib.sha256(b"".join(data[name] for name in sorted(data))).hexdigest(), "every byte is right")
        tap.equal(int(lines[-1]), KERNEL_KIB, "it is as the kernel has it")
        tap.ok("it may not be set (Read-only file system)" in done.err.decode(), "the log says so", done)


def read_is_one_request(place):
    wrong, length = [], 250000
    with source(place, 4096) as (directory, data), place.mount(directory) as mount:
        names = sorted(data)
        fds = [os.open(mount.path(name), os.O_RDONLY) for name in names]
        before = mount.stats()["reads"]
        for i in rng.sample(range(FILES * SIZE // MIB), FILES * SIZE // MIB):
            file, at = divmod(i * MIB, SIZE)
            if os.pread(fds[file], length, at) != data[names[file]][at:at + length]:
                wrong.append((file, at))
        after = mount.stats()["reads"]
        for fd in fds:
            os.close(fd)
        n = sum(after[k]["reads"] - before[k]["reads"] for k in after)
        tap.equal(wrong, [], "every byte is right")
        tap.ok(n <= 1.2 * FILES * SIZE // MIB, "a read of 250 kB at random is one request, where the kernel has nothing before it", n)


def mapped_file_has_its_bytes(place):
    with source(place, 4096) as (directory, data), place.mount(directory) as mount:
        for name, content in data.items():
            with open(mount.path(name), "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
                places = [rng.randrange(SIZE - 5000) for _ in range(40)]
                tap.equal([at for at in places if view[at:at + 5000] != content[at:at + 5000]], [], f"{name}: every byte is right")


mountkit.run(mount_has_what_the_source_has, mount_is_left_alone, order_that_is_told_takes_it_back, who_sets_it_has_the_last_word,
             mount_where_it_cannot_be_set, read_is_one_request, mapped_file_has_its_bytes)
