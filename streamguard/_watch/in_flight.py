"""Work in flight: whose allowance is over next, who is listened for, and who began what.

However much is in flight, a fact and a question about one piece of it cost the same: what comes first is kept in
order, and who began whom is looked up. Told facts by the watch, which alone knows what time means for them;
decides nothing. Pure; imports windows, ends and the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from streamguard._watch.ends import EndsByKey, next_number
from streamguard._watch.windows import Due, Noticed, end_of

if TYPE_CHECKING:
    from streamguard.signals import WorkScope

_NONE: Final[EndsByKey[str]] = EndsByKey()  # never changed: most streams need no more


@dataclass(slots=True)
class Work:
    """A piece of work in flight. It pauses `idle` until its allowance is over."""

    name: str
    since: float
    allowance: float
    background: bool
    scope: WorkScope = "tool"
    parent: str | None = None
    # Where it is listened for: how long it may be silent, and how long all had been waited for in vain
    # when it was heard last (None: it has not spoken). Work that it has begun speaks for it.
    quiet: float | None = None
    heard: float | None = None
    told: bool = False
    number: int = 0  # in the order of their beginning
    # Each of its clocks that was found to be over.
    noticed: Noticed | None = None
    quiet_noticed: Noticed | None = None

    @property
    def until(self) -> float:
        """When its allowance ends."""
        return self.since + self.allowance


class InFlight:
    """Work in flight, by id."""

    __slots__ = (
        "_allowed",
        "_begun_by",
        "_heirs",
        "_moved",
        "_of_turn",
        "_quiet",
        "_quiet_moved",
        "listened",
        "work",
    )

    def __init__(self) -> None:
        # As it began. Changed in place: another thread takes a copy before it goes through it.
        self.work: dict[str, Work] = {}
        self._of_turn: dict[str, None] = {}
        # The allowances that run, by their ends; and those that a stall has moved, by where to (T4).
        self._allowed: EndsByKey[str] = EndsByKey()
        self._moved: EndsByKey[str] = _NONE
        self.listened = 0  # how many have a silence of their own: also that is told, or paused
        self._quiet: EndsByKey[str] = _NONE
        self._quiet_moved: EndsByKey[str] = _NONE
        self._begun_by: dict[str, int] = {}  # how much
        self._heirs: dict[str, EndsByKey[str]] = {}  # … of it in the background

    # -- facts ---------------------------------------------------------------------------

    def begin(self, id_: str, work: Work) -> None:
        """It is in flight, and nothing else under that id."""
        work.number = next_number()
        self.work[id_] = work
        self._allowed.put(id_, work.until, work.number)
        if not work.background:
            self._of_turn[id_] = None
        if (parent := work.parent) is None:
            return
        self._begun_by[parent] = self._begun_by.get(parent, 0) + 1
        self._quiet.drop(parent)
        self._quiet_moved.drop(parent)
        if work.background:
            self._inherit(id_, work)

    def outlive_turn(self, id_: str) -> None:
        """It is in the background, after all."""
        work = self.work[id_]
        if not work.background:
            work.background = True
            del self._of_turn[id_]
            self._inherit(id_, work)

    def _inherit(self, id_: str, work: Work) -> None:
        if work.parent is not None:
            self._heirs.setdefault(work.parent, EndsByKey()).put(id_, work.number, work.number)

    def end(self, id_: str, attended: float) -> bool:
        """It is in flight no more, if it was; what began it has shown a sign thereby."""
        if (work := self.work.pop(id_, None)) is None:
            return False
        self._allowed.drop(id_)
        self._moved.drop(id_)
        if work.heard is not None:
            self.listened -= 1
            self._quiet.drop(id_)
            self._quiet_moved.drop(id_)
        if not work.background:
            del self._of_turn[id_]
        if (parent := work.parent) is not None:
            self._leave(parent, id_)
            self.hear(parent, attended)
        return True

    def _leave(self, parent: str, id_: str) -> None:
        self._begun_by[parent] -= 1
        if not self._begun_by[parent]:
            del self._begun_by[parent]
        if (heirs := self._heirs.get(parent)) is not None:
            heirs.drop(id_)
            if not heirs:
                del self._heirs[parent]

    def lapse(self, at: float) -> None:
        """What is over at that instant pauses nothing any more (T5)."""
        self._allowed.over(at)
        for id_ in [id_ for _, _, id_ in self._moved if self.work[id_].until <= at]:
            self._moved.drop(id_)

    def hear(self, named: str, attended: float) -> None:
        """It has shown a sign of its own (B1)."""
        id_ = self.goes_on_as(named)
        work = self.work.get(id_)
        if work is not None and work.quiet is not None:
            self.listen(id_, work.quiet, attended)

    def listen(self, id_: str, window: float, attended: float) -> None:
        """From here on it may say nothing for as long as that."""
        work = self.work[id_]
        self.listened += work.heard is None
        work.heard, work.told, work.quiet_noticed = attended, False, None
        self._quiet_moved.drop(id_)
        if id_ not in self._begun_by:
            if self._quiet is _NONE:
                self._quiet = EndsByKey()
            self._quiet.put(id_, attended + window, work.number)

    def tell_quiet(self, id_: str) -> None:
        """Its silence was told: once is enough."""
        if (work := self.work.get(id_)) is not None:
            work.told = True
            self._quiet.drop(id_)
            self._quiet_moved.drop(id_)

    def notice(self, due: Due, noticed: Noticed) -> None:
        """One of its clocks was found to be over."""
        work = self.work[due.key]
        if due.limit == "quiet":
            work.quiet_noticed = noticed
            if noticed.until > due.deadline:
                self._quiet.drop(due.key)
                if self._quiet_moved is _NONE:
                    self._quiet_moved = EndsByKey()
                self._quiet_moved.put(due.key, noticed.until, work.number)
            return
        if noticed.until > due.deadline and self._moved is _NONE:
            self._moved = EndsByKey()
        line = self._moved if due.key in self._moved else self._allowed
        for id_ in line.together(due.key):
            work = self.work[id_]
            # What began at once, under one name, has one clock.
            if work.since != due.since or (work.name or id_) != due.work:
                continue
            work.noticed = noticed
            if noticed.until > due.deadline:
                self._allowed.drop(id_)
                self._moved.put(id_, noticed.until, work.number)

    # -- questions -----------------------------------------------------------------------

    @property
    def pauses(self) -> bool:
        """Whether any allowance runs."""
        return len(self._allowed) > 0 or len(self._moved) > 0

    @property
    def last_until(self) -> float:
        """When the last allowance ends; -inf if none runs."""
        return self._allowed.last

    @property
    def of_turn(self) -> list[str]:
        """What ends with its turn."""
        return list(self._of_turn)

    def goes_on_as(self, id_: str) -> str:
        """The id under which that work is in flight: of a call that is over, what it has begun in the background.

        A sub-agent in the background goes on under the id of its task, while its messages name the call.
        """
        if id_ in self.work or (heirs := self._heirs.get(id_)) is None:
            return id_
        return id_ if (eldest := heirs.first) is None else eldest[2]

    def noticed(self, due: Due) -> Noticed | None:
        """What is known of the clock of `due`."""
        if (work := self.work.get(due.key)) is None:
            return None
        return work.noticed if due.limit == "tools" else work.quiet_noticed

    def dues(self, now: float) -> list[Due]:
        """Of the allowances that run: which is over next, and all that may be over `now`."""
        return self._ahead(now, self._allowed, self._moved, self._due)

    def quiet_dues(self, now: float, until: float, attended: float) -> list[Due]:
        """The same of the silences of work that speaks for itself, unless work of its own is in flight (B1)."""

        def due_of(id_: str) -> Due:
            work = self.work[id_]
            assert work.quiet is not None
            assert work.heard is not None
            since = until - (attended - work.heard)
            end = end_of(work.quiet, since)
            return Due("quiet", end, work.quiet, since, work.name or id_, id_)

        return self._ahead(now, self._quiet, self._quiet_moved, due_of)

    def _due(self, id_: str) -> Due:
        work = self.work[id_]
        return Due("tools", work.until, work.allowance, work.since, work.name or id_, id_)

    def _ahead(
        self, now: float, line: EndsByKey[str], moved: EndsByKey[str], due_of: Callable[[str], Due]
    ) -> list[Due]:
        dues = [] if (first := line.first) is None else [due_of(first[2])]
        if moved:
            for until, _, id_ in moved:
                dues.append(due := due_of(id_))
                if until > now and due.deadline <= until:
                    break  # none of the others can be decided before that
            dues.sort(key=lambda due: self.work[due.key].number)  # of several at once the eldest
        return dues
