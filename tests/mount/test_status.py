# SPDX-License-Identifier: Apache-2.0
"""What clairfs says about itself: status, the virtual files, caps, index and order."""
import json
import math
import os
import random
import re
import struct

import mountkit
import orders
import tap
import trees
from mountkit import clairfs, good, read_file, rng, write_file

TIERS = {"staged": "ram", "arena": "ram", "late": "pfs", "store": "nvme", "peer": "peer", "miss": "pfs"}
CLASSES = set(TIERS)
IMAGES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")


def parse_prometheus(text):
    """Text exposition format 0.0.4, strictly: {(name, labels): value}, {name: type}. Raises on what is not in it."""
    values, types, helped, last = {}, {}, set(), None
    if not text.endswith("\n"):
        raise ValueError("no newline at the end")
    for line in text.splitlines():
        match = re.fullmatch(r"# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)", line)
        if match:
            kind, name, rest = match.groups()
            seen = helped if kind == "HELP" else types
            if name in seen:
                raise ValueError(f"second {kind} of {name}")
            if kind == "HELP":
                helped.add(name)
            else:
                types[name] = rest
                if rest not in ("counter", "gauge", "histogram"):
                    raise ValueError(line)
            last = name
            continue
        match = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{([^{}]*)\})? (\S+)', line)
        if not match:
            raise ValueError(f"not a sample: {line!r}")
        name, labels, value = match.groups()
        labels = labels or ""
        if not re.fullmatch(r'(?:[a-zA-Z_]\w*="(?:[^"\\\n]|\\.)*"(?:,(?!$)|$))*', labels):
            raise ValueError(f"labels: {line!r}")
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        family = base if types.get(base) == "histogram" else name
        if family not in types or family not in helped or family != last:
            raise ValueError(f"{name} does not follow its HELP and TYPE")
        if (name, labels) in values:
            raise ValueError(f"{name}{{{labels}}} is there twice")
        values[name, labels] = float(value)
    return values, types


def check_histograms(values, types):
    for name, others in ((n[:-6], labels) for n, labels in values if types.get(n[:-6]) == "histogram" and n.endswith("_count")):
        edges = [(float(re.search(r'le="([^"]+)"', labels)[1]), value)
                 for (n, labels), value in values.items() if n == name + "_bucket" and labels.startswith(others)]
        counts = [value for _, value in edges]
        tap.ok(edges and edges == sorted(edges) and counts == sorted(counts) and edges[-1][0] == math.inf
               and edges[-1][1] == values[name + "_count", others] and values[name + "_sum", others] >= 0,
               f"histogram {name}{{{others}}}: buckets rise and end with the count", edges)


def virtual_files(place):
    data = place.files([1000, 70000, 300000])
    with place.mount(order="sequential:epochs=3", debug={"source_engine": "pool"}) as mount:
        for name in data:
            mount.read(name)
        tap.equal(sorted(os.listdir(mount.mountpoint)), sorted(data), "the virtual directory is hidden")
        sizes = {}
        for name in ("stats.json", "metrics", "config"):
            path = mount.path(".clairfs", name)
            fd = os.open(path, os.O_RDONLY)
            try:
                size = os.fstat(fd).st_size
                text = os.read(fd, 1 << 20)
                sizes[name] = (size, len(text), os.pread(fd, 100, size), os.pread(fd, 100, 5) == text[5:105])
            finally:
                os.close(fd)
        tap.ok(all(s[0] == s[1] and s[1] > 100 and s[2] == b"" and s[3] for s in sizes.values()),
               "virtual files have the size they say, and one open file keeps one text", sizes)
        for name in ("nothing", "stats.json.bak"):
            try:
                os.stat(mount.path(".clairfs", name))
                tap.ok(False, f"there is no .clairfs/{name}")
            except FileNotFoundError:
                tap.ok(True, f"there is no .clairfs/{name}")
        values, types = parse_prometheus(read_file(mount.path(".clairfs", "metrics")).decode())
        tap.ok(all(name.startswith("clairfs_") for name in types), "every metric has the prefix", types)
        check_histograms(values, types)
        tap.equal({labels for name, labels in values if name == "clairfs_reads_total"},
                  {f'class="{c}",tier="{t}"' for c, t in TIERS.items()}, "a read class is a label, with its tier")
        tap.equal(values["clairfs_dataset_samples", ""], 3, "metrics: number of samples")
        tap.equal(values["clairfs_dataset_bytes", ""], 371000, "metrics: bytes of the samples")
        stats = mount.stats()
        later, _ = parse_prometheus(read_file(mount.path(".clairfs", "metrics")).decode())
        low, high = values["clairfs_source_reads_total", ""], later["clairfs_source_reads_total", ""]
        tap.ok(low <= stats["counters"]["source_reads"] <= high, "stats.json and metrics count the same")
        config = read_file(mount.path(".clairfs", "config"))
        write_file(place.path("again.conf"), config)
        again = good("mount", "-c", place.path("again.conf"), "--print-config")
        tap.ok(again == config and b"\nram = 64M\n" in config and b"\norder = sequential:epochs=3\n" in config,
               "the mount's config loads again and means the same", config, again)


