"""The error bodies of OpenAI's API, which many others send as well.

A rate limit inside a stream has no headers: the delay is in the words of its message.
"""

from __future__ import annotations

import re

from streamguard.backends._fields import Fields, class_of_words, fields_of, text_in
from streamguard.signals import Failed

_TRY_AGAIN = re.compile(
    r"try again in (?:(?P<h>\d{1,3})h)?(?:(?P<m>\d{1,3})m(?!s))?"
    r"(?:(?P<s>\d{1,5}(?:\.\d{1,6})?)(?P<ms>m?)s)?"
)
# invalid_image_url, image_too_large, bio_policy, ...: the same request fails again.
_ABOUT_THE_REQUEST = re.compile(r"^invalid_|image|policy")


def failed(body: object) -> Failed:
    """What an error's body says; `code` is finer than `type`, where it is there."""
    error: Fields = fields_of(body)
    code, kind = text_in(error.get("code")), text_in(error.get("type"))
    error_class = class_of_words(code, kind)
    if error_class == "unknown" and code and _ABOUT_THE_REQUEST.search(code):
        error_class = "validation"
    pause = pause_in(error.get("message")) if error_class == "rate_limit" else None
    return Failed(error_class, pause, detail=code or kind or "")


def pause_in(message: object) -> float | None:
    """The seconds of "Please try again in 6m0s"; None where nothing like it is said."""
    if not isinstance(message, str) or not (found := _TRY_AGAIN.search(message[:2000])):
        return None
    hours, minutes, seconds = (float(found[unit] or 0) for unit in "hms")
    if not any(found[unit] for unit in "hms"):
        return None
    return hours * 3600 + minutes * 60 + (seconds / 1000 if found["ms"] else seconds)
