# SPDX-License-Identifier: Apache-2.0
"""Holds the daemon to its plan and to the simulator, by tapes of what the plan was told and what it decided (plan_tape).

Replay: a fresh plan that is told what a mount's plan was told decides the same to the last action, whatever was done to the
mount. Else the daemon told it something that is not on the tape, or the plan keeps state outside of itself.

Step by step: one job, one order, the same budgets in the simulator (policy clairfs) and on a mount over slowfs; on the mount
the next read comes when all is done that was decided. Then time decides nothing and the daemon must do what the simulator
does. On a machine at load 3 all but two or three of 1500 decisions are the same at the same read. What may differ, by name,
with bounds for a machine on which a read takes ten times as long (what was read is held for 32 reads, or a second):
    moved      decided a few reads sooner or later, at most a quarter; half of the DROPs, as of those that wait in the kernel
               the first that was pushed leaves, and answers of the source and of the kernel come in any order
    others     decided far apart or once only, one in twenty (of PINs one in four; by chance it would be three): of two samples the one
               is dropped and not the other, as which of them was in the store by then decides; a PIN in the place of another lets
               other samples leave. Where the kernel dropped pages the number of DROPs is compared, not which they are
    pushed     STAGE once more for pages that the kernel dropped (UNSTAGED), or a push refused as the file is being read; at
               which reads pages were gone the simulator is told
Nothing is lost: no action without an answer, no answer without an action, no read that the plan does not hear of.

Freely: four readers as fast as they can. There the daemon's word is compared with slowfs's log: the source is read once for
each fetch that was decided and not served by what a reader had, and once for each demand read, and for nothing else.
"""
import collections
import os
import time

import jobs
import mountkit
import tap
import tapes
from mountkit import good

MIB = 1 << 20

RAM = 16 * MIB
N, SIZE, EPOCHS = 200, 200 * 1024, 3  # 41 MB: 40 % fits
PACE_MS = 25  # in the simulator: what may have to be done between two reads is done, and a hold ends with 32 reads
NEAR = 16  # reads by which a decision may be moved
LATENCY_MS = 2


def order_text(seed):
    """Of a loader so far ahead that the plan looks as far as it may, and of few workers, so that what was read is held for
    a few reads and not for a second: how fast is read decides nothing."""
    return f"torch-distributed:seed={seed}:world=1:epochs={EPOCHS}:batch=1:workers=1:prefetch_factor=64"


def order_of(spec, n=N):
    """What is read in each epoch."""
    return [list(map(int, good("order", spec, "--n", n, "--epoch", epoch).split())) for epoch in range(EPOCHS)]


def check_replay(path, what):
    is_same, words = tapes.replay(path)
    tap.ok(is_same, f"{what}: a fresh plan decides the same", words)


def check_answers(plan, what):
    tap.equal(plan.unasked, [], f"{what}: no answer that nobody asked for")
    tap.equal(plan.unanswered(), [], f"{what}: every action was answered")


def source_reads(path, names):
    """How often each sample was opened at slowfs and read. (Pages that the kernel wants back meanwhile are asked for again.)"""
    number = {name: i for i, name in enumerate(names)}
    found, opened = collections.Counter(), {}
    for line in mountkit.read_file(path).decode().splitlines():
        what, handle, rest = line.split(" ", 2)
        if what == "open":
            opened[handle] = number[os.path.normpath(rest)]
        elif opened.get(handle) is not None:
            found[opened[handle]] += 1
            opened[handle] = None
    return found


def told_reads(plan):
    """The same as the plan was told: one answer of the source may be both a reader's and a fetch's."""
    answers = {(e.sample, e.latency) for e in plan.events
               if e.kind in ("fetched", "demand") and e.status == 0 and e.latency and not e.is_pinned}
    return collections.Counter(sample for sample, _ in answers)


def check_source(log, names, plan, what):
    asked, told = source_reads(log, names), told_reads(plan)
    differ = {sample: (asked[sample], told[sample]) for sample in asked.keys() | told.keys() if asked[sample] != told[sample]}
    tap.equal(differ, {}, f"{what}: the source is read as often as the plan knows")


def nearest(mine, theirs):
    """Pairs what both decided for a sample, in turn: how far apart, and what only one of them has."""
    moved, only_mine, only_theirs = [], [], []
    for sample in mine.keys() | theirs.keys():
        a, b = mine.get(sample, []), theirs.get(sample, [])
        moved += [abs(x - y) for x, y in zip(a, b)]
        only_mine += [(sample, reads) for reads in a[len(b):]]
        only_theirs += [(sample, reads) for reads in b[len(a):]]
    return moved, only_mine, only_theirs


