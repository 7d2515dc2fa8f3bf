"""The `streamguard` command says what it is, refuses what it cannot do, and starts cheaply."""

from __future__ import annotations

import subprocess
import sys

import pytest

from streamguard._version import __version__
from streamguard.cli import COMMANDS, main

# The command's start pays for none of these.
HEAVY = {"asyncio", "anyio", "trio", "argparse", "logging", "dataclasses"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=30, check=False
    )


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_version_is_one_line_and_success(flag, capsys):
    assert main([flag]) == 0
    assert capsys.readouterr() == (f"streamguard {__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_goes_to_stdout_and_is_success(arguments, capsys):
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert "usage: streamguard" in out
    assert err == ""


@pytest.mark.parametrize("asked", ["--help", "help"])
def test_help_says_which_commands_there_are(asked, capsys):
    main([asked])
    told = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n  {name} " not in told] == []


@pytest.mark.parametrize("arguments", [["--idle"], ["-x", "--version"], ["--version", "-x"]])
def test_an_unknown_argument_is_named_on_stderr_with_exit_2(arguments, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    wrong = next(argument for argument in arguments if argument != "--version")
    assert err.startswith(f"streamguard: unknown argument '{wrong}'\n")
    assert "usage: streamguard" in err


def test_a_mistyped_command_is_told_what_it_may_have_been(capsys):
    assert main(["rnu"]) == 2
    assert "'rnu'; did you mean 'run'?\n" in capsys.readouterr().err


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_that_exits_0(name):
    done = run("-m", "streamguard", name, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"streamguard {name}" in done.stdout


def test_python_dash_m_gives_the_same_output_and_exit_codes():
    version, refused = run("-m", "streamguard", "--version"), run("-m", "streamguard", "nonsense")
    assert (version.returncode, version.stdout) == (0, f"streamguard {__version__}\n")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "'nonsense'" in refused.stderr


def test_the_command_starts_without_an_event_loop_or_any_dependency():
    script = "import sys; before = set(sys.modules); import streamguard.cli as c; c.main(['-V'])"
    done = run("-c", f"{script}; print(*sorted(set(sys.modules) - before))")
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "streamguard.cli" in loaded, done.stderr
    assert loaded & HEAVY == set()


@pytest.mark.parametrize(
    ("raised", "code"), [("KeyboardInterrupt", -2), ("BrokenPipeError", 1)], ids=["Ctrl-C", "head"]
)
def test_a_command_that_is_cut_short_leaves_no_traceback(raised, code):
    """Ctrl-C ends it by the same signal; a reader that has seen enough, quietly."""
    script = f"import sys; from streamguard.cli.ending import ended\ndef work(): raise {raised}\nsys.exit(ended(work))"
    done = run("-c", script)
    assert (done.returncode, done.stderr) == (code, "")
