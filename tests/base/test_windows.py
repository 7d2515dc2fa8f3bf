"""On Windows, what cannot work says so in one sentence, and what needs no process works.

Nothing here runs on Windows. `windows.py` takes from this Python what Python has not got there, before anything of
the package is imported: modules, names of `os`, `signal` and `select`, and the platform's name. The standard
library itself was imported before that, so this shows what the package does, and not what Windows does.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def on_windows(script: str, *, code: int = 0) -> str:
    """What a program says there."""
    done = subprocess.run(
        [sys.executable, "-c", f"import windows; windows.pretend()\n{script}"],
        cwd=HERE,
        env={"PYTHONPATH": str(HERE.parents[1])},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


GUARDED = """
import asyncio
import streamguard

async def hang():
    yield 1
    await asyncio.Event().wait()

async def main():
    try:
        async for number in hang() | streamguard.idle_guard(0.05):
            print(number)
    except streamguard.IdleTimeoutError as error:
        print("told:", error)

asyncio.run(main())
"""


def test_a_guard_without_a_process_works():
    told = on_windows(GUARDED)
    assert told.startswith("1\ntold: stream-1 idle for")


@pytest.mark.parametrize(
    ("used", "says"),
    [
        ("streamguard.sentinel", "watching and ending processes"),
        ("streamguard.idle_guard(3, process=4)", "watching and ending processes"),
        ("import streamguard.process.identity", "watching and ending processes"),
        ("import streamguard.runner.run", "streamguard run"),
        ("streamguard.Recorder", "evidence on disk"),
        ("streamguard.plan_resume", "files that can be trusted"),
        ("streamguard.publishing", "files that can be trusted"),
        ("import streamguard.evidence.report.folder", "evidence on disk"),
    ],
)
def test_what_cannot_work_says_so_when_it_is_used(used, says):
    told = on_windows(
        f"import streamguard\ntry:\n    {used}\nexcept ImportError as error:\n    print(error)"
    )
    assert told.startswith(f"{says}"), told
    assert "cannot work on Windows; use it within WSL" in told


@pytest.mark.parametrize("command", ["run --idle 3 -- true", "timeout 3 true", "doctor", "top"])
def test_a_command_says_so_and_ends_with_2(command):
    told = on_windows(
        f"import sys; from streamguard.cli import main; sys.exit(main({command.split()}))", code=2
    )
    assert told.startswith(f"streamguard {command.split()[0]}: this needs processes, locks")


def test_help_and_version_are_there():
    told = on_windows("from streamguard.cli import main; main(['--version']); main(['--help'])")
    assert "streamguard doctor" not in told
    assert "doctor   what is installed" in told
