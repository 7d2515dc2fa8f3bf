"""GNU `timeout`'s behaviour, shown by `streamguard timeout` and by the installed GNU `timeout`.

Each expectation is tried on both, so that a wrong one shows. What only later versions of GNU's
hold is tried on those alone. One thing that GNU's does and ours cannot: pass on a SIGPIPE that
was ignored when it started, because CPython overwrites that before any code of ours runs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import pytest

from streamguard.runner._signal import name_of, signal_number
from tests.runner.commands import ENDLESS, OURS, gnu_timeout, sh, with_signals

GNU = gnu_timeout()


class Timeout:
    """One of the two, as words before a command."""

    def __init__(self, commands, name):
        self._commands = commands
        self.is_ours = name == "ours"
        self.words = [*OURS, "timeout"] if self.is_ours else [GNU[0]]

    def __call__(self, *words, **options):
        return self._commands.run(*self.words, *words, **options)

    def start(self, *words, before=(), **options):
        return self._commands.start(*before, *self.words, *words, **options)

    def needs(self, *version):
        """What follows is true of GNU's since that version."""
        if not self.is_ours and GNU[1] < version:
            pytest.skip(f"GNU timeout does so since {'.'.join(map(str, version))}")

    @property
    def line(self):
        """For a shell's script."""
        return " ".join(self.words)


@pytest.fixture(params=["ours", "gnu"])
def timeout(request, commands):
    if request.param == "gnu" and GNU is None:
        pytest.skip("GNU timeout is not installed")
    return Timeout(commands, request.param)


# -- durations -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "duration",
    [
        *("10", "1d", "0", "10.34", "9.999999999", "0x10", "1e1"),
        *("4294967296", "4294967296d", "99999999999999999999", "2.34e+5d"),
        "1.18973149535723176502e+4932",
    ],
)
def test_a_duration_that_is_long_enough_or_zero_lets_the_command_end(timeout, duration):
    assert timeout(duration, "sleep", "0.05") == (0, b"", "")


@pytest.mark.parametrize(
    "words",
    [
        ["invalid", "sleep", "0"],
        [" -0.1", "sleep", "0"],
        ["--", "-0.1", "sleep", "0"],
        ["--", "-1.18973149535723176502e+4932", "sleep", "0"],
        ["--kill-after=invalid", "1", "sleep", "0"],
        ["42D", "sleep", "0"],
        ["nan", "sleep", "0"],
        ["5ms", "sleep", "0"],
        ["999999999999999999x", "sleep", "0"],
        ["--signal=invalid", "1", "sleep", "0"],
        ["--signal=", "1", "sleep", "0"],
        ["--no-such-option", "1", "sleep", "0"],
        ["--verbose=yes", "1", "sleep", "0"],
        ["-x", "1", "sleep", "0"],
        ["-k"],
        ["10"],
        [],
    ],
)
def test_wrong_usage_is_125_and_says_so_on_standard_error(timeout, words):
    done = timeout(*words)
    assert (done.code, done.out) == (125, b"")
    assert done.err


def test_a_negative_duration_too_small_for_a_float_is_still_negative(timeout):
    timeout.needs(9, 10)
    assert timeout(" -1e-10000", "sleep", "0").code == 125


def test_a_duration_too_small_for_a_float_is_short_but_not_off(timeout):
    timeout.needs(9, 10)
    assert timeout("1e-10000", *ENDLESS).code == 124


def test_in_a_hexadecimal_duration_d_is_a_digit(timeout):
    assert timeout("0x0.1d", *ENDLESS).code == 124


# -- exit codes ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 77, 124, 125, 126, 127, 128, 137, 255])
def test_the_commands_own_status_comes_through(timeout, status):
    assert timeout("10", *sh(f"exit {status}")).code == status


def test_when_time_is_up_it_is_124(timeout, commands):
    assert timeout(".1", *ENDLESS) == (124, b"", "")
    assert commands.living() == set()


def test_it_is_124_too_if_the_command_makes_the_signal_a_success(timeout):
    assert (
        timeout("1", *sh("trap 'exit 0' TERM; echo ready; while :; do sleep .01; done")).code
        == 124
    )


