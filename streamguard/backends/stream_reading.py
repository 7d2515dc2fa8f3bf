"""One stream's way from messages to signals: finds the reader, and never raises (S1, S2).

Knows backends and signals; nothing of time. What it notices it reports, once per kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, cast

from streamguard import backends
from streamguard.errors import ENDS_THE_PROGRAM, NotASignalError
from streamguard.signals import SIGNALS, Progress, Reader, SessionOpened, Signal

if TYPE_CHECKING:
    from streamguard.backends import Backend

# By type of message; None for a type that nobody reads.
_Readers: TypeAlias = Mapping[type, Reader | None]

PROGRESS: Final = (Progress(),)
# These have a shape instead of a type of their own: each is looked at until one is recognised.
_SHAPED: Final = (dict, tuple)
_KINDS: Final = frozenset(SIGNALS)
# No message says more: a generator that goes on beyond this has no end, and would hang the loop.
_MOST: Final = 10_000
# So many types of messages a stream's reading keeps: whoever makes types by the thousand has no use for more.
_MOST_KINDS: Final = 64


class _Nothing:
    """The type of no message: what is plain where each message is to be seen."""


@lru_cache(maxsize=128)
def _shared(readers: tuple[tuple[type, Reader | None], ...]) -> _Readers:
    """One mapping for all streams that have met these types, in this order. Nobody changes it."""
    return dict(readers)


_NO_READERS: Final = _shared(())


class Reporter(Protocol):
    """Where a reading says what it noticed."""

    def unknown_message(self, kind: type) -> None:
        """A type that no reader knows."""
        ...

    def reader_failed(self, kind: type, error: BaseException) -> None:
        """The reader raised."""
        ...


class Reading:
    """The reader of one stream: given, or found by its messages."""

    __slots__ = (
        "_failed",
        "_is_expected",
        "_read",
        "_readers",
        "_repeated",
        "backend",
        "plain",
    )

    # Whether the latest message came before, in an earlier attempt: who can tell says so.
    is_replayed: bool = False

    def __init__(self, given: Backend | None) -> None:
        self._read = None if given is None else given.read
        self._readers = _NO_READERS  # of the types met so far
        self._is_expected = False
        self._failed = False
        self._repeated: object = None
        self.backend = given
        # The latest type whose every message is plain progress: it needs no reading.
        self.plain: type | None = None

    def expect(self, backend: Backend, stream: object) -> None:
        """It is the stream of a client of that backend, which says what no message at all means.

        What a user makes of such a stream may have none, and end well.
        """
        if self.backend is None and backends.is_own(backend, stream):
            self.backend, self._is_expected = backend, True

    def go_on_from(self, backend: Backend | None) -> None:
        """The stream goes on one of that backend's, and says no less: see `expect`."""
        if self.backend is None and backend is not None:
            self.backend, self._is_expected = backend, True

    def read_all(self) -> None:
        """From here on somebody wants to see each message."""
        self.plain = _Nothing

    def signals(self, message: object, reporter: Reporter) -> tuple[Signal, ...]:
        """What `message` says. Nobody's message, and a reader's failure, is Progress."""
        try:
            if (read := self._read) is None:
                read = self._readers.get(type(message)) or self._find(message, reporter)
                if read is None:
                    return PROGRESS
            said = read(message)
            if said is None or said is self._repeated or _is_progress(said):
                return PROGRESS
            signals = _signals_in(said)
            for signal in signals:
                if type(signal) is SessionOpened:
                    # Said again, the very same session beside progress is progress, and no more.
                    is_progress = len(signals) == 2 and type(signals[1]) is Progress
                    self._repeated = said if is_progress else None
        except ENDS_THE_PROGRAM:
            raise  # these end the program, wherever they come up
        except BaseException as error:  # noqa: BLE001 - a reader never disturbs the stream (S2)
            # Also what looks like a cancellation: none is ever delivered to a plain function, so it
            # is a cancelled task's result that the reader has asked for.
            if not self._failed:
                self._failed = True
                reporter.reader_failed(type(message), error)
            return PROGRESS
        else:
            return signals

    def _find(self, message: object, reporter: Reporter) -> Reader | None:
        if self._is_expected:  # from here on its messages speak for themselves
            self._is_expected, self.backend = False, None
        kind, is_shaped = type(message), isinstance(message, _SHAPED)
        if is_shaped or kind not in self._readers:
            if (backend := backends.find(message)) is not None:
                self._remember(kind, backend.read)
                # A signal that somebody puts between a backend's messages does not make it another's.
                if self.backend is None or not self.backend.always_ends_turns:
                    self.backend = backend
                return backend.read
            if is_shaped and self.backend is not None:
                return self.backend.read  # lines of a backend that was recognised stay its own
            if kind not in self._readers and self._remember(kind, None):
                reporter.unknown_message(kind)
        if not is_shaped and self.plain is not _Nothing:
            self.plain = kind
        return None

    def _remember(self, kind: type, read: Reader | None) -> bool:
        """Keep who reads messages of that type; False if there is no room for it."""
        has_room = len(self._readers) < _MOST_KINDS or kind in self._readers
        if has_room:
            self._readers = _shared((*self._readers.items(), (kind, read)))
        return has_room


def _is_progress(said: object) -> bool:
    """Whether it is progress and nothing else, alone or as one of one."""
    if type(said) is list or type(said) is tuple:
        return len(said) == 1 and type(said[0]) is Progress  # pyright: ignore[reportUnknownArgumentType]
    return type(said) is Progress


def _signals_in(said: object) -> tuple[Signal, ...]:
    """What a reader returned as a tuple of signals; a NotASignalError for anything else."""
    is_one = False
    if type(said) is not list and type(said) is not tuple:  # they are nearly always
        if type(said) in _KINDS or isinstance(said, SIGNALS):
            return (cast("Signal", said),)
        # An empty string is no empty list of signals, which would mean that nothing was said.
        is_one = not isinstance(said, Iterable) or isinstance(said, str | bytes | Mapping)
    several = cast("Iterable[object]", (said,) if is_one else said)
    signals = tuple(islice(several, _MOST + 1))
    if len(signals) > _MOST:
        raise NotASignalError(
            f"the reader returned more than {_MOST} signals; it must return what one message says"
        )
    for signal in signals:
        if type(signal) not in _KINDS and not isinstance(signal, SIGNALS):
            # By its type alone: a reader may return the message itself, and this is logged (E3).
            kind = (
                f"the class {signal.__name__} itself"
                if inspect.isclass(signal)
                else f"an object of type {type(signal).__name__}"
            )
            raise NotASignalError(
                f"the reader returned {kind}; it must return a signal (Progress(), TurnEnded(), ...), "
                "several, or None"
            )
    return cast("tuple[Signal, ...]", signals)
