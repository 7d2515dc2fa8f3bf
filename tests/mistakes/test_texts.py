"""Texts of errors, warnings and log lines: plain words, and no numbers of rules."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamguard

PACKAGE = Path(streamguard.__file__).parent
ROOT = PACKAGE.parent
SAYING = {
    "warn",
    "warning",
    "error",
    "info",
    "debug",
    "critical",
    "exception",
    "log",
    "log_once",
    "log_cause_once",
    "print",
    "add_note",
    "note",
}
RULES = re.findall(
    r"^### ([A-Z][0-9]+):", (ROOT / "docs/explanation/rules.md").read_text("utf-8"), re.MULTILINE
)
RULE = re.compile(rf"\b(?:{'|'.join(RULES)})\b")
RIDDLES = re.compile(
    r"\b(?:whence|thereof|therein|thereto|wherein|whereof|whereupon|lest|albeit|aught|naught|shall|nobody's|anew|unheeded)\b"
    r"|\bnobody\b[^.]*\bno\b|\bnone but\b|\bnot but\b|\bin the midst\b|\bsave (?:that|for)\b"
    r"|\b(?:frees?|ends?|costs?|knows?) it not\b|\bwhose (?:is|are)\b|\bit (?:has|knows) not\b",
    re.IGNORECASE,
)


def said_in(source: str) -> Iterator[tuple[int, str]]:
    """Each string that is raised, warned of or logged, or that an event's `text` makes; with its line."""
    for node in ast.walk(ast.parse(source)):
        is_call = isinstance(node, ast.Call) and _name_of(node.func) in SAYING
        is_text = isinstance(node, ast.FunctionDef) and node.name in {"text", "reason", "__str__"}
        if is_call or is_text or isinstance(node, ast.Raise):
            for part in _without_docstring(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.lineno, part.value


def _name_of(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _without_docstring(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
        return (part for statement in node.body[1:] for part in ast.walk(statement))
    return ast.walk(node)


SOURCES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("pattern", [RULE, RIDDLES], ids=["rule", "riddle"])
def test_what_users_read_is_plain(pattern):
    found = {
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in SOURCES
        for line, text in said_in(path.read_text("utf-8"))
        if pattern.search(text)
    }
    assert sorted(found) == []


def test_the_scan_sees_what_is_said():
    """A control: each way of saying something, and what is only a comment or a document."""
    source = '''
def f():
    """T4 in a docstring."""
    raise ValueError(f"T4 {1} raised")
def g():
    logger.warning("logged, T4")
    warn("warned T4")
class E:
    def text(self):
        """T4 in a docstring."""
        return "told T4"
'''
    assert len([text for _, text in said_in(source) if RULE.search(text)]) == 4
