"""One stream's way from messages to signals: finds the reader, and never raises (S1, S2).

Knows backends and signals; nothing of time. What it notices it reports, once per kind.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, cast

from streamguard import backends
from streamguard.errors import ENDS_THE_PROGRAM, NotASignalError
from streamguard.signals import SIGNALS, Progress, Reader, SessionOpened, Signal

if TYPE_CHECKING:
    from streamguard.backends import Backend

PROGRESS: Final = (Progress(),)
_NO_TYPES: Final[frozenset[type]] = frozenset()
_NO_READERS: Final[Mapping[type, Reader]] = MappingProxyType({})
# These have a shape instead of a type of their own: each is looked at until one is recognised.
_SHAPED: Final = (dict, tuple)
_KINDS: Final = frozenset(SIGNALS)
# No message says more: a generator that goes on beyond this has no end, and would hang the loop.
_MOST: Final = 10_000


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
        "_given",
        "_is_expected",
        "_is_reading_all",
        "_readers",
        "_repeated",
        "_unknown",
        "backend",
        "is_replayed",
        "plain",
    )

    def __init__(self, given: Backend | None) -> None:
        self._given = given
        self._is_expected = False
        self._failed = False
        self._is_reading_all = False
        self._unknown: set[type] | frozenset[type] = _NO_TYPES
        self._readers = _NO_READERS  # by type of message; replaced, never changed
        self._repeated: object = None
        self.backend = given
        self.is_replayed = False  # the latest message came before, in an earlier attempt
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
        self._is_reading_all, self.plain = True, None

    def signals(self, message: object, reporter: Reporter) -> tuple[Signal, ...]:
        """What `message` says. Nobody's message, and a reader's failure, is Progress."""
        try:
            read = self._readers.get(type(message)) or self._find(message)
            if read is None:
                self._note_unknown(type(message), reporter)
                return PROGRESS
            said = read(message)
            if said is None or said is self._repeated or type(said) is Progress:
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

    def _find(self, message: object) -> Reader | None:
        if self._is_expected:  # from here on its messages speak for themselves
            self._is_expected, self.backend = False, None
        backend = self._given or backends.find(message)
        if backend is None:
            # Lines of a backend that was recognised before stay its own.
            known = self.backend if isinstance(message, _SHAPED) else None
            return None if known is None else known.read
        self._readers = {**self._readers, type(message): backend.read}
        # A signal that somebody puts between a backend's messages does not make it another's.
        if self.backend is None or not self.backend.always_ends_turns:
            self.backend = backend
        return backend.read

    def _note_unknown(self, kind: type, reporter: Reporter) -> None:
        if kind not in self._unknown:
            self._unknown = {*self._unknown, kind}
            reporter.unknown_message(kind)
        if not (self._is_reading_all or issubclass(kind, _SHAPED)):
            self.plain = kind


def _signals_in(said: object) -> tuple[Signal, ...]:
    """What a reader returned as a tuple of signals; a NotASignalError for anything else."""
    if type(said) in _KINDS or isinstance(said, SIGNALS):
        return (cast("Signal", said),)

    is_one = False
    if type(said) is not list and type(said) is not tuple:  # they are nearly always
        # An empty string is no empty list of signals, which would mean that nothing was said.
        is_one = not isinstance(said, Iterable) or isinstance(said, str | bytes | Mapping)
    several = cast("Iterable[object]", (said,) if is_one else said)
    signals = tuple(islice(several, _MOST + 1))
    if len(signals) > _MOST:
        raise NotASignalError(
            f"a reader must return what one message says, not more than {_MOST} signals"
        )
    for signal in signals:
        if type(signal) not in _KINDS and not isinstance(signal, SIGNALS):
            # By its type alone: a reader may return the message itself, and this is logged (E3).
            kind = (
                f"{signal.__name__} itself" if inspect.isclass(signal) else type(signal).__name__
            )
            raise NotASignalError(
                f"a reader must return a signal (Progress(), TurnEnded(), ...), several or None, "
                f"not {kind}"
            )
    return cast("tuple[Signal, ...]", signals)
