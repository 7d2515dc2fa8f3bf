"""Events: each in its situation, to observers that cannot disturb, and as log lines."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

import streamguard
from streamguard import Activity, IdleTimeoutError, StreamTruncatedError, Teardown, idle_guard
from streamguard.errors import Verdict
from streamguard.events import (
    AttemptEnded,
    AttemptStarted,
    CeilingPassed,
    CloseFailed,
    CutWithdrawn,
    DisconnectAbandoned,
    DisconnectFailed,
    Event,
    GaveUp,
    HalfTime,
    HoldBegan,
    HoldOver,
    HollowEnd,
    InterruptFailed,
    Interrupting,
    KeysRepeated,
    LoopStalled,
    MachineWoke,
    OwnerAbandoned,
    ProcessAdopted,
    ProcessExited,
    ProcessKilled,
    ProcessSurvived,
    ProcessUnknown,
    PullDeaf,
    ReaderFailed,
    Reconnected,
    RecordingFailed,
    ReplayDropped,
    RetryRecovered,
    RetryScheduled,
    SessionOver,
    StreamEnded,
    StreamStarted,
    TimedOut,
    TornDown,
    TurnOver,
    UnknownMessage,
    WatchdogActivity,
    WatchdogKilled,
    WatchdogStarted,
    WatchdogTimeout,
    WindowCollides,
    WorkBegan,
    WorkOver,
    WorkQuiet,
    WorkRepeated,
    log,
    tell,
)
from streamguard.events.event import where_raised
from streamguard.events.teller import Teller, Warned
from streamguard.testing import (
    Script,
    done,
    fail,
    hang,
    message,
    run_virtual,
    say,
    silence,
    swallows_cancel,
)
from tests.support import Disconnect, Events, take

SECRET = "sk-not-for-logs"


def kinds(events):
    return [type(event) for event in events]


# -- each in its situation -----------------------------------------------------------------------


async def test_a_stream_that_just_ends(loop, form):
    """E6: its start, its turn's end and its own, and nothing besides."""
    events = Events()
    activity = Activity("a")
    guard = idle_guard(60, observer=events, activity=activity)
    await take(Script(say("a"), silence(10), done()) | guard, form)
    assert kinds(events) == [StreamStarted, TurnOver, StreamEnded]
    started, _, ended = events
    assert started.activity is ended.activity is activity
    assert ended.error is None
    assert loop.took(ended.at - started.at, 10)


async def test_a_stream_that_raises(loop, form):
    """E6: its end carries what the consumer sees."""
    events = Events()
    error = OSError("connection reset")
    await take(Script(say("a"), fail(error)) | idle_guard(60, observer=events), form)
    assert kinds(events) == [StreamStarted, StreamEnded]
    assert events[-1].error is error


async def test_a_verdict_and_all_that_follows(loop, form):
    """E6, D1: in the order in which it happens."""
    events = Events()
    disconnect = Disconnect(seconds=2)
    guard = idle_guard(60, observer=events, disconnect=disconnect)
    error = (await take(Script(hang()) | guard, form)).error
    assert kinds(events) == [StreamStarted, HalfTime, TimedOut, TornDown, StreamEnded]
    _, half, timed_out, torn_down, ended = events
    assert (half.limit, half.window) == ("idle", 60)
    assert timed_out.enforced
    assert timed_out.verdict is torn_down.verdict is error.verdict
    assert torn_down.teardown is error.teardown
    assert ended.error is error
    start = events[0].at
    assert loop.took(half.at - start, 30)
    assert loop.took(timed_out.at - start, 60)
    assert loop.took(torn_down.at - start, 62)


async def test_a_truncated_stream(loop, form):
    """E6, T10: an end that is a verdict is told as one."""
    events = Events()
    line = {"type": "system", "subtype": "init", "session_id": "s"}
    guard = idle_guard(60, observer=events)
    error = (await take(Script(message(line)) | guard, form)).error
    assert type(error) is StreamTruncatedError
    assert kinds(events) == [StreamStarted, TimedOut, TornDown, StreamEnded]
    assert events[1].verdict.limit == "truncated"


