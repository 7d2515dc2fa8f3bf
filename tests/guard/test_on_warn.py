"""B6: `on_warn=` is called with each warning and with nothing else, and disturbs nobody."""

from __future__ import annotations

import pytest

from streamguard import ConfigError, IdleTimeoutError, idle_guard
from streamguard.events import Concern, HalfTime
from streamguard.testing import Script, hang, say
from tests.support import Events, take


async def test_b6_on_warn_hears_of_half_time_and_of_nothing_else(loop, form):
    warned = Events()
    taken = await take(Script(say("one"), hang()) | idle_guard(60, on_warn=warned), form)
    assert type(taken.error) is IdleTimeoutError
    assert [type(each) for each in warned] == [HalfTime]
    assert warned[0].limit == "idle"
    assert loop.took(taken.error.verdict.at - warned[0].at, 30)


def test_b6_nobody_is_woken_at_half_time_without_it():
    """The control: half of a silence is an instant only to whoever wants to be told."""
    guard = idle_guard(60)
    assert not guard.limits.half_time
    assert idle_guard(60, on_warn=Events()).limits.half_time


async def test_b6_on_warn_that_raises_disturbs_nobody(loop, caplog):
    def fails(_concern):
        raise LookupError("no pager")

    warned = Events()
    guard = idle_guard(60, on_warn=fails) | idle_guard(60, on_warn=warned)
    taken = await take(Script(hang()) | guard)
    assert type(taken.error) is IdleTimeoutError
    assert len(warned) == 1
    assert "no pager" in caplog.text


async def test_b6_on_warn_of_a_stream_that_talks_is_never_called(loop):
    warned = Events()
    taken = await take(Script(say("one"), say("two")) | idle_guard(60, on_warn=warned))
    assert taken.error is None
    assert len(taken.messages) == 2
    assert warned == []


def test_b6_on_warn_is_a_function_of_one_event():
    async def awaits(_concern):
        """Nobody could await it."""

    for wrong, hint in (
        (3, "on_warn=3 cannot be called"),
        (lambda: None, "on_warn=.* is called with one argument, the event"),
        (awaits, "on_warn=.* no `async def`"),
    ):
        with pytest.raises(ConfigError, match=hint):
            idle_guard(60, on_warn=wrong)


def test_b6_on_warn_accumulates_and_can_be_taken_away():
    one, other = Events(), Events()
    both = (
        idle_guard(60, on_warn=one) | idle_guard(60, on_warn=other) | idle_guard(60, on_warn=one)
    )
    assert [id(each) for each in both.plan.on_warn] == [id(one), id(other)]
    observed = idle_guard(60, on_warn=one, observer=other)
    assert observed.replace(on_warn=None).plan == idle_guard(60, observer=other).plan
    assert observed.replace(observer=None).plan == idle_guard(60, on_warn=one).plan


def test_b6_every_warning_is_a_concern():
    assert issubclass(HalfTime, Concern)
