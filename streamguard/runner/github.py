"""What GitHub Actions is told of a run: an annotation where it shows errors, and a part of the step's summary.

An annotation is one line on standard error, where the runner looks for commands as it does on standard output; the
command's own output stays as it is. Both hold what the verdict's line says, and where the rest is found: no
prompt, no argument, no output, and no session's id, since a log may be public.
Knows the formats of GitHub; nothing of how a run ended but what it is told. Standard library, imported where it is
asked for.
"""

from __future__ import annotations

import os
import time

from streamguard._base.quoting import quoted
from streamguard.runner import aside
from streamguard.runner.outbox import write_all
from streamguard.runner.result import left_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from streamguard.runner.result import Result

SUMMARY = "GITHUB_STEP_SUMMARY"
# A step's summary of more than 1 MiB is not shown at all: ours is small, and leaves a full one alone.
_MOST_OF_ALL = 1 << 20
_LINE = 1000
# What may be taken by who writes the summary, in seconds.
_WRITING = 2.0
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# No durations.
_COUNTED = ("repeats", "tokens", "cost", "calls")


def annotation(level: str, title: str, *lines: str) -> str:
    """The line that the runner takes for an annotation; `level` is error, warning or notice."""
    text = "%0A".join(_escaped(quoted(line, _LINE)) for line in lines if line)
    name = _escaped(quoted(title, _LINE)).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={name}::{text}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def of_limit(outcome: Result, told: Mapping[str, Any]) -> str:
    """The annotation of a limit that ended the command."""
    assert outcome.fired is not None
    # Who has done his work and then stayed was ended, and all is well.
    level = "error" if told["exit_code"] else "warning"
    receipt = told.get("receipt")
    found = "" if receipt is None else f"Receipt: {receipt}"
    reason = f"{outcome.fired.reason}{left_of(outcome)}"
    return annotation(level, f"streamguard: limit {outcome.fired.limit} reached", reason, found)


def summary(outcome: Result, told: Mapping[str, Any], status_file: str | None) -> str:
    """The part of the step's summary about a limit, in Markdown."""
    fired, receipt = outcome.fired, told.get("receipt")
    assert fired is not None
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(fired.when))
    window = "" if fired.window is None else _window(fired.limit, fired.window)
    sent = ", ".join(outcome.signals) or "nothing"
    facts = {
        "What": _code(fired.reason),
        "When": f"{when}, in attempt {told['attempts']}",
        "Limit": _code(f"{fired.limit}{window}"),
        "Ended by": f"{sent}{left_of(outcome)}; exit code {told['exit_code']}",
        "Receipt": "none: say `--record DIR`" if receipt is None else _code(receipt),
    }
    if status_file is not None:
        facts["Status"] = _code(status_file)
    facts["To go on"] = " ".join(_ways_on(outcome, receipt, status_file))
    title = f"### streamguard: {_code(told['command'].rpartition('/')[2])} was ended at a limit"
    return "\n".join(["", title, "", *(f"- {key}: {fact}" for key, fact in facts.items()), ""])


def _window(limit: str, window: float) -> str:
    """What was allowed, if that is a number to be shown."""
    if not window:
        return ""
    return f" = {window:g}{'' if limit in _COUNTED else ' s'}"


def _ways_on(outcome: Result, receipt: str | None, status_file: str | None) -> Iterator[str]:
    if outcome.token is None:
        yield "the agent named no session; `--retries 2` begins again where nothing was written yet."
        return
    if receipt is not None:
        yield "the session's id is `context_for_resume.session_token` in the receipt."
    elif status_file is not None:
        yield "the session's id is `session_id` in the status file."
    else:
        yield "the agent has named its session; `--record DIR` or `--status-file FILE` keep its id."
    yield "`--retries 2 --resume-cmd '... {session_id} ...'` goes on by itself."


def add_to_summary(path: str, text: str) -> str | None:
    """Add that to the step's summary; what is wrong, if it could not be."""

    def work() -> bytes:
        try:
            return _add(path, text.encode(errors="replace"))
        except OSError as error:
            return str(error.strerror).encode()

    try:
        said = aside.asked(work, _WRITING)
    except OSError as error:
        return error.strerror
    return None if said == b"." else said.decode() or f"it was not written in {_WRITING:g} s"


def _add(path: str, text: bytes) -> bytes:
    fd = os.open(path, _APPEND, 0o644)
    if os.fstat(fd).st_size + len(text) > _MOST_OF_ALL:
        return b"it is full (1 MiB)"
    write_all(fd, text)
    return b"."


def _code(text: str) -> str:
    """Text from elsewhere, which can be nothing but text there."""
    shown = quoted(text, _LINE)
    fence = "`"
    while fence in shown:
        fence += "`"
    space = " " if "`" in shown else ""
    return f"{fence}{space}{shown}{space}{fence}"
