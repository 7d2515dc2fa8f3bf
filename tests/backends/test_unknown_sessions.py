"""R3: a session that is unknown, and a limit's end, in the words of each real command line."""

from __future__ import annotations

from datetime import datetime, time

import pytest

from streamguard.backends import claude, codex, unknown_sessions
from streamguard.errors import ProcessExitedError, Tail
from streamguard.signals import Failed, SessionOpened, Waiting

ID = "11111111-2222-4333-8444-555555555555"
# As written by claude 2.1 (SDK 0.2.184), codex 0.169.0 and gemini 0.61.0.
CLAUDE = f"No conversation found with session ID: {ID}\n"
CODEX = (
    "WARNING: proceeding, even though we could not create PATH aliases\n"
    f"Error: thread/resume: thread/resume failed: no rollout found for thread id {ID} (code -32600)\n"
)
GEMINI = (
    f'Error resuming session: Invalid session identifier "{ID}".\n'
    "  Searched for sessions in /home/me/.gemini/tmp/x/chats.\n  Use --list-sessions to see available sessions"
)
# And by qwen, kimi 2.1.0, copilot 1.0.102 and opencode 1.18.33.
QWEN = f"No saved session found with ID {ID}. Run `qwen --resume` without an ID to choose from existing sessions.\n"
KIMI = f'error: failed to run prompt: Session "{ID}" not found.\nSee log: /home/me/.kimi-code/logs/kimi-code.log\n'
COPILOT = f"Error: No session, task, or name matched '{ID}'.\n\nTo resume by session or task ID:  copilot --resume=<id>\n"
OPENCODE = "\x1b[91m\x1b[1mError: \x1b[0mSession not found\n"
WITH_ID = [CLAUDE, CODEX, GEMINI, QWEN, KIMI, COPILOT]
GEMINI_HAS_NONE = "Error resuming session: No previous sessions found for this project.\n"


@pytest.mark.parametrize("text", [*WITH_ID, GEMINI_HAS_NONE, OPENCODE, "Error: Session not found"])
def test_each_in_its_own_words(text):
    assert unknown_sessions.is_said_in(text, ID)
    ended = ProcessExitedError("it exited")
    ended.tail = Tail(stderr="x" * 10 + "\n" + text)
    assert unknown_sessions.is_told_by(ended, ID)
    assert unknown_sessions.is_told_by(ExceptionGroup("", [RuntimeError(text)]), ID)


@pytest.mark.parametrize("text", WITH_ID)
@pytest.mark.parametrize("other", [ID[:-1], ID.replace("1", "2"), ID + "0", ".*", ""])
def test_of_no_other_session(text, other):
    """A longer id, a shorter one, a pattern: none of them is that session."""
    assert not unknown_sessions.is_said_in(text, other)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("connection reset"),
        RuntimeError("session not found"),
        RuntimeError("Error: Session not found in the cache"),
        RuntimeError("It says Error: Session not found"),
        ProcessExitedError(f"no rollout found for thread id {ID}"),  # our own words
        ProcessExitedError("it exited"),
    ],
)
def test_no_other_error(error):
    assert not unknown_sessions.is_told_by(error, ID)


def test_an_error_that_cannot_be_shown():
    class BrokenError(Exception):
        def __str__(self):
            raise ValueError

    assert not unknown_sessions.is_told_by(BrokenError(), ID)


# -- what the readers say ------------------------------------------------------------------------


def failures(read, line):
    said = read(line)
    signals = [said] if isinstance(said, Failed) else list(said or ())
    return [each for each in signals if isinstance(each, Failed)]


def result(**more):
    return {"type": "result", "subtype": "success", "is_error": True, "session_id": ID, **more}


def test_claudes_result_says_that_the_session_is_unknown():
    line = result(subtype="error_during_execution", errors=[CLAUDE.strip()])
    [failed] = failures(claude.read, line)
    assert (failed.session_unknown, failed.error_class) == (True, "validation")
    assert not any(isinstance(each, SessionOpened) for each in claude.read(line))


@pytest.mark.parametrize(
    "errors",
    [None, [], "x", [7], ["No conversation found with session ID: another"], [CLAUDE[:20]]],
)
def test_claudes_other_errors_do_not(errors):
    [failed] = failures(claude.read, result(subtype="error_during_execution", errors=errors))
    assert not failed.session_unknown


def test_claudes_limit_says_when_it_is_over():
    """In the event before it, in the error's message, and with older ones in the result's text."""
    info = {"status": "rejected", "resetsAt": 1795137661, "rateLimitType": "five_hour"}
    event = claude.read({"type": "rate_limit_event", "rate_limit_info": info})
    assert event == Waiting("rate_limit", "rate_limit", 1795137661)
    said = {"type": "assistant", "error": "rate_limit", "api_error": "usage_limit_reached"}
    line = {**said, "api_error_params": {"rate_limit_info": info}, "message": {"content": []}}
    [failed] = failures(claude.read, line)
    assert (failed.error_class, failed.resets_at) == ("rate_limit", 1795137661)
    [failed] = failures(claude.read, result(result="Claude AI usage limit reached|1712345678"))
    assert (failed.error_class, failed.resets_at) == ("rate_limit", 1712345678)


@pytest.mark.parametrize(
    "text", ["reached|1712345678", "Claude AI usage limit reached|soon", None]
)
def test_no_other_text_of_claudes_tells_of_a_limit(text):
    [failed] = failures(claude.read, result(result=text))
    assert failed.resets_at is None


LIMIT = "You\u2019ve hit your usage limit. Visit https://chatgpt.com/settings/usage to purchase more credits or "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LIMIT + "try again at Nov 20th, 2026 1:21 AM.", datetime(2026, 11, 20, 1, 22)),  # noqa: DTZ001
        (LIMIT + "try again at Nov 2nd, 2026 12:59 PM.", datetime(2026, 11, 2, 13, 0)),  # noqa: DTZ001
        (LIMIT + "try again at 11:28 PM.", time(23, 28, 59, 999_999)),
        ("You\u2019ve hit your usage limit. Try again at 12:05 AM.", time(0, 5, 59, 999_999)),
        (LIMIT + "try again later.", None),
        (LIMIT + "try again at Foo 20th, 2026 1:21 AM.", None),
        (LIMIT + "try again at Feb 30th, 2026 1:21 AM.", None),
        (LIMIT + "try again at 25:61 AM.", None),
        ("The file says: try again at 11:28 PM.", None),
    ],
)
def test_codex_limit_says_when_it_is_over(text, expected):
    """To the minute, on the machine's clock: it is over with the next one."""
    for line in (
        {"type": "error", "message": text},
        {"type": "turn.failed", "error": {"message": text}},
    ):
        [failed] = failures(codex.read, line)
        assert failed.resets_at == expected
