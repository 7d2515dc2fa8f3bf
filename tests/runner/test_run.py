"""`streamguard run`: what ends a command, how, and what is left of it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from streamguard._base.variables import MARK
from streamguard.cli import agents
from streamguard.runner import child
from streamguard.top import published
from tests.process.backends import PATIENCE, comes_true
from tests.runner.commands import (
    ENDLESS,
    FAILED,
    INIT,
    OURS,
    RESULT,
    SESSION,
    TEXT,
    TOOL,
    TOOL_DONE,
    says,
    sh,
    with_signals,
)

# A limit that no test is meant to reach, and one that each is: silence has no upper bound here.
LONG = "600"
SHORT = "0.3"
# Silence after the first output: how long a start takes on a busy machine does not matter.
SILENCE = ["--first", LONG, "--idle", SHORT]


# -- exit codes ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 2, 124, 125, 137, 255])
def test_a_command_that_ends_by_itself_gives_its_own_status(commands, status):
    done = commands.guarded("--idle", LONG, "--", *sh(f"echo out; echo err >&2; exit {status}"))
    assert done == (status, b"out\n", "err\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL", "SIGSEGV", "SIGHUP"])
def test_a_death_by_signal_is_ours_too(commands, name):
    number = int(getattr(signal, name))
    assert commands.guarded("--idle", LONG, *sh(f"kill -{number} $$"), cwd="/").code == -number


def test_silence_is_124_and_one_line_says_which_limit(commands):
    done, told = commands.status(*SILENCE, "--", *sh("echo out; exec sleep 600"))
    assert (done.code, done.out) == (124, b"out\n")
    (line,) = done.err.splitlines()
    assert line.startswith("streamguard run: 'sh' idle for ")
    assert "(limit idle=0.3)" in line
    assert (told["limit"], told["window"], told["exit_code"]) == ("idle", 0.3, 124)
    assert told["elapsed"] >= 0.3
    assert told["command_exit"] == -signal.SIGTERM
    assert told["signals_sent"][0] == "TERM"
    assert commands.living() == set()


def test_a_deaf_command_is_killed_and_that_is_137(commands):
    deaf = sh("trap '' TERM; echo out; sleep 600; sleep 600")
    words = [*SILENCE, "--kill-after", "0.2", "--", *deaf]
    done, told = commands.status(*words)
    assert (done.code, told["exit_code"]) == (137, 137)
    assert told["signals_sent"][0] == "TERM"
    assert "KILL" in told["signals_sent"]
    assert commands.living() == set()


def test_preserve_status_and_another_signal(commands):
    script = sh("trap 'exit 7' INT; echo ready; while :; do sleep .01; done")
    words = ["--total", "3", "--signal", "INT", "--preserve-status", "--", *script]
    assert commands.guarded(*words).code == 7


@pytest.mark.parametrize(
    ("command", "code"), [(["no_such_command"], 127), (["/"], 126), (["/dev/null"], 126)]
)
def test_what_cannot_be_run_is_told_from_what_is_not_found(commands, command, code):
    done = commands.guarded("--idle", LONG, "--", *command)
    assert done.code == code
    assert done.err.startswith("streamguard run: cannot run ")


def test_options_after_the_dashes_are_told_from_a_command(commands):
    done = commands.guarded("--total", LONG, "--", "--idle", "5", "true")
    assert done.code == 127
    assert done.err == (
        "streamguard run: cannot run '--idle': No such file or directory; options come before the "
        "--, the command after it\n"
    )


def test_a_whole_line_in_quotes_is_told_from_a_command(commands):
    done = commands.guarded("--idle", LONG, "--", "sleep 5")
    assert done.code == 127
    assert "it is one word: leave out the quotes" in done.err


def test_a_working_directory_that_is_gone_is_the_commands_affair(commands, tmp_path):
    (tmp_path / "gone").mkdir()
    line = shlex.join([*OURS, "run", "--idle", LONG, "--", "echo", "out"])
    done = commands.run(*sh(f"rmdir ../gone; exec {line}"), cwd=tmp_path / "gone")
    assert done == (0, b"out\n", "")


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--idle"],
        ["--idle", "soon", "true"],
        ["--idle", "-5", "true"],
        ["--no-such-option", "true"],
        ["--t", "5", "true"],
        ["--retries", "-1", "true"],
        ["--retries", "two", "true"],
        ["--errors", "xml", "true"],
        ["--signal", "NONE", "true"],
        ["--backoff", "1,x", "true"],
        ["--resume-cmd", "resume {session_id}", "true"],
        ["--retries", "1", "--resume-cmd", "resume", "true"],
        ["--retries", "1", "--resume-cmd", "resume '{session_id}", "true"],
        ["--pty", "--foreground", "true"],
        ["--status-file", "/dev/stdout", "true"],
        ["--verbose=yes", "true"],
    ],
)
def test_wrong_usage_is_125_and_points_to_the_help(commands, words):
    done = commands.guarded(*words)
    assert (done.code, done.out) == (125, b"")
    assert done.err.endswith("Try 'streamguard run --help'.\n")


@pytest.mark.parametrize(
    ("wrong", "meant"), [("--idel", "--idle"), ("--retry-cmd", "--resume-cmd")]
)
def test_a_mistyped_option_is_told_what_it_may_have_been(commands, wrong, meant):
    assert f"'{wrong}'; did you mean '{meant}'?\n" in commands.guarded(wrong, "1", "true").err


def test_what_must_be_milliseconds_is_warned_of(commands):
    done = commands.guarded("--idle", "180000", "--total", "90000s", "true")
    assert done.code == 0
    assert done.err == (
        "streamguard run: warning: 180000 is 50 hours; if milliseconds are meant, write 180\n"
    )


def test_a_status_file_that_cannot_be_written_is_named_with_its_option(commands, tmp_path):
    path = tmp_path / "no folder" / "status.json"
    done = commands.guarded("--status-file", str(path), "true")
    assert done.code == 0
    assert f"streamguard run: --status-file {path}: " in done.err


def test_help_is_success_and_names_every_option(commands):
    from streamguard.cli.run import OPTIONS

    done = commands.guarded("--help")
    assert (done.code, done.err) == (0, "")
    told = done.out.decode()
    assert [name for name in OPTIONS if len(name) > 1 and f"--{name}" not in told] == []


# -- limits ----------------------------------------------------------------------------------


def test_each_output_is_a_new_beginning(commands):
    """T1: eight times 0.5 s are more than the limit, each alone is far less."""
    script = "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.5; done"
    assert commands.guarded("--idle", "3.5", "--", *sh(script)).code == 0


def test_first_is_for_the_time_before_the_first_output(commands):
    done, told = commands.status("--first", SHORT, "--idle", LONG, "--", *ENDLESS)
    assert (done.code, told["limit"]) == (124, "first")


def test_an_agents_greeting_is_no_first_output(commands):
    """S0: a session that opens has done nothing yet."""
    greeting = sh(f"{says(INIT)}; exec sleep 600")
    done, told = commands.status("--first", "2", "--", *greeting)
    assert (done.code, told["limit"], told["session_id"]) == (124, "first", SESSION)


def test_the_status_says_what_all_attempts_have_done(commands, tmp_path):
    """S0-19, S4-14: tools, tokens, attempts and the folder, as errors and receipts have it."""
    hangs = sh(f"{says(INIT, TOOL, TOOL_DONE)}; exec sleep 600")
    resumed = shlex.join(sh(f"{says(INIT, {**RESULT, 'usage': {'output_tokens': 5}})}; : x"))
    words = ["--idle", "1", "--retries", "1", "--resume-cmd", f"{resumed} {{session_id}}"]
    done, told = commands.status(*words, "--backoff", "0", "--", *hangs, cwd=tmp_path)
    assert (done.code, told["attempts"]) == (0, 2), done.err
    counts = {
        "tools_run": 1,
        "usage": {"output_tokens": 5},
        "spent": {"tokens": 5.0},
        "attempts": 2,
        "work_dir": str(tmp_path),
    }
    assert counts.items() <= told["done"].items()


def test_first_json_wants_a_json_line_whatever_else_is_written(commands):
    talks = sh("while :; do echo text; sleep .05; done; : stream-json")
    words = ["--idle", LONG, "--first-json", SHORT, "--", *talks, "stream-json"]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "first_json")


def test_half_a_json_line_is_none(commands):
    script = """printf '{"type":"system","subt'; exec sleep 600"""
    for words, limit in ((["--first-json", "2"], "first_json"), (["--first", "2"], "first")):
        done, told = commands.status("--idle", LONG, *words, "--", *sh(script), "stream-json")
        assert (done.code, told["limit"]) == (124, limit)
        assert done.out == b'{"type":"system","subt'


FLOOD = "yes | head -c 300000"


@pytest.mark.parametrize("alias", ["--first-json", "--stream-json-timeout"])
@pytest.mark.parametrize(
    "script",
    ["exec sleep 600", "while :; do echo text; sleep .05; done", f"{FLOOD}; exec sleep 600"],
    ids=["silence", "text", "a flood"],
)
def test_first_json_is_in_force_for_a_command_that_speaks_none(commands, script, alias):
    """S3-02: a limit that was asked for never fails open, also where lines are read no more."""
    done, told = commands.status(alias, SHORT, "--", *sh(script))
    assert (done.code, told["limit"]) == (124, "first_json")
    assert "'sh' gave no JSON line in " in done.err
    assert "warning" not in done.err


@pytest.mark.parametrize("more", [["--foreground"], ["--pty"], ["--record", "evidence"]])
def test_first_json_is_in_force_however_the_command_is_run(commands, more):
    """S3-02."""
    talks = sh("while :; do echo text; sleep .05; done")
    words = ["--first-json", SHORT, *more, "--", *talks]
    done, told = commands.status(*words, cwd=commands.folder)
    assert (done.code, told["limit"]) == (124, "first_json")


def test_a_json_line_may_come_after_much_that_is_none(commands):
    """S3-02."""
    script = f"{FLOOD}; {says({'any': 'object'})}; sleep 4; exit 3"
    assert commands.guarded("--first-json", "3", "--", *sh(script)).code == 3


def test_first_json_is_for_each_attempt(commands):
    """S3-02: the second one says nothing of JSON, either."""
    words = ["--first-json", SHORT, "--retries", "1", "--backoff", "0", "--", *ENDLESS]
    done, told = commands.status(*words)
    assert (done.code, told["limit"], told["attempts"]) == (124, "first_json", 2)


def test_first_json_of_evidence_is_its_own_limit(commands):
    """S3-02: the record says it as the status file does."""
    words = ["--first-json", SHORT, "--record", "evidence", "--", *sh("echo text; sleep 600")]
    commands.guarded(*words, cwd=commands.folder)
    receipts = list((commands.folder / "evidence").glob("*/receipts/*.json"))
    assert "gave no JSON line" in receipts[0].read_text()


@pytest.mark.parametrize(
    "words", [["--first-json", "5"], ["--tools", "5"], ["--exit-grace", "5"]], ids=lambda w: w[0]
)
def test_what_cannot_be_seen_is_refused(commands, words):
    """S3-02: with no standard output to look at, a limit on what is said there is an error."""
    line = shlex.join([*OURS, "run", *words, "--", "true"])
    done = commands.run(*sh(f"exec {line} >&-"))
    assert done.code == 125
    assert f"{words[0]} looks at standard output, which is closed: open it" in done.err


@pytest.mark.parametrize("more", [[], ["--pty"], ["--foreground"]])
@pytest.mark.parametrize(
    "out", ["", "echo text; ", f"{FLOOD}; "], ids=["silent", "a line", "flood"]
)
def test_turn_is_in_force_for_a_command_that_speaks_no_json(commands, out, more):
    """Its turn begins with it, and ends with it (S3-04)."""
    words = ["--stop-hook-timeout", SHORT, *more, "--", *sh(f"{out}exec sleep 600")]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "turn")


@pytest.mark.parametrize("out", ["", "echo text; "], ids=["silent", "a line"])
def test_tools_alone_is_a_limit_on_silence_where_nothing_is_said_of_tools(commands, out):
    """A limit that was asked for never fails open."""
    done, told = commands.status("--tools", SHORT, "--", *sh(f"{out}exec sleep 600"))
    assert (done.code, told["limit"]) == (124, "tools")
    assert "and does not say which tools it runs (limit tools=0.3)" in done.err


@pytest.mark.parametrize("before", ["", "sleep 1; "], ids=["at once", "later"])
def test_a_command_that_has_closed_its_output_has_said_all_that_it_will(commands, before):
    """Without a result, and with a grace that was asked for: 124, because nobody knows how it went."""
    script = f"echo out; {before}exec >&-; exec sleep 600"
    done, told = commands.status("--exit-grace", SHORT, "--", *sh(script))
    assert (done.code, done.out, told["limit"]) == (124, b"out\n", "exit_grace")
    by_default = f"exec >&-; {says()}sleep 1; exit 3"
    assert commands.guarded("--idle", LONG, "--", *sh(by_default)).code == 3


@pytest.mark.parametrize(
    ("option", "lines"),
    [("--exit-grace", [INIT, TEXT, RESULT]), ("--tools", [INIT, TOOL])],
    ids=["the result", "a tool"],
)
def test_what_was_asked_for_is_looked_for_behind_any_banner(commands, option, lines):
    """A limit that was asked for never fails open: lines are read however late they come."""
    script = f"{FLOOD}; {says(*lines)}; exec sleep 600"
    done, told = commands.status("--idle", LONG, option, SHORT, "--", *sh(script))
    assert told["limit"] == option.removeprefix("--").replace("-", "_")
    assert done.code == (0 if option == "--exit-grace" else 124)


@pytest.mark.parametrize(
    "words",
    [
        [option, SHORT]
        for option in (
            "--idle",
            "--first",
            "--first-json",
            "--turn",
            "--total",
            "--tools",
            "--exit-grace",
        )
    ],
    ids=lambda words: words[0],
)
def test_each_limit_warns_once_where_it_only_warns(commands, words):
    """T11."""
    env = {**os.environ, "STREAMGUARD_MODE": "warn"}
    script = "exec >&-; sleep 1; exit 3" if words[0] == "--exit-grace" else "sleep 1; exit 3"
    done = commands.guarded(*words, "--", *sh(script), env=env)
    assert done.code == 3
    name = words[0].removeprefix("--").replace("-", "_")
    assert done.err.count(f"(limit {name}=0.3)") == 1, done.err


def test_a_tool_in_flight_pauses_idle_and_has_an_allowance_of_its_own(commands):
    """T5."""
    script = f"{says(INIT, TOOL)}; sleep 2.5; {says(TOOL_DONE, RESULT)}"
    assert commands.guarded("--first", LONG, "--idle", "1.5", "--", *sh(script)).code == 0
    endless = sh(f"{says(INIT, TOOL)}; exec sleep 600")
    for words in (["--idle", LONG, "--tools", SHORT], ["--tools", SHORT]):
        done, told = commands.status(*words, "--", *endless)
        assert (done.code, told["limit"], told["in_flight"]) == (124, "tools", ["Bash"])


def test_a_tool_that_is_done_pauses_nothing(commands):
    script = f"{says(INIT, TOOL, TOOL_DONE)}; exec sleep 600"
    done, told = commands.status(*SILENCE, "--", *sh(script))
    assert (done.code, told["limit"]) == (124, "idle")


@pytest.mark.parametrize(
    "lines",
    [
        [
            {"type": "thread.started", "thread_id": "th_1"},
            {"type": "turn.started"},
            {
                "type": "item.started",
                "item": {"id": "i1", "type": "command_execution", "command": "make"},
            },
        ],
        [
            {"type": "init", "timestamp": "t", "session_id": "s", "model": "m"},
            {
                "type": "tool_use",
                "timestamp": "t",
                "tool_name": "shell",
                "tool_id": "x1",
                "parameters": {},
            },
        ],
    ],
    ids=["codex", "gemini"],
)
def test_tools_of_other_agents_pause_idle_too(commands, lines):
    script = sh(f"{says(*lines)}; exec sleep 600")
    words = ["--first", LONG, "--idle", "1", "--tools", "2", "--", *script]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "tools")
    assert len(told["in_flight"]) == 1


def test_a_turn_may_take_so_long_whatever_is_written_in_it(commands):
    script = f"{says(INIT)}; while :; do {says(TEXT)}; sleep .05; done"
    done, told = commands.status("--turn", SHORT, "--", *sh(script))
    assert (done.code, told["limit"]) == (124, "turn")


@pytest.mark.parametrize(("last", "code"), [(RESULT, 0), (FAILED, 1)])
def test_a_command_that_stays_after_its_result_is_ended_and_keeps_the_results_status(
    commands, last, code
):
    """T14: claude-code's own fault (its issue 25629)."""
    script = f"{says(INIT, TEXT, last)}; sleep 600; exit 4"
    done, told = commands.status("--idle", LONG, "--exit-grace", SHORT, "--", *sh(script))
    assert (done.code, told["limit"]) == (code, "exit_grace")
    assert commands.living() == set()


