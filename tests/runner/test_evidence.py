"""`--record`: the same files as a `Recorder`'s, read by the library's own readers."""

from __future__ import annotations

import errno
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamguard import plan_resume
from streamguard.backends.stream_reading import PROGRESS
from streamguard.evidence.files import read_document, read_lines
from streamguard.evidence.report.folder import read_run
from streamguard.evidence.report.story import headline, stories
from streamguard.process.table import read_table
from streamguard.runner.clerk import Clerk
from streamguard.runner.record import Evidence
from tests.process.backends import comes_true
from tests.runner.commands import (
    INIT,
    OURS,
    RESULT,
    ROOT,
    SESSION,
    TEXT,
    TOOL,
    TOOL_DONE,
    says,
    sh,
)
from tests.runner.test_progress import EMPTY, TASK


def recorded(commands, *words, **options):
    folder = commands.folder / "evidence"
    process = commands.start(*OURS, "run", "--record", str(folder), *words, **options)
    return folder, f"sh-{process.pid}", commands.wait(process)


def started(commands, *words, **options):
    """The same, once the command has said that it is ready; and who writes for it."""
    folder = commands.folder / "evidence"
    process = commands.start(*OURS, "run", "--record", str(folder), *words, **options)
    commands.ready(process)
    return folder, process, clerk_of(process.pid)


def clerk_of(pid):
    """The run's child that is a fork of it."""
    ours = Path(f"/proc/{pid}/cmdline").read_bytes()
    children = [stat.pid for stat in read_table().stats.values() if stat.parent == pid]
    forks = [child for child in children if Path(f"/proc/{child}/cmdline").read_bytes() == ours]
    return min(forks)  # the sentinel comes after it


def transcript_in(folder):
    """The only attempt's transcript as far as it is written."""
    return [line for path in (folder / "run" / "llm").glob("*") for line in read_lines(path)]


def told_in(folder):
    """The timeline's spans as they stand at last, and its marks by name."""
    lines = list(read_lines(folder / "timeline.jsonl"))
    spans = {line["id"]: line for line in lines if line["kind"] == "span"}
    marks = {line["of"]: line for line in lines if line["kind"] == "mark"}
    return list(spans.values()), marks


def attempts_in(folder):
    spans, _ = told_in(folder)
    return [(span.get("how"), span.get("confirmed")) for span in spans if span["of"] == "attempt"]


def test_a_verdict_leaves_a_receipt_a_line_and_the_transcript_up_to_the_cut(commands):
    """E1."""
    script = f"{says(INIT)}; echo banner; {says(TEXT, TOOL, TOOL_DONE)}; exec sleep 600"
    folder, step, done = recorded(commands, "--first", "600", "--idle", "0.4", "--", *sh(script))
    assert done.code == 124
    (line,) = read_lines(folder / "run" / "timeouts.jsonl")
    assert (line["limit"], line["step_id"], line["final_action"]) == ("idle", step, "fail")
    assert line["timeout_ms"] == 400
    path = folder / "run" / "receipts" / f"{step}-timeout.json"
    receipt = read_document(path)
    assert f"evidence: {path}; to see it: streamguard report {folder}\n" in done.err
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


# -- every attempt has its end ------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo out", "finished"), (says(INIT, TOOL, TOOL_DONE, RESULT), "finished")],
)
def test_a_run_that_ends_well_is_no_incident(commands, script, said):
    folder, step, done = recorded(commands, "--idle", "600", "--", *sh(script))
    assert done.code == 0
    assert headline(stories(read_run(folder))) == f"{step} {said}"
    assert attempts_in(folder) == [("completed", True)]


@pytest.mark.parametrize(
    ("lines", "outcome", "said"),
    [
        ((INIT, EMPTY), "empty", "the turn ended with success and did nothing"),
        ((INIT, TEXT, TASK, RESULT), "abandoned", "work was left open in the background"),
    ],
    ids=["empty", "abandoned"],
)
def test_a_success_in_name_only(commands, lines, outcome, said):
    """B3: as a stream of the library that ends so."""
    folder, _, done = recorded(commands, "--idle", "60", "--", *sh(says(*lines)))
    assert done.code == 0
    [story] = stories(read_run(folder))
    assert (story.state, story.what.endswith(said)) == ("hollow", True)
    spans, marks = told_in(folder)
    assert [span["how"] for span in spans if span["of"] == "stream"] == [outcome]
    assert marks["HollowEnd"]["limit"] == outcome


