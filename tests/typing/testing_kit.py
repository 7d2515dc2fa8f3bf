"""The testing kit as test authors write it. Read by mypy and pyright, never run."""

from __future__ import annotations

import asyncio
from typing import assert_type

from streamguard import idle_guard
from streamguard.testing import (
    FakeClient,
    Script,
    VirtualLoop,
    VirtualTime,
    hang,
    run_virtual,
    say,
    swallows_cancel,
    virtual_options,
)
from streamguard.testing.uvloop_clock import VirtualUvloop


async def main(number: int) -> str:
    """Some code under test."""
    return str(number)


def test_of_a_user(virtual_time: VirtualTime) -> None:
    """A sync test with the fixture."""
    assert_type(virtual_time.run(main, 3, backend="trio"), str)
    assert_type(virtual_time.now(), float)


def clocks() -> None:
    """Virtual time without pytest."""
    assert_type(run_virtual(main, 3), str)
    assert_type(run_virtual(main, 3, backend="uvloop"), str)
    run_virtual(main, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    run_virtual(main, 3, backend="curio")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    virtual_options("twisted")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    for factory in (VirtualLoop, VirtualUvloop):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert_type(runner.run(main(3)), str)


async def sources() -> None:
    """What a script gives can be anything, so it is guarded like anything."""
    source = swallows_cancel(Script(say("x"), hang()))
    async for _ in source | idle_guard(180, disconnect=source.release):
        pass
    client = FakeClient(Script(say("x")))
    async for _ in client.receive_response() | idle_guard(180, client=client):
        pass
