"""`Timeline`: no count is lost, few lines are made, and what is told early is enough after a crash."""

from __future__ import annotations

import json
import math
from collections import Counter
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamguard import Activity, Teardown, events, idle_guard, reconnecting_resume, session
from streamguard.errors import ScopeName, Verdict
from streamguard.evidence.lanes import LONG_SPANS, MARKS, NAMES, OTHERS, PER_AGE, SHORTEST, SPANS
from streamguard.evidence.stream_names import stream_of
from streamguard.evidence.timeline import STREAMS, Timeline
from streamguard.testing import Script, done, hang, opened, ping, say, silence, tool, tool_start
from tests.growth import MOST, growth_of
from tests.sizes import size
from tests.support import take


class Told:
    """What lines tell, as a reader has it: of each id the latest holds."""

    def __init__(self, lines):
        self.lines = json.loads(json.dumps(lines))  # as from a file
        self.stretches, self.spans, self.marks = {}, {}, []
        for line in self.lines:
            match line["kind"]:
                case "counts":
                    for stream, of, name, number, *rest in line["counts"]:
                        self.stretches[stream, number] = (of, name, *rest)
                case "span":
                    self.spans[line["stream"], line["id"]] = line
                case "mark":
                    self.marks.append(line)

    def counted(self, of="message"):
        """How many, by stream and name."""
        counter = Counter()
        for (stream, _), (sort, name, n, *_) in self.stretches.items():
            if sort == of:
                counter[stream, name] += n
        return counter

    def of(self, of):
        """The spans of a sort: name, from, to (None while it lasts)."""
        return [
            (span["name"], span["from_at"], span.get("at"))
            for span in self.spans.values()
            if span["of"] == of
        ]


def most_stretches(age):
    """How many stretches of one name a lane of that age can have."""
    doublings = max(0.0, math.log2(max(1.0, age / (SHORTEST * PER_AGE))))
    return PER_AGE + 2 + (PER_AGE / 2 + 1) * math.ceil(doublings)


def half(activity, at, window=60.0):
    return events.HalfTime(activity=activity, at=at, limit="idle", window=window)


def verdict(at, elapsed, **known):
    return Verdict(limit="idle", window=elapsed, elapsed=elapsed, at=at, **known)


# -- counts ----------------------------------------------------------------------------------------

# A busy machine is no failure, and the same examples everywhere.
ALWAYS = settings(
    deadline=None,
    derandomize=True,
    database=None,
    max_examples=size(dev=40, ci=200),
    suppress_health_check=[HealthCheck.too_slow],
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.sampled_from(["Progress", "Liveness", "take", "half", "begun", "ended", "turn"]),
        st.sampled_from([0.0, 0.001, 0.2, 1.0, 40.0, 5000.0]),
        st.integers(1, 9),
    ),
    max_size=120,
)


@ALWAYS
@given(STEPS)
def test_no_message_is_ever_lost(steps):
    """E5: whatever comes in between, and whenever lines are taken."""
    timeline, now, came, lines = Timeline(), 100.0, Counter(), []
    activities = {name: Activity(name) for name in "ab"}
    streams = {name: stream_of(activity) for name, activity in activities.items()}
    for name, what, pause, n in steps:
        now += pause
        activity = activities[name]
        match what:
            case "take":
                lines += timeline.take()
            case "half":
                timeline.event(half(activity, now))
            case "begun":
                timeline.event(events.StreamStarted(activity=activity, at=now))
            case "ended":
                timeline.event(events.StreamEnded(activity=activity, at=now, error=None))
            case "turn":
                timeline.event(events.TurnOver(activity=activity, at=now, outcome="success"))
            case kind:
                timeline.message(streams[name], kind, now, n)
                came[streams[name], kind] += n
    assert Told(lines + timeline.take(last=True)).counted() == came