def test_a_command_that_fails_is_said_to_have_failed(commands):
    folder, _, done = recorded(commands, "--idle", "600", "--", *sh("echo out; exit 3"))
    assert done.code == 3
    assert attempts_in(folder) == [("failed", True)]
    assert told_in(folder)[1]["ProcessExited"]["text"].endswith("exit status 3")


def test_a_signal_that_is_passed_on_ends_the_attempt(commands):
    folder, process, _ = started(commands, "--idle", "600", "--", *sh("echo ready; sleep 600"))
    process.terminate()
    commands.wait(process)
    assert attempts_in(folder) == [("cancelled", True)]
    assert transcript_in(folder)[-1]["ended"] == "cancelled"
    assert not (folder / "run" / "timeouts.jsonl").exists()


def test_each_attempt_has_its_end(commands):
    """The second is not begun anew, for there is no session that could go on."""
    words = ["--first", "0.4", "--idle", "600", "--retries", "1", "--backoff", "0"]
    folder, _, done = recorded(commands, *words, "--", "sleep", "600")
    assert done.code == 124
    assert attempts_in(folder) == [("failed", True), ("failed", True)]
    actions = [line["final_action"] for line in read_lines(folder / "run" / "timeouts.jsonl")]
    assert actions == ["retry", "fail"]
    ends = [line["ended"] for line in transcript_in(folder) if "ended" in line]
    assert ends == ["FirstMessageTimeoutError"] * 2


def test_a_signal_between_two_attempts(commands):
    """The first has its end already, and there is no second."""
    words = ["--first", "0.4", "--idle", "600", "--retries", "1", "--backoff", "600"]
    folder = commands.folder / "evidence"
    words = [*OURS, "run", "--record", str(folder), *words, "--", "sleep", "600"]
    process = commands.start(*words)
    assert b"trying again" in process.stderr.readline()
    process.terminate()
    commands.wait(process)
    assert attempts_in(folder) == [("failed", True)]
    spans, marks = told_in(folder)
    assert [span["of"] for span in spans if "at" not in span] == []
    assert "GaveUp" in marks
    (line,) = read_lines(folder / "run" / "timeouts.jsonl")
    assert line["final_action"] == "fail"  # the retry that was to follow has not


def test_a_verdict_that_is_only_a_warning(commands):
    env = {**os.environ, "STREAMGUARD_MODE": "warn"}
    script = f"{says(TEXT)}; sleep 1; {says(RESULT)}"
    folder, step, done = recorded(commands, "--idle", "0.4", "--", *sh(script), env=env)
    assert done.code == 0
    assert told_in(folder)[1]["TimedOut"]["enforced"] is False
    assert attempts_in(folder) == [("completed", True)]
    assert not (folder / "run" / "timeouts.jsonl").exists()
    assert headline(stories(read_run(folder))) == f"{step} finished"


def test_a_turn_that_was_well_stays_so_when_its_command_hangs(commands):
    script = f"{says(INIT, TEXT, RESULT)}; exec sleep 600"
    folder, _, done = recorded(commands, "--exit-grace", "0.4", "--", *sh(script))
    assert done.code == 0
    assert attempts_in(folder) == [("completed", True)]
    assert transcript_in(folder)[-1]["ended"] == "normally"
    assert told_in(folder)[1]["TornDown"]
    assert not (folder / "run" / "timeouts.jsonl").exists()


def test_a_command_that_must_be_killed(commands):
    """And who writes is no part of its tree."""
    script = "trap '' TERM; echo out; while :; do sleep 0.1; done"
    words = ["--first", "600", "--idle", "0.3", "--kill-after", "0.3"]
    folder, step, done = recorded(commands, *words, "--", *sh(script))
    assert done.code == 137
    receipt = read_document(folder / "run" / "receipts" / f"{step}-timeout.json")
    teardown = receipt["teardown"]
    assert (teardown["tree"], teardown["confirmed"], teardown["exit"]) == ("killed", True, -9)
    assert "KILL" in teardown["signals"]
    assert receipt["context_for_resume"]["backend_ended"] is True


