"""docs/explanation/rules.md tells every rule whose number a reader can meet, and nothing points to a text that is not here."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULES = ROOT / "docs" / "explanation" / "rules.md"
FOLDERS = ("streamguard", "tests", "docs", "examples", "benchmarks")
HERE = Path(__file__)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)

# A capital and one or two digits: T5, in `test_T5_...` as well. S4-06 is the id of a requirement, and 8-B2 is none.
NUMBER = re.compile(r"(?<![A-Za-z0-9#-])(?:test_)?([A-Z]\d{1,2})(?![A-Za-z0-9]|-\d)")
REQUIREMENT = re.compile(r"\bS\d-\d\d\b")
# What only somebody with another text beside this repository could look up.
ELSEWHERE = re.compile(
    r"\bthe contract\b|\bsections? \d|\b(?-i:DESIGN)\.md\b|\bthe (?:study|studies)\b|seed-requirements"
    r"|\b(?:facts|studies)/\w+\.md|\bthe (?:design )?issue\b(?! \{)",
    re.IGNORECASE,
)
# Who uses streamguard reads these, and need not know the rules; who works on it reads the others.
FOR_DEVELOPERS = {"rules.md", "design.md", "verdict.md", "from-the-seeds.md", "CONTRIBUTING.md"}

ENTRY = re.compile(
    r"^### ([A-Z]\d+): [^\n]+\n\n(.+?)\n\nLives in ([^\n]+)\.\nProof: `(tests/[\w/]+\.py)::(\w+)`$",
    re.MULTILINE | re.DOTALL,
)
ENTRIES = {entry[0]: entry[1:] for entry in ENTRY.findall(RULES.read_text(encoding="utf-8"))}


def files(*suffixes: str) -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    found += [*ROOT.glob("*.md"), ROOT / ".ci" / "run", ROOT / "pyproject.toml"]
    return [
        path for path in found if path.is_file() and path.name.endswith(suffixes) and path != HERE
    ]


def docstrings(tree: ast.AST) -> dict[int, str]:
    """By the id of their node: of the module, of classes and functions, and below attributes."""
    kinds = (ast.Module, ast.ClassDef, *FUNCTIONS)
    return {
        id(statement.value): statement.value.value
        for node in ast.walk(tree)
        if isinstance(node, kinds)
        for statement in node.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    }


def comments(source: str) -> list[str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


def prose(path: Path) -> str:
    """What a file says to its readers: comments, docstrings and the names of tests; or all of it."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        tree = ast.parse(text)
        names = [n.name for n in ast.walk(tree) if isinstance(n, FUNCTIONS)]
        return "\n".join([*comments(text), *docstrings(tree).values(), *names])
    if path.suffix in {"", ".toml"}:
        return "\n".join(re.findall(r"(?:^|\s)#.*", text))
    return text


def spoken(path: Path) -> list[str]:
    """The texts of a module that are no docstrings: errors, log lines, the help."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = docstrings(tree)
    constants = [node for node in ast.walk(tree) if isinstance(node, ast.Constant)]
    return [c.value for c in constants if isinstance(c.value, str) and id(c) not in skipped]


@cache
def all_prose() -> dict[Path, str]:
    """Of every file. Not read where this is imported: each process of the tests' does that."""
    return {path: prose(path) for path in files(".py", ".md", "run", ".toml")}


def places(pattern: re.Pattern[str], texts: dict[Path, str]) -> dict[str, set[str]]:
    """What was found, and in which files."""
    found: dict[str, set[str]] = {}
    for path, text in texts.items():
        for match in pattern.finditer(text):
            name = match[match.lastindex or 0]
            found.setdefault(name, set()).add(str(path.relative_to(ROOT)))
    return found


def test_every_entry_is_whole():
    """Its heading, two or three sentences, where it lives, and its proof."""
    headings = re.findall(r"^### (\w+)", RULES.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(ENTRIES)
    assert len(set(headings)) == len(headings)
    assert [n for n, (text, *_) in ENTRIES.items() if not 80 < len(text) < 700] == []


def test_every_number_that_is_met_is_told():
    met = places(NUMBER, all_prose())
    assert {number: where for number, where in met.items() if number not in ENTRIES} == {}


def test_every_rule_is_met():
    elsewhere = places(NUMBER, {p: text for p, text in all_prose().items() if p != RULES})
    assert [number for number in ENTRIES if number not in elsewhere] == []


@pytest.mark.parametrize("number", ENTRIES)
def test_its_proof_is_a_test_of_it(number):
    """It exists, and its name or docstring says the number."""
    _, _, path, name = ENTRIES[number]
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    tests = {n.name: n for n in ast.walk(tree) if isinstance(n, FUNCTIONS)}
    assert name in tests
    assert number in NUMBER.findall(f"{name}\n{ast.get_docstring(tests[name])}")


def test_they_live_in_modules_that_are_there():
    """By their paths, as in docs/explanation/design.md; a room is a folder."""
    homes = {
        number: re.findall(r"`([\w/]+)`", where) for number, (_, where, *_) in ENTRIES.items()
    }
    assert all(homes.values())
    package = ROOT / "streamguard"
    assert [
        (n, home)
        for n, named in homes.items()
        for home in named
        if not (package / f"{home}.py").exists() and not (package / home / "__init__.py").exists()
    ] == []


def test_every_requirement_that_is_named_is_told():
    told = set(
        REQUIREMENT.findall(
            (ROOT / "docs" / "how-to" / "moving" / "from-the-seeds.md").read_text(encoding="utf-8")
        )
    )
    named = places(REQUIREMENT, all_prose())
    assert {name: where for name, where in named.items() if name not in told} == {}


def test_nothing_points_to_a_text_that_is_not_here():
    assert places(ELSEWHERE, all_prose()) == {}


def test_links_between_the_pages_lead_somewhere():
    pages = [path for path in files(".md") if path != ROOT / "CHANGELOG.md"]
    dead = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", page.read_text("utf-8"))
        if not (page.parent / target).exists()
    ]
    assert dead == []


def test_who_uses_it_reads_no_numbers():
    """Neither in the pages for users nor in what the program says."""
    pages = {
        p: t for p, t in all_prose().items() if p.suffix == ".md" and p.name not in FOR_DEVELOPERS
    }
    modules = (ROOT / "streamguard").rglob("*.py")
    said = {path: "\n".join(spoken(path)) for path in modules}
    rules = re.compile(rf"\b({'|'.join(ENTRIES)})\b(?!-\d)")
    assert places(rules, pages | said) == {}
