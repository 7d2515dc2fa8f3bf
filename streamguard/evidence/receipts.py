"""`Timeout`: one verdict as it is written down, in the log's line and in the receipt.

The field names are a policy's that orchestrators already follow: `timeout_event`,
`last_known_state`, `partial_artifacts`, `context_for_resume`. Knows verdicts and teardowns, no files.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from streamguard._base.done import NOTHING_DONE, Done

if TYPE_CHECKING:
    from streamguard.errors import Limit, Teardown, Verdict
    from streamguard.evidence.surroundings import ArtifactsFound
    from streamguard.evidence.worktree import Git

VERSION: Final = 1
_LONGEST: Final = 2000
_MOST_IN_FLIGHT: Final = 100
_SCOPES: Final = ("flow", "step", "llm_call", "tool")
_SCOPE_OF: Final[dict[Limit, str]] = {"tools": "tool", "total": "step"}

FinalAction: TypeAlias = Literal["retry", "fail", "escalate"]


def timestamp(when: datetime) -> str:
    """ISO 8601, in UTC, with milliseconds."""
    text = when.astimezone(UTC).isoformat(timespec="milliseconds")
    return text.replace("+00:00", "Z")


def short(text: object) -> str:
    """What users and backends name things, in bounds."""
    return str(text)[:_LONGEST]


class Names(NamedTuple):
    """What a recorder's user has named; None is found where a stream begins."""

    run_id: str
    flow: str | None = None
    step: str | None = None
    agent: str | None = None


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What the user last said of a step: see `Recorder.mark`."""

    phase: str | None = None
    progress: str | None = None
    checkpoint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Whose evidence it is, as the user calls it."""

    run_id: str
    flow: str
    step: str
    agent: str | None


@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a stream stood when it was cut: what is needed to go on from there."""

    stream: str | None = None
    backend: str | None = None
    token: str | None = None
    cursor: Any = None
    attempt: int = 1
    retries: int = 0
    delivered: int = 0
    pid: int | None = None
    done: Done = NOTHING_DONE


@dataclass(kw_only=True)
class Timeout:
    """One verdict, and what is known of it so far.

    `needs_teardown`: whether a backend was to be torn down, so that as long as nothing is known of
    that it may be alive. `backend_ended`: whether it certainly is not.
    """

    id: str
    verdict: Verdict
    place: Place
    marks: Marks
    standing: Standing
    recovery_path: str
    transcript_path: str | None
    needs_teardown: bool
    work_dir: str | None = None
    final_action: FinalAction | None = None
    teardown: Teardown | None = None
    backend_ended: bool | None = None
    recovered: bool = False
    logged: bytes = b""  # its line, as it is in the log
    logged_to: int = 0  # … and where it ends there
    git: Git | None = None
    found: ArtifactsFound | None = None

    def line(self) -> dict[str, Any]:
        """The line in timeouts.jsonl."""
        return {
            "timestamp": self._timestamp,
            "run_id": self.place.run_id,
            "flow_key": self.place.flow,
            "step_id": self.place.step,
            "scope": self._scope,
            "timeout_ms": self._timeout_ms,
            "elapsed_ms": _ms(self.verdict.elapsed),
            "retry_count": self.standing.retries,
            "final_action": self.final_action or "fail",
            "recovery_path": self.recovery_path,
            "timeout_id": self.id,
            "limit": self.verdict.limit,
            "stream": self.standing.stream,
            "reason": short(self.verdict.reason),
            "vitals": self._vitals(),
        }

    def receipt(self) -> dict[str, Any]:
        """The receipt."""
        standing, place = self.standing, self.place
        return {
            "version": VERSION,
            "status": "timeout",
            "timeout_id": self.id,
            "run_id": place.run_id,
            "flow_key": place.flow,
            "step_id": place.step,
            "final_action": self.final_action,
            "recovered": self.recovered,
            "retry_count": standing.retries,
            "timeout_event": self._event(),
            "last_known_state": {
                "step_id": place.step,
                "agent_key": place.agent,
                "phase": self.marks.phase,
                "progress_indicator": self.marks.progress,
                "vitals": self._vitals(),
            },
            "partial_artifacts": list(self.found.artifacts) if self.found is not None else [],
            "context_for_resume": {
                "last_successful_checkpoint": self.marks.checkpoint,
                "uncommitted_changes": self._changes(),
                "transcript_path": self.transcript_path,
                "work_dir": self.work_dir,
                "backend": standing.backend,
                "session_token": standing.token,
                "cursor": standing.cursor,
                "attempt": standing.attempt,
                "tools_run": standing.done.tools_run,
                "delivered": standing.delivered,
                "backend_ended": self._backend_ended(),
            },
            "git": self._git(),
            "teardown": self._teardown(),
            "usage": dict(standing.done.usage),
            "done": standing.done.as_json(),
        }

    @property
    def _timestamp(self) -> str:
        return timestamp(self.verdict.when or datetime.now(UTC))

    @property
    def _timeout_ms(self) -> int | None:
        return None if self.verdict.window is None else _ms(self.verdict.window)

    @property
    def _scope(self) -> str:
        """The policy's word for what was cut: a time scope, or what in a stream took too long."""
        limit = self.verdict.limit
        return limit if limit in _SCOPES else _SCOPE_OF.get(limit, "llm_call")

    def _event(self) -> dict[str, Any]:
        verdict = self.verdict
        age = verdict.last_message_age
        return {
            "timestamp": self._timestamp,
            "scope": self._scope,
            "timeout_ms": self._timeout_ms,
            "elapsed_ms": _ms(verdict.elapsed),
            "limit": verdict.limit,
            "reason": short(verdict.reason),
            "scope_path": [str(name) for name in verdict.scope],
            "stream": self.standing.stream,
            "messages": verdict.messages,
            "first_seen": verdict.first_seen,
            "last_signal": verdict.last_signal,
            "last_message_age_ms": None if age is None else _ms(age),
            "in_flight": [short(name) for name in verdict.in_flight[:_MOST_IN_FLIGHT]],
            "lateness_ms": _ms(verdict.lateness),
            "exit": verdict.exit,
        }

    def _vitals(self) -> dict[str, Any] | None:
        vitals = self.verdict.vitals
        return None if vitals is None else vitals.as_json()

    def _changes(self) -> list[str] | None:
        if self.git is None or self.git.state == "unknown":
            return None
        return list(self.git.changes)

    def _backend_ended(self) -> bool | None:
        if self.backend_ended is not None:
            return self.backend_ended
        return False if self.needs_teardown else None

    def _git(self) -> dict[str, Any] | None:
        if self.git is None:
            return None
        return {
            "state": self.git.state,
            "branch": self.git.branch,
            "head": self.git.head,
            "more_changes": self.git.more_changes,
            "why": self.git.why,
        }

    def _teardown(self) -> dict[str, Any] | None:
        done = self.teardown
        if done is None:
            return None
        return {
            "confirmed": done.confirmed,
            "disconnect": done.disconnect,
            "signals": list(done.signals),
            "elapsed_ms": _ms(done.elapsed),
            "exit": done.exit,
            "survivors": list(done.survivors),
            "tree": done.tree,
            **({"out_of_reach": done.out_of_reach} if done.out_of_reach else {}),
            "pid": self.standing.pid,
        }


def _ms(value: float) -> int:
    return round(value * 1000)
