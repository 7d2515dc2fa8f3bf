"""F1 to F6 for `LocalEngine`: workers over a store, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import anyio
import pytest

from streamguard import (
    Backoff,
    ConfigError,
    ResumePoint,
    RetryPolicy,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    scope,
    session,
)
from streamguard import _loops as loops
from streamguard.errors import StoreError
from streamguard.fleet.lease import Lease
from streamguard.fleet.local_engine import LocalEngine
from streamguard.testing import Script, done, fail, hang, opened, ping, say, silence, tool_start
from tests.fleet.memory_store import MemoryCheckpoints
from tests.sessions.backend import Backend

TTL = 15.0
LOST = ConnectionError("reset")


class Fleet:
    """Some workers over one store, and all that was delivered anywhere."""

    def __init__(self, **knobs: Any) -> None:
        self.store = MemoryCheckpoints(loops.current().clock)
        self.knobs: Any = {"ttl": TTL, "clock": loops.current().clock, **knobs}
        self.delivered: list[tuple[str, int, str]] = []

    def worker(self, **knobs: Any) -> LocalEngine:
        return LocalEngine(self.store, **self.knobs, **knobs)

    def status(self, key: str = "k") -> str:
        return self.store.entries[key].status

    def entry(self, key: str = "k") -> Any:
        return self.store.entries[key]

    def handler(self, backend: Any, pipe: Any = None, busy: float = 0.0) -> Any:
        async def handle(lease: Lease) -> None:
            pipeline: Any = session(backend.open, point=lease.resume_point()) | (
                pipe or idle_guard(180)
            )
            async with pipeline as chat:
                async for message in chat:
                    self.delivered.append((lease.key, lease.token, getattr(message, "text", "")))
                    await anyio.sleep(busy)

        return handle

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.delivered if text]


@asynccontextmanager
async def serving(worker: LocalEngine, handler: Any) -> AsyncIterator[anyio.CancelScope]:
    async with anyio.create_task_group() as group:
        scope = anyio.CancelScope()

        async def serve() -> None:
            with scope:
                await worker.serve(handler)

        group.start_soon(serve)
        yield scope
        group.cancel_scope.cancel()


async def until(true: Any, within: float = 1000.0) -> None:
    with anyio.fail_after(within):
        while not true():
            await anyio.sleep(0.05)


async def test_a_session_is_run_and_done(loop):
    fleet, backend = Fleet(), Backend([Script(say("a"), say("b"), done())])
    worker = fleet.worker()
    assert await worker.submit("k", {"prompt": "go"})
    assert not await worker.submit("k", {"prompt": "again"})
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "done"
    assert backend.prompts == ["go"]
    assert fleet.texts == ["a", "b"]
    assert fleet.entry().checkpoint.delivered == 3
    assert fleet.entry().checkpoint.point["completed"]
    assert await worker.sessions() == []


async def test_many_sessions_run_at_once_up_to_the_limit(loop):
    fleet, running, most = Fleet(), 0, 0

    async def handler(lease: Lease) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await anyio.sleep(5)
        running -= 1

    worker = fleet.worker(limit=7)
    for i in range(20):
        await worker.submit(f"k{i}", {})
    await worker.serve(handler, until_idle=True)
    assert most == 7
    assert {entry.status for entry in fleet.store.entries.values()} == {"done"}


async def test_a_worker_that_is_gone_is_noticed_after_its_ttl(loop):
    """F2, F3: another goes on from the checkpoint, and doubles what came since the last flush at most."""
    fleet = Fleet()
    script = Script(
        opened("s"), *(step for i in range(40) for step in (silence(0.3), say(str(i)))), done()
    )
    rest = Script(*(step for i in range(40) for step in (say(f"then {i}"),)), done())
    backend = Backend([script, rest])
    first = fleet.worker()
    await first.submit("k", {"prompt": "go"})
    async with serving(first, fleet.handler(backend)):
        await anyio.sleep(5)
        # Killed, as far as the store can tell: nothing of it is heard, and nothing it does counts.
        first._calls = _dead
        died = anyio.current_time()
        second = fleet.worker()
        async with serving(second, fleet.handler(backend)):
            await until(lambda: fleet.status() == "done")
            assert died + TTL - 1 <= fleet.entry().beaten <= died + TTL + 1
    assert backend.points[1].token == "s"
    assert (
        backend.points[1].delivered
        >= len([t for _, token, t in fleet.delivered if token == 1]) - 4 - 35
    )
    assert fleet.entry().attempt == 2
    backend.check()


async def _dead(*_: Any, **__: Any) -> Any:
    from streamguard.errors import StoreError

    raise StoreError("dead")


async def test_a_worker_that_hears_nothing_stops_before_another_begins(loop):
    """F2: no delivery past the fence, which comes before the ttl."""
    fleet = Fleet()
    script = Script(
        opened("s"), *(step for _ in range(400) for step in (silence(0.1), say("x"))), done()
    )
    backend = Backend([script])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await anyio.sleep(5)
        fleet.store.is_away = True
        began, count = anyio.current_time(), len(fleet.delivered)
        await until(lambda: backend.closed == 1)
        assert TTL * 0.7 - 2 <= anyio.current_time() - began <= TTL * 0.7 + 0.1
        assert len(fleet.delivered) > count
        assert not worker._held
        seen = len(fleet.delivered)
        await anyio.sleep(3)
        assert len(fleet.delivered) == seen
        backend.scripts = [Script(say("y"), done())]
        fleet.store.is_away = False
        await until(lambda: fleet.status() == "done")
    assert fleet.store.lines == []  # it could not be written, for the session was lost by then
    backend.check()


async def test_a_stale_worker_delivers_nothing(loop):
    """F2, F3: it learns with its next beat that another has it."""
    fleet = Fleet()
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
        [stolen] = [e for e in [fleet.entry()] if e.status == "running"]
        stolen.token += 1
        stolen.owner = "other"
        stolen.expires += 1000
        await until(lambda: backend.closed == 1, within=3)
        assert fleet.status() == "running"
        assert fleet.entry().owner == "other"
    assert fleet.status() == "running"


async def test_drain_hands_on_at_once_and_counts_nothing(loop):
    """F5: within a second, without a double, as if it had not been claimed."""
    fleet = Fleet()
    words = [str(i) for i in range(30)]
    backend = Backend(
        [
            Script(
                opened("s"),
                *(step for word in words for step in (silence(0.3), say(word))),
                done(),
            )
        ]
    )
    backend.scripts.append(Script(*(say(word) for word in words[16:]), done()))
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with anyio.create_task_group() as group:
        group.start_soon(worker.serve, fleet.handler(backend))
        await until(lambda: len(fleet.texts) == 16)
        began = anyio.current_time()
        worker.drain()
        await until(lambda: not worker._held, within=1)
    assert anyio.current_time() - began < 1
    entry = fleet.entry()
    assert (entry.status, entry.attempt, entry.fruitless, entry.not_before) == (
        "waiting",
        0,
        0,
        began,
    )
    assert entry.checkpoint.point["delivered"] == 17
    await fleet.worker().serve(fleet.handler(backend), until_idle=True)
    assert fleet.texts == words
    assert fleet.status() == "done"


async def test_drain_waits_for_a_message_at_hand(loop):
    """F5: up to half a second, so that nothing is doubled; then it is cut, and doubled."""
    for busy, expected in ((0.3, 2), (60.0, 1)):
        fleet = Fleet()
        backend = Backend([Script(opened("s"), say("a"), say("b"), done())])
        worker = fleet.worker()
        await worker.submit("k", {"prompt": "go"})
        async with anyio.create_task_group() as group:
            group.start_soon(worker.serve, fleet.handler(backend, busy=busy))
            await until(lambda fleet=fleet: fleet.texts == ["a"])
            began = anyio.current_time()
            worker.drain()
        assert anyio.current_time() - began <= 0.6
        assert fleet.status() == "waiting"
        assert fleet.entry().checkpoint.point["delivered"] == expected


async def test_serve_that_is_cancelled_hands_on(loop):
    """F5: whoever cancels a worker loses nothing, and leaves nothing held."""
    fleet = Fleet()
    backend = Backend([Script(opened("s"), say("a"), hang())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)) as scope:
        await until(lambda: fleet.texts == ["a"])
        scope.cancel()
        await until(lambda: not worker._held, within=1)
        entry = fleet.entry()
        assert (entry.status, entry.attempt) == ("waiting", 0)
        assert entry.checkpoint.point["delivered"] == 2
    assert backend.owners == 0


async def test_a_hang_gives_the_session_back_with_the_policys_delay(loop):
    """F5: the store knows when it may go on; it is no matter who lives then."""
    fleet = Fleet(policy=RetryPolicy(idle=Backoff(2, (40.0,))))
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend, idle_guard(20))):
        await until(lambda: fleet.entry().why)
    entry = fleet.entry()
    assert (entry.why, entry.attempt) == ("IdleTimeoutError", 1)
    assert entry.not_before == pytest.approx(anyio.current_time() + 40, abs=1)
    [line] = fleet.store.lines
    assert (line["limit"], line["timeout_ms"], line["run_id"]) == ("idle", 20_000, "k")
    assert line["final_action"] == "retry"
    began = anyio.current_time()
    await fleet.worker().serve(fleet.handler(backend), until_idle=True)
    assert 39.9 <= anyio.current_time() - began <= 43  # `until` looks every 0.05 s
    assert fleet.status() == "done"
    assert backend.points[1].token == "s"


async def test_a_lease_that_is_lost_is_a_line_in_the_log_if_it_still_may_be(loop):
    """F1: a worker whose beats were late, but whose session nobody has taken."""
    fleet = Fleet()
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
        worker._beat = _nothing  # as if its beats came to nothing
        await until(lambda: fleet.status() == "done")
    assert [line["limit"] for line in fleet.store.lines] == ["lease"]


async def _nothing() -> None:
    pass


async def test_a_poison_session_is_parked(loop):
    """F5: after three attempts in a row without progress."""
    fleet = Fleet(policy=RetryPolicy(network=Backoff(9, (1.0,))))
    backend = Backend([Script(fail(LOST))])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(fleet.handler(backend), until_idle=True)
    entry = fleet.entry()
    assert (entry.status, entry.attempt) == ("parked", 3)
    assert entry.why.startswith("poison: 3 attempts")
    assert "reset" not in entry.why
    assert await worker.release("k")
    backend.scripts = [Script(say("a"), done())]
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "done"


async def test_a_session_that_kills_its_workers_is_parked(loop):
    """F5: nobody lives to say that it failed, so the next claim says it. The first may not have heard of its claim."""
    fleet, begun = Fleet(), []

    async def handler(lease: Lease) -> None:
        begun.append(lease.token)
        await anyio.sleep_forever()

    await fleet.worker().submit("k", {"prompt": "go"})
    for number in range(1, 5):
        worker = fleet.worker()
        async with serving(worker, handler):
            await until(lambda number=number: len(begun) == number)
            worker._calls = _dead
        await anyio.sleep(TTL + 1)
    assert begun == [1, 2, 3, 4]
    await fleet.worker().serve(handler, until_idle=True)
    assert fleet.status() == "parked"
    assert fleet.entry().why.startswith("poison: 3 attempts in a row")


async def test_claims_that_nobody_heard_of_say_nothing_against_a_session(loop):
    """F5: a worker whose network loses all answers takes it again and again, and never begins it."""
    fleet, backend = Fleet(), Backend([Script(say("a"), done())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    for _ in range(5):
        assert fleet.store.claim("deaf", 1.0, 1)
        await anyio.sleep(1)
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "done"


async def test_a_worker_that_gets_its_own_session_again(loop):
    """F2: the first owner ends before the second one begins, and neither forgets the other."""
    fleet, backend = Fleet(), Backend([Script(opened("s"), say("a"), hang())])
    closing: list[float] = []

    async def close(_: Any) -> None:
        closing.append(anyio.current_time())
        await anyio.sleep(8)

    backend.closing = close
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend, idle_guard(180, disconnect_timeout=20))):
        await until(lambda: fleet.texts == ["a"])
        fleet.entry().token += 1  # somebody had it for a moment
        await until(lambda: closing)
        fleet.entry().expires = 0.0
        await until(lambda: len(worker._held) == 2)
        backend.closing = None
        backend.scripts = [Script(say("b"), done())]
        await until(lambda: fleet.status() == "done")
        assert anyio.current_time() >= closing[0] + 8
    backend.check()
    assert fleet.entry().attempt == 2


async def test_no_handler_begins_on_a_claim_that_took_too_long(loop):
    """F2: past the fence another may have it."""
    fleet, begun = Fleet(), []

    async def handler(lease: Lease) -> None:
        begun.append(anyio.current_time())

    worker = fleet.worker()
    claim = fleet.store.claim
    late = iter([TTL])

    def slow(owner: str, ttl: float, limit: int) -> Any:
        claimed = claim(owner, ttl, limit)
        by = next(late, 0.0) if claimed else 0.0
        worker._clock = lambda: fleet.knobs["clock"]() + by
        return claimed

    fleet.store.claim = slow
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(handler, until_idle=True)
    assert len(begun) == 1
    assert fleet.entry().attempt == 1
    assert fleet.status() == "done"


async def test_lines_wait_for_a_store_that_is_away(loop):
    """F1: all of them, in their order."""
    fleet = Fleet()
    script = Script(opened("s"), say("a"), hang())
    rest = (step for _ in range(5) for step in (silence(2), say("b")))
    backend = Backend([script, script, Script(*rest, done())])
    worker = fleet.worker()
    write, refused = fleet.store.log_timeout, []

    def log_timeout(beat: Any, line: Any) -> bool:
        if len(refused) < 3:
            refused.append(line)
            raise StoreError("no log today")
        return write(beat, line)

    fleet.store.log_timeout = log_timeout
    await worker.submit("k", {"prompt": "go"})
    pipe = idle_guard(3) | reconnecting_resume(policy=RetryPolicy(idle=Backoff(5, (0.0,))))
    await worker.serve(fleet.handler(backend, pipe), until_idle=True)
    assert fleet.status() == "done"
    assert [line["final_action"] for line in fleet.store.lines] == ["retry", "retry"]
    assert fleet.store.lines[0] == refused[0]


async def test_workers_share_what_there_is(loop):
    """One that looks first does not take it all."""
    fleet, by = Fleet(), {}

    async def handler(lease: Lease) -> None:
        by[lease.owner] = by.get(lease.owner, 0) + 1
        await anyio.sleep(60)

    workers = [fleet.worker(), fleet.worker()]
    for i in range(40):
        await workers[0].submit(f"k{i}", {})
    async with anyio.create_task_group() as group:
        for worker in workers:
            group.start_soon(partial(worker.serve, handler, until_idle=True))
            await anyio.sleep(0.2)
    assert len(by) == 2
    assert min(by.values()) >= 5


async def test_a_scope_whose_time_is_up_is_a_line_too(loop):
    fleet = Fleet()

    async def handler(lease: Lease) -> None:
        with suppress(TimeoutError):
            async with scope("step", "build", timeout=5):
                await anyio.sleep(60)

    worker = fleet.worker()
    await worker.submit("k", {})
    await worker.serve(handler, until_idle=True)
    assert fleet.status() == "done"
    [line] = fleet.store.lines
    assert (line["limit"], line["scope"], line["final_action"]) == ("step", "step", "fail")


async def test_a_greeting_is_no_progress(loop):
    """F5: a backend that connects, says hello and hangs is parked like one that says nothing."""
    fleet = Fleet(policy=RetryPolicy(idle=Backoff(9, (1.0,))))
    backend = Backend([Script(opened("s"), ping(), hang())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(fleet.handler(backend, idle_guard(20)), until_idle=True)
    entry = fleet.entry()
    assert (entry.status, entry.attempt) == ("parked", 3)
    assert entry.checkpoint.delivered == 6


async def test_a_handler_that_counts_its_attempts_makes_no_progress_by_that(loop):
    fleet = Fleet(policy=RetryPolicy(network=Backoff(9, (1.0,))))
    backend = Backend([Script(fail(LOST))])

    async def handler(lease: Lease) -> None:
        lease.state["tries"] = lease.state.get("tries", 0) + 1
        await fleet.handler(backend)(lease)

    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(handler, until_idle=True)
    assert (fleet.status(), fleet.entry().checkpoint.state) == ("parked", {"tries": 3})


async def test_a_message_that_kills_its_workers_is_no_progress(loop):
    """F5: it came each time, and nobody has ever dealt with it."""
    fleet, begun = Fleet(), []
    backend = Backend([Script(opened("s"), say("a"), hang())])

    async def handler(lease: Lease) -> None:
        begun.append(lease.token)
        await fleet.handler(backend, busy=1e6)(lease)

    await fleet.worker().submit("k", {"prompt": "go"})
    for number in range(1, 4):
        worker = fleet.worker()
        async with serving(worker, handler):
            await until(lambda number=number: len(begun) == number)
            await anyio.sleep(3)
            worker._calls = _dead
        await anyio.sleep(TTL + 1)
    await fleet.worker().serve(handler, until_idle=True)
    assert fleet.status() == "parked"


async def test_progress_clears_the_count(loop):
    fleet = Fleet(policy=RetryPolicy(network=Backoff(9, (1.0,))))
    some = Script(opened("s"), say("a"), fail(LOST))
    backend = Backend(
        [some, Script(fail(LOST)), some, Script(fail(LOST)), some, Script(say("z"), done())]
    )
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "done"
    assert fleet.entry().attempt == 6


async def test_what_no_retry_helps_is_parked_at_once(loop):
    fleet = Fleet()

    async def handler(lease: Lease) -> None:
        raise KeyError("prompt of the user's")

    worker = fleet.worker()
    await worker.submit("k", {})
    await worker.serve(handler, until_idle=True)
    assert fleet.status() == "parked"
    assert "KeyError" in fleet.entry().why
    assert "user's" not in fleet.entry().why


async def test_tools_without_a_token_are_parked_as_unsafe(loop):
    """F4: a fresh start on another worker would do it all again."""

    fleet = Fleet()
    backend = Backend(
        [Script(say("a"), tool_start("t1", "Bash"), fail(LOST)), Script(say("b"), done())]
    )
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "parked"
    assert fleet.entry().why.startswith("unsafe")
    assert len(backend.points) == 1


async def test_a_backend_that_may_be_alive_is_parked(loop):
    """F4: two owners would corrupt the session."""
    fleet = Fleet()
    backend = Backend(
        [Script(opened("s"), say("a"), fail(LOST))], closing=lambda _: anyio.sleep_forever()
    )
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(fleet.handler(backend), until_idle=True)
    assert fleet.status() == "parked"
    assert "may still be alive" in fleet.entry().why
    assert worker.owner in fleet.entry().why


async def test_cancel_by_key(loop):
    """F5: one that waits ends at once, one that runs with its worker's next beat."""
    fleet = Fleet()
    backend = Backend([Script(opened("s"), say("a"), hang())])
    worker, other = fleet.worker(limit=1), fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.submit("waits", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
        assert await other.cancel("waits", "not wanted")
        assert fleet.status("waits") == "cancelled"
        assert await other.cancel("k", "not wanted")
        assert (await other.sessions())[0].cancelling
        await until(lambda: fleet.status() == "cancelled", within=2)
        assert not await other.cancel("k", "again")
        assert not await other.cancel("nobody", "")
    assert backend.owners == 0
    assert fleet.entry().why == "not wanted"


async def test_state_comes_back(loop):
    """F3: what the user keeps goes with the checkpoint, and is that of the same moment."""
    fleet, seen = Fleet(policy=RetryPolicy(network=Backoff(9, (0.1,)))), []
    backend = Backend(
        [Script(opened("s"), say("a"), say("b"), fail(LOST)), Script(say("c"), done())]
    )

    async def handler(lease: Lease) -> None:
        lease.state.setdefault("n", 0)
        seen.append(lease.state["n"])
        async with session(backend.open, point=lease.resume_point()) | idle_guard(180) as chat:
            async for _ in chat:
                lease.state["n"] += 1

    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(handler, until_idle=True)
    assert seen == [0, 3]
    assert fleet.entry().checkpoint.state == {"n": 5}


async def test_state_that_is_no_json_parks_the_session(loop):
    fleet = Fleet()

    async def handler(lease: Lease) -> None:
        lease.state["x"] = object()
        await anyio.sleep(100)

    worker = fleet.worker()
    await worker.submit("k", {})
    await worker.serve(handler, until_idle=True)
    assert fleet.status() == "parked"
    assert "ConfigError" in fleet.entry().why


async def test_a_message_that_was_read_and_not_processed_is_delivered_again(loop):
    """F3: checkpointed is what the consumer is done with."""
    fleet = Fleet(policy=RetryPolicy(network=Backoff(9, (0.1,))))
    backend = Backend([Script(opened("s"), say("a"), say("b"), hang())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    async with serving(worker, fleet.handler(backend, busy=50)):
        await until(lambda: fleet.texts == ["a"])
        await anyio.sleep(30)
        assert fleet.entry().checkpoint.point["delivered"] == 1  # the opening, and not "a"


async def test_a_handler_without_a_session_ends_with_its_lease(loop):
    fleet, ended = Fleet(), []

    async def handler(lease: Lease) -> None:
        began = anyio.current_time()
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time() - began)

    worker = fleet.worker()
    await worker.submit("k", {})
    async with serving(worker, handler):
        await until(lambda: fleet.status() == "running")
        fleet.store.is_away = True
        await until(lambda: ended)
        assert ended[0] <= TTL * 0.7 + 1


async def test_one_lease_one_session(loop):
    fleet, errors = Fleet(), []
    backend = Backend([Script(say("a"), done())])

    async def handler(lease: Lease) -> None:
        async with session(backend.open, point=lease.resume_point()) | idle_guard(180):
            try:
                async with session(backend.open, point=lease.resume_point()) | idle_guard(180):
                    pass
            except RuntimeError as error:
                errors.append(error)

    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(handler, until_idle=True)
    assert "one session at a time" in str(errors[0])


async def test_retries_within_the_session_hold_the_lease(loop):
    """F6: the handler that a user already has, with its own retries."""
    fleet = Fleet()
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker = fleet.worker()
    await worker.submit("k", {"prompt": "go"})
    await worker.serve(
        fleet.handler(backend, idle_guard(30) | reconnecting_resume()), until_idle=True
    )
    assert fleet.status() == "done"
    assert fleet.entry().attempt == 1
    assert [line["final_action"] for line in fleet.store.lines] == ["retry"]


async def test_a_store_that_is_away_is_told_once(loop, caplog):
    fleet = Fleet()
    fleet.store.is_away = True
    worker = fleet.worker()
    async with serving(worker, fleet.handler(Backend([Script(done())]))):
        await anyio.sleep(30)
    assert len([r for r in caplog.records if "the store is away" in r.getMessage()]) == 1


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"ttl": 0}, "ttl"),
        ({"flush": -1}, "flush"),
        ({"limit": 0}, "limit"),
        ({"claim": 0}, "claim"),
        ({"attempts_without_progress": 0}, "attempts_without_progress"),
        ({"ttl": 3, "flush": 2}, "third of ttl"),
    ],
)
async def test_knobs_that_cannot_be_used(loop, knobs, match):
    store = MemoryCheckpoints(loops.current().clock)
    with pytest.raises(ConfigError, match=match):
        LocalEngine(store, **knobs)


async def test_a_prompt_that_is_none(loop):
    fleet = Fleet()

    async def handler(lease: Lease) -> None:
        lease.resume_point()

    worker = fleet.worker()
    await worker.submit("k", {"prompt": 7})
    await worker.serve(handler, until_idle=True)
    assert fleet.status() == "parked"
    _ = (ResumePoint, StreamGuardError)
