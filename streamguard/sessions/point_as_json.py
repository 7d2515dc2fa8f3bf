"""A `ResumePoint` as JSON, for another process. Strict: what is not understood is refused.

`version` is 1. `attempt`, `prompt`, `token`, `cursor`, `tools_run`, `delivered`, `committed`, `heard` and
`completed` and `work_dir` are as the point has them; a cursor is an int, a text or null. `reason` is null or
`{"type": the error's name, "text": its words}`. `spent` is an object of numbers.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Final, cast

from streamguard.errors import ConfigError, EarlierError
from streamguard.sessions.points import ResumePoint

VERSION: Final = 1
# An error may quote all that a backend has said.
_LONGEST_TEXT: Final = 1000
_TEXTS: Final = ("prompt", "token", "work_dir")
_COUNTS: Final = ("attempt", "tools_run", "delivered", "committed")
_FLAGS: Final = ("heard", "completed")
_FIELDS: Final = {"version", "cursor", "reason", "spent", *_TEXTS, *_COUNTS, *_FLAGS}


def written(point: ResumePoint) -> dict[str, Any]:
    """A point as JSON."""
    if not _is_cursor(point.cursor):
        raise ConfigError(
            f"the cursor {point.cursor!r} cannot be written as JSON: let dedupe_by give an int "
            "that grows, or a str"
        )
    said = {name: getattr(point, name) for name in (*_COUNTS, *_TEXTS, *_FLAGS)}
    return {
        "version": VERSION,
        **said,
        "cursor": point.cursor,
        "spent": dict(point.spent),
        "reason": None if point.reason is None else _written_error(point.reason),
    }


def _written_error(error: BaseException) -> dict[str, str]:
    if isinstance(error, EarlierError):
        return {"type": error.type_name, "text": error.text}
    return {"type": type(error).__name__, "text": str(error)[:_LONGEST_TEXT]}


def read(said: Mapping[str, Any] | str | bytes) -> ResumePoint:
    """The point that was written."""
    fields = _fields_of(said)
    for name in _TEXTS:
        _expect(
            fields, name, fields[name] is None or isinstance(fields[name], str), "a text or null"
        )
    for name in _COUNTS:
        least = 1 if name == "attempt" else 0
        is_count = _is_int(fields[name]) and fields[name] >= least
        _expect(fields, name, is_count, f"a whole number from {least}")
    for name in _FLAGS:
        _expect(fields, name, isinstance(fields[name], bool), "true or false")
    _expect(fields, "cursor", _is_cursor(fields["cursor"]), "a whole number, a text or null")
    _expect(fields, "spent", _are_numbers(fields["spent"]), "an object of numbers from 0")
    named = {name: fields[name] for name in ("cursor", "spent", *_TEXTS, *_COUNTS, *_FLAGS)}
    return ResumePoint(reason=_read_error(fields), **named)


def _fields_of(said: object) -> Mapping[str, Any]:
    if isinstance(said, str | bytes):
        try:
            said = json.loads(said)
        except ValueError as error:
            raise ConfigError(f"this is no ResumePoint: it is no JSON ({error})") from None
        except RecursionError:
            raise ConfigError("this is no ResumePoint: it is nested too deeply") from None
    if not isinstance(said, Mapping):
        raise ConfigError(f"this is no ResumePoint: {type(said).__name__}, and no JSON object")
    fields = cast("Mapping[str, Any]", said)
    version: object = fields.get("version")
    if not (_is_int(version) and version == VERSION):
        raise ConfigError(
            f"this is no ResumePoint of version {VERSION}, which is the one known here: its version "
            f"is {version!r}"
        )
    if wrong := sorted(map(str, _FIELDS ^ fields.keys())):
        raise ConfigError(f"this is no ResumePoint: missing or unknown: {', '.join(wrong)}")
    return fields


def _read_error(fields: Mapping[str, Any]) -> EarlierError | None:
    said: object = fields["reason"]
    if said is None:
        return None
    _expect(fields, "reason", isinstance(said, Mapping), "null or {type, text}")
    reason = cast("Mapping[str, object]", said)
    name, text = reason.get("type"), reason.get("text")
    is_one = len(reason) == 2 and isinstance(name, str) and isinstance(text, str)
    _expect(fields, "reason", is_one, "null or {type, text}")
    return EarlierError(str(name), str(text))


def _expect(fields: Mapping[str, Any], name: str, is_right: bool, what: str) -> None:
    if not is_right:
        raise ConfigError(
            f"this is no ResumePoint: {name} is {fields[name]!r}, and must be {what}"
        )


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _are_numbers(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    named = cast("Mapping[object, object]", value).items()
    return all(
        isinstance(name, str)
        and isinstance(number, int | float)
        and not isinstance(number, bool)
        and 0 <= number < math.inf
        for name, number in named
    )


def _is_cursor(value: object) -> bool:
    return value is None or isinstance(value, str) or _is_int(value)
