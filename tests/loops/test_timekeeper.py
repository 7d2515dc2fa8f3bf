"""The heap of sleepers: who is woken when, in which order, and what is forgotten."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable

import pytest

from streamguard._loops.timekeeper import _MANY, Entry, Timekeeper


class Clockwork(Timekeeper):
    """A timekeeper whose time is set, and whose alarm and passes are only noted."""

    def __init__(self) -> None:
        super().__init__(lambda: self.now)
        self.now = 0.0
        self.alarm: float | None = None
        self.passing: list[Callable[[], None]] = []

    def set_alarm(self, when: float | None) -> None:
        self.alarm = when

    def after_passes(self, function: Callable[[], None]) -> None:
        self.passing.append(function)

    def ring_at(self, now: float) -> None:
        self.now = now
        self.ring()
        while self.passing:
            self.passing.pop()()


class Sleeper:
    """Notes who was called, in the order of the calls."""

    def __init__(self, name: object, log: list[object], *, curious: bool = False) -> None:
        self.entry: Entry | None = None
        self._name, self._log, self._curious = name, log, curious

    def on_time(self, now: float) -> bool:
        self._log.append((self._name, now))
        return self._curious

    def on_confirmed(self, now: float) -> None:
        self._log.append((self._name, "confirmed"))


@pytest.fixture
def keeper() -> Clockwork:
    return Clockwork()


@pytest.mark.parametrize("streams", [1, 3, 1000])
def test_all_whose_time_has_come_are_woken_in_its_order(keeper: Clockwork, streams: int):
    """T2: few or many at once, and of equals who came first."""
    log: list[object] = []
    sleepers = [Sleeper(number, log) for number in range(streams)]
    late = Sleeper("late", log)
    keeper.put(late, 50.5)
    for number, sleeper in reversed(list(enumerate(sleepers))):
        keeper.put(sleeper, 10.0 + number % 7)
    keeper.ring_at(20.0)
    by_time = sorted(range(streams), key=lambda number: (number % 7, -number))
    assert log == [(number, 20.0) for number in by_time]
    assert keeper.alarm == 50.5
    assert all(sleeper.entry is None for sleeper in sleepers)
    keeper.ring_at(50.5)
    assert log[-1] == ("late", 50.5)
    assert keeper.alarm is None


@pytest.mark.parametrize("streams", [4, 1000])
def test_whoever_was_dropped_or_put_off_or_is_gone_sleeps_on(keeper: Clockwork, streams: int):
    """O7: entries that nobody holds are left where they are, and skipped."""
    log: list[object] = []
    sleepers = [Sleeper(number, log) for number in range(streams)]
    for sleeper in sleepers:
        keeper.put(sleeper, 10.0)
    keeper.drop(sleepers[0])
    keeper.put(sleepers[1], 30.0)
    del sleepers[2], sleeper
    gc.collect()
    keeper.ring_at(10.0)
    assert log == [(number, 10.0) for number in range(3, streams)]
    keeper.ring_at(30.0)
    assert log[-1] == (1, 30.0)
    assert not keeper._heap


@pytest.mark.parametrize("drops", [True, False])
def test_what_was_put_off_leaves_no_alarm_behind(keeper: Clockwork, drops: bool):
    """O7: a sleeper that was put forward leaves its later entry behind, and an alarm for that."""
    sleeper = Sleeper("it", [])
    keeper.put(sleeper, 3600.0)
    keeper.put(sleeper, 1.0)
    keeper.ring_at(1.0)
    if drops:
        keeper.drop(sleeper)
    assert keeper.alarm is None
    assert not keeper._heap


def test_the_curious_are_asked_again_after_the_passes_and_all_have_been_woken(keeper: Clockwork):
    """T9: of 10,000, all are judged before the first is cut."""
    log: list[object] = []
    sleepers = [Sleeper(number, log, curious=number != 1) for number in range(3)]
    for sleeper in sleepers:
        keeper.put(sleeper, 1.0)
    keeper.ring_at(1.0)
    assert log == [(0, 1.0), (1, 1.0), (2, 1.0), (0, "confirmed"), (2, "confirmed")]


def test_one_that_fails_is_told_of_and_asked_again(
    keeper: Clockwork, caplog: pytest.LogCaptureFixture
):
    """T4: whenever it fails; a guard that gave up would guard nothing."""
    log: list[object] = []

    class Failing(Sleeper):
        def on_time(self, now: float) -> bool:
            super().on_time(now)
            if now < 2:
                raise ValueError("a bug of ours")
            return True

        def on_confirmed(self, now: float) -> None:
            raise ValueError("another")

    failing, other = Failing("failing", log), Sleeper("other", log, curious=True)
    keeper.put(failing, 1.0)
    keeper.put(other, 1.0)
    keeper.ring_at(1.0)
    assert log == [("failing", 1.0), ("other", 1.0), ("other", "confirmed")]
    assert keeper.alarm == 2.0
    keeper.ring_at(2.0)
    assert keeper.alarm == 3.0
    assert [record.exc_text is not None for record in caplog.records] == [True, True]
    assert "a bug of ours" in caplog.text
    assert "another" in caplog.text


def test_entries_that_were_forgotten_do_not_pile_up(keeper: Clockwork):
    """O7: many short streams with a long window."""
    kept = Sleeper("kept", [])
    keeper.put(kept, 1.0)
    for _ in range(10_000):
        short = Sleeper("short", [])
        keeper.put(short, 7200.0)
        keeper.drop(short)
    assert len(keeper._heap) <= 2 * 64
    keeper.drop(kept)
    assert keeper.alarm is None
    assert not keeper._heap


def test_no_alarm_is_set_for_one_that_was_dropped_under_another(keeper: Clockwork):
    """O7: it was below the one that rang last, and nobody else came to take it away."""
    log: list[object] = []
    first, second, third = (Sleeper(name, log) for name in "abc")
    keeper.put(first, 10.0)
    keeper.put(second, 20.0)
    keeper.put(third, 30.0)
    keeper.drop(second)
    keeper.ring_at(10.0)
    assert keeper.alarm == 30.0
    keeper.put(first, 25.0)
    keeper.drop(third)
    keeper.ring_at(25.0)
    assert keeper.alarm is None
    assert not keeper._heap


def test_whose_time_comes_while_others_are_asked_is_asked_with_them(keeper: Clockwork):
    """T2: it is confirmed with them, and not when all that they cut has unwound; who comes then, is not."""
    log: list[object] = []

    class Slow(Sleeper):
        def on_time(self, now: float) -> bool:
            keeper.now += 1
            return super().on_time(now)

    sleepers = [Slow(when, log, curious=True) for when in (1.0, 1.5, 2.5)]
    for sleeper, when in zip(sleepers, (1.0, 1.5, 2.5), strict=True):
        keeper.put(sleeper, when)
    keeper.now = 1.0
    keeper.ring()
    assert log == [(1.0, 1.0), (1.5, 2.0)]
    assert keeper.alarm == 2.5
    assert len(keeper.passing) == 1


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_rests_while_many_are_confirmed_and_is_left_as_it_was(
    keeper: Clockwork, *, is_on: bool
):
    """It is the whole program's: not for a few, not where it is off, and back whatever happens."""
    seen: list[bool] = []

    class Looks(Sleeper):
        def on_confirmed(self, now: float) -> None:
            seen.append(gc.isenabled())
            if len(seen) == 2:
                raise KeyboardInterrupt

    was_on = gc.isenabled()
    gc.enable() if is_on else gc.disable()
    try:
        many = [Looks(number, [], curious=True) for number in range(_MANY + 1)]
        for sleeper in many:
            keeper.put(sleeper, 1.0)
        keeper.now = 1.0
        keeper.ring()
        with pytest.raises(KeyboardInterrupt):
            keeper.passing.pop()()
        assert gc.isenabled() is is_on
        keeper.passing.pop()()
        # The first two in one call that was of many, the rest, being few, in another.
        assert seen == [False] * 2 + [is_on] * (_MANY - 1)
    finally:
        gc.enable() if was_on else gc.disable()


def test_who_keeps_one_of_many_keeps_no_other(keeper: Clockwork):
    """O7: trio's cancels have the frames that they were sent from, and so what these have."""
    frames: list[object] = []

    class Kept(Sleeper):
        def on_confirmed(self, now: float) -> None:
            frames.append(sys._getframe())

    sleepers = [Kept(number, [], curious=True) for number in range(3)]
    first, *_, last = map(weakref.ref, sleepers)
    for sleeper in sleepers:
        keeper.put(sleeper, 1.0)
    keeper.ring_at(1.0)
    del sleepers, sleeper, frames[:-1]
    gc.collect()
    assert last() is not None
    assert first() is None
