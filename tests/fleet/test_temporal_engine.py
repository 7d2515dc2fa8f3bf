"""F1 to F6 for `TemporalEngine`: workers on a real Temporal server, in this process, in real time."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import anyio
import pytest
import pytest_asyncio

from streamguard import (
    Backoff,
    ConfigError,
    RetryPolicy,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.errors import StoreError
from streamguard.fleet import TemporalEngine, store_at
from streamguard.fleet.lease import Lease
from streamguard.testing import Script, done, fail, hang, opened, say, silence, tool_start
from tests.fleet.temporal import free_port
from tests.sessions.backend import Backend

pytest.importorskip("temporalio")

pytestmark = pytest.mark.asyncio

TTL, FLUSH = 3.0, 0.25
LOST = ConnectionError("reset by a secret peer")
_numbers = itertools.count()


class Sessions:
    """A queue of its own on the server, and all that was delivered anywhere."""

    def __init__(self, client: Any, **knobs: Any) -> None:
        self.client = client
        self.knobs: Any = {"ttl": TTL, "flush": FLUSH, **knobs}
        self.number = next(_numbers)
        self.knobs.setdefault("task_queue", f"queue-{id(self)}-{self.number}")
        self.delivered: list[tuple[str, int, str]] = []

    def key(self, name: str = "k") -> str:
        return f"{name}-{id(self)}-{self.number}"

    def worker(self, **knobs: Any) -> TemporalEngine:
        return TemporalEngine(self.client, **{**self.knobs, **knobs})

    def handler(self, backend: Backend, pipe: Any = None, busy: float = 0.0) -> Any:
        async def handle(lease: Lease) -> None:
            pipeline: Any = session(backend.open, point=lease.resume_point()) | (
                pipe or idle_guard(60)
            )
            async with pipeline as chat:
                async for message in chat:
                    self.delivered.append((lease.key, lease.token, getattr(message, "text", "")))
                    await anyio.sleep(busy)

        return handle

    @property
    def texts(self) -> list[str]:
        return [text for _, _, text in self.delivered if text]


@pytest_asyncio.fixture
async def fleet(temporal):
    return Sessions(await temporal.client())


@asynccontextmanager
async def serving(worker: TemporalEngine, handler: Any):
    task = asyncio.ensure_future(worker.serve(handler))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def until(true: Any, within: float = 40.0) -> None:
    async with asyncio.timeout(within):
        while not true():
            await asyncio.sleep(0.02)


async def row_when(worker: TemporalEngine, key: str, true: Any, within: float = 40.0) -> Any:
    """The session's row, once it is as it should be."""
    async with asyncio.timeout(within):
        while (row := await worker.show(key)) is None or not true(row):
            await asyncio.sleep(0.05)
    return row


def is_(status: str) -> Any:
    return lambda row: row.status == status


async def test_a_session_is_run_and_done(fleet):
    """F6: by the handler that LocalEngine has."""
    backend = Backend([Script(say("a"), say("b"), done())])
    worker, key = fleet.worker(), fleet.key()
    assert await worker.show(key) is None
    assert await worker.submit(key, {"prompt": "go"})
    assert not await worker.submit(key, {"prompt": "again"})
    row = await worker.show(key)
    assert (row.status, row.attempt, row.owner) == ("waiting", 0, "")
    async with serving(worker, fleet.handler(backend)):
        row = await row_when(worker, key, is_("done"))
    assert (row.delivered, row.attempt, row.owner) == (3, 1, "")
    assert backend.prompts == ["go"]
    assert fleet.texts == ["a", "b"]
    assert not await worker.submit(key, {"prompt": "once more"})
    assert not await worker.release(key)
    assert not await worker.cancel(key)
    backend.check()


async def test_many_sessions_run_at_once_up_to_the_limit(fleet):
    running, most, ended = 0, 0, 0

    async def handler(lease: Lease) -> None:
        nonlocal running, most, ended
        running += 1
        most = max(most, running)
        await anyio.sleep(0.3)
        running -= 1
        ended += 1

    worker = fleet.worker(limit=4)
    for i in range(12):
        await worker.submit(fleet.key(str(i)), {})
    assert {row.status for row in await _listed(worker, 12)} == {"waiting"}
    async with serving(worker, handler):
        await until(lambda: ended == 12)
    assert most == 4


async def _listed(worker: TemporalEngine, count: int) -> Any:
    """Temporal's list is some moments behind."""
    async with asyncio.timeout(20):
        while len(rows := await worker.sessions()) != count:
            await asyncio.sleep(0.1)
    return rows


