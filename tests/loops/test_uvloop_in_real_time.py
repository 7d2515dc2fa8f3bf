"""uvloop by the real clock, whose timers count whole milliseconds.

Everything else runs on uvloop in virtual time. Here nothing depends on how fast the machine is:
a limit may strike as late as it likes, but never early, and what no limit stands against may take
its time. Races for the last message in real time are in `test_last_message`.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest

from streamguard import (
    DeadlineExceededError,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    LivenessTimeoutError,
    StreamTimeoutError,
    ToolTimeoutError,
    TurnTimeoutError,
    idle_guard,
)
from streamguard._guard import attempt as attempt_module
from streamguard.events import PullDeaf, TimedOut
from streamguard.testing import (
    Script,
    done,
    fail,
    hang,
    ping,
    pings,
    repeat,
    say,
    silence,
    slow_cleanup,
    swallows_cancel,
    tool,
    tool_start,
)
from tests.support import Disconnect, Events, Leftovers, take

LIMIT = 0.05
NEVER = 1000.0


def run(main: Callable[[], Awaitable[None]]) -> None:
    anyio.run(main, backend="asyncio", backend_options={"use_uvloop": True})


@dataclass(frozen=True)
class Case:
    """What a stream does, which limit it meets if any, and what it must have given by then."""

    name: str
    script: Script
    error: type[BaseException] | None = None
    knobs: dict[str, float] = field(default_factory=dict[str, float])
    messages: int | None = None


CASES = (
    Case("ends", Script(say("a"), silence(0.001), say("b")), messages=2),
    Case("raises", Script(say("a"), fail(ValueError)), ValueError, messages=1),
    Case("works for long", Script(tool("Bash", 4 * LIMIT), done()), None, {"idle": LIMIT}, 3),
    Case("hangs", Script(say("a"), hang()), IdleTimeoutError, {"idle": LIMIT}, 1),
    Case("never begins", Script(hang()), FirstMessageTimeoutError, {"first": LIMIT}, 0),
    Case("only pings", Script(pings(0.001)), IdleTimeoutError, {"idle": LIMIT}),
    Case(
        "stops pinging",
        Script(ping(), tool_start("t-1"), hang()),
        LivenessTimeoutError,
        {"liveness": LIMIT},
        2,
    ),
    Case(
        "never finishes its work",
        Script(tool_start("t-1"), hang()),
        ToolTimeoutError,
        {"tools": LIMIT},
        1,
    ),
    Case(
        "never ends its turn",
        Script(repeat(silence(0.001), say("a"))),
        TurnTimeoutError,
        {"turn": LIMIT},
    ),
    Case(
        "takes too long in all",
        Script(repeat(silence(0.001), say("a"))),
        DeadlineExceededError,
        {"total": LIMIT},
    ),
    Case("stays after its turn", Script(done(), hang()), None, {"exit_grace": LIMIT}, 1),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_limit_is_never_early_and_nothing_is_left(case: Case, form: str) -> None:
    """T2, O7: the right error, not before its time, torn down, with nothing left."""

    async def main() -> None:
        await anyio.sleep(0)
        before, disconnect, events = Leftovers(), Disconnect(), Events()
        knobs: dict[str, Any] = dict(case.knobs)
        idle = knobs.pop("idle", None if "total" in knobs or "turn" in knobs else NEVER)
        began = time.monotonic()
        taken = await take(
            case.script | idle_guard(idle, disconnect=disconnect, observer=events, **knobs), form
        )
        took = time.monotonic() - began

        assert type(taken.error) is (case.error or type(None)), repr(taken.error)
        assert case.messages in (None, len(taken.messages))
        if isinstance(taken.error, StreamTimeoutError):
            assert taken.error.verdict.elapsed >= LIMIT
            assert taken.error.teardown is not None
            assert taken.error.teardown.confirmed
        struck = "exit_grace" in case.knobs or isinstance(taken.error, StreamTimeoutError)
        assert took >= LIMIT * struck
        assert disconnect.finished == len(events.of(TimedOut)) == struck
        await anyio.sleep(0.002)
        before.check()

    run(main)


def test_no_window_is_rounded_down() -> None:
    """T2: uvloop rounds half of all times down; a limit is never early for that."""

    async def main() -> None:
        windows = [0.01 + n / 10_000 for n in range(100)]

        async def elapsed(window: float) -> float:
            began = time.monotonic()
            taken = await take(Script(hang()) | idle_guard(window))
            assert isinstance(taken.error, IdleTimeoutError)
            return time.monotonic() - began

        for window, took in zip(
            windows, await asyncio.gather(*map(elapsed, windows)), strict=True
        ):
            assert took >= window

    run(main)


def test_total_strikes_while_the_consumer_works() -> None:
    """O5: it cancels the block, and surfaces at the `async with`."""

    async def main() -> None:
        began = time.monotonic()
        with pytest.raises(DeadlineExceededError):
            async with Script(say("a")) | idle_guard(None, total=LIMIT) as messages:
                async for _ in messages:
                    await anyio.sleep_forever()
        assert time.monotonic() - began >= LIMIT

    run(main)


def test_a_deaf_pull_is_freed_by_the_teardown(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """O6: what does not hear the cancel is ended by the disconnect, after its bound."""
    monkeypatch.setattr(attempt_module, "UNWINDING", LIMIT)

    async def main() -> None:
        source, events = swallows_cancel(Script(say("a"), hang()), "hang"), Events()
        guard = idle_guard(LIMIT, disconnect=source.release, observer=events)
        began = time.monotonic()
        taken = await take(source | guard, form)
        assert isinstance(taken.error, IdleTimeoutError)
        assert time.monotonic() - began >= 2 * LIMIT
        assert len(events.of(PullDeaf)) == 1

    run(main)


def test_slow_cleanup_comes_before_the_disconnect(form: str) -> None:
    """D1: a pull that unwinds within its bound is over before the disconnect begins."""

    async def main() -> None:
        disconnect, loop = Disconnect(), asyncio.get_running_loop()
        began = loop.time()
        taken = await take(
            slow_cleanup(Script(hang()), LIMIT) | idle_guard(LIMIT, disconnect=disconnect), form
        )
        assert isinstance(taken.error, IdleTimeoutError)
        # Two waits, each begun and ended by a clock of whole milliseconds.
        assert disconnect.calls[0] - began >= 2 * LIMIT - 0.004

    run(main)


def test_a_blocked_loop_with_the_message_in_the_socket(form: str) -> None:
    """T4: a loop that did not run is no silence; the message that lies there is delivered."""
    window = 0.2

    async def main() -> None:
        near, far = socket.socketpair()
        near.setblocking(False)

        async def lines() -> Any:
            while line := await asyncio.get_running_loop().sock_recv(near, 100):
                yield line

        async def block() -> None:
            await anyio.sleep(window / 2)
            far.send(b"in time")
            far.shutdown(socket.SHUT_WR)
            time.sleep(2 * window)

        with near, far:
            async with anyio.create_task_group() as tg:
                tg.start_soon(block)
                taken = await take(lines() | idle_guard(window), form)
        assert taken.error is None
        assert taken.messages == [b"in time"]

    run(main)
