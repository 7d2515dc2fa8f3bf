"""The clerk of `run --record`: a process beside the run that writes down what it is told.

It makes of the run's frames what a guarded stream tells a `Recorder`, and leaves the rest to what a
`Recorder` consists of: an account of the events, and a scribe that writes. So the files are the same
(docs/how-to/evidence.md). The flow is called `run`, the step after the command and the run's pid.

It ends when its pipe does, however the run has ended. Then what is still open is closed: nobody else
will. Everything is imported here, while the command runs; there is no event loop and no thread.
"""

from __future__ import annotations

import marshal
import os
import select
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from streamguard import events, signals
from streamguard._base.done import Deeds
from streamguard._base.vitals import Vitals
from streamguard.activity import Activity
from streamguard.backends.stream_reading import PROGRESS
from streamguard.errors import ERRORS, StreamGuardError, Teardown, Verdict
from streamguard.events.changes import News
from streamguard.events.teller import Teller, logger
from streamguard.evidence.account import Account
from streamguard.evidence.receipts import Names
from streamguard.evidence.rendering import HEAD, Rendering, Shortened
from streamguard.evidence.scribe import MEGABYTE, Scribe
from streamguard.evidence.secrets import Redaction
from streamguard.evidence.stream import Life
from streamguard.evidence.stream_names import stream_of
from streamguard.evidence.worker import AtOnce
from streamguard.runner.json_lines import object_in
from streamguard.runner.record import LENGTH, RECEIPT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from mmap import mmap

    from streamguard._watch.watch import Watch
    from streamguard.errors import Cause
    from streamguard.events.kinds import StreamOutcome
    from streamguard.signals import Signal

    # One byte, which may be shared with another process.
    Flag: TypeAlias = bytes | bytearray | mmap

_FLOW: Final = "run"
_TRANSCRIPT: Final = 16 * MEGABYTE
_PORTION: Final = 256 * 1024
# Of text a line may be so long, as in a frame; and so many messages are made ready at a time.
_LONGEST_LINE: Final = MEGABYTE
_AT_A_TIME: Final = 1024
_OF_THE_COMMAND: Final = ("message", "text")


def work(
    frames: int, answers: int, is_late: Flag, *, folder: str, work_dir: str, name: str, pid: int
) -> None:
    """Write down what comes from `frames` until there is no more, and say how it goes."""
    _occupy_standard()
    logger.disabled = True  # the run says what there is to be said
    answering = Answers(answers)
    clerk = Clerk(
        folder,
        work_dir,
        name,
        pid,
        answering.complain,
        is_late=is_late,
        receipt_is_at=answering.receipt_is_at,
    )
    poll = select.poll()
    poll.register(frames, select.POLLIN)
    came = bytearray()
    while True:
        rest = clerk.executor.rest
        if poll.poll(None if rest is None else rest * 1e3):
            if not (portion := os.read(frames, _PORTION)):
                break
            came += portion
            for frame in _frames_in(came):
                clerk.take(*frame)
        clerk.executor.see_to()
        answering.is_done_with(clerk.done)
    clerk.close()
    answering.is_done_with(clerk.done)


