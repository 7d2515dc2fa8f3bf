"""The site's navigation has every page; what builds it is `bash .ci/run docs`."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT

NAV = (ROOT / "mkdocs.yml").read_text("utf-8").partition("\nnav:\n")[2]
LISTED = re.findall(r"^ *- (?:[^:\n]+: )?([\w./-]+\.md)$", NAV, re.MULTILINE)
PAGES = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}


def test_every_page_is_in_the_navigation_once():
    """A page that is new: add it to `nav` in mkdocs.yml."""
    listed = [page for page in LISTED if not page.startswith("project/")]
    of_modules = {page for page in PAGES if page.startswith("reference/api/streamguard.")}
    assert sorted(listed) == sorted(PAGES - of_modules)


def test_pages_of_the_project_are_there():
    project = [page.removeprefix("project/") for page in LISTED if page.startswith("project/")]
    assert project
    assert all((ROOT / page).is_file() for page in project)