def by_sample(plan, kind):
    """{sample: [when it was decided, or told, as the number of reads before]}"""
    found = collections.defaultdict(list)
    for what in plan.events if kind == "demand" else plan.actions:
        if what.kind == kind:
            found[what.sample].append(what.reads)
    return found


def dropped_at(plan):
    """Reads of which the kernel had dropped what was pushed: the simulator is told, as its kernel drops nothing."""
    read, found = collections.defaultdict(list), []
    for at, sample in enumerate(plan.opened):
        read[sample].append(at)
    for event in plan.events:
        if event.kind == "unstaged":
            found += [at for at in read[event.sample] if at - 1 <= event.reads <= at + 1][:1]
    return found


def reasons(plan):
    """What the kernel did: it dropped pages that were pushed, or was reading the file again when they came."""
    return sum(e.kind == "unstaged" or (e.kind == "staged" and e.status != 0) for e in plan.events)


def check_decisions(real, simulated, what):
    tap.ok(real.opened == simulated.opened, f"{what}: the plan hears of the same reads in the same order",
           len(real.opened), len(simulated.opened))
    pinned = 0
    for kind in ("epoch", "fetch", "pin", "drop", "demand"):
        moved, added, lost = nearest(by_sample(real, kind), by_sample(simulated, kind))
        tap.note(f"{what}: {kind}: {len(moved)} in both, {sum(d > 0 for d in moved)} moved, {len(added)} added, {len(lost)} lost")
        same = 1 if kind == "demand" else 0  # the mount's readers ask before their open is heard of
        share = 2 if kind == "drop" else 4
        near, far = sum(same < d <= NEAR for d in moved), sum(d > NEAR for d in moved)
        tap.ok(near <= 1 + len(moved) // share, f"{what}: {kind}: at the same read, at most 1/{share} a few reads apart",
               collections.Counter(moved))
        others, most = len(added) + len(lost) + far, 1 + len(moved) // (4 if kind == "pin" else 20) + reasons(real)
        if kind == "drop" and reasons(real):
            # What the kernel dropped comes back in the place of others, and so others leave until the end of the pass.
            others = abs(len(added) - len(lost))
        if kind == "pin":  # which ones is decided by what requests took: one in the place of another is one
            others = pinned = max(len(added), len(lost)) + far
        elif kind == "drop" and pinned:  # and so other samples leave, some of them sooner or later
            others, most = max(len(added), len(lost)) + far, most + 2 * pinned
        tap.ok(others <= most, f"{what}: {kind}: others are few", f"{far} far apart", "added", added, "lost", lost)
        tap.ok(moved or kind in ("pin", "demand"), f"{what}: {kind}: there is something to compare")


def by_use(plan):
    """How often each use of a sample was staged."""
    return collections.Counter((a.sample, a.position) for a in plan.actions if a.kind == "stage")


