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

    A store that writes circuits as JSON uses `Circuit.as_json` and `Circuit.from_json`. A store may
    raise: that harms no stream.
    """

    blocks: bool

    def update(self, key: str, change: Callable[[Circuit, float], tuple[Circuit, T]], /) -> T:
        """Replace the circuit of `key` by what `change` makes of it, atomically.

        `change` gets the circuit (a new `Circuit()` for an unknown key) and the store's
        time, in seconds: one clock for all that share the store, not the caller's. It is pure
        and may be called again with a fresher circuit, as compare-and-set needs it. Return its second
        result, of the call whose circuit was kept. A circuit that comes back unchanged
        need not be written: that is how circuits are read, too. Raise only if nothing was
        written: a report that failed is made again.

        This is safe between machines, because a circuit's `generation` only grows, and
        each report names its own. A late report from a paused machine changes nothing.
        """
        ...

    def listen(self, key: str, changed: Callable[[], None], /) -> Callable[[], None]:
        """Call `changed` after each change of that circuit that comes to be known here.

        From any thread, and better too often than not at all. Does not wait for anything. A caller that
        waits for a store that `blocks` also looks again from time to time, since a change by another
        machine may never be told here. Returns the function that ends it.
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
