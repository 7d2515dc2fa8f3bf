"""Of which class an error of Codex is (P1): by its kind if it names one, else by its text.

`codex exec` has only a text ("unexpected status 401 Unauthorized: ...", "exceeded retry limit,
last status: 429 Too Many Requests", "stream disconnected before completion: ..."), the app-server
also a `codexErrorInfo`: a word, or a word with an HTTP status. Helps the codex readers alone.

A usage limit says when it is over, on the clock of the machine and to the minute: "try again at 1:21 AM" today, or
"try again at Nov 20th, 2026 1:21 AM".
"""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta

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
# The months by their English names, whatever language this process speaks.
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_TRY_AGAIN_AT = re.compile(
    r"usage limit.{0,500}[Tt]ry again at (?:([A-Z][a-z]{2}) (\d{1,2})(?:st|nd|rd|th), (\d{4}) )?"
    r"(\d{1,2}):(\d\d) ([AP])M\.",
    re.DOTALL,
)
RECONNECTING = re.compile(r"Reconnecting\.\.\. (\d{1,4})/(\d{1,4})")


def failure_of(error: object, info: object = None) -> Failed:
    """Why an error came. Its text may quote the conversation and stays out of evidence (E3)."""
    text = text_in(fields_of(error).get("message")) or text_in(error) or ""
    attempt = RECONNECTING.search(text)
    detail = f"reconnecting {attempt[1]}/{attempt[2]}" if attempt is not None else ""
    class_ = _class_of_info(info) or _class_of_text(text)
    return Failed(class_, detail=detail, resets_at=_over_at(text))


def _over_at(text: str) -> datetime | time | None:
    """When the usage limit is over that a text tells of: the minute after the one it names."""
    if (found := _TRY_AGAIN_AT.search(text[:2000])) is None:
        return None
    month, day, year, hour, minute, half = found.groups()
    try:
        at = time(int(hour) % 12 + 12 * (half == "P"), int(minute))
        if month is None:
            return at.replace(second=59, microsecond=999_999)
        date = datetime(int(year), _MONTHS.index(month) + 1, int(day))  # noqa: DTZ001 - local, as told
        return datetime.combine(date, at) + timedelta(minutes=1)
    except (ValueError, OverflowError):
        return None


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
