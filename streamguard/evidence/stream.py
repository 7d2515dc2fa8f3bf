"""`Stream`: one stream's messages and events on their way to disk.

What the loop does with a message is to put it into a queue, which takes a fraction of a microsecond; all
else happens on the writer's thread, so a message is written as it is some 50 ms later. The queue is
bounded: if the writer cannot keep up, messages are dropped and counted, events never are.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streamguard import events
from streamguard._watch.watch import Limits, Watch
from streamguard.activity import Activity
from streamguard.backends.stream_reading import PROGRESS
from streamguard.events.teller import Teller
from streamguard.evidence.receipts import timestamp
from streamguard.evidence.rendering import Shortened
from streamguard.evidence.stream_names import stream_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamguard._base.done import Deeds
    from streamguard._guard.attempt import Attempt
    from streamguard.events.event import Event
    from streamguard.evidence.receipts import Place, Timeout
    from streamguard.evidence.scribe import Scribe
    from streamguard.signals import Signal

    # An attempt, as far as a recorder looks at it.
    Recorded: TypeAlias = "Attempt | Life"

QUEUE: Final = 4096
_AT_A_TIME: Final = 128
_SHORTEST_REST: Final = 0.25
_LONGEST_REST: Final = 2.0


class Life:
    """An attempt that is only told of, with all that a stream looks at in one: see `Recorded`."""

    def __init__(
        self, activity: Activity, deeds: Deeds, tell: Callable[[events.Event], None]
    ) -> None:
        self.reading = None
        self.is_over = False
        self.activity = activity
        self.teller = Teller(activity, (tell,))
        self.watch = Watch(Limits(gate=True))
        self.watch.deeds = deeds
        self.loop: Any = self
        self.now = 0.0

    def clock(self) -> float:
        """The instant that is being told of."""
        return self.now

    def submit(self, job: Callable[[], object]) -> None:
        """There is only one thread."""
        job()

    def heard(self) -> None:
        """Nobody but us says anything to the watch."""


class Stream:
    """What a recorder knows of one activity."""

    def __init__(self, activity: Activity, place: Place, scribe: Scribe) -> None:
        self.name = stream_of(activity)
        self.place = place
        self.attempt: weakref.ref[Recorded] | None = None
        self.attempts = 1
        self.retries = 0
        self.pid: int | None = None
        self.backend: str | None = None  # where its activity does not know it
        self.awaits_decision = False
        self.is_retrying = False
        self.timeout: Timeout | None = None
        self.deferred: Timeout | None = None
        # Time scopes' verdicts in its attempt: nothing of theirs has torn it down.
        self.cut: tuple[Timeout, ...] = ()
        self.backend_ended: bool | None = None  # in its attempt; None if its process is not known
        self._scribe = scribe
        self._queue: deque[tuple[float, tuple[Signal, ...] | None, Any]] = deque()
        self._is_due = False
        self._dropped = 0
        self._dropped_told = 0
        # Without a transcript: what the loop has counted, and what the timeline was told. Plain
        # progress is counted by the watch alone: what it has in the current attempt, and we had not.
        self._watch: Watch | None = None
        self._seen = 0
        self._plain = 0
        self._came: dict[str, int] = {}
        self._told: dict[str, int] = {}
        self._rest = _SHORTEST_REST
        self._earlier = 0  # messages of the turn's earlier attempts
        self._last = 0.0
        self._clock: Callable[[], float] = time.monotonic
        self._epoch = 0.0
        self._number = 0
        self._walled = (
            0.0,
            "",
        )  # an instant, as the wall clock has it: what came in one lot has the same
        self._written_attempt = 1  # that of the message which is written: the next may have begun

    # -- on the loop's thread --------------------------------------------------------------

    def begin(self, attempt: Recorded) -> None:
        """An attempt begins."""
        assert attempt.loop is not None
        self.attempt = weakref.ref(attempt)
        self.cut, self.backend_ended, self.pid = (), None, None
        self._clock = attempt.loop.clock
        self._epoch = self._scribe.epoch(self._clock())
        if self.is_retrying:
            self._earlier = self.delivered
        else:
            self._earlier = 0
        self.is_retrying = False
        watch, self._watch = self._watch, None  # in this order, for the writer looks at it, too
        self._plain += _plain_in(watch, self._seen)
        self._seen = 0
        self._watch = attempt.watch

    @property
    def delivered(self) -> int:
        """How many messages came in this turn."""
        return self._earlier + (self._watch.messages if self._watch is not None else 0)

    def transcribed(self, message: object, signals: tuple[Signal, ...]) -> None:
        """A message came, and is to be in the transcript."""
        if len(self._queue) < QUEUE:
            self._queue.append((self._clock(), signals, message))
        else:
            self._dropped += 1
            self._last = self._clock()
        if not self._is_due:
            self._ask()

    def dropped(self, count: int, at: float) -> None:
        """So many messages are not to be had, the last of `at`."""
        self._dropped += count
        self._last = at
        if not self._is_due:
            self._ask()

    def counted(self, _message: object, signals: tuple[Signal, ...]) -> None:
        """A message came, of which only that is to be known."""
        if signals is PROGRESS:
            return  # the watch counts it
        kind = type(signals[-1]).__name__ if signals else "Progress"
        self._seen += 1
        self._came[kind] = self._came.get(kind, 0) + 1
        if not self._is_due:
            self._ask()

    def told(self, event: Event) -> None:
        """Something happened."""
        self._epoch = self._scribe.epoch(event.at)
        self._queue.append((event.at, None, event))
        if not self._is_due:
            self._ask()

    def report(self, kind: type[Event], facts: Mapping[str, Any]) -> None:
        """Tell the stream's observers; if it is over, the log. From any thread."""
        attempt = self.attempt() if self.attempt is not None else None
        loop = attempt.loop if attempt is not None else None
        if attempt is None or loop is None or attempt.is_over:
            events.log(kind(activity=Activity(self.name), at=0.0, **facts))
            return

        def tell() -> None:
            attempt.teller.tell(kind, at=loop.clock(), **facts)

        try:
            loop.submit(tell)
        except RuntimeError:  # that loop is closed
            events.log(kind(activity=attempt.activity, at=0.0, **facts))

    def _ask(self) -> None:
        self._is_due = True
        self._scribe.ask(self)

    # -- on the writer's thread ------------------------------------------------------------

    def do(self) -> None:
        """Write down what is in the queue."""
        self._is_due = False
        self._tell_counts()
        lines: list[dict[str, Any]] = []
        run = ("", 0.0, 0)  # messages of one kind in a row: the kind, when the last came, how many
        while self._queue:
            at, signals, what = self._queue.popleft()
            if signals is None:
                if type(what) is events.AttemptStarted:
                    self._written_attempt = what.attempt
                run = self._end_run(run)
                self._scribe.chart(what, at, self._epoch)
                continue
            kind = type(signals[-1]).__name__ if signals else "Progress"
            if kind != run[0]:
                run = self._end_run(run)
            run = (kind, at, run[2] + 1)
            lines.append(self._line(at, signals, what))
            if len(lines) >= _AT_A_TIME:
                self._scribe.transcribe(self, lines)
                lines = []
        self._end_run(run)
        if (dropped := self._dropped) != self._dropped_told:
            count = dropped - self._dropped_told
            lines.append(self.mark("dropped", count, self._last, self._written_attempt))
            self._dropped_told = dropped
            self._scribe.overrun(self)
        if lines:
            self._scribe.transcribe(self, lines)

    def mark(self, what: str, value: object, at: float, attempt: int) -> dict[str, Any]:
        """A line of the transcript that is no message."""
        return {"at": self._wall(at), "stream": self.name, "attempt": attempt, what: value}

    def _wall(self, at: float) -> str:
        """An instant on the loop's clock as the wall clock has it."""
        instant, text = self._walled
        if instant != self._epoch + at:
            instant = self._epoch + at
            text = timestamp(datetime.fromtimestamp(instant, UTC))
            self._walled = instant, text
        return text

    def _line(self, at: float, signals: tuple[Signal, ...], message: object) -> dict[str, Any]:
        self._number += 1
        return {
            "at": self._wall(at),
            "stream": self.name,
            "attempt": self._written_attempt,
            "number": self._number,
            "signals": [type(signal).__name__ for signal in signals],
            # The word of the file's format, whatever we call it here.
            "type": "Cut" if isinstance(message, Shortened) else type(message).__qualname__,
            "message": self._scribe.render(message),
        }

    def _end_run(self, run: tuple[str, float, int]) -> tuple[str, float, int]:
        kind, at, number = run
        if number:
            self._scribe.count(self.name, kind, at, number)
        return ("", 0.0, 0)

    def _tell_counts(self) -> None:
        """What was only counted since the last look. Looks again, ever more seldom, by itself."""
        watch = self._watch
        if self._scribe.reads_all or watch is None:
            return
        came = {**self._came, "": self._plain + _plain_in(watch, self._seen)}
        at = watch.last_message
        is_new = False
        for kind, number in came.items():
            new = number - self._told.get(kind, 0)
            if new > 0 and at is not None:
                is_new, self._told[kind] = True, number
                self._scribe.count(self.name, kind or "Progress", at, new)
        attempt = self.attempt() if self.attempt is not None else None
        if attempt is not None and not attempt.is_over:
            self._rest = _SHORTEST_REST if is_new else min(2 * self._rest, _LONGEST_REST)
            self._scribe.look_again(self, self._rest)


def _plain_in(watch: Watch | None, seen: int) -> int:
    return max(0, watch.messages - seen) if watch is not None else 0
