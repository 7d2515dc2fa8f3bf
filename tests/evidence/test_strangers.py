"""What others have prepared: evidence is not written to it, and nothing of it is believed (E3)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from streamguard import ConfigError, IdleTimeoutError, StreamGuardError, idle_guard, plan_resume
from streamguard._base.trusted import UntrustedError
from streamguard.backends.facts import codex_config
from streamguard.events import RecordingFailed
from streamguard.evidence import files
from streamguard.evidence.report import read_run
from streamguard.sessions.points import ResumePoint
from streamguard.top.published import read_all
from tests.evidence.support import Run, hanging
from tests.report.support import Tape
from tests.runner.commands import ENDLESS, OURS, ROOT
from tests.support import Events, take

STRANGER = 65534
ALL = {"transcript", "receipt", "timeouts", "timeline"}
WHAT_TO_DO = "Make it this user's alone, or record into another folder"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to others")


def failures(run: Run, **knobs: Any) -> dict[str, str]:
    """What could not be recorded of a stream that hangs, and why."""
    events, recorder = Events(), run.recorder(**knobs)

    async def main():
        async with recorder:
            taken = await take(hanging(1) | idle_guard(0.05, observer=events))
        assert isinstance(taken.error, IdleTimeoutError)

    anyio.run(main)
    told = (what.partition(": ") for what in recorder.failures)
    failed = {what: why for what, _, why in told}
    assert all(event.why == failed[event.what] for event in events.of(RecordingFailed))
    return failed


@as_root
def test_a_run_that_a_stranger_has_prepared_stays_empty(run):
    """Fault 14."""
    run.folder.mkdir()
    os.chown(run.folder, STRANGER, STRANGER)
    failed = failures(run)
    assert failed.keys() == ALL
    for why in failed.values():
        assert "belongs to another user (uid 65534)" in why
        assert why.endswith(WHAT_TO_DO)
    assert run.files() == []


@as_root
@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("build", {"transcript", "receipt", "timeouts"}),
        ("build/receipts", {"receipt"}),
        ("build/llm", {"transcript"}),
        ("build/timeouts.jsonl", {"timeouts"}),
        ("timeline.jsonl", {"timeline"}),
        ("build/llm/step-3-partial.jsonl", {"transcript"}),
    ],
)
def test_what_a_stranger_has_put_into_it_is_not_written_to(run, name, missing):
    path = run.folder / name
    path.parent.mkdir(parents=True)
    path.touch() if path.suffix else path.mkdir()
    os.chown(path, STRANGER, STRANGER)
    path.chmod(0o777)
    assert failures(run).keys() == missing
    assert path.is_dir() or path.read_bytes() == b""


@as_root
def test_a_strangers_link_to_a_folder_of_ours_is_not_followed(run, tmp_path):
    (tmp_path / "mine").mkdir()
    run.folder.symlink_to(tmp_path / "mine")
    assert failures(run) == {}
    os.chown(run.folder, STRANGER, STRANGER, follow_symlinks=False)
    assert failures(run).keys() == ALL


@as_root
def test_in_a_folder_for_all_a_stranger_reads_nothing_of_it(run):
    """The fault as it was: 0666 files in a folder of nobody's, opened before."""
    shared = run.folder
    shared.mkdir()
    shared.chmod(0o1777)
    program = (
        f"import os, time; os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER}); "
        "os.umask(0); os.mkdir('build', 0o777); open('build/timeouts.jsonl', 'w'); "
        "read = open('timeline.jsonl', 'w+'); print(flush=True); input(); "
        "print(len(read.read()), len(open('build/timeouts.jsonl').read()))"
    )
    words = [sys.executable, "-S", "-c", program]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=shared, **pipes) as attacker:
        attacker.stdout.readline()
        assert failures(run).keys() == ALL
        out, _ = attacker.communicate("\n", timeout=60)
    assert out == "0 0\n"


def test_a_folder_that_everybody_may_write_to_is_none_for_evidence(run):
    run.folder.mkdir()
    run.folder.chmod(0o777)
    assert "everybody may write to it" in failures(run)["receipt"]
    assert run.files() == []


def test_a_file_that_everybody_may_write_to_is_none_for_evidence(run):
    run.folder.mkdir()
    (run.folder / "timeline.jsonl").touch()
    (run.folder / "timeline.jsonl").chmod(0o666)
    assert failures(run).keys() == {"timeline"}


@pytest.mark.parametrize("mode", [0o2770, 0o775, 0o1777])
def test_a_folder_that_was_opened_to_a_group_or_as_tmp_is_will_do(run, mode):
    """Others can put files there, but none that are ours; and ours are 0600."""
    run.folder.mkdir()
    run.folder.chmod(mode)
    assert failures(run) == {}
    assert run.receipt()["status"] == "timeout"
    assert plan_resume(run.folder, "build", work_dir=run.work) is not None


