"""Terminals: `--pty`, `--foreground`, and ours given back; in a real one (tmux) and a bare one."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import struct
import subprocess
import termios

import pytest

from streamguard.process.procfs import read_stat
from tests.process.backends import PATIENCE, comes_true
from tests.runner.commands import OURS, ROOT, sh

LONG = "600"


# -- without a person ------------------------------------------------------------------------


def test_a_command_gets_a_terminal_of_a_size_and_its_bytes_stay_as_they_are(commands):
    script = "test -t 1 && echo yes; stty size <&1; printf 'a\\nb\\r\\nc\\t\\004\\003'"
    done = commands.guarded("--pty", "--idle", LONG, "--", *sh(script))
    assert done == (0, b"yes\n24 80\na\nb\r\nc\t\x04\x03", "")


def test_its_input_and_its_errors_stay_what_they_were(commands):
    script = "test -t 0 || test -t 2 || echo neither; cat; echo err >&2"
    done = commands.guarded("--pty", "--idle", LONG, "--", *sh(script), stdin=b"input\n")
    assert done == (0, b"neither\ninput\n", "err\n")


def test_limits_hold_in_a_terminal_too_and_nothing_is_left(commands):
    script = "echo out; (setsid sleep 600 &) ; sleep 600 & exec sleep 600"
    done = commands.guarded("--pty", "--first", LONG, "--idle", "0.4", "--", *sh(script))
    assert (done.code, done.out) == (124, b"out\n")
    assert commands.living() == set()


def test_a_terminals_end_is_not_held_up_by_who_else_has_it(commands):
    done = commands.guarded("--pty", "--idle", LONG, "--", *sh("sleep 600 & echo out; exit 3"))
    assert (done.code, done.out) == (3, b"out\n")


# -- at a bare terminal ----------------------------------------------------------------------


class Typed:
    """Our command at a terminal of its own, which the test types at."""

    def __init__(self, commands, *words):
        self.ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.process = commands.start(
            *words, stdin=theirs, stdout=theirs, stderr=theirs, preexec_fn=_take_terminal
        )
        self._theirs = theirs
        self.seen = b""

    def type(self, keys):
        os.write(self.ours, keys)

    def shows(self, text):
        while text not in self.seen:
            self.seen += os.read(self.ours, 4096)
        return True

    def is_as_before(self):
        return termios.tcgetattr(self._theirs)[:4] == self.before[:4]

    def close(self):
        os.close(self.ours)
        os.close(self._theirs)


def _take_terminal():
    os.setsid()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@pytest.fixture
def at_terminal(commands):
    opened = []

    def start(*words):
        opened.append(Typed(commands, *words))
        return opened[-1]

    yield start
    for typed in opened:
        typed.process.kill()
        typed.process.wait()
        typed.close()


@pytest.mark.timeout(60)
def test_keys_go_to_the_commands_terminal_and_ours_is_given_back(at_terminal):
    script = "stty size; read line; echo got $line; trap 'echo ouch; exit 9' INT; echo ready; sleep 600 & wait"
    typed = at_terminal(*OURS, "run", "--pty", "--idle", LONG, "--", *sh(script))
    assert typed.shows(b"33 101\r\n")
    assert not typed.is_as_before()  # keys are passed on unchanged
    typed.type(b"hello\r")
    assert typed.shows(b"got hello\r\n")
    assert typed.shows(b"ready\r\n")
    typed.type(b"\x03")  # Ctrl-C is the command's own terminal's business
    assert typed.shows(b"ouch\r\n")
    assert typed.process.wait(PATIENCE) == 9
    assert typed.is_as_before()


@pytest.mark.timeout(60)
def test_who_asks_for_no_limit_is_told_once_a_person_or_a_script(commands, at_terminal):
    assert at_terminal(*OURS, "run", "true").shows(b"warning: no limit is on")
    assert commands.guarded("true").err.count("warning: no limit is on") == 1


@pytest.mark.timeout(60)
def test_another_window_size_reaches_the_command(at_terminal):
    script = "trap 'stty size' WINCH; echo ready; while :; do sleep .01; done"
    typed = at_terminal(*OURS, "run", "--pty", "--idle", LONG, "--", *sh(script))
    assert typed.shows(b"ready\r\n")
    fcntl.ioctl(typed.ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 77, 0, 0))
    assert typed.shows(b"44 77\r\n")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("end", ["a verdict", "a kill", "SIGTERM"])
def test_a_terminal_that_was_changed_is_given_back_however_it_ends(at_terminal, end):
    script = "stty raw -echo; echo ready; exec sleep 600"
    deaf = "trap '' TERM; " if end == "a kill" else ""
    limit = LONG if end == "SIGTERM" else "0.5"
    words = [
        "--pty",
        "--first",
        LONG,
        "--idle",
        limit,
        "--kill-after",
        "0.2",
        "--",
        *sh(deaf + script),
    ]
    typed = at_terminal(*OURS, "run", *words)
    assert typed.shows(b"ready")
    if end == "SIGTERM":
        typed.process.terminate()
    code = typed.process.wait(PATIENCE)
    assert code == {"a verdict": 124, "a kill": 137, "SIGTERM": -signal.SIGTERM}[end]
    assert typed.is_as_before()


@pytest.mark.timeout(60)
def test_in_the_foreground_a_command_has_the_terminal_itself(at_terminal):
    script = "test -t 0 && read line </dev/tty && echo got $line; stty raw; exec sleep 600"
    typed = at_terminal(*OURS, "run", "--foreground", "--total", "4", "--", *sh(script))
    typed.type(b"hello\r")
    assert typed.shows(b"got hello\r\n")
    assert typed.process.wait(PATIENCE) == 124
    assert typed.is_as_before()


@pytest.mark.timeout(60)
@pytest.mark.parametrize("options", [["--foreground"], []], ids=["foreground", "own session"])
def test_ctrl_c_reaches_the_command_and_the_second_one_kills(at_terminal, options, commands):
    script = "trap 'echo ouch' INT; echo ready; while :; do sleep .01; done"
    words = ["--kill-after", LONG, "--idle", LONG, *options, "--", *sh(script)]
    typed = at_terminal(*OURS, "run", *words)
    assert typed.shows(b"ready")
    typed.type(b"\x03")
    assert typed.shows(b"ouch")
    typed.type(b"\x03")
    assert typed.process.wait(PATIENCE) in (-signal.SIGINT, 130)
    assert commands.living() == set()


# -- in tmux ---------------------------------------------------------------------------------


class Tmux:
    """A server of the test's own, with one window that runs a shell."""

    def __init__(self, folder, env):
        self._words = ["tmux", "-S", str(folder / "tmux"), "-f", os.devnull]
        self._env = env
        self("new-session", "-d", "-x", "100", "-y", "30", "bash --norc --noprofile -i")
        self.type("PS1='prompt> '; clear")

    def __call__(self, *words):
        done = subprocess.run(
            [*self._words, *words],
            env=self._env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, line):
        self("send-keys", "-l", line)
        self("send-keys", "Enter")

    def press(self, key):
        self("send-keys", key)

    def shows(self, text):
        return comes_true(lambda: text in self("capture-pane", "-p", "-S", "-100"))

    def close(self):
        subprocess.run(
            [*self._words, "kill-server"], env=self._env, capture_output=True, check=False
        )


