"""An error with all that hangs on it: its causes, and the members of groups among them.

Imports nothing of the package.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar, cast

T = TypeVar("T")

# Beyond these nothing is asked: a chain may be long, and go round in circles. A member of a
# group that is raised by itself has the group as its context, and so itself.
_DEEPEST: Final = 20
_MOST_MEMBERS: Final = 1000


def nearest(
    error: BaseException,
    ask: Callable[[BaseException, bool], T | None],
    choose: Callable[[list[T]], T],
) -> T | None:
    """The first answer along `error` and its causes; of a group, the one that `choose` picks.

    A cause is what the error was raised from, or else in the wake of. `ask` is given each error
    and whether it is but a cause; None is no answer.
    """
    return _nearest(error, ask, choose, depth=0, seen=set())


def _nearest(
    error: BaseException,
    ask: Callable[[BaseException, bool], T | None],
    choose: Callable[[list[T]], T],
    *,
    depth: int,
    seen: set[int],
    is_cause: bool = False,
) -> T | None:
    link: BaseException | None = error
    while link is not None and id(link) not in seen and depth < _DEEPEST:
        seen.add(id(link))
        depth += 1
        if isinstance(link, BaseExceptionGroup):
            members = _members_of(cast("BaseExceptionGroup[BaseException]", link))
            answers = [
                _nearest(each, ask, choose, depth=depth, seen=seen, is_cause=is_cause)
                for each in members
            ]
            said = [answer for answer in answers if answer is not None]
            answer = choose(said) if said else None
        else:
            answer = ask(link, is_cause)
        if answer is not None:
            return answer
        is_cause = True
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return None


def _members_of(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors of a group that are no groups, however deep they are nested."""
    found: list[BaseException] = []
    waiting: list[BaseException] = [group]
    while waiting and len(found) < _MOST_MEMBERS:
        error = waiting.pop()
        if isinstance(error, BaseExceptionGroup):
            waiting.extend(cast("BaseExceptionGroup[BaseException]", error).exceptions)
        else:
            found.append(error)
    return found
