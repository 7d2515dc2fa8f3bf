"""pip knows this project by another name than Python does, and every hint says pip's."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

from streamguard._base.distribution import NAME

ROOT = Path(__file__).parents[2]
ROOMS = ("streamguard", "docs", "tests", "examples", "benchmarks", ".ci", ".github")
WRITTEN = {"", ".md", ".py", ".toml", ".yml", ".yaml", ".txt", ".sh", ".html", ".json"}
# An extra of the package's name, and a command that installs it; of our own name, both are right.
WRONG = re.compile(
    r"(?<![.\w/-])streamguard\\?\[[a-z{]|pip3? install\b[^\n`|&;]*(?<=[ '\"])streamguard(?![\w./-])"
)


def written() -> Iterator[Path]:
    yield from (*ROOT.glob("*.md"), *ROOT.glob("*.toml"))
    for room in ROOMS:
        for path in (ROOT / room).rglob("*"):
            if path.suffix in WRITTEN and path.is_file() and path != Path(__file__):
                yield path


def test_nothing_says_the_other_name():
    wrong = [
        f"{path.relative_to(ROOT)}: {found[0]}"
        for path in written()
        for found in WRONG.finditer(path.read_text("utf-8", errors="replace"))
    ]
    assert wrong == []


def test_the_pattern_finds_it():
    for wrong in (
        "pip install 'streamguard[top]'",
        "`streamguard[top]`",
        "pip install -q streamguard",
    ):
        assert WRONG.search(wrong), wrong
    for right in ("pip install 'agent-streamguard[top]'", "record.streamguard['a']"):
        assert not WRONG.search(right), right


def test_the_project_has_that_name_and_its_extras_refer_to_it():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["name"] == NAME
    assert project["scripts"] == {"streamguard": "streamguard.cli:main"}


def test_the_words_of_a_hint_have_one_home():
    """Docstrings may say them, too: they are read where they stand."""
    said = []
    for path in (ROOT / "streamguard").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        said += [
            path.name
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
            and NAME in node.value
        ]
    assert said == ["distribution.py"]