@ALWAYS
@given(STEPS)
def test_what_was_told_when_a_stream_ended_is_complete(steps):
    """E2: without another word of its recorder, which may be dead."""
    timeline, now, came, lines = Timeline(), 0.0, Counter(), []
    activity = Activity("a")
    for _, what, pause, n in steps:
        now += pause
        if what == "take":
            lines += timeline.take()
        else:
            timeline.message(stream_of(activity), "Progress", now, n)
            came[stream_of(activity), "Progress"] += n
    timeline.event(events.StreamEnded(activity=activity, at=now, error=None))
    assert Told(lines + timeline.take()).counted() == came


@pytest.mark.parametrize("every", [0.0005, 0.5, 90.0], ids=["fast", "steady", "slow"])
@pytest.mark.parametrize("takes", ["each second", "after each message"])
def test_lines_are_few_however_many_messages_come(every, takes):
    """E5: their number grows with the logarithm of the run's age, and with nothing else."""
    timeline, entries, messages, taken_at = Timeline(), 0, 20_000, 0.0
    for i in range(messages):
        timeline.message("a", "Progress", i * every)
        if takes == "after each message" or i * every >= taken_at + 1:
            taken_at = i * every
            entries += sum(len(line["counts"]) for line in timeline.take())
    entries += sum(len(line["counts"]) for line in timeline.take(last=True))
    assert entries <= 3 * most_stretches(messages * every)


def test_a_stretch_says_when_its_first_and_its_last_message_came():
    """E5: so that a silence is drawn as long as it was."""
    timeline = Timeline()
    for at in (10.0, 10.1, 10.2, 17.5):
        timeline.message("a", "Progress", at)
    told = Told(timeline.take(last=True))
    assert [(n, first, last) for _, _, n, first, last, _ in told.stretches.values()] == [
        (3, 10.0, 10.2),
        (1, 17.5, 17.5),
    ]


def test_kinds_beyond_a_few_and_streams_beyond_many_are_counted_together():
    """E5: names come from outside, so their number has a bound."""
    timeline = Timeline()
    for i in range(NAMES + 10):
        timeline.message("a", f"Kind{i}", i * 0.001)
    for i in range(STREAMS + 10):
        timeline.message(f"stream-{i}", "Progress", 1.0)
    counted = Told(timeline.take(last=True)).counted()
    assert counted["a", OTHERS] == 10
    assert counted[OTHERS, "Progress"] == 11
    assert counted.total() == NAMES + 10 + STREAMS + 10


# -- spans and marks -------------------------------------------------------------------------------


def begin_and_end(timeline, activity, number, at, lasts):
    work = {"activity": activity, "id": f"t{number}", "name": "Bash"}
    timeline.event(events.WorkBegan(**work, at=at, background=False))
    timeline.event(events.WorkOver(**work, at=at + lasts, elapsed=lasts, outcome="finished"))


def test_a_stream_that_is_over_is_looked_at_no_more():
    """E5: a program that has had a thousand pays for the one that it has."""

    def one_after_another(n):
        def run():
            timeline = Timeline()
            for number in range(n):
                about = {"activity": Activity(f"s-{number}")}
                timeline.event(events.StreamStarted(**about, at=number))
                timeline.message(f"s-{number}", "Progress", number + 0.1)
                timeline.event(events.StreamEnded(**about, at=number + 0.5, error=None))
                timeline.take()

        return run

    assert growth_of(one_after_another, 100) <= MOST


def test_many_short_tools_are_counted_and_a_long_one_is_told():
    """E5: of 20,000 calls none is lost, and each that can be seen in the picture is in it."""
    timeline, activity, lines = Timeline(), Activity("a"), []
    for i in range(20_000):
        begin_and_end(timeline, activity, i, i * 1.0, 0.5)
        lines += timeline.take()
    begin_and_end(timeline, activity, "long", 20_000.0, 600.0)
    told = Told(lines + timeline.take(last=True))
    spans, stream = told.of("work"), stream_of(activity)
    assert ("Bash", 20_000, 20_600) in spans
    assert len(spans) == SPANS + 1
    assert len(spans) + told.counted("work")[stream, "Bash"] == 20_001
    busy = sum(rest[-1] for rest in told.stretches.values())
    assert busy == pytest.approx((20_000 - SPANS) * 0.5)
    assert len(told.stretches) <= most_stretches(20_600)


