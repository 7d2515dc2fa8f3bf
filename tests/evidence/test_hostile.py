"""What is done to a recorder, each with its clear outcome; the stream is never disturbed (E2, E3)."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from streamguard import Activity, IdleTimeoutError, Recorder, idle_guard, plan_resume
from streamguard.events import RecordingFailed
from streamguard.evidence import files
from tests.evidence.support import SECRET, Run, ending, hanging
from tests.support import Events, take


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def recorded(run: Run, *messages: Any, **knobs: Any) -> Recorder:
    """A stream that says `messages` and hangs, recorded: it must end as if nobody recorded."""
    recorder = run.recorder(**knobs)

    async def main():
        async with recorder:
            taken = await take(hanging(*messages) | idle_guard(0.05))
        assert len(taken.messages) == len(messages)
        assert isinstance(taken.error, IdleTimeoutError)
        assert taken.error.__cause__ is None or not isinstance(taken.error.__cause__, OSError)

    anyio.run(main)
    return recorder


# -- places --------------------------------------------------------------------------------------


def test_a_folder_that_cannot_be_made(run):
    """E2: a file is where the run's folder should be; so is it with a read-only disk."""
    run.folder.write_text("mine")
    recorder = recorded(run, 1)
    assert {what.partition(":")[0] for what in recorder.failures} == {
        "transcript",
        "receipt",
        "timeouts",
        "timeline",
    }
    assert run.folder.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_to(run):
    """E2"""
    run.folder.mkdir(mode=0o500)
    assert "receipt: Permission denied" in recorded(run, 1).failures


def test_a_link_out_of_the_run_is_not_followed(run, tmp_path):
    """E3: who can write to the run's folder must not make us write elsewhere."""
    outside = tmp_path / "outside"
    outside.mkdir()
    run.folder.mkdir()
    (run.folder / "build").symlink_to(outside)
    (run.folder / "timeline.jsonl").symlink_to(outside / "timeline.jsonl")
    recorder = recorded(run, 1)
    assert len(recorder.failures) == 4
    assert list(outside.iterdir()) == []


def test_a_pipe_in_a_files_place_does_not_make_us_wait(run):
    """E3: opening one blocks until somebody reads it."""
    (run.folder / "build").mkdir(parents=True)
    os.mkfifo(run.folder / "build/timeouts.jsonl")
    recorder = recorded(run, 1)
    assert list(recorder.failures) == ["timeouts: not a regular file"]
    assert run.receipt()["final_action"] == "fail"


def test_a_folder_in_a_receipts_place(run):
    """E2: nothing of the attempt is left beside it."""
    (run.folder / "build/receipts/step-3-timeout.json/x").mkdir(parents=True)
    recorder = recorded(run, 1)
    assert [what.partition(":")[0] for what in recorder.failures] == ["receipt"]
    assert names_in(run.folder / "build/receipts") == ["step-3-timeout.json"]
    assert len(run.timeouts()) == 1


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "a\nb",
        "/etc/passwd",
        "..",
        ".",
        "a/../../b",
        "x" * 5000,
        "\0",
        "\udce9",
    ],
)
def test_names_stay_in_the_run_and_are_told_as_they_were(run, tmp_path, name):
    """E2, E3: as files they are made safe; as data they are what the user calls it."""
    before = set(tmp_path.rglob("*"))
    recorder = recorded(run, 1, flow=name, step=name, agent=name)
    assert recorder.failures == {}
    new = set(tmp_path.rglob("*")) - before
    assert all(path.is_relative_to(run.folder) for path in new)
    [receipt] = run.folder.glob("*/receipts/*-timeout.json")
    told = json.loads(receipt.read_bytes())
    assert told["flow_key"] == told["step_id"] == name
    plan = plan_resume(run.folder, name, work_dir=run.work)
    assert plan is not None
    assert (plan.flow, plan.step) == (name, name)


def test_different_names_are_different_files():
    """E2: two that are made safe in the same way do not share one."""
    names = ["a/b", "a_b", "a\nb", ".a_b", "A/b", "", ".", "..", "é", "e\u0301"]
    assert len({files.name_of(name) for name in names}) == len(names)
    assert files.name_of("step-3.2_x") == "step-3.2_x"
    assert all(re.fullmatch(r"[\w#-][\w.#-]{0,120}", files.name_of(name)) for name in names)


def test_everything_is_the_owners_alone(run):
    """E3: 0600 and 0700, whatever the umask."""
    before = os.umask(0)
    try:
        recorded(run, 1)
    finally:
        os.umask(before)
    assert run.folder.stat().st_mode & 0o777 == 0o700
    for path in run.folder.rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