def status(place):
    data = place.files([1000, 70000, 300000, 0])
    with place.mount() as mount:
        for name in data:
            mount.read(name)
        stats = json.loads(good("status", place.mnt, "--json"))
        tap.ok(stats["pid"] == mount.process.pid and stats["mount"]["source"] == place.source
               and stats["mount"]["mountpoint"] == place.mnt and stats["mount"]["uptime_seconds"] > 0,
               "status --json says what is mounted where, by whom", stats)
        tap.equal(set(stats["reads"]), CLASSES, "every read class is in stats.json")
        tap.equal((stats["dataset"]["samples"], stats["dataset"]["bytes"], stats["dataset"]["layout"]), (4, 371000, "files"),
                  "the dataset is described")
        tap.ok(stats["order"]["state"] == "no_order" and not stats["order"]["is_followed"], "no order: the state says so")
        lines = good("status", place.mnt).decode().splitlines()
        text = "\n".join(lines)
        tap.ok(lines[0].startswith(f"{place.source} on {place.mnt}, up ") and "4 samples" in text and "none given" in text
               and "no_order" in text and "source " in text and "upcalls " in text, "status for people", text)
        tap.ok(not re.search(r"nan|inf\b|\(null\)|%!", text), "status prints no nonsense", text)
    done = clairfs("status", place.mnt)
    tap.equal(done.code, 1, "status of what is unmounted fails")
    # A second mount has the index of the first.
    with place.mount(order="torch-randperm:seed=3", layout="files") as mount:
        stats = mount.stats()
        tap.ok(stats["order"]["spec"].startswith("torch-randperm") and stats["order"]["state"] == "waiting"
               and "waiting" in good("status", place.mnt).decode(), "an order that nobody has read yet: waiting", stats["order"])


def caps(place):
    found = json.loads(good("caps", "--json"))
    shape = {"kernel": str, "fuse": {"libfuse": str, "dev_fuse": bool, "dev_fuse_why": str, "fusermount3": bool,
             "built_with_passthrough": bool, "built_with_feature_flag": bool},
             "io_uring": {"built_in": bool, "works": bool, "single_issuer": bool, "defer_taskrun": bool,
                          "direct_descriptors": bool, "why_not": str},
             "inotify": {"max_user_watches": int, "max_queued_events": int}}

    def differs(shape, value, path="caps"):
        if isinstance(shape, dict):
            if not isinstance(value, dict) or set(shape) - set(value):
                return [f"{path}: {value!r}"]
            return [f for key, part in shape.items() for f in differs(part, value[key], f"{path}.{key}")]
        return [] if isinstance(value, shape) else [f"{path}: {value!r} is no {shape.__name__}"]
    tap.no_findings(differs(shape, found), "caps --json has the fields it should have")
    tap.equal(found["kernel"], os.uname().release, "caps names the kernel")
    tap.ok(found["fuse"]["dev_fuse"], "caps sees the /dev/fuse that the other tests use", found)
    tap.ok(found["io_uring"]["works"] != bool(found["io_uring"]["why_not"]), "io_uring works, or there is a reason", found)
    text = good("caps").decode()
    tap.ok(all(word in text for word in ("kernel", "/dev/fuse", "libfuse", "io_uring", "inotify")), "caps for people", text)
    mounted = json.loads(good("caps", "--json", place.source))["mount"]
    tap.ok(mounted["source_engine"] in ("pool", "uring") and mounted["why"], "caps says what a mount would use", mounted)


def read_index(place, *more):
    """[(path, size)] of clairfs index, its other columns checked."""
    found = []
    for number, line in enumerate(good("index", place.source, *more).splitlines()):
        n, path, offset, size = line.split(b"\t")
        if int(n) != number or int(offset) != 0:
            raise mountkit.Failed(f"line {number} of the index: {line!r}")
        found.append((mountkit.unescape(path), int(size)))
    return found