def test_long_spans_have_a_bound_too():
    """E5: a thousand subagents at once, for hours."""
    timeline, activity = Timeline(), Activity("a")
    for i in range(LONG_SPANS + 50):
        begin_and_end(timeline, activity, i, 0.0, 7200.0 + i)
    told = Told(timeline.take(last=True))
    assert len(told.of("work")) == LONG_SPANS
    assert told.counted("work").total() == 50


def test_what_is_in_flight_is_told_at_the_next_take_and_again_when_it_is_over():
    """E2: the first is what a crash leaves."""
    timeline, activity = Timeline(), Activity("a")
    work = {"activity": activity, "id": "t", "name": "Bash"}
    timeline.event(events.WorkBegan(**work, at=5.0, background=False))
    first = timeline.take()
    assert Told(first).of("work") == [("Bash", 5, None)]
    assert timeline.take() == []
    timeline.event(events.WorkOver(**work, at=9.0, elapsed=4.0, outcome="failed"))
    told = Told(first + timeline.take())
    assert told.of("work") == [("Bash", 5, 9)]
    assert [span["how"] for span in told.spans.values()] == ["failed"]


def test_a_burst_is_told_while_nothing_else_happens():
    """E2: at the second take after its last message, not when the next one comes."""
    timeline = Timeline()
    timeline.message("a", "Progress", 1000.0, 7)
    assert Told(timeline.take() + timeline.take()).counted().total() == 7


def test_many_marks_are_counted():
    """E5"""
    timeline, activity = Timeline(), Activity("a")
    for i in range(MARKS + 30):
        timeline.event(half(activity, i * 1000.0))
        timeline.message(stream_of(activity), "Progress", i * 1000.0 + 500)
    told = Told(timeline.take(last=True))
    assert len(told.marks) == MARKS
    assert told.counted("mark") == {(stream_of(activity), "HalfTime"): 30}


# -- silences --------------------------------------------------------------------------------------


def test_a_silence_is_known_from_its_half_time_on_and_ends_with_progress():
    """T1: a ping does not end it."""
    timeline, activity = Timeline(), Activity("a")
    stream = stream_of(activity)
    timeline.message(stream, "Progress", 10.0)
    timeline.event(half(activity, 40.0))
    timeline.message(stream, "Liveness", 45.0)
    timeline.message(stream, "Liveness", 46.0)
    first = timeline.take()
    assert Told(first).of("idle") == [("idle", 10, None)]
    timeline.message(stream, "Progress", 50.0)
    timeline.message(stream, "Progress", 50.1)
    told = Told(first + timeline.take(last=True))
    assert told.of("idle") == [("idle", 10, 50)]
    assert told.counted() == {(stream, "Progress"): 3, (stream, "Liveness"): 2}


def test_a_verdict_without_a_half_time_has_its_silence():
    """T7: its `elapsed` says since when."""
    timeline, activity = Timeline(), Activity("a")
    timeline.event(
        events.TimedOut(activity=activity, at=90.0, verdict=verdict(90.0, 60.0), enforced=True)
    )
    assert Told(timeline.take()).of("idle") == [("idle", 30, 90)]


# -- real streams ----------------------------------------------------------------------------------


def recorded(loop, make):
    """What a run in virtual time tells: every second, and at the end."""
    timeline = Timeline()

    async def main():
        taken = await make(timeline.event)
        assert taken is not None

    loop.run(main)
    return Told(timeline.take(last=True))


