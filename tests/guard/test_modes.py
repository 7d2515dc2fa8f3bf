"""T11: enforce, warn and off, from code and from the environment's kill switch."""

from __future__ import annotations

import anyio
import pytest

from streamguard import (
    Activity,
    DeadlineExceededError,
    IdleTimeoutError,
    StreamTruncatedError,
    ToolTimeoutError,
    idle_guard,
    live,
)
from streamguard._guard import modes as config
from streamguard._guard.modes import mode_in_force
from streamguard.events import (
    CutWithdrawn,
    HalfTime,
    StreamEnded,
    StreamStarted,
    TimedOut,
    TornDown,
)
from streamguard.testing import (
    Script,
    Tap,
    done,
    fail,
    hang,
    message,
    ping,
    repeat,
    say,
    silence,
    tool,
    tool_start,
)
from tests.support import Disconnect, Events, take

SWITCH = "STREAMGUARD_MODE"


def told(events):
    """The limits that were told of, and whether each was enforced."""
    return [(event.verdict.limit, event.enforced) for event in events.of(TimedOut)]


# -- off -----------------------------------------------------------------------------------------


async def numbers():
    for number in range(3):
        yield number


class Lines:
    """An async iterator that is no generator."""

    def __aiter__(self):
        return self

    async def __anext__(self):
        raise StopAsyncIteration


@pytest.mark.parametrize("make", [numbers, Lines])
async def test_off_is_the_source_itself(loop, form, make):
    """T11: iterating it *is* iterating the source: the very same iterator."""
    source = make()
    stream = source | idle_guard(60, mode="off")
    if form == "bare":
        assert aiter(stream) is source
    else:
        async with stream as messages:
            assert aiter(messages) is source


async def test_off_guards_nothing(loop, form):
    """T11: no limit, no event, no disconnect, nothing in `live()`."""
    activity, events, disconnect = Activity(), Events(), Disconnect()
    guard = idle_guard(
        10,
        turn=20,
        total=30,
        activity=activity,
        observer=events,
        disconnect=disconnect,
        mode="off",
    )
    before, alive = live(), []

    def look(_message):
        alive.extend(each for each in live() if each not in before)

    taken = await take(Script(say("a"), silence(100), say("b")) | guard, form, look)
    assert taken.error is None
    assert len(taken.messages) == 2
    assert events == alive == disconnect.calls == []
    assert activity.status == "new"


async def test_off_guards_nothing_by_hand_either(loop):
    """T11: `anext()` on what the block gave is the source's too."""
    source = Script(silence(100), say("a"))
    async with source | idle_guard(10, mode="off") as messages:
        assert (await anext(messages)).text == "a"


async def test_off_still_closes_the_source_of_a_block(loop):
    """T11, O7: `async with` says when the consumer is done."""
    tap = Tap(Script(say("a"), hang()))
    async with tap | idle_guard(10, mode="off") as messages:
        async for _ in messages:
            break
    assert tap.closed


async def test_off_passes_errors_through(loop, form):
    """T11, T7"""
    taken = await take(Script(fail(KeyError("x"))) | idle_guard(1, mode="off"), form)
    assert isinstance(taken.error, KeyError)


async def test_a_monitor_that_is_off_does_nothing(loop):
    """T11, O10"""
    events = Events()
    guard = idle_guard(10, observer=events, mode="off")
    async with guard.monitor() as monitor:
        with monitor.waiting():
            await anyio.sleep(100)
        monitor.saw("a message")
    assert events == []


# -- warn ----------------------------------------------------------------------------------------


async def test_warn_tells_once_in_a_silence_and_cuts_nothing(loop, form):
    """T11: events only, and the stream goes on to its own end."""
    events, disconnect = Events(), Disconnect()
    guard = idle_guard(60, mode="warn", observer=events, disconnect=disconnect)
    tap = Tap(
        Script(
            *(say("a"), silence(500), say("b"), silence(40)),
            *(say("c"), silence(500), done()),
        )
    )
    taken = await take(tap | guard, form)
    assert taken.error is None
    assert len(taken.messages) == 4
    assert loop.took(taken.elapsed, 1040)
    assert told(events) == [("idle", False)] * 2
    assert tap.cancelled == 0
    assert disconnect.calls == []
    assert not events.of(TornDown)
    first, second = events.of(TimedOut)
    assert loop.took(first.at - events[0].at, 60)
    assert loop.took(second.at - events[0].at, 500 + 40 + 60)


