"""What a model server answers, and how it misbehaves: small values, made with `+` and `|`.

    text("Hello, ", "world")                    # a turn; one event for each piece
    text("Let me look. ") + tool("Bash", {"command": "ls"})   # ends with a tool call
    text("Hello") | stall()                     # not one byte comes
    text("Hello") | stall(after=0)              # the headers come, and nothing else
    text("a", "b") | stall(after=3)             # three events come, and nothing else
    text("Hello") | pings(after=1)              # an event, then pings for ever
    text("Hello") | reset(after=2) | drip(0.2)  # as many as there are
    status(429, retry_after=2)                  # an HTTP error
    rest()                                      # the rest of a stored response (OpenAI)

Positions are numbers of events of the API in question, pings left out; a position behind the last
event is behind the last event: `stall(after=LAST)` sends all and ends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

BEFORE_HEADERS = -1
LAST = 1_000_000


@dataclass(frozen=True)
class Text:
    """What the model says, a delta for each piece."""

    pieces: tuple[str, ...]

    @property
    def whole(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class ToolCall:
    """What the model asks for. Without an id the server makes one."""

    name: str
    input: dict[str, Any]
    id: str | None = None


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong before the event number `after`."""

    kind: str
    after: int = LAST
    every: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class Reply:
    """The answer to one request."""

    parts: tuple[Text | ToolCall, ...] = ()
    faults: tuple[Fault, ...] = ()
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    is_rest: bool = False

    def __add__(self, other: Reply) -> Reply:
        return replace(self, parts=self.parts + other.parts, faults=self.faults + other.faults)

    def __or__(self, fault: Fault) -> Reply:
        return replace(self, faults=(*self.faults, fault))

    @property
    def calls_a_tool(self) -> bool:
        return any(isinstance(part, ToolCall) for part in self.parts)

    @property
    def text(self) -> str:
        return "".join(part.whole for part in self.parts if isinstance(part, Text))

    def at(self, position: int) -> list[Fault]:
        """What goes wrong before the event number `position`."""
        return [fault for fault in self.faults if fault.after == position]


# -- answers -------------------------------------------------------------------------------------


def text(*pieces: str) -> Reply:
    """A turn in which the model says `pieces`."""
    return Reply((Text(pieces),))


def tool(name: str, input: dict[str, Any], id: str | None = None) -> Reply:  # noqa: A002 - the APIs' words
    """A turn that ends with a tool call; the request with its result gets the next answer."""
    return Reply((ToolCall(name, input, id),))


def status(code: int, *, retry_after: float | None = None) -> Reply:
    """An HTTP error, in the words of the API that was asked."""
    headers = {} if retry_after is None else {"retry-after": f"{retry_after:g}"}
    return Reply(status=code, headers=headers)


def rest() -> Reply:
    """For a GET of a stored response: what comes after `starting_after`. (The default.)"""
    return Reply(is_rest=True)


# -- misbehaviours -------------------------------------------------------------------------------


def stall(after: int = BEFORE_HEADERS) -> Fault:
    """Nothing comes until the test lets go (`server.release()`) or the client leaves."""
    return Fault("stall", after)


def pings(after: int = 0, every: float = 0.1) -> Fault:
    """Only keep-alives come until the test lets go or the client leaves."""
    return Fault("pings", after, every)


def drip(every: float) -> Fault:
    """Each event comes so many seconds after the one before."""
    return Fault("drip", every=every)


def reset(after: int = BEFORE_HEADERS) -> Fault:
    """The connection is reset (RST)."""
    return Fault("reset", after)


def cut(after: int) -> Fault:
    """The connection ends (FIN) in the midst of the body."""
    return Fault("cut", after)


def end(after: int) -> Fault:
    """The body ends, well-formed, although events are missing."""
    return Fault("end", after)


def error(after: int, kind: str = "overloaded_error") -> Fault:
    """The stream says that an error has happened, and ends."""
    return Fault("error", after, error=kind)
