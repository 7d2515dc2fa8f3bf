"""Nested time limits the slow way: one clock, one list of deadlines, no loop and no cancel scope.

A program is a tree: waits, blocks under a scope of ours, blocks under a foreign one. The model says
how each block ends, when, and whom its timeout is put down to. Where two things fall into one instant
whose order is the loop's to choose, it says `Ambiguous`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

MIN_ATTEMPT = 1.0
CLEANUP = 10.0


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Block:
    """Under a scope of ours; cleans up for so long at its end; may catch its timeout."""

    name: str
    timeout: float
    items: tuple[Item, ...]
    cleanup: float = 0.0
    catches: bool = False


@dataclass(frozen=True)
class Foreign:
    """Under a `move_on_after` of somebody else's."""

    name: str
    timeout: float
    items: tuple[Item, ...]


Item: TypeAlias = Wait | Block | Foreign
# (what became of it, its name, when, who fired, who is effective)
Ending: TypeAlias = tuple[str, str, float, str, str]


class Ambiguous(Exception):  # noqa: N818 - none of these is an error
    """The order of two things is the loop's to choose."""


class Cut(Exception):  # noqa: N818
    """A cancellation on its way out."""


class TimedOut(Exception):  # noqa: N818
    def __init__(self, fired: str, effective: str) -> None:
        super().__init__(fired, effective)
        self.fired = fired
        self.effective = effective


@dataclass
class Frame:
    name: str
    deadline: float
    is_ours: bool
    first: Frame | None = None


@dataclass
class Model:
    now: float
    frames: list[Frame] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def run(self, items: tuple[Item, ...]) -> None:
        for item in items:
            match item:
                case Wait():
                    self._wait(item.seconds)
                case Block():
                    self._block(item)
                case Foreign():
                    self._foreign(item)

    def _wait(self, seconds: float) -> None:
        end = self.now + seconds
        first = min((frame.deadline for frame in self.frames), default=float("inf"))
        if first == end:
            raise Ambiguous
        self._settle()
        if first < end:
            self.now = max(self.now, first)
            raise Cut
        self.now = end

    def _settle(self) -> None:
        """A foreign deadline in this very instant: its timer may have rung, or not yet."""
        if any(not frame.is_ours and frame.deadline == self.now for frame in self.frames):
            raise Ambiguous

    def _block(self, block: Block) -> None:
        try:
            self._scope(block)
        except Cut:
            self.endings.append(("cut", block.name, self.now, "", ""))
            raise
        except TimedOut as error:
            ending = ("timed out", block.name, self.now, error.fired, error.effective)
            self.endings.append(ending)
            if not block.catches:
                raise
        else:
            self.endings.append(("done", block.name, self.now, "", ""))

    def _scope(self, block: Block) -> None:
        ours = [frame for frame in self.frames if frame.is_ours]
        deadline = self.now + block.timeout
        if ours and ours[-1].deadline < deadline:
            deadline = ours[-1].deadline
            if deadline - self.now < MIN_ATTEMPT:
                self._settle()
                if self._is_cancelled(self.frames):
                    raise Cut
                effective = next(frame for frame in ours if frame.deadline == deadline)
                raise TimedOut("None", effective.name)
        frame = Frame(block.name, deadline, is_ours=True)
        self.frames.append(frame)
        ended_with: Exception | None = None
        try:
            self.run(block.items)
        except (Cut, TimedOut) as error:
            ended_with = error
        self.now += min(block.cleanup, CLEANUP)
        self.frames.pop()
        if isinstance(ended_with, TimedOut):
            raise ended_with
        if ended_with is None:
            return
        self._settle()
        if self._is_cancelled(self.frames):
            if ours and ours[-1].deadline <= self.now:
                first = frame.first or frame
                if ours[-1].first is None or first.deadline < ours[-1].first.deadline:
                    ours[-1].first = first
            raise Cut
        raise TimedOut((frame.first or frame).name, frame.name)

    def _foreign(self, block: Foreign) -> None:
        self.frames.append(Frame(block.name, self.now + block.timeout, is_ours=False))
        try:
            self.run(block.items)
        except Cut:
            self._settle()
            self.frames.pop()
            if self._is_cancelled(self.frames):
                raise
        except TimedOut:
            self.frames.pop()
            raise
        else:
            self.frames.pop()

    def _is_cancelled(self, frames: list[Frame]) -> bool:
        return any(frame.deadline <= self.now for frame in frames)
