"""`Sequels`: what followed a verdict in a loop that somebody wrote by hand.

A session says itself whether it tries again. Of a stream or a time scope that was cut nobody says it;
but when the same step begins again, that is a retry, and when it then comes through, it has recovered.
What nothing follows has failed, when the recorder's block is left. Knows timeouts, no streams and no files.

What runs more than once at the same time under one name is no loop: there one that begins says nothing
of another that was cut.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamguard.errors import ScopeName, Verdict
    from streamguard.evidence.receipts import FinalAction, Timeout

# A program that lives for long, and names each of its streams anew, is not to be remembered whole.
_MOST: Final = 1000
_MOST_VERDICTS: Final = 100


def what_was_cut(verdict: Verdict) -> tuple[ScopeName, ...]:
    """The path of the time scope that was cut; of a stream, the scopes that it was in."""
    path, cut = verdict.scope, verdict.effective
    return path if cut is None or cut not in path else path[: path.index(cut) + 1]


class _Course:
    """What is run under one name, again and again."""

    def __init__(self) -> None:
        self.running: set[Hashable] = set()
        self.verdicts: tuple[Timeout, ...] = ()  # since it has last come through
        self.retries = 0
        self.is_followed = False  # what runs now has begun after all these verdicts, and alone


class Sequels:
    """`decide` is told what follows a timeout, `recover` that what had followed it came through."""

    def __init__(
        self,
        decide: Callable[[Timeout, FinalAction], object],
        recover: Callable[[Timeout], object],
    ) -> None:
        self._decide = decide
        self._recover = recover
        self._courses: dict[Hashable, _Course] = {}

    def began(self, what: Hashable, who: Hashable) -> None:
        """`who` runs under that name."""
        course = self._courses.setdefault(what, _Course())
        if who in course.running:
            return
        if course.verdicts and not course.running:
            open_ = [timeout for timeout in course.verdicts if timeout.final_action is None]
            course.retries += bool(open_)
            course.is_followed = True
            for timeout in open_:
                self._decide(timeout, "retry")
        course.running.add(who)

    def retries(self, what: Hashable) -> int:
        """How often it was begun again since it has last come through."""
        course = self._courses.get(what)
        return course.retries if course is not None else 0

    def struck(self, what: Hashable, timeout: Timeout) -> None:
        """A verdict on it. What follows is open, unless that is known."""
        course = self._courses.pop(what, None) or _Course()
        self._courses[what] = course
        course.verdicts = (*course.verdicts[1 - _MOST_VERDICTS :], timeout)
        course.is_followed = False
        while len(self._courses) > _MOST:
            self._fail(self._courses.pop(next(iter(self._courses))))

    def came_through(self, what: Hashable) -> None:
        """What runs under that name has done what it was to do."""
        course = self._courses.get(what)
        if course is not None and course.is_followed:
            for timeout in course.verdicts:
                self._recover(timeout)
            course.verdicts, course.retries, course.is_followed = (), 0, False

    def over(self, what: Hashable, who: Hashable) -> None:
        """`who` runs no more."""
        course = self._courses.get(what)
        if course is None:
            return
        course.running.discard(who)
        if not course.running and not course.verdicts:
            del self._courses[what]

    def settle(self) -> None:
        """Nothing follows any more what is open."""
        for course in list(self._courses.values()):
            self._fail(course)

    def forget(self) -> None:
        """All of it is somebody else's to see to."""
        self._courses.clear()

    def _fail(self, course: _Course) -> None:
        for timeout in course.verdicts:
            if timeout.final_action is None:
                self._decide(timeout, "fail")