async def test_a_hang_gives_the_session_back_with_the_policys_delay(fleet, tmp_path):
    """F5: Temporal knows when it may go on, whoever lives then; F1: the fleet's log has its line."""
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    policy = RetryPolicy(idle=Backoff(2, (4.0,)))
    with store_at(tmp_path / "log.db") as log:
        first = fleet.worker(policy=policy, log=log)
        key = fleet.key()
        await first.submit(key, {"prompt": "go"})
        async with serving(first, fleet.handler(backend, idle_guard(0.5))):
            row = await row_when(first, key, lambda row: row.why)
            given_back = time.monotonic()
        assert (row.status, row.why, row.attempt) == ("waiting", "IdleTimeoutError", 1)
        assert 2 < row.wait <= 4
        [line] = log.timeouts()
    assert (line["limit"], line["session"], line["attempt"]) == ("idle", key, 1)
    assert line["worker"] == first.owner
    second = fleet.worker()
    async with serving(second, fleet.handler(backend)):
        await until(lambda: len(backend.points) == 2)
        assert time.monotonic() - given_back > 2
        row = await row_when(second, key, is_("done"))
    assert row.attempt == 2
    assert backend.points[1].token == "s"
    assert fleet.texts == ["a", "b"]


async def test_what_no_retry_helps_is_parked_and_can_be_released(fleet, caplog):
    """F5: with its checkpoint, and with no word of the error's for those who list it."""
    seen: list[Any] = []

    async def handler(lease: Lease) -> None:
        seen.append((lease.token, lease.attempt, dict(lease.state)))
        if len(seen) == 1:
            lease.state["n"] = 7
            raise KeyError("a secret of the user's")

    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "hush"})
    async with serving(worker, handler):
        row = await row_when(worker, key, is_("parked"))
        assert "KeyError" in row.why
        assert "secret" not in row.why
        assert [each.status for each in await _listed(worker, 1)] == ["parked"]
        [one, two] = await asyncio.gather(worker.release(key), worker.release(key))
        assert one != two
        await row_when(worker, key, is_("done"))
    assert seen == [(1, 1, {}), (2, 2, {"n": 7})]
    assert await _listed(worker, 0) == []


async def test_a_poison_session_is_parked(fleet):
    """F5: after so many attempts in a row without progress."""
    backend = Backend([Script(fail(LOST))])
    worker, key = fleet.worker(policy=RetryPolicy(network=Backoff(9, (0.1,)))), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        row = await row_when(worker, key, is_("parked"))
    assert row.why.startswith("poison: 3 attempts in a row")
    assert "secret" not in row.why
    assert (row.attempt, row.fruitless) == (3, 3)


async def test_tools_without_a_token_are_parked_as_unsafe(fleet):
    """F4: a fresh start on another worker would do it all again."""
    backend = Backend([Script(say("a"), tool_start("t1", "Bash"), fail(LOST))])
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        row = await row_when(worker, key, is_("parked"))
    assert row.why.startswith("unsafe")
    assert len(backend.points) == 1


async def test_cancel_by_key(fleet):
    """F5: one that waits, one that runs, one that is parked."""
    backend = Backend([Script(opened("s"), say("a"), hang())])
    worker, other = fleet.worker(), fleet.worker()
    runs, waits, parked = (fleet.key(name) for name in ("runs", "waits", "parked"))

    async def handler(lease: Lease) -> None:
        if lease.key == parked:
            raise KeyError
        await fleet.handler(backend)(lease)

    await worker.submit(waits, {"prompt": "go"})
    assert await other.cancel(waits, "not wanted")
    assert (await other.show(waits)).status == "cancelled"
    await worker.submit(runs, {"prompt": "go"})
    await worker.submit(parked, {"prompt": "go"})
    async with serving(worker, handler):
        await until(lambda: fleet.texts == ["a"])
        assert await other.cancel(runs, "not wanted")
        row = await row_when(other, runs, is_("cancelled"))
        await row_when(other, parked, is_("parked"))
        assert await other.cancel(parked, "nor this")
        assert (await other.show(parked)).why == "nor this"
        assert not await other.release(parked)
        for key in (waits, runs, parked, fleet.key("nobody")):
            assert not await other.cancel(key)
    assert row.why == "not wanted"
    assert backend.owners == 0
    assert await _listed(other, 0) == []