def test_preserve_status_gives_the_commands_own(timeout):
    assert timeout("--preserve-status", ".1", *ENDLESS).code == 143
    trapping = sh("trap 'exit 7' TERM; while :; do sleep .01; done")
    assert timeout("--pres", "3", *trapping).code == 7
    assert timeout("--preserve-status", "-s", "cOnT", ".1", "sleep", "0.3").code == 0


def test_newer_letters_are_understood(timeout):
    timeout.needs(9, 10)
    assert timeout("-fp", "-s9", ".1", *ENDLESS).shell == 137


@pytest.mark.parametrize("foreground", [[], ["--foreground"]])
@pytest.mark.parametrize("how", [["-s0", "-k.1"], ["-s", "KILL"], ["--sig=0", "--kill=.1"]])
def test_a_command_that_had_to_be_killed_reads_as_137(timeout, commands, how, foreground):
    assert timeout(*foreground, *how, ".1", *ENDLESS).shell == 137
    assert commands.living() == set()


@pytest.mark.parametrize("command", [["."], ["/"], ["/dev/null"]])
def test_what_cannot_be_run_is_126(timeout, command):
    done = timeout("10", *command)
    assert done.code == 126
    assert done.err


@pytest.mark.parametrize("command", ["no_such_command", "./no_such_command", "/dev/null/no", ""])
def test_what_is_not_found_is_127(timeout, command):
    expected = 126 if command == "/dev/null/no" else 127  # it is a folder's name that is wrong
    assert timeout("10", command).code == expected


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT", "SIGHUP", "SIGABRT"])
def test_a_command_that_dies_by_a_signal_is_followed(timeout, name):
    number = int(getattr(signal, name))
    assert timeout("10", *sh(f"kill -{number} $$"), cwd="/").code == -number


# -- what is said ----------------------------------------------------------------------------


def test_verbose_says_each_signal_that_is_sent(timeout):
    done = timeout("--verb", "-s0", "-k", ".1", ".1", *ENDLESS)
    said = [line.partition("sending ")[2] for line in done.err.splitlines()]
    assert said == ["signal EXIT to command 'sleep'", "signal KILL to command 'sleep'"]
    assert timeout("-v", "10", "true").err == ""


def test_a_standard_error_that_nobody_reads_changes_nothing(timeout, commands, tmp_path):
    timeout.needs(9, 10)
    told = tmp_path / "told"
    script = f"{{ {timeout.line} -v .1 sleep 600; echo $? >{told}; }} 2>&1 | :"
    commands.run(*sh(script))
    assert told.read_text() == "124\n"
    assert commands.living() == set()


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_are_success(timeout, option):
    done = timeout(option)
    assert (done.code, done.err) == (0, "")
    assert b"timeout" in done.out


# -- how it was started ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "how",
    [
        with_signals("ignored", "SIGCHLD"),
        with_signals("blocked", "SIGCHLD"),
        with_signals("blocked", "SIGALRM"),
        with_signals("blocked", "SIGALRM", "SIGCHLD"),
    ],
    ids=["CHLD ignored", "CHLD blocked", "ALRM blocked", "both blocked"],
)
def test_signals_that_the_parent_had_changed_do_no_harm(timeout, how, commands):
    assert commands.run(*how, *timeout.words, "10", "true").code == 0
    assert commands.run(*how, *timeout.words, ".1", *ENDLESS).code == 124


def test_the_command_gets_the_signal_mask_that_was_there(timeout, commands):
    blocked = with_signals("blocked", "SIGUSR2")
    program = "import signal; print(signal.SIGUSR2 in signal.pthread_sigmask(0, ()))"
    words = [*timeout.words, "20", sys.executable, "-S", "-c", program]
    assert commands.run(*blocked, *words).out == b"True\n"
    assert commands.run(*words).out == b"False\n"


def test_children_that_were_there_before_are_nobodys_business(timeout, commands):
    done = commands.run(*sh(f"sleep 3 >/dev/null 2>&1 & exec {timeout.line} .1 sleep 600"))
    assert done == (124, b"", "")
    assert len(commands.living()) == 1


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare"
)
def test_it_works_as_a_child_of_init(timeout, commands):
    words = ["unshare", "--pid", "--fork", "--mount-proc"]
    if commands.run(*words, "true").code:
        pytest.skip("namespaces are not allowed here")
    assert commands.run(*words, *timeout.words, ".1", *ENDLESS).code == 124


