"""F2: who acts for a session has a lease; past its end nothing is delivered, opened or left at work."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from streamguard import (
    Backoff,
    IdleTimeoutError,
    LeaseLostError,
    Recorder,
    ResumePoint,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.errors import exit_code_for
from streamguard.events import TimedOut
from streamguard.retry import ErrorClass, classify
from streamguard.testing import Script, done, fail, hang, opened, say, silence
from tests.sessions.backend import Backend
from tests.support import Events

WINDOW = 10.0
LOST = ConnectionError("reset")


def limits_told(events: Events) -> list[str]:
    return [event.verdict.limit for event in events if isinstance(event, TimedOut)]


@dataclass
class Held:
    """A lease on the loop's own clock."""

    key: str = ""
    until: float = 0.0
    since: float = 0.0
    sessions: list[Any] = field(default_factory=list)
    asks: int = 0
    ends: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = anyio.current_time()
        self.renew()

    def spent(self) -> float:
        return anyio.current_time() - self.began

    def renew(self, window: float = WINDOW) -> None:
        self.since = anyio.current_time()
        self.until = self.since + window

    def take_away(self) -> None:
        self.since = anyio.current_time() - 1
        self.until = anyio.current_time()
        for each in self.sessions:
            each.look()

    @property
    def point(self) -> ResumePoint:
        return ResumePoint(prompt="go", custody=self)

    @property
    def is_over(self) -> bool:
        return anyio.current_time() >= self.until

    def term(self, now: float) -> tuple[float, float]:
        return self.since, self.until

    def begin(self, session: Any) -> None:
        self.sessions.append(session)

    def asked(self) -> None:
        self.asks += 1

    def keep(self, tree: Any) -> Any:
        return lambda: None

    def end(self, *, is_gone: bool) -> None:
        self.ends.append(is_gone)


class Seen:
    """What a consumer got, and when it was cut."""

    def __init__(self, backend: Backend, lease: Held, *pipe: Any) -> None:
        self.backend, self.lease, self.events = backend, lease, Events()
        self.pipe: Any = idle_guard(100, observer=self.events)
        for operator in pipe:
            self.pipe = self.pipe | operator
        self.texts: list[str] = []

    async def run(self, busy: float = 0.0, again: float | None = None) -> BaseException | None:
        try:
            async with session(self.backend.open, point=self.lease.point) | self.pipe as chat:
                async for message in chat:
                    self.texts.append(getattr(message, "text", ""))
                    await anyio.sleep(busy)
                if again is not None:
                    await anyio.sleep(again)
        except Exception as error:
            return error
        return None

    def check_torn_down(self, error: BaseException | None) -> None:
        """Once told, and the backend was ended for certain."""
        assert type(error) is LeaseLostError, error
        assert error.verdict is not None
        assert error.verdict.limit == "lease"
        assert limits_told(self.events) == ["lease"]
        assert self.backend.owners == 0
        assert self.backend.opened == self.backend.closed
        assert self.lease.ends == [True]
        self.backend.check()


async def test_lost_while_a_message_is_waited_for(loop):
    """F2: the pull is cut at the lease's end, the client is disconnected, and the reason told."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), hang())]), lease)
    error = await seen.run()
    assert lease.spent() == WINDOW
    seen.check_torn_down(error)
    assert seen.texts == ["a"]
    assert seen.backend.clients[0].disconnected == 1
    assert error.teardown.confirmed
    assert not isinstance(error, TimeoutError)
    assert str(error).startswith(
        "stream-1 lost its lease 10 s after that was last renewed (limit lease=10); "
    )


async def test_lost_while_the_consumer_is_busy(loop):
    """F2: a consumer that works for an hour keeps no backend."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), say("b"), done())]), lease)
    error = await seen.run(busy=3600)
    assert lease.spent() < WINDOW + 1
    seen.check_torn_down(error)
    assert seen.texts == ["a"]
    assert seen.backend.clients[0].disconnected == 1