def test_between_turns_nothing_is_silence(commands):
    """T14: after its result a command has half a minute by default, however short idle is."""
    script = f"{says(INIT, TEXT, RESULT)}; sleep 2.5; exit 4"
    assert commands.guarded("--first", LONG, "--idle", "1", "--", *sh(script)).code == 4


def test_total_counts_whatever_happens_and_touches_no_output(commands):
    done, told = commands.status(
        "--total", "0.4", "--", *sh("while :; do echo x; sleep .05; done")
    )
    assert (done.code, told["limit"]) == (124, "total")
    assert told["reason"].endswith("(limit total=0.4)")  # and no word of messages: nobody looked
    ours = commands.guarded("--total", LONG, "--", "readlink", "/proc/self/fd/1").out
    assert ours.startswith(b"pipe:[")


def test_a_slow_reader_is_no_silence_of_the_commands(commands):
    """T1: idle is the time the *command* keeps us waiting."""
    script = "head -c 3000000 /dev/zero; echo; sleep 0.1; exit 3"
    process = commands.start(*OURS, "run", "--first", LONG, "--idle", "2", "--", *sh(script))
    assert comes_true(lambda: len(commands.living()) >= 2)
    with pytest.raises(TimeoutError):  # for a while nobody reads
        _wait(process, 3)
    assert process.poll() is None
    done = commands.wait(process)
    assert (done.code, len(done.out)) == (3, 3_000_001)


