"""Errors as those who catch them see them: the tree, the text, what they carry."""

from __future__ import annotations

import asyncio
import copy
import pickle
from datetime import UTC, datetime

import pytest

import streamguard
from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    LeaseLostError,
    LivenessTimeoutError,
    ProcessExitedError,
    StreamGuardError,
    StreamInterruptedError,
    StreamTimeoutError,
    StreamTruncatedError,
    Teardown,
    ToolTimeoutError,
    TurnTimeoutError,
    Verdict,
    exit_code_for,
    idle_guard,
)
from streamguard._base.durations import in_words
from streamguard.errors import ERRORS
from streamguard.testing import (
    Script,
    fail,
    message,
    opened,
    pings,
    run_virtual,
    say,
    silence,
    tool_start,
)
from tests.support import Disconnect, take

TIMEOUTS = {
    "idle": IdleTimeoutError,
    "first": FirstMessageTimeoutError,
    "first_json": FirstMessageTimeoutError,
    "after_sleep": IdleTimeoutError,
    "liveness": LivenessTimeoutError,
    "tools": ToolTimeoutError,
    "turn": TurnTimeoutError,
    "total": DeadlineExceededError,
}


def verdict(limit="idle", window=180.0, elapsed=180.0, **known):
    return Verdict(limit=limit, window=window, elapsed=elapsed, **known)


# -- the tree ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", TIMEOUTS.values())
def test_a_limit_is_a_timeout_error(kind):
    """T7: code that knows nothing of streamguard catches TimeoutError, on 3.11 asyncio's too."""
    assert issubclass(kind, StreamTimeoutError)
    assert issubclass(kind, (TimeoutError, asyncio.TimeoutError))


@pytest.mark.parametrize(
    "kind", [StreamTruncatedError, StreamInterruptedError, ProcessExitedError]
)
def test_an_end_that_came_too_early_is_no_timeout(kind):
    """T10"""
    assert issubclass(kind, StreamGuardError)
    assert not issubclass(kind, TimeoutError)


def test_every_error_is_in_the_drawing():
    """The exception tree is drawn in the module's docstring, and public."""
    drawing = streamguard.errors.__doc__
    names = [
        name
        for name, value in vars(streamguard.errors).items()
        if isinstance(value, type)
        and issubclass(value, Exception)
        # Not by its old name.
        and value.__name__ == name
    ]
    assert len(names) >= 11
    for name in names:
        assert name in drawing
        assert getattr(streamguard, name) is getattr(streamguard.errors, name)


def test_each_limit_has_its_error_but_the_grace():
    """T14: `exit_grace` ends a run that was a success."""
    others = {
        "truncated": StreamTruncatedError,
        "exited": ProcessExitedError,
        "lease": LeaseLostError,
        "quiet": streamguard.errors.QuietWorkError,
        "repeats": streamguard.errors.RepeatedWorkError,
        "empty": streamguard.errors.EmptyTurnError,
        "abandoned": streamguard.errors.AbandonedWorkError,
        **dict.fromkeys(("tokens", "cost", "calls"), streamguard.errors.CeilingExceededError),
    }
    assert {**TIMEOUTS, **others} == ERRORS
    assert issubclass(FirstMessageTimeoutError, IdleTimeoutError)


# -- exit codes ----------------------------------------------------------------------------------


def killed():
    error = IdleTimeoutError("x")
    error.teardown = Teardown(confirmed=True, signals=("TERM", "KILL"))
    return error


def ended_by_term():
    error = ToolTimeoutError("x")
    error.teardown = Teardown(confirmed=True, signals=("TERM",))
    return error


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((kind("x"), 124) for kind in TIMEOUTS.values()),
        (ended_by_term(), 124),
        (killed(), 137),
        (KeyboardInterrupt(), 130),
        (StreamInterruptedError("x"), 130),
        (ConfigError("x"), 2),
        (StreamTruncatedError("x"), 1),
        (ProcessExitedError("x"), 1),
        (LeaseLostError("x"), 1),
        (StreamGuardError("x"), 1),
        (TimeoutError("somebody else's"), 1),
        (ValueError("x"), 1),
    ],
)
def test_exit_codes_are_those_of_gnu_timeout(error, code):
    """S3-11: timeouts 124, KILL needed 137, interrupted 130, ConfigError 2, others 1."""
    assert exit_code_for(error) == code


# -- the text ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decided", "text"),
    [
        (
            verdict(),
            "stream idle for 180 s (limit idle=180); no message was ever seen",
        ),
        (
            verdict(name="issue-7", messages=1, last_signal="Progress", last_message_age=180.04),
            (
                "stream 'issue-7' idle for 180 s (limit idle=180); "
                "1 message seen, the last (progress) 180 s ago"
            ),
        ),
        (
            verdict("liveness", 30, 30.5, messages=2, last_message_age=0.5, in_flight=("Bash",)),
            (
                "stream showed no sign of life for 30.5 s, not even a ping (limit liveness=30); "
                "2 messages seen, the last (message) 0.5 s ago, in flight: Bash"
            ),
        ),
        (
            verdict("first", 90, 90, messages=1, last_signal="SessionOpened", last_message_age=9),
            (
                "stream gave no first message in 90 s (limit first=90); "
                "1 message seen, the last (its session began) 9 s ago"
            ),
        ),
        (
            verdict("tools", 7200, 7200, work="Bash", in_flight=("Bash", "Task"), messages=5),
            (
                "stream waited 7,200 s for Bash to finish (limit tools=7200); "
                "5 messages seen, in flight: Bash, Task"
            ),
        ),
        (
            verdict("turn", 0.25, 0.2512),
            "stream did not end its turn in 0.251 s (limit turn=0.25); no message was ever seen",
        ),
        (
            verdict("total", 3600, 3600),
            "stream was not done in 3,600 s (limit total=3600); no message was ever seen",
        ),
        (
            verdict("exit_grace", 30, 30, messages=3),
            (
                "stream stayed open 30 s after its turn had ended (limit exit_grace=30); "
                "3 messages seen"
            ),
        ),
        (
            verdict("truncated", None, 12, messages=3),
            "stream ended before its turn did: no terminal message came; 3 messages seen",
        ),
    ],
)
def test_a_verdict_says_what_happened_in_one_sentence(decided, text):
    """T7: which limit, how long, what was in flight, what was last seen."""
    assert decided.reason == text
    assert str(StreamTimeoutError(verdict=decided)) == text


