"""`publishing()`: what the guarded streams of this process are doing, for `streamguard top`.

    with publishing():
        ...                      # the program

A thread looks at the live activities, at most once in `every` seconds, and writes one file for
each (`published`); nothing is asked of the streams, so they cost no more than without. Knows
activities and the files, nothing of plans or attempts.
"""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from streamguard._base.numbers import Seconds, seconds
from streamguard.activity import Activity, live
from streamguard.errors import ConfigError
from streamguard.top.published import Published

__all__ = ["publishing"]

_EVERY: Final = 1.0


@contextmanager
def publishing(every: Seconds = _EVERY) -> Generator[None, None, None]:
    """Within the block, the guarded streams of this process are shown by `streamguard top`.

    Args:
        every: Seconds between two looks.

    Raises:
        ConfigError: `every` is no positive number, or a block like this is open already.
    """
    interval = seconds(every, "every")
    if not _one_at_a_time.acquire(blocking=False):
        raise ConfigError("publishing() is in force already: once for a process is enough")
    board, is_over = _Board(), threading.Event()
    thread = threading.Thread(
        target=board.keep, args=(interval, is_over), name="streamguard-publishing", daemon=True
    )
    try:
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join()
    finally:
        _one_at_a_time.release()


_one_at_a_time: Final = threading.Lock()


class _Board:
    """The files, by activity."""

    def __init__(self) -> None:
        self._files: dict[Activity, Published] = {}

    def keep(self, interval: float, is_over: threading.Event) -> None:
        """Look and write until it is over; then take all of it away."""
        try:
            while True:
                self.look()
                if is_over.wait(interval):
                    return
        finally:
            for file in self._files.values():
                file.remove()
            self._files.clear()

    def look(self) -> None:
        """Write what is live now, and take away what is not."""
        shown = {activity: said for activity in live() if (said := _said_of(activity)) is not None}
        for activity in self._files.keys() - shown.keys():
            self._files.pop(activity).remove()
        for activity, said in shown.items():
            if activity not in self._files:
                self._files[activity] = Published.for_this_process()
            self._files[activity].write(**said)


def _said_of(activity: Activity) -> dict[str, Any] | None:
    """What is to be known of it; None if it has ended meanwhile, or gone on to something else."""
    bound, watch = activity._bound, activity._watch
    if bound is None or bound.loop is None or watch is None:
        return None
    now = bound.loop.clock()
    started, last = activity.started, activity.last_message
    limits = watch.limits
    named = {name: getattr(limits, name) for name in ("idle", "first", "turn", "total", "tools")}
    try:
        in_flight = sorted(map(str, activity.in_flight.values()))
    except RuntimeError:  # it changed while it was read: the next look shows it
        in_flight = []
    return {
        "kind": "stream",
        "name": activity.name or "stream",
        "state": activity.status,
        "child": None,
        "attempt": activity.attempt,
        "messages": activity.messages,
        "age": 0.0 if started is None else now - started,
        "last_message_age": None if last is None else now - last,
        "last_signal": watch.last_signal,
        "in_flight": in_flight,
        "concern": watch.concern,
        "limits": {name: window for name, window in named.items() if window is not None},
        "session_id": activity.token,
    }