def check_stages(real, simulated, what):
    mine, theirs = by_use(real), by_use(simulated)
    excuses, added = reasons(real), sum((mine - theirs).values())
    tap.note(f"{what}: stage: {sum(theirs.values())} in both, {added} added, the kernel gave {excuses} reasons")
    tap.ok(sum((theirs - mine).values()) <= excuses, f"{what}: every use that is staged in the simulator is staged", theirs - mine)
    tap.ok(added <= excuses, f"{what}: others only for what the kernel dropped", added, excuses)
    if not excuses:
        moved, _, _ = nearest(by_sample(real, "stage"), by_sample(simulated, "stage"))
        tap.ok(sum(d > NEAR for d in moved) <= len(moved) // 20, f"{what}: when they are in the simulator", collections.Counter(moved))


def run_steps(place, mount, tape, order, data):
    """Each read waits until nothing is left to be done after the one before."""
    names = sorted(data)
    count = 0
    tape.wait_quiet(0)
    for sample in sum(order, []):
        if mount.read(names[sample]) != data[names[sample]]:
            raise mountkit.Failed(f"read {count}: wrong bytes of {names[sample]}")
        count += 1
        tape.wait_quiet(count)


def check_memory(mount, plan, what):
    """The arena has what was fetched and not dropped, and nothing else."""
    held = collections.Counter(e.sample for e in plan.events if e.kind == "fetched" and e.status == 0)
    held.subtract(a.sample for a in plan.actions if a.kind == "drop")
    tap.equal(set(held.values()) - {0, 1}, set(), f"{what}: held once, dropped once")
    held.subtract(e.sample for e in plan.events if e.kind == "lost_copy")
    want = sum(held.values()) * SIZE
    have, read = mount.stats()["gauges"]["arena_bytes"], plan.told("demand") * SIZE  # by a reader first: it may stay as well
    tap.ok(want <= have <= want + read, f"{what}: the arena has what was fetched and not dropped", have, want, read)


def taped(path):
    return {"plan_tape": path, "inodes_ahead": 100000, "ghost_bytes": 0}


def same_in_steps(place, what, store=0):
    data, slow, log, path = place.files([SIZE] * N), place.path("slow"), place.path("log"), place.path("tape")
    spec = order_text(7)
    if store:  # what was read too soon after a change is not kept
        newest = max(os.stat(os.path.join(place.source, name)).st_ctime for name in data)
        mountkit.wait_until(lambda: time.time() > newest + 4, "the files are no new ones")
    options = {"store_dir": place.store, "store_keep": "off", "store_bytes": store, "store_keep_free": 0} if store else {}
    with mountkit.Slowfs(place, place.source, slow, "--latency-ms", str(LATENCY_MS), "--log", log):
        with place.mount(source=slow, order=spec, ram=RAM, debug=taped(path), **options) as mount:
            tape = tapes.Tape(path)
            run_steps(place, mount, tape, order_of(spec), data)
            real = tape.plan
            check_memory(mount, real, what)
            counters = mount.counters()
        tape.follow()
        told = [e for e in real.events if e.kind == "staged" and e.status == 0]
        tap.equal(counters["stage_pushed"], len(told), f"{what}: as many pushes as it says")
        tap.equal(len(tape.plans), 1, f"{what}: one plan")
    check_answers(real, what)
    check_replay(path, what)
    check_source(log, sorted(data), real, what)
    tape.close()
    simulated = tapes.simulate(place.path("tape-simulated"), dropped_at(real), samples=N, sample_bytes=SIZE, order=spec, epochs=EPOCHS,
                               cache_bytes=RAM, stage_bytes=RAM // 4, store_bytes=store,
                               inflight=real.params["inflight_max"], source_latency_ms=LATENCY_MS, source_latency_sigma=0,
                               compute_ms=0,
                               decode_ms=PACE_MS)
    tap.equal(real.params, simulated.plan.params, f"{what}: the same budgets")
    check_decisions(real, simulated.plan, what)
    check_stages(real, simulated.plan, what)
    simulated.close()


def a_mount_does_what_the_simulator_does(place):
    same_in_steps(place, "memory")


def so_it_does_with_a_store(place):
    same_in_steps(place, "store", store=12 * MIB)


def read_dropping(mount, path):
    """The pages are given up: else the kernel is a second cache, of which the simulator has none."""
    fd = os.open(mount.path(path), os.O_RDONLY)
    try:
        data = os.pread(fd, SIZE, 0)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return data
    finally:
        os.close(fd)


def four_readers_at_full_speed(place):
    """Nothing waits for anything: readers overtake the prefetcher, ask for what is under way, and come first."""
    what, workers, batch = "freely", 4, 4
    data, slow, log, path = place.files([SIZE] * N), place.path("slow"), place.path("log"), place.path("tape")
    spec = f"torch-distributed:seed=9:world=1:epochs={EPOCHS}:batch={batch}:workers={workers}:prefetch_factor=2"
    with mountkit.Slowfs(place, place.source, slow, "--latency-ms", str(LATENCY_MS), "--log", log):
        with place.mount(source=slow, order=spec, ram=RAM, debug=taped(path)) as mount:
            tape, wrong, names = tapes.Tape(path), [], sorted(data)

            def read(part):
                wrong.extend(name for name in (names[sample] for sample in part) if read_dropping(mount, name) != data[name])
            for epoch in order_of(spec):
                crew = mountkit.Crew()
                batches = [epoch[at:at + batch] for at in range(0, N, batch)]
                for worker in range(workers):
                    crew.add(read, sum(batches[worker::workers], []))
                tap.equal(crew.join(), [], f"{what}: an epoch is read")
            tape.wait_quiet(N * EPOCHS)
            tap.equal(wrong, [], f"{what}: every byte is right")
            plan = tape.plan
        tape.follow()
    check_answers(plan, what)
    check_replay(path, what)
    check_source(log, sorted(data), plan, what)
    tap.equal(set(collections.Counter(plan.opened).values()), {EPOCHS}, f"{what}: the plan hears of each read once")
    simulated = tapes.simulate(place.path("tape-simulated"), samples=N, sample_bytes=SIZE, order=spec, epochs=EPOCHS,
                               cache_bytes=RAM, stage_bytes=RAM // 4, compute_ms=0,
                               inflight=plan.params["inflight_max"], source_latency_ms=LATENCY_MS, source_latency_sigma=0)
    asked, best = sum(told_reads(plan).values()), sum(told_reads(simulated.plan).values())
    tap.note(f"{what}: {asked} reads of the source, {best} in the simulator, {plan.told('demand')} of them by readers that came first")
    tap.ok(asked <= best * 125 // 100, f"{what}: little more than in the simulator", asked, best)
    simulated.close()
    tape.close()


def whatever_is_done_to_it(place):
    """Orders that come late, replace each other and run side by side, a store, files that change: all of it is on the tape."""
    data, path = place.files([SIZE] * N), place.path("tape")
    names = sorted(data)
    with place.mount(ram=RAM, debug={"plan_tape": path}, store_dir=place.store, store_keep="off", store_bytes=8 * MIB, store_keep_free=0,
                     revalidate=1) as mount:
        tape, job = tapes.Tape(path), jobs.Job(mount, data)
        spec, other = order_text(3), order_text(4)
        sequence, second = order_of(spec)[0], order_of(other)[0]
        job.read(sequence[:40])  # before anybody told it
        good("announce", mount.mountpoint, spec)
        job.read(sequence[40:120])
        good("announce", mount.mountpoint, order_text(5) + ":job=one")
        good("announce", mount.mountpoint, other + ":job=two")
        job.read(second[:60])
        for sample in second[:20]:  # read, so looked at again
            data[names[sample]] = mountkit.rng.randbytes(SIZE // 2)
            mountkit.write_file(os.path.join(place.source, names[sample] + ".new"), data[names[sample]])
            os.rename(os.path.join(place.source, names[sample] + ".new"), os.path.join(place.source, names[sample]))
        wait_seen(tape, "resized", 20)
        job.read(second[60:])
        good("announce", mount.mountpoint, order_text(6) + ":job=one")
        good("announce", mount.mountpoint, "none:job=one")
        job.read(second)
        tap.equal(job.wrong, [], "whatever is done: every byte is right")
    tape.follow()
    kinds = collections.Counter(e.kind for plan in tape.plans for e in plan.events) + sum((p.other for p in tape.plans), collections.Counter())
    tap.note(f"whatever is done: {dict(kinds)}")
    for kind in ("opened", "fetched", "staged", "pinned", "epoch", "demand", "resized", "lost_copy", "join", "change", "leave", "free"):
        tap.ok(kinds[kind], f"whatever is done: '{kind}' is on the tape")
    tap.equal(len(tape.plans), 1, "whatever is done: one plan")
    for plan in tape.plans:
        tap.equal(plan.unasked, [], "whatever is done: no answer that nobody asked for")
    check_replay(path, "whatever is done")
    tape.close()


def wait_seen(tape, kind, count):
    mountkit.wait_until(lambda: sum(plan.told(kind) for plan in tape.follow().plans) >= count, f"{count} {kind} are told")


def one_word_less_is_noticed(place):
    """The replay tells one event less, or another number, and must not agree."""
    data, path = place.files([SIZE] * 40), place.path("tape")
    with place.mount(order="sequential:epochs=1", ram=RAM, debug={"plan_tape": path}) as mount:
        tape = tapes.Tape(path)
        tape.wait_quiet(0, "the start is fetched")  # else fast readers leave little to be decided
        jobs.Job(mount, data).read(range(40))
        tape.wait_quiet(40)
        tape.close()
    lines = mountkit.read_file(path).decode().splitlines(True)
    tap.ok(tapes.replay(path)[0], "the tape as it is", tapes.replay(path))

    def changed(what, new):
        mountkit.write_file(place.path("changed"), "".join(new).encode())
        same, words = tapes.replay(place.path("changed"))
        tap.ok(not same and ": " in words, f"{what} is noticed", words)
    first = next(i for i, line in enumerate(lines) if line.startswith("action 0 fetch"))
    changed("an action that is not on the tape", lines[:first] + lines[first + 1:])
    changed("another sample", lines[:first] + ["action 0 fetch 39" + lines[first][lines[first].index(" ", 15):]] + lines[first + 1:])
    changed("half of the memory", [line.replace("arena_bytes=16777216 ", "arena_bytes=8388608 ") for line in lines])
    changed("what is no tape", lines[1:])
    changed("reads that are not told", [line for line in lines if " opened " not in line])
    again = mountkit.clairfs("mount", "-f", "-o", f"debug=plan_tape:{path}", place.source, place.mnt)
    tap.ok(again.code == 1 and len(again.lines) == 1 and "plan_tape" in again.lines[0], "a tape that is there is left alone", again)
    tap.equal(mountkit.read_file(path).decode(), "".join(lines), "as it was")
    tap.equal(os.stat(path).st_mode & 0o777, 0o600, "for its owner only")


mountkit.run(a_mount_does_what_the_simulator_does, so_it_does_with_a_store, four_readers_at_full_speed, whatever_is_done_to_it,
             one_word_less_is_noticed)