def test_a_stream_that_hangs(loop):
    """E5: tool, silence, verdict and teardown, with their instants."""

    async def run(observer):
        stream = Script(opened("t"), tool("Bash", 100), ping(), tool_start("e", "Edit"), hang())
        activity = Activity("issue-7")
        return await take(stream | idle_guard(60, tools=200, activity=activity, observer=observer))

    told = recorded(loop, run)
    [(_, began, ended)] = told.of("stream")
    assert [(name, at - began, to - began) for name, at, to in told.of("work")] == [
        ("Bash", 0, pytest.approx(100)),
        ("Edit", pytest.approx(100), pytest.approx(300)),
    ]
    [mark] = [mark for mark in told.marks if mark["of"] == "TimedOut"]
    assert (mark["limit"], mark["in_flight"], mark["enforced"]) == ("tools", ["Edit"], True)
    assert mark["since_at"] - began == pytest.approx(100)
    assert mark["text"].startswith("stream 'issue-7' waited 200 s for Edit to finish")
    [torn] = [mark for mark in told.marks if mark["of"] == "TornDown"]
    assert torn["confirmed"]
    assert [to for _, _, to in told.of("teardown")] == [ended]


def test_a_session_that_is_resumed(loop):
    """E5: each attempt, the pause between them, and how they ended."""

    @asynccontextmanager
    async def connect(point):
        yield Script(opened("t"), say("x"), hang() if point.attempt == 1 else done())

    async def run(observer):
        guard = idle_guard(60, observer=observer, activity=Activity("chat"))
        chat = session(connect, prompt="go") | guard | reconnecting_resume(backoff=(5,))
        return await take(chat, "hosted")

    told = recorded(loop, run)
    assert [name for name, *_ in told.of("attempt")] == ["1", "2"]
    [(_, paused, resumed)] = told.of("backoff")
    assert resumed - paused == pytest.approx(5)
    attempts = [span for span in told.spans.values() if span["of"] == "attempt"]
    assert [(span["opened"], span["how"]) for span in attempts] == [
        ("fresh", "failed"),
        ("resumed", "completed"),
    ]
    assert {"RetryScheduled", "Reconnected"} <= {mark["of"] for mark in told.marks}


def test_a_hold_says_until_when(loop):
    """T6: so that one that lapses unheard ends in the picture."""

    async def run(observer):
        activity = Activity("a")
        with activity.hold("permission", allowance=30):
            guard = idle_guard(60, activity=activity, observer=observer)
            return await take(Script(silence(20), say("x"), done()) | guard)

    told = recorded(loop, run)
    [hold] = [span for span in told.spans.values() if span["of"] == "hold"]
    assert hold["name"] == "permission"
    assert hold["until_at"] - hold["from_at"] == pytest.approx(30, abs=0.1)


def test_a_time_scope_is_a_lane_of_its_own():
    """P4: it belongs to no stream."""
    timeline = Timeline()
    path = (ScopeName("flow", "deploy"), ScopeName("step", "build"))
    limit = Verdict(
        limit="step", window=600, elapsed=600, at=700, scope=path, fired=path[1], effective=path[1]
    )
    timeline.event(events.ScopeTimedOut(verdict=limit))
    told = Told(timeline.take())
    assert {line["stream"] for line in told.lines} == {"flow 'deploy' > step 'build'"}
    assert told.of("scope") == [("step", 100, 700)]


@pytest.mark.parametrize("kind", events.Event.__subclasses__(), ids=lambda kind: kind.__name__)
def test_every_event_is_understood(kind):
    """E6: whatever happens, its lines are JSON, and hold no label (E3)."""
    known = {
        "activity": Activity("a", key="sk-secret"),
        "at": 5.0,
        "error": OSError(),
        "verdict": verdict(5.0, 3.0, labels={"key": "sk-secret"}),
        "teardown": Teardown(confirmed=True),
        "limit": "idle",
        "signals": ("TERM",),
        "survivors": (),
    }
    timeline = Timeline()
    words = dict.fromkeys(("id", "name", "reason", "error_class", "why", "type_name"), "word")
    fields = {name: (known | words).get(name, 1) for name in kind.__dataclass_fields__}
    timeline.event(kind(**fields))
    assert "sk-secret" not in json.dumps(timeline.take(last=True))
