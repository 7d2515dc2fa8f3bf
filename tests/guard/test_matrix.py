"""Every way a stream can go x every make of upstream x every form x every loop.

Each cell checks the right error, at the right time, with nothing lost and nothing left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import anyio
import pytest
import trio

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
from streamguard.events import StreamEnded, TimedOut, TornDown
from streamguard.testing import (
    Channel,
    Script,
    done,
    fail,
    hang,
    holds_scope,
    holds_task_group,
    own_fail_after,
    ping,
    pings,
    relayed,
    repeat,
    say,
    silence,
    slow_cleanup,
    tool,
    tool_start,
)
from tests.conftest import Loop
from tests.support import Disconnect, Events, Leftovers, take

CLEANUP = 3.0


@dataclass(frozen=True)
class Fault:
    """What a stream does, and what must come of it."""

    name: str
    script: Script
    error: type[BaseException] | None
    after: float
    messages: int
    knobs: dict[str, float] = field(default_factory=dict[str, float])


FAULTS = (
    Fault("ends", Script(say("a"), silence(50), say("b")), None, 50, 2),
    Fault("ends its turn", Script(say("a"), done()), None, 0, 2),
    Fault("gives nothing", Script(), None, 0, 0),
    Fault("works for long", Script(tool("Bash", 500), done()), None, 500, 3),
    Fault("raises", Script(say("a"), fail(ValueError)), ValueError, 0, 1),
    Fault("times out itself", Script(say("a"), fail(TimeoutError)), TimeoutError, 0, 1),
    Fault("hangs", Script(say("a"), hang()), IdleTimeoutError, 60, 1),
    Fault(
        "hangs after a while",
        Script(say("a"), silence(50), say("b"), hang()),
        IdleTimeoutError,
        110,
        2,
    ),
    Fault("hangs from the start", Script(hang()), IdleTimeoutError, 60, 0),
    Fault(
        "never begins",
        Script(hang()),
        FirstMessageTimeoutError,
        30,
        0,
        {"first": 30},
    ),
    Fault("only pings", Script(pings(25)), IdleTimeoutError, 60, 2),
    Fault(
        "stops pinging",
        Script(ping(), tool_start("t-1"), hang()),
        LivenessTimeoutError,
        40,
        2,
        {"liveness": 40},
    ),
    Fault(
        "never finishes its work",
        Script(tool_start("t-1"), hang()),
        ToolTimeoutError,
        100,
        1,
        {"tools": 100},
    ),
    Fault(
        "never ends its turn",
        Script(repeat(silence(40), say("a"))),
        TurnTimeoutError,
        100,
        2,
        {"turn": 100},
    ),
    Fault(
        "takes too long in all",
        Script(repeat(silence(40), say("a"))),
        DeadlineExceededError,
        100,
        2,
        {"total": 100},
    ),
    Fault(
        "stays after its turn",
        Script(say("a"), done(), hang()),
        None,
        10,
        2,
        {"exit_grace": 10},
    ),
)


@dataclass(frozen=True)
class Make:
    """What an upstream is made of; `wraps_errors` in a group, and cleans up for so long."""

    name: str
    make: Callable[[Script], Any]
    wraps_errors: bool = False
    cleanup: float = 0.0


MAKES = (
    Make("generator", aiter),
    Make("channel", Channel),
    Make("scope", holds_scope),
    Make("task group", holds_task_group, wraps_errors=True),
    Make("relayed", lambda script: relayed(script, "task_group"), wraps_errors=True),
    Make("fail_after", lambda script: own_fail_after(script, 5000)),
    Make(
        "slow cleanup",
        lambda script: slow_cleanup(script, CLEANUP, shielded=True),
        cleanup=CLEANUP,
    ),
    Make("channel in a group", lambda script: holds_task_group(Channel(script)), True),
)


def cancelling() -> int:
    if trio.lowlevel.in_trio_task():
        return 0
    task = asyncio.current_task()
    return task.cancelling() if task is not None else 0


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.name)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
async def test_matrix(loop: Loop, form: str, fault: Fault, make: Make) -> None:
    """O6, O7, T7: right error, right time, nothing lost, nothing left."""
    await anyio.sleep(0)
    before, disconnect, events = Leftovers(), Disconnect(), Events()
    knobs: dict[str, Any] = dict(fault.knobs)
    idle = None if "total" in knobs else 60
    guard = idle_guard(idle, disconnect=disconnect, observer=events, **knobs)
    source = make.make(fault.script)
    taken = await take(source | guard, form)

    check_error(taken.error, fault, make)
    assert len(taken.messages) == fault.messages
    assert loop.took(taken.elapsed, fault.after + make.cleanup)
    struck = "exit_grace" in fault.knobs or isinstance(taken.error, StreamTimeoutError)
    assert disconnect.finished == struck
    assert len(events.of(TimedOut)) == len(events.of(TornDown)) == struck
    assert len(events.of(StreamEnded)) == 1
    if isinstance(taken.error, StreamTimeoutError):
        assert taken.error.teardown is not None
        assert taken.error.teardown.confirmed

    assert cancelling() == 0
    if isinstance(source, Channel):
        await source.aclose()  # its own task is its owner's, not the guard's
    for _ in range(4):
        await anyio.sleep(1)
    before.check()


def check_error(error: BaseException | None, fault: Fault, make: Make) -> None:
    if fault.error is None:
        assert error is None, repr(error)
    elif make.wraps_errors and not issubclass(fault.error, StreamTimeoutError):
        # The upstream's own group: what it makes of its error is passed on as it is.
        assert isinstance(error, ExceptionGroup)
        assert error.subgroup(fault.error) is not None
    else:
        assert type(error) is fault.error, repr(error)
