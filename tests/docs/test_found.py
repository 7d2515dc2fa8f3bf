"""docs/explanation/found.md stays true: each test that it names is there, and no fault is left out."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "explanation" / "found.md").read_text("utf-8")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
ROW = re.compile(r"^\| (?!no\. |promise )(.+) \|$", re.MULTILINE)


def numbered(last: int, **parts: str) -> list[str]:
    """What has parts stands as these."""
    return [f"{n}{part}" for n in range(1, last + 1) for part in parts.get(f"of_{n}", " ")]


FAULTS = {
    "Streams, sessions and the breaker": numbered(19, of_9="ab", of_16="ab", of_19="abcdefgh"),
    "Processes, `streamguard run`, evidence and configuration": numbered(19, of_19="abcdefghijkl"),
    "What the earlier systems did, and 0.1.0 did not": [
        *(
            "S1-02 S1-09 S1-10 S1-11",
            "S1-04",
            "S1-14",
            "S1-18",
            "S1-28",
            "S2-14",
            "S2-15",
            "S2-16",
        ),
        *("S3-02", "S4-01", "S4-06", "S4-15", "p3", "k21", "k22"),
    ],
}
SINCE = "Since then"
PROMISES = 'What "never" rests on'


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below that heading."""
    [section] = re.findall(
        rf"^## {re.escape(heading)}$(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL
    )
    return [row.split(" | ") for row in ROW.findall(section)]


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


@cache
def put_back() -> frozenset[str]:
    """The old faults that a control uses."""
    tree = ast.parse((ROOT / "tests/models/test_controls.py").read_text("utf-8"))
    [listed] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CONTROLS"
    ]
    return frozenset(node.id for node in ast.walk(listed) if isinstance(node, ast.Name))


@pytest.mark.parametrize(("path", "name"), sorted(set(TEST.findall(PAGE))))
def test_what_is_named_is_there(path: str, name: str) -> None:
    assert name in functions(path)
    assert name.startswith("test_") or name in put_back()


@pytest.mark.parametrize("heading", FAULTS)
def test_no_fault_is_missing(heading: str) -> None:
    assert [row[0] for row in rows(heading)] == [number.strip() for number in FAULTS[heading]]


@pytest.mark.parametrize("heading", [*FAULTS, SINCE])
def test_each_fault_has_words_a_way_and_a_test(heading: str) -> None:
    for row in rows(heading):
        number, wrong, found_by, tests = row
        assert wrong.endswith("."), number
        assert found_by, number
        assert re.sub(TEST, "", tests).strip(", ") == "", number
        assert all(name.startswith("test_") for _, name in TEST.findall(tests)), number
        assert TEST.search(tests), number


def test_each_promise_has_a_test_and_a_control() -> None:
    promises = rows(PROMISES)
    assert len(promises) > 20
    for promise, tests, controls in promises:
        for cell in (tests, controls):
            assert TEST.search(cell), promise
            assert re.sub(TEST, "", cell).strip(", ") == "", promise
        assert all(name.startswith("test_") for _, name in TEST.findall(tests)), promise


def test_every_control_is_one() -> None:
    """By its name, or since a fault is put back in it; it may be a parameter's value."""
    for promise, _, controls in rows(PROMISES):
        for path, name in TEST.findall(controls):
            is_said = "control" in name or name in put_back()
            assert is_said or "control" in (ROOT / path).read_text("utf-8").lower(), promise


def test_no_control_of_its_own_is_left_out() -> None:
    """Whose protection is switched off in a test of its own shows what a promise rests on."""
    named = set(TEST.findall(PAGE))
    rooms = {path for path, _ in named}
    found = {
        (path, name)
        for path in rooms
        for name in functions(path)
        if name.startswith("test_control_")
    }
    elsewhere = {name for path, name in found - named if "false_alarms" not in path}
    assert elsewhere == set()
