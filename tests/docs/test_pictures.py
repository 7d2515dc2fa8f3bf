"""docs/explanation/pictures.md: the house it draws is the house, and each picture can be read in light and dark."""

from __future__ import annotations

import re

import pytest

from tests.docs.blocks import ROOT

PICTURES = sorted((ROOT / "docs" / "images").glob("*.svg"))
OURS = [picture for picture in PICTURES if picture.stem in {"house", "idle-clock", "states"}]


def test_rooms_of_the_picture_are_rooms():
    svg = (ROOT / "docs" / "images" / "house.svg").read_text("utf-8")
    rows = re.findall(r'class="code"[^>]*>([^<]+)<', svg)
    rooms = [room for row in rows for room in row.split(" · ")]
    assert len(rooms) > 10
    home = ROOT / "streamguard"
    assert [r for r in rooms if not any(home.glob(f"{r}.py")) and not any(home.glob(r))] == []


@pytest.mark.parametrize("picture", OURS, ids=lambda picture: picture.stem)
def test_a_picture_has_words_and_a_ground_for_light_and_dark(picture):
    svg = picture.read_text("utf-8")
    assert "<title" in svg
    assert "<desc" in svg
    assert svg.count(".bg {") == 2
    assert "prefers-color-scheme: dark" in svg
