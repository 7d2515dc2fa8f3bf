"""One session through the library, with all that its plan has around it."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio

from streamguard import (
    Backoff,
    CircuitBreaker,
    Connection,
    Recorder,
    RetryPolicy,
    StreamGuardError,
    idle_guard,
    json_lines,
    reconnecting_resume,
    record_with,
    session,
)
from streamguard.breaker import MemoryStore
from streamguard.events import Event, Reconnected, TimedOut
from tests.weather.plans import IDLE, Plan

BACKEND: Final = Path(__file__).with_name("backend.py")
# As many as any trouble of a plan, and of a busy machine, may need.
_RETRIES: Final = 20
# Of one session. What takes longer hangs: a plan's troubles take some five seconds each.
LONGEST: Final = 90.0


@dataclass
class Seen:
    """What came of a session. Instants are the machine's, as in the agents' files."""

    plan: Plan
    log: Path
    got: list[int] = field(default_factory=list)
    ended: bool = False  # the turn ended, and well
    failed: bool = False  # it ended with an error that the backend said
    left: bool = False  # by its consumer
    hung: bool = False
    error: str = ""
    verdicts: list[tuple[str, float]] = field(default_factory=list)
    reconnects: int = 0
    blocked: list[tuple[float, float]] = field(default_factory=list)
    took: float = 0.0

    def saw(self, event: Event) -> None:
        if isinstance(event, TimedOut):
            self.verdicts.append((event.verdict.limit, time.monotonic()))
        self.reconnects += isinstance(event, Reconnected)


def command_of(plan: Plan, log: Path, *heard: int) -> list[str]:
    words = [sys.executable, "-I", "-S", str(BACKEND), json.dumps(plan.as_data()), str(log)]
    return words + [str(each) for each in heard]


class Deaf:
    """A stream that no cancel reaches; it ends with its process."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.guarded_process = stream.guarded_process

    def __aiter__(self) -> Deaf:
        return self

    async def __anext__(self) -> Any:
        with anyio.CancelScope(shield=True):
            return await anext(self._stream)


class LostStore(MemoryStore):
    """A store that cannot be reached, now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._draw = random.Random(seed)

    def update(self, key: str, change: Any) -> Any:
        if self._draw.random() < 0.5:
            raise ConnectionError("the store cannot be reached")
        return super().update(key, change)


async def play(plan: Plan, folder: Path, full: Path | None) -> Seen:
    seen = Seen(plan, folder / "truth")
    began = time.monotonic()
    with anyio.move_on_after(LONGEST) as patience:
        try:
            await _consume(plan, seen, folder, full)
        except StreamGuardError as error:
            seen.error = f"{type(error).__name__}: {error}"
        except BaseExceptionGroup as errors:
            seen.error = repr(errors.exceptions)
        except Exception as error:
            seen.error = repr(error)
    seen.hung = patience.cancelled_caught
    seen.took = time.monotonic() - began
    return seen


async def _consume(plan: Plan, seen: Seen, folder: Path, full: Path | None) -> None:
    draw = random.Random(plan.seed)
    blocks = dict.fromkeys(draw.sample(range(1, plan.messages + 1), len(plan.blocks)), 0.0)
    blocks = dict(zip(blocks, plan.blocks, strict=True))

    @asynccontextmanager
    async def open_(point: Any) -> AsyncIterator[Any]:
        attempt = plan.of_attempt(point.attempt)
        heard = point.cursor if isinstance(point.cursor, int) else 0
        words = command_of(plan, seen.log, heard)
        async with await anyio.open_process(words, stderr=subprocess.DEVNULL) as process:
            stream: Any = json_lines(process)
            if attempt.deaf:
                stream = Deaf(stream)

            async def disconnect() -> None:
                if attempt.closing == "hangs":
                    await anyio.sleep_forever()
                if attempt.closing == "raises":
                    raise ConnectionError("no such connection")
                await anyio.sleep(0.3 if attempt.closing == "slow" else 0)

            yield Connection(stream, process=process, disconnect=disconnect)

    policy = RetryPolicy(
        **{
            kind: Backoff(_RETRIES, (0.02,))
            for kind in ("idle", "network", "server", "unknown", "rate_limit")
        }
    )
    guard = idle_guard(
        IDLE,
        liveness=IDLE,
        tools=60,
        exit_grace=2,
        disconnect_timeout=1,
        kill_grace=0.3,
        observer=seen.saw,
    )
    breaker = CircuitBreaker(
        "weather", pause=0.05, escalate_after=None, store=LostStore(plan.seed)
    )
    resume = reconnecting_resume(
        policy=policy,
        dedupe_by=lambda message: message.get("seq"),
        breaker=breaker if plan.lost else None,
    )
    pipe = guard | resume
    if plan.full and full is not None:
        pipe = pipe | record_with(Recorder(full / plan.name.replace(":", "-")))
    with anyio.CancelScope() as scope:
        async with session(open_, prompt="go") | pipe as chat, anyio.create_task_group() as group:
            async for message in chat:
                if message.get("type") == "result":
                    seen.ended, seen.failed = not message["is_error"], message["is_error"]
                if (seq := message.get("seq")) is None:
                    continue
                seen.got.append(seq)
                if seconds := blocks.pop(seq, None):
                    at = time.monotonic()
                    time.sleep(seconds)
                    seen.blocked.append((at, time.monotonic()))
                if seq == plan.leaves_at and plan.consumer != "stays":
                    if plan.consumer == "slow":
                        await anyio.sleep(1.5 * IDLE)
                        continue
                    seen.left = True
                    if plan.consumer == "breaks":
                        break
                    group.start_soon(_cancel_soon, scope, draw.uniform(0, 0.3))
            group.cancel_scope.cancel()


async def _cancel_soon(scope: anyio.CancelScope, seconds: float) -> None:
    await anyio.sleep(seconds)
    scope.cancel()
