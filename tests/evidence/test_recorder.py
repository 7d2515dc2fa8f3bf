"""What a recorder leaves behind (E0, E1): over every loop, in virtual time, on a real disk."""

from __future__ import annotations

import json
import re
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import anyio
import jsonschema
import pytest

from streamguard import (
    Activity,
    ConfigError,
    DeadlineExceededError,
    ErrorClass,
    FirstMessageTimeoutError,
    IdleTimeoutError,
    ProcessExitedError,
    Recorder,
    RetryPolicy,
    StreamTruncatedError,
    ToolTimeoutError,
    TurnTimeoutError,
    idle_guard,
    plan_resume,
    reconnecting_resume,
    record_with,
    scope,
    session,
)
from streamguard.evidence.surroundings import Artifact
from streamguard.evidence.worktree import git_state
from streamguard.signals import (
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WorkFinished,
    WorkStarted,
)
from tests.evidence.support import check, ending, hanging, opener, said
from tests.support import Disconnect, Events, take


async def test_a_verdict_leaves_a_line_a_receipt_and_the_transcript(loop, form, run):
    """E1: before its error is raised."""
    seen = []
    recorder = run.recorder(agent="coder")
    recorder.mark(phase="work", progress="3 of 7 files", checkpoint="step-2")
    messages = [
        SessionOpened("tok-1"),
        Usage({"output_tokens": 7}),
        WorkStarted("t1", "Bash"),
        WorkFinished("t1"),
    ]
    guard = idle_guard(180, read=said, activity=Activity("issue-7"), disconnect=Disconnect())
    with recorder:
        taken = await take(hanging(*messages) | guard, form)
        seen.append((run.timeouts(), run.receipt(), run.transcript()))
    assert isinstance(taken.error, IdleTimeoutError)
    assert loop.took(taken.elapsed, 180)
    [([line], receipt, transcript)] = seen
    assert line["run_id"] == "17"
    assert (line["flow_key"], line["step_id"], line["scope"]) == ("build", "step-3", "llm_call")
    assert (line["timeout_ms"], line["elapsed_ms"], line["limit"]) == (180_000, 180_000, "idle")
    assert (line["retry_count"], line["final_action"]) == (0, "fail")
    assert line["recovery_path"] == str(run.folder / "build/receipts/step-3-timeout.json")
    assert receipt["status"] == "timeout"
    assert receipt["timeout_id"] == line["timeout_id"]
    assert receipt["last_known_state"] == {
        "step_id": "step-3",
        "agent_key": "coder",
        "phase": "work",
        "progress_indicator": "3 of 7 files",
        "vitals": None,
    }
    context = receipt["context_for_resume"]
    assert context["last_successful_checkpoint"] == "step-2"
    assert context["session_token"] == "tok-1"
    assert (context["tools_run"], context["delivered"]) == (1, 4)
    assert context["transcript_path"] == str(run.folder / "build/llm/step-3-partial.jsonl")
    assert receipt["usage"] == {"output_tokens": 7}
    assert [entry["type"] for entry in transcript[:4]] == [
        "SessionOpened",
        "Usage",
        "WorkStarted",
        "WorkFinished",
    ]
    assert transcript[4]["cut"]["timeout_id"] == line["timeout_id"]


async def test_the_receipt_is_completed_when_more_is_known(loop, run):
    """E1: teardown, git and artifacts take their time, and the receipt does not wait."""
    (run.work / "partial.py").write_bytes(b"x" * 4523)
    recorder = run.recorder(artifacts=["partial.py", Artifact("done.py", complete=True)])
    async with recorder:
        await take(hanging(1) | idle_guard(180))
    assert recorder.failures == {}
    receipt = run.receipt()
    assert receipt["teardown"]["confirmed"] is True
    assert receipt["context_for_resume"]["backend_ended"] is True
    assert receipt["git"]["state"] == "no repository"
    assert receipt["context_for_resume"]["uncommitted_changes"] == []
    assert receipt["partial_artifacts"] == [
        {"path": "partial.py", "complete": False, "bytes_written": 4523},
        {"path": "done.py", "complete": True, "bytes_written": 0},
    ]
    assert run.transcript()[-1]["ended"] == "IdleTimeoutError"


