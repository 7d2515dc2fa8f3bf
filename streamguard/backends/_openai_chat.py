"""The chunks of OpenAI's chat completions, which most other APIs and litellm speak as well.

    a chunk with text, reasoning, a refusal or a tool call    Progress
    with a finish_reason                                      TurnEnded
    with usage                                                Usage
    with an error in the place of choices                     Failed
    with none of these (a role, a filter's verdict)           nothing: the model has said nothing

The last line is what makes the end certain: usage and filter results come behind the finish, and
as progress they would open another turn (T14). Tool calls open no work: the caller runs them (S4).

Counts are those of the whole call, under its chunks' id, also where a provider tells them beside each word.
"""

from __future__ import annotations

from typing import cast

from streamguard.backends._fields import (
    PROGRESS,
    Fields,
    Said,
    all_fields_of,
    numbers_in,
    text_in,
    usage_in,
)
from streamguard.backends._openai_errors import failed
from streamguard.signals import Outcome, Signal, TurnEnded

_OUTCOMES: dict[str, Outcome] = {
    "length": "incomplete",
    "content_filter": "incomplete",
    "insufficient_system_resource": "incomplete",
    "cancelled": "cancelled",
    "error": "error",
}
# litellm has Anthropic's names for what its `prompt_tokens` includes.
_INCLUDED = {
    "cache_creation_input_tokens": "cache_creation_tokens",
    "cache_read_input_tokens": "cached_tokens",
}
# What a delta has without anything being said in it.
_EMPTY = {"role", "provider_specific_fields"}


def said_by_chunk(chunk: object) -> Said:
    """What one chunk says; None is Progress."""
    fields = all_fields_of(chunk)
    choices = fields.get("choices")
    if not isinstance(choices, list):
        return failed(fields["error"]) if fields.get("error") else None
    finish = None
    progressed = False
    for each in cast("list[object]", choices):
        choice = all_fields_of(each)
        finish = choice.get("finish_reason") or finish
        progressed = progressed or _has_substance(choice)
    usage = fields.get("usage")
    if progressed and finish is None and usage is None:
        return None
    said: list[Signal] = [PROGRESS] if progressed else []
    if error := fields.get("error"):
        said.append(failed(error))
    said += usage_in(_plain(usage), call=fields.get("id"))
    if reason := text_in(finish):
        said.append(TurnEnded(_OUTCOMES.get(reason, "success"), reason))
    return said


def _plain(usage: object) -> Fields:
    """The counts; those of the cache that the prompt's includes are not named as if they came on top."""
    numbers = numbers_in(all_fields_of(usage))
    if "prompt_tokens" not in numbers:
        return numbers
    return {_INCLUDED.get(name, name): number for name, number in numbers.items()}


def _has_substance(choice: Fields) -> bool:
    """Whether the model has said something."""
    if (delta := choice.get("delta")) is None:
        return bool(choice.get("text"))  # the older completions
    said = all_fields_of(delta)
    if said.get("content"):
        return True
    return any(value and name not in _EMPTY for name, value in said.items())
