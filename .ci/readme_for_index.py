"""README as the package index shows it, which has no file beside it: hatchling asks this when it builds.

A link to a file of ours leads to the repository, if `[project.urls]` in pyproject.toml has a `Source`, and is its words
alone otherwise. So is a picture left out. What leads elsewhere, and within the page, stays.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)")


def for_index(text: str, source: str | None) -> str:
    """The text with links into the repository `source`, or without those that would lead nowhere."""

    def link(found: re.Match[str]) -> str:
        mark, words, target = found.groups()
        if source is None:
            return "" if mark else words
        return f"{mark}[{words}]({source}/blob/HEAD/{target}{'?raw=true' if mark else ''})"

    return LINK.sub(link, text)


class ReadmeForIndex(MetadataHookInterface):
    """Gives the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read README.md, and say it as the index can show it."""
        text = for_index(
            (Path(self.root) / "README.md").read_text("utf-8"),
            metadata.get("urls", {}).get("Source"),
        )
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def get_metadata_hook() -> type[MetadataHookInterface]:
    """What hatchling looks for."""
    return ReadmeForIndex
