"""How far a verdict, a reconnect and a line go: calls, files, and changes of file on the way.

    python -m benchmarks.ways            # three rows
    python -m benchmarks.ways --list     # and each call

Counted, not timed: the same on every machine, and smaller is easier to follow. From the pull that meets the
verdict to its error; from there to the first message of the next attempt; and what one more JSON line costs
`streamguard run`. On asyncio, with logging off, without observers, and with all that is imported later there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn, TypeAlias

import streamguard
from streamguard import Connection, IdleTimeoutError, idle_guard, reconnecting_resume, session

ROOT = str(Path(streamguard.__file__).parent) + os.sep
LINE = json.dumps(
    {
        "type": "assistant",
        "message": {"content": [{"type": "text", "text": "hi"}]},
        "session_id": "s",
    }
)

LINES = 8

Call: TypeAlias = tuple[str, str]

READ: Call = ("backends/stream_reading.py", "Reading.signals")  # once for each line


@contextmanager
def counted() -> Iterator[list[Call]]:
    """The calls of the package's functions in this thread; a coroutine that goes on counts again."""
    calls: list[Call] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(ROOT):
            calls.append((code.co_filename.removeprefix(ROOT), code.co_qualname))

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def disconnect() -> None:
    pass


async def a_verdict() -> list[Call]:
    async def stream() -> AsyncGenerator[str, None]:
        yield "a"
        await asyncio.sleep(3600)

    messages = aiter(stream() | idle_guard(0.05, disconnect=disconnect))
    await anext(messages)
    with counted() as calls, suppress(IdleTimeoutError):
        await anext(messages)
    return calls


async def a_reconnect() -> list[Call]:
    attempts = 0

    async def stream() -> AsyncGenerator[dict[str, Any], None]:
        yield {"type": "system", "subtype": "init", "session_id": "s"}
        if attempts == 1:
            yield json.loads(LINE)
            await asyncio.sleep(3600)

    @asynccontextmanager
    async def connect(_point: Any) -> AsyncGenerator[Connection[dict[str, Any]], None]:
        nonlocal attempts
        attempts += 1
        yield Connection(stream(), disconnect=disconnect)

    guarded = session(connect, prompt="x") | idle_guard(0.05) | reconnecting_resume(backoff=(0,))
    async with guarded as chat:
        messages = aiter(chat)
        await anext(messages)
        await anext(messages)
        with counted() as calls:
            await anext(messages)
    return calls


def a_line() -> list[Call]:
    """What the command does for a line: for the one in the midst of many that comes to most often."""
    calls = _run_with(LINES)
    reads = [at for at, call in enumerate(calls) if call == READ]
    lines = Counter(tuple(calls[a:b]) for a, b in itertools.pairwise(reads))
    return list(lines.most_common(1)[0][0])


def _run_with(lines: int) -> list[Call]:
    script = f"for i in $(seq {lines}); do echo '{LINE}'; sleep 0.1; done"
    command = ("run", "--idle", "20", "--", "sh", "-c", script)
    with tempfile.NamedTemporaryFile() as file:
        subprocess.run(
            [sys.executable, "-m", "benchmarks.ways", "--in-process", file.name, *command],
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return [(home, name) for home, name in json.load(file)]


def _note_command(path: str, words: list[str]) -> None:
    from streamguard import cli

    end = os._exit  # which is how the command ends
    with counted() as calls:

        def note_and_end(code: int) -> NoReturn:
            Path(path).write_text(json.dumps(calls))
            end(code)

        os._exit = note_and_end
        cli.main(words)


def main() -> None:
    if sys.argv[1:2] == ["--in-process"]:
        _note_command(sys.argv[2], sys.argv[3:])
        return
    logging.disable(logging.CRITICAL)
    print(f"{'':10} {'calls':>6} {'files':>6} {'changes':>8}")
    for name, way in (("verdict", a_verdict), ("reconnect", a_reconnect), ("line", None)):
        if way is None:
            calls = a_line()
        else:
            asyncio.run(way())  # what is imported on the way is, from here on
            calls = asyncio.run(way())
        homes = [home for home, _ in calls]
        changes = sum(a != b for a, b in itertools.pairwise(homes))
        print(f"{name:10} {len(homes):6} {len(set(homes)):6} {changes:8}")
        if "--list" in sys.argv:
            print(*(f"    {home:30} {function}" for home, function in calls), sep="\n")


if __name__ == "__main__":
    main()
