"""The sentinel as users write it. Checked, never run."""

from __future__ import annotations

import asyncio
import subprocess
import time
from datetime import timedelta
from typing import assert_type

import anyio.abc

from streamguard import Sentinel, sentinel
from streamguard.process import ProcessTree


def at_the_start() -> Sentinel:
    assert_type(sentinel(), Sentinel)
    assert_type(sentinel(kill_grace=0), Sentinel)
    return sentinel(kill_grace=timedelta(seconds=10))


def for_a_while(process: subprocess.Popen[bytes]) -> None:
    with sentinel() as guard:
        assert_type(guard, Sentinel)
        guard.adopt(process)
        guard.adopt(4711)
        guard.adopt(process, until=time.clock_gettime(time.CLOCK_BOOTTIME) + 30)
        guard.renew(process, 4711.25)
        guard.renew(4711, None)
        guard.release(process)
        assert_type(guard.pid, int | None)
    guard.close()


async def any_process_object(
    guard: Sentinel, one: asyncio.subprocess.Process, other: anyio.abc.Process, tree: ProcessTree
) -> None:
    for process in (one, other, tree):
        guard.adopt(process)
        guard.release(process)


def mistakes(guard: Sentinel) -> None:
    sentinel(5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    sentinel(kill_grace=[5])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.adopt("4711")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.adopt(4711, until="soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    guard.renew(4711)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    guard.release()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