class Answers:
    """The pipe back to the run: lines."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._said: set[str] = set()
        self._done = 0
        os.set_blocking(fd, False)

    def is_done_with(self, count: int) -> None:
        """So much is written, or will never be."""
        if count != self._done:
            self._done = count
            self._write(str(count))

    def complain(self, what: str, why: str) -> None:
        """Something cannot be written. Each reason is said once."""
        if why not in self._said:
            self._said.add(why)
            self._write(f"evidence is missing: {what}: {why}".replace("\n", " "))

    def receipt_is_at(self, path: Path) -> None:
        """There is the receipt of the latest verdict, or will be."""
        self._write_bytes(RECEIPT + os.fsencode(path).replace(b"\n", b" "))

    def _write(self, line: str) -> None:
        self._write_bytes(line.encode(errors="replace"))

    def _write_bytes(self, line: bytes) -> None:
        try:
            os.write(self._fd, line + b"\n")
        except OSError:
            pass  # nobody listens, or not soon: the next number says more


class Clerk:
    """Makes events of frames. `complain` is told what could not be written, `receipt_is_at` where a receipt is.

    As soon as `is_late` is set, what the command said is passed over: time is short.
    """

    def __init__(
        self,
        folder: str,
        work_dir: str,
        name: str,
        pid: int,
        complain: Callable[[str, str], None],
        *,
        is_late: Flag = b"\0",
        receipt_is_at: Callable[[Path], object] = str,
    ) -> None:
        self._is_late = is_late
        run = Path(folder)
        self.executor = AtOnce()
        self.done = 0
        self._complain = complain
        self._receipt_is_at = receipt_is_at
        self._activity = Activity(f"{name}-{pid}")
        step = stream_of(self._activity)
        self._scribe = Scribe(
            run,
            Names(run.resolve().name, _FLOW, step),
            Rendering(Redaction(None), lambda: None),
            work_dir=Path(work_dir),
            artifacts=(),
            transcript_cap=_TRANSCRIPT,
            writer=self.executor,
            inspector=self.executor,
            pid=pid,
            clock=time.monotonic,
            report=lambda event: complain(event.what, event.why),
        )
        self._account = Account(self._scribe)
        self._stream = self._account.stream_of(self._activity)
        self._stream.awaits_decision = True
        self._deeds = Deeds()  # of all attempts
        self._deeds.work_dir = work_dir
        self._life: Life | None = None
        self._news: News | None = None
        self._verdict: Verdict | None = None
        self._attempt = 0
        self._child = 0
        self._failed = 0
        self._is_between = False
        self._line = bytearray()
        self._is_passing_over = self._reads_text = False
        self._waiting = 0

    def take(self, weight: int, what: str, facts: tuple[Any, ...]) -> None:
        """One frame."""
        if self._is_late[0] and what in _OF_THE_COMMAND:
            return
        try:
            getattr(self, f"on_{what}")(*facts)
        except Exception as error:  # noqa: BLE001 - the next one may be written all the same
            self._complain(what, type(error).__name__)
        self.done += weight

    def close(self) -> None:
        """There are no more frames."""
        at = time.monotonic()
        if self._life is not None:  # the run was killed, and what became of the command is unknown
            self._end_attempt(at, "failed", confirmed=False)
        if self._is_between:
            self._give_up(at)
        self._account.settle()
        self.executor.see_to(all_of_it=True)

    # -- what frames tell ------------------------------------------------------------------

    def on_began(self, at: float, attempt: int, pid: int, resumes: bool) -> None:
        self._attempt, self._child = attempt, pid
        self._is_between = False
        self._line.clear()
        self._is_passing_over = self._reads_text = False
        self._activity.count_attempt(attempt)
        self._deeds.begin_attempt()
        self._deeds.begin_process(is_resumed=resumes)
        self._life = life = Life(self._activity, self._deeds, self._event_of_ours)
        life.now = at
        life.watch.begin(at)
        self._activity.bind(life, at)
        self._stream.begin(life)
        self._tell(events.AttemptStarted, at, attempt=attempt, resumes=resumes)
        if attempt > 1:
            self._tell(events.Reconnected, at, attempt=attempt, resumes=resumes)
        self._tell(events.StreamStarted, at)
        self._tell(events.ProcessAdopted, at, pid=pid, proof="child")
        self._news = News(life.watch, Teller(self._activity, (self._account,)))

    def on_message(
        self,
        at: float,
        said: list[tuple[Any, ...]] | None,
        head: bytes | None,
        length: int,
        is_object: bool,
    ) -> None:
        message: object = None
        if head is not None and len(head) < length:
            message = Shortened(head[:HEAD], length)
        elif head is not None:
            message = object_in(head) if is_object else None
            message = head.decode(errors="replace") if message is None else message
        self._seen(at, PROGRESS if said is None else _signals_of(said), message)

    def on_text(self, at: float, chunk: bytes) -> None:
        self._reads_text = True
        for line in self._lines_of(chunk):
            if self._is_late[0]:
                return
            self._seen_line(at, line)

    def on_dropped(self, at: float, count: int) -> None:
        self._stream.do()
        self._stream.dropped(count, at)
        self._stream.do()  # it is said where they are missing
        self._line.clear()
        self._is_passing_over = self._reads_text
        if self._life is not None:
            self._life.watch.upto += count

    def on_event(self, at: float, kind: str, facts: dict[str, Any]) -> None:
        self._tell(getattr(events, kind), at, **_with_vitals(facts))

    def on_verdict(
        self, at: float, told: dict[str, Any], enforced: bool, backend: str | None
    ) -> None:
        self._stream.backend = backend
        when = datetime.fromtimestamp(self._scribe.epoch(at) + at, UTC)
        verdict = replace(Verdict(**_with_vitals(told)), when=when, done=self._activity.done)
        if enforced:
            self._verdict = verdict
            self._end_line(at)
        self._tell(events.TimedOut, at, verdict=verdict, enforced=enforced)
        if enforced:
            self._receipt_is_at(self._scribe.receipt_path(self._stream.place))

    def on_again(
        self, at: float, end: dict[str, Any], delay: float, reason: str, error_class: str
    ) -> None:
        self._attempt_over(at, end, "failed")
        self._failed += 1
        self._is_between = True
        self._tell(
            events.RetryScheduled,
            at,
            error_class=error_class,
            retry=self._failed,
            delay=delay,
            why=reason,
        )

    def on_ended(self, at: float, end: dict[str, Any], code: int) -> None:
        if self._life is not None:
            outcome = _outcome_of(end, code)
            if outcome == "completed" and self._failed:
                self._tell(events.RetryRecovered, at, retries=self._failed)
            self._attempt_over(at, end, outcome)
        if self._is_between:
            self._give_up(at)
        self._account.settle()

    # -- what comes of them ----------------------------------------------------------------

    def _seen(self, at: float, said: tuple[Signal, ...], message: object) -> None:
        if (life := self._life) is None or self._news is None:
            return
        life.now = at
        if message is None:  # there was no room for it
            self._stream.dropped(1, at)
        else:
            self._stream.transcribed(message, said)
        watch = life.watch
        if watch.steady and said is PROGRESS:  # then no more of it counts, see `Watch.steady`
            watch.upto += 1
            watch.mark = at
        else:
            watch.see(said, at, self._scribe.epoch(at) + at)
            self._news.look(at, said)
        self._waiting += 1
        if self._waiting >= _AT_A_TIME:
            self._waiting = 0
            self._stream.do()

    def _seen_line(self, at: float, line: bytes | Shortened) -> None:
        message: object = line
        if isinstance(line, bytes):
            found = object_in(line)
            message = line.decode(errors="replace") if found is None else found
        self._seen(at, PROGRESS, message)

    def _end_line(self, at: float) -> None:
        """What has no newline at its end is a line, too."""
        line, self._line = bytes(self._line), bytearray()
        if line:
            self._seen_line(at, line)

    def _attempt_over(self, at: float, end: dict[str, Any], outcome: StreamOutcome) -> None:
        """What became of the command, and then of the attempt."""
        confirmed = not (end["survivors"] or end["is_unproven"])
        of_process = {"pid": self._child}
        if end["exit"] is not None:
            self._tell(events.ProcessExited, at, exit=end["exit"], **of_process)
        if end["signals"]:
            self._tell(
                events.ProcessKilled,
                at,
                signals=end["signals"],
                exit=end["exit"],
                elapsed=end["elapsed"],
                **of_process,
            )
        if not confirmed:
            self._tell(events.ProcessSurvived, at, survivors=end["survivors"], **of_process)
        error: StreamGuardError | None = None
        if self._verdict is not None:
            teardown = _teardown_of(end, confirmed=confirmed)
            self._tell(events.TornDown, at, verdict=self._verdict, teardown=teardown)
            if outcome == "failed" and (kind := ERRORS.get(self._verdict.limit)) is not None:
                error = kind(verdict=self._verdict)
                error.teardown = teardown
        self._end_attempt(at, outcome, error, confirmed=confirmed)

    def _end_attempt(
        self,
        at: float,
        outcome: StreamOutcome,
        error: StreamGuardError | None = None,
        *,
        confirmed: bool,
    ) -> None:
        self._end_line(at)
        ended = outcome
        if self._news is not None and self._life is not None:
            self._news.end(at)
            if outcome == "completed":
                ended = _hollow(self._life.watch) or outcome
            self._activity.unbind(self._life)
        self._tell(events.StreamEnded, at, error=error, outcome=ended)
        self._tell(
            events.AttemptEnded,
            at,
            attempt=self._attempt,
            outcome=outcome,
            error=error,
            confirmed=confirmed,
        )
        self._life = self._news = self._verdict = None

    def _give_up(self, at: float) -> None:
        """There was to be another attempt, and there is none."""
        self._is_between = False
        why = "no further attempt was begun"
        facts = {"reason": "class", "why": why, "error": StreamGuardError(why)}
        self._tell(events.GaveUp, at, escalate=False, **facts)

    def _tell(self, kind: type[events.Event], at: float, **facts: Any) -> None:
        self._account(kind(activity=self._activity, at=at, **facts))

    def _event_of_ours(self, event: events.Event) -> None:
        """What the account itself has to say: that something is missing."""
        if isinstance(event, events.RecordingFailed):
            self._complain(event.what, event.why)
        self._account(event)

    def _lines_of(self, chunk: bytes) -> Iterator[bytes | Shortened]:
        first, newline, others = chunk.partition(b"\n")
        self._line += first
        if newline:
            if not self._is_passing_over:
                yield _bounded(bytes(self._line))
            self._is_passing_over = False
            *whole, last = others.split(b"\n")
            yield from map(_bounded, whole)
            self._line = bytearray(last)
        if len(self._line) > _LONGEST_LINE:
            if not self._is_passing_over:
                yield Shortened(bytes(self._line[:HEAD]), len(self._line))
            self._is_passing_over = True
            self._line = bytearray()


def _bounded(line: bytes) -> bytes | Shortened:
    line = line.removesuffix(b"\r")
    return line if len(line) <= _LONGEST_LINE else Shortened(line[:HEAD], len(line))


def _frames_in(came: bytearray) -> Iterator[tuple[int, str, tuple[Any, ...]]]:
    """Every whole frame, which is taken away."""
    at = 0
    while at + LENGTH <= len(came):
        end = at + LENGTH + int.from_bytes(came[at : at + LENGTH], "little")
        if end > len(came):
            break
        yield marshal.loads(came[at + LENGTH : end])  # noqa: S302 - the run's own
        at = end
    del came[:at]


def _signals_of(said: list[tuple[Any, ...]]) -> tuple[Signal, ...]:
    return tuple(getattr(signals, name)(*values) for name, *values in said)


def _with_vitals(told: dict[str, Any]) -> dict[str, Any]:
    """`told`, with the vitals as a value again."""
    if (vitals := told.get("vitals")) is not None:
        told["vitals"] = Vitals.from_json(vitals)
    return told


def _outcome_of(end: dict[str, Any], code: int) -> StreamOutcome:
    if end["limit"] is not None and end["limit"] != "exit_grace":
        return "failed"
    if end["is_passed_on"]:
        return "cancelled"
    return "completed" if code == 0 else "failed"


def _hollow(watch: Watch) -> StreamOutcome | None:
    """What a good end is that nothing came of, or that has left work behind."""
    if watch.abandoned:
        return "abandoned"
    return "empty" if watch.ended_empty else None


def _teardown_of(end: dict[str, Any], *, confirmed: bool) -> Teardown:
    tree: Cause = "terminated" if end["signals"] else "exited"
    if end["survivors"]:
        tree = "survived"
    elif end["is_unproven"]:
        tree = "unproven"
    elif end["is_killed"]:
        tree = "killed"
    return Teardown(
        confirmed=confirmed,
        signals=end["signals"],
        elapsed=end["elapsed"],
        exit=end["exit"],
        survivors=end["survivors"],
        tree=tree,
        out_of_reach=end["out_of_reach"],
    )


def _occupy_standard() -> None:
    """See that no file gets the number of standard input, output or error. Needs no /dev."""
    reading, writing = os.pipe()
    for fd in (0, 1, 2):
        if fd != writing:
            os.dup2(writing, fd)
    if reading > 2:
        os.close(reading)