def test_run_tells_it_and_its_command_does_not_suffer(tmp_path):
    folder = tmp_path / "evidence"
    folder.mkdir()
    folder.chmod(0o777)
    done = subprocess.run(
        [*OURS, "run", "--idle", ".2", "--record", str(folder), "--", *ENDLESS],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 124
    assert [line for line in done.stderr.splitlines() if WHAT_TO_DO in line] != []
    assert list(folder.iterdir()) == []


# -- what is read --------------------------------------------------------------------------------


def recorded(run: Run) -> Path:
    assert failures(run) == {}
    return run.folder / "build/receipts/step-3-timeout.json"


@as_root
@pytest.mark.parametrize("whose", ["receipt", "folder", "log"])
def test_a_receipt_that_is_a_strangers_resumes_nothing(run, whose):
    """It says which session goes on, and in which folder git is asked."""
    receipt = recorded(run)
    log = run.folder / "build/timeouts.jsonl"
    if whose == "log":  # which is asked where the receipt does not say what was decided
        receipt.write_text(receipt.read_text().replace('"final_action"', '"other"'))
    os.chown({"receipt": receipt, "folder": receipt.parent, "log": log}[whose], STRANGER, 0)
    with pytest.raises(StreamGuardError, match=r"is not trusted: .* \(uid 65534\)\. Plan as"):
        plan_resume(run.folder, "build", work_dir=run.work)


def test_a_receipt_that_everybody_may_write_to_resumes_nothing(run):
    recorded(run).chmod(0o606)
    with pytest.raises(StreamGuardError, match="everybody may write to it"):
        plan_resume(run.folder, "build", work_dir=run.work)


@pytest.mark.parametrize("there", ["fifo", "large"])
def test_a_receipt_that_is_no_file_of_that_size_is_not_waited_for(run, there):
    receipt = recorded(run)
    receipt.unlink()
    if there == "fifo":
        os.mkfifo(receipt, 0o600)
    else:
        receipt.touch(0o600)
        os.truncate(receipt, 1 << 40)
    with pytest.raises(StreamGuardError, match=r"it is (a named pipe|larger than 16 MB)"):
        plan_resume(run.folder, "build", work_dir=run.work)


def test_a_receipt_that_is_nested_too_deeply_is_none(run):
    recorded(run).write_bytes(b"[" * 100_000)
    assert plan_resume(run.folder, "build", work_dir=run.work) is None


def test_lines_of_a_stranger_are_not_read(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n')
    path.chmod(0o666)
    with pytest.raises(UntrustedError):
        list(files.read_lines(path))


def test_a_line_without_end_costs_no_memory_and_no_other_line(tmp_path):
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.write(b'{"a": 1}\n')
        file.seek(40 << 20, os.SEEK_CUR)
        file.write(b'\n{"a": 2}\n')
    with path.open("rb") as file:
        assert max(map(len, files.lines_of(file))) <= 16 << 20
    assert [line["a"] for line in files.read_lines(path)] == [1, 2]


def test_a_report_passes_over_what_is_no_receipt(tmp_path):
    """A person reads it, of whomever it is; and nothing hangs or breaks it."""
    tape = Tape(tmp_path / "run")
    tape.write()
    receipts = tape.folder / "build" / "receipts"
    receipts.mkdir(parents=True)
    os.mkfifo(receipts / "a-timeout.json")
    for n in (100, 300, 600, 900, 5_000, 50_000):
        (receipts / f"{n}-timeout.json").write_bytes(b'{"a":' + b"[" * n + b"]" * n + b"}")
    (receipts / "fine-timeout.json").write_text('{"status": "timeout"}')
    (receipts / "fine-timeout.json").chmod(0o666)
    run = read_run(tape.folder)
    assert run.receipts[-1].said["status"] == "timeout"
    assert run.unreadable >= 1


def test_what_others_have_put_beside_the_published_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    folder = tmp_path / "streamguard"
    folder.mkdir(0o700)
    os.mkfifo(folder / "1.json")
    (folder / "2.json").write_bytes(b"[" * 100_000)
    (folder / "3.json").write_bytes(b"9" * 5000)
    (folder / "4.json").mkdir()
    assert read_all() == []


@pytest.mark.parametrize("there", ["fifo", "nested", "number"])
def test_a_codex_configuration_that_breaks_is_none(tmp_path, there):
    path = tmp_path / "config.toml"
    if there == "fifo":
        os.mkfifo(path)
    else:
        path.write_text("a = " + ("[" if there == "nested" else "9") * 5000)
    assert codex_config({"CODEX_HOME": str(tmp_path)}) == {}


def test_a_resume_point_that_is_nested_too_deeply_is_none():
    with pytest.raises(ConfigError, match="nested too deeply"):
        ResumePoint.from_json("[" * 100_000)
