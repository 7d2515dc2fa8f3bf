"""`--record DIR`: the files that a `Recorder` leaves, written without an event loop or a thread.

The same folder, the same lines and field names (docs/evidence.md), made by the same functions. What
there is to write is kept for a second at most, and written at every verdict. The flow is called
`run`, the step after the command and our pid, so that runs side by side do not meet.

Nothing here raises: what could not be written is said once, on standard error. Loaded only where
`--record` was said.
"""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamguard import events
from streamguard.activity import Activity
from streamguard.errors import ERRORS, Teardown
from streamguard.evidence.files import Folder, as_line, name_of
from streamguard.evidence.messages import Rendering
from streamguard.evidence.receipts import Marks, Place, Standing, Timeout, short, timestamp
from streamguard.evidence.secrets import Redaction
from streamguard.evidence.streams import stream_of
from streamguard.evidence.surroundings import git_state
from streamguard.evidence.timeline import Timeline
from streamguard.signals import TurnEnded, WorkStarted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from streamguard.errors import Cause, Verdict
    from streamguard.evidence.receipts import FinalAction
    from streamguard.runner.outcome import Outcome
    from streamguard.signals import Signal
    from streamguard.windows import Work

_FLOW: Final = "run"
_CAP: Final = 16 * 1024 * 1024
_TIMELINE_CAP: Final = 64 * 1024 * 1024


