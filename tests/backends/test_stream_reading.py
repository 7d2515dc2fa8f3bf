"""How a stream finds its reader, and that no reader ever disturbs it (S1, S2)."""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import re
import sys
import types
import weakref
from datetime import datetime

import pytest

from streamguard import IdleTimeoutError, StreamTruncatedError, ToolTimeoutError, idle_guard
from streamguard.backends import Backend, claude, stream_reading
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
SAME = Progress()


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
        (lambda _: 3, "of type int"),
        (lambda _: "Progress", "of type str"),
        (lambda _: "", "of type str"),
        (lambda _: b"", "of type bytes"),
        (lambda _: {}, "of type dict"),
        (lambda _: False, "of type bool"),
        (lambda _: Progress, "the class Progress itself"),
        (lambda _: [Progress(), "secret"], "of type str"),
        (lambda _: [None], "of type NoneType"),
        (lambda message: [message], "of type SimpleNamespace"),
        (lambda: None, "positional argument"),
        (generator_that_raises_midway, "midway"),
        (lambda _: itertools.repeat(Progress()), "returned more than 10000 signals"),
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


@pytest.mark.parametrize(
    "read",
    [
        lambda _: None,
        lambda _: SAME,
        lambda _: Progress(),
        lambda _: (Progress(),),
        lambda _: [Progress()],
    ],
)
def test_to_say_progress_is_to_say_nothing(report, read):
    """Cost: a reader that makes a Progress for each message costs what `None` costs."""
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


# -- types ---------------------------------------------------------------------------------------


def of_type(name, module="somebodys", base=object, **fields):
    """An instance of a class of its own."""
    one = type(name, (base,), {"__module__": module})()
    vars(one).update(fields)
    return one


@pytest.mark.parametrize("base", [object, dict, tuple], ids=lambda base: base.__name__)
def test_types_without_end_are_kept_up_to_a_bound(report, base):
    """S1: counted. Who makes a type for each message finds the first ones told, and none of them kept."""
    auto, before = Reading(None), stream_reading._shared.cache_info().misses
    made = weakref.WeakSet()
    for number in range(10_000):
        unknown = of_type("Made", base=base)
        made.add(type(unknown))
        assert auto.signals(unknown, report) == PROGRESS
        assert len(report.unknown) == min(number + 1, 64)
    assert stream_reading._shared.cache_info().misses - before == 64
    report.unknown.clear()
    del unknown
    gc.collect()
    assert (
        len(made) < 1000
    )  # those in the caches that all streams share, of which each has a bound
    assert auto.signals(INIT, report) == (SessionOpened("s-1"),)
    assert auto.signals(PING, report) == (Liveness(),)
    assert auto.signals(of_type("Other"), report) == PROGRESS
    assert report.failed == report.unknown == []


def test_two_classes_of_one_name_are_two(report):
    """S1: whose a message is, says its package, and no other class of that name."""
    auto, theirs = Reading(None), [of_type("StreamEvent"), of_type("StreamEvent")]
    ping = of_type("StreamEvent", "claude_agent_sdk.types", event={"type": "ping"})
    said = [auto.signals(each, report) for each in (theirs[0], ping, theirs[1], ping, theirs[0])]
    assert said == [PROGRESS, (Liveness(),), PROGRESS, (Liveness(),), PROGRESS]
    assert report.unknown == [type(each) for each in theirs]


def test_a_subclass_is_read_as_what_it_is_of(report):
    """S1: whose base is nobody's is another type that nobody knows."""
    auto, unknown = Reading(None), of_type("Base")
    ping = of_type("StreamEvent", "claude_agent_sdk.types", event={"type": "ping"})
    ours = of_type("Mine", base=type(ping), event={"type": "ping"})
    theirs = of_type("Derived", base=type(unknown))
    said = [auto.signals(each, report) for each in (unknown, ours, theirs, ping)]
    assert said == [PROGRESS, (Liveness(),), PROGRESS, (Liveness(),)]
    assert report.unknown == [type(unknown), type(theirs)]


def test_a_type_that_sometimes_speaks_is_read_each_time(report):
    """S1: what one message of it has said is no word on the next."""
    auto = Reading(None)
    event = of_type("StreamEvent", "claude_agent_sdk.types")
    for kind, said in [("x", PROGRESS), ("ping", (Liveness(),)), ("x", PROGRESS)] * 2:
        event.event = {"type": kind}
        assert auto.signals(event, report) == said
        assert auto.plain is None
    auto.signals("unknown", report)
    assert auto.plain is str
    assert auto.signals(event, report) == PROGRESS


def test_a_type_in_the_place_of_one_that_is_gone_is_no_acquaintance(report):
    """S1: types are told apart by what they are, not by where they lie."""
    for number in range(3000):
        module = "claude_agent_sdk.types" if number % 2 else "somebodys"
        one = of_type("StreamEvent", module, event={"type": "ping"})
        assert Reading(None).signals(one, report) == ((Liveness(),) if number % 2 else PROGRESS)
    assert len(report.unknown) == 1500


def test_types_that_take_turns_are_told_once_each(report):
    """S1: and the latest is the plain one."""
    auto = Reading(None)
    for one in ["a", 1, "b", 2, 3.0] * 3:
        assert auto.signals(one, report) is PROGRESS
        assert auto.plain is type(one)
    assert report.unknown == [str, int, float]


def test_where_each_message_is_to_be_seen_no_type_is_plain(report):
    """Whoever records, or knows replays, is shown every one."""
    auto = Reading(None)
    auto.signals("a", report)
    auto.read_all()
    for one in ("a", "b", 1, 2):
        auto.signals(one, report)
        assert auto.plain not in {str, int}
    assert report.unknown == [str, int]


def test_what_streams_have_in_common_is_there_once(report):
    """Cost: an idle stream that has met a message or two owns nothing beside itself."""
    readings = [Reading(None), Reading(None)]
    for each in readings:
        for one in (PING, INIT, "a", 3):
            each.signals(one, report)
    [owned, also_owned] = [gc.get_referents(each) for each in readings]
    assert all(any(mine is theirs for theirs in also_owned) for mine in owned)


def test_a_stream_whose_reader_is_given_keeps_no_types(report):
    """Cost: and holds on to nothing of the user's beyond its own end."""

    def read(_message):
        return Liveness()

    gone = weakref.ref(read)
    given = reading(read)
    assert given.signals("a", report) == given.signals(1, report) == (Liveness(),)
    del read, given
    gc.collect()
    assert gone() is None


class Falsy:
    """A reader that is nothing to `if`."""

    def __bool__(self):
        return False

    def __call__(self, _message):
        return Liveness()


def test_a_reader_that_is_false_reads_all_the_same(report):
    assert reading(Falsy()).signals("a", report) == (Liveness(),)
