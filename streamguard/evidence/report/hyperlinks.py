"""Where a page's links lead from: the page's own place, wherever that is.

A path in a link is relative, so that a run and its page can be moved together, and percent-encoded.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote


def base_of(folder: Path | None, page: Path | None) -> str:
    """How links to what is in `folder` begin in `page`; None: in the folder itself."""
    if folder is None or page is None:
        return ""
    way = os.path.relpath(folder, page.parent.resolve())
    return "" if way == os.curdir else f"{encoded(way)}/"


def absolute_base_of(folder: Path | None) -> str:
    """How they begin where nobody knows what becomes of the page."""
    return "" if folder is None else f"{folder.as_uri()}/"


def encoded(path: str) -> str:
    """A relative path as a link has it."""
    return quote(os.fsencode(path))
