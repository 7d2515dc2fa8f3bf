"""What lies in the folder of `streamguard top`, whatever it is: it neither crashes, nor hangs, nor costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from streamguard.cli import top
from streamguard.process import procfs
from streamguard.top.published import LARGEST, Published, read_all
from tests.process.backends import comes_true
from tests.sizes import size

TOLD = {
    "kind": "run",
    "name": "claude",
    "state": "working",
    "backend": "claude",
    "child": 7,
    "attempt": 1,
    "messages": 3,
    "age": 2.5,
    "last_message_age": None,
    "last_signal": None,
    "in_flight": ["Bash"],
    "concern": "repeats",
    "limits": {"idle": 60, "tools": None},
    "session_id": None,
}
HUGE = st.sampled_from(
    [
        10**400,
        -(10**400),
        1e308,
        -1e308,
        float("nan"),
        float("inf"),
        -float("inf"),
        2**31,
        2**63,
        -1,
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | HUGE | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
WHOLE = {"version", "pid", "started", "written", "boot", *TOLD}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "streamguard"


@pytest.fixture
def good(folder):
    """A file as it should be, which is shown whatever lies beside it."""
    file = Published.for_this_process()
    file.write(**TOLD)
    assert file.path is not None
    yield Path(file.path)
    file.remove()


def shown(capsys) -> str:
    """What `top` says in each of its forms."""
    capsys.readouterr()
    assert top.main(["--once"]) == 0
    assert top.main(["--json"]) == 0
    assert len(top.RUNS.lines(top.rows(read_all(), time.monotonic()), 80)) >= 2
    return capsys.readouterr().out


def test_what_is_written_is_read(good):
    (told,) = read_all()
    assert told.keys() == WHOLE
    assert {name: told[name] for name in TOLD} == TOLD
    assert good.stat().st_mode & 0o777 == 0o600


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    max_examples=size(dev=40, ci=300),
)
@given(st.dictionaries(st.sampled_from(sorted(WHOLE - {"version", "pid", "started"})), JSON))
@example({"in_flight": 7, "limits": 7, "attempt": [], "messages": {}, "age": "x"})
@example({"limits": {"idle": "soon", "x": {}}, "in_flight": {"a": 1}})
@example({"age": 10**400, "boot": -(10**400), "last_message_age": 1e308, "messages": 10**4000})
@example({"age": float("nan"), "boot": float("inf"), "limits": {"idle": float("nan")}})
@example({"age": 1e14, "limits": {"idle": 5e-324}, "in_flight": []})
@example({"age": True, "boot": False, "messages": True})
def test_any_value_in_any_field(good, capsys, said):
    told = json.loads(good.read_text()) | said
    other = good.with_name("other.json")
    # Larger than Python would read or write as a text.
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        text = json.dumps(told)
    finally:
        sys.set_int_max_str_digits(before)
    other.write_text(text)
    assert "claude" in shown(capsys)


@pytest.mark.parametrize("pid", [None, True, "1", 0, -1, 1.0, 2**31, 10**400, [], {}])
def test_what_is_no_pid_is_nobody(good, folder, pid, capsys):
    beside = folder / "other.json"
    beside.write_text(json.dumps({**json.loads(good.read_text()), "pid": pid, "name": "odd"}))
    assert "odd" not in shown(capsys)
    assert beside.exists()  # what is not ours to understand is not ours to remove


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"7",
        b"[]",
        b'"x"',
        b"[" * 200_000,
        b'{"a":' * 100_000,
        b'{"version": 1, "x": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        b'{"version": 1, "pid": ' + b"9" * 5000 + b"}",
        b'{"version": []}',
        b"\0" * 4096,
    ],
    ids=lambda text: repr(text[:12]),
)
def test_what_is_no_file_of_ours_is_passed_over(good, folder, text, capsys):
    (folder / "other.json").write_bytes(text)
    assert "claude" in shown(capsys)
    assert (folder / "other.json").exists()


def test_what_is_no_file_is_passed_over(good, folder, tmp_path, capsys):
    os.mkfifo(folder / "fifo.json")
    (folder / "folder.json").mkdir()
    (folder / "loop.json").symlink_to(folder / "loop.json")
    (folder / "device.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "outside")
    (folder / "pipe.json").symlink_to(tmp_path / "outside")
    assert "claude" in shown(capsys)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make somebody else's file")
def test_a_file_of_somebody_elses_is_passed_over(good, folder, capsys):
    other = folder / "other.json"
    other.write_text(good.read_text().replace("claude", "theirs"))
    os.chown(other, 65534, 65534)
    assert "theirs" not in shown(capsys)
    assert other.exists()


def test_a_large_file_costs_no_more_than_a_small_one(good, folder):
    with (folder / "other.json").open("wb") as file:
        file.truncate(100 << 20)
    tracemalloc.start()
    try:
        assert len(read_all()) == 1
        assert tracemalloc.get_traced_memory()[1] < 8 * LARGEST
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("odd", ["fifo", "link"])
def test_what_lies_where_a_file_is_to_be_is_not_written_through(folder, tmp_path, odd):
    """Also a pipe, which would be waited for."""
    file = Published.for_this_process()
    beside = Path(f"{file.path}.new")
    victim = tmp_path / "victim"
    victim.write_text("precious")
    os.mkfifo(beside) if odd == "fifo" else beside.symlink_to(victim)
    file.write(**TOLD)
    assert file.path is None
    assert victim.read_text() == "precious"


# -- whose process it is -------------------------------------------------------------------------


def pretend(folder, pid, started=0):
    (folder / f"{pid}.json").write_text(
        json.dumps({"version": 1, "pid": pid, "started": started, "name": f"of {pid}"})
    )


def test_a_file_whose_process_is_gone_or_another_is_removed(good, folder):
    gone = subprocess.Popen(["true"])
    gone.wait()
    pretend(folder, gone.pid)
    pretend(folder, os.getppid(), started=1)
    assert [told["name"] for told in read_all()] == ["claude"]
    assert {file.name for file in folder.iterdir()} == {good.name}


def test_a_program_whose_first_thread_has_ended_is_shown(folder, good):
    """It is a zombie in /proc, with threads that live."""
    script = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    try:
        assert comes_true(lambda: procfs.read_stat(process.pid).state == "Z")
        pretend(folder, process.pid)
        assert f"of {process.pid}" in [told["name"] for told in read_all()]
    finally:
        process.kill()
        process.wait()


def test_where_proc_is_another_namespaces_nothing_is_removed(folder, good, monkeypatch):
    """Its numbers are strangers'; and ours may be, in the files."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    pretend(folder, gone.pid)
    pretend(folder, os.getppid(), started=1)
    monkeypatch.setattr(procfs, "is_there", lambda: False)
    assert sorted(told["name"] for told in read_all()) == ["claude", f"of {os.getppid()}"]
    assert (folder / f"{gone.pid}.json").exists()


def test_what_a_killed_process_was_writing_is_removed_once_it_is_old(good, folder):
    left, fresh = folder / "7-1.json.new", folder / "8-1.json.new"
    left.write_text("{")
    fresh.write_text("{")
    an_hour_ago = time.time() - 3601
    os.utime(left, (an_hour_ago, an_hour_ago))
    assert len(read_all()) == 1
    assert not left.exists()
    assert fresh.exists()
