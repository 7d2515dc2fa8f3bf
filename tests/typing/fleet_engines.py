"""What a fleet's users write: one handler, whichever the engine."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from signal import SIGTERM
from typing import assert_type

from temporalio.client import Client

from streamguard import ResumePoint, idle_guard, reconnecting_resume, session
from streamguard.fleet import (
    CheckpointStore,
    Engine,
    Handler,
    Lease,
    LocalEngine,
    Row,
    SqlStore,
    TemporalEngine,
    TimeoutsLog,
    store_at,
)
from streamguard.fleet.store import JSON


async def words() -> AsyncIterator[str]:
    yield "a"


@asynccontextmanager
async def open_(point: ResumePoint) -> AsyncGenerator[AsyncIterator[str]]:
    yield words()


async def handler(lease: Lease) -> None:
    assert_type(lease.spec, Mapping[str, JSON])
    assert_type(lease.state, dict[str, JSON])
    assert_type(lease.token, int)
    pipe = idle_guard(180) | reconnecting_resume()
    async with session(open_, point=lease.resume_point()) | pipe as chat:
        async for word in chat:
            assert_type(word, str)
            lease.state["last"] = word


async def main() -> None:
    store = store_at("fleet.db")
    assert_type(store, SqlStore)
    as_store: CheckpointStore = store
    engine: Engine = LocalEngine(as_store, ttl=30, limit=10)
    given: Handler = handler
    assert_type(await engine.submit("k", {"prompt": "go", "n": 1}), bool)
    assert_type(await engine.sessions(), list[Row])
    await engine.serve(given)
    await LocalEngine(store).serve(handler, drain_on=[SIGTERM], until_idle=True)
    await engine.submit("k", {1: 2})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    await engine.serve(words)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


async def on_temporal(client: Client, store: SqlStore) -> None:
    log: TimeoutsLog = store
    engine: Engine = TemporalEngine(client, task_queue="agents", log=log)
    assert_type(await engine.submit("k", {"prompt": "go"}), bool)
    assert_type(await engine.show("k"), Row | None)
    await TemporalEngine(client).serve(handler, drain_on=[SIGTERM])
    TemporalEngine("localhost:7233")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
