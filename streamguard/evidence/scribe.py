"""`Scribe`: what a recorder writes, and how it says what it could not.

All of it happens where `writer` does its jobs (for a recorder, on that thread), but for `inspect`,
which is the inspector's. Knows files, messages and receipts, the timeline and the surroundings; nothing of loops.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from streamguard import events
from streamguard.activity import Activity
from streamguard.evidence.files import Folder, as_line, name_of, read_document, rotated
from streamguard.evidence.receipts import Names, Place, Timeout, short
from streamguard.evidence.surroundings import called, find_artifacts
from streamguard.evidence.timeline import Timeline
from streamguard.evidence.worker import Executor, Worker
from streamguard.evidence.worktree import git_state

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamguard.evidence.stream import Stream
    from streamguard.evidence.surroundings import Artifacts

MEGABYTE: Final = 1024 * 1024
_LOG: Final = "timeouts.jsonl"
_LONGEST_ACTION: Final = len("escalate")
_LOG_CAP: Final = 16 * MEGABYTE
_TIMELINE_CAP: Final = 64 * MEGABYTE
_DRIFT: Final = 1.0
_FOLDERS: Final = 64  # of the latest flows: a program may name each anew

inspector: Final = Worker("streamguard inspector", rank=0)
writer: Final = Worker("streamguard recorder", rank=1)


class Scribe:
    """Writes one recorder's evidence. `render` makes JSON of a message.

    `pid`: the process that it is about, if that is another one. `clock`: the one that it is told in, if
    it is told late. `report` is told what could not be written that belongs to no stream.
    """

    def __init__(
        self,
        run: Path,
        names: Names,
        render: Callable[[object], Any],
        *,
        work_dir: Path,
        artifacts: Artifacts,
        flush: Callable[[], object] | None = None,
        transcript_cap: int | None,
        writer: Executor,
        inspector: Executor,
        pid: int | None = None,
        clock: Callable[[], float] | None = None,
        report: Callable[[events.RecordingFailed], object] = events.log,
    ) -> None:
        self._run = run
        self.names = names
        self._render = render
        self.work_dir = work_dir
        self._artifacts = artifacts
        self._flush = flush
        self._transcript_cap = transcript_cap
        self.writer, self.inspector = writer, inspector
        self._written_for = pid
        self._clock = clock
        self._report = report
        # They remember what they have looked at.
        self._folder = lru_cache(_FOLDERS)(partial(Folder, run))
        self._id = uuid.uuid4().hex[:6]
        self._timeline = Timeline()
        self._timeline_file: int | None = None
        self._timeline_clock = (0.0, 0.0)  # an instant on the loop's clock, and on the wall
        # Of a step's verdicts the latest has the receipt.
        self._latest: dict[tuple[str, str], str] = {}
        self._failures: dict[str, int] = {}

    @property
    def _pid(self) -> int:
        return os.getpid() if self._written_for is None else self._written_for

    @property
    def failures(self) -> Mapping[str, int]:
        """What could not be recorded, and how often."""
        return MappingProxyType(self._failures)

    def receipt_path(self, place: Place) -> Path:
        """Where the receipt of a step is."""
        return self._receipts(place).path / _receipt_name(place)

    def transcript_path(self, place: Place) -> Path | None:
        """Where the transcript of a step is; None if there is to be none."""
        if self._transcript_cap is None:
            return None
        return self._transcripts(place).path / _transcript_name(place)

    def is_first(self, place: Place) -> bool:
        """Whether this recorder has no verdict of the step yet."""
        return (place.flow, place.step) not in self._latest

    def supersede(self, timeout: Timeout) -> None:
        """The step's receipt is that one's from here on."""
        self._latest[timeout.place.flow, timeout.place.step] = timeout.id

    def _of_flow(self, place: Place, *names: str) -> Folder:
        return self._folder(name_of(place.flow), *names)

    def _receipts(self, place: Place) -> Folder:
        return self._of_flow(place, "receipts")

    def _transcripts(self, place: Place) -> Folder:
        return self._of_flow(place, "llm")

    # -- what streams bring ------------------------------------------------------------------

    def ask(self, stream: Stream) -> None:
        """See that `stream` is drained soon. From any thread."""
        self.writer.soon(stream)

    def render(self, message: object) -> Any:
        """A message as JSON has it."""
        try:
            return self._render(message)
        except Exception as error:  # noqa: BLE001 - a message may be anything
            self._failed("message", None, error, None)
            return {"$type": type(message).__qualname__, "$unreadable": type(error).__name__}

    @property
    def reads_all(self) -> bool:
        """Whether there is a transcript."""
        return self._transcript_cap is not None

    def look_again(self, stream: Stream, rest: float) -> None:
        """See that `stream` is drained in so many seconds, if not before."""
        self.writer.after(stream, rest)

    def overrun(self, stream: Stream) -> None:
        """Messages of `stream` were dropped, since the writer cannot keep up."""
        self._failed("messages", None, "the writer cannot keep up", stream)

    def count(self, name: str, kind: str, at: float, number: int) -> None:
        """Messages of one kind came."""
        self._timeline.message(name, kind, at, number)
        self.writer.later(self)

    def chart(self, event: events.Event | events.ScopeEvent, at: float, epoch: float) -> None:
        """Something happened. `epoch`: the wall clock's time when the loop's was zero."""
        with self._reporting("timeline", None, None):
            self._timeline.event(event)
        self._note_clock(at, epoch)
        self.writer.later(self)

    def epoch(self, at: float) -> float:
        """What the wall clock said at zero of the clock on which it is `at`."""
        return time.time() - (at if self._clock is None else self._clock())

    def do(self, *, last: bool = False) -> None:
        """Write the timeline, as far as it is ready."""
        with self._reporting("timeline", self._run / "timeline.jsonl", None):
            me = f"{self._pid}-{self._id}"
            lines = [as_line({"writer": me, **line}) for line in self._timeline.take(last=last)]
            if lines:
                appended = self._folder().append(
                    "timeline.jsonl",
                    lines,
                    cap=_TIMELINE_CAP,
                    header=as_line(self._timeline_header(me)),
                    known=self._timeline_file,
                )
                self._timeline_file = appended.file

    def transcribe(self, stream: Stream, lines: Iterable[dict[str, Any]]) -> None:
        """Append to the stream's transcript."""
        self._append_transcript(stream, lines, sync=False)

    def _append_transcript(
        self, stream: Stream, lines: Iterable[dict[str, Any]], *, sync: bool
    ) -> None:
        folder, name = self._transcripts(stream.place), _transcript_name(stream.place)
        if self._transcript_cap is None:
            return
        with self._reporting("transcript", folder.path / name, stream):
            encoded: list[bytes] = []
            for line in lines:
                encoded.append(as_line(line))
                self.writer.breathe()
            mark = as_line({"stream": stream.name, "earlier": rotated(name)})
            folder.append(name, encoded, cap=self._transcript_cap, mark=mark, sync=sync)

    def end_transcript(self, stream: Stream, how: str, at: float, attempt: int) -> None:
        stream.do()
        self._append_transcript(stream, [stream.mark("ended", how, at, attempt)], sync=False)

    def write_verdict(self, stream: Stream | None, timeout: Timeout) -> None:
        if stream is not None:
            stream.do()
            if self._transcript_cap is not None:
                cut = {
                    "limit": timeout.verdict.limit,
                    "reason": short(timeout.verdict.reason),
                    "timeout_id": timeout.id,
                }
                line = stream.mark("cut", cut, timeout.verdict.at, timeout.standing.attempt)
                self._append_transcript(stream, [line], sync=True)
        self.write_receipt(stream, timeout)

    def write_receipt(self, stream: Stream | None, timeout: Timeout) -> None:
        place = timeout.place
        if self._latest.get((place.flow, place.step)) == timeout.id:
            folder, name = self._receipts(place), _receipt_name(place)
            with self._reporting("receipt", folder.path / name, stream):
                folder.replace(name, as_line(timeout.receipt()))
        before, line = timeout.logged, _log_line(timeout)
        if line == before:
            return
        folder = self._of_flow(place)
        with self._reporting("timeouts", folder.path / _LOG, stream):
            if before:
                folder.amend(_LOG, before, line, end=timeout.logged_to)
            else:
                timeout.logged_to = folder.append(_LOG, [line], cap=_LOG_CAP, sync=True).end
            timeout.logged = line  # else it is tried again with what is known next

    def close_receipt(self, stream: Stream) -> None:
        """An earlier run's timeout of this step is dealt with: the step has now come through."""
        folder, name = self._receipts(stream.place), _receipt_name(stream.place)
        path = folder.path / name
        with self._reporting("receipt", path, stream):
            if path.is_symlink() or (receipt := read_document(path)) is None:
                return
            if receipt.get("status") == "timeout" and receipt.get("recovered") is False:
                folder.replace(name, as_line({**receipt, "recovered": True}))

    def _note_clock(self, at: float, epoch: float) -> None:
        """Remember how the loop's clock stands to the wall's; say so anew if that has changed."""
        known_at, known_wall = self._timeline_clock
        if abs((known_wall - known_at) - epoch) > _DRIFT:
            self._timeline_clock = (at, epoch + at)
            self._timeline_file = None

    def _timeline_header(self, me: str) -> dict[str, Any]:
        at, wall = self._timeline_clock
        return {
            "kind": "writer",
            "version": 1,
            "writer": me,
            **self.names._asdict(),
            "pid": self._pid,
            "at": at,
            "wall": wall,
        }

    @contextmanager
    def _reporting(
        self, what: str, path: Path | None, stream: Stream | None
    ) -> Generator[None, None, None]:
        """What fails here is told, and ends here."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - see above
            self._failed(what, path, error, stream)

    def _failed(
        self, what: str, path: Path | None, error: BaseException | str, stream: Stream | None
    ) -> None:
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        else:  # its text may quote a message (E3)
            why = error if isinstance(error, str) else type(error).__name__
        told = f"{what}: {why}"
        self._failures[told] = self._failures.get(told, 0) + 1
        if self._failures[told] > 1:
            return
        where = os.fspath(path) if path is not None else None
        facts: dict[str, Any] = {"what": what, "path": where, "why": why}
        if stream is not None:
            stream.report(events.RecordingFailed, facts)
        else:
            self._report(events.RecordingFailed(activity=Activity(what), at=0.0, **facts))

    # -- on the inspector's thread -----------------------------------------------------------

    def inspect(self, stream: Stream | None, timeout: Timeout) -> None:
        if self._flush is not None and (failure := called(self._flush, "flush")) is not None:
            self._failed("flush", None, failure, stream)
        timeout.git = git_state(self.work_dir, run=self._run)
        timeout.found = found = find_artifacts(self._artifacts, (self._run, self.work_dir))
        if found.error is not None:
            self._failed("artifacts", None, found.error, stream)
        if found.outside:
            self._failed("artifacts", None, "a path outside of the run and the work tree", stream)
        self.writer.now(partial(self.write_receipt, stream, timeout))


def _log_line(timeout: Timeout) -> bytes:
    """Its line, of a length that no decision changes: it is there at once, and amended in its place."""
    said = timeout.line()
    action: str = said["final_action"]
    before, name, after = as_line(said).partition(f'"final_action": "{action}"'.encode())
    return before + name + b" " * (_LONGEST_ACTION - len(action)) + after


def _receipt_name(place: Place) -> str:
    return f"{name_of(place.step)}-timeout.json"


def _transcript_name(place: Place) -> str:
    return f"{name_of(place.step)}-partial.jsonl"