# -- disks ---------------------------------------------------------------------------------------


class Disk:
    """`os`, as a disk would have it that fails in some place."""

    def __init__(self, **broken: Any) -> None:
        self.__dict__.update(broken)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def no_space(*_: Any, **__: Any) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["write", "fsync", "replace", "open", "mkdir"])
def test_a_disk_that_fails_in_any_place(run, monkeypatch, place):
    """E2: each file is as it was, and nothing half-made is left."""
    monkeypatch.setattr(files, "os", Disk(**{place: no_space}))
    recorder = recorded(run, 1)
    assert any(what.endswith(": No space left on device") for what in recorder.failures)
    assert [name for name in run.files() if name.endswith(".tmp")] == []


@pytest.mark.parametrize("place", ["write", "fsync", "replace"])
def test_a_receipt_is_the_old_one_or_the_new_one(tmp_path, monkeypatch, place):
    """E2"""
    folder = files.Folder(tmp_path, "receipts")
    folder.replace("a.json", b"old")
    monkeypatch.setattr(files, "os", Disk(**{place: no_space}))
    with pytest.raises(OSError, match="No space"):
        folder.replace("a.json", b"new")
    assert (tmp_path / "receipts/a.json").read_bytes() == b"old"
    assert names_in(tmp_path / "receipts") == ["a.json"]
    monkeypatch.undo()
    folder.replace("a.json", b"new")
    assert (tmp_path / "receipts/a.json").read_bytes() == b"new"


def test_what_a_crash_left_of_a_replacement_is_removed_by_a_later_one(tmp_path):
    """E2: a program that crashes all the time does not fill the disk with halves."""
    stale, fresh = tmp_path / ".a.json.1-1.tmp", tmp_path / ".a.json.2-1.tmp"
    for path in (stale, fresh):
        path.write_text("{")
    os.utime(stale, (0, 0))
    files.Folder(tmp_path).replace("a.json", b"{}")
    assert not stale.exists()
    assert fresh.exists()  # another process may be at it


def test_what_crashes_left_is_not_looked_for_at_each_replacement(tmp_path, monkeypatch):
    """E2: a run of many steps has many receipts in one folder."""
    looks = []
    monkeypatch.setattr(files, "os", Disk(listdir=lambda fd: looks.append(fd) or [], fsync=id))
    folder = files.Folder(tmp_path)
    for number in range(100):
        folder.replace(f"{number}.json", b"{}")
    assert len(looks) == 1


async def test_a_line_is_not_looked_for_among_all_that_came_since(loop, run, monkeypatch):
    """E2: of many sessions that are cut together, each is amended when it is known what follows."""
    looked_at = []

    def pread(fd, length, at):
        looked_at.append(length)
        return os.pread(fd, length, at)

    async with run.recorder(step=None) as recorder:
        for source in (hanging, ending):
            for number in range(6):
                await take(source(1) | idle_guard(60, activity=Activity(f"step-{number}")))
            recorder.flush()
            monkeypatch.setattr(files, "os", Disk(pread=pread))
    assert [line["final_action"] for line in run.timeouts("build")] == ["retry"] * 6
    assert len(looked_at) >= 6
    assert max(looked_at) < 1000 < (run.folder / "build/timeouts.jsonl").stat().st_size


def test_a_line_that_was_torn_is_ended_by_the_next_writer(tmp_path):
    """E2: it is lost, and takes no other with it."""
    folder, path = files.Folder(tmp_path), tmp_path / "a.jsonl"
    folder.append("a.jsonl", [b'{"n": 1}\n'], cap=1000)
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    folder.append("a.jsonl", [b'{"n": 3}\n'], cap=1000)
    assert [line["n"] for line in files.read_lines(path)] == [1, 3]


def test_each_line_is_one_write(tmp_path, monkeypatch):
    """E2: so that lines of several processes do not mix."""
    written = []
    monkeypatch.setattr(
        files, "os", Disk(write=lambda fd, data: written.append(data) or os.write(fd, data))
    )
    files.Folder(tmp_path).append("a", [b"1\n", b"2\n"], cap=100)
    assert written == [b"1\n", b"2\n"]


def test_control_a_line_in_two_writes_is_torn_by_another_writer(tmp_path, monkeypatch):
    """E2: who comes between the halves of a line takes it for one that a crash has torn."""
    others = [b'{"n": 2}\n']

    def in_halves(fd, data):
        os.write(fd, data[:4])
        if others:
            files.Folder(tmp_path).append("a.jsonl", [others.pop()], cap=1000)
        os.write(fd, data[4:])

    monkeypatch.setattr(files, "_write", in_halves)
    files.Folder(tmp_path).append("a.jsonl", [b'{"n": 1}\n'], cap=1000)
    assert [line["n"] for line in files.read_lines(tmp_path / "a.jsonl")] == [2]


