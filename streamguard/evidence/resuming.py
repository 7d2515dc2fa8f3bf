"""`plan_resume` and `resume_from`: from a recorded timeout back to a running session.

A plan says what can be done about the latest timeout of a flow, and what is best; it changes nothing.
Reads what a recorder wrote, as far as it lies in the run's folder, and asks git how things are now.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from streamguard._base.calling import checked
from streamguard._base.trusted import UntrustedError
from streamguard.errors import ConfigError, StreamGuardError
from streamguard.evidence.files import name_of, read_document, read_lines
from streamguard.evidence.worktree import Git, git_state
from streamguard.sessions.points import ResumePoint

if TYPE_CHECKING:
    from collections.abc import Hashable

    from streamguard.evidence.surroundings import StrPath

Option: TypeAlias = Literal["retry_step", "discard_and_retry", "escalate"]

_MANY: Final[tuple[Option, ...]] = ("retry_step", "discard_and_retry", "escalate")


@dataclass(frozen=True, kw_only=True)
class ResumePlan:
    """What can be done about a timeout.

    `options`: what is possible; `recommendation`: which of it, and `reason`: why.
    `flow`, `step`: what timed out. `checkpoint`: what was done last, as `Recorder.mark` was told.
    `uncommitted_changes`: of the work tree now; None if git did not say, or there is no repository.
    `token`: resumes the backend's session. `backend_ended`: whether that is certainly over, None if
    there was nothing to end. `cursor`: what was delivered last. `attempt`, `tools_run`,
    `delivered`: how far the session had come. `final_action`: what followed the timeout, None while that
    is not decided. `receipt`: all that is known, as it is written in `receipt_path`.
    """

    options: tuple[Option, ...]
    recommendation: Option
    reason: str
    flow: str
    step: str
    checkpoint: str | None
    uncommitted_changes: tuple[str, ...] | None
    token: str | None
    cursor: Hashable | None
    attempt: int
    tools_run: int
    delivered: int
    backend_ended: bool | None
    final_action: str | None
    receipt_path: Path
    receipt: dict[str, Any]


@checked
def plan_resume(
    run_dir: StrPath, flow: str, *, work_dir: StrPath | None = None
) -> ResumePlan | None:
    """Say what can be done about the latest timeout of `flow`; None if there is none.

    `run_dir`: the folder that the recorder wrote to.
    A timeout after which a retry came through does not count. `work_dir`: the work tree that git is
    asked about, for at most two seconds; the recorder's if left out. Blocks for as long.

    Raises:
        StreamGuardError: The receipts belong to another user, or others may write to them. They say
            which session goes on, and where.
    """
    folder = Path(run_dir) / name_of(flow)
    try:
        latest = _latest_receipt(folder / "receipts")
        if latest is None:
            return None
        path, receipt = latest
        final_action = _final_action(folder, receipt)
    except UntrustedError as error:
        raise StreamGuardError(
            f"{error.filename} says what is to be resumed, and is not trusted: {error.strerror}. Plan "
            "as the user who recorded it, or look at it and make it this user's alone"
        ) from None
    context = _part(receipt, "context_for_resume")
    work_tree = Path(_text(context.get("work_dir")) or "." if work_dir is None else work_dir)
    git = git_state(work_tree, run=Path(run_dir))
    backend_ended = context.get("backend_ended")
    plan = ResumePlan(
        options=_MANY,
        recommendation="escalate",
        reason="",
        flow=str(receipt.get("flow_key", flow)),
        step=str(receipt.get("step_id", "")),
        checkpoint=_text(context.get("last_successful_checkpoint")),
        uncommitted_changes=git.changes if git.state in ("clean", "changed") else None,
        token=_text(context.get("session_token")),
        cursor=cast("Hashable", context.get("cursor")),
        attempt=_number(context.get("attempt"), 1),
        tools_run=_number(context.get("tools_run"), 0),
        delivered=_number(context.get("delivered"), 0),
        backend_ended=backend_ended if isinstance(backend_ended, bool) else None,
        final_action=final_action,
        receipt_path=path,
        receipt=receipt,
    )
    return _weighed(plan, git)


@checked
def resume_from(
    plan: ResumePlan,
    *,
    action: Option = "retry_step",
    prompt: str | None = "Continue.",
    first_prompt: str | None = None,
    resume_after_unconfirmed_teardown: bool = False,
) -> ResumePoint:
    """Where a new session begins: `session(open, point=resume_from(plan))`.

    Args:
        plan: What `plan_resume` gave.

        action: "retry_step" goes on with the backend's session, if it can be resumed.
            "discard_and_retry" starts afresh: its history tells of work that you have discarded.

        prompt: What a resumed session is asked.

        first_prompt: What a fresh one is asked, unless `session` has a prompt itself.

        resume_after_unconfirmed_teardown: Go on although the old backend may be alive.

    Raises:
        StreamGuardError: It is not safe. The old backend may be alive, and two owners of one
            session corrupt it. Or tools were run in a session that cannot be resumed.

        ConfigError: If `action` is not one that starts anything.
    """
    if not isinstance(cast("object", plan), ResumePlan):
        raise TypeError(
            f"resume_from({plan!r}): pass what plan_resume(run_dir, flow) gave: resume_from(plan)"
        )
    if action not in ("retry_step", "discard_and_retry"):
        raise ConfigError(
            f"resume_from(action={action!r}): use 'retry_step' or 'discard_and_retry'. What is to be "
            "escalated is a person's to decide"
        )
    if plan.backend_ended is False and not resume_after_unconfirmed_teardown:
        raise StreamGuardError(
            f"the backend of step {plan.step!r} is not known to have ended ({plan.receipt_path}), "
            "and two owners would corrupt its session. Most likely this program was killed before "
            "its teardown was over: see that the backend is gone, then say "
            "resume_from(plan, resume_after_unconfirmed_teardown=True)"
        )
    number = plan.attempt + 1
    if action == "retry_step" and plan.token is not None:
        return ResumePoint(
            attempt=number,
            prompt=prompt,
            token=plan.token,
            cursor=plan.cursor,
            tools_run=plan.tools_run,
            delivered=plan.delivered,
            work_dir=_text(_part(plan.receipt, "done").get("work_dir")),
        )
    if action == "retry_step" and plan.tools_run:
        raise StreamGuardError(
            f"cannot retry step {plan.step!r}: {_tools(plan)} occurred without session context, and "
            "would be done again. Undo what they did, then say "
            "resume_from(plan, action='discard_and_retry')"
        )
    return ResumePoint(attempt=number, prompt=first_prompt)


def _weighed(plan: ResumePlan, git: Git) -> ResumePlan:
    """The plan with what is best of it."""
    options = _MANY
    recommendation: Option = "retry_step"
    if plan.backend_ended is False:
        recommendation, reason = (
            "escalate",
            "The backend may still be alive: see that it ends first",
        )
    elif plan.token is None and plan.tools_run:
        recommendation = "escalate"
        reason = f"{_tools(plan).capitalize()} occurred without session context"
    elif plan.final_action == "escalate":
        recommendation, reason = "escalate", "The session gave up and asked for a person"
    elif git.state == "no repository":
        reason = f"No git repository, so whether partial work exists is not known: {_whence(plan)}"
    elif plan.uncommitted_changes is None:
        recommendation = "escalate"
        reason = f"Whether partial work exists could not be found out: {git.why}"
    elif plan.uncommitted_changes:
        reason = "Partial work exists that may be salvageable"
    else:
        options = ("retry_step", "escalate")
        reason = f"No uncommitted changes: {_whence(plan)}"
    return replace(plan, options=options, recommendation=recommendation, reason=reason)


def _whence(plan: ResumePlan) -> str:
    """Where the step can be taken up."""
    if plan.checkpoint:
        return f"the step can be retried from checkpoint {plan.checkpoint}"
    if plan.token is not None:
        return "the step's session can be resumed"
    return "the step can be retried from its beginning"


def _tools(plan: ResumePlan) -> str:
    return f"{plan.tools_run} tool call{'s' * (plan.tools_run != 1)}"


def _latest_receipt(folder: Path) -> tuple[Path, dict[str, Any]] | None:
    """The latest one in the folder that is still to be dealt with."""
    latest, found = ("", folder), None  # one of them at a time: there may be thousands
    for path in sorted(folder.glob("*-timeout.json")):
        if path.is_symlink():  # it may lead out of the run
            continue
        receipt = read_document(path)
        is_open = receipt is not None and receipt.get("recovered") is not True
        if receipt is not None and is_open and receipt.get("status") == "timeout":
            when = str(_part(receipt, "timeout_event").get("timestamp"))
            if found is None or (when, path) > latest:
                latest, found = (when, path), receipt
    return None if found is None else (latest[1], found)


def _final_action(folder: Path, receipt: dict[str, Any]) -> str | None:
    """What was decided, as the receipt says it, or the log of which it was to follow."""
    if (said := _text(receipt.get("final_action"))) is not None:
        return said
    for line in read_lines(folder / "timeouts.jsonl"):
        if line.get("timeout_id") == receipt.get("timeout_id"):
            said = _text(line.get("final_action"))
    return said


def _part(receipt: dict[str, Any], name: str) -> dict[str, Any]:
    part = receipt.get(name)
    return cast("dict[str, Any]", part) if isinstance(part, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
