"""Real processes on every loop, started in every way: where `lines` has to work.

A process here leads a session of its own, so that at the end all of it can be killed, what
holds its pipes included. Commands are `cat`, which says what it is told, and small scripts.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread

PATIENCE = 30.0


@dataclass(frozen=True)
class Ground:
    """One event loop and one kind of process object."""

    backend: str
    kind: str

    def __str__(self) -> str:
        return f"{self.kind} on {self.backend}"

    def run(self, main: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Run `main(*args)` in real time, but not for ever."""

        async def bounded() -> Any:
            with anyio.fail_after(PATIENCE):
                return await main(*args)

        uvloop = self.backend == "uvloop"
        options = {"use_uvloop": True} if uvloop else {}
        backend = "asyncio" if uvloop else self.backend
        return anyio.run(bounded, backend=backend, backend_options=options)

    @contextlib.asynccontextmanager
    async def start(self, *command: str, **pipes: Any) -> AsyncIterator[Any]:
        """A process with three pipes, unless `pipes` say otherwise; gone afterwards."""
        pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE, **pipes}
        process = await self._open(command, start_new_session=True, **pipes)
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with anyio.CancelScope(shield=True):
                await self._reap(process)

    async def write(self, process: Any, data: bytes) -> None:
        """Write `data` to the process's stdin, all of it."""
        match self.kind:
            case "asyncio":
                process.stdin.write(data)
                await process.stdin.drain()
            case "anyio":
                await process.stdin.send(data)
            case "trio":
                await process.stdin.send_all(data)
            case "popen":
                await anyio.to_thread.run_sync(process.stdin.write, data)
                await anyio.to_thread.run_sync(process.stdin.flush)

    async def end_input(self, process: Any) -> None:
        """Close the process's stdin."""
        if self.kind in ("asyncio", "popen"):
            process.stdin.close()
        else:
            await process.stdin.aclose()

    async def _open(self, command: tuple[str, ...], **options: Any) -> Any:
        match self.kind:
            case "asyncio":
                return await asyncio.create_subprocess_exec(*command, **options)
            case "anyio":
                return await anyio.open_process(command, **options)
            case "trio":
                import trio

                return await trio.lowlevel.open_process(command, **options)
            case _:
                return subprocess.Popen(command, **options)

    async def _reap(self, process: Any) -> None:
        match self.kind:
            case "asyncio":
                process._transport.close()
                await process.wait()
            case "anyio":
                await process.aclose()
            case "trio":
                for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
                    await pipe.aclose()
                await process.wait()
            case "popen":
                with process:
                    pass
        await anyio.lowlevel.checkpoint()


GROUNDS = [
    Ground(backend, kind)
    for backend in ("asyncio", "uvloop", "trio")
    for kind in ("anyio", "trio" if backend == "trio" else "asyncio", "popen")
]


def python(script: str) -> tuple[str, ...]:
    """The command that runs `script`, started fast."""
    return (sys.executable, "-I", "-S", "-c", script)


async def until(condition: Callable[[], object]) -> None:
    """Wait for what other processes do; the ground's patience bounds it."""
    while not condition():
        await anyio.sleep(0.001)


def open_files() -> list[str]:
    """What this process's descriptors stand for."""
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the listing's own
            found.append(str(fd.readlink()))
    return sorted(found)