async def test_lost_between_two_turns(loop):
    """F2: a connection that rests is closed and disconnected, too."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), done())]), lease)
    error = await seen.run(again=3600)
    assert lease.spent() < WINDOW + 1
    seen.check_torn_down(error)
    assert seen.backend.clients[0].disconnected == 1


async def test_lost_in_backoff(loop):
    """F2: nobody waits for an attempt that may not be made."""
    lease = Held()
    seen = Seen(
        Backend([Script(opened("s"), say("a"), fail(LOST))]),
        lease,
        reconnecting_resume(policy=RetryPolicy(network=Backoff(3, (300,)))),
    )
    error = await seen.run()
    assert lease.spent() < WINDOW + 1
    assert isinstance(error, LeaseLostError)
    assert len(seen.backend.points) == 1
    assert limits_told(seen.events) == ["lease"]
    assert error.verdict is not None


async def test_lost_while_what_has_failed_is_closed(loop):
    """F1: a verdict there, too, though no attempt is left that it could be one on."""
    lease = Held()

    async def closing(_: Any) -> None:
        await anyio.sleep(3)

    seen = Seen(
        Backend([Script(opened("s"), say("a"), silence(8), fail(LOST))], closing=closing),
        lease,
        reconnecting_resume(policy=RetryPolicy(network=Backoff(3, (0,)))),
    )
    error = await seen.run()
    assert isinstance(error, LeaseLostError)
    assert error.verdict is not None
    assert error.verdict.limit == "lease"
    assert limits_told(seen.events) == ["lease"]
    assert len(seen.backend.points) == 1
    assert lease.ends == [True]


async def test_lost_in_backoff_that_nobody_waits_for(loop):
    """F2: the consumer has cancelled its pull and does something else."""
    lease, events = Held(), Events()
    backend = Backend([Script(opened("s"), say("a"), fail(LOST))])
    pipe = idle_guard(100, observer=events) | reconnecting_resume(
        policy=RetryPolicy(network=Backoff(3, (300,)))
    )
    with pytest.raises(LeaseLostError):
        async with session(backend.open, point=lease.point) | pipe as chat:
            turn = aiter(chat)
            await anext(turn)
            with anyio.move_on_after(1):
                await anext(turn)
            await anyio.sleep(3600)
    assert lease.spent() < WINDOW + 1
    assert limits_told(events) == ["lease"]


async def test_lost_while_a_cancelled_pull_goes_on(loop):
    """F2: the backend is still asked, though its consumer has turned to something else."""
    lease, events = Held(), Events()
    backend = Backend([Script(say("a"), hang())])
    with pytest.raises(LeaseLostError) as caught:
        async with session(backend.open, point=lease.point) | idle_guard(
            100, observer=events
        ) as chat:
            turn = aiter(chat)
            await anext(turn)
            with anyio.move_on_after(1):
                await anext(turn)
            await anyio.sleep(3600)
    assert lease.spent() < WINDOW + 1
    assert limits_told(events) == ["lease"]
    assert caught.value.verdict.limit == "lease"
    assert backend.owners == 0


async def test_no_message_is_handed_over_past_its_end(loop):
    """F2: what came while the loop did not run is not delivered, though the pull was not cut."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), silence(5), say("b"), say("c"), done())]), lease)
    async with anyio.create_task_group() as group:
        group.start_soon(_at, 5, lease.take_away_silently)
        error = await seen.run()
        group.cancel_scope.cancel()
    assert seen.texts == ["a"]
    seen.check_torn_down(error)


def _silently(self: Held) -> None:
    """As after a stop: the clock has gone on, and nobody was woken for it."""
    self.since = anyio.current_time() - WINDOW
    self.until = anyio.current_time()


Held.take_away_silently = _silently


async def _at(when: float, what: Any) -> None:
    await anyio.sleep(when)
    what()


async def test_the_point_does_not_count_what_was_not_handed_over(loop):
    """F2, F3: nobody got the message, so the next worker asks for it again."""
    lease = Held()
    backend = Backend([Script(say("a"), silence(5), say("b"), done())])
    async with session(backend.open, point=lease.point) | idle_guard(100) as chat:
        turn = aiter(chat)
        await anext(turn)
        async with anyio.create_task_group() as group:
            group.start_soon(_at, 5, lease.take_away_silently)
            with pytest.raises(LeaseLostError):
                await anext(turn)
        assert chat.point.delivered == 1
        assert chat.point.committed == 1


async def test_nothing_is_opened_past_its_end(loop):
    """F2: neither the first attempt nor another one."""
    lease = Held()
    backend = Backend([Script(say("a"), done())])
    lease.take_away()
    error = await Seen(backend, lease).run()
    assert isinstance(error, LeaseLostError)
    assert backend.points == []


async def test_it_goes_on_while_it_is_renewed(loop):
    """F1: two clocks. A worker that lives says nothing of the stream, nor a silent stream of it."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), hang())]), lease)
    async with anyio.create_task_group() as group:

        async def beat() -> None:
            while True:
                await anyio.sleep(3)
                lease.renew()

        group.start_soon(beat)
        error = await seen.run()
        group.cancel_scope.cancel()
    assert isinstance(error, IdleTimeoutError)
    assert lease.spent() == 100


async def test_it_is_taken_away_before_its_time(loop):
    """F2: a store that says so ends it at once."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), hang())]), lease)
    async with anyio.create_task_group() as group:
        group.start_soon(_at, 4, lease.take_away)
        error = await seen.run()
    assert lease.spent() == 4
    seen.check_torn_down(error)


async def test_taken_away_from_a_busy_consumer(loop):
    lease = Held()
    seen = Seen(Backend([Script(say("a"), say("b"), done())]), lease)
    async with anyio.create_task_group() as group:
        group.start_soon(_at, 4, lease.take_away)
        error = await seen.run(busy=3600)
    assert lease.spent() < 5
    seen.check_torn_down(error)


async def test_a_tie_with_a_message(loop):
    """F2: the message does not win, as it does against every other limit (T3)."""
    lease = Held()
    seen = Seen(Backend([Script(say("a"), silence(WINDOW), say("b"), done())]), lease)
    error = await seen.run()
    assert seen.texts == ["a"]
    seen.check_torn_down(error)


