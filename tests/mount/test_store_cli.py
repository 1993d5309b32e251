# SPDX-License-Identifier: Apache-2.0
"""clairfs store ls, verify and purge: on stores in use, left by killed daemons, with changed bytes, and on directories that
are no store or hold what somebody has put there to do harm."""
import json
import os

import mountkit
import tap
from jobs import Job
from mountkit import clairfs, rng

N, SIZE = 120, 48 << 10
OPTIONS = {"ram": "16M", "store_keep_free": 0, "store_bytes": "64M"}


def store_of(place, name="kept"):
    path = place.path(name)
    os.mkdir(path, 0o700)
    return path


def order_of(place):
    sequences = [rng.sample(range(N), N) for _ in range(3)]
    lines = [line for epoch, sequence in enumerate(sequences) for line in (f"# epoch {epoch}", *sequence)]
    return place.list_file(lines), sequences


def stopped_while_it_writes(place, data, store):
    """A mount whose daemon was stopped (SIGSTOP) with a segment open. One that nobody writes to for a while is sealed, so a
    slow machine may need more than one try."""
    spec, sequences = order_of(place)
    for _ in range(100):
        mount = place.mount(order=spec, store_dir=store, **OPTIONS)
        job = Job(mount, data)
        job.epoch(0, sequences[0])
        mount.wait_for(lambda s: s["store"]["records"] > 0, "something is kept")
        mountkit.send(mount.process, mountkit.signal.SIGSTOP)
        if {s["state"] for s in answer("ls", store)["segments"]} == {"written"}:
            return mount
        mountkit.send(mount.process, mountkit.signal.SIGCONT)
        mount.stop()
        answer("purge", store)
    raise mountkit.Failed("never seen with an open segment")


def filled(place, data, store):
    """A mount that has everything in the store."""
    spec, sequences = order_of(place)
    mount = place.mount(order=spec, store_dir=store, **OPTIONS)
    job = Job(mount, data)
    for epoch in range(3):
        job.epoch(epoch, sequences[epoch])
    mount.wait_for(lambda s: s["store"]["records"] >= N, "everything is kept")
    tap.equal(job.wrong, [], "every byte is right")
    return mount


def answer(verb, store, code=0):
    done = clairfs("store", verb, store, "--json")
    found = json.loads(done.out)
    tap.ok(done.code == code and (code == 0) == (not done.lines) and len(done.lines) <= 1,
           f"{verb}: exit code {code}, {'nothing' if code == 0 else 'one line'} on stderr", done)
    return found


def segments(store):
    return sorted(name for name in os.listdir(store) if name.startswith("seg-"))


def life(place):
    data = place.files([SIZE] * N)
    store = store_of(place)
    mount = stopped_while_it_writes(place, data, store)
    found = answer("ls", store)
    tap.ok(all(s["is_in_use"] for s in found["segments"]), "a segment that is written to is in use", found)
    found = answer("purge", store, code=1)
    tap.ok(found["in_use"] > 0, "purge leaves what a mount uses", found)
    mountkit.send(mount.process, mountkit.signal.SIGKILL)
    mount.process.wait(mountkit.DEADLINE)
    clairfs("umount", place.mnt)
    # What a ring of the dead process had open the kernel lets go of a moment later.
    mountkit.wait_until(lambda: not any(s["is_in_use"] for s in json.loads(clairfs("store", "ls", store, "--json").out)["segments"]),
                        "the kernel has let go of the segments")
    found = answer("ls", store)
    tap.ok(all(s["state"] == "unsealed" and not s["is_in_use"] for s in found["segments"]),
           "a killed daemon leaves a segment unsealed and nothing in use", found)
    left = answer("verify", store)
    tap.ok(left["records"] > 0 and left["wrong"] == 0, "its records are found and right", left)
    with place.mount(store_dir=store, **OPTIONS):
        pass
    found = answer("ls", store)
    tap.equal({s["state"] for s in found["segments"]}, {"sealed"}, "the next mount seals it")
    tap.equal(found["records"], left["records"], "ls counts the records of sealed segments")
    with filled(place, data, store) as mount:
        found = answer("verify", store)
        job = Job(mount, data)
        job.read(range(N))
        tap.equal(job.wrong, [], "the mount goes on beside ls and verify")
    found = answer("ls", store)
    text = clairfs("store", "ls", store)
    tap.ok(text.code == 0 and text.out.count(b"\n") == len(found["segments"]) + 2, "a line per segment, a heading, a sum", text)

    path = os.path.join(store, segments(store)[0])
    with open(path, "r+b") as file:  # in a payload
        file.seek(4096 + 100)
        byte = file.read(1)
        file.seek(4096 + 100)
        file.write(bytes([byte[0] ^ 4]))
    found = answer("verify", store, code=1)
    tap.equal(found["wrong"], 1, "one flipped bit is one wrong record")
    done = clairfs("store", "verify", store, "--mbps", "1000000")
    tap.ok(done.code == 1 and b" 1 wrong" in done.out, "with a rate, in words", done)
    found = answer("purge", store)
    tap.ok(found["removed"] > 0 and segments(store) == [], "purge removes all segments", found)
    tap.equal(os.listdir(store), ["clairfs-store"], "and leaves the store, empty")
    tap.equal(answer("ls", store)["segments"], [], "ls of an empty store")


