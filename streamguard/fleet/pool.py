"""Connections of one process to one database, each lent to one call at a time.

Every kind of work has a *lane* with connections of its own, so that a beat never waits behind claims or lists that
are slow. A connection is made when all that its lane has are out, up to the lane's limit.

A call that gets no answer for `patience` seconds has its connection cut, by a thread that lives while calls are
under way; `interrupt` cuts at once. What was cut, and what failed, is not lent again. Knows
connections as `Link`s, and nothing of SQL.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from streamguard.errors import StoreError

Lane: TypeAlias = Literal["read", "write", "beat"]


class Link(ABC):
    """One connection."""

    lane: Lane = "read"
    is_checked = False
    """Whether what the database holds is what we want."""
    is_bounded = True
    """Whether patience has an end for what it does."""
    cut_because = ""

    @abstractmethod
    def run(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Run one statement, whose values are written `:name`; its rows."""

    @abstractmethod
    def begin(self) -> None:
        """Let what follows be one transaction, and wait until nobody else writes."""

    @abstractmethod
    def commit(self) -> None:
        """Make it last."""

    @abstractmethod
    def is_alive(self) -> bool:
        """Whether it is worth to be lent: false if it is known to be dead."""

    @abstractmethod
    def end_wait(self) -> None:
        """Have whatever waits in it fail, called from another thread."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it, and of a transaction that is under way."""

    def cut(self, why: str) -> None:
        """End its use: what waits in it fails."""
        self.cut_because = self.cut_because or why
        self.end_wait()


L = TypeVar("L", bound=Link)


class Pool(Generic[L]):
    """Lends connections, and takes them back."""

    def __init__(
        self,
        connect: Callable[[Lane], L],
        limits: Mapping[Lane, int],
        *,
        patience: float,
        place: str,
    ) -> None:
        self._connect = connect
        self._limits = limits
        self._patience = patience
        self._place = place
        self._free: dict[Lane, list[L]] = {lane: [] for lane in limits}
        self._count: dict[Lane, int] = dict.fromkeys(limits, 0)
        self._lent: dict[L, float] = {}
        self._is_closed = False
        self._is_watched = False
        self._lock = threading.Lock()
        self._came_back = threading.Condition(self._lock)
        self._went_out = threading.Condition(self._lock)

    def take(self, lane: Lane) -> L:
        """A connection of that lane; a new one if none is free, and a StoreError if there is none to be had."""
        if (link := self._free_one(lane)) is None:
            try:
                link = self._connect(lane)
            except BaseException:
                with self._lock:
                    self._forget(lane)
                raise
            link.lane = lane
        with self._lock:
            if self._is_closed:
                self._forget(lane)
            else:
                self._lend(link)
                return link
        link.close()
        raise self._closed()

    def put(self, link: L) -> None:
        """Take it back, to be lent again."""
        with self._lock:
            self._lent.pop(link, None)
            if not (self._is_closed or link.cut_because):
                self._free[link.lane].append(link)
                self._came_back.notify()
                return
            self._forget(link.lane)
        link.close()

    def drop(self, link: L) -> None:
        """Take it back, and close it."""
        with self._lock:
            self._lent.pop(link, None)
            self._forget(link.lane)
        link.close()

    def interrupt(self, why: str = "it was interrupted") -> None:
        """Cut what is lent, and let go of what is not: the next calls make new ones."""
        with self._lock:
            for link in self._lent:
                link.cut(why)
            idle = [link for links in self._free.values() for link in links]
            for link in idle:
                self._forget(link.lane)
            for links in self._free.values():
                links.clear()
        for link in idle:
            link.cut(why)
            link.close()

    def close(self) -> None:
        """Let go of all of them, for good."""
        with self._lock:
            self._is_closed = True
            self._came_back.notify_all()
            self._went_out.notify_all()
        self.interrupt("the store was closed")

    def _free_one(self, lane: Lane) -> L | None:
        """One that is free; None if one more may be made, which is counted then."""
        deadline = time.monotonic() + self._patience
        while True:
            with self._lock:
                while not self._free[lane] and self._count[lane] >= self._limits[lane]:
                    left = deadline - time.monotonic()
                    if self._is_closed:
                        raise self._closed()
                    if left <= 0 or not self._came_back.wait(left):
                        raise StoreError(
                            f"{self._place}: all {self._limits[lane]} connections for this have "
                            f"been busy for {self._patience:g} s. Try again"
                        )
                if self._is_closed:
                    raise self._closed()
                if not self._free[lane]:
                    self._count[lane] += 1
                    return None
                link = self._free[lane].pop()
            if link.is_alive():
                return link
            with self._lock:
                self._forget(lane)
            link.close()

    def _lend(self, link: L) -> None:
        self._lent[link] = time.monotonic()
        if not self._is_watched:
            self._is_watched = True
            threading.Thread(
                target=self._watch, name="streamguard-fleet-patience", daemon=True
            ).start()
        elif len(self._lent) == 1:
            self._went_out.notify()

    def _forget(self, lane: Lane) -> None:
        self._count[lane] -= 1
        self._came_back.notify_all()

    def _watch(self) -> None:
        """Cut what is out for too long; over when nothing has been out for a while."""
        with self._lock:
            while not self._is_closed:
                now = time.monotonic()
                waits = [
                    (link, since + self._patience - now)
                    for link, since in self._lent.items()
                    if link.is_bounded and not link.cut_because
                ]
                for link, left in waits:
                    if left <= 0:
                        link.cut(f"it has not answered for {self._patience:g} s")
                soonest = min((left for _, left in waits if left > 0), default=self._patience)
                if not self._went_out.wait(soonest) and not self._lent:
                    break
            self._is_watched = False

    def _closed(self) -> StoreError:
        return StoreError(f"{self._place} was closed: make a new store")