async def test_a_cancel_without_a_reason(fleet):
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {})
    assert await worker.cancel(key)
    assert (await worker.show(key)).why == ""


async def test_drain_hands_on_at_once_and_counts_nothing(fleet):
    """F5: within a second, without a double, as if it had not been claimed."""
    words = [str(i) for i in range(16)]
    backend = Backend(
        [
            Script(opened("s"), *(step for w in words for step in (silence(0.2), say(w))), done()),
            Script(*(say(word) for word in words[6:]), done()),
        ]
    )
    worker, key = fleet.worker(ttl=30.0), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)) as served:
        await until(lambda: len(fleet.texts) == 6)
        began = time.monotonic()
        worker.drain()
        await until(lambda: not worker._held)
        handed_on = time.monotonic() - began
        await until(served.done)
    row = await worker.show(key)
    assert (row.status, row.attempt, row.fruitless) == ("waiting", 0, 0)
    assert handed_on < 1
    second = fleet.worker()
    async with serving(second, fleet.handler(backend)):
        row = await row_when(second, key, is_("done"))
    assert fleet.texts == words
    assert row.attempt == 1


async def test_serve_that_is_cancelled_hands_on(fleet):
    """F5: whoever cancels a worker loses nothing, and leaves nothing held."""
    backend = Backend([Script(opened("s"), say("a"), hang())])
    worker, key = fleet.worker(ttl=30.0), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
    row = await worker.show(key)
    assert (row.status, row.attempt, row.delivered) == ("waiting", 0, 2)
    assert backend.owners == 0


async def test_a_drain_does_not_wait_for_a_library_that_hangs(fleet, monkeypatch, caplog):
    """F5: it has been seen to, once all sessions were handed on."""
    from temporalio.worker import Worker

    monkeypatch.setattr("streamguard.fleet.temporal_engine._LIBRARY_ENDS", 0.2)
    monkeypatch.setattr(Worker, "shutdown", lambda _: asyncio.sleep(3600))
    backend = Backend([Script(opened("s"), say("a"), hang())])
    worker, key = fleet.worker(ttl=30.0), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)) as served:
        await until(lambda: fleet.texts == ["a"])
        worker.drain()
        await until(served.done)
    assert (await worker.show(key)).status == "waiting"
    assert "does not end within 0.2 s" in caplog.text


async def test_a_pause_gives_it_back_until_it_is_let_go_on(fleet):
    """F5: Temporal sends it as a cancel, and is none."""
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
        handle = fleet.client.get_activity_handle(key)
        await handle.pause(reason="let me see")
        row = await row_when(worker, key, is_("waiting"))
        assert (row.why, row.attempt) == ("paused in Temporal", 0)
        await until(lambda: backend.owners == 0)
        await handle.unpause()
        row = await row_when(worker, key, is_("done"))
    assert fleet.texts == ["a", "b"]
    assert (backend.points[1].token, row.attempt) == ("s", 1)


async def test_a_session_outlives_what_temporals_library_makes_of_its_silence(fleet):
    """F1: that gives an activity up which sends nothing through it for 5 s more than its ttl."""
    fleet.knobs.update(ttl=1.5)
    words = [str(i) for i in range(22)]
    backend = Backend([Script(*(step for w in words for step in (silence(0.4), say(w))), done())])
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    began = time.monotonic()
    async with serving(worker, fleet.handler(backend)):
        row = await row_when(worker, key, is_("done"))
    assert time.monotonic() - began > 1.5 + 5
    assert (row.attempt, fleet.texts) == (1, words)


async def test_retries_within_the_session_hold_the_lease(fleet):
    """F6: the handler that a user already has, with its own retries."""
    backend = Backend([Script(opened("s"), say("a"), hang()), Script(say("b"), done())])
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "go"})
    pipe = idle_guard(0.5) | reconnecting_resume(backoff=(0.1,))
    async with serving(worker, fleet.handler(backend, pipe)):
        row = await row_when(worker, key, is_("done"))
    assert row.attempt == 1


async def test_a_record_of_another_version_is_left_to_others(fleet):
    """F3: what is not understood is not begun, and not overwritten."""
    from streamguard.fleet.temporal_sessions import ACTIVITY_TYPE

    begun: list[Any] = []

    async def handler(lease: Lease) -> None:
        begun.append(lease)

    worker, key = fleet.worker(), fleet.key()
    await fleet.client.start_activity(
        ACTIVITY_TYPE,
        args=[{}, {"version": 99}],
        id=key,
        task_queue=worker.task_queue,
        start_to_close_timeout=timedelta(days=1),
        heartbeat_timeout=timedelta(seconds=TTL),
    )
    async with serving(worker, handler):
        row = await row_when(worker, key, lambda row: row.why)
    assert (row.status, row.why) == ("waiting", "it cannot be read")
    assert begun == []


