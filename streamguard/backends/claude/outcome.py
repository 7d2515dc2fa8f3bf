"""How a turn of Claude's ended, and of which class its errors are (P1).

    is_error  subtype                 terminal_reason        outcome
    ────────  ──────────────────────  ─────────────────────  ──────────
    any       any                     aborted_…              cancelled
    any       error_max_…             or a ceiling           incomplete
    true      success                 api_error, …           error
    true      error_during_execution  any                    error
    false     success                 tool_deferred          paused
    false     success                 completed, none, …     success

A failure of the API comes as subtype "success" with `is_error`. Helps `reading` alone.
"""

from __future__ import annotations

import re
from typing import cast

from streamguard.backends._fields import Fields, class_of_status, fields_of, number_in, text_in
from streamguard.backends.unknown_sessions import is_said_in
from streamguard.signals import Failed, Outcome

_CEILINGS = {"max_turns", "budget_exhausted", "structured_output_retry_exhausted"}
_CLASS_OF_REASON = {
    "api_error": "network",  # without a status: no response came
    "model_error": "server",
    "prompt_too_long": "validation",
    "blocking_limit": "validation",
    "rapid_refill_breaker": "validation",
    "image_error": "validation",
    "tool_deferred_unavailable": "permanent",
}
_CLASS_OF_WORD = {
    "authentication_failed": "auth",
    "oauth_org_not_allowed": "auth",
    "verification_required": "auth",
    "cloud_credential_error": "auth",
    "account_on_hold": "permanent",
    "billing_error": "permanent",
    "model_not_found": "permanent",
    "invalid_request": "validation",
    "rate_limit": "rate_limit",
    "overloaded": "server",
    "server_error": "server",
}


# What CLIs before 2.1 had for the whole of a result.
_LIMIT_UNTIL = re.compile(r"Claude AI usage limit reached\|(\d{10})")


def outcome_of(result: Fields) -> Outcome:
    """What became of the turn that `result` ends."""
    reason = text_in(result.get("terminal_reason")) or ""
    if reason.startswith("aborted"):
        return "cancelled"
    if _met_a_ceiling(result):
        return "incomplete"
    subtype = text_in(result.get("subtype")) or ""
    if result.get("is_error") is True or subtype.startswith("error"):
        return "error"
    return "paused" if reason == "tool_deferred" else "success"


def failure_of(result: Fields) -> Failed:
    """Why `result` is none that was wished for; says whether another attempt makes sense."""
    if _is_of_unknown_session(result):
        detail = "no conversation with this session id"
        return Failed("validation", detail=detail, session_unknown=True)
    if (limit := _LIMIT_UNTIL.fullmatch(text_in(result.get("result")) or "")) is not None:
        return Failed("rate_limit", detail="usage limit", resets_at=int(limit[1]))
    reason = text_in(result.get("terminal_reason")) or ""
    status = number_in(result.get("api_error_status"))
    if status is not None:
        error_class = class_of_status(status)
    elif _met_a_ceiling(result):
        error_class = "permanent"  # the user's own limit: another attempt meets it again
    else:
        error_class = _CLASS_OF_REASON.get(reason, "unknown")
    # The text of a result may quote the conversation and stays out of evidence (E3).
    told = (text_in(result.get("subtype")), reason, status is not None and f"HTTP {status:g}")
    return Failed(error_class, detail=", ".join(part for part in told if part))


def limit_over_at(message: Fields) -> float | None:
    """When the usage limit is over that an `assistant` message tells of, as an epoch."""
    info = fields_of(fields_of(message.get("api_error_params")).get("rate_limit_info"))
    return number_in(info.get("resetsAt"))


def _is_of_unknown_session(result: Fields) -> bool:
    token, errors = text_in(result.get("session_id")), result.get("errors")
    if token is None or not isinstance(errors, list):
        return False
    said = cast("list[object]", errors)
    return any(isinstance(text, str) and is_said_in(text, token) for text in said)


def class_of_word(word: object, *, otherwise: str = "unknown") -> str:
    """The class of the word that `assistant` and `api_retry` have for an error."""
    return _CLASS_OF_WORD.get(word, otherwise) if isinstance(word, str) else otherwise


def _met_a_ceiling(result: Fields) -> bool:
    subtype = text_in(result.get("subtype")) or ""
    reason = text_in(result.get("terminal_reason"))
    return subtype.startswith("error_max_") or reason in _CEILINGS