def _wait(process, seconds):
    import subprocess

    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as error:
        raise TimeoutError from error


def test_standard_error_is_no_output(commands):
    script = "while :; do echo err >&2; sleep .05; done"
    done, told = commands.status("--idle", "0.5", "--", *sh(script))
    assert (done.code, told["limit"]) == (124, "idle")
    assert done.err.startswith("err\n")


def test_the_names_of_claude_print_are_understood(commands):
    done, told = commands.status("--first-output-timeout", SHORT, "--timeout", "1h", *ENDLESS)
    assert (done.code, told["limit"]) == (124, "first")
    script = f"{says(INIT)}; while :; do {says(TEXT)}; sleep .05; done"
    done, told = commands.status("--stop-hook-timeout", SHORT, *sh(script))
    assert told["limit"] == "turn"


def test_limits_come_from_the_environment_as_in_the_library(commands):
    env = {**os.environ, "STREAMGUARD_IDLE": SHORT}
    done, told = commands.status("--", *ENDLESS, env=env)
    assert (done.code, told["limit"], told["window"]) == (124, "idle", 0.3)
    assert commands.guarded("--idle", "0", "--", "sleep", "0.8", env=env).code == 0
    env = {**os.environ, "STREAMGUARD_IDLE": "soon"}
    done = commands.guarded("--", "true", env=env)
    assert done.code == 125
    assert done.err.startswith(
        "streamguard run: environment variable STREAMGUARD_IDLE='soon': use "
    )
    assert len(done.err.splitlines()) == 1


