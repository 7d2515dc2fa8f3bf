"""A command line hangs, deaf to TERM, with a tool of its own; streamguard ends both and says how.

Needs nothing but streamguard. Takes about three seconds of real time. The tool has left for a
session of its own, so that neither its parent's end nor a signal to the group would reach it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from asyncio.subprocess import PIPE

from streamguard import IdleTimeoutError, exit_code_for, idle_guard, lines
from streamguard.process import ProcessTree, marked_env

IDLE = 1.5
KILL_GRACE = 1.0

BACKEND = """
import signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("I will run the tests", flush=True)
command = [sys.executable, "-c", "import time; time.sleep(1000)"]
tool = subprocess.Popen(command, start_new_session=True)
print(f"they run, as process {tool.pid}", flush=True)
time.sleep(1000)
"""


async def main() -> int:
    began = time.monotonic()

    def show(what: object) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)

    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", BACKEND), stdout=PIPE, env=marked_env()
    )
    pids = [process.pid]
    show(f"started the backend, process {process.pid}; silence is allowed for {IDLE:g} s")
    # `lines` knows its process, so the guard does: elsewhere it is told, with process=.
    guarded = lines(process) | idle_guard(IDLE, kill_grace=KILL_GRACE)
    try:
        async for line in guarded:
            show(f"> {line}")
            pids += map(int, re.findall(r"process (\d+)", line))
    except IdleTimeoutError as error:
        show(f"caught: {error}")
        for pid in pids:
            with ProcessTree.adopt(pid) as tree:
                show(f"process {pid} is {'gone' if tree.is_dead else 'STILL THERE'}")
        show(f"a command line would exit with {exit_code_for(error)}")
        await process.wait()  # who starts a process reaps it
        return 0
    show("the backend ended by itself, which this example did not expect")
    return 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="         log: %(message)s")
    sys.exit(asyncio.run(main()))