async def test_a_disconnect_that_raises(loop, form):
    """E6, D3: reported, and the verdict is what comes out."""
    events = Events()
    broken = RuntimeError("already closed")
    guard = idle_guard(60, observer=events, disconnect=Disconnect(error=broken))
    error = (await take(Script(hang()) | guard, form)).error
    assert type(error) is IdleTimeoutError
    [told] = events.of(DisconnectFailed)
    assert told.error is broken
    assert error.teardown.disconnect == "raised"


async def test_a_disconnect_that_hangs(loop, form):
    """E6, D2: abandoned at its bound."""
    events = Events()
    guard = idle_guard(
        60,
        observer=events,
        disconnect=Disconnect(seconds=500),
        disconnect_timeout=20,
    )
    error = (await take(Script(hang()) | guard, form)).error
    [told] = events.of(DisconnectAbandoned)
    assert told.bound == 20
    assert error.teardown.disconnect == "abandoned"
    assert not error.teardown.confirmed


async def test_a_deaf_pull(loop):
    """E6, O6: reported when teardown starts without it."""
    events = Events()
    deaf = swallows_cancel(Script(say("a"), hang()))
    guard = idle_guard(60, observer=events, disconnect=deaf.release)
    error = (await take(deaf | guard)).error
    assert type(error) is IdleTimeoutError
    order = [kind for kind in kinds(events) if kind in (PullDeaf, TimedOut, TornDown)]
    assert order == [PullDeaf, TimedOut, TornDown]
    assert events.of(PullDeaf)[0].verdict is error.verdict


async def test_a_cut_that_a_message_withdrew(loop):
    """E6, T3: the pull still yielded, so the verdict is taken back and never told as one."""
    events = Events()
    source = swallows_cancel(Script(hang()), then="yield")
    taken = await take(source | idle_guard(60, observer=events))
    assert taken.error is None
    assert len(taken.messages) == 1
    [told] = events.of(CutWithdrawn)
    assert told.verdict.limit == "idle"
    assert not events.of(TimedOut)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_did_not_run(backend, form):
    """E6, T4: no silence was proven, and the report says how long nothing ran."""
    from streamguard.testing import block_loop

    async def main():
        events = Events()

        async def block():
            await anyio.sleep(59)
            block_loop(30)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(block)
            guard = idle_guard(60, observer=events)
            taken = await take(Script(say("a"), silence(89.5), done()) | guard, form)
        assert taken.error is None
        [told] = events.of(LoopStalled)
        assert (told.limit, told.lateness, told.extended_by) == ("idle", 29, 1)

    run_virtual(main, backend=backend)


def test_each_event_is_a_frozen_value():
    """E6: frozen dataclasses, with the activity and the loop's time."""
    activity = Activity()
    event = HalfTime(activity=activity, at=1.0, limit="idle", window=60.0)
    assert event == HalfTime(activity=activity, at=1.0, limit="idle", window=60.0)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.at = 2.0


# -- observers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ZeroDivisionError, asyncio.CancelledError, GeneratorExit])
def test_an_observer_that_raises_is_reported_and_the_rest_are_told(loop, form, caplog, kind):
    """E6: reported, never propagated, nor taken for a cancellation."""

    async def main():
        def broken(event):
            raise kind("in an observer")

        events = Events()
        guard = idle_guard(60, observer=broken) | idle_guard(None, observer=events)
        error = (await take(Script(hang()) | guard, form)).error
        assert type(error) is IdleTimeoutError
        assert error.teardown.confirmed
        assert kinds(events) == [StreamStarted, HalfTime, TimedOut, TornDown, StreamEnded]

    loop.run(main)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert len(errors) == 5
    assert all(kind.__name__ in record.exc_text for record in errors)
    assert "raised on 'TimedOut'" in caplog.text


