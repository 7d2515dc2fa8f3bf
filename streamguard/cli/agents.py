"""What an agent's own command line says about its output, before it has written any.

Imports nothing: the command's start pays for it.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON_WORDS = ("stream-json", "--json", "--experimental-json", "--output-format=stream-json")
_FORMAT_OPTIONS = ("--output-format", "-o")


def speaks_json(command: Sequence[str]) -> bool:
    """Whether it was told to write a JSON line for each event."""
    return any(word in _JSON_WORDS for word in command)


def stays_open(command: Sequence[str]) -> bool:
    """Whether it waits for further prompts after a result, so that staying is no hang."""
    return _value(command, ("--input-format",)) == "stream-json"


def silent_by_design(command: Sequence[str]) -> str | None:
    """What to add to a command that says nothing until it is done; None if it does say."""
    if speaks_json(command):
        return None
    names = [word.rpartition("/")[2] for word in command]
    if "claude" in names and ({"-p", "--print"} & set(command)):
        return "--output-format stream-json --verbose"
    if "codex" in names and ({"exec", "e"} & set(command)):
        return "--json"
    if _value(command, _FORMAT_OPTIONS) == "json":
        return "--output-format stream-json"
    return None


def _value(command: Sequence[str], options: Sequence[str]) -> str | None:
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else following
    return None
