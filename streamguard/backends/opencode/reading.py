"""opencode: what the lines of `opencode run --format json` say, and those of the tap beside them.

    line                        signals
    ──────────────────────────  ─────────────────────────────────────────────────────────────
    step_start                  SessionOpened
    text, reasoning             Progress; each when it is whole, and nothing if it is blank
    tool_use                    WorkStarted, WorkFinished: it is told when it has ended
      of a refused permission   TurnEnded, too: opencode ends the turn there
    step_finish                 Usage; TurnEnded, unless it finished with tool calls
    error                       Failed, TurnEnded: also where the process lives on
      of a full context         Failed: opencode makes it shorter and goes on
    tap.session                 SessionOpened
    tap.tool_start, .tool_end   WorkStarted, WorkFinished
    tap.alive                   Progress, or WorkProgressed of the tool or the sub-agent
    tap.retry                   Failed for the first, Waiting
    tap.step_finish             Usage of a sub-agent
    tap.error                   WorkProgressed: a sub-agent's, which its tool's end tells
    anything else               Progress

By itself opencode is silent from a tool's start to its end and for as long as an answer takes, sub-agents
and all. The tap (`tap.mjs`, a plugin) says what goes on there. Pure and total: garbage is
Progress, never an exception.
"""

from __future__ import annotations

import re

