"""`streamguard top`: rows, lines of any width, the screen; and the keys of a real terminal."""

from __future__ import annotations

import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import termios
import time

import pytest

from streamguard.cli import top
from streamguard.cli.tables import cut, width_of
from streamguard.top.published import Published
from tests.process.backends import PATIENCE

RUN = {
    "pid": 7,
    "boot": 1000.0,
    "kind": "run",
    "name": "claude",
    "state": "working",
    "backend": "claude",
    "attempt": 1,
    "messages": 12,
    "age": 100.0,
    "last_message_age": 30.0,
    "last_signal": "Progress",
    "in_flight": [],
    "limits": {"idle": 180},
}
# As wide as it gets: a long name, a concern, a long tool.
WIDE = {
    **RUN,
    "pid": 4194301,
    "name": "a-wrapper-with-a-name-that-nobody-wanted.py",
    "state": "working",
    "attempt": 3,
    "concern": "repeats",
    "backend": "openai_agents",
    "in_flight": ["mcp__playwright__browser_navigate", "Bash"],
    "messages": 123456,
    "last_message_age": 86400.0,
    "age": 90000.0,
}
NAMES = [column.name for column in top.RUNS.columns]
AT = {name: index for index, name in enumerate(NAMES)}


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


def cells(run, now=1000.0):
    """What a row shows, by the names of the columns."""
    (row,) = top.rows([run], now=now)
    return dict(zip(NAMES, row.cells, strict=True))


def test_ages_go_on_since_they_were_written():
    (row,) = top.rows([RUN], now=1060.0)
    assert row.spent == 0.5
    assert cells(RUN, 1060.0) == {
        "NAME": "claude",
        "SILENT": "1:30",
        "STATE": "working",
        "LIMIT": "3m",
        "IN FLIGHT": "-",
        "BACKEND": "claude",
        "PID": "7",
        "SPENT": "50%",
        "AGE": "2:40",
        "MESSAGES": "12",
        "LAST MESSAGE": "progress",
    }


@pytest.mark.parametrize(
    "paused",
    [
        {"in_flight": ["Bash"]},
        {"state": "between turns"},
        {"state": "held"},
        {"state": "streaming"},
        {"limits": {}},
    ],
    ids=["a tool", "no turn", "held", "nobody asks", "no limit"],
)
def test_what_is_paused_has_spent_nothing(paused):
    (row,) = top.rows([{**RUN, **paused}], now=5000.0)
    assert row.spent == 0
    assert row.cells[AT["SPENT"]] == "-"


def test_a_stream_that_its_program_does_not_read_is_no_silence():
    stream = {**RUN, "kind": "stream", "state": "streaming"}
    assert cells(stream)["STATE"] == "not read"
    assert cells({**stream, "last_message_age": 0.5})["STATE"] == "streaming"


def test_a_program_that_is_not_heard_of_is_stopped():
    """It writes at least every 10 s, whatever its streams do; a run writes when there is news."""
    assert cells({**RUN, "kind": "stream"}, 1061.0)["STATE"] == "its program is stopped"
    assert cells(RUN, 1061.0)["STATE"] == "working"


def test_the_nearest_to_its_limit_is_first():
    runs = [RUN, {**RUN, "pid": 8, "last_message_age": 170.0}]
    assert [row.cells[AT["PID"]] for row in top.rows(runs, now=1000.0)] == ["8", "7"]


def test_a_later_attempt_and_a_run_without_a_message():
    shown = cells({**RUN, "attempt": 3, "last_message_age": None, "age": 4000.0})
    assert shown["STATE"] == "working, attempt 3"
    assert shown["SILENT"] == shown["AGE"] == "1:06:40"


def test_a_concern_stands_behind_the_state():
    """B2: one that is busy is not near its limit, and may need somebody all the same."""
    shown = cells({**RUN, "attempt": 2, "concern": "repeats"})
    assert shown["STATE"] == "working, attempt 2, concern: repeats"
    assert cells({**RUN, "concern": None})["STATE"] == "working"


def test_a_name_cannot_command_the_terminal():
    assert cells({**RUN, "name": "\x1b[2Jx\n"})["NAME"] == r"\x1b[2Jx\n"


# --- lines --------------------------------------------------------------------------------


def lines(width, *runs):
    return top.RUNS.lines(top.rows(runs, 1000.0), width)


def test_80_columns_show_name_and_silence_first():
    head, *rest = lines(80, RUN, WIDE)
    first = ["NAME", "SILENT", "STATE", "LIMIT", "IN", "FLIGHT", "BACKEND", "PID"]
    assert head.split() == first
    assert all(width_of(line) <= 80 for line in (head, *rest))
    plain, wide = rest  # what is in flight pauses its limit
    assert plain.split() == ["claude", "0:30", "working", "3m", "-", "claude", "7"]
    assert wide.startswith("a-wrapper-with-")
    assert "24:00:00" in wide
    assert "working, atte" in wide
    assert "4194301" in wide


