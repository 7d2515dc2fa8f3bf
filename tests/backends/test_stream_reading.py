"""How a stream finds its reader, and that no reader ever disturbs it (S1, S2)."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import sys
import types
from datetime import datetime

import pytest

from streamguard import IdleTimeoutError, StreamTruncatedError, ToolTimeoutError, idle_guard
from streamguard.backends import Backend, claude
from streamguard.backends.stream_reading import PROGRESS, Reading
from streamguard.events import ReaderFailed, UnknownMessage
from streamguard.signals import (
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)
from streamguard.testing import Script, done, hang, message, repeat, run_virtual, say, silence
from tests.support import Events, take

INIT = {"type": "system", "subtype": "init", "session_id": "s-1"}
TEXT = {"type": "assistant", "session_id": "s-1", "message": {"content": []}}
PING = {"type": "keep_alive"}
RESULT = {"type": "result", "subtype": "success", "session_id": "s-1", "is_error": False}


class Report:
    """What a reading noticed."""

    def __init__(self):
        self.unknown = []
        self.failed = []

    def unknown_message(self, kind):
        self.unknown.append(kind)

    def reader_failed(self, kind, error):
        self.failed.append((kind, error))


@pytest.fixture
def report():
    return Report()


def reading(read):
    """The reading of a stream whose reader was given."""
    return Reading(Backend("given", read))


# -- unknown messages ----------------------------------------------------------------------------


def test_an_unknown_type_is_progress_and_reported_once(report):
    """S1: per type."""
    auto = Reading(None)
    assert [auto.signals(m, report) for m in ("a", "b", 3, 4, "c", 5.0)] == [PROGRESS] * 6
    assert report.unknown == [str, int, float]
    assert report.failed == []


def test_unknown_types_are_plain_but_lines_are_looked_at(report):
    """S1: a dict or a tuple may be recognised later, another type never."""
    auto = Reading(None)
    for unknown in ("a", {"type": "whatever"}, ("messages", {}), {}):
        assert auto.signals(unknown, report) == PROGRESS
    assert auto.plain is str
    assert report.unknown == [str, dict, tuple]


async def test_unknown_messages_are_told_once_per_stream(loop, form):
    """S1: as an event, with the type's full name."""
    events = Events()
    source = Script(*[message(types.SimpleNamespace(secret=1))] * 3, message("a"))
    await take(source | idle_guard(60, observer=events), form)
    told = [event.type_name for event in events.of(UnknownMessage)]
    assert told == ["types.SimpleNamespace", "builtins.str"]


# -- whose stream it is --------------------------------------------------------------------------


def test_a_stream_of_lines_is_recognised_late(report):
    """S1: the first lines say nothing of their maker; what follows is read as its own."""
    auto = Reading(None)
    assert auto.signals(PING, report) == PROGRESS
    assert auto.backend is None
    assert auto.signals(INIT, report) == (SessionOpened("s-1"),)
    assert auto.backend.name == "claude"
    assert auto.signals(PING, report) == (Liveness(),)


def test_of_one_kind_of_message_the_backend_is_found_once(report, monkeypatch):
    """S1: a stream of lines is one backend's, whatever its later lines look like."""
    asked = []

    def find(line):
        asked.append(line)
        return Backend("claude", claude.read) if line == INIT else None

    monkeypatch.setattr("streamguard.backends.find", find)
    auto = Reading(None)
    said = [auto.signals(line, report) for line in ({"x": 1}, INIT, PING, {"x": 1}, TEXT)]
    assert asked == [{"x": 1}, INIT]
    assert said[2] == (Liveness(),)


def test_that_a_session_is_still_the_same_is_no_news(report):
    """A message that names it again is plain progress; one that comes back to it is not."""
    twice = {token: (SessionOpened(token), Progress()) for token in "ab"}
    reset = SessionOpened("a", resumable=False)
    script = [*"aab", reset, *"bb"]
    auto = reading(lambda m: twice.get(m, m))
    said = [auto.signals(m, report) for m in script]
    a, b = twice["a"], twice["b"]
    assert said == [a, PROGRESS, b, (reset,), b, PROGRESS]


def test_a_signal_among_a_backends_messages_does_not_make_it_another_stream(report):
    """S1, T10: a relay that adds a keep-alive of its own does not hide a truncation."""
    auto = Reading(None)
    assert auto.signals(Liveness(), report) == (Liveness(),)
    auto.signals(INIT, report)
    assert auto.backend.always_ends_turns
    assert auto.signals(Liveness(), report) == (Liveness(),)
    assert auto.backend.always_ends_turns