@pytest.mark.parametrize(
    ("limits", "messages", "error", "named"),
    [
        ({"first": 60}, [], FirstMessageTimeoutError, ("first", "llm_call")),
        ({"tools": 300}, [WorkStarted("t", "Bash")], ToolTimeoutError, ("tools", "tool")),
        ({"turn": 90}, [Progress()], TurnTimeoutError, ("turn", "llm_call")),
        ({"total": 90}, [Progress()], DeadlineExceededError, ("total", "step")),
    ],
)
async def test_each_limit_leaves_its_evidence(loop, run, limits, messages, error, named):  # noqa: PLR0917 - a table
    """E1: and the policy's scope is the nearest word it has for it."""
    async with run.recorder():
        taken = await take(hanging(*messages) | idle_guard(None, read=said, **limits))
    assert isinstance(taken.error, error)
    [line] = run.timeouts()
    assert (line["limit"], line["scope"]) == named
    assert line["timeout_ms"] == next(iter(limits.values())) * 1000
    assert run.receipt()["timeout_event"]["reason"] == line["reason"]


async def test_a_stream_that_ends_too_early_leaves_evidence_without_a_window(loop, run):
    """T10, E1: it is a verdict like the timeouts."""
    async with run.recorder():
        init = {"type": "system", "subtype": "init", "session_id": "s1"}
        taken = await take(ending(init) | idle_guard(180))
    assert isinstance(taken.error, StreamTruncatedError)
    [line] = run.timeouts()
    assert (line["limit"], line["timeout_ms"]) == ("truncated", None)


async def test_a_success_leaves_neither_line_nor_receipt(loop, form, run):
    """E1: verdicts only. An `exit_grace` ends a stream whose turn was a success."""
    async with run.recorder():
        guard = idle_guard(180, exit_grace=5, read=said)
        taken = await take(hanging(Progress(), TurnEnded()) | guard, form)
        assert taken.error is None
        await take(ending(Progress(), TurnEnded()) | idle_guard(180, read=said), form)
    assert run.files() == ["build/llm/step-3-partial.jsonl", "timeline.jsonl"]
    assert [line["ended"] for line in run.transcript() if "ended" in line] == ["normally"] * 2


async def test_warnings_leave_no_receipt(loop, run):
    """T11, E1: in mode `warn` nothing was cut, so there is nothing to resume."""

    async def late():
        yield 1
        await anyio.sleep(400)
        yield 2

    async with run.recorder():
        taken = await take(late() | idle_guard(180, mode="warn"))
    assert taken.messages == [1, 2]
    assert run.timeouts() == []
    assert any(line.get("of") == "TimedOut" for line in run.timeline())


async def test_a_scope_outside_of_any_stream_leaves_a_receipt_too(loop, run):
    """E0: a step that hangs in its own code."""
    async with run.recorder(flow=None, step=None):
        with pytest.raises(DeadlineExceededError):
            async with scope("flow", "deploy"), scope("step", "migrate", timeout=60):
                await anyio.sleep_forever()
    [line] = run.timeouts("deploy")
    assert (line["step_id"], line["scope"], line["limit"]) == ("migrate", "step", "step")
    receipt = run.receipt("migrate", "deploy")
    assert receipt["timeout_event"]["scope_path"] == ["flow 'deploy'", "step 'migrate'"]
    assert receipt["context_for_resume"]["backend_ended"] is None
    assert receipt["context_for_resume"]["transcript_path"] is None


async def test_a_scope_around_a_stream_leaves_what_the_stream_stood_at(loop, run):
    """E0, E1: the token with which to go on is the stream's."""
    async with run.recorder(step=None):
        with pytest.raises(DeadlineExceededError):
            async with scope("step", "review", timeout=60):
                stream = hanging(SessionOpened("tok-9"), WorkStarted("a", "Bash"))
                async for _ in stream | idle_guard(900, read=said):
                    pass
    receipt = run.receipt("review")
    assert receipt["context_for_resume"]["session_token"] == "tok-9"
    assert receipt["context_for_resume"]["tools_run"] == 1
    # The scope's cancellation ends the stream first, and then speaks for itself.
    assert [
        key for line in run.transcript("review")[2:] for key in ("ended", "cut") if key in line
    ] == [
        "ended",
        "cut",
    ]


