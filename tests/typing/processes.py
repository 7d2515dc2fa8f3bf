"""Processes as users write them: their lines, and their trees. Checked, never run.

Lines marked with two ignores must be errors, for mypy and for pyright each.
"""

from __future__ import annotations

import asyncio.subprocess
import subprocess
from types import SimpleNamespace
from typing import Any, assert_type

import anyio.abc
import trio

from streamguard import (
    Guarded,
    InvalidLineError,
    LineError,
    LineTooLongError,
    StreamGuardError,
    idle_guard,
    json_lines,
    lines,
)
from streamguard.process import ProcessTree, Termination, marked_env

# --- lines of any process object, and what a guard makes of them (O3)


async def lines_of_every_kind_of_process(
    popen: subprocess.Popen[bytes],
    on_asyncio: asyncio.subprocess.Process,
    on_anyio: anyio.abc.Process,
    on_trio: trio.Process,
) -> None:
    async for line in lines(popen):
        assert_type(line, str)
    async for line in lines(on_asyncio, max_line=1_000_000, tail=0, errors="surrogateescape"):
        assert_type(line, str)
    async for message in json_lines(on_anyio, close_stdin=True):
        assert_type(message, dict[str, Any])
    assert_type(lines(on_trio) | idle_guard(180), Guarded[str])
    assert_type(json_lines(on_trio) | idle_guard(180), Guarded[dict[str, Any]])


def as_message(line: str) -> dict[str, Any] | None:
    return {"notice": line} if line else None


async def what_is_no_json(process: anyio.abc.Process) -> None:
    json_lines(process, on_invalid="raise")
    source = json_lines(process, on_invalid=as_message)
    assert_type(await anext(source), dict[str, Any])
    assert_type(source.skipped, int)
    assert_type(source.tail.stderr, str)
    await source.aclose()


def line_errors(too_long: LineTooLongError, invalid: InvalidLineError) -> StreamGuardError:
    either: LineError = too_long if too_long.number else invalid
    assert_type(either.number, int)
    assert_type(either.tail.stdout, str)
    no_value: ValueError = invalid
    del no_value
    return either


# --- trees are adopted, looked at and ended (D4, D5)


async def a_tree_is_adopted_and_ended(
    popen: subprocess.Popen[str],
    on_asyncio: asyncio.subprocess.Process,
    on_anyio: anyio.abc.Process,
    on_trio: trio.Process,
) -> None:
    for process in (4711, popen, on_asyncio, on_anyio, on_trio):
        with ProcessTree.adopt(process) as tree:
            assert_type(tree, ProcessTree)
            assert_type(await tree.look(), tuple[int, ...])
            await tree.wait_dead()
            ended = await tree.terminate(5, budget=20.0)
            assert_type(ended, Termination)
            assert_type(ended.confirmed, bool)
            assert_type(ended.survivors, tuple[int, ...])
            assert_type(ended.exit, int | None)
            assert_type(tree.termination, Termination | None)
            assert_type(tree.is_dead, bool)
            assert_type(tree.exit_status, int | None)


def a_process_is_started_with_a_mark() -> None:
    with subprocess.Popen(["claude"], env=marked_env()):
        pass
    assert_type(marked_env({"KEY": "value"}), dict[str, str])


# --- what must not type


def mistakes(process: anyio.abc.Process, tree: ProcessTree) -> None:
    lines(4711)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    lines(process, max_lines=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    lines(process, 3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    json_lines(process, on_invalid="ignore")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ProcessTree.adopt("4711")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    ProcessTree.adopt(SimpleNamespace)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tree.terminate(5, 20)  # type: ignore[call-arg, unused-coroutine]  # pyright: ignore[reportCallIssue]
