"""S2-16: `final_action`, `retry_count` and `recovered` where somebody retries by hand."""

from __future__ import annotations

import json
import subprocess
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from streamguard import (
    Activity,
    DeadlineExceededError,
    IdleTimeoutError,
    RetryPolicy,
    idle_guard,
    plan_resume,
    reconnecting_resume,
    scope,
    session,
)
from streamguard.evidence.files import Folder, as_line
from streamguard.signals import Progress, SessionOpened, TurnEnded
from tests.evidence.support import Run, ending, hanging, opener, said
from tests.support import take


@pytest.fixture(params=["asyncio", "trio"])
def loop_name(request):
    return request.param


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path)


def decided(run, flow="build"):
    return [(line["retry_count"], line["final_action"]) for line in run.timeouts(flow)]


def recovered(run, step="step-3", flow="build"):
    receipt = run.receipt(step, flow)
    return receipt["final_action"], receipt["recovered"]


async def guarded(source, **knobs):
    async for _ in source | idle_guard(60, read=said, **knobs):
        pass


async def test_a_scope_around_a_turn_of_a_session_that_is_retried(loop, run):
    """S2-16: it struck twice and then came through, so nothing is left to be resumed."""
    async with run.recorder(step=None), scope("step", "review"):
        pipe = idle_guard(60, read=said)
        async with session(opener(2, [])) | pipe as chat:
            for _ in range(3):
                with suppress(DeadlineExceededError):
                    async with scope("llm_call", timeout=30):
                        async for _ in chat.ask("Fix it"):
                            pass
    assert decided(run) == [(0, "retry"), (1, "retry")]
    assert recovered(run, "review") == ("retry", True)
    assert plan_resume(run.folder, "build") is None


async def test_a_loop_around_streams(loop, form, run):
    """S2-16: a stream of the same step that begins again is a retry."""
    async with run.recorder():
        for source in (hanging(1), hanging(1), ending(1)):
            with suppress(IdleTimeoutError):
                await take(source | idle_guard(60), form)
    assert decided(run) == [(0, "retry"), (1, "retry")]
    assert recovered(run) == ("retry", True)


async def test_a_loop_that_gives_up(loop, run):
    """S2-16: the last one has failed."""
    async with run.recorder():
        for _ in range(3):
            with suppress(IdleTimeoutError):
                await guarded(hanging(Progress()))
    assert decided(run) == [(0, "retry"), (1, "retry"), (2, "fail")]
    assert recovered(run) == ("fail", False)


async def test_a_step_that_came_through_counts_its_retries_anew(loop, run):
    async with run.recorder():
        for source in (hanging(1), ending(1), hanging(1), hanging(1)):
            with suppress(IdleTimeoutError):
                await guarded(source)
    assert decided(run) == [(0, "retry"), (0, "retry"), (1, "fail")]


async def test_the_line_is_there_before_it_is_known_what_follows(loop, run):
    """E1: whatever happens next. It then says so in its place: there is one line for a verdict."""
    seen = []
    async with run.recorder() as recorder:
        with suppress(IdleTimeoutError):
            await guarded(hanging(Progress()))
        seen.append((decided(run), run.receipt()["final_action"]))
        await guarded(ending(Progress(), TurnEnded()))
        recorder.flush()
        seen.append((decided(run), run.receipt()["final_action"]))
    assert seen == [([(0, "fail")], None), ([(0, "retry")], "retry")]


async def test_what_runs_side_by_side_is_no_loop(loop, run):
    """Of ten calls at once one was cut: that another begins, and ends well, says nothing of it."""

    async def call(hangs):
        with suppress(DeadlineExceededError):
            async with scope("llm_call", "ask", timeout=30):
                await anyio.sleep(600 if hangs else 25)

    async with run.recorder(), anyio.create_task_group() as group:
        for number in range(10):
            group.start_soon(call, number == 0)
            await anyio.sleep(10)
    assert decided(run) == [(0, "fail")]
    assert recovered(run) == ("fail", False)


async def test_another_step_is_no_retry(loop, run):
    async with run.recorder(step=None):
        with suppress(IdleTimeoutError):
            await guarded(hanging(Progress()), activity=Activity("a"))
        await guarded(ending(Progress()), activity=Activity("b"))
    assert decided(run) == [(0, "fail")]
    assert recovered(run, "a") == ("fail", False)


async def test_a_scope_without_a_stream(loop, run):
    """E0: a step that hangs in its own code, and is done again."""
    async with run.recorder(flow=None, step=None), scope("flow", "deploy"):
        for delay in (600, 600, 1):
            with suppress(DeadlineExceededError):
                async with scope("step", "migrate", timeout=60):
                    await anyio.sleep(delay)
    assert decided(run, "deploy") == [(0, "retry"), (1, "retry")]
    assert recovered(run, "migrate", "deploy") == ("retry", True)


async def test_an_attempt_that_fails_otherwise_recovers_nothing(loop, run):
    async with run.recorder(step=None):
        for delay in (600, 1):
            with suppress(DeadlineExceededError, ValueError):
                async with scope("step", "migrate", timeout=60):
                    await anyio.sleep(delay)
                    raise ValueError
    assert recovered(run, "migrate") == ("retry", False)


