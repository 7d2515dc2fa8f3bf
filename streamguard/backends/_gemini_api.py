"""What google-genai and ADK share: spelling, and how a model's answer finished.

Objects say `finish_reason`, lines of the API (and of ADK's own server) say `finishReason`. Counts are those
of one call so far, under names of their own, which are told with those that all backends have.
Knows `signals` and the other helpers; helps `google_genai` and `google_adk` alone.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from streamguard.backends._fields import (
    Fields,
    class_of_status,
    fields_of,
    numbers_in,
    summed,
    text_in,
)
from streamguard.retry import classes
from streamguard.signals import Failed, Outcome, Usage, UsageSpan

# Ends that leave an answer of use, or none that is wrong. Every other word is a failure.
_OUTCOMES: dict[str, Outcome] = {
    "STOP": "success",
    "MAX_TOKENS": "incomplete",
    "CONTINUATION": "incomplete",
}
_UNSPECIFIED = "FINISH_REASON_UNSPECIFIED"
# What the model did wrong and may do right the next time. The rest (safety, recitation, a
# blocked prompt) is the request's and stays.
_THE_MODELS = {"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "NO_IMAGE", "IMAGE_OTHER"}
_REFUSAL = re.compile(r"(?!OTHER$)[A-Z][A-Z_]+")


def word_in(value: object) -> str | None:
    """A text, or an enum's value."""
    return text_in(getattr(value, "value", value))


def finish_of(fields: Fields) -> str | None:
    """Why a candidate finished; None if it has not."""
    if (reason := fields.get("finish_reason") or fields.get("finishReason")) is None:
        return None
    word = word_in(reason)
    return None if word == _UNSPECIFIED else word


def outcome_of(reason: str) -> Outcome:
    """What a finish reason makes of the turn."""
    return _OUTCOMES.get(reason, "error")


@lru_cache(maxsize=64)
def failure_of(code: str) -> Failed:
    """The failure that a finish reason, a block reason or an error code names."""
    if code in _THE_MODELS:
        error_class = "server"
    elif code.isdecimal() and code.isascii() and len(code) == 3:
        error_class = class_of_status(float(code))
    else:
        found = classes.class_of_word(code) or classes.class_of_name(code)
        # Gemini's own words for a refusal; a class's name is an exception of the user's tool.
        error_class = found or ("validation" if _REFUSAL.fullmatch(code) else "unknown")
    return Failed(error_class, detail=code[:80])


def says_something(content: object) -> bool:
    """Whether any part of a content says anything."""
    parts: Any = fields_of(content).get("parts")
    if isinstance(parts, list):
        for part in parts:  # pyright: ignore[reportUnknownVariableType]
            if _is_substance(fields_of(part)):  # pyright: ignore[reportUnknownArgumentType]
                return True
    return False


def parts_of(content: object) -> list[Fields]:
    """The parts of a content."""
    parts: Any = fields_of(content).get("parts")
    return [fields_of(part) for part in parts] if isinstance(parts, list) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]


def _is_substance(part: Fields) -> bool:
    """Whether a part says anything: all but a text with nothing in it."""
    text = part.get("text")
    if isinstance(text, str) and text.strip():
        return True
    return any(value and name not in _NO_SUBSTANCE for name, value in part.items())


_NO_SUBSTANCE = {"text", "thought", "thought_signature", "thoughtSignature"}


def used(counts: object, call: object, otherwise: UsageSpan) -> tuple[Usage, ...]:
    """The counts of a call so far; what they stand for `otherwise`, without an id of the call."""
    theirs = numbers_in(counts)
    if not theirs:
        return ()
    ours = {
        name: total
        for name, (snake, camel) in _NAMES.items()
        if (total := summed(theirs, *snake, *camel)) is not None
    }
    known = text_in(call) or ""
    return (Usage({**theirs, **ours}, "call" if known else otherwise, known),)


# What the cache has is part of the prompt; thoughts are told beside the answer.
_NAMES = {
    "input_tokens": (
        ("prompt_token_count", "tool_use_prompt_token_count"),
        ("promptTokenCount", "toolUsePromptTokenCount"),
    ),
    "output_tokens": (
        ("candidates_token_count", "thoughts_token_count"),
        ("candidatesTokenCount", "thoughtsTokenCount"),
    ),
    "total_tokens": (("total_token_count",), ("totalTokenCount",)),
}