def test_control_a_torn_line_that_nobody_ends_takes_the_next_with_it(tmp_path, monkeypatch):
    """E2: both would be one line that is no JSON."""
    monkeypatch.setattr(files, "_end_torn_line", lambda _: None)
    folder, path = files.Folder(tmp_path), tmp_path / "a.jsonl"
    folder.append("a.jsonl", [b'{"n": 1}\n'], cap=1000)
    with path.open("ab") as file:
        file.write(b'{"n": 2, "te')
    folder.append("a.jsonl", [b'{"n": 3}\n'], cap=1000)
    assert [line["n"] for line in files.read_lines(path)] == [1]


def test_files_are_rotated_and_read_in_their_order(tmp_path):
    """E3: what is kept is bounded, and it is the latest."""
    folder = files.Folder(tmp_path)
    inodes = {
        folder.append("a.jsonl", [files.as_line({"n": n})], cap=100, header=b'{"n": -1}\n').file
        for n in range(100)
    }
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.1.jsonl", "a.jsonl"]
    assert max(sizes) < 130
    numbers = [line["n"] for line in files.read_lines(tmp_path / "a.jsonl") if line["n"] >= 0]
    assert numbers == list(range(100))[-len(numbers) :]
    assert len(inodes) >= 2


def test_a_file_that_another_process_rotates_is_left_to_it(tmp_path):
    """E2: two that rename would lose the older part."""
    folder, path = files.Folder(tmp_path), tmp_path / "a.jsonl"
    folder.append("a.jsonl", [b"{}\n"], cap=1)
    with path.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        folder.append("a.jsonl", [b"{}\n"], cap=1)
        assert names_in(tmp_path) == ["a.jsonl"]
    folder.append("a.jsonl", [b"{}\n"], cap=1)
    assert names_in(tmp_path) == ["a.1.jsonl", "a.jsonl"]


def test_a_failure_reaches_the_streams_observers_once(run):
    """E2, E6: as an event, on the stream's own loop; later ones are counted."""
    run.folder.write_text("mine")
    events, recorder = Events(), run.recorder()

    async def main():
        with anyio.fail_after(60):
            async with recorder:
                async for _ in endless() | idle_guard(180, observer=events):
                    if recorder.failures.get("transcript: File exists", 0) > 1:
                        break

    async def endless():
        while True:
            yield 1
            await anyio.sleep(0.01)

    anyio.run(main)
    failed = events.of(RecordingFailed)
    assert [event.what for event in failed].count("transcript") == 1
    assert failed[0].why == "File exists"
    assert failed[0].activity is events[0].activity


# -- messages ------------------------------------------------------------------------------------


def test_a_message_of_100_mb(run):
    """E3: it is cut where it is too long, and says how long it was."""
    assert recorded(run, {"text": "x" * 100_000_000, "id": 7}).failures == {}
    [message] = run.messages()
    assert message["id"] == 7
    assert message["text"].endswith("xxx... [cut: 100000000 characters]")
    assert len(message["text"]) < 9000


def test_a_message_of_a_million_parts(run):
    """E3: neither their number nor their depth gets it far."""
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    many = {"items": list(range(1_000_000)), "deep": deep}
    assert recorded(run, many, {"deep": deep}).failures == {}
    first, second = run.messages()
    assert first["items"][-1]["$cut"] > 990_000
    assert json.dumps(second).count("[") == 15
    path = run.folder / "build/llm/step-3-partial.jsonl"
    assert path.stat().st_size < 200_000


def test_what_is_no_valid_unicode(run):
    """E2: half a character, bytes that are none, and a line's end within a text."""
    messages = [{"text": "\udce9\ud83d", "raw": b"\xff\xfe\x00ok"}, b"\xff" * 10, "a\nb\u2028c\0"]
    assert recorded(run, *messages).failures == {}
    path = run.folder / "build/llm/step-3-partial.jsonl"
    path.read_bytes().decode("utf-8")
    first, second, third = run.messages()
    assert first == {"text": "\udce9\ud83d", "raw": {"$bytes": 5, "text": "\\xff\\xfe\0ok"}}
    assert second["$bytes"] == 10
    assert third == "a\nb\u2028c\0"


