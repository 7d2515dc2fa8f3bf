"""Gemini's API: what the chunks of google-genai's `generate_content_stream` say.

Reads `GenerateContentResponse` (by its fields, the SDK is never imported) and the API's own
JSON lines. Pure and total: garbage is Progress, never an exception.

    message                             signals
    ──────────────────────────────────  ─────────────────────────────────────────────────────
    a chunk                             Progress, and Usage where it counts tokens
    … with nothing in it                Usage, or nothing
    without candidates                  Usage alone: it may follow the end (T14)
    every candidate finished            Usage, TurnEnded; Failed before it, unless it is
                                        STOP or MAX_TOKENS
    prompt_feedback.block_reason        Failed, TurnEnded(error)
    a function call                     Progress: the caller runs it, and no chunk would ever
                                        tell its end (S4)

There is no session, no ping (comments are dropped by the SDK), and an error is an exception
(`errors.APIError`), not a chunk. A stream that is cut ends like a whole one, without a
`finish_reason`: that is how it is told (T10).

**Functions that the SDK calls itself** (Python callables as `tools`): it runs them before it
yields the chunk that asks for them, and then asks the model again within the same stream, so
that a finished answer is not the end: `read=google_genai.read_automatic_functions`.

The Live and Interactions APIs of the same package speak otherwise and are not read here.

May import `signals` and its helpers beside it, nothing else of the package.
"""

from __future__ import annotations

from typing import Any

from streamguard.backends._fields import (
    NOT_AT_A_GLANCE,
    NOTHING,
    PROGRESS,
    Said,
    either,
    fields_of,
)
from streamguard.backends._gemini_api import (
    failure_of,
    finish_of,
    outcome_of,
    says_something,
    used,
    word_in,
)
from streamguard.signals import TurnEnded

# Every answer finishes with a reason. A connection that closes early ends the stream without
# one and without an exception (T10).
ALWAYS_ENDS_TURNS = True


def is_message(kind: type) -> bool:
    """Whether messages of this type are an answer's: what else the package yields is not read."""
    return kind.__name__ == "GenerateContentResponse"


def read(message: Any) -> Said:
    """What one chunk says; None is Progress."""
    if type(message) is not dict:
        try:  # a text for one answer, which goes on
            [candidate] = message.candidates
            if not (message.usage_metadata or candidate.finish_reason):
                text = candidate.content.parts[0].text
                if type(text) is str and text.strip():
                    return None
        except NOT_AT_A_GLANCE:
            pass
    return _read(message)  # pyright: ignore[reportUnknownArgumentType]


def _read(message: object) -> Said:
    fields = fields_of(message)
    candidates = fields.get("candidates")
    # Most chunks have none, and a call costs as much as the rest.
    counts = fields.get("usage_metadata") or fields.get("usageMetadata")
    counted = () if counts is None else used(counts, either(fields, "response_id"), "turn")
    if not isinstance(candidates, list) or not candidates:
        feedback = fields_of(either(fields, "prompt_feedback"))
        if blocked := word_in(either(feedback, "block_reason")):
            return (*counted, failure_of(blocked), TurnEnded("error", blocked))
        return counted or None
    reason, is_over, has_said = None, True, False
    for candidate in candidates:  # pyright: ignore[reportUnknownVariableType]
        answer = fields_of(candidate)  # pyright: ignore[reportUnknownArgumentType]
        reason = finish_of(answer)
        is_over = is_over and reason is not None
        has_said = has_said or says_something(answer.get("content"))
    if not is_over or reason is None:  # one is still being written
        if not has_said:
            return counted or NOTHING
        return (*counted, PROGRESS) if counted else None
    outcome = outcome_of(reason)
    if outcome != "error":
        return (*counted, TurnEnded(outcome, reason, answered=True if has_said else None))
    failed = failure_of(reason)
    retriable = failed.error_class == "server"
    return (*counted, failed, TurnEnded(outcome, reason, retriable))


def read_automatic_functions(message: object) -> Said:
    """As `read`, where the SDK itself calls functions: a finished answer is no turn's end.

    The chunks do not show whether the SDK will ask again after an answer. So every end of
    the stream is a normal one, and the wait for the next answer is guarded.
    """
    said = read(message)
    if not isinstance(said, tuple):
        return said
    return tuple(PROGRESS if isinstance(signal, TurnEnded) else signal for signal in said)
