"""What messages of all kinds look like in a transcript (E3)."""

from __future__ import annotations

import datetime as dt
import enum
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from streamguard.evidence.rendering import Rendering


class Point(NamedTuple):
    x: int
    y: int


class Colour(enum.Enum):
    RED = "red"


class Named(str):
    __slots__ = ()


class Model:
    """As those of pydantic are: fields in `__dict__`, what is not the user's with an underscore."""

    def __init__(self) -> None:
        self.role = "assistant"
        self._private = 1


class Slotted:
    __slots__ = ("_hidden", "here", "missing")

    def __init__(self) -> None:
        self.here, self._hidden = 1, 2


class Single:
    __slots__ = "only"  # noqa: PLC0205 - it is allowed, and means one

    def __init__(self) -> None:
        self.only = 1


@dataclass
class Block:
    text: str
    more: list[Any] = field(default_factory=list)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (None, None),
        (True, True),
        (5, 5),
        (0.5, 0.5),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**400, {"$type": "int", "$cut": True}),
        (Named("x"), "x"),
        (Colour.RED, "red"),
        (dt.date(2026, 11, 18), "2026-11-18"),
        (PurePosixPath("a/b"), "a/b"),
        ((1, [2, {3}]), [1, [2, [3]]]),
        (Point(1, 2), {"x": 1, "y": 2}),
        (OrderedDict(a=1), {"a": 1}),
        ({1: "a", None: "b", (2,): "c"}, {"1": "a", "NoneType": "b", "tuple": "c"}),
        (Block("a", [Block("b")]), None),
        (Model(), {"$type": "Model", "role": "assistant"}),
        (SimpleNamespace(a=1), {"$type": "SimpleNamespace", "a": 1}),
        (Slotted(), {"$type": "Slotted", "here": 1, "missing": None}),
        (Single(), {"$type": "Single", "only": 1}),
        (ValueError("no", 5), {"$type": "ValueError", "args": ["no", 5]}),
        (object(), {"$type": "object"}),
        (memoryview(b"abc"), {"$bytes": 3, "text": "abc"}),
        (len, {"$type": "builtin_function_or_method"}),
    ],
)
def test_each_kind(message, said):
    rendered = Rendering(lambda text: text, lambda: None)(message)
    if isinstance(message, Block):
        inner = {"$type": "Block", "text": "b", "more": []}
        said = {"$type": "Block", "text": "a", "more": [inner]}
    assert rendered == said


def test_a_message_of_many_long_texts_is_cut_as_a_whole():
    message = {str(n): "x" * 5000 for n in range(100)}
    rendered = Rendering(lambda text: text, lambda: None)(message)
    assert rendered["$cut"] == 100 - (len(rendered) - 1)
    assert sum(len(text) for text in rendered.values() if isinstance(text, str)) < 70_000


def test_a_list_of_many_says_how_many_are_missing():
    rendered = Rendering(lambda text: text, lambda: None)(list(range(10_000)))
    assert rendered[-1]["$cut"] == 10_000 - (len(rendered) - 1)