async def test_late_recognition_pauses_for_tools(loop, form):
    """S1: end to end, through unknown lines first."""
    use = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}
    start = {**TEXT, "message": {"content": [use]}}
    source = Script(message(PING), message({"no": "type"}), message(start), hang())
    taken = await take(source | idle_guard(60, tools=200), form)
    assert type(taken.error) is ToolTimeoutError
    assert loop.took(taken.elapsed, 200)


@pytest.mark.parametrize(
    "written", ["claude", claude, claude.read], ids=["name", "module", "read"]
)
async def test_a_reader_can_be_named(loop, form, written):
    """S1: by its backend's name, its module or itself, with the backend's habits (T10)."""
    # Nothing about this line gives its maker away.
    source = Script(message(PING), silence(40), message(PING), hang())
    taken = await take(source | idle_guard(60, read=written), form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
    taken = await take(Script(message(PING)) | idle_guard(60, read=written), form)
    assert isinstance(taken.error, StreamTruncatedError)


async def test_any_function_of_a_message_can_read(loop, form):
    """S1: a signal, several, or None for progress."""

    def read(line):
        match line.split():
            case ["start", name]:
                return WorkStarted(name, name)
            case ["end", name]:
                return [WorkFinished(name), Progress()]
            case ["ping"]:
                return Liveness()
            case ["bye"]:
                return (TurnEnded(),)
        return None

    events = Events()
    guard = idle_guard(60, exit_grace=20, read=read, observer=events)
    wait = silence(50)
    source = Script(
        *(message("start make"), wait, wait, message("end make"), wait, message("hello")),
        *(wait, message("bye"), hang()),
    )
    taken = await take(source | guard, form)
    assert taken.error is None
    assert loop.took(taken.elapsed, 200 + 20)
    pinged = Script(message("x"), repeat(wait, message("ping")))
    taken = await take(pinged | guard, form)
    assert type(taken.error) is IdleTimeoutError
    assert loop.took(taken.elapsed, 60)
    assert not events.of(UnknownMessage)
    assert not events.of(ReaderFailed)


def test_a_module_of_ones_own_can_read(monkeypatch):
    """S1: with `ALWAYS_ENDS_TURNS` in it, if it does."""
    module = types.ModuleType("mine")
    module.read = lambda message: TurnEnded() if message == "end" else None
    module.ALWAYS_ENDS_TURNS = True
    monkeypatch.setitem(sys.modules, "mine", module)
    guard = idle_guard(60, read=module)
    assert run_virtual(take, Script(message("a"), message("end")) | guard).error is None
    taken = run_virtual(take, Script(message("a")) | guard)
    assert isinstance(taken.error, StreamTruncatedError)


# -- readers that misbehave ----------------------------------------------------------------------


def test_a_reader_that_raises_is_reported_once(report):
    """S2: and its message counts as progress."""
    error = KeyError("content")

    def read(message):
        if message == "bad":
            raise error
        return Liveness()

    given = reading(read)
    said = [given.signals(m, report) for m in ("bad", "ok", "bad")]
    assert said == [PROGRESS, (Liveness(),), PROGRESS]
    assert report.failed == [(str, error)]
    assert report.unknown == []


def generator_that_raises_midway(_message):
    yield WorkStarted("1", "Bash")
    raise ValueError("midway")


@pytest.mark.parametrize(
    ("read", "what"),
    [
        (lambda _: 3, "not int"),
        (lambda _: "Progress", "not str"),
        (lambda _: "", "not str"),
        (lambda _: b"", "not bytes"),
        (lambda _: {}, "not dict"),
        (lambda _: False, "not bool"),
        (lambda _: Progress, "not Progress itself"),
        (lambda _: [Progress(), "secret"], "not str"),
        (lambda _: [None], "not NoneType"),
        (lambda message: [message], "not SimpleNamespace"),
        (lambda: None, "positional argument"),
        (generator_that_raises_midway, "midway"),
        (lambda _: itertools.repeat(Progress()), "not more than 10000 signals"),
        (lambda _: WorkStarted([]), "unhashable"),
        (lambda _: WorkStarted("1", {}), "unhashable"),
        (lambda _: WorkFinished([]), "unhashable"),
        (lambda _: Waiting([], "human"), "unhashable"),
        (lambda _: Waiting("1", "human", datetime.now()), "must be an aware datetime"),  # noqa: DTZ005 - the point
        (lambda _: WaitEnded({}), "unhashable"),
        (lambda _: Usage(None), "must be a mapping, got NoneType"),
    ],
)
def test_junk_from_a_reader_is_its_failure(report, read, what):
    """S2: half of what it said is not taken either, nor is it quoted (E3)."""
    given = reading(read)
    assert given.signals(types.SimpleNamespace(text="secret"), report) == PROGRESS
    [(kind, error)] = report.failed
    assert kind is types.SimpleNamespace
    assert what in str(error)
    assert "secret" not in str(error)


@pytest.mark.parametrize("nothing", [(), [], iter(())])
def test_a_reader_may_say_that_a_message_says_nothing(report, nothing):
    """S2: that is no failure, and no progress either."""
    assert reading(lambda _: nothing).signals("x", report) == ()
    assert report.failed == []


def test_a_reader_may_be_a_generator(report):
    """S1: an iterable is an iterable."""

    def read(_message):
        yield SessionOpened("t")
        yield Progress()

    assert reading(read).signals("x", report) == (SessionOpened("t"), Progress())


def test_a_line_that_cannot_be_looked_at(report):
    """S2: what finds the reader must not disturb the stream either."""

    class Line(dict):
        def get(self, *_):
            raise RuntimeError("a lazy line whose file is gone")

    assert Reading(None).signals(Line(), report) == PROGRESS
    [(kind, _error)] = report.failed
    assert kind is Line


def test_what_stops_the_program_is_not_caught(report):
    """S2: KeyboardInterrupt is nobody's failure."""

    def read(_message):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reading(read).signals("x", report)


class OfSomebodysOwn(BaseException):
    """Not an Exception, and nobody's way to end a program."""


def iterator_that_raises(error):
    yield Liveness()
    raise error


@pytest.mark.parametrize(
    "error",
    [
        OfSomebodysOwn(),
        asyncio.CancelledError(),
        GeneratorExit(),
        BaseExceptionGroup("two", [OfSomebodysOwn()]),
        StopAsyncIteration(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("where", ["reader", "iteration"])
async def test_whatever_a_reader_raises_stays_out_of_the_stream(loop, form, error, where):
    """S2: also what is no Exception, or looks like a cancellation."""

    def read(_message):
        if where == "iteration":
            return iterator_that_raises(error)
        raise error

    events = Events()
    guard = idle_guard(60, read=read, observer=events)
    taken = await take(Script(*[say("x"), silence(40)] * 4) | guard, form)
    assert taken.error is None
    assert len(taken.messages) == 4
    [told] = events.of(ReaderFailed)
    assert told.error is error or isinstance(told.error, RuntimeError)  # PEP 479


@pytest.mark.parametrize("many", [1, 3, 9999])
def test_a_reader_may_say_a_lot(report, many):
    """S2: the bound is for what has no end."""
    given = reading(lambda _: (WorkStarted(str(number)) for number in range(many)))
    assert len(given.signals("x", report)) == many
    assert report.failed == []


@pytest.mark.parametrize("progress", [None, Progress(), Progress])
def test_to_say_progress_is_to_say_nothing(report, progress):
    """Cost: a reader that makes a Progress for each message costs what `None` costs."""
    read = (lambda _: Progress()) if progress is Progress else (lambda _: progress)
    assert reading(read).signals("x", report) is PROGRESS


def test_the_log_says_which_line_of_a_reader_failed_and_where(loop, caplog):
    """E3: most readers fail in somebody else's code, json's above all."""

    def read(_message):
        return json.loads("no json")

    async def main():
        await take(Script(say("x"), done()) | idle_guard(60, read=read))

    loop.run(main)
    line = read.__code__.co_firstlineno + 1
    [told] = [
        record.getMessage() for record in caplog.records if "reader raised" in record.message
    ]
    assert re.search(
        rf"JSONDecodeError \(\S*test_stream_reading\.py:{line}, in \S*decoder\.py:\d+\) on", told
    )


async def test_a_failing_reader_does_not_end_the_stream(loop, form):
    """S2: every message is delivered, counts as progress, and one event tells."""

    def read(_message):
        raise LookupError("no such field")

    events = Events()
    guard = idle_guard(60, read=read, observer=events)
    source = Script(*[say("x"), silence(40)] * 4, done())
    taken = await take(source | guard, form)
    assert taken.error is None
    assert len(taken.messages) == 5
    [told] = events.of(ReaderFailed)
    assert told.type_name == "Said"
    assert isinstance(told.error, LookupError)
