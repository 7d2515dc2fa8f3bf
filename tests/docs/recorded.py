"""A run to look at: one silence, recorded."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from streamguard import IdleTimeoutError, Recorder, idle_guard
from streamguard.testing import Script, hang, opened, run_virtual, say


def record(folder: Path) -> None:
    """Write it there, in virtual time."""

    async def main() -> None:
        async with Recorder(folder, flow="build", step="step-3", agent="coder"):
            with suppress(IdleTimeoutError):
                async for _ in Script(opened("s"), say("a"), hang()) | idle_guard(180):
                    pass

    run_virtual(main)
