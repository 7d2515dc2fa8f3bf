"""Single requirements of the seeds that are no case of their own tests, by their ids."""

from __future__ import annotations

import anyio
import pytest
from prometheus_client import CollectorRegistry

from streamguard import (
    CircuitBreaker,
    CircuitEscalatedError,
    CircuitOpenError,
    DeadlineExceededError,
    IdleTimeoutError,
    StreamTruncatedError,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.backends import Backend as Reader
from streamguard.events import AttemptEnded, StreamEnded
from streamguard.observers import PrometheusObserver
from streamguard.testing import Script, done, fail, hang, say
from tests.sessions.backend import Backend
from tests.support import Events

# -- P3: the circuit breaker ---------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail_as_fast_as_it_lets(breaker: CircuitBreaker, clock: Clock) -> list[float]:
    """Ask, fail, and ask again as soon as that is allowed: the times of the failures."""
    times: list[float] = []
    while True:
        try:
            permit = breaker.try_acquire()
        except CircuitEscalatedError:
            return times
        except CircuitOpenError as error:
            clock.now += error.retry_after
        else:
            permit.failed()
            times.append(clock.now)


def test_p3_quick_failures_of_the_probe_do_not_escalate_within_minutes():
    """Each pause is twice the one before: escalated after 7.5 minutes, not after one."""
    clock = Clock()
    times = fail_as_fast_as_it_lets(CircuitBreaker("api", clock=clock), clock)
    assert times == [0, 0, 0, 30, 90, 210, 450]


def test_p3_s2_09_the_seeds_own_numbers_are_there_for_who_writes_them():
    """Three failures, then two probes 30 s apart: escalated at the fifth failure."""
    clock = Clock()
    breaker = CircuitBreaker("api", clock=clock, pause_growth=1, escalate_after=3)
    assert fail_as_fast_as_it_lets(breaker, clock) == [0, 0, 0, 30, 60]


async def test_p3_five_sessions_whose_probes_fail_fast_survive_two_minutes_of_outage(loop):
    """A backend that refuses at once, and is back after two minutes: nobody needs a person."""
    began = anyio.current_time()
    breaker = CircuitBreaker("api", clock=anyio.current_time)
    ends = []

    class Down(Backend):
        def _connection(self, client, point):
            if anyio.current_time() - began < 120:
                raise ConnectionRefusedError("down")
            return super()._connection(client, point)

    async def one():
        backend = Down([Script(say("a"), done())])
        resume = reconnecting_resume(breaker=breaker)
        async with session(backend.open, prompt="x") | idle_guard(60) | resume as chat:
            ends.append(len([message async for message in chat]))

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(one)
    assert ends == [2] * 5
    assert breaker.status == "closed"


# -- S4-15: completed, aborted, cancelled, timeout, idle_watchdog -----------------------------------


class OwnError(Exception):
    """The consumer's own."""


READER = Reader("mine", lambda message: message.signals, always_ends_turns=True)

# How it ends; what the stream's end says: outcome and error; the same as a metric.
ENDS = {
    "completed": ("completed", None, "completed"),
    "aborted": ("failed", ConnectionError, "failed"),
    "truncated": ("failed", StreamTruncatedError, "failed"),
    "cancelled": ("cancelled", None, "cancelled"),
    "timeout": ("failed", DeadlineExceededError, "timeout"),
    "idle_watchdog": ("failed", IdleTimeoutError, "timeout"),
    "break": ("left", None, "left"),
    "own error": ("left", None, "left"),
}
SCRIPTS = {
    "completed": Script(say("a"), done()),
    "aborted": Script(say("a"), fail(ConnectionError("killed"))),
    "truncated": Script(say("a")),
}


async def to_its_end(how, source, form="block"):
    """Take `source` until it ends as `how` says."""
    messages = None

    async def consume(stream):
        async for _ in stream:
            if how == "break":
                break
            if how == "own error":
                raise OwnError

    within = 10 if how == "cancelled" else float("inf")
    with anyio.move_on_after(within):
        if form == "bare":
            await consume(source)
        else:
            async with source as messages:
                await consume(messages)


def knobs_for(how):
    return {"total": 30} if how == "timeout" else {}


@pytest.mark.filterwarnings("ignore:idle=50 can never be reached")
@pytest.mark.parametrize("how", ENDS)
def test_s4_15_the_ends_of_a_stream_are_told_apart(loop, form, how):
    """By `StreamEnded.outcome`, its error and the verdict; by the metric, too."""
    outcome, error, metric = ENDS[how]
    events, registry = Events(), CollectorRegistry()
    metrics = PrometheusObserver(registry)

    async def main():
        guard = idle_guard(50, observer=events, read=READER, **knobs_for(how))
        stream = (
            SCRIPTS.get(how, Script(say("a"), hang())) | guard | idle_guard(None, observer=metrics)
        )
        if error is not None:
            with pytest.raises(error):
                await to_its_end(how, stream, form)
        elif how == "own error":
            with pytest.raises(OwnError):
                await to_its_end(how, stream, form)
        else:
            await to_its_end(how, stream, form)
        await (
            stream.aclose()
        )  # after a bare `break`, Python tells nobody until the collector comes

    loop.run(main)
    (ended,) = events.of(StreamEnded)
    assert ended.outcome == outcome
    if error is not None:
        assert type(ended.error) is error
    limits = {"timeout": "total", "idle_watchdog": "idle", "truncated": "truncated"}
    verdict = getattr(ended.error, "verdict", None)
    assert (verdict.limit if verdict else None) == limits.get(how)
    counted = {"stream": "other", "outcome": metric}
    assert registry.get_sample_value("streamguard_streams_ended_total", counted) == 1


@pytest.mark.filterwarnings("ignore:idle=50 can never be reached")
@pytest.mark.parametrize("how", ENDS)
def test_s4_15_the_ends_of_a_session_are_told_apart(loop, how):
    """Of a session's attempt and of its stream alike, with no retry."""
    outcome, error, metric = ENDS[how]
    events, registry = Events(), CollectorRegistry()
    metrics = PrometheusObserver(registry)

    async def main():
        backend = Backend([SCRIPTS.get(how, Script(say("a"), hang()))])
        guard = idle_guard(50, observer=events, read=READER, **knobs_for(how))
        guard |= idle_guard(None, observer=metrics)
        chat = session(backend.open, prompt="x") | guard | reconnecting_resume(retries=0)
        expected = error or (OwnError if how == "own error" else None)
        if expected is None:
            await to_its_end(how, chat)
        else:
            with pytest.raises(expected):
                await to_its_end(how, chat)
        backend.check()

    loop.run(main)
    ended = (*events.of(StreamEnded), *events.of(AttemptEnded))
    assert [event.outcome for event in ended] == [outcome] * 2
    if error is not None:
        assert [type(event.error) for event in ended] == [error] * 2
    counted = {"stream": "other", "outcome": metric}
    assert registry.get_sample_value("streamguard_streams_ended_total", counted) == 1
