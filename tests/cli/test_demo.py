"""`streamguard demo`: the incident in small, for real, in a process of its own."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys

import anyio
import pytest

from streamguard import Activity, idle_guard
from streamguard.demo.show import _Screen
from streamguard.testing import Script, done, say, silence
from tests.process.backends import PATIENCE, is_dead


def test_an_agent_hangs_is_caught_and_goes_on(tmp_path):
    """The seed's incident: a slow tool is waited for, silence is not; nothing of it is left."""
    told = subprocess.run(
        [sys.executable, "-m", "streamguard", "demo", "--dir", tmp_path / "run"],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE * 2,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(tmp_path)},
    )
    assert (told.returncode, told.stderr) == (0, ""), told.stdout
    lines = [re.sub(r"^ *[\d.]+ s  ", "", line) for line in told.stdout.splitlines()]
    texts = "\n".join(lines)
    story = (
        "Bash runs",
        "Bash is done",
        "CAUGHT: stream 'demo' idle for 2",
        "the agent and all that it started were ended in ",
        "connected again: the session goes on",
        "> All tests pass.",
        "Still alive of its processes",
    )
    places = [texts.find(part) for part in story]
    assert -1 not in places, texts
    assert places == sorted(places)
    left = re.search(r"Still alive of its processes ([\d, ]+): none\.", texts)
    pids = [int(pid) for pid in left[1].split(",")]
    assert len(pids) == 3  # both agents, and what the first had started
    assert all(map(is_dead, pids))
    report = tmp_path / "run" / "report.html"
    assert f"for a person: {report}" in texts
    assert report.read_text().startswith("<!DOCTYPE html>")
    assert f"These files stay until you remove them: rm -r {tmp_path / 'run'}" in texts
    (line,) = (tmp_path / "run" / "demo" / "timeouts.jsonl").read_text().splitlines()
    assert json.loads(line)["step_id"] == "login-test"


class Terminal(io.StringIO):
    def isatty(self):
        return True


async def test_a_terminal_has_a_line_that_changes(loop):
    """And it is gone before anything else is written."""
    out = Terminal()
    screen, activity = _Screen(out), Activity("demo")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(screen.keep_status, activity)
        script = Script(say("a"), silence(1), say("b"), done())
        async for message in script | idle_guard(60, activity=activity):
            if hasattr(message, "text"):
                screen.say(message.text)
        tasks.cancel_scope.cancel()
    text = out.getvalue()
    assert "silent for 0.9 s" in text
    assert re.search(r"\r\x1b\[K *[\d.]+ s  b\n", text)
    assert text.endswith("\r\x1b[K")


async def test_elsewhere_there_are_plain_lines_only(loop):
    out = io.StringIO()
    await _Screen(out).keep_status(Activity("demo"))
    _Screen(out).say("a")
    assert re.fullmatch(r" *[\d.]+ s  a\n", out.getvalue())


def test_a_folder_that_cannot_be_made_is_said(tmp_path, capsys):
    from streamguard.cli.demo import main

    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["--dir", str(tmp_path / "file" / "run")])
    assert ended.value.code == 2
    assert "Not a directory" in capsys.readouterr().err