def hostile(place):
    """Names and files that are not what they seem: shown as such, never followed, never removed."""
    store = store_of(place)
    secret = place.path("secret")
    mountkit.write_file(secret, b"secret")
    mountkit.write_file(os.path.join(store, "clairfs-store"), b"clairfs store 2\n")
    name = "seg-00000000000000{:02x}"
    os.symlink(secret, os.path.join(store, name.format(1)))
    os.mkfifo(os.path.join(store, name.format(2)), 0o600)
    os.mkdir(os.path.join(store, name.format(3)))
    os.link(secret, os.path.join(store, name.format(4)))
    mountkit.write_file(os.path.join(store, name.format(5)), rng.randbytes(70000))
    mountkit.write_file(os.path.join(store, name.format(6)), b"")
    mountkit.write_file(os.path.join(store, name.format(7)), b"CLFSSEGM\x03\0\0\0" + bytes(8180))
    mountkit.write_file(os.path.join(store, "seg-\x1b[2J"), b"")
    mountkit.write_file(os.path.join(store, "SEG-0000000000000001"), b"")
    mountkit.write_file(os.path.join(store, "seg-000000000000000A"), b"")
    for number in (5, 6, 7):
        os.chmod(os.path.join(store, name.format(number)), 0o600)
    found = answer("ls", store)
    tap.equal([s["state"] for s in found["segments"]],
              ["refused", "refused", "refused", "refused", "damaged", "damaged", "damaged"], "ls says what they are")
    tap.ok(b"\x1b" not in clairfs("store", "ls", store).out, "no other names are printed")
    answer("verify", store, code=1)
    found = answer("purge", store, code=1)
    tap.equal(found["removed"], 3, "purge removes files with names of segments that are the user's own")
    tap.equal(mountkit.read_file(secret), b"secret", "and nothing behind links")
    tap.equal(sorted(os.listdir(store)), sorted(["clairfs-store", "seg-\x1b[2J", "SEG-0000000000000001", "seg-000000000000000A",
                                                 *(name.format(i) for i in (1, 2, 3, 4))]), "what is refused stays")


def bad_input(place):
    store = store_of(place)
    os.symlink(store, place.path("link"))
    other = store_of(place, "other")
    mountkit.write_file(os.path.join(other, "clairfs-store"), b"clairfs store 2\n")

    def refused(code, part, *argv):
        done = clairfs("store", *argv)
        tap.ok(done.code == code and len(done.lines) == 1 and part in done.lines[0] and not done.out,
               f"store {' '.join(map(str, argv)).replace(place.root, '')}: exit code {code} and one line", done)

    refused(2, "ls, verify or purge")
    refused(2, "one DIRECTORY", "ls")
    refused(2, "one DIRECTORY", "ls", store, store)
    refused(2, "no 'rm'", "rm", store)
    refused(2, "--mbps", "verify", store, "--mbps", "0")
    refused(2, "--mbps", "verify", store, "--mbps", "fast")
    refused(2, "--mbps", "ls", store, "--mbps", "1")
    refused(2, "--force", "purge", store, "--force")
    refused(1, "no store", "ls", store)
    refused(1, "No such file", "ls", place.path("nowhere"))
    refused(1, "Not a directory", "purge", place.path("link"))
    os.chmod(other, 0o777)
    refused(1, "others may write", "purge", other)
    os.chmod(other, 0o700)
    os.chown(other, 65534, 65534)
    refused(1, "user 65534", "ls", other)
    os.chown(other, 0, 0)
    mountkit.write_file(os.path.join(other, "clairfs-store"), b"\x1b[2J something else\n")
    refused(1, "something else", "ls", other)


mountkit.run(life, hostile, bad_input)
