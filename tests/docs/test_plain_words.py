"""What users read is written in plain words: short sentences, no riddles, and no numbers of rules."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import streamguard
from tests.docs import api_pages

ROOT = Path(__file__).parents[2]
# What was released is told as it was.
PAGES = sorted(
    page
    for page in [*ROOT.glob("*.md"), *ROOT.glob("benchmarks/*.md"), *ROOT.glob("docs/**/*.md")]
    if page.name != "CHANGELOG.md"
)
EXPLANATION = ROOT / "docs" / "explanation"
# Who works on streamguard reads the numbers there.
WITH_NUMBERS = {ROOT / "CONTRIBUTING.md", *EXPLANATION.glob("*.md")}
LONGEST = 35  # words of a sentence; half of that is better
UNUSED = re.compile(
    r"\bnobody\b[^.]*\bno\b|\b(?:whence|whither|hitherto|heretofore|thereof|therein|thereto|thereupon|wherein|whereof"
    r"|whereupon|whosoever|whomsoever|lest|albeit|aught|naught|betwixt|forthwith|shall)\b"
    r"|\bsave (?:that|for)\b|\bfor it (?:is|was|has)\b|\b(?:frees?|ends?|costs?|knows?) it not\b|\bthat which\b"
    r"|\bbe it\b|\bin the midst\b|\bnobody's\b|\bnone but\b|\bnot but\b|\bis at it\b|\bunasked\b"
    r"|\bwhoever\b|\bsomebody\b|\bnobody (?:may|tries|knows|is|was)\b|, that it\b",
    re.IGNORECASE,
)
RULE = re.compile(
    rf"\b(?:{'|'.join(re.findall(r'^### ([A-Z][0-9]+):', (EXPLANATION / 'rules.md').read_text('utf-8'), re.MULTILINE))})\b(?!-\d)"
)
STOP = re.compile(r"(?<=[.!?])[\"')*_]*\s+|(?<=[.!?][\"')*_])\s+")


def text_of(markdown: str) -> str:
    """What of a page is prose: no code, no comments, no diagrams, no addresses."""
    prose = re.sub(
        r"^([ >]*)(```|~~~).*?^\1\2\s*$", "\n", markdown, flags=re.DOTALL | re.MULTILINE
    )
    prose = re.sub(r"<!-- figures:.*?<!-- end -->|<!--.*?-->", "\n", prose, flags=re.DOTALL)
    prose = re.sub(r"^ {4,}\S.*$", "\n", prose, flags=re.MULTILINE)
    return inline(prose)


def inline(prose: str) -> str:
    """A link is its words, and code is one word; so is a list of names."""
    prose = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", prose)
    prose = re.sub(r"``(?!`)[^\n]+?``|`[^`]+`", "code", prose)
    return re.sub(r"code(?:,\s+code)+", "code", prose)


def text_of_docstring(text: str) -> str:
    """An argument, or what is raised, begins anew."""
    return inline(re.sub(r"^ +(?=\**\w+: )", "\n", inspect.cleandoc(text), flags=re.MULTILINE))


def sentences(prose: str) -> Iterator[str]:
    """A heading, an entry of a list and a cell of a table each begin anew."""
    prose = re.sub(
        r"^\|(.*)\|\s*$",
        lambda row: re.sub(r"(?<!\\)\|", "\n\n", row[1]) + "\n\n",
        prose,
        flags=re.MULTILINE,
    )
    prose = re.sub(r"^(#+ .*)$", r"\n\1\n", prose, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n|\n\s*(?=(?:[-*]|\d+\.) )", prose):
        yield from filter(None, STOP.split(" ".join(block.split())))


def words(sentence: str) -> int:
    return len(re.findall(r"[\w'`]+(?:[-.,/=][\w'`]+)*", sentence))


@cache
def public_docstrings() -> dict[str, str]:
    """Of every name that the reference shows, and of what it has to call, by its dotted name."""
    shown = {"streamguard": tuple(streamguard.__all__), **api_pages.modules()}
    found: dict[str, str] = {}
    for module, names in shown.items():
        for name in names:
            found |= documented(f"{module}.{name}", getattr(import_module(module), name))
    return found


def documented(name: str, thing: object) -> dict[str, str]:
    if isinstance(thing, ModuleType) or not getattr(thing, "__module__", "").startswith(
        streamguard.__name__
    ):
        return {}
    found = {name: thing.__doc__ or ""} if callable(thing) else {}
    if isinstance(thing, type):
        members = {key: value for key, value in vars(thing).items() if not key.startswith("_")}
        found |= {
            f"{name}.{key}": inspect.getdoc(value) or ""
            for key, value in members.items()
            if inspect.isroutine(value) or isinstance(value, property)
        }
    return {key: text for key, text in found.items() if text}


def all_texts() -> dict[str, str]:
    pages = {str(page.relative_to(ROOT)): text_of(page.read_text("utf-8")) for page in PAGES}
    return pages | {name: text_of_docstring(text) for name, text in public_docstrings().items()}


def test_no_sentence_is_too_long():
    long = [
        f"{name}: {words(sentence)} words: {sentence[:120]}"
        for name, text in all_texts().items()
        for sentence in sentences(text)
        if words(sentence) > LONGEST
    ]
    assert long == []


def test_no_word_is_a_riddle():
    met = [
        f"{name}: {found[0]}: {sentence[:120]}"
        for name, text in all_texts().items()
        for sentence in sentences(text)
        if (found := UNUSED.search(sentence))
    ]
    assert met == []


def test_numbers_of_rules_are_for_the_explanation():
    numbered = {str(page.relative_to(ROOT)) for page in WITH_NUMBERS}
    met = [
        f"{name}: {found}"
        for name, text in all_texts().items()
        if name not in numbered
        for found in RULE.findall(text)
    ]
    assert met == []


@pytest.mark.parametrize(
    "riddle",
    [
        "It is nobody's child: no handler of yours meets it.",
        "Where that frees it not either, nothing can.",
        "This holds, for it is measured.",
    ],
)
def test_a_riddle_would_be_found(riddle: str):
    assert UNUSED.search(riddle)


def test_a_long_sentence_would_be_found():
    said = " ".join(["word"] * 41)
    (found,) = sentences(text_of(f"# A heading\n\n- {said}\n\n```sh\n{said} {said}\n```\n")[11:])
    assert words(found) == 41


def test_what_stands_behind_code_is_read():
    page = "One.\n\n    shown here\n\n```sh\nshown here\n```\n\n| a cell | another |\n|---|---|\n\nTwo.\n"
    read = [*sentences(text_of(page))]
    assert read[0] == "One."
    assert read[-1] == "Two."
    assert not any("shown" in each for each in read)
