"""What page and drawing share: the files of this package, hatches and the legend."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import Final

# What every page of ours has in it.
OURS: Final = '<meta name="generator" content="streamguard'
HATCHES: Final = (
    '<defs><pattern id="hatch-hold" width="6" height="6" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(45)"><line class="hatch-hold" x1="0" y1="0" x2="0" y2="6"/></pattern>'
    '<pattern id="hatch-teardown" width="5" height="5" patternUnits="userSpaceOnUse"'
    ' patternTransform="rotate(-45)"><line class="hatch-teardown" x1="0" y1="0" x2="0" y2="5"/>'
    '</pattern><pattern id="hatch-backoff" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<line class="hatch-backoff" x1="0" y1="3" x2="3" y2="3"/></pattern></defs>'
)
LEGEND: Final = (
    ('<path class="messages" d="M2 13v-6h4v6zM8 13v-11h4v11zM14 13v-4h4v4z"/>', "messages"),
    ('<path class="pings" d="M2 13v-4h4v4zM8 13v-4h4v4zM14 13v-4h4v4z"/>', "pings"),
    ('<rect class="work" x="1" y="2" width="20" height="10" rx="2"/>', "tool in flight"),
    ('<rect class="hold" x="0" y="1" width="22" height="12"/>', "held"),
    ('<rect class="idle" x="0" y="1" width="22" height="12"/>', "silence"),
    (
        '<line class="verdict" x1="8" x2="8" y1="0" y2="13"/><path class="flag" d="M8 1h9l-3 4 3 4h-9z"/>',
        "limit reached",
    ),
    ('<rect class="teardown" x="0" y="1" width="22" height="12"/>', "teardown"),
    ('<rect class="backoff" x="0" y="1" width="22" height="12"/>', "pause before a retry"),
    ('<line class="turn" x1="11" x2="11" y1="3" y2="13"/>', "turn ended"),
    ('<line class="concern" x1="11" x2="11" y1="0" y2="13"/>', "concern"),
    ('<line class="trouble" x1="11" x2="11" y1="0" y2="13"/>', "trouble"),
)


def packaged(name: str) -> str:
    """The text of a file beside this one."""
    return resources.files("streamguard.evidence.report").joinpath(name).read_text("utf-8")


def hash_of(text: str) -> str:
    """What a content security policy calls an inline style or script by."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
