"""The tool itself: what it changes, what it calls a mutant, and that what is accounted for is there."""

from __future__ import annotations

import ast

import pytest

from tests.mutation import accounted, mutants, record
from tests.mutation.decisions import MODULES, rooms_of
from tests.mutation.mutants import file_of, mutants_of


@pytest.fixture
def made(tmp_path, monkeypatch):
    """What is made of a text: the operator, and what stands there then."""

    def make(text):
        file = tmp_path / "module.py"
        file.write_text(text)
        monkeypatch.setattr(mutants, "file_of", lambda _: file)
        found = mutants_of("module")
        for mutant in found:
            ast.parse(mutant.text)
        return found

    return make


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("x = a < b", {("negate", "(a >= b)"), ("boundary", "(a <= b)")}),
        ("x = a and b", {("and-or", "(a or b)"), ("drop", "a"), ("drop", "b")}),
        ("x = not a", {("negate", "a")}),
        ("x = a + 2", {("arithmetic", "(a - 2)"), ("constant", "3"), ("constant", "(1)")}),
        ("x = max(a, b)", {("min-max", "min"), ("drop", "a"), ("drop", "b")}),
        ("x = True", {("constant", "False")}),
        ("x = 'idle'", {("constant", "'xidle'")}),
        ("f(a)", {("remove", "pass")}),
        ('log.warning("a", 3)', {("remove", "pass")}),
        ("raise TypeError", {("remove", "pass"), ("exception", "ArithmeticError")}),
        ("if a:\n    x = b", {("negate", "not (a)"), ("never", "False")}),
        ("x = [y for y in z if y]", {("always", "True"), ("negate", "not (y)")}),
        ("match a:\n    case 1:\n        pass", {("never", "1 if False")}),
        ("def f():\n    return a", {("return-none", "return None")}),
        (
            "try:\n    pass\nexcept OSError:\n    pass",
            {("narrow", "ArithmeticError"), ("widen", "BaseException")},
        ),
    ],
)
def test_what_is_changed(made, text, changes):
    assert {(mutant.operator, mutant.after) for mutant in made(text)} == changes


@pytest.mark.parametrize(
    "text",
    [
        "import a",
        "assert a < b",
        "x = f'{a + 1}'",
        "def __repr__(self):\n    return a",
        "def f():\n    '''Words.'''",
        "__slots__ = ('a',)",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import a",
    ],
)
def test_what_is_no_decision_is_left_alone(made, text):
    assert made(text) == []


def test_a_name_does_not_depend_on_what_stands_above(made):
    (first, *_) = made("def f(a):\n    return a < 3\n")
    below = made("x = y\n\n\ndef f(a):\n    return a < 3\n")
    assert first.name in {mutant.name for mutant in below}
    assert first.around in {mutant.around for mutant in below if mutant.name == first.name}


def test_two_that_look_alike_have_names_of_their_own(made):
    names = [mutant.name for mutant in made("def f(a):\n    g(a)\n    g(a)\n")]
    assert names == ["module f remove: g(a) -> pass", "module f remove: g(a) -> pass #2"]


def test_every_module_and_room_is_there():
    assert all(file_of(module).is_file() for module in MODULES)
    assert all(rooms_of(module) for module in MODULES)


def test_what_is_accounted_for_is_there_and_has_a_reason():
    """A row whose mutant is gone explains nothing, and hides the next one of that name."""
    rows = accounted.read()
    names = {mutant.name for module in MODULES for mutant in mutants_of(module)}
    assert set(rows.equivalent) | set(rows.open) <= names
    assert not set(rows.equivalent) & set(rows.open)
    assert all(len(reason) > 20 for reason in [*rows.equivalent.values(), *rows.open.values()])


def test_an_outcome_counts_while_its_function_has_the_same_text(made, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    monkeypatch.setattr(record, "_OUTCOMES", tmp_path / "outcomes.jsonl")
    (mutant,) = made("def f(a):\n    g(a)\n")
    record.add(
        record.Row(mutant.name, mutant.key, mutant.around, "noticed", "tests/t.py::t", 1, 0.1)
    )
    assert record.latest([mutant])[mutant.key].outcome == "noticed"
    (later, *_) = made("def f(a):\n    g(a)\n    h = a\n")
    assert later.key == mutant.key
    assert record.latest([later]) == {}
    assert record.noticers()[mutant.key] == "tests/t.py::t"