class Evidence:
    """What one run leaves in `folder`."""

    def __init__(self, folder: str, name: str, say: Callable[[str], None]) -> None:
        self._run = Path(folder)
        self._say = say
        self._activity = Activity(f"{name}-{os.getpid()}")
        self._stream = stream_of(self._activity)
        self._place = Place(
            run_id=self._run.resolve().name, flow=_FLOW, step=self._stream, agent=None
        )
        self._writer = f"{os.getpid()}-{uuid.uuid4().hex[:6]}"
        self._render = Rendering(Redaction(None), lambda: None)
        self._timeline = Timeline()
        self._timeline_file: int | None = None
        self._epoch = time.time() - time.monotonic()
        self._transcript: list[bytes] = []
        self._work: Mapping[str, Work] = {}
        self._attempt = 0
        self._number = 0
        self._tools: set[str] = set()
        self._latest: Timeout | None = None
        self._has_failed = False

    # -- what happens ----------------------------------------------------------------------

    def began(self, attempt: int, pid: int, at: float, *, resumes: bool) -> None:
        """An attempt runs."""
        if attempt == 1:
            self._tell(events.StreamStarted, at)
        self._attempt = attempt
        self._tell(events.AttemptStarted, at, attempt=attempt, resumes=resumes)
        self._tell(events.ProcessAdopted, at, pid=pid, proof="child")

    def message(
        self, message: object, signals: tuple[Signal, ...], at: float, work: Mapping[str, Work]
    ) -> None:
        """A line came, and this is what is in flight since."""
        self._number += 1
        self._append(
            at,
            number=self._number,
            signals=[type(signal).__name__ for signal in signals],
            type=type(message).__qualname__,
            message=self._render(message),
        )
        self._timeline.message(
            self._stream, type(signals[-1]).__name__ if signals else "Progress", at
        )
        for signal in signals:
            if isinstance(signal, TurnEnded):
                self._tell(events.TurnOver, at, outcome=signal.outcome)
            elif isinstance(signal, WorkStarted) and signal.scope != "hook":
                self._tools.add(signal.id)
        self._follow(work, at)

    def verdict(self, verdict: Verdict, outcome: Outcome, action: FinalAction) -> None:
        """An attempt was ended for a limit, and this is what follows."""
        at = verdict.at
        timeout = self._timeout(replace(verdict, when=_when(self._epoch + at)), outcome, action)
        self._latest = timeout
        cut = {"limit": verdict.limit, "reason": short(verdict.reason), "timeout_id": timeout.id}
        self._append(at, cut=cut)
        self._tell(events.TimedOut, at, verdict=verdict, enforced=True)
        assert timeout.teardown is not None
        over = at + timeout.teardown.elapsed
        self._follow({}, over)
        self._tell(events.TornDown, over, verdict=verdict, teardown=timeout.teardown)
        self._tell(
            *(events.AttemptEnded, over),
            attempt=self._attempt,
            outcome="failed",
            error=ERRORS[verdict.limit](verdict=verdict),
            confirmed=timeout.teardown.confirmed,
        )
        with self._reporting():
            timeout.git = git_state(Path.cwd(), run=self._run)
            self._write_receipt(timeout)
            Folder(self._run, _FLOW).append(
                "timeouts.jsonl", [as_line(timeout.line())], cap=_CAP, sync=True
            )
        self.flush()

    def again(self, attempt: int, delay: float, limit: str, at: float) -> None:
        """There will be another attempt."""
        self._tell(
            events.RetryScheduled, at, error_class="idle", retry=attempt, delay=delay, why=limit
        )

    def ended(self, error: BaseException | None, at: float, *, is_success: bool) -> None:
        """The run is over; after a success nobody need deal with what an attempt was ended for."""
        if is_success and self._latest is not None:
            self._latest.recovered = True
            with self._reporting():
                self._write_receipt(self._latest)
        self._follow({}, at)
        self._append(at, ended="normally" if error is None else type(error).__name__)
        self._tell(events.StreamEnded, at, error=error)
        self.flush(last=True)

    def flush(self, *, last: bool = False) -> None:
        """Write what there is."""
        lines, self._transcript = self._transcript, []
        with self._reporting():
            if lines:
                Folder(self._run, _FLOW, "llm").append(
                    f"{name_of(self._place.step)}-partial.jsonl", lines, cap=_CAP, sync=last
                )
            timeline = [
                as_line({"writer": self._writer, **line})
                for line in self._timeline.take(last=last)
            ]
            if timeline:
                self._timeline_file = Folder(self._run).append(
                    "timeline.jsonl",
                    timeline,
                    cap=_TIMELINE_CAP,
                    header=as_line(self._header()),
                    known=self._timeline_file,
                )

    # -- how it is written -----------------------------------------------------------------

    def _write_receipt(self, timeout: Timeout) -> None:
        Folder(self._run, _FLOW, "receipts").replace(
            f"{name_of(self._place.step)}-timeout.json", as_line(timeout.receipt())
        )

    def _timeout(self, verdict: Verdict, outcome: Outcome, action: FinalAction) -> Timeout:
        place = Folder(self._run, _FLOW)
        name = name_of(self._place.step)
        timeout = Timeout(
            id=uuid.uuid4().hex,
            verdict=verdict,
            place=self._place,
            marks=Marks(),
            standing=Standing(
                stream=self._stream,
                token=outcome.token,
                attempt=self._attempt,
                retries=self._attempt - 1,
                tools_run=len(self._tools),
                delivered=outcome.messages,
                pid=outcome.pid,
            ),
            recovery_path=str(place.path / "receipts" / f"{name}-timeout.json"),
            transcript_path=str(place.path / "llm" / f"{name}-partial.jsonl"),
            needs_teardown=True,
            final_action=action,
        )
        status = outcome.status
        tree: Cause = "terminated"
        if outcome.survivors:
            tree = "survived"
        elif outcome.was_killed:
            tree = "killed"
        timeout.teardown = Teardown(
            confirmed=not outcome.survivors,
            signals=tuple(outcome.signals),
            elapsed=outcome.ending_took,
            exit=None if status is None else os.waitstatus_to_exitcode(status),
            survivors=outcome.survivors,
            tree=tree,
        )
        timeout.backend_ended = timeout.teardown.confirmed
        return timeout

    def _follow(self, work: Mapping[str, Work], at: float) -> None:
        """Tell what is in flight since, and what is not any more."""
        if work is self._work:
            return
        before, self._work = self._work, work
        for id_, entry in work.items():
            if id_ not in before:
                background = entry.background
                self._tell(events.WorkBegan, at, id=id_, name=entry.name, background=background)
        for id_, entry in before.items():
            if id_ not in work:
                elapsed = at - entry.since
                facts = {"id": id_, "name": entry.name, "elapsed": elapsed}
                self._tell(events.WorkOver, at, outcome="finished", **facts)

    def _tell(self, kind: type[events.Event], at: float, **facts: Any) -> None:
        self._timeline.event(kind(activity=self._activity, at=at, **facts))

    def _append(self, at: float, **what: Any) -> None:
        line = {
            "at": timestamp(_when(self._epoch + at)),
            "stream": self._stream,
            "attempt": self._attempt,
            **what,
        }
        self._transcript.append(as_line(line))

    def _header(self) -> dict[str, Any]:
        at = time.monotonic()
        return {
            "kind": "writer",
            "version": 1,
            "writer": self._writer,
            "run_id": self._place.run_id,
            "flow": _FLOW,
            "step": self._place.step,
            "agent": None,
            "pid": os.getpid(),
            "at": at,
            "wall": self._epoch + at,
        }

    @contextmanager
    def _reporting(self) -> Generator[None, None, None]:
        try:
            yield
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                self._say(f"--record {self._run}: {error.strerror}")


def _when(epoch: float) -> datetime:
    return datetime.fromtimestamp(epoch, UTC)