def test_what_stops_the_program_passes_an_observer():
    """E6: KeyboardInterrupt is no observer's failure."""

    def stopped(_event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tell([stopped], StreamStarted(activity=Activity(), at=0.0))


async def test_an_observer_that_ends_the_program_does_not_keep_the_backend_alive(loop, form):
    """E6, D1: the verdict was final when it was told; its teardown begins all the same."""
    disconnect = Disconnect()

    def ends(event):
        if isinstance(event, TimedOut):
            sys.exit(3)

    with pytest.raises(SystemExit):
        await take(Script(hang()) | idle_guard(60, disconnect=disconnect, observer=ends), form)
    await anyio.sleep(1)  # on asyncio a bare stream's disconnect is in a task of its own
    assert disconnect.finished == 1


# -- log lines -----------------------------------------------------------------------------------

VERDICT = Verdict(
    limit="idle", window=60.0, elapsed=60.0, token=SECRET, labels={"key": SECRET}, name="a"
)
BROKEN = Teardown(confirmed=False, disconnect="abandoned", elapsed=30.0)


def raised(error):
    """`error` with a traceback, as a reader raises it."""
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(
    ("kind", "fields", "level", "text"),
    [
        (StreamStarted, {}, "DEBUG", "a: StreamStarted"),
        (StreamEnded, {"error": None}, "DEBUG", "a: ended"),
        (StreamEnded, {"error": ValueError(SECRET)}, "DEBUG", "a: ended by ValueError"),
        (
            HalfTime,
            {"limit": "idle", "window": 60.0},
            "INFO",
            "a: half of idle=60 has passed in silence",
        ),
        (
            WorkQuiet,
            {"limit": "quiet", "id": "t1", "name": "Task", "window": 300.0, "elapsed": 301.0},
            "WARNING",
            "a: nothing was heard of Task for 301 s (limit quiet=300)",
        ),
        (
            WorkRepeated,
            {
                "limit": "repeats",
                "names": ("Bash", "Read"),
                "times": 20,
                "period": 2,
                "error": False,
            },
            "WARNING",
            "a: Bash, Read had the same outcome 20 times in a row (limit repeats)",
        ),
        (
            CeilingPassed,
            {"limit": "tokens", "ceiling": 1000.0, "spent": 1200.0},
            "WARNING",
            "a: 1200 tokens used up (limit tokens=1000)",
        ),
        (
            HollowEnd,
            {"limit": "empty"},
            "WARNING",
            "a: the turn ended with success and did nothing: no work was done, no answer came",
        ),
        (
            HollowEnd,
            {"limit": "abandoned", "work": ("build",)},
            "WARNING",
            "a: the stream ended while work was open in the background: build",
        ),
        (
            LoopStalled,
            {"limit": "idle", "lateness": 29.0, "extended_by": 1.0},
            "WARNING",
            (
                "a: the event loop did not run for 29 s, so silence is not proven: "
                "limit idle extended by 1 s"
            ),
        ),
        (
            MachineWoke,
            {"slept": 28_800.0, "window": 30.0},
            "INFO",
            "a: this machine had slept for 28,800 s: unless something comes within 30 s, it is lost",
        ),
        (
            MachineWoke,
            {"slept": 28_800.0, "window": None},
            "INFO",
            "a: this machine had slept for 28,800 s: what is at work goes on",
        ),
        (
            UnknownMessage,
            {"type_name": "x.Y"},
            "DEBUG",
            "a: no reader knows the type x.Y: it counts as progress",
        ),
        (
            WindowCollides,
            {"limit": "idle", "window": 60.0, "advice": "idle=60 fires before claude recovers"},
            "WARNING",
            "a: idle=60 fires before claude recovers",
        ),
        (
            CutWithdrawn,
            {"verdict": VERDICT},
            "INFO",
            "a: a message came at the last instant: nothing is ended",
        ),
        (
            TimedOut,
            {"verdict": VERDICT, "enforced": True},
            "WARNING",
            "a: ending: idle for 60 s (limit idle=60)",
        ),
        (
            TimedOut,
            {"verdict": VERDICT, "enforced": False},
            "WARNING",
            (
                "a: would end (mode warn): stream 'a' idle for 60 s (limit idle=60); "
                "no message was ever seen"
            ),
        ),
        (
            PullDeaf,
            {"verdict": VERDICT},
            "WARNING",
            "a: the stream does not react to its cancellation: ending the backend all the same",
        ),
        (
            Interrupting,
            {"verdict": VERDICT, "bound": 5.0},
            "INFO",
            "a: asking the backend to end its turn by itself, for at most 5 s",
        ),
        (
            InterruptFailed,
            {"error": OSError("closed")},
            "WARNING",
            "a: interrupt raised OSError('closed'): ending the backend",
        ),
        (
            ProcessAdopted,
            {"pid": 7, "proof": "pidfd"},
            "DEBUG",
            "a: process 7 is the backend's (pidfd)",
        ),
        (
            ProcessUnknown,
            {"error": None},
            "WARNING",
            (
                "a: process= gave None, so no process can be watched or ended: "
                "disconnect is all there is"
            ),
        ),
        (
            ProcessUnknown,
            {"error": AttributeError("_process")},
            "WARNING",
            (
                "a: process= raised AttributeError('_process'), so no process can be watched or "
                "ended: disconnect is all there is"
            ),
        ),
        (
            ProcessExited,
            {"pid": 7, "exit": None},
            "INFO",
            "a: process 7 has ended, exit status unknown",
        ),
        (
            ProcessKilled,
            {"pid": 7, "signals": ("TERM", "KILL"), "exit": -9, "elapsed": 5.0},
            "WARNING",
            "a: ended process 7 and what it had started: TERM, KILL, in 5 s",
        ),
        (
            ProcessSurvived,
            {"pid": 7, "survivors": (8, 9)},
            "ERROR",
            "a: STILL ALIVE of process 7 and what it had started: 8, 9",
        ),
        (
            DisconnectFailed,
            {"error": OSError("closed")},
            "WARNING",
            "a: disconnect raised OSError('closed')",
        ),
        (
            DisconnectAbandoned,
            {"bound": 30.0},
            "ERROR",
            "a: disconnect still hung after 30 s and was abandoned; the backend may be alive",
        ),
        (
            TornDown,
            {"verdict": VERDICT, "teardown": Teardown(confirmed=True, disconnect="returned")},
            "INFO",
            "a: teardown confirmed after 0 s: disconnect returned",
        ),
        (
            TornDown,
            {"verdict": VERDICT, "teardown": BROKEN},
            "ERROR",
            "a: after 30 s the backend's end is NOT confirmed: it may be alive",
        ),
        (
            ReaderFailed,
            {"type_name": "Y", "error": KeyError(SECRET)},
            "WARNING",
            "a: the reader raised KeyError on a message of type Y, which counts as progress",
        ),
        (
            AttemptStarted,
            {"attempt": 2, "resumes": True},
            "DEBUG",
            "a: attempt 2 begins, resuming",
        ),
        (
            AttemptStarted,
            {"attempt": 1, "resumes": False},
            "DEBUG",
            "a: attempt 1 begins, afresh",
        ),
        (
            AttemptEnded,
            {"attempt": 1, "outcome": "failed", "error": OSError(SECRET), "confirmed": False},
            "DEBUG",
            "a: attempt 1 failed by OSError, its backend's end NOT confirmed",
        ),
        (
            AttemptEnded,
            {"attempt": 2, "outcome": "completed", "error": None, "confirmed": True},
            "DEBUG",
            "a: attempt 2 completed",
        ),
        (
            RetryScheduled,
            {"error_class": "idle", "retry": 2, "delay": 5.0, "why": "idle: retry 2 of 2 in 5 s"},
            "WARNING",
            "a: idle: retry 2 of 2 in 5 s",
        ),
        (
            Reconnected,
            {"attempt": 2, "resumes": True},
            "INFO",
            "a: connected again in attempt 2: the session goes on",
        ),
        (
            Reconnected,
            {"attempt": 2, "resumes": False},
            "INFO",
            "a: connected again in attempt 2: a fresh session",
        ),
        (RetryRecovered, {"retries": 1}, "INFO", "a: the turn ended well after 1 retry"),
        (RetryRecovered, {"retries": 2}, "INFO", "a: the turn ended well after 2 retries"),
        (
            ReplayDropped,
            {"attempt": 2, "messages": 7},
            "DEBUG",
            "a: attempt 2 played 7 messages again, now dropped",
        ),
        (
            KeysRepeated,
            {"attempt": 2},
            "WARNING",
            (
                "a: dedupe_by gave one key to several messages of attempt 2: keys must be unique, or "
                "a replay cannot be told from new messages, and the turn is not retried"
            ),
        ),
        (
            GaveUp,
            {
                "reason": "retries",
                "why": "idle: its 2 retries made no difference",
                "error": OSError(SECRET),
                "escalate": False,
            },
            "ERROR",
            "a: gave up (retries): idle: its 2 retries made no difference",
        ),
        (SessionOver, {}, "DEBUG", "a: the session is over"),
        (
            OwnerAbandoned,
            {"attempt": 3},
            "ERROR",
            "a: the task of attempt 3 does not end and was left behind; the backend may be alive",
        ),
        (
            CloseFailed,
            {"attempt": 3, "error": OSError(SECRET)},
            "WARNING",
            "a: closing the connection of attempt 3 raised OSError",
        ),
        (
            WorkBegan,
            {"id": "t1", "name": "Bash", "background": False},
            "DEBUG",
            "a: Bash is in flight",
        ),
        (
            WorkOver,
            {"id": "t1", "name": "", "elapsed": 61.5, "outcome": "dropped"},
            "DEBUG",
            "a: t1 dropped after 61.5 s",
        ),
        (
            HoldBegan,
            {"id": "hold-1", "reason": "permission", "until": 61.0},
            "DEBUG",
            "a: held (permission), for at most 60 s",
        ),
        (
            HoldOver,
            {"id": "hold-1", "reason": "permission"},
            "DEBUG",
            "a: held no more (permission)",
        ),
        (TurnOver, {"outcome": "success"}, "DEBUG", "a: turn ended: success"),
        (
            RecordingFailed,
            {"what": "receipt", "path": "run/x", "why": "No space left on device"},
            "ERROR",
            "a: evidence is missing: receipt (run/x): No space left on device",
        ),
        (
            WatchdogStarted,
            {
                "pid": 7,
                "timeout_seconds": 180.0,
                "poll_interval_seconds": 10.0,
                "kill_grace_seconds": 5.0,
            },
            "INFO",
            "Watchdog started for PID 7, timeout=180.0s",
        ),
        (
            WatchdogStarted,
            {
                "pid": None,
                "timeout_seconds": 180.0,
                "poll_interval_seconds": 10.0,
                "kill_grace_seconds": 5.0,
            },
            "INFO",
            "Watchdog started for a backend without a PID, timeout=180.0s",
        ),
        (WatchdogActivity, {"pid": 7}, "DEBUG", "Watchdog was told of activity of subprocess 7"),
        (
            WatchdogTimeout,
            {"pid": 7, "idle_seconds": 181.2, "timeout_seconds": 180.0, "enforced": True},
            "WARNING",
            "Watchdog killing subprocess 7 after 180.0s idle",
        ),
        (
            WatchdogTimeout,
            {"pid": None, "idle_seconds": 181.2, "timeout_seconds": 180.0, "enforced": False},
            "WARNING",
            "Watchdog would be disconnecting the backend after 180.0s idle (mode warn)",
        ),
        (
            WatchdogKilled,
            {"pid": 7, "signals": ("TERM",), "exit": -15, "elapsed": 0.1},
            "INFO",
            "Subprocess 7 terminated gracefully",
        ),
        (
            WatchdogKilled,
            {"pid": 7, "signals": ("TERM", "KILL"), "exit": -9, "elapsed": 5.1},
            "WARNING",
            "Subprocess 7 required SIGKILL",
        ),
        (
            WatchdogKilled,
            {"pid": 7, "signals": (), "exit": 0, "elapsed": 0.1},
            "INFO",
            "Subprocess 7 has ended without a signal",
        ),
    ],
)
def test_each_event_as_a_log_line(caplog, kind, fields, level, text):
    """E6, E3: a level for the person on call, and no payload, token or label in the line."""
    caplog.set_level(logging.DEBUG, "streamguard")
    log(kind(activity=Activity("a", key=SECRET), at=1.0, **fields))
    [record] = caplog.records
    assert (record.name, record.levelname, record.getMessage()) == ("streamguard", level, text)
    assert SECRET not in caplog.text


def test_a_nameless_stream_in_a_log_line(caplog):
    """E6"""
    log(DisconnectAbandoned(activity=Activity(), at=1.0, bound=30.0))
    assert caplog.messages[0].startswith("stream-1: disconnect still hung")


def test_an_error_is_logged_by_its_type_and_place(caplog):
    """E3: its text may quote a message; where it was raised helps as much."""
    log(ReaderFailed(activity=Activity(), at=1.0, type_name="Y", error=raised(KeyError(SECRET))))
    assert f"raised KeyError ({__file__}:" in caplog.text
    assert SECRET not in caplog.text


def where(source, path):
    """What is said of an error that code at `path` raised."""
    try:
        exec(compile(source, path, "exec"), {})
    except Exception as error:
        error.__traceback__ = error.__traceback__.tb_next
        return where_raised(error)


OURS = Path(streamguard.__file__).parent


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/home/me/agent.py", "ValueError (/home/me/agent.py:1)"),
        ("/x/lib/python3.12/site-packages/httpx/_client.py", "ValueError (httpx/_client.py:1)"),
        ("/usr/lib/python3/dist-packages/httpx.py", "ValueError (httpx.py:1)"),
        (asyncio.__file__, "ValueError (asyncio/__init__.py:1)"),
        (str(OURS / "backends" / "claude" / "reading.py"), "ValueError (in streamguard)"),
    ],
)
def test_where_python_packages_and_we_are_installed_is_not_said(path, said):
    """Neither in a log nor in a report."""
    assert where("raise ValueError", path) == said


