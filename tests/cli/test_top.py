"""`streamguard top`: rows, plain and drawn; and the live table on a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time

import pytest

from streamguard.cli import top
from streamguard.top.published import Published
from tests.process.backends import PATIENCE

RUN = {
    "pid": 7,
    "boot": 1000.0,
    "kind": "run",
    "name": "claude",
    "state": "working",
    "attempt": 1,
    "messages": 12,
    "age": 100.0,
    "last_message_age": 30.0,
    "last_signal": "Progress",
    "in_flight": [],
    "limits": {"idle": 180},
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture
def published():
    file = Published.for_this_process()
    file.write(**{key: value for key, value in RUN.items() if key not in {"pid", "boot"}})
    yield file
    file.remove()


def test_ages_go_on_since_they_were_written():
    (row,) = top.rows([RUN], now=1060.0)
    assert row.cells == ("7", "claude", "working", "1:30", "3m", "-", "12", "2:40", "Progress")
    assert row.spent == 0.5


@pytest.mark.parametrize(
    "paused",
    [{"in_flight": ["Bash"]}, {"state": "between turns"}, {"state": "held"}, {"limits": {}}],
    ids=["a tool", "no turn", "held", "no limit"],
)
def test_what_is_paused_has_spent_nothing(paused):
    (row,) = top.rows([{**RUN, **paused}], now=5000.0)
    assert row.spent == 0


def test_no_more_is_drawn_than_fits_the_screen(monkeypatch):
    """To lay out 5,000 rows would take seconds, each second."""
    monkeypatch.setenv("LINES", "30")
    runs = [{**RUN, "pid": 5000 - n, "last_message_age": n / 100} for n in range(5000)]
    table = top.RUNS.drawn(top.rows(runs, now=1000.0))
    assert [str(cell) for cell in table.columns[0].cells][:2] == ["1", "2"]
    assert table.row_count == 30


def test_the_nearest_to_its_limit_is_first():
    runs = [RUN, {**RUN, "pid": 8, "last_message_age": 170.0}]
    assert [row.cells[0] for row in top.rows(runs, now=1000.0)] == ["8", "7"]


def test_a_later_attempt_and_a_run_without_a_message():
    run = {**RUN, "attempt": 3, "last_message_age": None, "age": 4000.0}
    (row,) = top.rows([run], now=1000.0)
    assert row.cells[2] == "working, attempt 3"
    assert row.cells[3] == row.cells[7] == "1:06:40"


def test_a_concern_stands_behind_the_state():
    """B2: one that is busy is not near its limit, and may need somebody all the same."""
    (row,) = top.rows([{**RUN, "attempt": 2, "concern": "repeats"}], now=1000.0)
    assert row.cells[2] == "working, attempt 2, concern: repeats"
    (row,) = top.rows([{**RUN, "concern": None}], now=1000.0)
    assert row.cells[2] == "working"


def test_a_name_cannot_command_the_terminal():
    (row,) = top.rows([{**RUN, "name": "\x1b[2Jx\n"}], now=1000.0)
    assert row.cells[1] == r"\x1b[2Jx\n"


def test_plain_lines(published, capsys):
    assert top.main(["--once"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == [
        "PID",
        "NAME",
        "STATE",
        "SILENT",
        "LIMIT",
        "IN",
        "FLIGHT",
        "MESSAGES",
        "AGE",
        "LAST",
    ]
    assert line.split()[:3] == [str(os.getpid()), "claude", "working"]
    published.remove()
    assert top.main(["--once"]) == 0
    assert capsys.readouterr().out.startswith("No guarded run of yours")


def test_for_a_program(published, capsys):
    assert top.main(["--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["name"] == "claude"


def test_an_interval_out_of_range_is_refused(capsys):
    with pytest.raises(SystemExit):
        top.main(["--every", "0"])
    assert "--every: '0': use seconds, 0.1 to 3600" in capsys.readouterr().err


def test_without_rich_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert top.main([]) == 2
    assert "pip install 'agent-streamguard[top]'" in capsys.readouterr().err


def test_a_terminal_has_a_live_table(published):
    """Drawn on a screen of its own, which is left as it was; Ctrl-C ends it."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "streamguard", "top", "--every", "0.1"]
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "xterm",
        "COLUMNS": "120",
    }
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + PATIENCE
    try:
        while b"claude" not in shown and time.monotonic() < deadline:
            if select.select([ours], [], [], 1)[0]:
                shown += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other side is closed
                break
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert b"\x1b[?1049h" in shown
    assert b"\x1b[?1049l" in shown
    assert b"Traceback" not in shown
