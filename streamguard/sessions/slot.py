"""`Slot`: how messages go from an owner's task to the consumer's, one at a time.

Nothing is read ahead: the owner asks its backend only while the consumer waits, so that silence is
counted as if both were one task (T1). An item stays in the slot until it is taken: one that is on
its way in a future is lost with the task that waited for it (R2). Knows the loop's bells and
nothing of streams.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeAlias, TypeVar, cast

if TYPE_CHECKING:
    from streamguard._loops import Loop

T = TypeVar("T")


class _Mark(Enum):
    EMPTY = "nothing"


_EMPTY: Final = _Mark.EMPTY
_Empty: TypeAlias = Literal[_Mark.EMPTY]


class Slot(Generic[T]):
    """Room for one item, between one consumer and one owner on the same loop, for one turn.

    `is_waited_for`: the consumer waits right now. `is_closed`: no further item comes.
    `is_hurried`: the owner is not to wait for the consumer, who may still take what is there.
    """

    __slots__ = ("_asked", "_came", "_item", "is_closed", "is_hurried", "is_waited_for")

    def __init__(self, loop: Loop) -> None:
        self.is_waited_for = False
        self.is_closed = False
        self.is_hurried = False
        self._item: T | _Empty = _EMPTY
        self._asked, self._came = loop.bell(), loop.bell()

    @property
    def is_full(self) -> bool:
        """Whether an item is there that its consumer has not taken."""
        return self._item is not _EMPTY

    # -- the consumer's side ---------------------------------------------------------------

    async def ready(self) -> bool:
        """Wait for an item: True. False if none comes any more. Cancelled, it loses nothing."""
        if self._item is _EMPTY and not self.is_closed:
            self.is_waited_for = True
            self._asked.ring()
            try:
                await self._came.wait()
            finally:
                self.is_waited_for = False
        return self._item is not _EMPTY

    def take(self) -> T:
        """The item that is there."""
        item, self._item = cast("T", self._item), _EMPTY
        return item

    # -- the owner's side ------------------------------------------------------------------

    async def asked(self) -> None:
        """Wait until the consumer waits, or the slot is closed or the owner hurried."""
        while not (self.is_waited_for and self._item is _EMPTY):
            if self.is_closed or self.is_hurried:
                return
            await self._asked.wait()

    def hurry(self) -> None:
        """The owner has something to do that is not to wait for the consumer."""
        self.is_hurried = True
        self._asked.ring()

    def put(self, item: T) -> None:
        """Give the consumer an item."""
        self._item = item
        self._came.ring()

    def close(self) -> None:
        """No further item comes; from either side. What is in the slot can still be taken."""
        self.is_closed = True
        self._asked.ring()
        self._came.ring()