def test_a_command_that_cannot_be_run_leaves_nothing(commands):
    folder, _, done = recorded(commands, "--idle", "600", "--", "no-such-command")
    assert done.code == 127
    assert not folder.exists()
    assert "--record" not in done.err


def test_another_attempt_that_cannot_be_begun_is_told(commands):
    words = ["--first", "600", "--idle", "0.4", "--retries", "1", "--backoff", "0"]
    script = sh(f"{says(INIT, TOOL, TOOL_DONE)}; exec sleep 600")
    folder, step, done = recorded(
        commands, *words, "--resume-cmd", "no-such-command {session_id}", "--", *script
    )
    assert done.code == 127
    assert attempts_in(folder) == [("failed", True)]
    spans, marks = told_in(folder)
    assert marks["GaveUp"]["text"] == "gave up (class): no further attempt was begun"
    assert all("how" in span or span["of"] == "backoff" for span in spans)
    assert headline(stories(read_run(folder))) == f"{step} hung"


def test_a_run_that_is_killed_leaves_a_record_that_is_whole(commands):
    script = sh("echo ready; exec sleep 600")
    folder, process, _ = started(commands, "--idle", "600", "--", *script)
    process.kill()
    commands.wait(process)
    assert comes_true(lambda: attempts_in(folder) == [("failed", False)])
    assert transcript_in(folder)[-1]["ended"] == "failed"


def dictate_a_hang(clerk, facts):
    now = time.monotonic()
    verdict = {"limit": "idle", "window": 1.0, "elapsed": 1.0, "at": now, "name": "agent"}
    end = {
        "limit": "idle",
        "is_passed_on": False,
        "signals": (),
        "elapsed": 0.5,
        "exit": None,
        "survivors": (),
        "is_unproven": False,
        "out_of_reach": "",
        "is_killed": False,
        **facts,
    }
    said = [("WorkStarted", "t1", "Bash", "tool", None, False), ("Usage", {"tokens": 3})]
    clerk.take(1, "began", (now, 1, 4711, False))
    clerk.take(1, "message", (now, said, b'{"a": 1}', 8, True))
    clerk.take(1, "text", (now, b"text\n"))
    clerk.take(1, "verdict", (now, verdict, True, "codex"))
    clerk.take(1, "ended", (now + 0.5, end, 124))
    clerk.close()


@pytest.mark.parametrize(
    ("facts", "tree"),
    [({"is_unproven": True}, "unproven"), ({"survivors": (1, 2)}, "survived"), ({}, "exited")],
)
def test_what_is_not_proven_dead_is_not_said_to_be(tmp_path, facts, tree):
    """No session is resumed on it."""
    clerk = Clerk(str(tmp_path / "run"), str(tmp_path), "agent", 7, lambda *_: None)
    dictate_a_hang(clerk, facts)
    is_certain = tree == "exited"
    receipt = read_document(tmp_path / "run" / "run" / "receipts" / "agent-7-timeout.json")
    assert (receipt["teardown"]["tree"], receipt["teardown"]["confirmed"]) == (tree, is_certain)
    assert receipt["context_for_resume"]["backend"] == "codex"
    assert receipt["context_for_resume"]["backend_ended"] is is_certain
    assert receipt["final_action"] == "fail"
    assert attempts_in(tmp_path / "run") == [("failed", is_certain)]


# -- nothing that is written stops the watchdog -------------------------------------------


