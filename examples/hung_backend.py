"""A scripted backend hangs; streamguard finds the silence, tears it down and says what it saw.

Needs nothing but streamguard. Takes about six seconds of real time: the tool is silent for longer
than the limit and is left alone, the silence after it is not.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time

from streamguard import IdleTimeoutError, exit_code_for, idle_guard
from streamguard.testing import FakeClient, Script, hang, opened, say, tool

IDLE = 2.0


async def main() -> int:
    began = time.monotonic()

    def show(what: object) -> None:
        print(f"{time.monotonic() - began:5.1f} s  {what}", flush=True)

    client = FakeClient(
        Script(opened("session-7"), say("I will run the tests."), tool("Bash", 3.0), hang())
    )
    async with client:
        await client.query("Fix issue 7")
        show(f"asked the backend; silence is allowed for {IDLE:g} s, tools may take longer")
        try:
            async for message in client.receive_response() | idle_guard(IDLE, client=client):
                show(message)
        except IdleTimeoutError as error:
            show(f"caught: {error}")
            show(f"disconnected: {client.disconnected}, to resume: {error.verdict.token!r}")
            show(f"a command line would exit with {exit_code_for(error)}")
            return 0
    show("the backend ended by itself, which this example did not expect")
    return 1


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="         log: %(message)s")
    sys.exit(asyncio.run(main()))
