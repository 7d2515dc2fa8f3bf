"""One session through `streamguard run`, as a process."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import anyio

from tests.weather.plans import IDLE, Plan
from tests.weather.sessions import LONGEST, Seen, command_of

_OURS = (sys.executable, "-I", "-m", "streamguard")


async def play(plan: Plan, folder: Path) -> Seen:
    seen = Seen(plan, folder / "truth")
    command = command_of(plan, seen.log)
    limits = ["--idle", f"{IDLE}s", "--liveness", f"{IDLE}s", "--kill-after", "0.3s"]
    again = [
        "--retries",
        "20",
        "--backoff",
        "0",
        "--resume-cmd",
        f"{shlex.join(command)} {{session_id}}",
    ]
    began = time.monotonic()
    words = [*_OURS, "run", *limits, *again, "--", *command]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("STREAMGUARD")}
    with anyio.move_on_after(LONGEST) as patience:
        async with await anyio.open_process(
            words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment
        ) as process:
            out, errors = [], []

            async def keep(stream: anyio.abc.ByteReceiveStream, into: list[bytes]) -> None:
                async for chunk in stream:
                    into.append(chunk)

            async with anyio.create_task_group() as group:
                group.start_soon(keep, process.stdout, out)
                group.start_soon(keep, process.stderr, errors)
            code = await process.wait()
            for line in b"".join(out).splitlines():
                message = json.loads(line) if line.startswith(b"{") and line.endswith(b"}") else {}
                if "seq" in message:
                    seen.got.append(message["seq"])
                if message.get("type") == "result":
                    seen.ended, seen.failed = not message["is_error"], message["is_error"]
            if code and not seen.failed:
                seen.error = f"run ended with {code}: {b''.join(errors).decode()[-600:]}"
    seen.hung = patience.cancelled_caught
    seen.took = time.monotonic() - began
    return seen