def test_a_disk_that_stalls_holds_up_no_verdict(commands):
    """Whoever writes stands still: a stopped process is as a disk that does not answer."""
    status = commands.folder / "status.json"
    script = f"echo ready; sleep 0.3; {says(INIT, TEXT)}; exec sleep 600"
    words = ["--first", "600", "--idle", "1", "--status-file", str(status), "--", *sh(script)]
    began = time.monotonic()
    _, process, clerk = started(commands, *words)
    os.kill(clerk, signal.SIGSTOP)
    done = commands.wait(process)
    told = json.loads(status.read_text())
    assert (done.code, told["limit"]) == (124, "idle")
    assert told["elapsed"] < 5
    assert time.monotonic() - began < 5 + 30
    assert told["not_recorded"] >= 4  # two messages, the verdict and the end
    assert "not all was written in time" in done.err
    assert commands.all_gone()


def test_a_flood_before_a_disk_that_stalls_is_passed_on_whole(commands):
    script = f"echo ready; sleep 0.3; {sys.executable} -c \"print(('y' * 79 + chr(10)) * 250000)\""
    _, process, clerk = started(commands, "--idle", "600", "--", *sh(script))
    os.kill(clerk, signal.SIGSTOP)
    done = commands.wait(process)
    assert (done.code, len(done.out)) == (0, 250_000 * 80 + 1)
    assert done.err.count("--record ") == 1


def test_what_is_not_in_the_record_is_counted(commands):
    """A flood while nothing can be written for a moment."""
    count = 40_000
    line = json.dumps({**TEXT, "note": "x" * 200})
    program = (
        f"import time; print('ready', {json.dumps(INIT)!r}, sep=chr(10), flush=True); time.sleep(0.5)\n"
        f"print(({line!r} + chr(10)) * {count}, end='', flush=True); time.sleep(1)\n"
        f"print({json.dumps(RESULT)!r})"
    )
    status = commands.folder / "status.json"
    words = ["--idle", "600", "--status-file", str(status), "--", sys.executable, "-c", program]
    folder, process, clerk = started(commands, *words)
    os.kill(clerk, signal.SIGSTOP)
    for _ in range(count + 1):
        process.stdout.readline()
    os.kill(clerk, signal.SIGCONT)
    done = commands.wait(process)
    transcript = transcript_in(folder)
    dropped = sum(line.get("dropped", 0) for line in transcript)
    numbers = [line["number"] for line in transcript if "number" in line]
    assert dropped == json.loads(status.read_text())["not_recorded"] > 0
    assert numbers[-1] + dropped == count + 3
    assert transcript[-2]["message"] == RESULT
    assert "messages: the writer cannot keep up" in done.err
    assert headline(stories(read_run(folder))).endswith(" finished")


def test_a_run_goes_on_without_its_writer(commands):
    status = commands.folder / "status.json"
    script = f"echo ready; sleep 0.5; {says(INIT, TEXT)}; sleep 0.2; {says(RESULT)}"
    words = ["--idle", "600", "--status-file", str(status), "--", *sh(script)]
    _, process, clerk = started(commands, *words)
    os.kill(clerk, signal.SIGKILL)
    done = commands.wait(process)
    assert (done.code, done.out.count(b"\n")) == (0, 3)
    assert done.err.count("--record ") == 1
    assert "nothing more is recorded" in done.err
    assert json.loads(status.read_text())["not_recorded"] >= 4


def test_a_disk_that_is_full_changes_nothing_else(commands):
    folder = commands.folder / "evidence"
    ours = shlex.join([*OURS, "run", "--record", str(folder), "--idle", "600", "--"])
    flood = f"{sys.executable} -c \"print(('y' * 79 + chr(10)) * 2000, end='')\""
    done = commands.run(*sh(f"ulimit -f 16; exec {ours} {flood}"))
    assert (done.code, len(done.out)) == (0, 160_000)
    assert done.err.count("--record ") == 1
    assert "File too large" in done.err


def test_a_line_of_nothing_but_brackets_costs_little(commands):
    """A line of 15 MB took 421 MB."""
    program = (
        f"import sys; print({json.dumps(INIT)!r}); sys.stdout.write('{{\"a\": [[]')\n"
        "for _ in range(500): sys.stdout.write(',[]' * 10000)\n"
        "print(']}', flush=True); print('ready', flush=True); import time; time.sleep(600)"
    )
    folder = commands.folder / "evidence"
    words = [*OURS, "run", "--record", str(folder), "--idle", "600", "--"]
    process = commands.start(*words, sys.executable, "-c", program)
    assert json.loads(process.stdout.readline()) == INIT
    assert len(process.stdout.readline()) > 15_000_000
    commands.ready(process)
    assert comes_true(lambda: len(transcript_in(folder)) == 3)
    clerk = clerk_of(process.pid)
    assert peak_of(process.pid) < 120
    assert peak_of(clerk) < 60
    process.terminate()
    commands.wait(process)
    line = transcript_in(folder)[1]
    assert (line["type"], line["message"]["$bytes"]) == ("Cut", 15_000_011)


