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

from streamguard.backends._fields import Fields, class_of_status, number_in, text_in
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


def class_of_word(word: object, *, otherwise: str = "unknown") -> str:
    """The class of the word that `assistant` and `api_retry` have for an error."""
    return _CLASS_OF_WORD.get(word, otherwise) if isinstance(word, str) else otherwise


def _met_a_ceiling(result: Fields) -> bool:
    subtype = text_in(result.get("subtype")) or ""
    reason = text_in(result.get("terminal_reason"))
    return subtype.startswith("error_max_") or reason in _CEILINGS
