"""README on the package index, where no file is beside it: no link there leads nowhere."""

from __future__ import annotations

import re
import runpy

import pytest

from tests.docs.blocks import ROOT

pytest.importorskip("hatchling")  # which asks it
HOOK = runpy.run_path(str(ROOT / ".ci" / "readme_for_index.py"))
for_index = HOOK["for_index"]
TEXT = (ROOT / "README.md").read_text("utf-8")
TARGET = re.compile(r"\]\(([^)\s]+)\)")
SOURCE = "https://forge.example/project"


@pytest.mark.parametrize("source", [None, SOURCE])
def test_no_link_leads_nowhere(source):
    assert TARGET.findall(TEXT)
    assert [
        t for t in TARGET.findall(for_index(TEXT, source)) if not t.startswith(("https:", "#"))
    ] == []


def test_what_leads_elsewhere_and_within_stays():
    text = "[a](https://a.example) [b](#b)"
    assert for_index(text, None) == text
    assert for_index("[`a`](b.md#c) ![d](e.png)", None) == "`a` "
    assert for_index("[`a`](b.md#c)", SOURCE) == f"[`a`]({SOURCE}/blob/HEAD/b.md#c)"
    assert for_index("![d](e.png)", SOURCE) == f"![d]({SOURCE}/blob/HEAD/e.png?raw=true)"


def test_the_hook_gives_it():
    hook = HOOK["get_metadata_hook"]()(str(ROOT), {})
    metadata = {"urls": {"Source": SOURCE}}
    hook.update(metadata)
    assert metadata["readme"] == {
        "content-type": "text/markdown",
        "text": for_index(TEXT, SOURCE),
    }
