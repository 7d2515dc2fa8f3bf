"""What Anthropic's API and Claude's command line share: the blocks of tools that the API runs itself.

Knows `_fields`; helps `anthropic` and `claude` alone.
"""

from __future__ import annotations

from typing import cast

from streamguard.backends._fields import Fields, fields_of, text_in
from streamguard.signals import WorkFinished


def is_result(kind: str) -> bool:
    """Whether a block of this type is the result of a server's tool: also of those to come."""
    return kind.endswith("_tool_result")


def result_of(block: Fields) -> WorkFinished:
    """The end that such a block tells."""
    content = block.get("content")
    failed = block.get("is_error") is True or "error_code" in fields_of(content)
    return WorkFinished(text_in(block.get("tool_use_id")) or "", failed, _outcome(content))


def _outcome(content: object) -> object:
    # Pages that a search has found are encrypted anew each time; their addresses are not.
    if not isinstance(content, list):
        return content
    pages = [text_in(fields_of(page).get("url")) for page in cast("list[object]", content)]
    return tuple(pages) if pages and all(pages) else cast("object", content)
