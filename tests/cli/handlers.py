"""Handlers for `streamguard fleet serve`, and what is none."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import sniffio

from streamguard import idle_guard, session
from streamguard.process import ProcessTree
from streamguard.testing import Script, done, hang, opened, say


async def note(lease):
    """What it was given, and on which loop."""
    loop = sniffio.current_async_library()
    if loop == "asyncio":
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
    with Path("seen").open("a", encoding="utf-8") as file:
        file.write(f"{lease.key} {lease.spec!r} {loop}\n")


def tell(what):
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def wait(lease):
    """Runs until it is ended."""
    tell("running")
    await anyio.sleep_forever()


async def deaf(lease):
    """Goes on, whoever ends it."""
    tell("running")
    with anyio.CancelScope(shield=True):
        await anyio.sleep_forever()


async def start(lease):
    """Has a backend."""
    backend = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
    with ProcessTree.adopt(backend) as tree, anyio.CancelScope():
        lease.keep(tree)
        tell(backend.pid)
        await anyio.sleep_forever()


async def hanging(lease):
    """Hangs at its first attempt."""
    script = Script(opened("s"), say("a"), hang()) if lease.attempt == 1 else Script(done())

    @asynccontextmanager
    async def open_backend(point):
        yield script

    talk = session(open_backend, point=lease.resume_point())
    async with talk | idle_guard(0.3) as chat:
        async for _ in chat:
            pass


async def fails(lease):
    raise KeyError("\x1b[2Jsecret")


class Handlers:
    class Inner:
        async def __call__(self, lease):
            await note(lease)

    inner = Inner()


def plain(lease):
    pass


async def stream(lease):
    yield lease


HANDLER = 3