async def test_pings_do_not_make_it_warn_again(loop, form):
    """T11: it is the same silence."""
    events = Events()
    source = Script(say("a"), repeat(silence(50), ping(), times=10), done())
    taken = await take(source | idle_guard(60, mode="warn", observer=events), form)
    assert taken.error is None
    assert told(events) == [("idle", False)]
    assert len(events.of(HalfTime)) == 1


async def test_warn_tells_of_each_limit(loop, form):
    """T11: once per silence, per piece of work and per turn, and once of the whole."""
    events = Events()
    guard = idle_guard(
        60,
        tools=100,
        turn=300,
        total=400,
        mode="warn",
        observer=events,
    )
    source = Script(tool_start("1", "Bash"), silence(1000), done())
    taken = await take(source | guard, form)
    assert taken.error is None
    assert told(events) == [
        ("tools", False),  # at 100: from here on the tool pauses `idle` no longer
        ("idle", False),  # at 160
        ("turn", False),
        ("total", False),
    ]


async def test_warn_does_not_end_a_stream_that_stays_open(loop, form):
    """T11, T14: `exit_grace` is told of, too, and cuts nothing."""
    events = Events()
    guard = idle_guard(60, exit_grace=30, mode="warn", observer=events)
    taken = await take(Script(say("a"), done(), silence(200)) | guard, form)
    assert taken.error is None
    assert loop.took(taken.elapsed, 200)
    assert told(events) == [("exit_grace", False)]


async def test_warn_does_not_raise_what_is_overdue(loop, form):
    """T11, T1: neither at the next pull nor in the block."""
    events = Events()
    guard = idle_guard(60, total=100, mode="warn", observer=events)
    taken = await take(
        Script(say("a"), say("b"), say("c")) | guard,
        form,
        lambda _message: anyio.sleep(70),
    )
    assert taken.error is None
    assert len(taken.messages) == 3


LINE = {"type": "assistant", "session_id": "s", "message": {"role": "assistant", "content": []}}


async def test_warn_lets_a_truncated_stream_end(loop, form):
    """T11, T10: the end is the stream's own."""
    stream = Script(message(LINE)) | idle_guard(60, mode="warn")
    taken = await take(stream, form)
    assert taken.error is None
    stream = Script(message(LINE)) | idle_guard(60)
    taken = await take(stream, form)
    assert isinstance(taken.error, StreamTruncatedError)


async def test_a_monitor_that_warns(loop):
    """T11, O10: the block is not cancelled."""
    events = Events()
    guard = idle_guard(60, mode="warn", observer=events)
    async with guard.monitor() as monitor, anyio.create_task_group():
        monitor.saw("a")
        await anyio.sleep(500)
        monitor.saw("b")
    assert told(events) == [("idle", False)]


# -- enforce -------------------------------------------------------------------------------------


async def test_enforce_is_the_default(loop, form):
    """T11: and says so in the event."""
    events = Events()
    taken = await take(Script(hang()) | idle_guard(60, observer=events), form)
    assert type(taken.error) is IdleTimeoutError
    assert told(events) == [("idle", True)]
    kinds = [type(event) for event in events]
    assert kinds == [StreamStarted, HalfTime, TimedOut, TornDown, StreamEnded]
    assert not events.of(CutWithdrawn)


@pytest.mark.parametrize(
    ("knobs", "error"),
    [({"tools": 20}, ToolTimeoutError), ({"total": 30}, DeadlineExceededError)],
)
async def test_enforce_said_aloud_is_the_same(loop, form, knobs, error):
    """T11"""
    guard = idle_guard(25, mode="enforce", **knobs)
    taken = await take(Script(tool("Bash", 500), done()) | guard, form)
    assert type(taken.error) is error