def test_a_secret_in_a_tools_input(run):
    """E3: in no file at all."""
    call = {
        "type": "tool_use",
        "name": "Bash",
        "input": {"command": f"curl -H 'Authorization: Bearer {SECRET}' https://u:{SECRET}@x.org"},
        "env": {"API_KEY": "hunter22hunter22", "OTHER": f"export ANTHROPIC_API_KEY={SECRET}"},
    }
    assert recorded(run, call).failures == {}
    written = b"".join(p.read_bytes() for p in run.folder.rglob("*") if p.is_file())
    assert SECRET.encode() not in written
    assert b"hunter22" not in written
    assert run.messages()[0]["input"]["command"].startswith("curl -H 'Authorization: Bearer [")


@dataclass
class Poison:
    """An object whose own code must not run."""

    text: str = "hello"

    def __repr__(self) -> str:
        raise AssertionError("called")

    __str__ = __repr__

    def model_dump(self) -> Any:
        raise AssertionError("called")

    @property
    def trap(self) -> str:
        raise AssertionError("called")


def test_objects_are_read_by_their_fields_alone(run):
    """E3: nothing of theirs is called."""
    loop: list[Any] = [Poison()]
    loop.append(loop)
    assert recorded(run, loop).failures == {}
    [first, second] = run.messages()[0]
    assert first == {"$type": "Poison", "text": "hello"}
    assert second[0] == first


class Raising(dict):
    def items(self):
        raise ValueError(SECRET)


def test_a_message_that_cannot_be_read_is_told_without_its_words(run):
    """E3"""

    recorder = recorded(run, Raising(), 2)
    assert recorder.failures == {"message: ValueError": 1}
    first, second = run.messages()
    assert first == {"$type": "Raising", "$unreadable": "ValueError"}
    assert second == 2


# -- artifacts -----------------------------------------------------------------------------------


def test_an_artifact_outside_of_the_run_and_the_work_tree(run, tmp_path):
    """E3: nobody is told of other files through a receipt."""
    (tmp_path / "other.txt").write_text("12345")
    (run.work / "link").symlink_to(tmp_path / "other.txt")
    (run.work / "mine").write_text("1")
    recorder = recorded(run, 1, artifacts=["../other.txt", "/etc/passwd", "link", "\0", "mine"])
    assert run.receipt()["partial_artifacts"] == [
        {"path": "mine", "complete": False, "bytes_written": 1}
    ]
    [what] = recorder.failures
    assert what == "artifacts: a path outside of the run and the work tree"


def test_a_callback_that_raises(run):
    """E3: the rest of the receipt is there."""

    def artifacts():
        raise ValueError(SECRET)

    recorder = recorded(run, 1, artifacts=artifacts)
    assert list(recorder.failures) == ["artifacts: ValueError"]
    assert run.receipt()["git"]["state"] == "no repository"


def test_a_callback_that_does_not_return(run, monkeypatch):
    """E1: it is left behind, and the receipt is there without it."""
    from streamguard.evidence import surroundings

    monkeypatch.setattr(surroundings, "CALLBACK_LIMIT", 0.05)
    done = threading.Event()
    try:
        recorder = recorded(run, 1, artifacts=lambda: done.wait(60) and [])
        assert list(recorder.failures) == ["artifacts: TimeoutError"]
    finally:
        done.set()


# -- floods --------------------------------------------------------------------------------------


def test_more_messages_than_can_be_written_are_counted(run, monkeypatch):
    """E3: the queue is bounded; the transcript says what is missing."""
    from streamguard.evidence import stream

    monkeypatch.setattr(stream, "QUEUE", 100)

    async def main():
        async with run.recorder():
            taken = await take(ending(*range(5000)) | idle_guard(180))
        assert taken.messages == list(range(5000))

    anyio.run(main)
    lines = run.transcript()
    dropped = sum(line.get("dropped", 0) for line in lines)
    assert dropped > 0
    assert dropped + len(run.messages()) == 5000


def test_a_transcript_is_bounded_and_says_where_it_was_cut(run):
    """E3: the latest is kept, which is what led to the verdict."""
    messages = [{"n": n, "text": "x" * 500} for n in range(300)]
    assert recorded(run, *messages, transcript_bytes=50_000).failures == {}
    folder = run.folder / "build/llm"
    assert names_in(folder) == ["step-3-partial.1.jsonl", "step-3-partial.jsonl"]
    assert sum(path.stat().st_size for path in folder.iterdir()) < 100_000
    numbers = [message["n"] for message in run.messages()]
    assert numbers == list(range(300))[-len(numbers) :]
    lines = (folder / "step-3-partial.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["earlier"] == "step-3-partial.1.jsonl"
    assert any("cut" in json.loads(line) for line in lines)