async def test_every_verdict_of_a_session_has_one_line_with_what_followed(loop, run):
    """E1, S2-16: retry, retry, fail; the receipt is the latest one's."""
    opened = []
    activity = Activity("issue-7")
    async with run.recorder(step=None):
        pipe = idle_guard(180, activity=activity, read=said) | reconnecting_resume()
        with pytest.raises(IdleTimeoutError):
            async with session(opener(5, opened), prompt="Fix it") | pipe as chat:
                async for _ in chat:
                    pass
    lines = run.timeouts()
    assert [line["final_action"] for line in lines] == ["retry", "retry", "fail"]
    assert [line["retry_count"] for line in lines] == [0, 1, 2]
    receipt = run.receipt("issue-7")
    assert receipt["timeout_id"] == lines[-1]["timeout_id"]
    assert receipt["context_for_resume"]["attempt"] == 3
    assert [line["attempt"] for line in run.transcript("issue-7") if "cut" in line] == [1, 2, 3]


async def test_a_retry_that_comes_through_closes_the_receipt(loop, run):
    """E4: nobody shall be asked to resume what was resumed."""
    opened = []
    async with run.recorder():
        pipe = idle_guard(180, read=said) | reconnecting_resume()
        async with session(opener(1, opened), prompt="Fix it") | pipe as chat:
            async for _ in chat:
                pass
    assert [line["final_action"] for line in run.timeouts()] == ["retry"]
    receipt = run.receipt()
    assert (receipt["final_action"], receipt["recovered"]) == ("retry", True)


async def test_what_needs_a_person_is_escalated(loop, run):
    """E1, P2: the word comes from the retry policy."""
    async with run.recorder():
        policy = RetryPolicy(classifier=lambda _: ErrorClass.AUTH)
        pipe = idle_guard(180, read=said) | reconnecting_resume(policy=policy)
        with pytest.raises(IdleTimeoutError):
            async with session(opener(1, []), prompt="Fix it") | pipe as chat:
                async for _ in chat:
                    pass
    [line] = run.timeouts()
    assert line["final_action"] == "escalate"


async def test_a_session_that_nobody_decides_on_has_its_line_at_the_end(loop, run):
    """E1: whatever happens next, be it that the consumer is cancelled in the teardown."""
    async with run.recorder():
        pipe = idle_guard(60, read=said, disconnect=Disconnect(20)) | reconnecting_resume()
        with anyio.move_on_after(65):
            async with session(opener(1, []), prompt="Fix it") | pipe as chat:
                async for _ in chat:
                    pass
    assert [line["final_action"] for line in run.timeouts()] == ["fail"]


async def test_the_pipe_records_as_the_block_does_and_both_record_once(loop, run):
    """E0: `record_with` and `with recorder:`."""
    recorder = run.recorder()
    async with recorder:
        await take(hanging(1, 2) | record_with(recorder) | idle_guard(180))
    assert len(run.timeouts()) == 1
    assert run.messages() == [1, 2]


async def test_two_recorders_record_the_same_stream(loop, run):
    """E0: each in its own place."""
    async with run.recorder(), run.recorder(flow="audit", transcript=False):
        await take(hanging(1) | idle_guard(180))
    assert len(run.timeouts()) == len(run.timeouts("audit")) == 1
    assert run.transcript(flow="audit") == []
    assert run.receipt(flow="audit")["context_for_resume"]["transcript_path"] is None


async def test_what_is_outside_of_the_block_is_not_recorded(loop, run):
    """E0"""
    async with run.recorder():
        pass
    await take(hanging(1) | idle_guard(180))
    assert run.files() == []


async def test_tasks_may_share_a_recorder_and_leave_it_in_any_order(loop, run):
    """E0: each is in force for what it began in it."""
    recorder = run.recorder(step=None)

    async def work(name, delay):
        await anyio.sleep(delay)
        with recorder:
            await take(hanging(name) | idle_guard(60 + delay, activity=Activity(name)))

    async with anyio.create_task_group() as group:
        for name, delay in (("a", 3), ("b", 1), ("c", 2)):
            group.start_soon(work, name, delay)
    async with recorder:
        pass
    assert [line["step_id"] for line in run.timeouts()] == ["b", "c", "a"]
    assert run.messages("a") == ["a"]