def test_160_columns_show_all():
    head, line = lines(160, RUN)
    assert head.split("  ")[0] == "NAME"
    assert [name for name in NAMES if name not in head] == []
    assert line.split()[-1] == "progress"
    assert all(len(each) <= 160 for each in lines(160, RUN, WIDE))


@pytest.mark.parametrize("width", [*range(1, 60, 7), 80, 100, 120, 160, 400])
def test_no_line_is_longer_than_the_terminal(width):
    """Also where a character takes two places, or none."""
    odd = {**WIDE, "name": "日本語の名前がここにある" * 3, "in_flight": ["a\u0301" * 30]}
    assert max(map(width_of, lines(width, RUN, WIDE, odd))) <= width


def test_a_pipe_has_all_of_it():
    assert "mcp__playwright__browser_navigate, Bash" in lines(None, WIDE)[1]


def test_what_is_cut_says_so():
    assert cut("abcdef", 4) == "abc…"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 3) == "abc"
    assert cut("abc", 0) == ""


# --- the screen ---------------------------------------------------------------------------


@pytest.fixture
def plain_screen(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    def screen(*runs, width=80, height=24, **more):
        shown = top.rows(runs, 1000.0)
        return top.screen(top.RUNS, shown, "run", width=width, height=height, **more)

    return screen


def test_a_screen_has_a_heading_and_says_how_to_leave_it(plain_screen):
    head, names, line = plain_screen(RUN)
    assert head.startswith("streamguard top: 1 run at ")
    assert head.endswith("q: quit")
    assert len(head) == 80
    assert names.startswith("NAME")
    assert line.startswith("claude")


def test_no_more_is_drawn_than_fits_the_screen(plain_screen):
    """To lay out 5,000 rows would take seconds, each second."""
    runs = [{**RUN, "name": f"run-{n}", "last_message_age": n / 100} for n in range(5000)]
    shown = plain_screen(*runs, height=30)
    assert len(shown) == 30
    assert shown[2].startswith("run-4999 ")
    assert shown[-1] == "... and 4973 more"
    assert len(plain_screen(*runs[:28], height=30)) == 30


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 2), (20, 3), (80, 24)])
def test_a_terminal_of_any_size_is_enough(plain_screen, width, height):
    for shown in (plain_screen(width=width, height=height), plain_screen(RUN, RUN, width=width)):
        assert shown


