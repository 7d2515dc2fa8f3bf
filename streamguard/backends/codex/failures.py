"""Of which class an error of Codex is (P1): by its kind if it names one, else by its text.

`codex exec` has only a text ("unexpected status 401 Unauthorized: ...", "exceeded retry limit,
last status: 429 Too Many Requests", "stream disconnected before completion: ..."), the app-server
also a `codexErrorInfo`: a word, or a word with an HTTP status. Helps the codex readers alone.
"""

from __future__ import annotations

import re

from streamguard.backends._fields import (
    Fields,
    camel_case,
    class_of_status,
    fields_of,
    number_in,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import Failed

# The words whose ending says something else, or nothing.
_CLASS_OF_WORD = {
    "usageLimitExceeded": "permanent",  # an account's allowance: hours, not seconds
    "sessionBudgetExceeded": "permanent",
    "cyberPolicy": "permanent",
    "misalignmentPolicyViolation": "permanent",
    "tooManyDenials": "permanent",
    "sandboxError": "permanent",
    "responseTooManyFailedAttempts": "network",
}
_STATUS = re.compile(r"\bstatus:? (?:code )?([45]\d\d)\b")
_CLASS_OF_PHRASE = (  # in this order: the first that is in the text, which was lowered
    ("usage limit", "permanent"),
    ("quota", "permanent"),
    ("context window", "validation"),
    ("too many requests", "rate_limit"),
    ("rate limit", "rate_limit"),
    ("high demand", "server"),
    ("at capacity", "server"),
    ("overloaded", "server"),
    ("disconnected", "network"),
    ("timeout", "network"),
    ("timed out", "network"),
    ("connection", "network"),
    ("error sending request", "network"),
)
RECONNECTING = re.compile(r"Reconnecting\.\.\. (\d{1,4})/(\d{1,4})")


def failure_of(error: object, info: object = None) -> Failed:
    """Why an error came. Its text may quote the conversation and stays out of evidence (E3)."""
    text = text_in(fields_of(error).get("message")) or text_in(error) or ""
    attempt = RECONNECTING.search(text)
    detail = f"reconnecting {attempt[1]}/{attempt[2]}" if attempt is not None else ""
    return Failed(_class_of_info(info) or _class_of_text(text), detail=detail)


def _class_of_text(text: str) -> str:
    if (status := _STATUS.search(text)) is not None:
        return class_of_status(int(status[1]))
    if text.startswith("{"):  # the body of a 400, which alone is passed on as it is
        return "validation"
    lowered = text[:2000].lower()
    return next((class_ for phrase, class_ in _CLASS_OF_PHRASE if phrase in lowered), "unknown")


def _class_of_info(info: object) -> str | None:
    word, fields = _word_and_fields(info)
    status = number_in(fields.get("httpStatusCode") or fields.get("http_status_code"))
    if status is not None:
        return class_of_status(status)
    return _CLASS_OF_WORD.get(word) or classes.class_of_name(word)


def _word_and_fields(info: object) -> tuple[str, Fields]:
    """`"serverOverloaded"`, or `{"httpConnectionFailed": {"httpStatusCode": 502}}`."""
    info = getattr(info, "root", info)  # the package wraps a union in a root model
    if isinstance(info, str):
        return str(getattr(info, "value", info)), {}
    for word, fields in fields_of(info).items():
        return camel_case(str(word)), fields_of(fields)
    return "", {}
