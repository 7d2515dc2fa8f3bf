"""`Recorder`: what happened in a run, written down as it happens.

On the loop's thread a recorder only takes note: messages and events go into queues, a verdict becomes
a `Timeout` (see `account`). Two threads do the rest: the *writer* everything that is written, in order; the *inspector*
what may take its time at a verdict (git, the user's artifacts), so that a receipt is there at once and
complete a moment later. A verdict's error is raised when the receipt is there, or after `WORTH`.

Nothing here raises into a stream: what could not be recorded is told once per kind as a
`RecordingFailed`, and counted in `failures`.
"""

from __future__ import annotations

import atexit
import inspect
import os
import time
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, cast

import anyio

from streamguard import _loops as loops
from streamguard import events
from streamguard._base.callbacks import check_callable
from streamguard._base.calling import checked_class, factory, refusing
from streamguard._base.numbers import Seconds, wait
from streamguard._guard.operator import Operator
from streamguard._guard.plan import Plan
from streamguard._scopes import scopes
from streamguard.errors import ConfigError
from streamguard.events import recorders as recording
from streamguard.events.recorders import Recording, Tap
from streamguard.events.teller import logger
from streamguard.evidence.account import Account
from streamguard.evidence.receipts import Names
from streamguard.evidence.rendering import Rendering
from streamguard.evidence.scribe import MEGABYTE, Scribe, inspector, writer
from streamguard.evidence.secrets import Redaction
from streamguard.evidence.waiting import in_thread

if TYPE_CHECKING:
    from streamguard._guard.attempt import Attempt
    from streamguard.activity import Activity
    from streamguard.errors import ScopeName
    from streamguard.evidence.surroundings import Artifacts, StrPath

# How long a verdict's error may wait for its receipt, in seconds of the wall.
WORTH: Final = 2.0
_AT_THE_END: Final = 5.0

_recorders: Final[weakref.WeakSet[Recorder]] = weakref.WeakSet()


