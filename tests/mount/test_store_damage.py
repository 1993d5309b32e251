# SPDX-License-Identifier: Apache-2.0
"""Records that a drive damages while they are in use, after they have been read and found right: none of them is ever served,
all are counted, and the job has its bytes from the source. With the default of store_verify, that is, and for records that
this mount wrote itself as for those it found."""
import os

import mountkit
import tap
from jobs import Job
from mountkit import rng

N, SIZE, PAGE = 480, 60 << 10, 4096  # 28 MiB, more than twice the RAM below; the seal is in the last page
OPTIONS = {"ram": "16M", "store_keep_free": 0, "store_bytes": "128M"}
EPOCHS = 24


class Segments:
    """Where the samples are in the files of the store: found by their bytes, as nothing else is known of the format here."""

    def __init__(self, directory, data):
        self.place = {}
        names = {content[:64]: name for name, content in data.items()}
        for file in sorted(os.listdir(directory)):
            path = os.path.join(directory, file)
            if not file.startswith("seg-"):
                continue
            content = mountkit.read_file(path)
            for at in range(0, len(content), PAGE):
                name = names.get(content[at:at + 64])
                if name:
                    self.place[name] = (path, at)

    def read(self, name):
        path, at = self.place[name]
        with open(path, "rb") as file:
            file.seek(at)
            return bytearray(file.read(SIZE + PAGE))

    def write(self, name, record):
        path, at = self.place[name]
        with open(path, "r+b", buffering=0) as file:
            file.seek(at)
            file.write(record)
            os.fsync(file.fileno())


def one_bit(segments, name, _):
    record = segments.read(name)
    record[rng.randrange(SIZE)] ^= 1 << rng.randrange(8)
    segments.write(name, record)


def lost_page(segments, name, _):
    record = segments.read(name)
    at = rng.randrange(SIZE // PAGE) * PAGE
    record[at:at + PAGE] = bytes(PAGE)
    segments.write(name, record)


def garbage(segments, name, _):
    record = segments.read(name)
    at = rng.randrange(SIZE - 512)
    record[at:at + 512] = rng.randbytes(512)
    segments.write(name, record)


def lost_seal(segments, name, _):
    record = segments.read(name)
    record[SIZE:] = bytes(PAGE)
    segments.write(name, record)


def other_record(segments, name, other):
    """A misdirected write: another whole record, seal and all."""
    segments.write(name, segments.read(other))


def payload_of_other(segments, name, other):
    segments.write(name, segments.read(other)[:SIZE])


def all_ones(segments, name, _):
    segments.write(name, bytes(b"\xff" * SIZE))


DAMAGE = (one_bit, lost_page, garbage, lost_seal, other_record, payload_of_other, all_ones)


def read_until_kept(mount, job, sequences):
    """Until all of it is kept, and was read from there: what does not fit into 16 MiB of RAM is."""
    while job.next_epoch < 6 or mount.stats()["store"]["record_bytes"] < N * SIZE:
        if job.next_epoch == EPOCHS // 2:
            raise mountkit.Failed(f"not everything is kept: {mount.stats()['store']}")
        mountkit.drop_caches()
        job.read(sequences[job.next_epoch])
        job.next_epoch += 1


def damage(mount, job, sequences, store, what):
    """Damages half of the records, all of which were read before, and reads on until each was asked for."""
    tap.ok(mount.counters()["store_reads"] > 2 * N, f"{what}: they were read before", mount.counters())
    segments = Segments(store, job.data)
    tap.equal(len(segments.place), N, f"{what}: every sample is in the store")
    names = sorted(segments.place)
    rng.shuffle(names)
    bad, good = names[:N // 2], names[N // 2:]
    before = mount.counters()["store_errors"]
    for i, name in enumerate(bad):
        DAMAGE[i % len(DAMAGE)](segments, name, good[i])
    epoch = job.next_epoch
    while epoch < EPOCHS and mount.counters()["store_errors"] - before < len(bad):
        mountkit.drop_caches()
        job.read(sequences[epoch])
        epoch += 1
    tap.equal(mount.counters()["store_errors"] - before, len(bad),
              f"{what}: {len(bad)} records damaged in {len(DAMAGE)} ways are counted, each once")
    tap.equal(job.wrong, [], f"{what}: not one of them was served")


def mounts(place, n_before):
    data = place.files([SIZE] * N)
    sequences = [rng.sample(range(N), N) for _ in range(EPOCHS)]
    spec = place.list_file([line for epoch, s in enumerate(sequences) for line in (f"# epoch {epoch}", *s)])
    store = place.path("kept")
    os.mkdir(store, 0o700)
    for left in range(n_before, -1, -1):
        with place.mount(store_dir=store, order=spec, **OPTIONS) as mount:
            job = Job(mount, data)
            job.next_epoch = 0
            read_until_kept(mount, job, sequences)
            if left == 0:
                damage(mount, job, sequences, store, "records of the mount before" if n_before else "its own records")


def own_records(place):
    mounts(place, 0)


def found_records(place):
    mounts(place, 1)


mountkit.run(own_records, found_records)
