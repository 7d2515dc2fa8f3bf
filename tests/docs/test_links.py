"""Every relative link of README, CONTRIBUTING, CHANGELOG and docs leads to a file that is there, and to a heading in it.

Without a network, and without mkdocs, which checks the site's own links when it is built.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, ROOT

CHECKED = [*PAGES, ROOT / "CHANGELOG.md"]
FENCED = re.compile(r"^( *)(```+).*?^\1\2$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?: \"[^\"]*\")?\)|^\[[^\]]+\]: (\S+)", re.MULTILINE)
HTML = re.compile(r"(?:href|src|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def prose_of(page: Path) -> str:
    """Without what is in fences and in backticks: a subscript followed by a call is no link."""
    return re.sub(r"`[^`\n]+`", "``", FENCED.sub("", page.read_text("utf-8")))


def links_of(page: Path) -> list[str]:
    text = prose_of(page)
    found = [first or second for first, second in LINK.findall(text)] + HTML.findall(text)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """As the usual hosts, and our site, name headings."""
    text = FENCED.sub("", page.read_text("utf-8"))
    named = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"|\{#([\w-]+)\}", text))
    found = {name for names in named for name in names if name}
    # A page of the API: its names are headings.
    found |= set(re.findall(r"^::: ([\w.]+)", text, re.MULTILINE))
    for heading in HEADING.findall(text):
        slug = slug_of(heading)
        number = next(n for n in range(99) if (f"{slug}-{n}" if n else slug) not in found)
        found.add(f"{slug}-{number}" if number else slug)
    return frozenset(found)


def slug_of(heading: str) -> str:
    words = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    words = re.sub(r"[*`]|(?<!\w)_|_(?!\w)", "", words)
    return re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words.lower()))


def trouble_with(page: Path, link: str) -> str:
    target, _, anchor = link.partition("#")
    file = (page.parent / target).resolve() if target else page
    if not file.exists():
        return f"{link}: there is no such file"
    if file.is_dir():
        return (
            ""
            if page.parent == ROOT or not file.is_relative_to(ROOT / "docs")
            else f"{link}: a folder; link to a page"
        )
    if anchor and file.suffix == ".md" and anchor not in anchors_of(file):
        return f"{link}: no heading of that name"
    return ""


@pytest.mark.parametrize("page", CHECKED, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page):
    found = [trouble_with(page, link) for link in links_of(page)]
    assert [trouble for trouble in found if trouble] == []


def test_links_are_found():
    assert sum(len(links_of(page)) for page in CHECKED) > 100
    readme = ROOT / "README.md"
    assert trouble_with(readme, "docs/nowhere.md")
    assert trouble_with(readme, "CONTRIBUTING.md#nowhere")
    assert not trouble_with(readme, "CONTRIBUTING.md#the-inner-loop")


@pytest.mark.parametrize(
    ("heading", "slug"),
    [("Where is ...?", "where-is-"), ("`a_b`, or *c*", "a_b-or-c"), ("A: b - c", "a-b---c")],
)
def test_headings_are_named_as_hosts_do_it(heading, slug):
    assert slug_of(heading) == slug
