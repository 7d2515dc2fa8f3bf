"""docs/how-to/backends/index.md says of every backend what it tells, and each page's code is code."""

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from streamguard import backends

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "backends"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (DOCS / "index.md").read_text(encoding="utf-8").split("\n## ")[0].split("\n")
    if line.startswith("|")
]
HEAD, _, *BODY = ROWS
LINK = re.compile(r"\[([^\]]+)\]\(([^)]+)\)")
PAGES = sorted(DOCS.glob("*.md"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def name_of(row):
    return re.match(r"\[?(\w+)", row[0])[1]


def test_every_backend_has_a_row():
    assert {name_of(row) for row in BODY} - {"your"} == backends.NAMES


@pytest.mark.parametrize("row", BODY, ids=lambda row: LINK.sub(r"\1", row[0]))
def test_every_cell_is_filled(row):
    assert len(row) == len(HEAD)
    assert all(cell not in {"", "?"} for cell in row)


def test_every_link_leads_somewhere():
    links = [target for row in BODY for cell in row for _, target in LINK.findall(cell)]
    assert links
    assert all((DOCS / target).is_file() for target in links)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_of_a_backend_is_there(page):
    """Its blocks parse, and `codex.session` is a name of `codex`."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        tree = ast.parse(block)
        imported = {
            alias.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "streamguard.backends"
            for alias in node.names
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name, attribute = node.value.id, node.attr
                if name in imported & backends.NAMES:
                    module = import_module(f"streamguard.backends.{name}")
                    assert hasattr(module, attribute), f"{name}.{attribute}"
