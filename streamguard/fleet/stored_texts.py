"""Texts as they can be kept elsewhere: names that are looked up again, words that people read, values as JSON.

A database keeps no NUL and no half of a surrogate pair, and indexes no text of any length. A name must be given
back as it was, so one that cannot is refused; other texts are made to fit.
"""

from __future__ import annotations

import json
from typing import Final

from streamguard._base import quoting
from streamguard.errors import ConfigError

LONGEST_NAME: Final = 500
_LONGEST_TEXT: Final = 1000


def checked_name(what: str, text: object) -> None:
    """A ConfigError unless `text` can be a key or an owner."""
    if not isinstance(text, str) or not 0 < len(text) <= LONGEST_NAME:
        shown = quoting.name(repr(text))
        raise ConfigError(f"{what}={shown}: use a text of 1 to {LONGEST_NAME} characters")
    if _cannot_be_kept(text):
        raise ConfigError(
            f"{what}={quoting.name(repr(text))}: no database keeps NUL, or half of a surrogate pair"
        )


def fitting(text: str) -> str:
    """`text`, at most so long, with what cannot be kept written as in a Python string."""
    if len(text) > _LONGEST_TEXT or _cannot_be_kept(text):
        return quoting.quoted(text, _LONGEST_TEXT)
    return text


def json_of(value: object, what: str, key: str) -> str:
    """`value` as JSON, in ASCII; what it is made of is shown to nobody. `what` it is of that session, for the error."""
    try:
        return json.dumps(value, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(error).__name__
        why = str(error) if isinstance(error, TypeError) else kind
    raise ConfigError(f"{what} of session {quoting.name(key)!r} is no JSON: {quoting.name(why)}")


def _cannot_be_kept(text: str) -> bool:
    return "\0" in text or any("\ud800" <= c <= "\udfff" for c in text)