def test_arguments_and_script_come_through_as_bytes(timeout):
    assert timeout("10", "printf", "%s", b"\xff\xfe \xe9").out == b"\xff\xfe \xe9"


def test_a_script_without_a_first_line_runs_in_a_shell(timeout, tmp_path):
    script = tmp_path / "script"
    script.write_text('echo "$1"; exit 5\n')
    script.chmod(0o755)
    assert timeout("10", str(script), "hello") == (5, b"hello\n", "")


def test_options_end_at_the_command_and_at_two_dashes(timeout):
    assert timeout("10", "echo", "-k", "--", "-s").out == b"-k -- -s\n"
    assert timeout("-v", "--", "10", "printf", "%s", "--version").out == b"--version"


def test_standard_input_and_a_closed_output_are_the_commands_own(timeout, commands):
    assert timeout("10", "cat", stdin=b"hello").out == b"hello"
    closed = commands.run(*sh(f"{timeout.line} 10 sh -c 'echo x 2>/dev/null || exit 9' >&-"))
    assert closed.code == 9


# -- signals ---------------------------------------------------------------------------------


# Said when everybody above sleeps: GNU's of before 9.5 does not know its child for a moment after the
# fork, and sets its timer after it, anew if a signal came before.
READY = (
    "for pid in $PPID $(sed -n 's/^PPid:.//p' /proc/$PPID/status); do "
    "until grep -q '^State:.[SZ]' /proc/$pid/status; do :; done; done; echo ready"
)


