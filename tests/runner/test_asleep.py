"""B5 under `streamguard run`: a machine that slept, as the poll loop hears of it."""

from __future__ import annotations

import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from streamguard.evidence.files import read_lines
from tests.process.backends import comes_true
from tests.runner.commands import INIT, TEXT, TOOL, says, sh

AFTER = "0.5"
UNTIL_TOLD = "while [ ! -e told ]; do sleep 0.1; done"
SLEEPING = [sys.executable, "-m", "tests.runner.sleeping"]


class Run:
    """One run on a machine that sleeps when it is told to."""

    def __init__(self, commands, script, *words):
        self._commands = commands
        self.pipe = commands.folder / "wake"
        self.status = commands.folder / "status.json"
        self.record = commands.folder / "record"
        self.said = commands.folder / "said"
        os.mkfifo(self.pipe)
        self._wake = os.open(self.pipe, os.O_RDWR)
        to_status = ("--status-file", str(self.status), "--record", str(self.record), "--verbose")
        command = [*SLEEPING, str(self.pipe), "run", "--idle", "600", *to_status, *words, "--"]
        with self.said.open("wb") as said:
            self.process = commands.start(*command, *sh(script), stderr=said, cwd=commands.folder)

    def wakes(self):
        """It has judged what came, as half a second without output shows; then a night is over."""
        assert self.process.stdout.readline() != b""
        assert comes_true(self._listens)
        os.write(self._wake, b"28800\n")
        assert comes_true(lambda: b"had slept" in self.said.read_bytes())

    def _listens(self):
        links = []
        for fd in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(OSError):
                links.append(fd.readlink())
        return self.pipe in links

    def end(self):
        os.close(self._wake)
        return self._commands.wait(self.process)


def test_b5_an_agent_that_waited_for_its_model_is_ended(commands):
    """B5: with 600 s left of its window, half a second after the wake."""
    run = Run(commands, f"{says(INIT, TEXT)}; sleep 600", "--after-sleep", AFTER)
    run.wakes()
    done = run.end()
    assert done.code == 124
    told = json.loads(run.status.read_text())
    assert told["limit"] == "after_sleep"
    assert told["window"] == float(AFTER)
    assert "after this machine had slept (limit after_sleep=0.5)" in run.said.read_text()
    marks = [line for line in read_lines(run.record / "timeline.jsonl") if line["kind"] == "mark"]
    assert "MachineWoke" in [mark["of"] for mark in marks]
    assert commands.all_gone()


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param(f"{says(INIT, TOOL)}; {UNTIL_TOLD}", ("--after-sleep", AFTER), id="a tool"),
        pytest.param(f"echo building; {UNTIL_TOLD}", (), id="nobody knows it"),
        pytest.param(f"{says(INIT, TEXT)}; {UNTIL_TOLD}", ("--after-sleep", "0"), id="off"),
    ],
)
def test_b5_work_of_the_machines_own_goes_on(commands, script, words):
    run = Run(commands, script, *words)
    if words[-1:] == ("0",):
        assert run.process.stdout.readline() != b""
    else:
        run.wakes()
    time.sleep(2 * float(AFTER))  # in which it would be ended
    (commands.folder / "told").touch()
    done = run.end()
    assert done.code == 0
    assert commands.all_gone()


def test_b5_who_says_it_means_any_command(commands):
    run = Run(commands, "echo talking; sleep 600", "--after-sleep", AFTER)
    run.wakes()
    assert run.end().code == 124
    assert json.loads(run.status.read_text())["limit"] == "after_sleep"
