"""B5: a machine that slept. What is waited for over the network is mostly lost; its own work is not."""

from __future__ import annotations

import pytest

from streamguard import IdleTimeoutError, idle_guard, idle_timeout
from streamguard import _loops as loops
from streamguard._base import waking
from streamguard._loops.timekeeper import Timekeeper
from streamguard.activity import Activity
from streamguard.events import HalfTime, MachineWoke, TimedOut
from streamguard.testing import Script, call, hang, ping, say, silence, tool_end, tool_start
from tests.support import Events, take

NIGHT = 28_800.0


class Machine:
    """It sleeps when it is told to; time that counts stands still meanwhile."""

    def __init__(self) -> None:
        self.slept = 0.0

    def sleep(self, seconds: float = NIGHT) -> None:
        """Sleep, and wake: where a descriptor tells of it, the loop hears of it at once."""
        self.sleep_unnoticed(seconds)
        loops.current().timekeeper.look_for_sleep()

    def sleep_unnoticed(self, seconds: float = NIGHT) -> None:
        self.slept += seconds


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()
    monkeypatch.setattr(waking, "slept", lambda: machine.slept)
    return machine


async def test_b5_a_silence_goes_on_for_30_s_after_the_wake(loop, form, machine):
    """B5: and not for what is left of its window: the answer was lost hours ago."""
    told = Events()
    source = Script(say("one"), silence(100), call(machine.sleep), hang())
    taken = await take(source | idle_guard(600, observer=told), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 130)
    verdict = taken.error.verdict
    assert verdict.limit == "after_sleep"
    assert verdict.window == 30
    assert loop.took(verdict.elapsed, 30)
    assert "after this machine had slept (limit after_sleep=30)" in str(taken.error)
    (woke,) = told.of(MachineWoke)
    assert (woke.slept, woke.window) == (NIGHT, 30)


async def test_b5_the_first_message_of_a_turn_is_waited_for_no_longer(loop, machine):
    source = Script(silence(100), call(machine.sleep), hang())
    taken = await take(source | idle_guard(600, first=1200, after_sleep=10))
    assert loop.took(taken.elapsed, 110)
    assert taken.error.verdict.limit == "after_sleep"


async def test_b5_a_limit_that_is_nearer_stands(loop, machine):
    source = Script(silence(590), call(machine.sleep), hang())
    taken = await take(source | idle_guard(600))
    assert loop.took(taken.elapsed, 600)
    assert taken.error.verdict.limit == "idle"


async def test_b5_a_message_makes_all_as_before(loop, machine):
    source = Script(silence(100), call(machine.sleep), silence(20), say("here"), hang())
    taken = await take(source | idle_guard(600))
    assert loop.took(taken.elapsed, 120 + 600)
    assert taken.error.verdict.limit == "idle"


async def test_b5_a_ping_shows_that_the_line_lives(loop, machine):
    """It resets no silence, but a line that brings pings was not lost."""
    source = Script(silence(100), call(machine.sleep), silence(20), ping(), hang())
    taken = await take(source | idle_guard(600))
    assert loop.took(taken.elapsed, 600)
    assert taken.error.verdict.limit == "idle"


async def test_b5_work_of_the_machines_own_is_left_alone(loop, machine):
    """It has slept as well, and goes on; a fresh window follows its end."""
    told = Events()
    build = (tool_start("a", "Bash"), silence(100), call(machine.sleep), silence(900))
    taken = await take(
        Script(*build, tool_end("a"), hang()) | idle_guard(600, observer=told, repeats=None)
    )
    assert loop.took(taken.elapsed, 1000 + 600)
    assert taken.error.verdict.limit == "idle"
    assert told.of(MachineWoke)[0].window is None


async def test_b5_what_is_held_is_left_alone(loop, machine):
    activity = Activity("prompt")
    held = activity.hold("permission prompt")
    source = Script(
        call(held.__enter__),
        silence(100),
        call(machine.sleep),
        silence(900),
        call(lambda: held.__exit__(None, None, None)),
        hang(),
    )
    taken = await take(source | idle_guard(600, activity=activity))
    assert loop.took(taken.elapsed, 1000 + 600)
    assert taken.error.verdict.limit == "idle"


async def test_b5_liveness_alone_is_a_silence_too(loop, machine):
    source = Script(say("one"), ping(), silence(100), call(machine.sleep), hang())
    taken = await take(source | idle_guard(None, liveness=600))
    assert loop.took(taken.elapsed, 130)
    assert type(taken.error) is IdleTimeoutError
    assert taken.error.verdict.limit == "after_sleep"


@pytest.mark.parametrize("seconds", [0.5, NIGHT])
async def test_b5_off_or_too_short_it_changes_nothing(loop, machine, seconds):
    """`seconds`: with a nap of half a second it is on, and with a night it is off."""
    after = None if seconds == NIGHT else 30
    source = Script(silence(100), call(lambda: machine.sleep(seconds)), hang())
    taken = await take(source | idle_guard(600, after_sleep=after))
    assert loop.took(taken.elapsed, 600)
    assert taken.error.verdict.limit == "idle"


async def test_b5_without_a_descriptor_it_is_noticed_at_the_next_wakeup(loop, machine):
    """At half-time, since somebody wants to be told of that: late, but long before the end."""
    told = Events()
    source = Script(silence(100), call(machine.sleep_unnoticed), hang())
    taken = await take(source | idle_guard(600, observer=told))
    assert loop.took(taken.elapsed, 330)
    assert taken.error.verdict.limit == "after_sleep"
    assert len(told.of(HalfTime)) == 1


async def test_b5_it_costs_no_wakeup(loop, machine, monkeypatch):
    """`after_sleep=None` is the control: the same rings, at the same times."""
    rings = []
    ring = Timekeeper.ring
    monkeypatch.setattr(Timekeeper, "ring", lambda self: rings.append(self._clock()) or ring(self))
    counts = []
    for after in (30, None):
        rings.clear()
        await take(
            Script(say("one"), silence(300), say("two"), hang())
            | idle_guard(600, after_sleep=after)
        )
        counts.append(len(rings))
    assert counts[0] == counts[1] <= 4


async def test_b5_each_wake_begins_anew(loop, machine):
    """A laptop that wakes for a moment, now and then: the connection may come back after the last."""
    naps = [silence(20), call(machine.sleep)] * 5
    taken = await take(Script(*naps, hang()) | idle_timeout(600))
    assert loop.took(taken.elapsed, 100 + 30)


async def test_b5_mode_warn_tells_it_and_ends_nothing(loop, machine):
    told = Events()
    source = Script(silence(100), call(machine.sleep), silence(100), say("late"))
    taken = await take(source | idle_guard(600, mode="warn", observer=told))
    assert taken.error is None
    (event,) = told.of(TimedOut)
    assert (event.verdict.limit, event.enforced) == ("after_sleep", False)


async def test_b5_while_the_consumer_works_nothing_is_measured(loop, machine):
    async def works(_message):
        machine.sleep()

    source = Script(say("one"), hang())
    taken = await take(source | idle_guard(600), on_message=works)
    assert loop.took(taken.elapsed, 600)