async def test_ten_thousand_messages_are_all_counted_and_none_is_read_twice(loop, run):
    """E1: with and without a transcript the timeline has the same number."""

    async def many():
        for number in range(10_000):
            yield number
            if number % 100 == 0:
                await anyio.sleep(0.001)

    async with run.recorder(transcript=False):
        taken = await take(many() | idle_guard(180))
    assert taken.messages == list(range(10_000))
    counts = [
        count for line in run.timeline() if line["kind"] == "counts" for count in line["counts"]
    ]
    latest = {(c[0], c[1], c[2], c[3]): c[4] for c in counts}
    assert sum(latest.values()) == 10_000


async def test_the_state_of_the_work_tree_is_in_the_receipt(loop, run):
    """S2-14, S2-15: what is uncommitted, the branch and the head."""
    git(run.work, "init", "-q", "-b", "topic")
    (run.work / "auth.py").write_text("1")
    git(run.work, "add", ".")
    git(run.work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    (run.work / "auth.py").write_text("2")
    (run.work / "new file\n.py").write_text("")

    async with run.recorder():
        await take(hanging(1) | idle_guard(180))
    receipt = run.receipt()
    changes = receipt["context_for_resume"]["uncommitted_changes"]
    assert changes == ["auth.py", "new file\n.py"]
    assert receipt["git"]["branch"] == "topic"
    assert len(receipt["git"]["head"]) == 40


def test_a_rename_is_one_change(run):
    """S2-15: git tells two paths of it."""
    git(run.work, "init", "-q")
    (run.work / "a.py").write_text("text\n" * 30)
    git(run.work, "add", ".")
    git(run.work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")
    git(run.work, "mv", "a.py", "b.py")
    state = git_state(run.work)
    assert (state.state, state.changes) == ("changed", ("b.py",))


@pytest.mark.parametrize("name", ["runs", "r[u]n*s ?", "back\\slash"])
def test_the_evidence_itself_is_no_change(loop, run, name):
    """S2-18: a run recorded in the work tree would never be without uncommitted changes."""
    git(run.work, "init", "-q")
    folder = run.work / name / "17"

    async def main():
        async with Recorder(folder, flow="build", step="step-3", work_dir=run.work):
            await take(hanging(1) | idle_guard(180))

    loop.run(main)
    (folder / "report.html").write_text("drawn")
    assert plan_resume(folder, "build").uncommitted_changes == ()
    loop.run(main)
    receipt = json.loads((folder / "build/receipts/step-3-timeout.json").read_text())
    assert receipt["git"]["state"] == "clean"
    # That of an earlier run is none either.
    assert plan_resume(folder, "build", work_dir=folder.parent).uncommitted_changes == ()
    (folder.parent / "16").mkdir()
    (folder.parent / "16" / "timeline.jsonl").write_text("{}")
    assert plan_resume(folder, "build").uncommitted_changes == ()
    # What an agent writes there is one, and so is what lies beside it.
    (folder / "build" / "plan.md").write_text("1")
    (run.work / "auth.py").write_text("1")
    changes = plan_resume(folder, "build").uncommitted_changes
    assert changes == ("auth.py", f"{name}/17/build/plan.md")


def test_a_run_in_a_repository_of_its_own_leaves_the_work_trees_known(run):
    """A pathspec that leads into it could be refused, and unknown is not clean."""
    git(run.work, "init", "-q")
    (run.work / "runs" / "17").mkdir(parents=True)
    git(run.work / "runs", "init", "-q")
    (run.work / "auth.py").write_text("1")
    for folder in (run.work / "runs" / "17", run.folder):
        state = git_state(run.work, run=folder)
        assert (state.state, state.changes) == ("changed", ("auth.py", "runs/"))


def test_a_git_that_does_not_answer_is_not_waited_for(run, monkeypatch, tmp_path):
    """E4: its state is unknown then, which is neither clean nor changed."""
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\nexec sleep 1000\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:/usr/bin:/bin")
    state = git_state(run.work, 0.2)
    assert (state.state, state.why) == ("unknown", "git did not answer in 0.2 s")


async def test_the_loops_thread_writes_nothing(loop, run, monkeypatch):
    """E3: a disk may take seconds, and git may, and the user's callback."""
    threads = set()
    here = threading.get_ident()

    def artifacts():
        threads.add(threading.get_ident())
        return []

    from streamguard.evidence import files

    genuine = files.os.write

    def write(fd, data):
        threads.add(threading.get_ident())
        return genuine(fd, data)

    monkeypatch.setattr(files, "os", SimpleNamespace(**{**vars(files.os), "write": write}))

    async with run.recorder(artifacts=artifacts):
        await take(hanging(1) | idle_guard(180))
    assert len(run.timeouts()) == 1
    assert here not in threads
    assert len(threads) >= 2


def test_what_a_program_has_buffered_is_flushed_first(loop, run):
    """S2-15: at a verdict, before git is asked and artifacts are looked at; not on the loop's thread."""
    threads = []
    report = (run.work / "report.txt").open("w")

    def flush():
        threads.append(threading.get_ident())
        report.flush()

    async def main():
        async with run.recorder(artifacts=["report.txt"], flush=flush) as recorder:
            report.write("half of it")
            await take(hanging(1) | idle_guard(180))
        assert recorder.failures == {}

    with report:
        loop.run(main)
    [artifact] = run.receipt()["partial_artifacts"]
    assert artifact["bytes_written"] == len("half of it")
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("flush", "why"),
    [(lambda: 1 / 0, "ZeroDivisionError"), (lambda: anyio.sleep(0), "TypeError")],
)
async def test_a_flush_that_fails_is_told(loop, run, flush, why):
    """E3: and the rest of the evidence is there all the same."""
    async with run.recorder(artifacts=["a"], flush=flush) as recorder:
        await take(hanging(1) | idle_guard(180))
    assert recorder.failures == {f"flush: {why}": 1}
    assert len(run.receipt()["partial_artifacts"]) == 1


def test_a_plain_block_around_a_program_is_written_when_it_is_left(run):
    """E0: where no loop runs any more, leaving the block may wait."""

    async def main():
        await take(hanging(1) | idle_guard(0.01))

    with run.recorder():
        anyio.run(main)
    assert run.receipt()["teardown"]["confirmed"] is True


async def test_an_observer_of_the_stream_sees_what_the_recorder_sees(loop, run):
    """E6: and it is told of nothing twice."""
    events = Events()
    async with run.recorder():
        await take(hanging(1) | idle_guard(180, observer=events))
    kinds = [type(event).__name__ for event in events]
    assert kinds.count("TimedOut") == kinds.count("TornDown") == kinds.count("StreamEnded") == 1


@pytest.mark.parametrize(
    ("knobs", "match"),
    [
        ({"flow": ""}, "flow=''"),
        ({"step": 3}, "step=3"),
        ({"artifacts": "a.py"}, "use a list of paths"),
        ({"flush": "a.py"}, "flush='a.py' cannot be called"),
        ({"flush": anyio.sleep_forever}, "no `async def`"),
        ({"flush": lambda path: None}, "flush="),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_is_written(run, knobs, match):
    """T12"""
    with pytest.raises(ConfigError, match=match):
        run.recorder(**knobs)


def test_only_recorders_record():
    """T12"""
    with pytest.raises(ConfigError, match="give it a Recorder"):
        record_with("run")  # type: ignore[arg-type]


def test_nothing_is_made_before_there_is_something_to_write(run):
    """E2: not even the folder."""
    with run.recorder() as recorder:
        assert recorder.run_dir == run.folder
        assert repr(recorder) == f"Recorder('{run.folder}')"
        assert recorder.flush()
    assert not run.folder.exists()


def test_the_schemas_refuse_what_they_should():
    """E1: a schema that takes anything shows nothing."""
    with pytest.raises(jsonschema.ValidationError):
        check("timeouts", {"timestamp": "2024-01-15T10:30:00Z"})
    with pytest.raises(jsonschema.ValidationError):
        check("receipt", {"status": "timeout"})


def git(folder, *arguments):
    subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True)


def test_a_recorder_is_an_observer_by_identity(run):
    """O2: written twice in one pipe, it records once."""
    recorder: Recorder = run.recorder()
    pipe = record_with(recorder) | record_with(recorder) | idle_guard(180)
    assert pipe.plan.observers == (recorder,)


DOCUMENT = (Path(__file__).parents[2] / "docs" / "how-to" / "evidence.md").read_text(
    encoding="utf-8"
)


def test_the_documents_examples_are_as_the_schemas_say():
    """E1"""
    line, receipt, header = map(json.loads, re.findall(r"```json\n(.*?)```", DOCUMENT, re.DOTALL))
    check("timeouts", line)
    check("receipt", receipt)
    assert header["kind"] == "writer"


async def test_a_monitor_is_recorded_as_a_stream_is(loop, run):
    """E0, O10: for loops that cannot be wrapped."""
    async with run.recorder():
        with pytest.raises(IdleTimeoutError):
            async with idle_guard(180).monitor() as monitor:
                monitor.saw({"n": 1})
                await anyio.sleep_forever()
    assert [line["limit"] for line in run.timeouts()] == ["idle"]
    assert run.messages() == [{"n": 1}]


async def test_a_session_is_recorded_by_its_pipe(loop, run):
    """E0: `record_with` knows that retries are to be waited for."""
    recorder = run.recorder()
    pipe = idle_guard(180, read=said) | reconnecting_resume() | record_with(recorder)
    async with session(opener(1, []), prompt="Fix it") | pipe as chat:
        assert len([message async for message in chat]) == 7
    async with recorder:
        pass
    assert [line["final_action"] for line in run.timeouts()] == ["retry"]
    assert run.receipt()["recovered"] is True


@pytest.mark.parametrize(("status", "limits"), [(3, ["exited"]), (0, [])])
def test_a_process_that_dies_leaves_a_receipt_unless_that_is_its_end(run, status, limits):
    """T10, E1: an exit status of 0 is the normal end of a backend that nobody knows."""

    async def main():
        async with run.recorder():
            with subprocess.Popen(["sh", "-c", f"exit {status}"]) as child:
                stream = hanging({"n": 1}) | idle_guard(60, process=child)
                return await take(stream, "hosted")

    assert isinstance(anyio.run(main).error, ProcessExitedError) == bool(status)
    assert [line["limit"] for line in run.timeouts()] == limits
    if limits:
        assert run.receipt()["timeout_event"]["exit"] == status


def test_the_rest_of_a_program_goes_on_without_threads(run, monkeypatch, caplog):
    """E1: a verdict is raised although nobody can wait for its receipt."""

    async def broken(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(anyio.to_thread, "run_sync", broken)
    recorder = run.recorder()

    async def main():
        async with recorder:
            return await take(hanging(1) | idle_guard(0.05))

    assert isinstance(anyio.run(main).error, IdleTimeoutError)
    assert "could not wait for what it writes" in caplog.text
    assert recorder.flush()
    assert run.receipt()["final_action"] == "fail"


async def test_a_task_that_leaves_a_shared_recorder_decides_nothing_for_the_others(loop, run):
    """E1: the other's verdict is yet to be followed by a retry."""
    recorder = run.recorder()

    async def leave_in_between():
        with recorder:
            await anyio.sleep(70)  # the verdict is at 60 s, the retry when it is torn down

    async with anyio.create_task_group() as group:
        group.start_soon(leave_in_between)
        async with recorder:
            pipe = idle_guard(60, read=said, disconnect=Disconnect(20))
            opened = session(opener(1, []), prompt="Fix it") | pipe | reconnecting_resume()
            async with opened as chat:
                assert len([message async for message in chat]) == 7
    assert [line["final_action"] for line in run.timeouts()] == ["retry"]


async def test_without_a_transcript_tools_and_kinds_are_known_all_the_same(loop, run):
    """E1, E3: nothing of a message is written, and yet a retry knows what was done."""
    messages = [Progress(), WorkStarted("t1", "Bash"), WorkFinished("t1"), Progress()]
    async with run.recorder(transcript=False):
        await take(hanging(*messages) | idle_guard(180, read=said))
    context = run.receipt()["context_for_resume"]
    assert (context["tools_run"], context["delivered"]) == (1, 4)
    counts = [
        each for line in run.timeline() if line["kind"] == "counts" for each in line["counts"]
    ]
    assert {count[2] for count in counts} == {"Progress", "WorkStarted", "WorkFinished"}