def index_files(place):
    trees.make_odd_tree(place.source)
    content = trees.content(place.source)
    wanted = sorted(os.fsdecode(path) for path, data in content.items() if data is not None)
    tap.equal(read_index(place, "--layout", "files"), [(os.fsencode(p), len(content[os.fsencode(p)])) for p in wanted],
              "index: every file, sorted as Python sorts the paths")
    raw = good("index", place.source, "--layout", "files")
    raw.decode()
    tap.ok(not re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", raw), "index prints UTF-8 without control characters")


def index_imagefolder(place):
    """torchvision.datasets.ImageFolder: sorted classes, then sorted(os.walk), then sorted names, images only."""
    random_names = ["a", "a-b", "a.b", "b", "B", "0", "10", "9", "z z"]
    for c in ("n01", "n02", "n02-x", "class b"):
        for folder in ["", *(rng.sample(random_names, 3)), "a/deeper", "a-b/x/y"]:
            for name in rng.sample(random_names, 4):
                # Far more images than other files: that is what makes it an image folder.
                extension = rng.choice([".jpg", ".JPEG", ".png", ".webp", ".Tiff"] * 3 + [".txt", ".jpg.bak", ".npy"])
                write_file(os.path.join(place.source, c, folder, name + extension), rng.randbytes(rng.randrange(1000)))
        write_file(os.path.join(place.source, c, "always.jpg"), b"x")
    wanted = []
    for c in sorted(e.name for e in os.scandir(place.source) if e.is_dir()):
        for folder, _, names in sorted(os.walk(os.path.join(place.source, c), followlinks=True)):
            for name in sorted(names):
                if name.lower().endswith(IMAGES):
                    path = os.path.join(folder, name)
                    wanted.append((os.fsencode(os.path.relpath(path, place.source)), os.path.getsize(path)))
    tap.equal(read_index(place, "--layout", "imagefolder"), wanted, "index: the samples of ImageFolder, in its order")
    tap.equal(read_index(place), wanted, "index: the layout is found by itself")


def order_output(place):
    def numbers(*argv):
        return [int(line) for line in good("order", *argv).splitlines()]
    random_n = rng.randrange(2, 3000)
    for n in (1, 2, 10, 1000, random_n):
        seed = rng.randrange(1 << 40)
        tap.equal(numbers(f"torch-randperm:seed={seed}", "--n", n), orders.randperm(n, seed), f"torch-randperm, n={n}")
        world, epoch = rng.randrange(1, 9), rng.randrange(100)
        spec = f"torch-distributed:seed={seed}:world={world}:ranks=0-{world - 1}"
        ranks = [orders.distributed(n, world, rank, seed, epoch) for rank in range(world)]
        tap.equal([numbers(spec, "--n", n, "--epoch", epoch, "--rank", rank) for rank in range(world)], ranks,
                  f"torch-distributed, n={n}, world={world}, each rank")
        tap.equal(numbers(spec, "--n", n, "--epoch", epoch), orders.merged(ranks), "torch-distributed, all ranks in step")
    n = random_n
    tap.equal(numbers("torch-distributed:world=3:rank=1:shuffle=0:drop_last=1", "--n", n),
              orders.distributed(n, 3, 1, shuffle=False, drop_last=True), "torch-distributed, shuffle=0, drop_last=1")
    tap.equal(numbers("sequential", "--n", n, "--head", 7), list(range(min(7, n))), "--head")
    text = numbers("torch-randperm:seed=1", "--n", n)
    for word, code in (("u32", "I"), ("u64", "Q")):
        raw = good("order", "torch-randperm:seed=1", "--n", n, "--binary", word)
        tap.equal(list(struct.unpack(f"<{n}{code}", raw)), text, f"--binary {word}")
        write_file(place.path(f"list.{word}"), raw)
        tap.equal(numbers(f"list:path={place.path('list.' + word)}", "--n", n), text, f"a list file .{word} gives it back")
    shuffled = list(range(n))
    random.Random(mountkit.SEED).shuffle(shuffled)
    tap.equal(numbers(place.list_file(["# epoch 4", *shuffled, "# epoch 5", 0]), "--n", n, "--epoch", 4), shuffled,
              "a list file with epochs")
    kinds = good("order", "--list").decode().splitlines()
    tap.ok({line.split()[0] for line in kinds} >= {"sequential", "list", "torch-randperm", "torch-distributed"},
           "--list lists the kinds", kinds)


mountkit.run(virtual_files, status, caps, index_files, index_imagefolder, order_output)
