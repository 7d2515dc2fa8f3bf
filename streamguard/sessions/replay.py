"""`Replay`: messages that were delivered before a reconnect are not delivered again (R6).

A key that is an int is a cursor, which grows: what is not beyond the last one is a replay. Of other
keys, a backend may play again all that was delivered, or the end of it, and must then play it as it
was. Keys are kept, for nothing less tells one from another. They must be unique: a key that comes
twice in one attempt is no replay, is delivered, and says that none can be told from now on. Pure.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, TypeGuard

from streamguard.errors import ResumeDivergedError

if TYPE_CHECKING:
    from streamguard.sessions.resume_settings import DedupeBy


class Replay:
    """What one turn has delivered, over all its attempts.

    `cursor`: the key of the last message that was not dropped, and `cursor_before` of the one before.
    `repeats`: whether a key came twice in one attempt.
    """

    def __init__(self, key_of: DedupeBy, cursor: Hashable | None = None) -> None:
        self.cursor = self.cursor_before = cursor
        self.dropped = 0
        self.repeats = False
        self._key_of = key_of
        # Of ints: where the earlier attempts had come to, and this one.
        self._last: int | None = None
        self._newest: int | None = None
        # Of other keys: each with its number; how many the earlier attempts had; and where a replay
        # has begun (None before it, and if there was none), and what is expected of it next.
        self._delivered: dict[Hashable, int] = {}
        self._end = 0
        self._start: int | None = None
        self._next = 0

    def begin(self) -> None:
        """Another attempt begins."""
        self.dropped = 0
        self._last = self.cursor if is_ordered(self.cursor) else None
        self._newest = None
        self._end = self._next = len(self._delivered)
        self._start = None

    def drops(self, message: Any) -> bool:
        """Whether `message` was delivered in an earlier attempt. If not, it counts from here on."""
        self.cursor_before = self.cursor
        key = self._key_of(message)
        if key is None:
            return False
        is_old = self._is_before_cursor(key) if is_ordered(key) else self._was_delivered(key)
        if is_old:
            self.dropped += 1
        elif not (is_ordered(key) and is_ordered(self.cursor) and key < self.cursor):
            self.cursor = key
        return is_old

    def _is_before_cursor(self, key: int) -> bool:
        if self._newest is not None and key <= self._newest:
            self.repeats = True  # it does not grow, or came twice
            return False
        self._newest = key
        return self._last is not None and key <= self._last

    def _was_delivered(self, key: Hashable) -> bool:
        at = self._delivered.get(key)
        if at is not None and at >= self._end:
            self.repeats = True
            return False
        if at is not None and self._start is None and len(self._delivered) == self._end:
            self._start = self._next = at  # here it begins
        if at is not None and self._start is not None and self._start <= at < self._next:
            self.repeats = True
            return False
        if at == self._next and self._start is not None:
            self._next += 1
            return True
        if self._start is not None and self._next < self._end:
            raise self._diverged(self._next, key)
        if at is not None:
            raise self._diverged(len(self._delivered), key)
        self._delivered[key] = len(self._delivered)
        return False

    def _diverged(self, number: int, key: Hashable) -> ResumeDivergedError:
        return ResumeDivergedError(
            f"the backend plays again what it had said, but otherwise: message {number + 1} of this "
            f"turn is now {key!r}. It has most likely done its work anew instead of going on, so "
            "what was delivered is void: start a new session, and look at what the attempts have "
            "done. Or dedupe_by gives the same key to different messages: keys must be unique"
        )


def is_ordered(key: object) -> TypeGuard[int]:
    """Whether a key is a cursor, which grows."""
    return isinstance(key, int) and not isinstance(key, bool)
