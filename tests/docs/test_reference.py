"""The reference is what the code says: made of it, complete, and in words for who uses it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from typing import Any

import pytest

import streamguard
from streamguard._base import variables
from tests.docs import api_pages, code_tables, make

RULE = re.compile(r"\b[A-Z]\d{1,2}\b")


def public() -> Iterator[tuple[str, Any]]:
    """Every public name, by its path, that has a docstring to write."""
    for name in streamguard.__all__:
        yield f"streamguard.{name}", getattr(streamguard, name)
    for dotted, names in api_pages.modules().items():
        for name in names:
            yield f"{dotted}.{name}", getattr(import_module(dotted), name)


NAMES = {
    dotted: value
    for dotted, value in public()
    if inspect.isclass(value) or inspect.isroutine(value)
}


def test_every_page_is_what_its_maker_makes():
    """If it is not: `python -m tests.docs.make` writes them anew."""
    assert [*make.differences()] == []


def test_every_public_name_is_on_a_page():
    shown = {
        name
        for page in (make.FOLDER / "api").glob("*.md")
        for name in re.findall(r"^::: ([\w.]+)$", page.read_text("utf-8"), re.MULTILINE)
    }
    written = {f"streamguard.{name}" for name in streamguard.__all__ if not name.startswith("__")}
    assert written <= shown
    assert NAMES.keys() <= shown | {"streamguard.__version__"}


@pytest.mark.parametrize("dotted", NAMES)
def test_a_public_name_says_what_one_gets(dotted):
    """A first line that is a sentence, of its own, and no number of a rule anywhere."""
    value = NAMES[dotted]
    told = value.__doc__ if inspect.isclass(value) else inspect.getdoc(value)
    assert told
    assert not told.startswith(f"{value.__name__}(")  # a dataclass's own
    first = re.split(r"\n\s*\n", inspect.cleandoc(told))[0]
    assert first.endswith((".", ":")), first
    assert RULE.findall(told) == []


def parts(dotted: str) -> Iterator[tuple[str, str]]:
    for name, value in vars(NAMES[dotted]).items():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if not name.startswith("_") and inspect.isfunction(inner) and inner.__doc__:
            yield name, inner.__doc__


@pytest.mark.parametrize("dotted", [dotted for dotted in NAMES if inspect.isclass(NAMES[dotted])])
def test_no_method_names_a_rule(dotted):
    assert {name: found for name, told in parts(dotted) if (found := RULE.findall(told))} == {}


# What users get, and do not make.
GIVEN = {
    *("Chat", "Configuration", "Guarded", "GuardedIterator", "Monitor", "Operator"),
    *("Scope", "Sentinel", "Session", "Turn"),
}


def takes_words_of_the_user(dotted: str) -> bool:
    value = NAMES[dotted]
    home, _, name = dotted.rpartition(".")
    if home not in {"streamguard", "streamguard.signals", "streamguard.testing"} or name in GIVEN:
        return False
    made_by_us = inspect.isclass(value) and (
        issubclass(value, BaseException | Enum) or getattr(value, "_is_protocol", False)
    )
    return not made_by_us and callable(value)


@pytest.mark.parametrize("dotted", [*filter(takes_words_of_the_user, NAMES)])
def test_what_one_writes_is_told(dotted):
    """Each parameter is named in the docstring."""
    names = [name for name in inspect.signature(NAMES[dotted]).parameters if name[0] != "_"]
    made = getattr(NAMES[dotted], "__init__", None) if inspect.isclass(NAMES[dotted]) else None
    told = set(re.findall(r"\w+", f"{inspect.getdoc(NAMES[dotted])} {inspect.getdoc(made)}"))
    assert [name for name in names if name not in told] == []


def test_each_of_our_variables_is_told():
    named = {name for name in vars(variables) if name.isupper() and name != "TYPE_CHECKING"}
    assert code_tables.OURS.keys() == named
    assert code_tables.HOOK_FACTS.keys() == set(code_tables.FACTS)


def test_no_table_is_empty():
    for path, text in code_tables.pages().items():
        rows = re.findall(r"^\|[-|]+\n((?:\|.*\n)*)", text, re.MULTILINE)
        assert rows, path
        assert all(rows), path