def test_what_is_near_its_limit_is_coloured(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    runs = [{**RUN, "last_message_age": age} for age in (170.0, 100.0, 1.0)]
    shown = top.screen(top.RUNS, top.rows(runs, 1000.0), "run", width=80, height=24)
    assert [line[:5] for line in shown[2:]] == ["\x1b[31m", "\x1b[33m", "claud"]


def test_nothing_to_show_says_how_to_get_something_there(plain_screen, capsys):
    assert "streamguard run --idle 15m -- COMMAND" in "\n".join(plain_screen())
    assert top.main(["--once"]) == 0
    told = capsys.readouterr().out
    assert "streamguard run --idle 15m -- COMMAND" in told
    assert max(map(len, told.splitlines())) <= 80


def test_what_is_wrong_stands_in_the_heading(plain_screen):
    assert plain_screen(RUN, wrong="NOT UP TO DATE: it is away")[0].startswith("NOT UP TO DATE")


# --- once ---------------------------------------------------------------------------------


def test_plain_lines(published, capsys):
    assert top.main(["--once"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == " ".join(NAMES).split()
    assert line.split()[:3] == ["claude", "0:30", "working"]
    assert str(os.getpid()) in line
    published.remove()
    assert top.main(["--once"]) == 0
    assert capsys.readouterr().out.startswith("No guarded run of yours")


def test_for_a_program(published, capsys):
    assert top.main(["--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert run["name"] == "claude"
    assert run["backend"] == "claude"
    assert run["limit"] == 180


def test_ages_for_a_program_are_those_of_now():
    (run,) = top.snapshot([RUN], 1060.0)
    assert (run["silent"], run["last_message_age"], run["age"]) == (90.0, 90.0, 160.0)
    assert (run["limit"], run["spent"]) == (180.0, 0.5)
    (paused,) = top.snapshot([{**RUN, "in_flight": ["Bash"], "last_message_age": None}], 1060.0)
    assert (paused["silent"], paused["last_message_age"]) == (160.0, None)
    assert (paused["limit"], paused["spent"]) == (None, 0.0)
    assert top.snapshot([], 0.0) == []


def test_an_interval_out_of_range_is_refused(capsys):
    for wrong in ("0", "2h", "soon"):
        with pytest.raises(SystemExit):
            top.main(["--every", wrong])
        assert f"--every: '{wrong}': use a duration from 0.1s to 1h" in capsys.readouterr().err


@pytest.mark.parametrize("term", ["dumb", None])
def test_a_terminal_that_cannot_be_drawn_on_has_plain_lines(published, capsys, monkeypatch, term):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert top.main([]) == 0
    assert capsys.readouterr().out.startswith("NAME")


# --- a real terminal ----------------------------------------------------------------------


class Shown:
    """`streamguard top` on a terminal of its own."""

    def __init__(self, stdin=None):
        self._ours, theirs = pty.openpty()
        self.theirs = theirs
        self.before = termios.tcgetattr(theirs)
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TERM": "xterm"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamguard", "top", "--every", "0.1"],
            stdin=theirs if stdin is None else stdin,
            stdout=theirs,
            stderr=theirs,
            env=env,
        )
        self.text = b""

    def until(self, wanted):
        deadline = time.monotonic() + PATIENCE
        while wanted not in self.text and time.monotonic() < deadline:
            if select.select([self._ours], [], [], 1)[0]:
                self.text += os.read(self._ours, 65536)
        assert wanted in self.text

    def type(self, keys):
        os.write(self._ours, keys)

    def ends(self):
        """Its exit code; and the terminal is as it was."""
        self.until(b"\x1b[?1049l")
        code = self.process.wait(PATIENCE)
        assert termios.tcgetattr(self.theirs) == self.before
        assert b"Traceback" not in self.text
        return code

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self.theirs)


@pytest.fixture
def on_a_terminal(published):
    made = []

    def start(**more):
        made.append(Shown(**more))
        made[0].until(b"claude")
        return made[0]

    yield start
    for each in made:
        each.close()


@pytest.mark.parametrize("keys", [b"q", b"Q", b"\x1b"], ids=["q", "Q", "Esc"])
def test_a_key_ends_it_and_the_terminal_is_as_it_was(on_a_terminal, keys):
    shown = on_a_terminal()
    shown.type(keys)
    assert shown.ends() == 0


def test_an_arrow_key_is_no_escape(on_a_terminal):
    shown = on_a_terminal()
    shown.type(b"\x1b[A")
    shown.text = b""
    shown.until(b"claude")
    shown.type(b"q")
    assert shown.ends() == 0


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 128 + 15), (signal.SIGHUP, 128 + 1)]
)
def test_a_signal_ends_it_and_the_terminal_is_as_it_was(on_a_terminal, number, code):
    shown = on_a_terminal()
    shown.process.send_signal(number)
    assert shown.ends() == code


def test_ctrl_z_gives_the_terminal_back_until_it_goes_on(on_a_terminal):
    shown = on_a_terminal()
    shown.process.send_signal(signal.SIGTSTP)
    shown.until(b"\x1b[?1049l")
    os.waitid(os.P_PID, shown.process.pid, os.WSTOPPED)
    assert termios.tcgetattr(shown.theirs) == shown.before
    shown.text = b""
    shown.process.send_signal(signal.SIGCONT)
    shown.until(b"\x1b[?1049h")
    shown.until(b"claude")
    shown.text = b""
    shown.type(b"q")
    assert shown.ends() == 0


def test_keys_are_read_where_it_is_drawn(on_a_terminal):
    """Standard input may be anything."""
    shown = on_a_terminal(stdin=subprocess.DEVNULL)
    shown.type(b"q")
    assert shown.ends() == 0


@pytest.mark.skipif(shutil.which("tmux") is None, reason="there is no tmux")
@pytest.mark.parametrize("columns", [80, 160])
def test_tmux_shows_whole_lines(published, folder, columns):
    tmux = ["tmux", "-f", "/dev/null", "-S", str(folder / "tmux")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    env.pop("TMUX", None)
    command = [sys.executable, "-m", "streamguard", "top"]

    def asked(*words):
        done = subprocess.run(
            [*tmux, *words], capture_output=True, text=True, check=True, env=env, timeout=60
        )
        return done.stdout

    asked("new-session", "-d", "-x", str(columns), "-y", "24", *command)
    try:
        deadline = time.monotonic() + PATIENCE
        while "claude" not in (screen := asked("capture-pane", "-p")):
            assert time.monotonic() < deadline, screen
            time.sleep(0.1)
        head, names, line = screen.rstrip().splitlines()
        assert head.endswith("q: quit")
        assert names.split()[:2] == ["NAME", "SILENT"]
        assert line.split()[0] == "claude"
        assert ("LAST MESSAGE" in names) == (columns == 160)
    finally:
        asked("kill-server")
