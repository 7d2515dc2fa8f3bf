"""Drives two watches and the naive model through the same facts and compares every answer.

`slow` is told everything; `quick` takes the shortcut that `Watch.steady` allows, as the
implementations of the pull do. Times are multiples of 1/8, so that float arithmetic is exact.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from streamguard._watch.watch import Due, Found, Half, Limits, Stalled, Watch
from streamguard.signals import Progress, Waiting
from tests.watch.naive import Naive

TICK = 0.125
EPOCH = 1_700_000_000.0


class Trio:
    """Three who must agree."""

    def __init__(self, limits: Limits) -> None:
        self.slow, self.quick, self.naive = Watch(limits), Watch(limits), Naive(limits)
        self.now = 64.0
        self.waiting = False
        self.begun = False
        self.judged: Any = None
        self.happened: Counter[str] = Counter()

    # -- facts -------------------------------------------------------------------------------

    def begin(self) -> None:
        """The first pull, the block's entry, or a pull after an error of the source's."""
        self.begun = True
        self._tell("begin")

    def ask(self) -> None:
        if self.waiting or not self.begun:
            return
        self.waiting = True
        self.slow.asked(self.now)
        self.naive.tell(self.now, "asked")
        if self.quick.steady:
            self.happened["shortcut ask"] += 1
            self.quick.waiting_since = self.quick.mark = self.now
        else:
            self.quick.asked(self.now)

    def give_up(self) -> None:
        """The pull is over and brought nothing: the consumer's own scope cancelled it."""
        if self.waiting:
            self.waiting = False
            self._tell("answered")

    def message(self, signals: list[Any]) -> None:
        """A pull brings a message, ready or waited for."""
        plain = signals == [Progress()]
        if plain and self.quick.steady:
            self.happened["shortcut message"] += 1
            self.quick.upto += 1
            self.quick.mark = self.now
            self.quick.waiting_since = None
        else:
            if self.waiting:
                self.quick.answered(self.now)
            self.quick.see(signals, self.now, self.now + EPOCH)
        if self.waiting:
            self.slow.answered(self.now)
            self.naive.tell(self.now, "answered")
        self.waiting = False
        self.slow.see(signals, self.now, self.now + EPOCH)
        self.naive.see(signals, self.now, self.now + EPOCH)

    def overheard(self, signals: list[Any]) -> None:
        """A message while the pull goes on waiting."""
        for watch in (self.slow, self.quick):
            watch.see(signals, self.now, self.now + EPOCH)
        self.naive.see(signals, self.now, self.now + EPOCH)

    def hold(self, key: int, until: float) -> None:
        for watch in (self.slow, self.quick):
            watch.hold(("user", key), until, self.now)
        self.naive.tell(self.now, "hold", (("user", key), until))

    def release(self, key: int) -> None:
        for watch in (self.slow, self.quick):
            watch.release(("user", key), self.now)
        self.naive.tell(self.now, "release", ("user", key))

    def touch(self) -> None:
        self._tell("touch")

    def exited(self) -> None:
        """The process behind the stream is dead."""
        self._tell("exited")

    def woke(self) -> None:
        """The machine has slept."""
        self._tell("woke")

    def mark_prompt(self) -> None:
        self._tell("mark_prompt")

    def mute(self) -> None:
        """Mode `warn`: what was judged due just now is told."""
        if isinstance(self.judged, Due):
            for watch in (self.slow, self.quick):
                watch.mute(self.judged)
            self.naive.mute(self.judged)

    def _tell(self, fact: str) -> None:
        for watch in (self.slow, self.quick):
            getattr(watch, fact)(self.now)
        self.naive.tell(self.now, fact)

    # -- time --------------------------------------------------------------------------------

    def wait(self, ticks: int) -> None:
        self.now += ticks * TICK

    def wait_for_deadline(self, ticks: int) -> None:
        """Until `ticks` before or after the next deadline, if there is one ahead."""
        then = self.slow.deadline()
        if math.isfinite(then):
            self.now = max(self.now, then + ticks * TICK)

    # -- questions ---------------------------------------------------------------------------

    def judge(self) -> None:
        wanted = self.naive.judge(self.now)
        for watch in (self.slow, self.quick):
            got = watch.judge(self.now)
            assert self._plain(got) == self._plain(wanted)
        self.judged = got
        if got is not None:
            self.happened[f"{type(got).__name__.lower()} {got.limit}"] += 1
        if isinstance(got, Due):
            slow, quick = (watch.verdict(got, self.now) for watch in (self.slow, self.quick))
            age = slow.last_message_age
            assert replace(quick, last_message_age=age) == slow
            # O8: the shortcut knows the last message's time from the pull that followed it.
            assert age is None or 0 <= quick.last_message_age <= age

    def compare(self) -> None:
        world = self.naive.world(self.now)
        deadline = self.naive.deadline(self.now)
        due = self._plain(self.naive.due(self.now))
        for watch in (self.slow, self.quick):
            assert watch.deadline() == deadline
            assert watch.total_deadline() == self.naive.total_deadline()
            assert self._plain(watch.due(self.now)) == due
            overdue = watch.overdue_total(self.now) is not None
            assert overdue == (self.now >= self.naive.total_deadline())
            assert watch.completed == (world.turns > 0 and not world.in_turn)
            assert list(watch.work) == list(world.work)
            assert watch.token == world.token
            assert watch.messages == world.messages
            told = [(f.limit, f.names) if f.names else (f.limit,) for f in watch.found]
            assert told == world.found
            assert (watch.struck and watch.struck.limit) == (world.struck and world.struck.limit)
            if watch is self.slow or world.last_progress is None:
                assert watch.last_progress == world.last_progress
            else:
                assert world.last_progress <= watch.last_progress <= self.now
            assert watch.waiting_since == world.asked
            assert world.died is None or not watch.steady  # each pull's beginning counts

    @staticmethod
    def _plain(answer: Any) -> Any:
        match answer:
            case Half():
                return ("half", answer.limit, answer.window)
            case Stalled():
                return ("stalled", answer.limit, answer.lateness, answer.extended_by)
            case Found():
                return ("found", answer.limit, answer.window, answer.amount, answer.key)
            case None | tuple() if not hasattr(answer, "limit"):
                return answer
            case _:
                return (answer.limit, answer.deadline, answer.window, answer.since, answer.work)


def waiting_until(id_: str, now: float, ticks: int | None, *, aware: bool) -> Waiting:
    """An announced wait, with its end on the wall clock `ticks` from `now` if it has one."""
    if ticks is None:
        return Waiting(id_, "rate_limit")
    epoch = now + EPOCH + ticks * TICK
    return Waiting(id_, "rate_limit", datetime.fromtimestamp(epoch, UTC) if aware else epoch)
