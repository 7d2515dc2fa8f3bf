"""What `streamguard doctor` asks for its version may be anything that has the name of a backend's command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

import pytest

from streamguard.backends import facts
from streamguard.backends.facts import Installed, codex_config, installed
from tests.process.backends import PATIENCE, Backends, comes_true

# Beside a bound of 5 s, what a busy machine needs to start and end all this.
BOUND = 15.0
MOST_MEMORY = 100 << 20
# Four programs that no signal but KILL ends, in sessions of their own, and one that waits for them.
HANGS = """
for i in 1 2 3 4; do setsid sh -c 'trap "" TERM HUP; sleep 600; :' & done
trap "" TERM
sleep 600
"""
# The peak of its memory is read by itself: what its parent is told of it begins with the parent's own.
MEASURED = """
import pathlib, sys
from streamguard.cli import main
code = main(["doctor", "--json"])
status = pathlib.Path("/proc/self/status").read_text()
print("peak", int(status.partition("VmHWM:")[2].split()[0]) << 10)
sys.exit(code)
"""
ENDLESS = {
    "lines": "exec yes 1.2.3",
    "no line": "exec cat /dev/zero",
    "lines, whoever listens": "trap '' PIPE TERM; while :; do echo 1.2.3; done",
}


@pytest.fixture
def backends():
    backends = Backends()
    yield backends
    backends.kill()


@pytest.fixture
def command(tmp_path):
    """Puts a shell script on the PATH."""

    def write(name, script):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o700)
        return str(path)

    return write


class Told(NamedTuple):
    """What the doctor says of each, and what that cost."""

    texts: dict[str, str]
    seconds: float
    memory: int


@pytest.fixture
def doctor(tmp_path, backends):
    """Runs it as users do, with nothing on the PATH but what a test puts there."""

    def run():
        env = {
            **os.environ,
            "PATH": f"{tmp_path}:/usr/bin:/bin",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        began = time.monotonic()
        process = backends.popen(
            [sys.executable, "-c", MEASURED], env=env, stdout=subprocess.PIPE, cwd=tmp_path
        )
        said, _ = process.communicate(timeout=PATIENCE)
        took = time.monotonic() - began
        assert process.returncode == 0
        told, _, peak = said.decode().rpartition("peak ")
        return Told({each["name"]: each["text"] for each in json.loads(told)}, took, int(peak))

    return run


@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS)
def test_one_that_writes_for_ever_costs_a_bounded_number_of_bytes(
    doctor, command, backends, script
):
    path = command("gemini", script)
    told = doctor()
    assert told.texts["gemini"].startswith(path)
    assert told.memory < MOST_MEMORY
    assert told.seconds < BOUND
    assert backends.living() == set()


def test_those_that_hang_are_ended_together_and_leave_nothing(doctor, command, backends):
    command("gemini", HANGS)
    command("codex", HANGS)
    told = doctor()
    assert told.texts["codex"].endswith("codex (says no version)")
    assert told.seconds < BOUND
    assert backends.living() == set()


def test_what_one_leaves_running_is_ended(doctor, command, backends):
    path = command("codex", "echo codex-cli 9.9; setsid sleep 600 >/dev/null 2>&1 & exit 0")
    assert doctor().texts["codex"] == f"{path} codex-cli 9.9"
    assert backends.living() == set()


def test_what_one_says_does_not_command_the_terminal(command, tmp_path, monkeypatch, capsys):
    from streamguard.cli import main

    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.chdir(tmp_path)
    command("gemini", r"""printf '1\033[2J\302\233\342\200\2561.0\r\r\n! all is well\n'""")
    main(["doctor"])
    told = capsys.readouterr().out
    assert r"gemini 1\x1b[2J\x9b\u202e1.0" in " ".join(told.split())
    assert "all is well" not in told
    assert {c for c in told if not c.isprintable()} == {"\n"}


@pytest.fixture
def on_the_path(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_its_input_is_empty(command, on_the_path):
    path = command("gemini", 'read line; echo "read: $line."')
    assert installed("gemini") == Installed(command="read: .", path=path)


def test_one_that_is_slow_to_end_may_put_its_things_in_order(command, on_the_path, tmp_path):
    command("gemini", f"echo 1.0; exec >&-; sleep 0.5; touch {tmp_path}/done")
    assert installed("gemini").command == "1.0"
    assert (tmp_path / "done").exists()


def test_a_line_that_was_not_ended_is_no_version(command, on_the_path):
    command("gemini", "printf 1.; sleep 600")
    assert installed("gemini", timeout=0.5).command is None
    command("gemini", "echo 1.0; sleep 600")
    assert installed("gemini", timeout=0.5).command == "1.0"


@pytest.mark.parametrize("break_", ["no pidfd", "no /proc"])
def test_it_ends_where_little_can_be_known(command, on_the_path, backends, monkeypatch, break_):
    """Its own group, at least, which it is sure to lead."""
    for name, value in backends.env().items():
        monkeypatch.setenv(name, value)
    if break_ == "no pidfd":
        monkeypatch.delattr(os, "pidfd_open")
    else:
        monkeypatch.setattr("streamguard.process.procfs.is_there", lambda: False)
    command("gemini", "trap '' TERM; sleep 600 & sleep 600")
    assert installed("gemini", timeout=0.3).command is None
    assert comes_true(lambda: backends.living() == set())


def test_a_settings_file_that_is_none_keeps_nobody_waiting(tmp_path):
    """Codex's, which is read while a stream runs."""
    environ = {"CODEX_HOME": str(tmp_path)}
    file = tmp_path / "config.toml"
    os.mkfifo(file)
    assert codex_config(environ) == {}
    file.unlink()
    with file.open("wb") as opened:
        opened.truncate(100 << 20)
    assert codex_config(environ) == {}
    file.write_text("a = " + "[" * 5000)
    assert codex_config(environ) == {}
    file.write_text('model = "o3"')
    assert codex_config(environ) == {"model": "o3"}
    assert facts._LARGEST_FILE < 100 << 20
