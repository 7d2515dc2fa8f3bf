"""Where circuits are kept: the interface, and the memory of this process.

A store knows circuits as values and one operation on them; when to open and when to close is
nothing it has to know. Imports circuit, errors and the log.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from streamguard.breaker.circuit import Circuit
from streamguard.errors import ENDS_THE_PROGRAM
from streamguard.events.teller import logger

T = TypeVar("T")


class CircuitStore(Protocol):
    """Where circuits are kept, by key; shared by all breakers that have the same one.

    `blocks`: whether `update` may take long (a network, a disk). Then it is called in a worker
    thread by whatever is asked or reported on an event loop.

    Circuits that are kept elsewhere go there by `Circuit.as_json` and come back by
    `Circuit.from_json`. A store may raise: no stream is harmed by it.
    """

    blocks: bool

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        """Replace the circuit of `key` by what `change` makes of it, atomically.

        `change` is given the circuit (a new `Circuit()` for a key nobody knows) and the store's
        time, in seconds: one clock for all who share the store, not the caller's. It is pure
        and may be called again with a fresher circuit, as compare-and-set needs it. Its second
        result is returned, of the call whose circuit was kept. A circuit that comes back as it
        was need not be written: that is how circuits are read, too. Raise only where nothing was
        written: a report that failed is made again.

        What makes this safe between machines is that a circuit's `generation` only grows, and
        each report names the one it belongs to: what comes late from a paused machine changes
        nothing.
        """
        ...

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """Call `changed` after each change of that circuit that comes to be known here.

        From any thread, and better too often than not at all. Does not wait for anything. Who waits for a store that
        `blocks` also looks again by itself from time to time, since what another machine did
        may never be told here. Returns the function that ends it.
        """
        ...


class Listeners:
    """Who wants to hear of which circuit, in this process."""

    def __init__(self) -> None:
        # By key, so that a change costs nothing for who waits for another one. Changed in place only,
        # so that a copy can be taken from any thread.
        self._listeners: dict[str, dict[object, Callable[[], None]]] = {}

    def __len__(self) -> int:
        return sum(map(len, list(self._listeners.values())))

    def add(self, key: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` from `tell(key)`, until what is returned is called."""
        handle, listeners = object(), self._listeners.setdefault(key, {})
        listeners[handle] = changed

        def unlisten() -> None:
            listeners.pop(handle, None)

        return unlisten

    def tell(self, key: str) -> None:
        """That circuit has changed. The others hear of it, whatever one of them raises."""
        for changed in list(self._listeners.get(key, {}).values()):
            try:
                changed()
            except ENDS_THE_PROGRAM:
                raise
            except BaseException:  # noqa: BLE001 - it is logged
                logger.exception("listener %r of a circuit raised", changed)


class MemoryStore:
    """Circuits of this process: any number of breakers, loops and threads."""

    blocks = False

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._circuits: dict[str, Circuit] = {}
        self._listeners = Listeners()

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        """See `CircuitStore`."""
        with self._lock:
            before = self._circuits.get(key, Circuit())
            after, answer = change(before, self._clock())
            self._circuits[key] = after
        if after != before:  # what was kept is kept, whatever a listener raises
            self._listeners.tell(key)
        return answer

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """See `CircuitStore`."""
        return self._listeners.add(key, changed)