async def test_a_tie_with_idle(loop):
    """F2: of two limits the lease is named, and nothing is tried again."""
    lease = Held()
    seen = Seen(Backend([Script(hang())]), lease, reconnecting_resume())
    seen.pipe = idle_guard(WINDOW, observer=seen.events) | reconnecting_resume()
    error = await seen.run()
    seen.check_torn_down(error)
    assert error.gave_up == "class"
    assert len(seen.backend.points) == 1


@pytest.mark.parametrize("mode", ["off", "warn"])
async def test_the_kill_switch_does_not_lift_it(loop, mode, monkeypatch):
    """F2: without limits a lease binds all the same, at the next pull or message."""
    lease = Held()
    backend = Backend([Script(say("a"), silence(WINDOW + 1), say("b"), done())])
    seen = Seen(backend, lease)
    seen.pipe = idle_guard(100, mode=mode)
    error = await seen.run()
    assert isinstance(error, LeaseLostError)
    assert seen.texts == ["a"]
    assert backend.owners == 0


async def test_an_interrupt_is_not_tried(loop):
    """F2: who has lost the lease may not wait for a polite end."""
    lease, calls = Held(), []

    async def interrupt() -> None:
        calls.append(anyio.current_time())

    seen = Seen(Backend([Script(say("a"), hang())], hands=False), lease)
    seen.pipe = idle_guard(100, observer=seen.events, interrupt=interrupt)
    error = await seen.run()
    assert isinstance(error, LeaseLostError)
    assert calls == []
    assert lease.spent() == WINDOW


async def test_the_next_pull_tells_it_again(loop):
    lease = Held()
    backend = Backend([Script(say("a"), hang())])
    async with session(backend.open, point=lease.point) | idle_guard(100) as chat:
        turn = aiter(chat)
        await anext(turn)
        for _ in range(2):
            with pytest.raises(LeaseLostError):
                await anext(turn)
        with pytest.raises(LeaseLostError):
            await anext(aiter(chat.ask("more")))
    assert len(backend.points) == 1


async def test_it_is_told_how_far_the_consumer_is(loop):
    """F3: while it is at work on a message, nothing is said: that message may be lost with it."""
    lease = Held()
    lease.renew(1e6)
    backend = Backend([Script(opened("s"), say("a"), silence(1), say("b"), done())])
    async with session(backend.open, point=lease.point) | idle_guard(100) as chat:
        turn, told = aiter(chat), lease.sessions[0].settled_point
        assert told().delivered == 0
        await anext(turn)
        await anext(turn)
        assert told() is None

        async def look() -> None:
            await anyio.sleep(0.5)
            point = told()
            assert point is not None
            assert (point.delivered, point.token) == (2, "s")

        async with anyio.create_task_group() as group:
            group.start_soon(look)
            await anext(turn)
        assert told() is None
        async for _ in turn:
            pass
        assert told().completed


async def test_an_end_that_is_not_certain_is_told(loop):
    """F4: who may still have an owner is not handed on."""
    lease = Held()
    backend = Backend([Script(say("a"), done())], closing=lambda _: anyio.sleep(3600))
    seen = Seen(backend, lease)
    await seen.run()
    assert lease.ends == [False]


def test_its_class_is_never():
    """P1: it is no failure of the backend's, and no attempt of ours is to follow."""
    assert classify(LeaseLostError()) is ErrorClass.NEVER
    assert exit_code_for(LeaseLostError()) == 1


async def test_it_stays_with_the_point(loop):
    lease = Held()
    assert lease.point.asking("other").custody is lease
    assert ResumePoint(completed=True, custody=lease).asking("other").custody is lease
    assert lease.point == ResumePoint(prompt="go")
    assert "custody" not in lease.point.as_json()


@pytest.mark.parametrize("when", ["pull", "busy", "backoff", "between"])
async def test_each_way_leaves_a_line_in_timeouts(loop, when, tmp_path):
    """F1, E1: a lease that is lost is a verdict, wherever the session was then."""
    lease = Held()
    scripts = {
        "pull": Script(say("a"), hang()),
        "backoff": Script(opened("s"), say("a"), silence(5), fail(LOST)),
    }
    seen = Seen(
        Backend([scripts.get(when, Script(say("a"), say("b"), done()))]),
        lease,
        reconnecting_resume(policy=RetryPolicy(network=Backoff(3, (300,)))),
    )
    recorder = Recorder(tmp_path, run_id="1", flow="f", step="s")
    with recorder:
        error = await seen.run(busy=3600 if when == "busy" else 0, again=3600)
    assert isinstance(error, LeaseLostError)
    recorder.flush()
    [file] = tmp_path.rglob("timeouts.jsonl")
    [line] = map(json.loads, file.read_text().splitlines())
    assert (line["limit"], line["timeout_ms"], line["final_action"]) == ("lease", 10_000, "fail")
