"""R3, P2: what `run` overcomes where it was asked for: a session that is unknown, a usage limit.

An agent is a shell script that counts its starts, and says at each what a real one says.
"""

from __future__ import annotations

import json
import shlex
import time

import pytest

from streamguard.top import published
from tests.process.backends import comes_true
from tests.runner.commands import INIT, OURS, RESULT, SESSION, TEXT, TOOL, TOOL_DONE, says, sh

LONG = "600"
SILENCE = ["--first", LONG, "--idle", "0.3", "--backoff", "0", "--errors", "text"]
HANG = "exec sleep 600"
LIKE_CODEX = f"Error: thread/resume: thread/resume failed: no rollout found for thread id {SESSION} (code -32600)"
LIKE_KIMI = f'error: failed to run prompt: Session "{SESSION}" not found.'
LIKE_GEMINI = "Error resuming session: No previous sessions found for this project."
UNKNOWN = {
    **RESULT,
    "subtype": "error_during_execution",
    "is_error": True,
    "session_id": SESSION,
    "errors": [f"No conversation found with session ID: {SESSION}"],
}
SAYS_UNKNOWN = {
    "claude": f"{says(UNKNOWN)}; exit 1",
    "codex": f"echo {shlex.quote(LIKE_CODEX)} >&2; exit 1",
    # Its first line is a greeting.
    "kimi": f"{says({'role': 'meta', 'type': 'system.version', 'version': '2'})}; "
    f"echo {shlex.quote(LIKE_KIMI)} >&2; exit 1",
    "gemini": f"echo {shlex.quote(LIKE_GEMINI)} >&2; exit 42",
}
WELL = says(INIT, TEXT, RESULT)


def limited(seconds, **more):
    """What claude says of a limit, and ends."""
    info = {"status": "rejected", "resetsAt": time.time() + seconds}
    event = {"type": "rate_limit_event", "rate_limit_info": info}
    result = {
        **RESULT,
        "is_error": True,
        "api_error_status": 429,
        "result": "You've hit your limit",
    }
    return f"{says(INIT, event, {**result, **more})}; exit 1"


@pytest.fixture
def agent(tmp_path):
    """A command that does `scripts` one after the other, and what it was started with is kept."""

    def agent(*scripts):
        folder = tmp_path / "agent"
        folder.mkdir()
        for number, script in enumerate(scripts):
            (folder / str(number)).write_text(script)
        count = f"n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{folder}/n"
        keep = f'echo "$*" >>{folder}/said'
        (folder / "agent").write_text(f"{count}; {keep}; . {folder}/$n\n")
        return ["sh", str(folder / "agent")]

    return agent


@pytest.fixture
def said(tmp_path):
    """What the agent was started with, each time."""
    return lambda: (tmp_path / "agent" / "said").read_text().splitlines()


def resuming(agent):
    return f"{shlex.join(agent)} --resume {{session_id}}"


# -- a session that the agent does not know ------------------------------------------------------


