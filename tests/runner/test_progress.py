"""`streamguard run` of an agent that is busy and gets nowhere: told in a line, ended with --end-on."""

from __future__ import annotations

import json

import pytest

from streamguard.cli.arguments import UsageError, parse
from streamguard.cli.run import OPTIONS, settings_of
from tests.runner.commands import ENDLESS, INIT, RESULT, TEXT, says, sh

LONG = "60"
TASK = {
    "type": "system",
    "subtype": "task_started",
    "task_id": "b1",
    "task_type": "local_bash",
    "is_backgrounded": True,
}
EMPTY = {**RESULT, "result": ""}


def call(number, outcome="nothing to be done"):
    use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "make"}}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": outcome}
    return (
        {"type": "assistant", "message": {"content": [use]}},
        {"type": "user", "message": {"content": [result]}},
    )


def calls(times):
    return [line for number in range(times) for line in call(number)]


def test_a_loop_is_said_once_and_ends_nothing(commands):
    """B2: by default it is only told, and the output is passed on as it is."""
    lines = [INIT, *calls(30), TEXT, RESULT]
    done, told = commands.status("--idle", LONG, "--", *sh(says(*lines)))
    assert (done.code, told["limit"]) == (0, None)
    assert done.out.decode().splitlines() == [json.dumps(line) for line in lines]
    assert done.err.count("warning: Bash had the same outcome 20 times in a row") == 1


def test_a_loop_is_ended_where_that_is_written(commands):
    """B2"""
    script = f"{says(INIT, *calls(5))}; exec {' '.join(ENDLESS)}"
    words = ["--idle", LONG, "--repeats", "5", "--end-on", "repeats", "--", *sh(script)]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "repeats")
    assert "got nowhere: Bash 5 times with the same outcome (limit repeats=5)" in done.err
    assert commands.all_gone()


def test_it_is_enough_to_ask_for_it(commands):
    """B2: no other limit is needed."""
    script = f"{says(INIT, *calls(5))}; exec {' '.join(ENDLESS)}"
    done = commands.guarded("--repeats", "5", "--end-on", "repeats", "--", *sh(script))
    assert done.code == 124


def test_a_loop_that_was_ended_is_resumed(commands):
    """B2, R3: as after a hang."""
    script = f"{says(INIT, *calls(5))}; exec {' '.join(ENDLESS)}"
    words = ["--repeats", "5", "--end-on", "repeats", "--retries", "1", "--backoff", "0"]
    done = commands.guarded(*words, "--resume-cmd", "echo on {session_id}", "--", *sh(script))
    assert (done.code, done.out.splitlines()[-1]) == (0, f"on {INIT['session_id']}".encode())


@pytest.mark.parametrize("off", ["0", "31"])
def test_it_can_be_off(commands, off):
    lines = [INIT, *calls(30), TEXT, RESULT]
    done = commands.guarded("--idle", LONG, "--repeats", off, "--", *sh(says(*lines)))
    assert done.err == ""


def test_a_ceiling_is_said_at_the_first_message_beyond(commands):
    """B4"""
    spent = {**RESULT, "usage": {"output_tokens": 501}, "total_cost_usd": 2.5}
    words = ["--tokens", "500", "--cost", "2", "--end-on", "tokens,cost", "--"]
    done, told = commands.status(*words, *sh(says(INIT, TEXT, spent)))
    assert done.code == 0  # its turn had ended with that message
    assert told["done"]["spent"]["cost"] == 2.5
    done = commands.guarded("--tokens", "500", "--", *sh(says(INIT, TEXT, spent)))
    assert "warning: 501 tokens used up (limit tokens=500)" in done.err


def test_an_empty_success_is_a_fact(commands):
    """B3: in the status, and in a line."""
    done, told = commands.status("--idle", LONG, "--", *sh(says(INIT, EMPTY)))
    assert (done.code, told["result"]) == (0, "empty")
    assert "ended with success and did nothing" in done.err


def test_an_empty_success_is_a_failure_where_that_is_written(commands):
    """B3"""
    words = ["--idle", LONG, "--end-on", "empty", "--", *sh(says(INIT, EMPTY))]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "empty")


def test_background_work_that_is_left_is_named(commands):
    """B3: measured before: exit code 0, and nothing said."""
    done, told = commands.status("--idle", LONG, "--", *sh(says(INIT, TEXT, TASK, RESULT)))
    assert (done.code, told["result"]) == (0, "abandoned")
    assert "the stream ended while work was open in the background: local_bash" in done.err


def test_background_work_that_is_left_is_a_failure_where_that_is_written(commands):
    """B3"""
    words = ["--idle", LONG, "--end-on", "abandoned", "--", *sh(says(INIT, TEXT, TASK, RESULT))]
    done, told = commands.status(*words)
    assert (done.code, told["limit"]) == (124, "abandoned")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeats", "1"], "once is no repetition"),
        (["--repeats", "x"], "use a whole number"),
        (["--tokens", "-1"], "use a number (0 = off)"),
        (["--end-on", "cost"], "--end-on cost can end nothing: --cost is not said, or off"),
        (["--end-on", "repeats", "--repeats", "0"], "--end-on repeats can end nothing"),
        (["--cost", "free"], "use a number (0 = off)"),
        (
            ["--end-on", "idle"],
            "idle is none of quiet, repeats, tokens, cost, calls, empty, abandoned",
        ),
    ],
)
def test_mistakes_are_said(words, said):
    """T12"""
    with pytest.raises(UsageError) as caught:
        settings_of(*parse([*words, "--", "agent"], OPTIONS))
    assert said in str(caught.value)