def test_what_a_long_line_says_is_heard(commands):
    """An image is a text of some MB: a long line of few values."""
    image = {**TOOL_DONE, "image": "A,[" * 1_000_000}
    lines = commands.folder / "lines"
    lines.write_text(
        "".join(json.dumps(message) + "\n" for message in (INIT, TOOL, image, RESULT))
    )
    folder, _, done = recorded(commands, "--idle", "600", "--", "cat", str(lines))
    assert done.code == 0
    transcript = transcript_in(folder)
    assert transcript[2]["signals"] == ["WorkFinished"]
    assert transcript[2]["message"]["$bytes"] == len(json.dumps(image))
    work = [span for span in told_in(folder)[0] if span["of"] == "work"]
    assert [span["how"] for span in work] == ["finished"]


def test_text_is_written_as_it_came(commands):
    """Also what comes when nobody looks for messages any more, and a line in many pieces."""
    lines = ["x" * 100] * 1000 + ["y" * 3_000_000, "", "an end", '{"a": 1}']
    path = commands.folder / "lines"
    path.write_text("\n".join(lines) + "\n")
    folder, _, done = recorded(commands, "--idle", "600", "--", "cat", str(path))
    assert done.code == 0
    messages = [line["message"] for line in transcript_in(folder) if "message" in line]
    assert messages[:1000] == lines[:1000]
    assert messages[1000]["$bytes"] > 1_000_000
    assert messages[1001:] == ["", "an end", {"a": 1}]


def peak_of(pid):
    """The most memory that it has ever had, in MB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(pid)


# -- what is loaded, and where ------------------------------------------------------------


def loaded_by(*modules):
    return set(said_by(f"import sys, {', '.join(modules)}; print(*sys.modules)").split())


def said_by(program):
    words = [sys.executable, "-c", program]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def test_the_watchdog_loads_nothing_that_writes():
    loaded = loaded_by("streamguard.runner.record")
    assert not {name for name in loaded if name.startswith("streamguard.evidence")}
    assert "json" not in loaded


def test_who_writes_needs_no_event_loop():
    loaded = loaded_by("streamguard.runner.clerk")
    assert not loaded & {"anyio", "asyncio", "trio", "sniffio"}


def test_who_writes_loads_nothing_late(tmp_path):
    """An agent may remove what we are installed in while it works."""
    program = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from tests.runner.test_evidence import dictate_a_hang\n"
        "for name in [n for n in sys.modules if n.startswith('streamguard')]: del sys.modules[name]\n"
        "from streamguard.runner.clerk import Clerk\n"
        f"clerk = Clerk({str(tmp_path / 'run')!r}, {str(tmp_path)!r}, 'agent', 7, print)\n"
        "before = set(sys.modules)\n"
        "dictate_a_hang(clerk, {'survivors': (1,)})\n"
        "print(*set(sys.modules) - before)"
    )
    assert said_by(program).split() == []
    assert (tmp_path / "run" / "run" / "receipts" / "agent-7-timeout.json").exists()


def test_a_run_without_anybody_to_write_for_it(monkeypatch):
    """No process is left to be had: that is said, once, and what is missing is counted."""

    def fork(*_, **__):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr("streamguard.runner.aside.fork", fork)
    said = []
    evidence = Evidence("folder", "agent", said.append)
    evidence.attach(select.poll())
    evidence.began(1, 4711, 0.0, resumes=False)
    evidence.message(b"{}", PROGRESS, 0.0, is_object=True)
    evidence.flush()
    assert evidence.close() == 2
    assert said == ["--record folder: Resource temporarily unavailable"]
