"""What a command writes comes out as it was written, wherever it goes."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time
from pathlib import Path

import pytest

from tests.process.backends import comes_true
from tests.runner.commands import INIT, OURS, TEXT, says, sh

LONG = "600"
MEGABYTE = 1 << 20
# Bytes of every kind, with and without newlines; the same each time.
BYTES = hashlib.shake_256(b"streamguard").digest(3 * MEGABYTE + 17)
GUARDED = [*OURS, "run", "--idle", LONG, "--"]


@pytest.fixture
def data(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(BYTES)
    return path


@pytest.mark.parametrize(
    "options",
    [
        ["--idle", LONG],
        ["--total", LONG],
        ["--pty", "--idle", LONG],
        ["--idle", LONG, "--record", "evidence"],
        ["--idle", LONG, "--retries", "1"],
    ],
    ids=" ".join,
)
def test_every_byte_comes_through(commands, data, options):
    done = commands.run(*OURS, "run", *options, "--", "cat", str(data), cwd=commands.folder)
    assert done.code == 0
    assert hashlib.sha256(done.out).digest() == hashlib.sha256(BYTES).digest()
    assert done.err == ""


def test_json_lines_come_through_as_they_are(commands, data):
    """A backend that is known is read to the end; nothing of it is changed."""
    line = b'{"type":"assistant","session_id":"s","message":{"content":[]}}\r\n'
    lines = commands.folder / "lines"
    lines.write_bytes(line * 20_000 + BYTES + b"\n" + line)
    done = commands.run(*GUARDED, "cat", str(lines))
    assert done.out == lines.read_bytes()


@pytest.mark.parametrize("mode", ["wb", "ab"])
def test_a_file_is_written_and_appended_to(commands, data, mode):
    """A file opened to append takes no splice."""
    target = commands.folder / "target"
    target.write_bytes(b"before")
    with target.open(mode) as stdout:
        assert commands.wait(commands.start(*GUARDED, "cat", str(data), stdout=stdout)).code == 0
    assert target.read_bytes() == (b"before" if mode == "ab" else b"") + BYTES


def test_a_socket_gets_it_all_though_it_is_read_slowly(commands, data):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            process = commands.start(*GUARDED, "cat", str(data), stdout=theirs)
        received = hashlib.sha256()
        while chunk := ours.recv(10_000):
            received.update(chunk)
    assert commands.wait(process).code == 0
    assert received.digest() == hashlib.sha256(BYTES).digest()


def test_our_readers_flags_are_left_alone(commands):
    """O_NONBLOCK belongs to everybody who shares the descriptor."""
    reading, writing = os.pipe()
    process = commands.start(*GUARDED, *sh("echo out; read line"), stdout=writing, stdin=-1)
    assert os.read(reading, 10) == b"out\n"
    assert os.get_blocking(writing)
    process.stdin.close()
    process.wait()
    os.close(reading)
    os.close(writing)


def test_a_reader_that_goes_early_ends_the_command_as_without_us(commands):
    script = f"{' '.join(GUARDED)} yes | head -1; echo ${{PIPESTATUS[0]}}"
    done = commands.run("bash", "-c", script)
    assert done == (0, b"y\n141\n", "")
    assert commands.all_gone()


def test_a_reader_that_goes_while_nothing_is_written_is_noticed(commands):
    script = "trap 'exit 9' USR1; echo out; while :; do sleep .01; done"
    process = commands.start(*GUARDED, *sh(f"{script}"))
    assert process.stdout.readline() == b"out\n"
    process.stdout.close()
    process.stdout = None
    process.send_signal(signal.SIGUSR1)  # it lives on, for it writes nothing
    assert commands.wait(process).code == 9


def test_the_end_of_the_commands_output_is_ours(commands):
    process = commands.start(*GUARDED, *sh("echo out; exec >&-; read line; exit 3"), stdin=-1)
    assert process.stdout.read() == b"out\n"  # to its end, while the command lives
    assert process.poll() is None
    assert comes_true(lambda: _switches(process.pid) == _switches(process.pid, after=1.5))
    assert _status(process.pid)["State"].startswith("S")
    process.stdin.close()
    assert process.wait() == 3


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_do_no_harm(commands, closed):
    script = f"{' '.join(GUARDED)} sh -c 'echo out >>{commands.folder}/told; exit 3' {closed}"
    assert commands.run(*sh(script)).code == 3
    assert (commands.folder / "told").read_text() == "out\n"


def test_a_full_disk_is_said(commands):
    with Path("/dev/full").open("wb") as full:
        process = commands.start(*GUARDED, *sh("echo out; sleep 0.2; echo more"), stdout=full)
        done = commands.wait(process)
    assert done.shell == 141
    assert "write error: No space left on device" in done.err


def test_lines_come_out_one_by_one_not_in_blocks(commands):
    script = f"{says(INIT)}; read a; {says(TEXT)}; read b; echo text; read c; exit 3"
    process = commands.start(*GUARDED, *sh(script), stdin=-1)
    for _ in range(3):
        assert process.stdout.readline().endswith(b"\n")
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert commands.wait(process, b"").code == 3


def test_who_writes_nothing_costs_nothing(commands):
    """Cost: no wakeups while a command is silent, and little memory."""
    process = commands.start(*GUARDED, *sh("echo out; read line"), stdin=-1)
    assert process.stdout.readline() == b"out\n"
    # The last note for others comes a second after the last output; from then on there is nothing.
    assert comes_true(lambda: _switches(process.pid) == _switches(process.pid, after=2.0))
    assert _megabytes(process.pid) < 25  # what it is on a given Python is for the benchmarks
    assert commands.wait(process, b"\n").code == 0


def _switches(pid, after=0.0):
    time.sleep(after)
    return _status(pid)["voluntary_ctxt_switches"]


def _megabytes(pid):
    return int(_status(pid)["VmRSS"].split()[0]) / 1024


def _status(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
