"""T4: time in which the loop did not run is not silence."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest

from streamguard import DeadlineExceededError, IdleTimeoutError, TurnTimeoutError, idle_guard
from streamguard._watch import watch
from streamguard.events import LoopStalled, TimedOut
from streamguard.testing import Script, block_loop, hang, relayed, say
from tests.conftest import Loop
from tests.support import Events, take

WINDOW = 60.0


class Lines:
    """What a peer wrote to a socket, line by line."""

    def __init__(self) -> None:
        self._near, self.far = socket.socketpair()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        self._near.setblocking(False)
        while True:
            await anyio.wait_readable(self._near)
            if not (line := self._near.recv(100)):
                return
            yield line

    def close(self) -> None:
        self._near.close()
        self.far.close()


async def blocked_while_it_lies_in_the_socket(lines: Lines) -> None:
    """The peer writes in time, but the loop does not run until long after the deadline."""
    await anyio.sleep(WINDOW * 0.75)
    lines.far.send(b"in time")
    lines.far.shutdown(socket.SHUT_WR)
    block_loop(WINDOW)


@pytest.mark.parametrize("through", ["directly", "task_group", "create_task"])
def test_a_blocked_loop_with_the_message_in_the_socket(
    loop: Loop, form: str, through: Any
) -> None:
    """T4: no verdict; the message is delivered, directly and behind a relay."""
    if through == "create_task" and loop.name == "trio":
        pytest.skip("a way of asyncio's")

    async def main() -> None:
        events, lines = Events(), Lines()
        source: Any = lines if through == "directly" else relayed(lines, through)
        async with anyio.create_task_group() as tg:
            tg.start_soon(blocked_while_it_lies_in_the_socket, lines)
            taken = await take(source | idle_guard(WINDOW, observer=events), form)
        lines.close()
        assert taken.error is None
        assert taken.messages == [b"in time"]
        assert not events.of(TimedOut)
        # Whether the stall was told, too, is a matter of who came first in that pass.
        assert all(stalled.limit == "idle" for stalled in events.of(LoopStalled))

    loop.run(main)


async def blocked_while_the_peer_waits_for_us(lines: Lines) -> None:
    """The peer was asked by us late, since the loop did not run, and answers soon."""
    await anyio.sleep(WINDOW * 0.75)
    block_loop(WINDOW)
    await anyio.sleep(0.5)
    with suppress(OSError):  # a verdict has closed it
        lines.far.send(b"in time")
        lines.far.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("protected", [True, False], ids=["", "control"])
def test_a_peer_that_only_waited_for_us_is_not_ended_for_it(
    loop: Loop, form: str, monkeypatch: pytest.MonkeyPatch, protected: bool
) -> None:
    """T4: the control: with no limit put off, it is."""
    if not protected:
        monkeypatch.setattr(watch, "STALLS_IN_A_ROW", 0)

    async def main() -> None:
        lines = Lines()
        async with anyio.create_task_group() as tg:
            tg.start_soon(blocked_while_the_peer_waits_for_us, lines)
            taken = await take(lines | idle_guard(WINDOW), form)
        lines.close()
        assert isinstance(taken.error, type(None) if protected else IdleTimeoutError)

    loop.run(main)


async def blocking(times: int, extension: float) -> None:
    """Keep the loop from running over the deadline, and over each extension of it."""
    await anyio.sleep(WINDOW * 0.75)
    block_loop(WINDOW)
    for _ in range(times - 1):
        await anyio.sleep(extension / 2)
        block_loop(extension * 2)


@pytest.mark.parametrize(("stalls", "extensions"), [(1, 1), (2, 2), (3, 3), (4, 3)])
async def test_stalls_in_a_row(loop: Loop, form: str, stalls: int, extensions: int) -> None:
    """T4: each puts the limit off, three times at most; then the verdict."""
    events = Events()
    extension = min(WINDOW, 1.0)
    async with anyio.create_task_group() as tg:
        tg.start_soon(blocking, stalls, extension)
        stream = Script(say("a"), hang()) | idle_guard(WINDOW, observer=events)
        taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    told = events.of(LoopStalled)
    assert len(told) == extensions
    assert {stalled.extended_by for stalled in told} == {extension}


async def test_a_stall_moves_no_other_limit(loop: Loop, form: str) -> None:
    """T4: `turn` is due at its own time, though the extension of `idle` goes on beyond it."""
    events = Events()
    async with anyio.create_task_group() as tg:
        tg.start_soon(blocking, 1, 0.0)  # from 45 s to 105 s
        guard = idle_guard(WINDOW, turn=WINDOW * 1.75 + 0.5, observer=events)
        taken = await take(Script(say("a"), hang()) | guard, form)
    assert isinstance(taken.error, TurnTimeoutError)
    assert [stalled.limit for stalled in events.of(LoopStalled)] == ["idle"]
    assert loop.took(taken.elapsed, WINDOW * 1.75 + 0.5)


async def test_a_little_late_is_no_stall(loop: Loop, form: str) -> None:
    """T4: up to 250 ms, or half the window, a deadline that is noticed late still counts."""
    events = Events()

    async def busy() -> None:
        await anyio.sleep(WINDOW - 0.001)
        block_loop(min(0.2, WINDOW / 6))

    async with anyio.create_task_group() as tg:
        tg.start_soon(busy)
        stream = Script(hang()) | idle_guard(WINDOW, observer=events)
        taken = await take(stream, form)
    assert isinstance(taken.error, IdleTimeoutError)
    assert not events.of(LoopStalled)


async def test_total_is_exempt(loop: Loop, form: str) -> None:
    """T4: `total` is not about silence: a blocked loop does not put it off."""
    events = Events()
    async with anyio.create_task_group() as tg:
        tg.start_soon(blocking, 1, 0.0)
        stream = Script(hang()) | idle_guard(None, total=WINDOW, observer=events)
        taken = await take(stream, form)
    assert isinstance(taken.error, DeadlineExceededError)
    assert not events.of(LoopStalled)


async def test_a_blocking_consumer_is_no_silence(loop: Loop, form: str) -> None:
    """T1: a consumer that blocks the loop between messages adds nothing to any silence."""
    events = Events()
    stream = Script(say("a"), say("b")) | idle_guard(WINDOW, observer=events)
    taken = await take(stream, form, lambda _: block_loop(WINDOW * 2))
    assert taken.error is None
    assert len(taken.messages) == 2
    assert not events.of(LoopStalled)


def test_the_loop_goes_on_after_a_stall(loop: Loop) -> None:
    """T4: one stream's stall is nobody else's: each is judged by its own deadline."""
    if loop.name == "trio":
        pytest.skip("asyncio's gather")

    async def main() -> None:
        async with anyio.create_task_group() as tg:
            tg.start_soon(blocking, 1, 0.0)
            early, late = await asyncio.gather(
                take(Script(hang()) | idle_guard(WINDOW)),
                take(Script(hang()) | idle_guard(WINDOW * 4)),
            )
        assert isinstance(early.error, IdleTimeoutError)
        assert loop.took(late.elapsed, WINDOW * 4)

    loop.run(main)
