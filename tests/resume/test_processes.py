"""D4, D5: a session whose backend is a real process, which alone proves that it is gone.

In real time. Only the first attempt hangs, and it does so for ever; a machine so busy that a later one
is late only costs another retry.
"""

from __future__ import annotations

import subprocess
from contextlib import asynccontextmanager

import anyio
import pytest

from streamguard import Connection, idle_guard, reconnecting_resume, session
from streamguard.process import ProcessTree
from streamguard.signals import Progress, SessionOpened
from streamguard.testing import swallows_cancel
from tests.support import Events, open_files

SAYS = "echo s-{attempt}; echo a; {then}"


@pytest.mark.parametrize("kind", ["plain", "deaf"])
@pytest.mark.parametrize("loop_name", ["asyncio", "trio"])
def test_a_process_that_hangs_is_ended_and_its_session_goes_on(loop_name, kind):
    """D5: with a stream that nothing ends, too: the proof is that the process is dead."""

    async def lines(process):
        yield SessionOpened("s-1")
        async for chunk in process.stdout:
            yield chunk.decode()

    async def main():
        processes = []

        @asynccontextmanager
        async def open_(point):
            then = "sleep 1000" if point.attempt == 1 else "exit 0"
            command = ["/bin/sh", "-c", SAYS.format(attempt=point.attempt, then=then)]
            async with await anyio.open_process(command, stderr=subprocess.DEVNULL) as process:
                processes.append(process)
                stream = lines(process)
                if kind == "deaf" and point.attempt == 1:
                    stream = swallows_cancel(stream)
                    deaf.append(stream)
                yield Connection(stream, process=process)

        deaf = []
        events = Events()
        before = open_files()
        guard = idle_guard(2, observer=events, kill_grace=1, read=_read)
        resume = reconnecting_resume(retries=20, backoff=[0])
        async with session(open_, prompt="go") | guard | resume as chat:
            got = [each async for each in chat if isinstance(each, str)]
        assert "s-1" in "".join(got)
        assert f"s-{len(processes)}" in "".join(got)
        assert len(processes) >= 2
        assert processes[0].returncode not in (None, 0)
        for stream in deaf:
            stream.release()
        with anyio.fail_after(30):
            while open_files() - before and loop_name == "asyncio":
                await anyio.sleep(0.05)
        assert not [each for each in processes if _lives(each.pid)]

    def _read(message):
        return message if isinstance(message, SessionOpened) else Progress()

    def _lives(pid):
        try:
            with ProcessTree.adopt(pid) as tree:
                return not tree.is_dead
        except ProcessLookupError:
            return False

    anyio.run(main, backend=loop_name)