def test_of_an_error_of_ours_its_name_is_enough():
    path = str(OURS / "_guard" / "guarded.py")
    source = "from streamguard import IdleTimeoutError; raise IdleTimeoutError"
    assert where(source, path) == "IdleTimeoutError"


def test_a_reader_that_returns_something_else_is_told_what_it_may_return(caplog):
    """S2: our own words, so nothing of the message is in them (E3)."""
    caplog.set_level(logging.WARNING)

    async def main():
        await take(Script(say("x")) | idle_guard(60, read=lambda _: "progress"))

    run_virtual(main)
    assert (
        "for a message of type Said the reader returned an object of type str; it must return a "
        "signal (Progress(), TurnEnded(), ...), several, or None. It counts as progress"
    ) in caplog.text
    assert "raised" not in caplog.text


def test_every_event_has_a_line(caplog):
    """E6: none is forgotten in the table above."""
    covered = {case[0] for case in test_each_event_as_a_log_line.pytestmark[0].args[1]}
    assert covered == {kind for kind in below(Event) if not kind.__subclasses__()}


def test_what_nobody_listens_to_is_not_made(caplog, monkeypatch):
    """E6: neither an observer nor an enabled logger; `on_warn` listens to concerns alone."""
    made, heard = [], []
    init = StreamStarted.__init__

    def noted(event, **facts):
        made.append(event)
        init(event, **facts)

    monkeypatch.setattr(StreamStarted, "__init__", noted)
    caplog.set_level(logging.INFO, "streamguard")
    Teller(Activity(), ()).tell(StreamStarted)
    Teller(Activity(), (Warned(heard.append),)).tell(StreamStarted)
    assert not made
    Teller(Activity(), (Warned(heard.append), heard.append)).tell(StreamStarted)
    assert heard == made
    caplog.set_level(logging.DEBUG, "streamguard")
    Teller(Activity(), ()).tell(StreamStarted)
    assert len(made) == 2


