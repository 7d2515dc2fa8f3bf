"""Redaction: what looks like a secret does not reach a transcript (E3).

By the name of a field, by the shape of known credentials, by assignments in text, and by the values
of this process's own environment variables whose names are those of secrets. It errs on the side of
hiding. Pure, but for the environment, which is read when a `Redaction` is made.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Mapping
from typing import Final

REDACTED: Final = "[redacted]"
# A text is cut only after it was looked at that much further, so that no half of a secret is left.
MARGIN: Final = 512
SHORTEST: Final = 8

_NAME: Final = re.compile(
    r"(?:^|[^a-z])(?:x-)?(?:api[_-]?key|secret(?:[_-]?(?:access[_-]?)?key)?|(?:access|auth|bearer|"
    r"refresh|id|oauth|csrf)?[_-]?token|passw(?:or)?d|pwd|passphrase|authorization|proxy-authorization|"
    r"(?:set-)?cookie|credentials?|(?:private|access|signing|encryption)[_-]?key)$"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# In code and in JSON within JSON; counts such as `tokens: 1234` are none.
_ASSIGNED: Final = (
    r"((?:api_?-?key|access_?-?key|secret|token|passw(?:or)?d)[A-Z_]{0,32}+"
    r"\\?[\"']?\s{0,4}[=:]\s{0,4}\\?[\"']?)(?=[^\s\"'\\]*[A-Z_-])[^\s\"'\\,;]{6,}"
)
# (what a text must contain to be looked at, the pattern, what goes in its place)
_SHAPES: Final[tuple[tuple[str, re.Pattern[str], str], ...]] = tuple(
    (needle.lower(), re.compile(pattern, flags), put)
    for needles, pattern, flags, put in (
        (("sk-",), r"\bsk-[A-Za-z0-9_-]{12,}", 0, REDACTED),
        (("k_live_", "k_test_"), r"\b[spr]k_(?:live|test)_[A-Za-z0-9]{8,}", 0, REDACTED),
        (("gh",), r"\b(?:gh[opsur]_[A-Za-z0-9]{16,}|github_pat_\w{16,})", 0, REDACTED),
        (("glpat-",), r"\bglpat-[\w-]{16,}", 0, REDACTED),
        (("xox", "xapp-"), r"\b(?:xox[abeoprs]|xapp)-[\w-]{10,}", 0, REDACTED),
        (("AKIA", "ASIA"), r"\bA[KS]IA[0-9A-Z]{16}\b", 0, REDACTED),
        (("AIza",), r"\bAIza[\w-]{30,}", 0, REDACTED),
        (("hf_", "npm_"), r"\b(?:hf|npm)_[A-Za-z0-9]{20,}", 0, REDACTED),
        (("eyJ",), r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?", 0, REDACTED),
        (
            ("PRIVATE KEY",),
            r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
            re.DOTALL,
            REDACTED,
        ),
        (("://",), r"://([^/\s:@]{0,64}):[^/\s@]{1,256}@", 0, rf"://\1:{REDACTED}@"),
        (("://",), r"://[^/\s:@]{16,256}@", 0, f"://{REDACTED}@"),
        (
            ("bearer", "basic"),
            r"\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}",
            re.IGNORECASE,
            rf"\1 {REDACTED}",
        ),
        (("key", "secret", "token", "passw"), _ASSIGNED, re.IGNORECASE, rf"\1{REDACTED}"),
    )
    for needle in needles
)


# A line of a key's body, whose first line came before.
_KEY_BODY: Final = re.compile(r"\s*(?:[A-Za-z0-9+/=]+|(?:Proc-Type|DEK-Info): .*)?\s*")
_KEY_BEGINS: Final = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_KEY_ENDS: Final = re.compile(r"-----END [A-Z ]*PRIVATE KEY-----")


def is_secret(name: str) -> bool:
    """Whether a field of that name holds a secret."""
    return len(name) <= 64 and _is_secret(name)


@functools.lru_cache(1024)
def _is_secret(name: str) -> bool:
    return _NAME.search(_CAMEL.sub("_", name).lower()) is not None


class Redaction:
    """Takes secrets out of text. `more`: called with what is left, for what only the user knows."""

    def __init__(
        self,
        more: Callable[[str], str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        environment = os.environ if environment is None else environment
        values = [
            value
            for name, value in environment.items()
            if len(value) >= SHORTEST and is_secret(name)
        ]
        # Also as they are written within JSON; the longest first, for one may be a part of another.
        values += [json.dumps(value, ensure_ascii=False)[1:-1] for value in values]
        self._values = sorted(set(values), key=len, reverse=True)
        self._more = more

    def __call__(self, text: str) -> str:
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
            elif len(value) > MARGIN and (at := text.find(value[:MARGIN])) >= 0:
                text = text[:at] + REDACTED  # it is cut where nobody looks any more
        lowered = text.lower()
        for needle, pattern, put in _SHAPES:
            if needle in lowered:
                text = pattern.sub(put, text)
        return self._more(text) if self._more is not None else text


class KeyLines:
    """Knows the lines of a private key where each comes by itself."""

    def __init__(self) -> None:
        self._is_in_key = False

    def has(self, message: object) -> bool:
        """Whether `message` is a line of a key whose first line came before."""
        if not isinstance(message, str):
            self._is_in_key = False
            return False
        if self._is_in_key:
            is_end = _KEY_ENDS.search(message) is not None
            self._is_in_key = not is_end and _KEY_BODY.fullmatch(message) is not None
            if is_end or self._is_in_key:
                return True
        if "PRIVATE KEY" in message:
            # What follows the last end, if there is one.
            self._is_in_key = _KEY_BEGINS.search(_KEY_ENDS.split(message)[-1]) is not None
        return False