@checked_class
class Recorder(Recording):
    """Writes down what happens to the streams and time scopes in its block, or in its pipe.

    `with recorder:` (or `async with`, which also waits until all is written) around scopes and
    streams; or `stream | idle_guard(180) | record_with(recorder)`. One recorder may serve any
    number of streams, and several processes may write one run.
    """

    if not TYPE_CHECKING:  # so that a checker, too, says what is wrong
        __ror__ = refusing("a recorder is piped with record_with: stream | record_with(recorder)")

    def __init__(
        self,
        run_dir: StrPath,
        *,
        run_id: str | None = None,
        flow: str | None = None,
        step: str | None = None,
        agent: str | None = None,
        work_dir: StrPath | None = None,
        artifacts: Artifacts = (),
        flush: Callable[[], object] | None = None,
        transcript: bool = True,
        transcript_bytes: int = 32 * MEGABYTE,
        redact: Callable[[str], str] | None = None,
    ) -> None:
        """Nothing is written, or made, before there is something to write.

        Args:
            run_dir: The run's folder.

            run_id: What the run is called; the folder's name if left out.

            flow: Which flow it is. If left out: the `flow` scope that a stream begins in, or "flow".

            step: Which step. If left out: the `step` scope, or the activity's name.

            agent: Who does it: `agent_key` in receipts.

            work_dir: The work tree that git is asked about, and where artifacts are looked for,
                beside the run's folder. The current folder if left out.

            artifacts: What the step is to write: paths, or a function that gives them (called at a
                verdict, in a thread). An `evidence.surroundings.Artifact` says more than a path.

            flush: Called at a verdict, in a thread, before git is asked and artifacts are looked at: what
                brings what the program has buffered to disk.

            transcript: Whether messages are written down at all.

            transcript_bytes: About how much of each step's transcript is kept: the latest.

            redact: Called with each text of a transcript when the known kinds of secrets are out of
                it; in a thread.
        """
        for name, value in (("run_id", run_id), ("flow", flow), ("step", step), ("agent", agent)):
            if not isinstance(cast("object", value), str | None) or value == "":
                raise ConfigError(f"Recorder({name}={value!r}): use a name, or leave it out")
        if isinstance(artifacts, str | bytes):
            raise ConfigError(f"Recorder(artifacts={artifacts!r}): use a list of paths")
        if flush is not None:
            check_callable("flush", flush)
            if inspect.iscoroutinefunction(flush):
                raise ConfigError(
                    f"flush={flush!r} is called in a thread, where nothing can be awaited: no "
                    "`async def`"
                )
        self._run = Path(run_dir)
        self._scribe = Scribe(
            self._run,
            Names(run_id or self._run.resolve().name, flow, step, agent),
            Rendering(Redaction(redact), writer.breathe),
            work_dir=Path.cwd() if work_dir is None else Path(work_dir).absolute(),
            artifacts=artifacts if callable(artifacts) else tuple(artifacts),
            flush=flush,
            transcript_cap=max(1, transcript_bytes // 2) if transcript else None,
            writer=writer,
            inspector=inspector,
        )
        self._account = Account(self._scribe, scopes.path)
        self.reads_all = transcript
        self._entered = 0
        _recorders.add(self)

    def __repr__(self) -> str:
        return f"Recorder({os.fspath(self._run)!r})"

    # -- what users call -------------------------------------------------------------------

    @property
    def run_dir(self) -> Path:
        """The run's folder."""
        return self._run

    @property
    def failures(self) -> Mapping[str, int]:
        """What could not be recorded, and how often; empty if all is well."""
        return self._scribe.failures

    def mark(
        self,
        *,
        phase: str | None = None,
        progress: str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Say where the step stands, for the receipt. What is left out stays as it was.

        `phase`: such as "work", "finalize" or "route". `progress`: in words. `checkpoint`: what was
        done last that a retry can go on from.
        """
        self._account.mark(phase=phase, progress=progress, checkpoint=checkpoint)

    def flush(self, timeout: Seconds = _AT_THE_END) -> bool:
        """Wait until all that was told is on disk; False if that took too long. Blocks."""
        longest = wait(timeout, "timeout")
        deadline = time.monotonic() + longest
        inspected = inspector.flush(longest)
        return writer.flush(max(0.0, deadline - time.monotonic())) and inspected

    def __enter__(self) -> Self:
        recording.enter(self)
        self._entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()
        if loops.current_or_none() is None:
            self.flush()
        # Else nothing may block: it is written soon, and before the program ends.

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self._leave()
        with anyio.CancelScope(shield=True):
            await self._wait_for(self.flush)

    def _leave(self) -> None:
        recording.leave(self)
        self._entered -= 1
        if not self._entered:  # else a task that shares it may still be waiting for a decision
            self._account.settle()

    # -- what streams and scopes call ------------------------------------------------------

    def tap(self, attempt: Attempt) -> Tap:
        stream = self._account.stream_of(attempt.activity)
        stream.begin(attempt)
        return stream.transcribed if self.reads_all else stream.counted

    def await_decision(self, activity: Activity) -> None:
        self._account.stream_of(activity).awaits_decision = True

    def session_over(self, activity: Activity) -> None:
        self._account.session_over(activity)

    def scope_began(self, path: tuple[ScopeName, ...], scope: object) -> None:
        self._account.sequels.began(path, scope)

    def scope_over(
        self, path: tuple[ScopeName, ...], scope: object, *, came_through: bool
    ) -> None:
        self._account.scope_over(path, scope, came_through=came_through)

    async def written(self) -> None:
        await self._wait_for(partial(writer.flush, WORTH))

    async def _wait_for(self, flush: Callable[[], bool]) -> None:
        try:
            await in_thread(flush)
        except RuntimeError:  # no thread can be begun any more: it is written at the program's end
            logger.exception("%r could not wait for what it writes", self)

    def __call__(self, event: events.Event | events.ScopeEvent, /) -> None:
        self._account(event)


@factory("stream | idle_guard(180) | record_with(recorder)")
def record_with(recorder: Recorder, /) -> Operator:
    """Records the stream with `recorder`, wherever it is used.

    `with recorder:` does the same for all streams and time scopes in its block.
    """
    if not isinstance(cast("object", recorder), Recorder):
        raise ConfigError(f"record_with({recorder!r}): give it a Recorder(run_dir, ...)")
    return Operator(Plan(observers=(recorder,)), f"record_with({recorder!r})")


@atexit.register
def _settle_all() -> None:
    for recorder in list(_recorders):
        recorder._account.settle()


def _forget() -> None:
    """In a forked child: what was recorded up to here is the parent's to write."""
    for recorder in list(_recorders):
        recorder._account.forget()
    _recorders.clear()


os.register_at_fork(after_in_child=_forget)