def test_every_event_says_how_loud_it_can_be():
    """E6: or it might not be made though the log would have taken it."""
    for kind in below(Event):
        if isinstance(kind.level, int):
            assert kind.loudest == kind.level
        else:
            assert "loudest" in vars(kind)


def below(kind):
    """All that is derived from it."""
    return {kind for child in kind.__subclasses__() for kind in (child, *below(child))}


def test_nothing_of_a_message_is_ever_logged(loop, form, caplog):
    """E3: whatever the backend says or raises, over all levels."""
    caplog.set_level(logging.DEBUG)

    class Shy:
        def __repr__(self):
            return SECRET

    def read(said):
        if said.text:
            raise ValueError(f"cannot read {said.text!r}")
        return [said]

    async def main():
        shy = SimpleNamespace(text=SECRET, more=Shy())
        junk = SimpleNamespace(text="", more=Shy())
        init = {"type": "system", "subtype": "init", "session_id": SECRET, "api_key": SECRET}
        for source, knobs in (
            (Script(message(shy), message(Shy()), hang()), {}),
            (Script(message(shy), hang()), {"read": read}),
            (Script(message(junk), hang()), {"read": read}),
            (Script(message(init), hang()), {}),
            (Script(message(init)), {}),
            (Script(message(shy), fail(ValueError(SECRET))), {}),
            (Script(message(init), hang()), {"mode": "warn", "total": 100}),
        ):
            with anyio.move_on_after(300):
                await take(source | idle_guard(60, **knobs), form)

    loop.run(main)
    assert len(caplog.records) > 20
    assert SECRET not in caplog.text
