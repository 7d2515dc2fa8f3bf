"""What a message looks like in a transcript: JSON of bounded size, without secrets.

A message may be anything: a dict, an object of an SDK, 100 MB of text, a cycle. It is looked at
through its fields alone (no method of its own is called), and only as far as will be written. What
is left out is marked where it was: `"... [cut: 104857600 characters]"`, `{"$cut": 900}`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import pathlib
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

from streamguard.evidence.secrets import MARGIN, REDACTED, SHORTEST, KeyLines, is_secret

_LONGEST_TEXT: Final = 8192
_SHORT_KEY: Final = 24
HEAD: Final = _LONGEST_TEXT + MARGIN  # what is looked at of bytes
_LONGEST_MESSAGE: Final = 64 * 1024  # characters
_MOST_VALUES: Final = 4000
_DEEPEST: Final = 16
_SCALARS: Final = (
    *(str, int, float, bytes, bytearray, memoryview),
    *(dt.date, dt.time, decimal.Decimal, uuid.UUID, pathlib.PurePath),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shortened:
    """The `head` of a message of `length` bytes, which was too long to be looked at."""

    head: bytes
    length: int


class Rendering:
    """Renders messages. `redact` takes secrets out of text; `breathe` is called now and then."""

    def __init__(self, redact: Callable[[str], str], breathe: Callable[[], object]) -> None:
        self._redact = redact
        self._breathe = breathe
        self._key_lines = KeyLines()
        self._shown_key = functools.lru_cache(1024)(redact)  # they are the same ones all the time
        self._values = 0
        self._characters = 0

    def __call__(self, message: object) -> Any:
        """`message` as values that JSON has."""
        if self._key_lines.has(message):
            return REDACTED
        self._values, self._characters = _MOST_VALUES, _LONGEST_MESSAGE
        return self._value(message, 0)

    def _value(self, value: Any, depth: int) -> Any:
        self._values -= 1
        if self._values % 8 == 0:
            self._breathe()
        kind = type(cast("object", value))
        if kind is str:
            return self._text(value)
        if kind is dict and depth < _DEEPEST:
            return self._fields(value.items(), len(value), depth + 1)
        if value is None or kind is bool:
            return value
        if isinstance(value, _SCALARS):
            return self._scalar(value)
        if kind is Shortened:
            return self._head(value.head, value.length)
        if isinstance(value, enum.Enum):
            return self._value(value.value, depth)
        if depth >= _DEEPEST or self._values <= 0 or self._characters <= 0:
            return {"$type": type(value).__qualname__, "$cut": True}
        return self._compound(value, depth + 1)

    def _scalar(self, value: Any) -> Any:
        if isinstance(value, int):
            return int(value) if value.bit_length() <= 1024 else {"$type": "int", "$cut": True}
        if isinstance(value, float):
            return float(value) if math.isfinite(value) else str(value)
        if _is(value, bytes, bytearray, memoryview):
            return self._bytes(value)
        return self._text(str(value))

    def _compound(self, value: Any, depth: int) -> Any:
        if _is(value, Mapping):
            return self._fields(value.items(), len(value), depth)
        if _is(value, tuple) and hasattr(value, "_fields"):
            return self._fields(zip(value._fields, value, strict=False), len(value), depth)
        if _is(value, list, tuple, set, frozenset):
            return self._items(value, len(value), depth)
        fields = list(_fields_of(value))
        return {"$type": type(value).__qualname__, **self._fields(fields, len(fields), depth)}

    def _fields(self, fields: Iterable[tuple[Any, Any]], number: int, depth: int) -> Any:
        said: dict[str, Any] = {}
        for seen, (name, value) in enumerate(fields):
            if self._values <= 0 or self._characters <= 0:
                said["$cut"] = number - seen
                break
            key = name if isinstance(name, str) else _key(name)
            self._characters -= len(key)
            shown = self._shown_key(key) if len(key) <= _SHORT_KEY else self._text(key)
            said[shown] = REDACTED if _hides(key, value) else self._value(value, depth)
        return said

    def _items(self, items: Iterable[Any], number: int, depth: int) -> list[Any]:
        said: list[Any] = []
        for item in items:
            if self._values <= 0 or self._characters <= 0:
                said.append({"$cut": number - len(said)})
                break
            said.append(self._value(item, depth))
        return said

    def _text(self, text: str) -> str:
        length = len(text)
        room = max(0, min(_LONGEST_TEXT, self._characters))
        said = text[: room + MARGIN]
        if length > 1000:
            self._breathe()
        if length >= SHORTEST:
            said = self._redact(said)
        said = said[:room]
        self._characters -= len(said)
        return said if length <= room else f"{said}... [cut: {length} characters]"

    def _bytes(self, value: bytes | bytearray | memoryview) -> Any:
        length = value.nbytes if isinstance(value, memoryview) else len(value)
        return self._head(bytes(value[:HEAD]), length)

    def _head(self, head: bytes, length: int) -> Any:
        return {"$bytes": length, "text": self._text(head.decode("utf-8", "backslashreplace"))}


def _is(value: object, *kinds: type) -> bool:
    """As `isinstance`, which would make checkers ask what is in it."""
    return isinstance(value, kinds)


def _hides(name: str, value: object) -> bool:
    if value is None or isinstance(value, bool) or not is_secret(name):
        return False
    # What a model's stream calls a token is often no secret, but an object that describes a word.
    return not name.lower().endswith("token") or isinstance(
        value, str | bytes | int | list | tuple
    )


def _key(name: object) -> str:
    return str(name) if isinstance(name, int | float | bytes) else type(name).__qualname__


def _fields_of(value: object) -> Iterable[tuple[str, Any]]:
    """What an object holds, as far as that can be read without calling anything of its own."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield field.name, getattr(value, field.name, None)
        return
    if isinstance(value, BaseException):
        yield "args", value.args
    held = getattr(value, "__dict__", None)
    if isinstance(held, dict):
        yield from ((k, v) for k, v in cast("dict[str, Any]", held).items() if k[:1] != "_")
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("_"):
                yield name, getattr(value, name, None)
