"""`Replay`: messages that were delivered before a reconnect are not delivered again (R6).

A key that is an int is a cursor, which grows: what is not beyond the last one is a replay. Other
keys are matched in their order: a backend may play again all that was delivered, or the end of it,
and must then play it as it was. Keys are remembered by their hash, in 8 bytes each. Pure.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeGuard

from streamguard.errors import ResumeDivergedError

if TYPE_CHECKING:
    from streamguard.resume.settings import DedupeBy


class Replay:
    """What one turn has delivered, over all its attempts."""

    def __init__(self, key_of: DedupeBy, cursor: Hashable | None = None) -> None:
        self.cursor = cursor
        self.dropped = 0
        self._key_of = key_of
        self._delivered = array("q")
        # Where the replay is taken to have begun (None before it began), how many were played
        # again since, and where it ends.
        self._start: int | None = None
        self._replayed = 0
        self._end = 0
        self._last: int | None = None

    def begin(self) -> None:
        """Another attempt begins."""
        self.dropped = 0
        self._start, self._replayed, self._end = None, 0, len(self._delivered)
        self._last = self.cursor if _is_cursor(self.cursor) else None

    def drops(self, message: Any) -> bool:
        """Whether `message` was delivered in an earlier attempt. If not, it counts from here on."""
        key = self._key_of(message)
        if key is None:
            return False
        is_old = self._is_before_cursor(key) if _is_cursor(key) else self._matches(hash(key), key)
        if is_old:
            self.dropped += 1
        else:
            self.cursor = key
        return is_old

    def _is_before_cursor(self, key: int) -> bool:
        return self._last is not None and key <= self._last

    def _matches(self, digest: int, key: Hashable) -> bool:
        if self._start is None:
            self._start = self._first_of(digest)
        position = self._start + self._replayed
        if position < self._end and self._delivered[position] != digest:
            self._start = self._later_start(digest, key)
            position = self._start + self._replayed
        if position >= self._end:
            self._start, self._replayed = self._end, 0  # nothing, or nothing more, is played again
            self._delivered.append(digest)
            return False
        self._replayed += 1
        return True

    def _first_of(self, digest: int) -> int:
        try:
            return self._delivered.index(digest, 0, self._end)
        except ValueError:
            return self._end

    def _later_start(self, digest: int, key: Hashable) -> int:
        """Where the replay may have begun instead: a key that was said twice can mean either."""
        assert self._start is not None
        said, played = self._delivered[: self._end], self._replayed
        run = said[self._start : self._start + played].tobytes()
        text, size = said.tobytes(), said.itemsize
        at = text.find(run, (self._start + 1) * size)
        while at >= 0:
            start = at // size
            goes_on = said[start + played : start + played + 1]
            if at % size == 0 and (not goes_on or goes_on[0] == digest):
                return start
            at = text.find(run, at + 1)
        raise ResumeDivergedError(
            f"the backend plays again what it had said, but otherwise: message "
            f"{self._start + played + 1} of this turn is now {key!r}. It has most likely done its "
            "work anew instead of going on, so what was delivered is void: start a new session, "
            "and look at what the attempts have done"
        )


def _is_cursor(key: object) -> TypeGuard[int]:
    return isinstance(key, int) and not isinstance(key, bool)