def test_a_duration_in_the_environment_is_one_of_the_command_line_s4_01(commands):
    env = {**os.environ, "STREAMGUARD_IDLE": "0.005m"}
    done, told = commands.status("--", *ENDLESS, env=env)
    assert (done.code, told["limit"], told["window"]) == (124, "idle", 0.3)


def test_a_first_that_is_as_long_as_idle_is_told_k21(commands):
    """In the words of the library; one that is longer is what it is for."""
    done = commands.guarded("--first", "2m", "--idle", "120", "--", "true")
    assert (done.code, done.out) == (0, b"")
    assert done.err == (
        "streamguard run: warning: first=120 changes nothing: idle=120 is as long. Leave it out, or "
        "give a first message longer\n"
    )
    assert commands.guarded("--first", "3m", "--idle", "2m", "--", "true").err == ""


def test_the_kill_switch_makes_verdicts_warnings_or_nothing(commands):
    """T11."""
    env = {**os.environ, "STREAMGUARD_MODE": "warn"}
    done = commands.guarded("--idle", "0.2", "--", *sh("sleep 0.8; exit 3"), env=env)
    assert (done.code, done.out) == (3, b"")
    assert done.err.startswith("streamguard run: would end (mode warn): 'sh' idle for ")
    assert len(done.err.splitlines()) == 1
    env = {**os.environ, "STREAMGUARD_MODE": "off"}
    assert commands.guarded("--idle", "0.2", "--", "sleep", "0.8", env=env) == (0, b"", "")


@pytest.mark.parametrize(("word", "is_told"), [("true", False), ("on", False), ("wran", True)])
def test_any_other_word_of_the_kill_switch_is_on_s1_18(commands, word, is_told):
    """S1-18: as in the library; what may be a slip is told on standard error, once."""
    env = {**os.environ, "STREAMGUARD_MODE": word}
    done = commands.guarded("--idle", SHORT, "--", "sleep", LONG, env=env)
    assert done.code == 124
    warnings = [line for line in done.err.splitlines() if "STREAMGUARD_MODE" in line]
    assert len(warnings) == is_told
    assert all("did you mean 'warn'?" in warning for warning in warnings)


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["claude", "-p", "x"], "--output-format stream-json --verbose"),
        (["claude", "-p", "x", "--output-format", "json"], "--output-format stream-json"),
        (["codex", "exec", "x"], "--json"),
        (["gemini", "--output-format=json", "-p", "x"], "--output-format stream-json"),
        (["opencode", "run", "x"], "--format json"),
        (["copilot", "-p", "x"], "--output-format json"),
    ],
)
def test_a_command_that_is_silent_by_design_gets_one_warning(commands, command, advice):
    folder = commands.folder / "bin"
    folder.mkdir()
    (folder / command[0]).write_text("#!/bin/sh\n")
    (folder / command[0]).chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = commands.guarded("--idle", "15m", "--", *command, env=env)
    (line,) = done.err.splitlines()
    assert (done.code, line.endswith(f"add {advice}") or advice in line) == (0, True)
    words = [*command[:2], "--output-format", "stream-json", "--json"]
    assert commands.guarded("--idle", "15m", "--", *words, env=env).err == ""


