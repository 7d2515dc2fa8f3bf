"""From a recorded timeout to a running session (E4), and when not to."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from streamguard import (
    Activity,
    ConfigError,
    IdleTimeoutError,
    StreamGuardError,
    idle_guard,
    plan_resume,
    reconnecting_resume,
    resume_from,
    session,
)
from tests.evidence.support import Run, hanging, opener, said
from tests.support import Disconnect, take


def timed_out(loop: Any, run: Run, token: str | None = "tok-1", **knobs: Any) -> None:
    """A recorded session that gave up."""

    async def main():
        recorder = run.recorder(agent="coder")
        recorder.mark(checkpoint="build-step-2")
        async with recorder:
            pipe = idle_guard(180, read=said, **knobs) | reconnecting_resume(retries=0)
            with pytest.raises(IdleTimeoutError):
                async with session(opener(1, [], token), prompt="Fix it") | pipe as chat:
                    async for _ in chat:
                        pass

    loop.run(main)


def plan_of(run: Run) -> Any:
    plan = plan_resume(run.folder, "build", work_dir=run.work)
    assert plan is not None
    return plan


def rewrite(run: Run, **context: Any) -> None:
    """Let the receipt say something else of where things stood."""
    path = run.folder / "build/receipts/step-3-timeout.json"
    receipt = json.loads(path.read_bytes())
    top = {name: context.pop(name) for name in ("final_action", "recovered") if name in context}
    receipt = {**receipt, **top}
    receipt["context_for_resume"].update(context)
    path.write_text(json.dumps(receipt))


@pytest.mark.parametrize("told", [{"work_dir": "/home/me/project"}, {"work_dir": 7}, None])
def test_the_backends_folder_is_kept_with_the_token(loop, run, told):
    """S4-14: many sessions can only be resumed in theirs; a receipt of an older version has none."""
    timed_out(loop, run)
    path = run.folder / "build/receipts/step-3-timeout.json"
    path.write_text(json.dumps({**json.loads(path.read_bytes()), "done": told}))
    wanted = told["work_dir"] if told and isinstance(told["work_dir"], str) else None
    assert resume_from(plan_of(run)).work_dir == wanted


def test_recorded_planned_and_resumed(loop, run):
    """E4: the round trip. When the step has come through, nothing is left to be planned."""
    timed_out(loop, run)
    plan = plan_of(run)
    assert (plan.recommendation, plan.step, plan.token) == ("retry_step", "step-3", "tok-1")
    opened = []

    async def main():
        async with run.recorder():
            pipe = idle_guard(180, read=said)
            async with session(opener(0, opened), point=resume_from(plan)) | pipe as chat:
                messages = [message async for message in chat]
        assert len(messages) == 4

    loop.run(main)
    [point] = opened
    assert (point.attempt, point.prompt, point.token) == (2, "Continue.", "tok-1")
    assert plan_resume(run.folder, "build", work_dir=run.work) is None
    assert len(run.timeouts()) == 1


def test_a_bare_stream_is_resumed_by_a_session(loop, run):
    """E4: what was recorded need not have been one."""

    async def main():
        async with run.recorder():
            stream = hanging(*[message async for message in first_words()])
            await take(stream | idle_guard(180, read=said, activity=Activity("issue-7")))

    async def first_words():
        from streamguard.signals import SessionOpened

        yield SessionOpened("tok-5")

    loop.run(main)
    assert resume_from(plan_of(run), prompt="Go on.").token == "tok-5"


def test_with_uncommitted_changes_there_are_three_options(loop, run):
    """S2-18: the policy's words."""
    git(run, "init", "-q")
    (run.work / "auth.py").write_text("1")
    timed_out(loop, run)
    plan = plan_of(run)
    assert plan.options == ("retry_step", "discard_and_retry", "escalate")
    assert plan.recommendation == "retry_step"
    assert plan.reason == "Partial work exists that may be salvageable"
    assert plan.uncommitted_changes == ("auth.py",)


def test_without_any_the_step_is_retried_from_its_checkpoint(run, loop):
    """S2-18"""
    git(run, "init", "-q")
    timed_out(loop, run)
    plan = plan_of(run)
    assert plan.options == ("retry_step", "escalate")
    assert (plan.recommendation, plan.checkpoint) == ("retry_step", "build-step-2")
    assert plan.reason == (
        "No uncommitted changes: the step can be retried from checkpoint build-step-2"
    )


@pytest.mark.parametrize(
    ("token", "said"),
    [
        ("tok-1", "the step's session can be resumed"),
        (None, "the step can be retried from its beginning"),
    ],
)
def test_without_a_checkpoint_it_begins_again_only_where_no_session_can_be_resumed(
    run, loop, token, said
):
    """E4"""
    git(run, "init", "-q")
    timed_out(loop, run, token=token)
    rewrite(run, tools_run=0, last_successful_checkpoint=None)
    plan = plan_of(run)
    assert (plan.recommendation, plan.reason) == ("retry_step", f"No uncommitted changes: {said}")


def test_without_a_repository_nothing_is_said_of_uncommitted_changes(run, loop):
    """E4: unknown is not clean."""
    timed_out(loop, run)
    rewrite(run, last_successful_checkpoint=None)
    plan = plan_of(run)
    assert plan.options == ("retry_step", "discard_and_retry", "escalate")
    assert (plan.recommendation, plan.uncommitted_changes) == ("retry_step", None)
    assert plan.reason == (
        "No git repository, so whether partial work exists is not known: "
        "the step's session can be resumed"
    )


