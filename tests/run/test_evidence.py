"""`--record`: the same files as a `Recorder`'s, read by the library's own readers."""

from __future__ import annotations

import json
import shlex

import pytest

from streamguard import plan_resume
from streamguard.evidence.files import read_document, read_lines
from tests.run.commands import INIT, OURS, RESULT, SESSION, TEXT, TOOL, TOOL_DONE, says, sh


def recorded(commands, *words, **options):
    folder = commands.folder / "evidence"
    process = commands.start(*OURS, "run", "--record", str(folder), *words, **options)
    return folder, f"sh-{process.pid}", commands.wait(process)


def test_a_verdict_leaves_a_receipt_a_line_and_the_transcript_up_to_the_cut(commands):
    """E1."""
    script = f"{says(INIT)}; echo banner; {says(TEXT, TOOL, TOOL_DONE)}; exec sleep 600"
    folder, step, done = recorded(commands, "--first", "600", "--idle", "0.4", "--", *sh(script))
    assert done.code == 124
    (line,) = read_lines(folder / "run" / "timeouts.jsonl")
    assert (line["limit"], line["step_id"], line["final_action"]) == ("idle", step, "fail")
    assert line["timeout_ms"] == 400
    receipt = read_document(folder / "run" / "receipts" / f"{step}-timeout.json")
    assert receipt["status"] == "timeout"
    resume = receipt["context_for_resume"]
    assert (resume["session_token"], resume["tools_run"], resume["delivered"]) == (SESSION, 1, 5)
    assert resume["backend_ended"] is True
    assert receipt["teardown"]["tree"] == "terminated"
    transcript = list(read_lines(folder / "run" / "llm" / f"{step}-partial.jsonl"))
    messages = [line["message"] for line in transcript if "message" in line]
    assert messages == [INIT, "banner", TEXT, TOOL, TOOL_DONE]
    assert transcript[-2]["cut"]["timeout_id"] == receipt["timeout_id"]
    assert transcript[-1]["ended"] == "IdleTimeoutError"
    assert (folder / "run").stat().st_mode & 0o777 == 0o700


def test_the_timeline_tells_the_whole_run(commands):
    """E5: what a report is drawn of."""
    resume = f"sh -c {json.dumps(says(RESULT))} x {{session_id}}"
    words = [
        "--first",
        "600",
        "--idle",
        "0.4",
        "--retries",
        "1",
        "--backoff",
        "0",
        "--resume-cmd",
        resume,
        "--",
    ]
    script = sh(f"{says(INIT, TOOL, TOOL_DONE)}; exec sleep 600")
    folder, step, done = recorded(commands, *words, *script)
    assert done.code == 0
    lines = list(read_lines(folder / "timeline.jsonl"))
    assert {line["kind"] for line in lines} == {"writer", "mark", "span", "counts"}
    assert {line["stream"] for line in lines if "stream" in line} == {step}
    spans = {
        (line["of"], line["name"], line.get("how")) for line in lines if line["kind"] == "span"
    }
    assert ("work", "Bash", "finished") in spans
    assert ("teardown", "idle", "confirmed") in spans
    assert ("attempt", "1", "failed") in spans
    assert ("stream", "stream", "ended") in spans
    marks = [line["of"] for line in lines if line["kind"] == "mark"]
    assert marks.count("TimedOut") == marks.count("RetryScheduled") == 1
    (line,) = read_lines(folder / "run" / "timeouts.jsonl")
    assert line["final_action"] == "retry"


@pytest.mark.parametrize("code", [0, 3])
def test_a_timeout_is_recovered_if_a_later_attempt_comes_through(commands, code):
    """E4: `plan_resume` would have a run that is done begun anew."""
    resume = shlex.join([*sh(f"{says(RESULT)}; exit {code}"), "{session_id}"])
    words = ["--idle", "0.4", "--retries", "1", "--backoff", "0", "--resume-cmd", resume]
    script = sh(f"{says(INIT, TOOL, TOOL_DONE)}; exec sleep 600")
    folder, step, done = recorded(commands, "--first", "600", *words, "--", *script)
    assert done.code == code
    receipt = read_document(folder / "run" / "receipts" / f"{step}-timeout.json")
    assert (receipt["final_action"], receipt["recovered"]) == ("retry", code == 0)
    assert (plan_resume(folder, "run") is None) is (code == 0)


@pytest.mark.parametrize(("code", "how"), [(0, "normally"), (3, "failed")])
def test_a_command_that_ends_by_itself_leaves_a_transcript_and_no_timeout(commands, code, how):
    script = sh(f"{says(INIT, TEXT, RESULT)}; exit {code}")
    folder, step, done = recorded(commands, "--idle", "600", "--", *script)
    assert done.code == code
    transcript = list(read_lines(folder / "run" / "llm" / f"{step}-partial.jsonl"))
    assert [line.get("message") for line in transcript] == [INIT, TEXT, RESULT, None]
    assert transcript[-1]["ended"] == how
    assert not (folder / "run" / "timeouts.jsonl").exists()


def test_secrets_are_not_written_down(commands):
    """E3."""
    secret = "sk-ant-api03-" + "A" * 80
    script = sh(f"{says({**TEXT, 'note': secret})}; echo token {secret}")
    folder, step, done = recorded(commands, "--idle", "600", "--", *script)
    assert done.out.count(secret.encode()) == 2
    assert secret not in (folder / "run" / "llm" / f"{step}-partial.jsonl").read_text()


def test_evidence_that_cannot_be_written_changes_nothing_else(commands):
    (commands.folder / "evidence").write_text("a file in the folder's place")
    _, _, done = recorded(
        commands, "--first", "600", "--idle", "0.4", "--", *sh("echo out; exec sleep 600")
    )
    assert (done.code, done.out) == (124, b"out\n")
    assert done.err.count("--record ") == 1
