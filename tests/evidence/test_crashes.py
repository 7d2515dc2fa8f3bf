"""A recording program that is killed, that shares a run, whose disk is full, that ends (E2)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamguard.evidence.files import read_lines
from tests.evidence.support import check

PROGRAM = Path(__file__).parent / "children" / "recording.py"
# By hand: 500 rounds. What they found is in docs/how-to/evidence.md.
ROUNDS = 15


def program(*arguments):
    return subprocess.run(
        [sys.executable, "-W", "error", PROGRAM, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def found_by(*arguments):
    done = program(*arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [1, 2])
def test_whenever_it_is_killed_all_files_can_be_read(tmp_path, seed):
    """E2: at most one torn line per kill and file; what was raised is on disk."""
    run = tmp_path / "run"
    found = found_by("kill", run, ROUNDS, seed)
    assert found["receipts"] > 0
    for line in read_lines(run / "build/timeouts.jsonl"):
        check("timeouts", line)
    for path in (run / "build/receipts").glob("*.json"):
        check("receipt", json.loads(path.read_bytes()))


def test_two_processes_write_one_run(tmp_path):
    """E2: no line of either is lost or torn, though both rotate the same files."""
    found = found_by("share", tmp_path / "run", 40)
    assert found["codes"] == [0, 0]
    assert found["torn"] == 0
    assert found["timeouts"] == found["ids"] == 80
    assert found["writers"] == 2


def test_a_full_disk_is_told_and_disturbs_nothing(tmp_path):
    """E2, E3: each stream ends with its own verdict, with all its messages."""
    found = found_by("full", tmp_path / "run", 20_000)
    assert found["caught"] == 60
    assert found["messages"] == [20]
    assert [failure.partition(":")[0] for failure in found["failures"]] == [
        "timeline",
        "timeouts",
        "transcript",
    ]


@pytest.mark.parametrize(("how", "code"), [("exit", 3), ("raise", 1)])
def test_a_program_that_ends_leaves_complete_evidence(tmp_path, how, code):
    """E1: the last seconds of a program are those that matter."""
    run = tmp_path / "run"
    assert program("leave", run, how).returncode == code
    [line] = read_lines(run / "build/timeouts.jsonl")
    receipt = json.loads((run / "build/receipts/only-timeout.json").read_bytes())
    assert receipt["timeout_id"] == line["timeout_id"]
    assert receipt["teardown"]["confirmed"] is True
    assert receipt["git"] is not None
    lines = list(read_lines(run / "build/llm/only-partial.jsonl"))
    assert len(lines) == 22
    assert lines[-1]["ended"] == "IdleTimeoutError"