@pytest.fixture
def tmux(commands):
    if shutil.which("tmux") is None:
        pytest.skip("no tmux: .ci/tools installs it")
    env = commands.backends.env()
    env |= {"PYTHONPATH": str(ROOT), "TERM": "xterm", "LC_ALL": "C", "HISTFILE": ""}
    env |= {"XDG_RUNTIME_DIR": str(commands.folder)}
    server = Tmux(commands.folder, env)
    yield server
    server.close()
    assert commands.all_gone()


def test_a_session_at_a_real_terminal(tmux):
    """A full-screen program, its keys, its size; a hang; then the shell, as it was."""
    ours = shlex.join(OURS)
    program = "stty size; read -p 'name? ' name; echo hello $name; stty -echo; exec sleep 600"
    tmux.type(f"{ours} run --pty --idle 6 -- bash -c {shlex.quote(program)}; echo code $?")
    assert tmux.shows("30 100")
    assert tmux.shows("name? ")
    tmux.type("you")
    assert tmux.shows("hello you")
    assert tmux.shows("(limit idle=6)")
    assert tmux.shows("code 124")
    tmux.type("echo still $((40 + 2)) here")
    assert tmux.shows("echo still $((40 + 2)) here")  # it echoes what is typed
    assert tmux.shows("still 42 here")


@pytest.mark.parametrize("options", ["--foreground", ""])
def test_ctrl_z_stops_both_and_the_shell_goes_on_with_them(tmux, commands, options):
    ours = shlex.join(OURS)
    script = "printf rea; echo dy; while read line; do echo got $line; done; echo over"
    tmux.type(f"{ours} run {options} --idle 600 -- sh -c {shlex.quote(script)}")
    assert tmux.shows("ready")
    tmux.press("C-z")
    assert tmux.shows("Stopped")
    assert comes_true(lambda: len(stopped(commands)) == 2)  # we, and the command
    tmux.type("fg")
    assert comes_true(lambda: not stopped(commands))
    tmux.type("hello")
    assert tmux.shows("got hello")
    tmux.press("C-d")
    assert tmux.shows("over")
    tmux.type("echo code $?")
    assert tmux.shows("code 0")


def stopped(commands):
    stats = map(read_stat, commands.living())
    return [stat for stat in stats if stat is not None and stat.state == "T"]


def test_a_run_in_the_background_leaves_the_terminal_alone(tmux):
    """It finds it as the shell's line editor has it, and ends while something else runs."""
    ours = shlex.join(OURS)
    tmux.type(f"{ours} run --idle 3 -- sh -c 'printf rea; echo dy; exec sleep 600' &")
    assert tmux.shows("ready")
    tmux.type("cat")
    assert tmux.shows("(limit idle=3)")
    tmux.type("hello")
    assert tmux.shows("hello\nhello")  # what is typed, and what cat says
    tmux.press("C-d")
