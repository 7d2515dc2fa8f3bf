"""Commands that write more than anybody can read, or less than a line; and small things beside them."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamguard.evidence.files import read_lines
from streamguard.runner import aside
from streamguard.runner.clerk import Clerk
from streamguard.runner.conduit import Outlet, Output
from streamguard.runner.record import Evidence
from streamguard.top.published import LARGEST, Published, folder, read_all
from tests.process.backends import PATIENCE, comes_true
from tests.runner.commands import INIT, TEXT, TOOL, await_words, fill, sh

LONG = "600"

# Lines that take longer to be understood than to be written, for as long as a test may take.
FLOOD = """
import sys, time
sys.stdout.write(sys.argv[1])
end = time.monotonic() + 30
while time.monotonic() < end:
    sys.stdout.write(sys.argv[2] * 500)
"""
USED = '{"type":"assistant","message":{"content":[{"type":"tool_use","id":"t2","name":"Bash"}]}}\n'
DONE = '{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t2"}]}}\n'
PING = '{"type":"keep_alive"}\n'


def flood(lines):
    begins = f"{json.dumps(INIT)}\n{json.dumps(TOOL)}\n"
    return [sys.executable, "-c", FLOOD, begins, lines]


def transcript_in(evidence):
    return [line for path in (evidence / "run/llm").glob("*") for line in read_lines(path)]


# -- more than can be read -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "lines"), [("total", USED + DONE), ("tools", PING), ("turn", USED + DONE)]
)
def test_a_flood_of_messages_puts_no_limit_off(ground, limit, lines):
    """Before, it was judged only when for once nothing was waiting to be read: after seconds, or never."""
    words = ["--idle", LONG, f"--{limit}", "1.5", "--status-file", str(ground.status), "--"]
    done = ground.run(*words, *flood(lines))
    assert done.code in (124, 137)
    assert ground.told()["limit"] == limit


def test_a_flood_of_text_takes_no_verdict_out_of_the_evidence(ground):
    """Short lines cost the clerk most: it is behind by so many at most, and at the end passes them over."""
    evidence = ground.folder / "evidence"
    words = ["--idle", LONG, "--total", "1", "--record", str(evidence), "--"]
    with Path("/dev/null").open("wb") as nowhere:
        done = ground.run(*words, "yes", stdout=nowhere)
    assert done.code == 124
    if "not all was written in time" in done.err:
        return  # this machine is too busy: see the two tests below
    (line,) = read_lines(evidence / "run/timeouts.jsonl")
    assert line["limit"] == "total"
    assert len(list((evidence / "run/receipts").iterdir())) == 1
    ends = [line for line in transcript_in(evidence) if "ended" in line]
    assert [line["ended"] for line in ends] == ["TotalTimeoutError"]


def test_a_clerk_that_is_late_passes_over_what_the_command_said(tmp_path):
    is_late = bytearray(1)
    clerk = Clerk(
        str(tmp_path / "run"), str(tmp_path), "agent", 7, lambda *_: None, is_late=is_late
    )
    now = time.monotonic()
    clerk.take(1, "began", (now, 1, 4711, False))
    clerk.take(1, "text", (now, b"before\n"))
    is_late[0] = 1
    clerk.take(1, "text", (now, b"after\n"))
    clerk.take(1, "message", (now, None, b"after", 5, False))
    told = {"limit": "total", "window": 1.0, "elapsed": 1.0, "at": now, "name": "agent"}
    clerk.take(1, "verdict", (now, told, True, None))
    clerk.close()
    assert clerk.done == 3
    said = [line["message"] for line in transcript_in(tmp_path / "run") if "message" in line]
    assert said == ["before"]
    (line,) = read_lines(tmp_path / "run/run/timeouts.jsonl")
    assert line["limit"] == "total"


def test_a_clerk_that_is_behind_is_told_of_no_more_messages(tmp_path, monkeypatch):
    """But of what the run itself did."""
    monkeypatch.chdir(tmp_path)
    taken = []

    def fork(_, kept):  # who never takes anything
        taken.append(os.dup(kept[0]))
        return os.getpid()

    monkeypatch.setattr(aside, "fork", fork)
    evidence = Evidence("run", "agent", lambda _: None)
    for number in range(10):
        evidence.text(b"y\n" * 10_000, float(number))
    assert 50_000 <= evidence._told < 70_000
    before = evidence._told
    evidence.text(b"y\n" * 10_000, 11.0)
    assert evidence._told == before
    evidence.event("HalfTime", 12.0, limit="idle", window=1.0)
    assert evidence._told == before + 1
    assert evidence._lost == 110_000 - before
    os.close(taken[0])
    evidence._let_go()


def test_who_is_slow_to_write_keeps_the_command_waiting_and_who_stands_still_does_not(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    ends = []

    def fork(_, kept):
        ends.extend(map(os.dup, kept))
        return os.getpid()

    monkeypatch.setattr(aside, "fork", fork)
    evidence = Evidence("run", "agent", lambda _: None)
    _, answers = ends
    evidence.text(b"y\n" * 20_000, 1.0)
    began = time.monotonic()
    assert evidence.holds(began) is None
    evidence.text(b"y\n" * 10_000, 2.0)
    until = evidence.holds(began)
    assert until is not None
    assert began - 60 < until <= began + 1
    assert evidence.holds(until) is None  # nothing was written since
    os.write(answers, b"1000\n")
    evidence.handle(evidence._answers)
    assert evidence.holds(time.monotonic()) is not None
    os.write(answers, b"30000\n")
    evidence.handle(evidence._answers)
    assert evidence.holds(time.monotonic()) is None
    for fd in ends:
        os.close(fd)
    evidence._let_go()


def test_what_is_held_is_left_in_its_pipe_and_goes_on_unchanged():
    source, theirs = os.pipe()
    reader, writer = os.pipe()
    poll = select.poll()
    outlet = Outlet(writer)
    outlet.open()
    output = Output(source, outlet, poll, read_along=True, in_portions=True)
    os.write(theirs, b"one\n")
    output.hold(is_held=True)
    output.hold(is_held=True)
    assert not poll.poll(0)
    assert output.keeps_waiting
    assert not output.has_more()
    assert output.left() == 4
    output.hold(is_held=False)
    ((fd, events),) = poll.poll(0)
    assert output.handle(fd, events) == b"one\n"
    assert os.read(reader, 100) == b"one\n"
    output.close()
    for each in (theirs, reader):
        os.close(each)
    outlet.close()


def test_a_flood_is_recorded_whole_by_a_disk_that_only_is_slow(ground):
    evidence, count = ground.folder / "evidence", 70_000
    program = f"import time; time.sleep(1); print(('y' * 79 + chr(10)) * {count}, end='')"
    words = ["--idle", LONG, "--status-file", str(ground.status), "--record", str(evidence), "--"]
    done = ground.run(*words, sys.executable, "-c", program)
    assert (done.code, len(done.out)) == (0, 80 * count)
    if "--record" in done.err:
        return  # this machine is too busy: see the two tests above
    assert ground.told()["not_recorded"] == 0
    numbers = [line["number"] for line in transcript_in(evidence) if "number" in line]
    assert max(numbers) == count


@pytest.mark.parametrize("length", [1_000, 5_000_000])
def test_a_tool_may_have_a_name_of_any_length(ground, length):
    """It is in the error, the status and the evidence, and fits there."""
    evidence = ground.folder / "evidence"
    tool = {"type": "tool_use", "id": "t1", "name": "N" * length}
    said = [INIT, {"type": "assistant", "message": {"content": [tool]}}]
    lines = ground.folder / "lines"
    lines.write_text("".join(json.dumps(message) + "\n" for message in said))
    words = ["--idle", LONG, "--tools", "1", "--status-file", str(ground.status)]
    done = ground.run(*words, "--record", str(evidence), "--", *sh("cat lines; sleep 600"))
    assert done.code == 124
    told = ground.told()
    assert told["not_recorded"] == 0
    assert [len(name) < 300 for name in told["in_flight"]] == [True]
    assert transcript_in(evidence)[-1]["ended"] == "ToolTimeoutError"
    assert len((evidence / "timeline.jsonl").read_bytes()) < 20_000


def test_what_is_published_is_never_too_large_to_be_read(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "streamguard").mkdir(mode=0o700)
    published = Published(folder())
    published.write(kind="run", name="agent", session_id="s" * LARGEST, in_flight=["w" * LARGEST])
    (seen,) = read_all()
    assert seen["name"] == "agent"
    published.remove()


# -- less than a line ----------------------------------------------------------------------


@pytest.mark.parametrize("is_agent", [False, True], ids=["a text", "an agent"])
def test_the_question_that_a_command_hangs_on_is_in_its_transcript(ground, is_agent):
    evidence = ground.folder / "evidence"
    first = json.dumps(TEXT) if is_agent else "hello"
    words = ["--first", LONG, "--idle", "0.4", "--record", str(evidence), "--"]
    script = f"echo '{first}'; printf 'Continue? [y/N] '; exec sleep 600"
    done = ground.run(*words, *sh(script))
    assert done.code == 124
    kinds = [
        next(iter(line.keys() - {"at", "stream", "attempt"})) for line in transcript_in(evidence)
    ]
    assert len(kinds) == 4
    assert transcript_in(evidence)[1]["message"] == "Continue? [y/N] "
    assert "cut" in transcript_in(evidence)[2]


def test_what_has_no_newline_at_the_end_was_said_as_well(ground):
    evidence = ground.folder / "evidence"
    words = ["--idle", LONG, "--record", str(evidence), "--status-file", str(ground.status), "--"]
    assert ground.run(*words, "printf", "all there is").code == 0
    assert transcript_in(evidence)[0]["message"] == "all there is"
    assert ground.told()["not_recorded"] == 0


def test_a_result_without_a_newline_is_a_result(ground):
    result = json.dumps(
        {"type": "result", "subtype": "success", "is_error": False, "result": "done"}
    )
    words = ["--idle", LONG, "--status-file", str(ground.status), "--"]
    lines = ground.folder / "lines"
    lines.write_text(f"{json.dumps(INIT)}\n{result}")
    assert ground.run(*words, "cat", str(lines)).code == 0
    assert ground.told()["result"] == "success"


# -- what was not said, or said wrongly ----------------------------------------------------


@pytest.mark.parametrize("place", ["a folder", "a pipe", "others may write to it"])
def test_a_timeline_that_cannot_be_written_is_told_of(ground, place):
    evidence = ground.folder / "evidence"
    evidence.mkdir(mode=0o700)
    timeline = evidence / "timeline.jsonl"
    if place == "a folder":
        timeline.mkdir()
    elif place == "a pipe":
        os.mkfifo(timeline)
    else:
        timeline.touch()
        timeline.chmod(0o666)
    done = ground.run("--idle", LONG, "--record", str(evidence), "--", *sh("echo out"))
    assert (done.code, done.out) == (0, b"out\n")
    assert done.err.count(f"--record {evidence}: evidence is missing: timeline: ") == 1


def test_a_wait_of_months_before_the_next_attempt(ground):
    """More than `poll` takes at once."""
    words = ["--first", "0.2", "--retries", "1", "--backoff", "300d", "--", "sleep", LONG]
    process = ground.start(*words)
    await_words(process, b"trying again")
    process.send_signal(signal.SIGTERM)
    done = ground.wait(process)
    assert done.code in (-signal.SIGTERM, 143)
    assert "Traceback" not in done.err


def test_a_wait_without_an_end_is_none(ground):
    done = ground.run("--idle", "1", "--retries", "1", "--backoff", "1,inf", "--", "true")
    assert done.code == 125
    assert "--backoff" in done.err
    assert "Traceback" not in done.err


@pytest.fixture
def configured(ground, monkeypatch):
    """Writes a configuration and names it, for nobody trusts one in a folder that all may write to."""

    def configured(text):
        path = ground.folder / "ours.toml"
        path.write_text(text)
        monkeypatch.setenv("STREAMGUARD_CONFIG", str(path))

    return configured


@pytest.mark.parametrize("form", ["option", "configured"])
def test_no_kill_after_means_the_same_wherever_it_is_written(ground, form, configured):
    """0 is off: whoever takes longer to end has the time."""
    words = ["--kill-after", "0"]
    if form == "configured":
        configured("[run]\nkill_after = 0\n")
        words = []
    script = (
        "trap 'touch asked' TERM; touch ready; while [ ! -e end ]; do sleep 0.02; done; exit 5"
    )
    status = ["--status-file", str(ground.status)]
    process = ground.start("--first", LONG, "--total", "0.5", *words, *status, "--", *sh(script))
    assert comes_true((ground.folder / "asked").exists)
    (ground.folder / "end").touch()
    assert ground.wait(process).code == 124
    assert "KILL" not in ground.told()["signals_sent"]


@pytest.mark.parametrize("name", ["/dev/stdout", "/dev/../dev/stdout", "/dev/fd/../fd/1"])
@pytest.mark.parametrize("form", ["option", "configured"])
def test_a_status_that_nobody_could_read_is_refused(ground, name, form, configured):
    words = ["--status-file", name]
    if form == "configured":
        configured(f'[run]\nstatus_file = "{name}"\n')
        words = []
    done = ground.run("--idle", LONG, *words, "--", "true")
    assert done.code == 125
    assert "standard output is the command's" in done.err


@pytest.mark.parametrize("key", ["status_file", "record"])
def test_a_name_that_no_file_can_have_is_refused(ground, key, configured):
    configured(f'[run]\n{key} = "a\\u0000b"\n')
    done = ground.run("--idle", LONG, "--", "true")
    assert done.code == 125
    assert f"run.{key} = 'a\\x00b': no file can have a NUL in its name" in done.err


# -- readers who take their time -----------------------------------------------------------


@pytest.fixture
def reader(ground):
    """A pipe that is full already: what to start commands with, and what to read from."""
    reading, writing = os.pipe()
    fill(writing)

    def start(*words):
        process = ground.start(*words, stdout=writing)
        os.close(writing)
        return process, reading

    yield start
    os.close(reading)


def test_a_slow_reader_gets_it_all_where_what_is_left_behind_is_ended(ground, reader):
    """`--reap` ends what the command left; that is no limit, and no reader is given up for it."""
    script = f"{ground.sleep} >/dev/null & head -c 30000 /dev/zero"
    process, reading = reader("--idle", LONG, "--reap", "--", *sh(script))
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(6)  # for longer than a reader is waited for after a limit
    received = 0
    while chunk := os.read(reading, 1 << 16):
        received += len(chunk)
    assert process.wait(PATIENCE) == 0
    assert received >= 30_000
    assert ground.all_gone()


@pytest.mark.parametrize("reaps", [[], ["--reap"]], ids=["left alone", "reaped"])
@pytest.mark.parametrize(("option", "code"), [([], 124), (["--preserve-status"], 125)])
def test_a_reader_who_takes_nothing_until_total_is_no_success(ground, reader, reaps, option, code):
    words = ["--idle", LONG, "--total", "1", *reaps, *option, "--status-file", str(ground.status)]
    process, _ = reader(*words, "--", *sh("head -c 30000 /dev/zero"))
    assert process.wait(PATIENCE) == code
    told = ground.told()
    assert (told["limit"], told["command_exit"], told["bytes_lost"]) == ("total", 0, 30_000)
