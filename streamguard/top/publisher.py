"""`publish_to_top()`: what the guarded streams of this process are doing, for `streamguard top`.

    with publish_to_top():
        ...                      # the program

A thread looks at the live activities, at most once in `every` seconds, and writes one file for
each (`published`) that has news; nothing is asked of the streams, so they cost no more than without.
Knows activities and the files, nothing of plans or attempts.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from streamguard._base.calling import checked
from streamguard._base.numbers import Seconds, seconds
from streamguard.activity import Activity, live_streams
from streamguard.errors import ConfigError
from streamguard.top.published import Published

__all__ = ["publish_to_top"]

_EVERY: Final = 1.0
# Somebody else may have removed a file, who took us for gone: it is written again, news or not.
_AGAIN: Final = 10.0


@checked
@contextmanager
def publish_to_top(every: Seconds = _EVERY) -> Generator[None, None, None]:
    """Within the block, the guarded streams of this process are shown by `streamguard top`.

    Args:
        every: Seconds between two looks.

    Raises:
        ConfigError: `every` is no positive number, or a block like this is open already.
    """
    interval = seconds(every, "every")
    if not _one_at_a_time.acquire(blocking=False):
        raise ConfigError("publish_to_top() is in force already: once for a process is enough")
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


publishing = publish_to_top  # its old name
_one_at_a_time: Final = threading.Lock()


class _Seen(NamedTuple):
    """What is to be known of an activity at `now`, and since when it has been so."""

    now: float
    started: float | None
    last_message: float | None
    facts: dict[str, Any]

    @property
    def ages(self) -> dict[str, float | None]:
        started, last = self.started, self.last_message
        return {
            "age": 0.0 if started is None else self.now - started,
            "last_message_age": None if last is None else self.now - last,
        }

    def is_news_after(self, before: _Seen) -> bool:
        """Whether more than time has passed."""
        return self[1:] != before[1:]


class _Board:
    """The files, by activity."""

    def __init__(self) -> None:
        self._files: dict[Activity, _File] = {}

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
        """Write what is live now and was not known, and take away what is not."""
        shown = {
            activity: said
            for activity in live_streams()
            if (said := _said_of(activity)) is not None
        }
        for activity in self._files.keys() - shown.keys():
            self._files.pop(activity).remove()
        for activity, said in shown.items():
            if activity not in self._files:
                self._files[activity] = _File()
            self._files[activity].tell(said)


class _File:
    """One activity's, and what it says."""

    def __init__(self) -> None:
        self._published = Published.for_this_process()
        self._told: _Seen | None = None
        self._due = -math.inf

    def tell(self, said: _Seen) -> None:
        """Write it, unless who reads it knows it: the ages go on by themselves."""
        now = time.monotonic()
        if self._told is None or said.is_news_after(self._told) or now >= self._due:
            self._published.write(**said.facts, **said.ages)
            self._told, self._due = said, now + _AGAIN

    def remove(self) -> None:
        """It is over."""
        self._published.remove()


def _said_of(activity: Activity) -> _Seen | None:
    """What is to be known of it; None if it has ended meanwhile, or gone on to something else."""
    bound, watch = activity._bound, activity._watch
    if bound is None or bound.loop is None or watch is None:
        return None
    limits = watch.limits
    named = {name: getattr(limits, name) for name in ("idle", "first", "turn", "total", "tools")}
    try:
        in_flight = sorted(map(str, activity.in_flight.values()))
    except RuntimeError:  # it changed while it was read: the next look shows it
        in_flight = []
    facts: dict[str, Any] = {
        "kind": "stream",
        "name": activity.display_name,
        "state": activity.status,
        "backend": activity.backend,
        "child": None,
        "attempt": activity.attempt,
        "messages": activity.messages,
        "last_signal": watch.last_signal,
        "in_flight": in_flight,
        "concern": watch.concern,
        "limits": {name: window for name, window in named.items() if window is not None},
        "session_id": activity.token,
    }
    return _Seen(bound.loop.clock(), activity.started, activity.last_message, facts)
