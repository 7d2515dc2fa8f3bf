"""What an agent's own command line says about its output, before it has written any.

Imports nothing: the command's start pays for it.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence

_JSON_WORDS = ("stream-json", "--json", "--experimental-json", "--output-format=stream-json")
_FORMAT_OPTIONS = ("--output-format", "-o")
_AGENTS = ("claude", "codex", "opencode", "copilot")
_FORMAT_OF_LINES = {"opencode": "--format", "copilot": "--output-format"}  # where "json" is lines


def speaks_json(command: Sequence[str]) -> bool:
    """Whether it was told to write a JSON line for each event."""
    if any(word in _JSON_WORDS for word in command):
        return True
    told = _FORMAT_OF_LINES.get(_agent_in(command) or "")
    return told is not None and _value(command, (told,)) == "json"


def stays_open(command: Sequence[str]) -> bool:
    """Whether it waits for further prompts after a result, so that staying is no hang."""
    return _value(command, ("--input-format",)) == "stream-json"


def silent_by_design(command: Sequence[str]) -> str | None:
    """What to add to a command that says nothing until it is done; None if it does say."""
    if speaks_json(command):
        return None
    agent, words = _agent_in(command), set(command)
    if agent == "claude" and ({"-p", "--print"} & words):
        return "--output-format stream-json --verbose"
    if agent == "codex" and ({"exec", "e"} & words):
        return "--json"
    if agent == "opencode" and "run" in words:
        return "--format json"
    if agent == "copilot" and ({"-p", "--prompt"} & words):
        return "--output-format json"
    if _value(command, _FORMAT_OPTIONS) == "json":
        return "--output-format stream-json"
    return None


def _agent_in(command: Sequence[str]) -> str | None:
    """The agent's name, wherever it is among the words: there may be a wrapper in front."""
    names = {word.rpartition("/")[2] for word in command}
    return next((agent for agent in _AGENTS if agent in names), None)


def _value(command: Sequence[str], options: Sequence[str]) -> str | None:
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, equals, value = word.partition("=")
        if name in options:
            return value if equals else following
    return None
