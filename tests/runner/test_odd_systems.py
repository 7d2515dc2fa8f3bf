"""`streamguard run` where something that it builds on is missing or breaks, and what docs say of it."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from streamguard.cli.run import OPTIONS
from tests.process.backends import comes_true
from tests.runner.commands import OURS, ROOT, sh

ESCAPED = "(trap '' TERM; setsid sleep 600 &) ; echo out; exec sleep 600"


def changed(change, *words):
    """Our command line, in a Python in which `change` was done before."""
    program = f"import os, sys\n{change}\nfrom streamguard.cli import main\nsys.exit(main())"
    return [sys.executable, "-c", program, "run", *words]


WITHOUT = {
    "pidfds": "del os.pidfd_open",
    "a subreaper": "from streamguard.runner import kernel; kernel._prctl = lambda *_: False",
    "splice": "del os.splice",
    "a table of processes": (
        "from streamguard.process import procfs; procfs.is_there = lambda: False"
    ),
}


@pytest.mark.parametrize("what", WITHOUT)
def test_it_works_without(commands, what):
    """D4: what is missing is made up for."""
    words = ["--first", "600", "--idle", "0.4", "--kill-after", "0.3", "--", *sh(ESCAPED)]
    done = commands.run(*changed(WITHOUT[what], *words))
    assert (done.code, done.out) == (137, b"out\n")
    assert commands.living() == set()


def test_our_own_failure_is_125_and_leaves_nothing_behind(commands):
    """D7."""
    breaks = (
        "from streamguard.runner.judge import Judge\n"
        "def broken(self): raise ZeroDivisionError('of ours')\n"
        "Judge.deadline = broken"
    )
    done = commands.run(
        *changed(breaks, "--idle", "600", "--kill-after", "0.2", "--", *sh(ESCAPED))
    )
    assert (done.code, done.out) == (125, b"out\n")
    assert "ZeroDivisionError: of ours" in done.err
    assert commands.all_gone()


def test_ctrl_c_in_a_verdicts_grace_kills_at_once(commands):
    script = "trap 'echo asked' TERM; echo out; while :; do sleep .01; done"
    process = commands.start(
        *OURS, "run", "--total", "3", "--turn", "600", "--kill-after", "600", "--", *sh(script)
    )
    assert process.stdout.readline() == b"out\n"
    assert process.stdout.readline() == b"asked\n"
    process.send_signal(signal.SIGINT)
    assert commands.wait(process).code == 137
    assert commands.living() == set()


def test_a_signal_before_the_commands_first_word_is_not_lost(commands):
    process = commands.start(*OURS, "run", "--idle", "600", "--", "sleep", "600")
    assert comes_true(lambda: len(commands.living()) >= 2)
    process.terminate()
    assert commands.wait(process).code == -signal.SIGTERM
    assert commands.all_gone()


def test_the_documentation_names_every_option():
    told = (ROOT / "docs" / "how-to" / "run.md").read_text(encoding="utf-8")
    # Of some the help says all that there is to say.
    known = {"help", "h", "v", "k", "s", "verbose", "stream-json-timeout"}
    assert [name for name in OPTIONS if name not in known and f"--{name}" not in told] == []
    assert set(re.findall(r"--[a-z-]+", told)) >= {"--idle", "--reap", "--pty"}
