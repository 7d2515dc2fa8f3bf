"""A program that opens sessions, as each line of its stdin says; it answers with one line.

owning.py ROOM LOOP    the locks are in ROOM; asyncio or trio

race AT TOKEN KIND     at that instant (monotonic), open the session; `exclusive`, or `careless`
hold TOKEN KIND WORDS  the same with a backend process that follows the words; waits for its children, too
leave                  leave the block that is open
fork                   fork a child that lives on without exec; tells its pid

Answers: `opened LIVING [PIDS]` (how many of PIDS in the environment's WATCHED live as it opens),
`held PID`, `left`, `forked PID`.
"""

import os
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from streamguard import Connection, ResumePoint, SessionHeldError, session
from streamguard.process import marked_env
from streamguard.process.procfs import read_stat
from streamguard.sessions import exclusive

BACKEND = Path(__file__).parents[2] / "process/children/backend.py"


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def hear():
    line = sys.stdin.readline()
    return line.split() if line else ["end"]


def living():
    stats = map(read_stat, map(int, os.environ.get("WATCHED", "").split()))
    return sum(stat is not None and not stat.is_dead for stat in stats)


def backend_of(words):
    process = subprocess.Popen(
        [sys.executable, "-S", BACKEND, *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=marked_env(),
        start_new_session=True,
    )
    for _ in range(words.count("ready")):
        assert process.stdout.readline() == b"ready\n"
    return process


async def own(token, kind, words):
    process = None

    @asynccontextmanager
    async def opened(point):
        nonlocal process
        alive = living()
        process = backend_of(words) if words else None

        async def stream():
            yield alive

        yield Connection(stream(), process=process)

    name = "test" if kind == "exclusive" else None
    point = ResumePoint(token=token)
    try:
        async with session(opened, point=point, exclusive=name) as chat:
            async for alive in chat:
                say("opened", alive, *([process.pid] if process else []))
                while (word := hear()) == ["fork"]:
                    fork()
                assert word == ["leave"], word
        if process is not None:
            process.kill()
            process.wait()
        say("left")
    except SessionHeldError as error:
        is_well_said = token not in str(error) and f"process {error.holder.pid} " in str(error)
        say("held" if is_well_said else "badly", error.holder.pid)


def fork():
    if child := os.fork():
        say("forked", child)
        return
    sys.stdin.close()
    time.sleep(600)


async def main():
    while True:
        match hear():
            case ["race", at, token, kind]:
                while time.monotonic() < float(at):
                    pass
                await own(token, kind, ())
            case ["hold", token, kind, *words]:
                await own(token, kind, words)
            case _:
                return


exclusive._ROOM = Path(sys.argv[1])
say("ready")
anyio.run(main, backend=sys.argv[2])