async def test_an_outer_scope_that_strikes_is_filed_as_itself(loop, run):
    """Its own step, not the one that it was cut with."""
    async with run.recorder(flow=None, step=None):
        with suppress(DeadlineExceededError):
            async with scope("step", "build", timeout=60), scope("llm_call", "ask"):
                await anyio.sleep(600)
    [line] = run.timeouts("flow")
    assert (line["step_id"], line["scope"], line["final_action"]) == ("build", "step", "fail")


async def test_a_session_that_failed_and_is_begun_again_by_hand(loop, run):
    """The session has said what follows; that the step came through in the end is known, too."""
    async with run.recorder():
        for hangs in (2, 0):
            guard = idle_guard(60, read=said) | reconnecting_resume(retries=1, backoff=(0,))
            with suppress(IdleTimeoutError):
                async with session(opener(hangs, []), prompt="Fix it") | guard as chat:
                    async for _ in chat:
                        pass
    assert decided(run) == [(0, "retry"), (1, "fail")]
    assert recovered(run) == ("fail", True)


async def test_a_session_that_was_left_before_it_decided(loop, run):
    """What it did not decide is open, as after a stream: begun again, it was a retry."""
    async with run.recorder():
        for hangs in (1, 0):
            policy = RetryPolicy()
            guard = idle_guard(60, read=said, disconnect=lambda: anyio.sleep(20))
            pipe = guard | reconnecting_resume(policy=policy)
            with anyio.move_on_after(65):
                async with session(opener(hangs, []), prompt="Fix it") | pipe as chat:
                    async for _ in chat:
                        pass
    assert decided(run) == [(0, "retry")]
    assert recovered(run) == ("retry", True)


async def test_a_stream_that_has_ended_is_not_what_a_later_scope_cut(loop, run):
    async with run.recorder(step=None) as recorder:
        agent = Activity("agent")
        await guarded(ending(SessionOpened("t"), TurnEnded()), activity=agent)
        with suppress(DeadlineExceededError):
            async with scope("step", "deploy", timeout=30):
                await anyio.sleep(600)
        recorder.flush()
    [line] = run.timeouts()
    assert (line["step_id"], line["stream"]) == ("deploy", None)
    assert run.receipt("deploy")["context_for_resume"]["session_token"] is None


@pytest.mark.parametrize("how", ["bare", "session"])
def test_a_scope_that_cut_a_stream_with_a_process(loop_name, run, how):
    """D5: who is not known to be gone may be at work on the session; a session sees to that."""

    async def main():
        process = subprocess.Popen(["sleep", "600"])
        source = hanging(SessionOpened("t"))

        @asynccontextmanager
        async def open_(point):
            yield source

        guard = idle_guard(60, read=said, process=process, kill_grace=1)
        async with run.recorder(step=None):
            with suppress(DeadlineExceededError):
                async with scope("step", "review", timeout=1):
                    if how == "bare":
                        async for _ in source | guard:
                            pass
                    async with session(open_, prompt="go") | guard as chat:
                        async for _ in chat:
                            pass
        plan = plan_resume(run.folder, "build")
        assert plan.token == "t"
        assert plan.backend_ended is (how == "session")
        assert plan.recommendation == ("retry_step" if how == "session" else "escalate")
        process.kill()
        process.wait()

    anyio.run(main, backend=loop_name)


@pytest.mark.parametrize("what", ["append", "amend"])
async def test_a_line_that_could_not_be_written_is_written_with_the_next_news(
    loop, run, monkeypatch, what
):
    """E3: told, and made good: the log is right as soon as the disk is."""
    genuine, failures = getattr(Folder, what), [OSError(28, "No space left on device")]

    def fails_once(self, name, *args, **knobs):
        if name == "timeouts.jsonl" and failures:
            raise failures.pop()
        return genuine(self, name, *args, **knobs)

    monkeypatch.setattr(Folder, what, fails_once)

    async with run.recorder() as recorder:
        with suppress(IdleTimeoutError):
            await guarded(hanging(Progress()))
        await guarded(ending(Progress(), TurnEnded()))
        recorder.flush()
        assert recorder.failures == {"timeouts: No space left on device": 1}
    assert decided(run) == [(0, "retry")]


def test_a_line_is_amended_where_it_is(tmp_path):
    """E2: also in a file that was rotated since, and among many others; nothing else changes."""
    folder = Folder(tmp_path)
    lines = [as_line({"id": number, "text": "x" * 500, "a": "fail  "}) for number in range(2000)]
    folder.append("log.jsonl", lines[:1000], cap=400_000)
    folder.append("log.jsonl", lines[1000:], cap=400_000)
    assert (tmp_path / "log.1.jsonl").exists()
    wanted = [json.loads(line) for line in lines]
    for number in (0, 3, 999, 1000, 1500, 1999):
        folder.amend("log.jsonl", lines[number], lines[number].replace(b'"fail  "', b'"retry "'))
        wanted[number]["a"] = "retry "
    found = [
        json.loads(line)
        for name in ("log.1.jsonl", "log.jsonl")
        for line in (tmp_path / name).read_bytes().splitlines()
    ]
    assert found == wanted
    folder.amend("log.jsonl", b"nowhere", b"nowhera")
    folder.amend("none.jsonl", b"nowhere", b"nowhera")