# -- the kill switch -----------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["off", "0", "false", "no", "OFF", " Off ", "False", "No"])
def test_the_kill_switch_switches_off(monkeypatch, value):
    """T11, S1-18: in whatever way people write it."""
    monkeypatch.setenv(SWITCH, value)
    source = Lines()
    assert aiter(source | idle_guard(60)) is source
    assert aiter(source | idle_guard(60, mode="enforce")) is source
    assert aiter(source | idle_guard(60, mode="warn")) is source


@pytest.mark.parametrize(
    ("environment", "code", "in_force"),
    [
        ("", None, "enforce"),
        ("enforce", None, "enforce"),
        ("enforce", "warn", "warn"),
        ("enforce", "off", "off"),
        ("warn", None, "warn"),
        ("warn", "enforce", "warn"),
        ("WARN", "off", "off"),
        ("off", "enforce", "off"),
    ],
)
async def test_of_code_and_environment_the_weaker_wins(
    monkeypatch, loop, environment, code, in_force
):
    """T11: the environment can only weaken, so it is safe in an emergency."""
    monkeypatch.setenv(SWITCH, environment)
    events = Events()
    guard = idle_guard(60, mode=code, observer=events)
    taken = await take(Script(say("a"), silence(100), say("b")) | guard)
    seen = {
        "enforce": (IdleTimeoutError, [("idle", True)]),
        "warn": (type(None), [("idle", False)]),
        "off": (type(None), []),
    }[in_force]
    assert (type(taken.error), told(events)) == seen


def test_the_kill_switch_is_read_when_a_stream_begins(monkeypatch):
    """T11: an operator made at import time obeys it."""
    guard, source = idle_guard(60), Lines()
    monkeypatch.setenv(SWITCH, "off")
    assert aiter(source | guard) is source
    monkeypatch.delenv(SWITCH)
    assert aiter(source | guard) is not source


OFF = ["0", "false", "no", "off", " OFF ", "False", "nO\n"]
ON = ["", "1", "true", "yes", "on", " On ", "TRUE", "enforce", "Enforce "]


@pytest.mark.parametrize(
    ("value", "mode"),
    [
        *[(value, "off") for value in OFF],
        *[(value, "enforce") for value in ON],
        *[("warn", "warn"), (" WARN ", "warn")],
    ],
)
def test_the_words_of_the_kill_switch_s1_18(monkeypatch, caplog, value, mode):
    """S1-18: off is off, any other word is on; and nothing is said of a plain one."""
    monkeypatch.setenv(SWITCH, value)
    assert mode_in_force(None) == mode
    assert caplog.text == ""


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        *[("wran", "warn"), ("of", "off"), ("warning", "warn"), ("enforced", "enforce")],
        *[("fasle", "false"), ("offf", "off"), ("disabled", None), ("2", None), ("-", None)],
    ],
)
def test_a_word_that_may_be_a_slip_is_on_and_told_once_s1_18(
    loop, monkeypatch, caplog, value, meant
):
    """S1-18: never an error in the stream, never silent, and never more than once."""
    monkeypatch.setattr(config, "_said", set())
    monkeypatch.setenv(SWITCH, value)

    async def main():
        for _ in range(3):
            taken = await take(Script(hang()) | idle_guard(60))
            assert type(taken.error) is IdleTimeoutError

    loop.run(main)
    guess = f" (did you mean {meant!r}?)" if meant else ""
    told = [record.getMessage() for record in caplog.records if SWITCH in record.getMessage()]
    (line,) = told
    assert line == (
        f"environment variable STREAMGUARD_MODE={value!r} is read as enforce{guess}: "
        "the words for less are warn, and off (or 0, false, no)"
    )


def test_a_slip_commands_no_terminal_s1_18(monkeypatch):
    monkeypatch.setenv(SWITCH, "wr\x1b[2Jan")
    assert "\x1b" not in config.doubtful_mode()