async def test_a_row_and_the_log_show_no_secret(fleet, caplog):
    caplog.set_level(logging.INFO)
    backend = Backend([Script(opened("s-hush"), say("a"), hang())])
    worker, key = fleet.worker(), fleet.key()
    await worker.submit(key, {"prompt": "hush"})
    async with serving(worker, fleet.handler(backend)):
        await until(lambda: fleet.texts == ["a"])
        row = await row_when(worker, key, lambda row: row.delivered)
        [listed] = await _listed(worker, 1)
    assert (row.status, row.owner, row.attempt) == ("running", worker.owner, 1)
    assert row.silent < TTL
    shown = f"{row}{listed}{worker!r}{[record.getMessage() for record in caplog.records]}"
    assert "hush" not in shown
    assert "task_token" not in shown


# -- what is wrong with the server, or with us ------------------------------------------------


async def test_a_namespace_that_is_not_there(temporal):
    worker = Sessions(await temporal.client(namespace="nowhere")).worker()
    for call in (worker.submit("k", {}), worker.sessions(), worker.serve(_nothing)):
        with pytest.raises(StoreError, match=r"Namespace nowhere is not found.*create"):
            await call


async def test_a_server_without_standalone_activities(temporal_servers):
    server = temporal_servers(settings=("activity.enableStandalone=false",))
    worker = Sessions(await server.client()).worker()
    for call in (worker.submit("k", {}), worker.sessions(), worker.serve(_nothing)):
        with pytest.raises(StoreError, match=r"Temporal Server 1\.32 or newer"):
            await call
    server.kill()


async def test_a_server_that_is_away(monkeypatch):
    from temporalio.client import Client

    monkeypatch.setattr("streamguard.fleet.temporal_sessions._BOUND", 1.0)
    worker = Sessions(await Client.connect(f"127.0.0.1:{free_port()}", lazy=True)).worker()
    for call in (worker.submit("k", {}), worker.cancel("k"), worker.serve(_nothing)):
        with pytest.raises(StoreError, match="see whether the server runs"):
            await call


async def _nothing(lease: Lease) -> None:
    pass


async def test_two_workers_on_one_client(fleet):
    """Temporal's library refuses that, with a backtrace of its own."""
    worker, other = fleet.worker(), fleet.worker()
    async with serving(worker, _nothing):
        key = fleet.key()
        await worker.submit(key, {})
        await row_when(worker, key, is_("done"))
        with pytest.raises(ConfigError, match=r"this client serves .*give each engine") as caught:
            await other.serve(_nothing)
        assert "\n" not in str(caught.value)


async def test_what_cannot_be_kept(fleet):
    worker = fleet.worker()
    with pytest.raises(ConfigError, match="is no JSON"):
        await worker.submit("k", {"prompt": object()})
    with pytest.raises(ConfigError, match="key="):
        await worker.submit("", {})
    with pytest.raises(ConfigError, match=r"does not take that.*length limit"):
        await worker.submit(fleet.key(), {"prompt": "x" * 3_000_000})


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"ttl": 0}, "ttl"),
        ({"ttl": 3, "flush": 2}, "third of ttl"),
        ({"limit": 0}, "limit"),
        ({"task_queue": ""}, "task_queue"),
        ({"task_queue": "a'b"}, "without quotes"),
    ],
)
async def test_knobs_that_cannot_be_used(fleet, knobs, match):
    with pytest.raises(ConfigError, match=match):
        fleet.worker(**knobs)


async def test_what_is_no_client():
    with pytest.raises(ConfigError, match=r"Client\.connect"):
        TemporalEngine("localhost:7233")


async def test_it_says_that_trio_will_not_do(fleet):
    worker = fleet.worker()

    async def main() -> None:
        asks = (worker.submit("k", {}), worker.cancel("k"), worker.release("k"), worker.show("k"))
        for call in (worker.serve(_nothing), worker.sessions(), *asks):
            with pytest.raises(ConfigError, match=r"asyncio.*LocalEngine"):
                await call

    await asyncio.to_thread(anyio.run, main, backend="trio")