def test_what_git_says_now_counts_not_what_it_said_then(loop, run):
    """E4: a person may have committed, or thrown away, in the meantime."""
    git(run, "init", "-q")
    (run.work / "auth.py").write_text("1")
    timed_out(loop, run)
    (run.work / "auth.py").unlink()
    assert plan_of(run).uncommitted_changes == ()


def test_a_backend_that_may_be_alive_is_a_persons(loop, run):
    """D5, E4: two owners would corrupt its session."""
    timed_out(loop, run, disconnect=Disconnect(1000))
    plan = plan_of(run)
    assert (plan.recommendation, plan.backend_ended) == ("escalate", False)
    with pytest.raises(StreamGuardError, match="not known to have ended"):
        resume_from(plan)
    point = resume_from(plan, resume_after_unconfirmed_teardown=True)
    assert point.token == "tok-1"


def test_a_program_that_was_killed_in_its_teardown(loop, run):
    """D5, E4: nothing is known of the backend's end, so it counts as none."""
    timed_out(loop, run)
    rewrite(run, backend_ended=False, final_action=None)
    (run.folder / "build/timeouts.jsonl").unlink()
    plan = plan_of(run)
    assert (plan.recommendation, plan.final_action) == ("escalate", None)


def test_tools_without_a_session_are_not_done_twice(loop, run):
    """R3, S0-17, E4"""
    timed_out(loop, run, token=None)
    plan = plan_of(run)
    assert plan.recommendation == "escalate"
    assert plan.reason == "1 tool call occurred without session context"
    with pytest.raises(StreamGuardError, match="1 tool call occurred without session context"):
        resume_from(plan)
    point = resume_from(plan, action="discard_and_retry", first_prompt="Fix it")
    assert (point.token, point.prompt, point.attempt) == (None, "Fix it", 2)


def test_nothing_done_and_no_session_starts_afresh(loop, run):
    """R3, S0-16"""
    timed_out(loop, run, token=None)
    rewrite(run, tools_run=0)
    point = resume_from(plan_of(run), first_prompt="Fix it")
    assert (point.token, point.prompt) == (None, "Fix it")


def test_discarded_work_is_not_told_of_by_the_old_session(loop, run):
    """E4"""
    timed_out(loop, run)
    assert resume_from(plan_of(run), action="discard_and_retry").token is None


def test_what_was_escalated_stays_so(loop, run):
    """E4"""
    timed_out(loop, run)
    rewrite(run, final_action="escalate")
    plan = plan_of(run)
    assert plan.recommendation == "escalate"
    with pytest.raises(ConfigError, match="a person's to decide"):
        resume_from(plan, action="escalate")


def test_a_git_that_fails_leaves_it_to_a_person(loop, run, monkeypatch):
    """E4: unknown is not clean."""
    timed_out(loop, run)
    monkeypatch.setenv("PATH", "")
    plan = plan_of(run)
    assert (plan.recommendation, plan.uncommitted_changes) == ("escalate", None)
    assert plan.reason.startswith("Whether partial work exists could not be found out: git cannot")


def test_the_latest_step_that_is_not_dealt_with(loop, run):
    """E4: a step that came through, or cannot be read, does not hide another one."""
    timed_out(loop, run)
    receipts = run.folder / "build/receipts"
    genuine = json.loads((receipts / "step-3-timeout.json").read_bytes())
    event = genuine["timeout_event"]
    for name, change in {
        "older": {"timeout_event": {**event, "timestamp": "2001-01-01T00:00:00.000Z"}},
        "recovered": {
            "timeout_event": {**event, "timestamp": "2999-01-01T00:00:00.000Z"},
            "recovered": True,
        },
    }.items():
        path = receipts / f"{name}-timeout.json"
        path.write_text(json.dumps({**genuine, "step_id": name, **change}))
    (receipts / "torn-timeout.json").write_text('{"status": "time')
    (receipts / "list-timeout.json").write_text("[]")
    (receipts / "link-timeout.json").symlink_to("/etc/passwd")
    assert plan_of(run).step == "step-3"


def test_a_receipt_of_strange_types_is_no_trap(loop, run):
    """E4: somebody may have edited it."""
    timed_out(loop, run)
    rewrite(run, session_token=7, attempt="x", tools_run=None, backend_ended="yes", delivered=True)
    plan = plan_of(run)
    assert (plan.token, plan.attempt, plan.tools_run) == (None, 1, 0)
    assert (plan.backend_ended, plan.delivered) == (None, 0)


def test_a_flow_without_a_timeout(run):
    """E4: also if the run, or the flow, is not there at all."""
    assert plan_resume(run.folder, "build", work_dir=run.work) is None
    assert plan_resume(run.folder, "../..", work_dir=run.work) is None


def test_a_cursor_survives(loop, run):
    """R6, E4: a backend that plays again is told where to go on."""
    opened = []

    async def main():
        from contextlib import asynccontextmanager

        @asynccontextmanager
        async def open_(point):
            opened.append(point)
            yield hanging(1, 2, 3) if len(opened) == 1 else hanging(4)

        async with run.recorder():
            pipe = idle_guard(180) | reconnecting_resume(retries=0, dedupe_by=lambda m: m)
            with pytest.raises(IdleTimeoutError):
                async with session(open_, prompt="Count") | pipe as chat:
                    async for _ in chat:
                        pass

    loop.run(main)
    plan = plan_of(run)
    assert plan.cursor == 3
    rewrite(run, session_token="tok")
    assert resume_from(plan_of(run)).cursor == 3


def git(run: Run, *arguments: str) -> None:
    subprocess.run(["git", "-C", run.work, *arguments], check=True, capture_output=True)
