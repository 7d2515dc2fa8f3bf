"""Tracebacks as users read them: with their lines, and with few of ours.

`trim` takes our frames out of the traceback of an error that goes on to its consumer. `blame` says
what a verdict comes of: an error of the stream's own is its cause; our own cancellation is none, and
only where it was met is noted. Imports errors, and how names are quoted.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from streamguard._base.quoting import name
from streamguard.errors import StreamGuardError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# What everybody waits in says nothing of where the wait began.
_WAITED_IN: Final = ("asyncio", "anyio", "trio", "outcome", "uvloop", "contextlib", "streamguard")
_MOST: Final = 8


def trim(error: BaseException) -> None:
    """Take our frames out of its traceback, unless it was raised by a line of ours that may be wrong.

    For an `except` that raises it again with a bare `raise`, which adds no frame.
    """
    links = list(_links(error.__traceback__))
    if not links or (_is_ours(links[-1].tb_frame) and not isinstance(error, StreamGuardError)):
        return
    foreign = [link for link in links if not _is_ours(link.tb_frame)]
    kept: TracebackType | None = None
    for link in reversed(foreign):
        kept = TracebackType(kept, link.tb_frame, link.tb_lasti, link.tb_lineno)
    error.__traceback__ = kept


def blame(error: BaseException, cause: BaseException | None, *, is_our_cancel: bool) -> None:
    """Let `error` come of `cause`, unless that is only the cancellation by which we ended the wait."""
    if cause is None or not is_our_cancel:
        error.__cause__ = cause
        return
    error.__suppress_context__ = True
    note(error, places("It was waiting here:", cause))


def note(error: BaseException, text: str) -> None:
    """Add `text` to what is printed below the error, once."""
    if text and text not in getattr(error, "__notes__", ()):
        error.add_note(text)


def places(what: str, met: BaseException) -> str:
    """`what`, and the lines that `met` has come through; nothing if none of them is a user's."""
    found = [
        f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
        for frame, line in _places(met)
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _WAITED_IN
    ]
    return "\n".join((what, *found[-_MOST:])) if found else ""


class Raised(NamedTuple):
    """What a callback raised, without the frames that its traceback would keep alive."""

    what: str
    where: str

    @classmethod
    def by(cls, callback: str, error: BaseException) -> Raised:
        """What that callback raised."""
        return cls(
            name(repr(error)), places(f"{callback} raised {name(repr(error))} here:", error)
        )


def _places(error: BaseException) -> Iterator[tuple[FrameType, int]]:
    for link in _links(error.__traceback__):
        yield link.tb_frame, link.tb_lineno
    if isinstance(error, BaseExceptionGroup):
        yield from _places(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])


def _links(link: TracebackType | None) -> Iterator[TracebackType]:
    while link is not None:
        yield link
        link = link.tb_next


def _is_ours(frame: FrameType) -> bool:
    package, _, rest = frame.f_globals.get("__name__", "").partition(".")
    return package == "streamguard" and rest.partition(".")[0] not in ("testing", "demo")