@pytest.mark.parametrize(
    "command",
    [["opencode", "run", "--format", "json"], ["copilot", "-p", "x", "--output-format=json"]],
)
def test_of_some_json_is_a_line_for_each_event(command):
    assert agents.speaks_json(command)
    assert agents.silent_by_design(command) is None


def test_a_command_that_is_silent_by_design_is_warned_of_its_first_json_line_too(commands):
    """S3-02: the limit is in force, and that it will be reached is said at once."""
    folder = commands.folder / "bin"
    folder.mkdir()
    (folder / "claude").write_text("#!/bin/sh\n")
    (folder / "claude").chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = commands.guarded("--first-json", "90", "--", "claude", "-p", "x", env=env)
    assert "so --first-json 90 measures all of its work; add --output-format" in done.err
    words = ["--first-json", "90", "--transcript", "session.jsonl", "--", "claude", "-p", "x"]
    assert commands.guarded(*words, env=env, cwd=commands.folder) == (0, b"", "")


@pytest.mark.parametrize("how", ["option", "file", "environment"])
def test_a_presets_limits_are_in_force(commands, how):
    """S3-01 to 04: claude-print's, and what is written over it."""
    env = {name: v for name, v in os.environ.items() if not name.startswith("STREAMGUARD_")}
    words = ["--first-json", SHORT, "--first", LONG, "--status-file", "told.json"]
    if how == "option":
        words += ["--preset", "claude-print"]
    elif how == "file":
        path = commands.folder / "streamguard.toml"
        path.write_text('[run]\npreset = "claude-print"\n')
        path.chmod(0o600)
    else:
        env["STREAMGUARD_PRESET"] = "claude-print"
    done = commands.guarded(*words, "--record", "r", "--", *ENDLESS, env=env, cwd=commands.folder)
    assert done.code == 124
    assert json.loads((commands.folder / "told.json").read_text())["limit"] == "first_json"


# -- the tree --------------------------------------------------------------------------------

ESCAPES = {
    "a child": "sleep 600 & echo out; wait",
    "a session of its own": "setsid sleep 600 & echo out; wait",
    "an orphan in a session of its own": "(setsid sleep 600 &) ; echo out; exec sleep 600",
    "an orphan without our mark": f"(env -u {MARK} setsid sleep 600 &) ; echo out; exec sleep 600",
    "a deaf one": "(trap '' TERM INT HUP; setsid sleep 600 &) ; echo out; exec sleep 600",
    "stopped": "(setsid sh -c 'kill -STOP $$; sleep 600' &) ; echo out; kill -STOP $$",
}


@pytest.mark.parametrize("how", ESCAPES)
def test_nothing_that_it_started_is_left_after_a_verdict(commands, how):
    """D4."""
    words = [*SILENCE, "--kill-after", "0.3", "--", *sh(ESCAPES[how])]
    done = commands.guarded(*words)
    assert done.code == (137 if how == "a deaf one" else 124)
    assert commands.living() == set()


def test_who_forks_on_and_on_is_caught_up_with(commands):
    """D4: each leaves its session and its parent, and starts the next."""
    script = commands.folder / "storm"
    script.write_text('#!/bin/sh\n(setsid "$0" &)\n')
    script.chmod(0o755)
    words = ["--idle", SHORT, "--kill-after", "0.1", "--", *sh("./storm; exec sleep 600")]
    assert commands.guarded(*words, cwd=commands.folder).code in (124, 137)
    assert commands.living() == set()


def test_a_normal_end_leaves_the_background_alone_and_does_not_wait_for_it(commands):
    script = "sleep 600 2>/dev/null & echo out; exit 3"  # it holds its output, as a daemon would
    done = commands.guarded("--idle", LONG, "--", *sh(script))
    assert done == (3, b"out\n", "")
    assert len(commands.living()) == 1


def test_reap_ends_what_was_left(commands):
    words = ["--idle", LONG, "--reap", "--", *sh("(setsid sleep 600 &) ; sleep 600 & exit 3")]
    assert commands.guarded(*words).code == 3
    assert commands.living() == set()


def test_a_late_orphans_words_are_heard_for_a_moment_only(commands):
    """What the command itself wrote is passed on whole; who else holds its output is not waited for."""
    script = (
        "(sleep 0.1; echo late; exec sleep 600) 2>/dev/null & head -c 500000 /dev/zero; exit 3"
    )
    done = commands.guarded("--idle", LONG, "--", *sh(script))
    assert done.code == 3
    assert len(done.out) in (500_000, 500_005)


def test_killed_ourselves_we_still_end_the_tree(commands):
    """D7: the kernel ends the command, the sentinel what it started."""
    script = "(trap '' TERM; setsid sleep 600 &) ; echo ready; exec sleep 600"
    process = commands.start(
        *OURS, "run", "--idle", LONG, "--kill-after", "0.2", "--", *sh(script)
    )
    commands.ready(process)
    assert comes_true(lambda: len(commands.living()) >= 4)  # we, the sentinel, and two sleeps
    process.kill()
    process.wait()
    assert commands.all_gone()


def test_the_mark_is_the_librarys():
    assert child.MARK == MARK


def test_it_finds_the_command_a_group_of_its_own_and_its_signals_as_they_were(commands):
    show = (
        "import os, signal; print(os.getpgrp() == os.getsid(0) == os.getpid(), "
        "signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "
        "signal.getsignal(signal.SIGTERM) == signal.SIG_DFL)"
    )
    words = [*OURS, "run", "--idle", LONG, "--", sys.executable, "-S", "-c", show]
    assert commands.run(*with_signals("ignored", "SIGHUP"), *words).out == b"True True True\n"
    words = [*OURS, "run", "--foreground", "--idle", LONG, "--", sys.executable, "-S", "-c", show]
    assert commands.run(*words).out == b"False False True\n"


