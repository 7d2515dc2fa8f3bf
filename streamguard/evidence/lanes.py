"""`Lane`: what one stream did, in so few lines that a picture can be drawn of a million messages.

What is counted is counted in *stretches*: how many of a name, from when to when. What lasts is a
*span*, what happens a *mark*. A stretch is open for a while that doubles as the stream gets older
(a 256th of its age, a quarter of a second at least), so a lane has a thousand or two of them however
many messages come; and spans and marks beyond the first few hundred are counted in stretches, too,
unless they last longer than that while. Nothing is ever left out of a count.

A thing may be told again when more is known of it: of what has the same `id`, within a stream and
its writer, the latest holds. Knows nothing of events or files.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

Line: TypeAlias = dict[str, Any]
Count: TypeAlias = tuple[str, str, str, int, int, float, float, float]

SHORTEST: Final = 0.25  # seconds: what a person can tell apart in a picture of a minute
PER_AGE: Final = 256
SPANS: Final = 256  # of each sort that are told one by one, however short
LONG_SPANS: Final = 4096  # … and at most, however long
MARKS: Final = 64
NAMES: Final = 40
OTHERS: Final = "(others)"
LONGEST_NAME: Final = 200
PROVISIONAL: Final = 2  # lines of a stretch before its last one, lest a crash take it with it

_NEVER: Final = -math.inf


class Stretch:
    """So many of one name, from `first` to `last`; `busy` seconds if they lasted.

    It takes what comes before `until`: `full_at`, or never while the lane wants to hear of it.
    """

    __slots__ = (
        "busy",
        "first",
        "full_at",
        "last",
        "n",
        "number",
        "provisional",
        "seen",
        "told",
        "until",
    )

    def __init__(self, number: int, first: float, full_at: float) -> None:
        self.number = number
        self.first = self.last = first
        self.full_at = self.until = full_at
        self.n = self.told = self.seen = self.provisional = 0
        self.busy = 0.0


class Span:
    """What began, and may be over."""

    __slots__ = ("facts", "first", "is_told", "name", "number")

    def __init__(self, number: int, name: str, first: float, facts: Line) -> None:
        self.number = number
        self.name = name
        self.first = first
        self.facts = facts
        self.is_told = False


class Lane:
    """The stretches, spans and marks of one stream, and the lines that tell of them."""

    def __init__(self, stream: str, at: float) -> None:
        self.stream = stream[:LONGEST_NAME]
        self.since = self.latest = at
        self.stretches: dict[tuple[str, str], Stretch] = {}
        self._spans: dict[tuple[str, str], Span] = {}
        self._lines: list[Line] = []
        self._counts: list[Count] = []
        self._names: dict[str, set[str]] = {}
        self._told: dict[str, int] = {}
        self._marked: dict[str, int] = {}
        self._numbers = 0

    def resolution(self) -> float:
        """What is shorter than this cannot be seen in a picture of the whole lane."""
        age = self.latest - self.since
        if age <= SHORTEST * PER_AGE:
            return SHORTEST
        return float(SHORTEST * 2 ** math.ceil(math.log2(age / (SHORTEST * PER_AGE))))

    # -- stretches -----------------------------------------------------------------------

    def count(
        self, of: str, name: str, first: float, last: float, *, n: int = 1, busy: float = 0.0
    ) -> Stretch:
        """Count `n` more of `name`."""
        self.latest = max(self.latest, last)
        key = of, self._known(of, name)
        stretch = self.stretches.get(key)
        if stretch is None or last >= stretch.full_at:
            if stretch is not None:
                self._tell_stretch(*key, stretch)
            stretch = Stretch(self._next_number(), first, last + self.resolution())
            self.stretches[key] = stretch
        stretch.until = stretch.full_at
        stretch.last = max(stretch.last, last)
        stretch.n += n
        stretch.busy += busy
        return stretch

    def listen(self) -> None:
        """Let the next message come by way of `count`, whoever counts by himself."""
        for (of, _), stretch in self.stretches.items():
            if of == "message":
                stretch.until = _NEVER

    def _known(self, of: str, name: str) -> str:
        names = self._names.setdefault(of, set())
        name = name[:LONGEST_NAME]
        if name not in names:
            if len(names) >= NAMES:
                return OTHERS
            names.add(name)
        return name

    def _tell_stretch(self, of: str, name: str, stretch: Stretch) -> None:
        if stretch.n == stretch.told:
            return
        stretch.told = stretch.n
        first, last, busy = map(_rounded, (stretch.first, stretch.last, stretch.busy))
        self._counts.append((self.stream, of, name, stretch.number, stretch.n, first, last, busy))

    # -- spans ---------------------------------------------------------------------------

    def begin(self, of: str, key: str, name: str, at: float, **facts: Any) -> None:
        """Something begins. If it had begun already, only what is known of it changes."""
        self.latest = max(self.latest, at)
        if (span := self._spans.get((of, key))) is not None:
            if span.facts != facts:
                span.facts, span.is_told = facts, False
            return
        self._spans[of, key] = Span(self._next_number(), self._known(of, name), at, facts)

    def end(self, of: str, key: str, at: float, **facts: Any) -> bool:
        """It is over, if it had begun: True."""
        self.latest = max(self.latest, at)
        span = self._spans.pop((of, key), None)
        if span is None:
            return False
        last = max(at, span.first)
        if span.is_told or self._is_worth_a_line(of, last - span.first):
            span.facts |= facts
            self._tell_span(of, span, last)
        else:
            self.count(of, span.name, span.first, last, busy=last - span.first)
        return True

    def end_all(self, at: float, *, but: tuple[str, ...] = (), **facts: Any) -> None:
        """Whatever lasts is over, but for these sorts."""
        for of, key in list(self._spans):
            if of not in but:
                self.end(of, key, at, **facts)

    def _is_worth_a_line(self, of: str, lasted: float) -> bool:
        told = self._told.get(of, 0)
        return told < SPANS or (told < LONG_SPANS and lasted >= self.resolution())

    def _tell_span(self, of: str, span: Span, to: float | None = None) -> None:
        if not span.is_told:
            self._told[of] = self._told.get(of, 0) + 1
            span.is_told = True
        line = self._line("span", of=of, id=span.number, name=span.name, **span.facts)
        line["from_at"] = _rounded(span.first)
        if to is not None:
            line["at"] = _rounded(to)
        self._lines.append(line)

    # -- marks ---------------------------------------------------------------------------

    def mark(self, of: str, at: float, **facts: Any) -> None:
        """Something happened."""
        self.latest = max(self.latest, at)
        self._marked[of] = self._marked.get(of, 0) + 1
        if self._marked[of] <= MARKS:
            self._lines.append(self._line("mark", of=of, at=_rounded(at), **facts))
        else:
            self.count("mark", of, at, at)

    # -- lines ---------------------------------------------------------------------------

    def take(self, *, last: bool) -> tuple[list[Line], list[Count]]:
        """What was not told yet. `last`: whatever is still open is told as it stands."""
        for (of, name), stretch in self.stretches.items():
            self.latest = max(self.latest, stretch.last)
            if stretch.n == stretch.told:
                continue
            if last or (stretch.seen == stretch.n and stretch.provisional < PROVISIONAL):
                stretch.provisional += 1
                self._tell_stretch(of, name, stretch)
            stretch.seen = stretch.n
        for (of, _), span in self._spans.items():
            if not span.is_told and self._is_worth_a_line(of, self.latest - span.first):
                self._tell_span(of, span)
        taken = self._lines, self._counts
        self._lines, self._counts = [], []
        return taken

    @property
    def is_told(self) -> bool:
        """Whether there is nothing to take until more happens."""
        return all(stretch.n == stretch.told for stretch in self.stretches.values()) and all(
            span.is_told for span in self._spans.values()
        )

    def settle(self) -> None:
        """The stream is over, maybe for ever: tell every count."""
        for (of, name), stretch in self.stretches.items():
            self._tell_stretch(of, name, stretch)

    def _next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _line(self, kind: str, **facts: Any) -> Line:
        return {"kind": kind, "stream": self.stream, **facts}


def _rounded(at: float) -> float:
    return round(at, 3)
