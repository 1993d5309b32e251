# SPDX-License-Identifier: Apache-2.0
"""Tapes of plans (option plan_tape): followed while a mount writes one, and what is to be found in them."""
import collections
import os

import mountkit
from mountkit import Failed

REPLAY = os.environ["CLAIRFS_REPLAY_TAPE"]
ANSWERS = {"fetch": "fetched", "stage": "staged", "pin": "pinned", "epoch": "epoch"}  # a drop has none


class Action(collections.namedtuple("Action", "kind sample is_pinned is_adopted reads position")):
    """What a plan decided when so many reads had been seen."""

    __slots__ = ()


class Answer(collections.namedtuple("Answer", "kind sample status bytes latency reads is_pinned")):
    """What it was told; is_pinned: in answer to a fetch from the store."""

    __slots__ = ()


class Plan:
    """One plan of a tape, as far as it has been read."""

    def __init__(self):
        self.params = None
        self.opened, self.actions, self.events = [], [], []
        self.waiting = collections.Counter()  # (kind of answer, sample): actions not answered yet
        self.other = collections.Counter()  # all else that was told
        self.unasked = []  # answers to nothing
        self.is_quiet = False  # the last round asked for nothing, and nothing has happened since
        self._is_hurried = self._has_acted = False
        self._pinned = set()  # samples whose last fetch was from the store

    def line(self, kind, words):
        if kind == "plan":
            self.params = {"n": int(words[0]), **{k: int(v) for k, v in (word.split("=") for word in words[1:])}}
        elif kind == "event":
            self._event(words[1], *map(int, words[2:]))
        elif kind == "epoch":
            self._event("epoch", 0, int(words[1]), 0, 0, int(words[2]), int(words[3]))
        elif kind == "action":
            self._action(words[0], *map(int, words[1:]))
        elif kind == "step":
            self._is_hurried, self._has_acted = int(words[1]) <= int(words[0]), False
        elif kind == "enough":
            self.is_quiet = not self._has_acted and not self._is_hurried
        else:
            self.other[kind] += 1
            self.is_quiet = False

    def _event(self, kind, sample, status, size, latency, epoch, _job):
        self.is_quiet = False
        key = (kind, epoch if kind == "epoch" else sample)
        if kind == "opened":
            self.opened.append(sample)
        if kind == "unpinned":
            self._pinned.discard(sample)  # the source is asked instead
        self.events.append(Answer(kind, sample, status, size, latency, len(self.opened),
                                  kind == "fetched" and sample in self._pinned))
        if kind not in ANSWERS.values():
            return
        if self.waiting[key]:
            self.waiting[key] -= 1
        else:
            self.unasked.append((key, status))

    def _action(self, kind, sample, is_pinned, is_adopted, position, _pass, epoch, _job, _version, _is_left, _may_be_whole):
        self._has_acted |= kind != "drop"  # that is done at once
        if kind == "fetch":
            (self._pinned.add if is_pinned == 1 else self._pinned.discard)(sample)
        if kind in ANSWERS:
            self.waiting[ANSWERS[kind], epoch if kind == "epoch" else sample] += 1
        self.actions.append(Action(kind, epoch if kind == "epoch" else sample, is_pinned, is_adopted, len(self.opened), position))

    def unanswered(self):
        return [key for key, count in self.waiting.items() for _ in range(count)]

    def told(self, kind):
        """How often."""
        return sum(event.kind == kind for event in self.events)


class Tape:
    """A tape, read as it grows."""

    def __init__(self, path):
        self.path, self.plans = path, []
        self._file = open(path, "rb")
        self._rest = b""

    def follow(self):
        """All that is there by now; self."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        for line in lines:
            kind, *words = line.decode().split(" ")
            if kind == "clairfs-tape":
                continue
            number = int(words[0])
            while len(self.plans) <= number:
                self.plans.append(Plan())
            self.plans[number].line(kind, words[1:])
        return self

    @property
    def plan(self):
        """The last one, which is in force unless one is being made."""
        return self.plans[-1]

    def wait_quiet(self, n_opened, what="the daemon has done all that it wants to"):
        """Until so many reads were seen, all that was decided is done, and nothing more is."""
        def is_quiet():
            if not self.follow().plans:
                return False  # the mount is up before its first line is
            plan = self.plan
            return len(plan.opened) >= n_opened and plan.is_quiet and not plan.unanswered()
        try:
            mountkit.wait_until(is_quiet, what)
        except Failed as e:
            if not self.plans:
                raise
            plan = self.plan
            raise Failed(f"{e}; {len(plan.opened)} of {n_opened} reads seen, no answer to {plan.unanswered()[:20]}") from None

    def close(self):
        self._file.close()


def replay(path):
    """Fresh plans are told the same: (whether they decide the same, the program's words)."""
    done = mountkit.program(REPLAY, "replay", path)
    return done.code == 0, (done.out + done.err).decode(errors="replace").strip()


def simulate(path, dropped=(), **options):
    """The same job in the simulator, with reads (counted from 0) of which the kernel has dropped the pages; its tape."""
    done = mountkit.program(REPLAY, "simulate", path, mountkit.options_text(options), *dropped)
    if done.code:
        raise Failed(f"simulate: {done}")
    return Tape(path).follow()