# -- signals ---------------------------------------------------------------------------------


def started(commands, script, *options):
    words = ["--idle", LONG, *options, "--", *sh(script)]
    return commands.ready(commands.start(*OURS, "run", *words))


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"])
def test_a_signal_is_passed_on_and_the_rest_of_the_tree_follows(commands, name):
    number = int(getattr(signal, name))
    trap = name.removeprefix("SIG")
    script = f"(setsid sleep 600 &) ; trap 'echo bye; exit 9' {trap}; echo ready; while :; do sleep .01; done"
    process = started(commands, script)
    process.send_signal(number)
    assert commands.wait(process)[:2] == (9, b"bye\n")
    assert commands.living() == set()


def test_that_test_passes_where_all_signals_are_ignored(commands):
    """As by `nohup`, and in the background: what a test starts begins with its signals as they are by default."""
    test = f"{__file__}::test_a_signal_is_passed_on_and_the_rest_of_the_tree_follows"
    tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    ignored = ["sh", "-c", "trap '' HUP INT QUIT; exec \"$@\"", "sh"]
    done = commands.run(*ignored, *tests, cwd=Path(__file__).parents[2])
    assert done.code == 0, done.out
    assert b"4 passed" in done.out


def test_a_second_ctrl_c_kills_at_once(commands):
    script = "trap 'echo got' INT; echo ready; while :; do sleep .01; done"
    process = started(commands, script, "--kill-after", LONG)
    process.send_signal(signal.SIGINT)
    assert process.stdout.readline() == b"got\n"
    process.send_signal(signal.SIGINT)
    assert commands.wait(process).shell == 130
    assert commands.living() == set()


def test_ctrl_c_is_130_and_a_deaf_command_is_killed_after_its_grace(commands):
    process = started(commands, "echo ready; exec sleep 600")
    process.send_signal(signal.SIGINT)
    assert commands.wait(process).code == -signal.SIGINT
    script = "trap '' TERM; echo ready; while :; do sleep .01; done"
    process = started(commands, script, "--kill-after", "0.2")
    process.terminate()
    assert commands.wait(process).code == 137
    assert commands.living() == set()


def test_usr1_is_passed_on_and_ends_nothing(commands):
    script = "trap 'echo got' USR1; echo ready; read line; while :; do sleep .01; done"
    process = started(commands, script, "--kill-after", "0.1")
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == b"got\n"
    process.terminate()
    assert commands.wait(process).code == -signal.SIGTERM


# -- attempts --------------------------------------------------------------------------------


def test_a_silent_command_is_tried_again(commands):
    script = "echo x >>tries; [ $(wc -l <tries) = 3 ] || exec sleep 600; cat; exit 3"
    words = ["--first", "2.5", "--retries", "2", "--backoff", "0.1,0", "--", *sh(script)]
    done, told = commands.status(*words, stdin=b"the prompt", cwd=commands.folder)
    assert (done.code, done.out, told["attempts"]) == (3, b"the prompt", 3)
    assert "trying again in 0.1 s (1 of 2)" in done.err
    assert "trying again now (2 of 2)" in done.err


def test_a_files_input_is_wound_back(commands):
    prompt = commands.folder / "prompt"
    prompt.write_text("the prompt")
    script = "cat >>got; [ -s tried ] && exit 3; echo x >tried; exec sleep 600"
    words = [*OURS, "run", "--first", "3", "--retries", "1", "--backoff", "0", "--", *sh(script)]
    with prompt.open() as stdin:
        process = commands.start(*words, stdin=stdin, cwd=commands.folder)
        assert commands.wait(process).code == 3
    assert (commands.folder / "got").read_text() == "the prompt" * 2


def test_after_output_there_is_no_second_attempt(commands):
    words = [*SILENCE, "--retries", "2", "--backoff", "0", "--"]
    done, told = commands.status(*words, *sh("echo out; exec sleep 600"))
    assert (done.code, done.out, told["attempts"]) == (124, b"out\n", 1)
    assert "not tried again: some of its output was passed on already (--resume-cmd" in done.err


@pytest.mark.parametrize("code", [1, 125, 126, 127])
def test_a_failure_is_no_hang(commands, code):
    script = f"echo x >>tries; exit {code}"
    words = ["--idle", LONG, "--retries", "2", "--backoff", "0", "--", *sh(script)]
    assert commands.guarded(*words, cwd=commands.folder).code == code
    assert (commands.folder / "tries").read_text() == "x\n"


def test_a_session_goes_on_where_it_was(commands):
    resume = "sh -c 'echo \"$1 $2\"; exit 3' resumed 'a b' {session_id}"
    words = [*SILENCE, "--retries", "2", "--backoff", "0", "--resume-cmd", resume, "--"]
    done, told = commands.status(*words, *sh(f"{says(INIT, TEXT)}; exec sleep 600"))
    assert done.code == 3
    assert done.out.splitlines()[-1] == f"a b {SESSION}".encode()
    assert (told["attempts"], told["limit"]) == (2, None)


def test_who_goes_on_is_not_given_the_prompt_again(commands):
    """R4: the first prompt is in the session already."""
    resume = "sh -c 'echo got; cat; exit 3' x {session_id}"
    words = [*SILENCE, "--retries", "1", "--backoff", "0", "--resume-cmd", resume, "--"]
    script = sh(f"cat >/dev/null; {says(INIT, TEXT)}; exec sleep 600")
    done = commands.guarded(*words, *script, stdin=b"the prompt")
    assert (done.code, done.out.splitlines()[-1]) == (3, b"got")