def trapping(name, action):
    return sh(f"trap '{action}' {name}; {READY}; while :; do sleep .01; done")


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("INT", 42), ("HUP", 7), ("QUIT", 9)])
def test_a_signal_is_passed_on_and_the_commands_answer_comes_back(timeout, commands, name, code):
    process = timeout.start("60", *trapping(name, f"echo got; exit {code}"))
    commands.ready(process)
    process.send_signal(getattr(signal, f"SIG{name}"))
    assert commands.wait(process)[:2] == (code, b"got\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_command_that_dies_of_a_passed_on_signal_is_followed(timeout, commands, name):
    process = timeout.start("60", *sh(f"{READY}; exec sleep 600"))
    commands.ready(process)
    number = getattr(signal, name)
    process.send_signal(number)
    assert commands.wait(process).code == -number


def test_a_signal_that_does_not_ask_for_an_end_is_passed_on_too(timeout, commands):
    timeout.needs(9, 10)
    process = timeout.start("60", *trapping("USR1", "exit 3"))
    commands.ready(process)
    process.send_signal(signal.SIGUSR1)
    assert commands.wait(process).code == 3


def test_kill_after_counts_from_a_passed_on_signal_as_well(timeout, commands):
    process = timeout.start(*("-k", ".2", "60", *sh(f"trap '' TERM; {READY}; exec sleep 600")))
    commands.ready(process)
    process.terminate()
    assert commands.wait(process).shell == 137


def test_an_alarm_means_that_the_time_is_up(timeout, commands):
    process = timeout.start("60", *sh(f"{READY}; exec sleep 600"))
    commands.ready(process)
    process.send_signal(signal.SIGALRM)
    assert commands.wait(process).code == 124


def test_one_timeout_in_another_passes_the_signal_through(timeout, commands):
    inner = [*timeout.words, "-s", "USR1", "55"]
    process = timeout.start("-s", "ALRM", "60", *inner, *trapping("USR1", "echo got; exit 0"))
    commands.ready(process)
    process.send_signal(signal.SIGALRM)
    assert commands.wait(process)[:2] == (124, b"got\n")


def test_what_is_ignored_stays_so(timeout, commands):
    timeout.needs(9, 10)
    process = timeout.start(
        *("60", *sh(f"{READY}; read line; exit 5")),
        before=with_signals("ignored", "SIGINT"),
        stdin=-1,
    )
    commands.ready(process)
    process.send_signal(signal.SIGINT)
    assert commands.wait(process, b"go on\n").code == 5


def test_a_stopped_command_is_continued_to_hear_of_its_end(timeout, commands):
    assert timeout(".3", *sh("kill -STOP $$")).code == 124
    assert commands.living() == set()


def test_a_signal_reaches_a_whole_pipeline(timeout, commands):
    done = timeout(".5", *sh("sleep 600 | sleep 600 | sleep 600"))
    assert done.code == 124
    assert commands.all_gone()


def test_killed_itself_it_still_ends_the_command(timeout, commands):
    timeout.needs(9, 10)
    process = timeout.start("60", *sh(f"{READY}; exec sleep 600"))
    commands.ready(process)
    process.kill()
    process.wait()
    assert commands.all_gone()


def test_in_the_foreground_the_command_stays_in_our_group(timeout, commands):
    show = [sys.executable, "-S", "-c", "import os; print(os.getpgrp())"]
    assert int(timeout("--foreground", "20", *show).out) == os.getpgrp()
    assert int(timeout("20", *show).out) != os.getpgrp()


def test_in_the_foreground_a_signal_to_the_group_is_answered_by_the_command(timeout, commands):
    timeout.needs(9, 10)
    process = timeout.start("--foreground", "60", *trapping("INT", "exit 5"), process_group=0)
    commands.ready(process)
    os.killpg(process.pid, signal.SIGINT)
    assert commands.wait(process).code == 5


def test_in_the_foreground_only_the_command_is_sent_signals(timeout, commands):
    done = timeout("--foreground", ".3", *sh("sleep 2 >/dev/null 2>&1 & exec sleep 600"))
    assert done.code == 124
    assert len(commands.living()) == 1


# -- what a signal may be called -----------------------------------------------------------------


def operands():
    """Ways to say a signal, and some that are none."""
    numbers = [*range(70), *range(126, 194), *range(254, 324), 384, 511, 512, 521, 767, 768, 1000]
    yield from map(str, numbers)
    yield from (
        "009",
        "0" * 30 + "15",
        "4294967305",
        "2147483656",
        "9" * 30,
        "+9",
        "-9",
        " 9",
        "9 ",
    )
    yield from (
        "0x9",
        "1e1",
        "",
        "SIG",
        "SIG9",
        "sig015",
        "SIG65",
        "SIG137",
        "SIGSIGTERM",
        "\u0661",
    )
    for name in (
        "EXIT",
        "TERM",
        "CHLD",
        "CLD",
        "POLL",
        "IO",
        "IOT",
        "STKFLT",
        "RTMIN",
        "RTMAX",
        "RT",
    ):
        yield from (name, f"SIG{name}", name.lower(), f"sig{name.title()}", f"{name} ", f"{name}S")
    for base in ("RTMIN", "SIGRTMAX", "rtmin"):
        for sign in ("+", "-", "", " ", " +", "+ ", "++"):
            yield from (
                f"{base}{sign}{n}" for n in ("", 0, 1, "01", 2, 29, 30, 31, 64, "9" * 25, "x")
            )


@pytest.mark.skipif(GNU is None, reason="GNU timeout is not installed")
def test_a_signal_may_be_called_whatever_gnu_lets_it_be_called():
    def gnu(operand):
        words = [GNU[0], "-v", "--foreground", "-k.01", "-s", operand, ".01", "sleep", "600"]
        return subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={"LC_ALL": "C"})

    def told(process):
        with process:
            first = process.stderr.readline()
        return first.partition("sending signal ")[2].partition(" to ")[0] or None

    def ours(operand):
        try:
            number = signal_number(operand)
        except ValueError:
            return None
        known = {first + n: f"RTMIN+{n}" for n in range(1, 16)}
        known |= {last - n: f"RTMAX-{n}" for n in range(1, 15)}
        return known.get(number) or name_of(number)

    first, last = int(signal.SIGRTMIN), int(signal.SIGRTMAX)
    asked = list(operands())
    for start in range(0, len(asked), 40):
        batch = asked[start : start + 40]
        running = [gnu(operand) for operand in batch]
        expected = dict(zip(batch, map(told, running), strict=True))
        assert {operand: ours(operand) for operand in batch} == expected