@pytest.mark.parametrize("which", SAYS_UNKNOWN)
def test_an_unknown_session_is_begun_afresh(commands, agent, said, which):
    """R3: in the words of each; it costs no retry, and is told in a line and in the status."""
    command = agent(f"{says(INIT, TEXT)}; {HANG}", SAYS_UNKNOWN[which], WELL)
    words = [*SILENCE, "--retries", "1", "--fresh-if-unknown", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"], told["began_afresh"]) == (0, 3, True), done.err
    assert said() == ["first", f"--resume {SESSION}", "first"]
    assert "does not know session 0b7e4e7e: beginning afresh" in done.err
    if which != "claude":  # what it says on standard error is passed on
        assert any(each in done.err for each in (LIKE_CODEX, LIKE_GEMINI, LIKE_KIMI))


@pytest.mark.parametrize("which", SAYS_UNKNOWN)
def test_without_the_word_its_own_end_is_the_end(commands, agent, said, which):
    """R3: the default."""
    command = agent(f"{says(INIT, TEXT)}; {HANG}", SAYS_UNKNOWN[which])
    words = [*SILENCE, "--retries", "2", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert done.code == (42 if which == "gemini" else 1)
    assert (told["attempts"], told["began_afresh"]) == (2, False)


def test_tools_that_ran_are_not_run_again(commands, agent, said):
    """R3: the word is not for that."""
    command = agent(f"{says(INIT, TOOL, TOOL_DONE)}; {HANG}", SAYS_UNKNOWN["codex"])
    words = [*SILENCE, "--retries", "1", "--fresh-if-unknown", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"]) == (1, 2)
    assert "not tried again: the backend does not know session 0b7e4e7e, in which 1 tool call" in (
        done.err
    )


def test_once_in_a_run(commands, agent, said):
    """R3"""
    begins = f"{says(INIT, TEXT)}; {HANG}"
    unknown = SAYS_UNKNOWN["claude"]
    command = agent(begins, unknown, begins, unknown)
    words = [*SILENCE, "--retries", "2", "--fresh-if-unknown", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"]) == (1, 4)
    assert "it was started afresh once already" in done.err


@pytest.mark.parametrize(
    "other",
    [
        f"echo {shlex.quote(LIKE_CODEX.replace(SESSION, SESSION[:-1]))} >&2; exit 1",
        f"{says(INIT, TEXT)}; echo {shlex.quote(LIKE_CODEX)} >&2; exit 1",  # it did know it
        "echo session not found >&2; exit 1",
        "exit 1",
    ],
)
def test_nothing_else_is_taken_for_it(commands, agent, said, other):
    """R3: a control for each condition."""
    command = agent(f"{says(INIT, TEXT)}; {HANG}", other)
    words = [*SILENCE, "--retries", "2", "--fresh-if-unknown", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"]) == (1, 2)


def test_standard_error_that_somebody_holds_keeps_nobody(commands, agent, said):
    """D3: what the agent has left behind writes to it for as long as it likes."""
    command = agent(f"{says(INIT, TEXT)}; {HANG}", f"sleep 600 & {SAYS_UNKNOWN['codex']}", WELL)
    words = [*SILENCE, "--retries", "1", "--fresh-if-unknown", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--reap", "--", *command, "first", stderr=None)
    assert (done.code, told["began_afresh"]) == (0, True)


# -- a usage limit -------------------------------------------------------------------------------


def test_a_usage_limit_is_waited_out(commands, agent, said):
    """P2: then the session goes on; it costs no retry, and is told in a line and in the status."""
    command = agent(limited(2), WELL)
    words = ["--wait-for-limit", "1m", "--resume-cmd", resuming(command)]
    start = time.monotonic()
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"], told["result"]) == (0, 2, "success"), done.err
    assert said() == ["first", f"--resume {SESSION}"]
    assert time.monotonic() - start >= 1
    assert 0 < told["waited_for_limit"] <= 60
    assert "usage limit: waiting until " in done.err
    assert "then resuming session 0b7e4e7e" in done.err


def test_while_it_waits_it_says_so_and_nothing_of_the_agent_is_there(commands, agent, said):
    """P2: in `streamguard top`; and a signal ends it at once."""
    command = agent(limited(7200), WELL)
    words = ["--wait-for-limit", "6h", "--resume-cmd", resuming(command)]
    process = commands.start(
        *[*OURS, "run", *words, "--"],
        *command,
    )
    folder = commands.folder / "streamguard"

    def waits():
        files = folder.glob(f"{process.pid}-*.json") if folder.exists() else ()
        told = [json.loads(file.read_text()) for file in files]
        return any(each["state"].startswith("waiting until ") for each in told)

    assert comes_true(waits)
    [file] = folder.glob(f"{process.pid}-*.json")
    told = json.loads(file.read_text())
    assert told["state"].endswith("(usage limit)")
    assert told["child"] is None
    assert set(told) >= {"attempt", "age", "limits", "session_id"}
    process.terminate()
    done = commands.wait(process)
    assert "(2 h" in done.err
    assert "ended by TERM before another attempt" in done.err
    assert published.VERSION == 1


def test_one_that_lasts_too_long_is_given_up_at_once(commands, agent, said):
    """R8: with the agent's own status, and it says until when."""
    command = agent(limited(7200))
    words = ["--wait-for-limit", "1h", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"], told["waited_for_limit"]) == (1, 1, 0)
    assert "not tried again: usage limit until " in done.err
    assert "(2 h): longer than wait_for_limit=1 h allows" in done.err


def test_total_bounds_it(commands, agent, said):
    """R8"""
    command = agent(limited(7200))
    words = ["--wait-for-limit", "6h", "--total", "1h", "--resume-cmd", resuming(command)]
    done = commands.guarded(*words, "--", *command, "first")
    assert done.code == 1
    assert "not tried again: the next attempt may begin in 7," in done.err


def test_a_limit_that_the_agent_got_over_is_none(commands, agent, said):
    """P1: its own end is the end, whatever it is."""
    script = limited(7200, is_error=False, subtype="success")
    command = agent(script.replace("exit 1", "exit 3"))
    words = ["--wait-for-limit", "6h", "--resume-cmd", resuming(command)]
    assert commands.guarded(*words, "--", *command, "first").code == 3


def test_without_the_word_a_limit_ends_it(commands, agent, said):
    """P2: the default."""
    command = agent(limited(1))
    words = ["--retries", "2", "--idle", LONG, "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"]) == (1, 1)


# -- what an attempt that says nothing must not make forgotten -------------------------------------


def test_a_resumed_session_that_hangs_before_its_first_output_is_resumed_again(
    commands, agent, said
):
    """R3: an attempt that has said nothing has not undone what the one before did."""
    command = agent(f"{says(INIT, TOOL, TOOL_DONE)}; {HANG}", HANG, WELL)
    words = ["--first", "2", "--idle", "2", "--backoff", "0", "--retries", "2"]
    words += ["--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "first")
    assert (done.code, told["attempts"]) == (0, 3), done.err
    assert said() == ["first", f"--resume {SESSION}", f"--resume {SESSION}"]


def test_a_command_that_resumes_by_itself_is_tried_again_as_it_is(commands, agent, said):
    """R3: nobody has seen anything of it."""
    command = agent(HANG, WELL)
    words = ["--first", "2", "--backoff", "0", "--retries", "1", "--resume-cmd", resuming(command)]
    done, told = commands.status(*words, "--", *command, "--resume", SESSION)
    assert (done.code, told["attempts"]) == (0, 2), done.err
    assert said() == [f"--resume {SESSION}"] * 2


# -- how it is said --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--fresh-if-unknown", "true"], "--fresh-if-unknown is for --resume-cmd"),
        (["--resume-cmd", "x {session_id}", "true"], "--resume-cmd is for --retries"),
        (["--wait-for-limit", "inf", "true"], "use a duration such as 6h"),
        (["--wait-for-limit", "soon", "true"], "--wait-for-limit"),
    ],
)
def test_what_can_never_be_is_refused(commands, words, text):
    done = commands.guarded(*words)
    assert done.code == 125
    assert text in done.err


def test_what_hardly_ever_can_be_is_said(commands):
    done = commands.guarded("--wait-for-limit", "1h", *sh("exit 3"))
    assert done.code == 3
    assert "a command that has written anything is not run once more" in done.err