def test_a_reader_who_takes_nothing_does_not_hold_up_a_verdict_for_ever(commands):
    script = sh("head -c 3000000 /dev/zero; exec sleep 600")
    process = commands.start(*OURS, "run", "--total", "1", "--turn", LONG, "--", *script)
    assert process.wait(PATIENCE) == 124
    assert commands.living() == set()


def test_without_a_session_there_is_none_to_go_on_with(commands):
    words = [*SILENCE, "--retries", "1", "--resume-cmd", "echo {session_id}", "--"]
    done = commands.guarded(*words, *sh("echo text; exec sleep 600"))
    assert done.code == 124
    assert "it named no session that could be resumed" in done.err


def test_an_id_that_looks_like_an_option_is_not_put_on_a_command_line(commands):
    lines = [{**line, "session_id": "--dangerous"} for line in (INIT, TEXT)]
    words = [*SILENCE, "--retries", "1", "--resume-cmd", "echo {session_id}", "--"]
    done = commands.guarded(*words, *sh(f"{says(*lines)}; exec sleep 600"))
    assert done.code == 124
    assert "cannot be part of a command line" in done.err


def test_total_leaves_no_time_for_another_attempt(commands):
    words = [
        "--first",
        SHORT,
        "--total",
        "30",
        "--retries",
        "1",
        "--backoff",
        "60",
        "--",
        *ENDLESS,
    ]
    done = commands.guarded(*words)
    assert done.code == 124
    assert "total leaves no time for it" in done.err


def test_a_signal_between_two_attempts_ends_the_run(commands):
    words = ["--first", SHORT, "--retries", "1", "--backoff", LONG, "--", *ENDLESS]
    process = commands.start(*OURS, "run", *words)
    assert b"trying again in 600 s" in process.stderr.readline()
    process.terminate()
    assert commands.wait(process).code == -signal.SIGTERM


# -- what is said ----------------------------------------------------------------------------


def test_errors_as_json_are_one_object_on_standard_error(commands):
    done = commands.guarded("--idle", SHORT, "--errors", "json", "--", *ENDLESS)
    told = json.loads(done.err)
    assert (told["error"], told["limit"], told["exit_code"]) == ("timeout", "idle", 124)


def test_a_status_file_may_be_a_descriptor(commands):
    reading, writing = os.pipe()
    words = [*OURS, "run", "--status-file", f"/dev/fd/{writing}", "--idle", LONG, "--", "true"]
    process = commands.start(*words, pass_fds=(writing,))
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = json.loads(pipe.read())
    assert commands.wait(process).code == 0
    assert (told["limit"], told["command_exit"]) == (None, 0)


def test_a_descriptor_of_a_status_file_keeps_what_was_written_before(commands, tmp_path):
    """Standard error in a log, above all."""
    with (tmp_path / "log").open("w+") as log:
        log.write("before\n")
        log.flush()
        words = ["--status-file", f"/dev/fd/{log.fileno()}", "--idle", LONG, "--", "true"]
        process = commands.start(*OURS, "run", *words, pass_fds=(log.fileno(),))
        assert commands.wait(process) == (0, b"", "")
        log.seek(0)
        assert log.readline() == "before\n"
        assert json.loads(log.readline())["command_exit"] == 0


def test_a_status_file_may_be_mounted_by_itself(commands, tmp_path):
    """As Kubernetes' /dev/termination-log is: nobody can replace it."""
    (tmp_path / "outside").write_text("x" * 9999)
    (tmp_path / "log").touch()
    line = shlex.join([*OURS, "run", "--idle", LONG, "--status-file", "log", "--", "false"])
    done = commands.run(
        *["unshare", "--mount", *sh(f"mount --bind outside log || exit 99; exec {line}")],
        cwd=tmp_path,
    )
    if done.code == 99 or "unshare" in done.err:
        pytest.skip("nothing may be mounted here")
    assert done == (1, b"", "")
    assert json.loads((tmp_path / "outside").read_text())["exit_code"] == 1


def test_a_link_to_a_status_file_stays_one(commands, tmp_path):
    """As root, /dev/stderr would be replaced."""
    (tmp_path / "link").symlink_to("status.json")
    for code in (3, 0):
        words = ["--status-file", str(tmp_path / "link"), "--idle", LONG]
        assert commands.guarded(*words, "--", *sh(f"exit {code}")).code == code
        assert (tmp_path / "link").is_symlink()
        assert json.loads((tmp_path / "status.json").read_text())["command_exit"] == code


def test_a_status_file_that_cannot_be_written_does_not_change_the_code(commands):
    done = commands.guarded(
        "--status-file", "/no/such/folder/f", "--idle", LONG, "--", *sh("exit 3")
    )
    assert done.code == 3
    assert "/no/such/folder/f: No such file or directory" in done.err


def test_verbose_says_what_is_sent_and_that_half_is_gone(commands):
    done = commands.guarded(
        "--verbose", "--idle", "3", "--", *ENDLESS
    )  # long enough for a busy machine
    assert "'sleep' has been silent for 1.5 s, half of its limit idle=3" in done.err
    assert "sending signal TERM to command 'sleep'" in done.err