from streamguard.backends._fields import (
    NOTHING,
    PROGRESS,
    RETRIABLE,
    Fields,
    Handler,
    Said,
    class_of_status,
    fields_of,
    is_blank,
    number_in,
    numbers_in,
    said_by_type,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import (
    Failed,
    Outcome,
    SessionOpened,
    Signal,
    TurnEnded,
    Usage,
    Waiting,
    WorkFinished,
    WorkProgressed,
    WorkScope,
    WorkStarted,
)

# A turn ends with a `step_finish` that is not for tools, or with an `error` (T10).
ALWAYS_ENDS_TURNS = True

_SUBAGENT = "task"  # the tool that runs one
_A_SESSION = re.compile(r"\bses_\w{20,40}")
_REFUSED = "The user rejected permission"
_OUTCOMES: dict[str, Outcome] = {"stop": "success", "content-filter": "error"}
_CLASS_OF_NAME = {
    "MessageAbortedError": "never",
    "MessageOutputLengthError": "permanent",
    "ProviderAuthError": "auth",
    "ContextOverflowError": "validation",
}
# It is asked again after these, so they are none of the caller's mistakes.
_CLASS_OF_PHRASE = (
    ("rate limit", "rate_limit"),
    ("rate_limit", "rate_limit"),
    ("too many requests", "rate_limit"),
    ("usage limit", "rate_limit"),
    ("usage exceeded", "rate_limit"),
    ("cannot connect", "network"),
    ("connection", "network"),
    ("timed out", "network"),
)


def read(message: object) -> Said:
    """What one line says; None is Progress."""
    return said_by_type(_LINES, message)


# --- opencode's own ------------------------------------------------------------------------


def _opened(line: Fields) -> Said:
    token = text_in(line.get("sessionID"))
    return SessionOpened(token, work_dir=text_in(line.get("directory"))) if token else NOTHING


def _said(line: Fields) -> Said:
    return NOTHING if is_blank(fields_of(line.get("part")).get("text")) else None


def _tool_use(line: Fields) -> Said:
    part = fields_of(line.get("part"))
    if (id_ := text_in(part.get("callID"))) is None:
        return None
    state = fields_of(part.get("state"))
    failed = state.get("status") == "error"
    outcome: object = state.get("error") if failed else state.get("output")
    is_error = failed or bool(number_in(fields_of(state.get("metadata")).get("exit")))
    said: tuple[Signal, ...] = (
        _started(id_, part, state),
        WorkFinished(id_, error=is_error, outcome=_lasting(outcome)),
    )
    if failed and isinstance(outcome, str) and outcome.startswith(_REFUSED):
        return (*said, TurnEnded("incomplete", "permission"))
    return said


def _started(id_: str, call: Fields, asked: Fields, parent: str | None = None) -> WorkStarted:
    name = text_in(call.get("tool")) or ""
    scope: WorkScope = "subagent" if name == _SUBAGENT else "tool"
    return WorkStarted(id_, name, scope, parent, input=asked.get("input"))


def _lasting(outcome: object) -> object:
    """What came of it, without a sub-agent's session, which is another one each time."""
    return _A_SESSION.sub("", outcome) if isinstance(outcome, str) else outcome


def _step_finish(line: Fields) -> Said:
    reason = text_in(fields_of(line.get("part")).get("reason")) or ""
    usage = _usage(line)
    if reason in ("", "tool-calls"):
        return usage
    return (*usage, TurnEnded(_OUTCOMES.get(reason, "incomplete"), reason[:100]))


def _usage(line: Fields) -> tuple[Signal, ...]:
    part = fields_of(line.get("part"))
    tokens = fields_of(part.get("tokens"))
    cache = fields_of(tokens.get("cache"))
    told = {
        "total_tokens": tokens.get("total"),
        "input_tokens": tokens.get("input"),
        "output_tokens": tokens.get("output"),
        "reasoning_tokens": tokens.get("reasoning"),
        "cache_read_input_tokens": cache.get("read"),
        "cache_creation_input_tokens": cache.get("write"),
        "total_cost_usd": part.get("cost"),
    }
    counts = numbers_in(told)
    return (Usage(counts, call=text_in(part.get("id")) or ""),) if counts else NOTHING


def _error(line: Fields) -> Said:
    error = fields_of(line.get("error"))
    name = text_in(error.get("name")) or ""
    data = fields_of(error.get("data"))
    failed = Failed(_class_of(name, data), detail=name[:100])
    token = text_in(line.get("sessionID"))
    session = (SessionOpened(token),) if token else ()
    if name == "ContextOverflowError":
        return (*session, failed)
    outcome: Outcome = "cancelled" if name == "MessageAbortedError" else "error"
    ended = TurnEnded(outcome, failed.detail, failed.error_class in RETRIABLE)
    return (*session, failed, ended)


def _class_of(name: str, data: Fields) -> str:
    # Its text may quote the conversation and stays out of evidence (E3).
    if (status := number_in(data.get("statusCode"))) is not None:
        return class_of_status(status)
    if (known := _CLASS_OF_NAME.get(name)) is not None:
        return known
    text = text_in(data.get("message")) or ""
    return _class_of_text(text) or classes.class_of_name(name) or "unknown"


def _class_of_text(text: str) -> str | None:
    lowered = text[:2000].lower()
    return next((class_ for phrase, class_ in _CLASS_OF_PHRASE if phrase in lowered), None)


# --- the tap's -----------------------------------------------------------------------------


def _tool_start(line: Fields) -> Said:
    id_ = text_in(line.get("callID"))
    return None if id_ is None else _started(id_, line, line, text_in(line.get("parent")))


def _tool_end(line: Fields) -> Said:
    if (id_ := text_in(line.get("callID"))) is None:
        return None
    ended = WorkFinished(id_, line.get("status") == "error", line.get("outcome"))
    return (ended, *_of_subagent(line))


def _alive(line: Fields) -> Said:
    id_ = text_in(line.get("callID"))
    own = (WorkProgressed(id_),) if id_ is not None else ()
    return (*own, *_of_subagent(line)) or PROGRESS


def _of_subagent(line: Fields) -> tuple[Signal, ...]:
    """That the sub-agent whose line this is lives; nothing for a line of nobody's."""
    parent = text_in(line.get("parent"))
    return (WorkProgressed(parent),) if parent is not None else ()


def _retry(line: Fields) -> Said:
    if line.get("parent") is not None:
        return _of_subagent(line)
    until = number_in(line.get("next"))
    wait = Waiting("retry", "retry", None if until is None else until / 1000)
    # It is asked again without an end. So a further one is no progress: the same wait, announced again.
    if (number_in(line.get("attempt")) or 0) > 1:
        return wait
    class_ = _class_of_text(text_in(line.get("message")) or "") or "server"
    return (Failed(class_, detail="retry"), wait)


def _step_of_subagent(line: Fields) -> Said:
    return (*_usage(line), *_of_subagent(line))


_LINES: dict[str, Handler] = {
    "step_start": _opened,
    "text": _said,
    "reasoning": _said,
    "tool_use": _tool_use,
    "step_finish": _step_finish,
    "error": _error,
    "tap.session": _opened,
    "tap.tool_start": _tool_start,
    "tap.tool_end": _tool_end,
    "tap.alive": _alive,
    "tap.retry": _retry,
    "tap.step_finish": _step_of_subagent,
    "tap.error": _of_subagent,
}