def test_an_error_without_a_verdict_says_what_it_was_told():
    """T12"""
    assert str(ConfigError("idle=0: use a positive number")) == "idle=0: use a positive number"
    assert ConfigError("x").verdict is None


CLOSED = "said. Teardown confirmed after 0 s: the source was closed, no disconnect given"
NOT_CLOSED = (
    "said. Teardown NOT confirmed after 0 s: the source was NOT closed, no disconnect given"
)


@pytest.mark.parametrize(
    ("teardown", "text"),
    [
        (
            Teardown(confirmed=True, disconnect="returned", elapsed=1.25),
            "said. Teardown confirmed after 1.25 s: disconnect returned",
        ),
        (
            Teardown(confirmed=False, disconnect="abandoned", elapsed=30),
            "said. Teardown NOT confirmed after 30 s: disconnect hung and was abandoned",
        ),
        (
            Teardown(confirmed=False, disconnect="raised"),
            "said. Teardown NOT confirmed after 0 s: disconnect raised",
        ),
        (Teardown(confirmed=True), CLOSED),
        (Teardown(confirmed=False), NOT_CLOSED),
    ],
)
def test_an_error_says_how_the_teardown_went(teardown, text):
    """D5: the person on call must know whether something is still alive."""
    error = IdleTimeoutError("said")
    error.teardown = teardown
    assert str(error) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (0, "0 s"),
        (0.000_003, "0.003 ms"),
        (0.000_518, "0.52 ms"),
        (0.005_18, "5.18 ms"),
        (0.0123, "12.3 ms"),
        (0.0999, "99.9 ms"),
        (0.1, "0.1 s"),
        (0.25, "0.25 s"),
        (9.99, "9.99 s"),
        (180.0, "180 s"),
        (7200, "7,200 s"),
        (7200.25, "7,200.2 s"),
    ],
)
def test_a_duration_reads_as_a_person_writes_it(duration, text):
    """Small ones in milliseconds: nobody counts the zeros of 0.000518 s."""
    assert in_words(duration) == text


# -- what they carry -----------------------------------------------------------------------------


async def test_a_verdict_carries_what_was_known(loop, form):
    """T7, O8: the record of that moment, wall time beside the loop's (T13)."""
    activity = Activity("issue-7", issue=7)
    disconnect = Disconnect()
    guard = idle_guard(
        60,
        liveness=30,
        first=90,
        disconnect=disconnect,
        activity=activity,
    )
    source = Script(
        *(opened("t-1"), say("a"), tool_start("1", "Bash"), tool_start("2")),
        *(pings(10, times=1), silence(500)),
    )
    error = (await take(source | guard, form)).error
    assert type(error) is LivenessTimeoutError
    decided = error.verdict
    assert (decided.limit, decided.window) == ("liveness", 30)
    assert loop.took(decided.elapsed, 30)
    assert loop.took(decided.last_message_age, 30)
    assert (decided.name, decided.labels) == ("issue-7", {"issue": 7})
    assert (decided.messages, decided.first_seen, decided.last_signal) == (5, True, "Liveness")
    assert decided.in_flight == ("Bash", "2")
    assert decided.token == "t-1"
    assert decided.at == disconnect.calls[0]
    assert abs((datetime.now(UTC) - decided.when).total_seconds()) < 60
    assert (error.activity, error.gave_up) == (activity, None)
    assert error.teardown.disconnect == "returned"


def test_a_verdict_is_immutable():
    """T7: decided once, and a value: equal ones are one in a set."""
    with pytest.raises(AttributeError):
        verdict().limit = "total"
    with pytest.raises(AttributeError):
        Teardown(confirmed=False).confirmed = True
    assert len({verdict(labels={"issue": 7}), verdict(labels={"issue": 7})}) == 1


async def test_the_streams_own_timeout_is_not_ours(loop, form):
    """T7: attribution is by identity."""
    theirs = TimeoutError("read timed out")
    taken = await take(Script(say("a"), fail(theirs)) | idle_guard(60), form)
    assert taken.error is theirs


@pytest.mark.parametrize(
    "again",
    [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy],
    ids=["pickle", "copy", "deepcopy"],
)
@pytest.mark.parametrize("form", ["bare", "hosted"])
def test_an_error_can_be_handed_to_another_process(again, form):
    """O8: with all it knows but the live activity, which stays in this one."""
    guard = idle_guard(60, activity=Activity("a", issue=7))
    line = message({"type": "system", "subtype": "init", "session_id": "s"})
    for source in (Script(say("a"), silence(500)), Script(line)):
        error = run_virtual(take, source | guard, form).error
        copied = again(error)
        assert type(copied) is type(error)
        assert isinstance(error, StreamGuardError)
        assert str(copied) == str(error)
        assert copied.verdict == error.verdict
        assert copied.teardown == error.teardown
        assert copied.activity is None
    plain = again(ConfigError("x"))
    assert (type(plain), str(plain), plain.verdict) == (ConfigError, "x", None)