def test_a_run_is_published_while_it_lasts(commands, monkeypatch):
    """O8, for another process: no argument and no output is in it (E3)."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(commands.folder))
    script = f"{says(INIT, TOOL)}; echo secret; read line"
    words = ["--idle", "15m", "--", *sh(script), "secret"]
    process = commands.start(*OURS, "run", *words, stdin=-1)
    assert comes_true(lambda: any(each["in_flight"] for each in published.read_all()))
    (told,) = published.read_all()
    assert (told["pid"], told["name"], told["state"]) == (process.pid, "sh", "working")
    assert (told["in_flight"], told["session_id"]) == (["Bash"], SESSION)
    assert told["limits"]["idle"] == 900
    assert "secret" not in json.dumps(told)
    assert (commands.folder / "streamguard").stat().st_mode & 0o777 == 0o700
    assert commands.wait(process, b"\n").code == 0
    assert list((commands.folder / "streamguard").iterdir()) == []


def test_who_was_killed_leaves_a_stale_file_that_is_passed_over(commands, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(commands.folder))
    process = commands.start(*OURS, "run", "--idle", LONG, "--", *ENDLESS)
    assert comes_true(lambda: bool(published.read_all()))
    process.kill()
    process.wait()
    assert published.read_all() == []
    assert list((commands.folder / "streamguard").glob("*.json")) == []


def test_a_folder_that_others_can_write_to_is_not_used(commands, monkeypatch):
    folder = commands.folder / "streamguard"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(commands.folder))
    assert commands.guarded("--idle", LONG, "--", "sleep", "0.3").code == 0
    assert list(folder.iterdir()) == []
    with pytest.raises(published.UnsafeFolderError):
        published.folder()


def test_a_file_says_what_the_command_line_does_not(commands, tmp_path):
    """T12: with its place, if it cannot be used."""
    file = tmp_path / "streamguard.toml"
    file.write_text(f'[run]\nidle = "{SHORT}s"\nerrors = "json"\nsignal = "kill"\n')
    done = commands.guarded("--", *ENDLESS, cwd=tmp_path)
    assert done.code == 137
    assert json.loads(done.err)["limit"] == "idle"
    file.write_text("[run]\nidel = 3\n")
    done = commands.guarded("--", "true", cwd=tmp_path)
    assert done.code == 125
    assert done.err.endswith("streamguard.toml:2: run.idel: unknown; did you mean 'idle'?\n")


# -- what the end says -----------------------------------------------------------------------


@pytest.mark.parametrize("path", ["told.json", "./told.json", "../told.json"])
def test_a_status_file_lies_where_we_are(commands, tmp_path, path):
    (tmp_path / "below").mkdir()
    words = ["--status-file", path, "--idle", LONG, "--", "true"]
    assert commands.guarded(*words, cwd=tmp_path / "below") == (0, b"", "")
    assert json.loads((tmp_path / "below" / path).read_text())["exit_code"] == 0


def test_what_an_agent_said_is_told_however_soon_it_ends(commands):
    done, told = commands.status("--idle", LONG, "--", *sh(f"{says(INIT, TEXT, FAILED)}; exit 1"))
    assert done.code == 1
    assert (told["result"], told["session_id"], told["messages"]) == ("error", SESSION, 3)


def test_output_that_does_not_go_through_us_is_not_counted(commands):
    done, told = commands.status("--total", LONG, "--", "echo", "out")
    assert (done.code, done.out, told["bytes"]) == (0, b"out\n", None)


def test_what_a_command_that_ends_at_once_leaves_behind_is_reaped(commands):
    """Its end may be known before it is first looked for."""
    words = ["--idle", LONG, "--reap", "--", *sh("sleep 600 >/dev/null 2>&1 & exit 3")]
    running = [commands.start(*OURS, "run", *words) for _ in range(20)]
    assert {commands.wait(process).code for process in running} == {3}
    assert commands.all_gone()


def test_a_command_that_ends_at_once_is_not_waited_for_beyond_its_output(commands):
    """The same without it."""
    words = ["--idle", LONG, "--", *sh("sleep 600 2>/dev/null & exit 3")]
    running = [commands.start(*OURS, "run", *words) for _ in range(20)]
    assert {commands.wait(process).code for process in running} == {3}


def test_a_signal_that_was_not_enough_is_told_of(commands):
    script = "trap '' TERM; echo ready; sleep 600; sleep 600"
    words = ["--idle", LONG, "--kill-after", "0.2", "--", *sh(script)]
    process = commands.ready(commands.start(*OURS, "run", *words))
    process.terminate()
    done = commands.wait(process)
    assert done.code == 137
    assert done.err == "streamguard run: 'sh' did not end by TERM in 0.2 s; sent KILL\n"


def test_a_signal_between_two_attempts_is_told_of_and_the_verdict_once(commands):
    words = ["--idle", SHORT, "--retries", "1", "--backoff", LONG, "--", *ENDLESS]
    process = commands.start(*OURS, "run", *words)
    assert b"trying again in 600 s" in process.stderr.readline()
    process.terminate()
    done = commands.wait(process)
    assert done.code == -signal.SIGTERM
    assert done.err == "streamguard run: ended by TERM before another attempt\n"


def test_who_does_not_listen_is_waited_for_once(commands):
    """Also where there is more to say after that."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    began = time.monotonic()
    words = ["--status-file", "/no/such/folder/f", "--total", LONG, "--no-such-limit"]
    assert commands.run(*OURS, "run", *words, stderr=writing).code == 125
    words = ["--status-file", "/no/such/folder/f", "--", "true"]
    assert commands.run(*OURS, "run", *words, stderr=writing).code == 0
    assert 4 <= time.monotonic() - began < 30
    os.close(reading)
    os.close(writing)


def test_a_status_file_may_lie_below_dev(commands):
    path = Path("/dev/shm") / f"streamguard-{os.getpid()}.json"
    try:
        for code in (3, 4):
            words = ["--status-file", str(path), "--idle", LONG, "--", *sh(f"exit {code}")]
            assert commands.guarded(*words).code == code
            assert json.loads(path.read_text())["exit_code"] == code
    finally:
        path.unlink()


def test_a_descriptor_that_is_not_open_is_wrong_usage(commands):
    done = commands.guarded("--status-file", "/dev/fd/77", "--idle", LONG, "--", "true")
    assert done.code == 125
    assert "no such descriptor is open" in done.err
