"""`lines(process)` and `json_lines(process)`, with real processes on every loop."""

from __future__ import annotations

import asyncio
import copy
import gc
import json
import pickle
import sys
from contextlib import aclosing
from functools import partial
from itertools import accumulate
from types import SimpleNamespace
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamguard import (
    ConfigError,
    IdleTimeoutError,
    InvalidLineError,
    LineTooLongError,
    idle_guard,
    json_lines,
    lines,
)
from streamguard._lines.pipes import Remembered
from streamguard._lines.splitter import Splitter
from streamguard.errors import Tail
from tests.process.grounds import GROUNDS, PATIENCE, Ground, open_files, python, until
from tests.support import take

on_every_ground = pytest.mark.parametrize("ground", GROUNDS, ids=str)
on_one_ground = pytest.mark.parametrize("ground", GROUNDS[:1], ids=str)


async def all_of(source: Any) -> list[Any]:
    return [message async for message in source]


async def said_by_cat(ground: Ground, said: bytes, **options: Any) -> list[str]:
    """What `lines` makes of a process that says `said`."""
    async with ground.start("cat") as process:
        source = lines(process, **options)
        async with aclosing(source), anyio.create_task_group() as group:

            async def say() -> None:
                await ground.write(process, said)
                await ground.end_input(process)

            group.start_soon(say)
            return await all_of(source)


# -- what a line is ----------------------------------------------------------------------


@on_every_ground
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"\n\na\n\n", ["", "", "a", ""]),
        (b"a\r\nb\r\r\n\rc\r\n", ["a", "b\r", "\rc"]),
        (b"a\r", ["a\r"]),
        ("one\u2028line\x0c\x1e\x85\n".encode(), ["one\u2028line\x0c\x1e\x85"]),
        (b"caf\xc3\xa9 \xff\xc3\n", ["café \ufffd\ufffd"]),
        (b"\0\n", ["\0"]),
    ],
)
def test_what_a_line_is(ground: Ground, said: bytes, expected: list[str]) -> None:
    """O3: only a newline ends a line; nothing that a process says kills the stream."""
    assert ground.run(said_by_cat, ground, said) == expected


@on_every_ground
def test_bytes_can_be_had_back(ground: Ground) -> None:
    """O3: with surrogateescape no byte is lost."""
    said = bytes(byte for byte in range(256) if byte != ord("\n"))
    (line,) = ground.run(lambda: said_by_cat(ground, said, errors="surrogateescape"))
    assert line.encode(errors="surrogateescape") == said


@on_every_ground
async def test_huge_lines(ground: Ground) -> None:
    """O3: a line far longer than any buffer on its way comes whole."""
    script = "import sys; [sys.stdout.write(c * 3_000_000 + '\\n') for c in 'abc']"
    async with ground.start(*python(script)) as process, aclosing(lines(process)) as source:
        assert await all_of(source) == [c * 3_000_000 for c in "abc"]


def reference(said: bytes, max_line: int) -> list[bytes | None]:
    """The definition of a line, with all bytes at hand."""
    *whole, last = said.split(b"\n")
    ended = [None if len(line) > max_line else line.removesuffix(b"\r") for line in whole]
    return [*ended, *([None if len(last) > max_line else last] if last else [])]


# Mostly what matters to a splitter, but any byte.
any_chunk = st.one_of(st.binary(max_size=12), st.text("a\r\n", max_size=12).map(str.encode))


@given(st.lists(any_chunk, max_size=20), st.integers(1, 10))
def test_any_chunking_gives_the_same_lines(chunks: list[bytes], max_line: int) -> None:
    """O3: how bytes were cut into portions on their way is not to be seen in the lines."""
    splitter = Splitter(max_line)
    for chunk in chunks:
        splitter.feed(chunk)
        assert len(splitter._partial) <= max_line
    splitter.end()
    assert list(splitter.ready) == reference(b"".join(chunks), max_line)


@on_every_ground
@settings(max_examples=6, deadline=None)
@given(chunks=st.lists(any_chunk, min_size=1, max_size=5))
def test_any_chunking_through_a_process(ground: Ground, chunks: list[bytes]) -> None:
    """O3: the same, through real pipes, each portion waited for."""

    async def main() -> list[str]:
        async with ground.start("cat") as process:
            source = lines(process, errors="surrogateescape")

            def read(said: bytes) -> bool:
                return source._written._data == said

            async with aclosing(source), anyio.create_task_group() as group:

                async def say() -> None:
                    for said in accumulate(chunks):
                        await ground.write(process, said[len(source._written._data) :])
                        await until(partial(read, said))
                    await ground.end_input(process)

                group.start_soon(say)
                return await all_of(source)

    expected = [
        line.decode(errors="surrogateescape")
        for line in reference(b"".join(chunks), sys.maxsize)
        if line is not None
    ]
    assert ground.run(main) == expected


# -- lines that are too long -------------------------------------------------------------


@on_every_ground
async def test_a_line_too_long_is_an_error_at_once_and_the_next_is_read(ground: Ground) -> None:
    """O3: the error comes before the line's end does, which may never come; then it goes on."""
    async with ground.start("cat") as process:
        async with aclosing(lines(process, max_line=100, tail=10)) as source:
            await ground.write(process, b"good\n" + b"x" * 101)
            assert await anext(source) == "good"
            with pytest.raises(LineTooLongError, match=r"line 2 .* 100 bytes") as caught:
                await anext(source)
            assert caught.value.number == 2
            assert caught.value.tail.stdout == "x" * 10
            assert "xx" not in str(caught.value)
            await ground.write(process, b"y" * 500 + b"\nnext\n" + b"z" * 100 + b"\n")
            assert await anext(source) == "next"
            assert await anext(source) == "z" * 100


def test_errors_of_lines_can_be_pickled_and_copied() -> None:
    """T7: they go through process pools as they are."""
    error = LineTooLongError("line 3", number=3, tail=Tail("out", "err"))
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert (str(twin), twin.number, twin.tail) == ("line 3", 3, Tail("out", "err"))


# -- JSON --------------------------------------------------------------------------------

DEEP = b"[" * 200_000
NOTICES = [
    b"Loading configuration...",
    b"",
    b" \t ",
    b"17",
    b'["a", "list"]',
    b"null",
    b'{"cut": ',
    b"9" * 5000,
    DEEP,
]
MIXED = b"\n".join([b'{"n": 1}', *NOTICES, b'{"n": 2}', b'{"text": "\xff"}\r', b' {"n": 3} '])


async def json_said_by_cat(ground: Ground, said: bytes, **options: Any) -> Any:
    async with ground.start("cat") as process:
        source = json_lines(process, **options)
        async with aclosing(source), anyio.create_task_group() as group:

            async def say() -> None:
                await ground.write(process, said)
                await ground.end_input(process)

            group.start_soon(say)
            return await all_of(source), source


@on_every_ground
def test_notices_among_json_are_skipped(ground: Ground) -> None:
    """O3: command lines print notices; they are counted, and do not end the stream."""
    messages, source = ground.run(json_said_by_cat, ground, MIXED)
    assert messages == [{"n": 1}, {"n": 2}, {"text": "\ufffd"}, {"n": 3}]
    assert source.skipped == len(NOTICES) - 2  # blank lines are nothing


@on_one_ground
async def test_notices_can_be_errors(ground: Ground) -> None:
    """O3: with "raise" each one is an error that tells its number, and the next pull goes on."""
    async with ground.start("printf", r'oh no\n[1]\n\n{"n": 1}\n') as process:
        async with aclosing(json_lines(process, on_invalid="raise")) as source:
            with pytest.raises(InvalidLineError, match=r"line 1 .*no JSON object") as caught:
                await anext(source)
            assert "oh no" not in str(caught.value)
            assert caught.value.tail.stdout.startswith("oh no\n")
            assert isinstance(caught.value.__cause__, json.JSONDecodeError)
            with pytest.raises(InvalidLineError, match="it is a list") as caught:
                await anext(source)
            assert caught.value.number == 2
            assert await all_of(source) == [{"n": 1}]


@on_one_ground
def test_notices_can_be_made_messages(ground: Ground) -> None:
    """O3: a function is given the line and gives a message in its place, or nothing."""

    def notice(line: str) -> dict[str, Any] | None:
        return {"notice": line} if line[0] == "L" else None

    messages, source = ground.run(lambda: json_said_by_cat(ground, MIXED, on_invalid=notice))
    assert messages[:2] == [{"n": 1}, {"notice": "Loading configuration..."}]
    assert messages[2:] == [{"n": 2}, {"text": "\ufffd"}, {"n": 3}]
    assert source.skipped == 0


# -- stderr and the tail -----------------------------------------------------------------


@on_every_ground
async def test_stderr_is_drained_while_stdout_is_silent(ground: Ground) -> None:
    """D4: 10 MB on stderr do not block a process, and cost no memory."""
    script = "head -c 10000000 /dev/zero >&2; echo 'the end' >&2; echo done"
    async with ground.start("sh", "-c", script) as process:
        async with aclosing(lines(process, tail=1000)) as source:
            assert await all_of(source) == ["done"]
            assert source.tail.stderr.endswith("\0the end\n")
            assert len(source.tail.stderr) == 1000


@on_every_ground
async def test_the_drain_outlives_the_scope_of_the_first_pull(ground: Ground) -> None:
    """O4: what empties stderr belongs to no consumer's scope."""
    script = "read go; head -c 1000000 /dev/zero >&2; echo done"
    async with ground.start("sh", "-c", script) as process:
        async with aclosing(lines(process)) as source:
            async with anyio.create_task_group() as group:
                group.start_soon(anext, source)
                await anyio.lowlevel.checkpoint()
                group.cancel_scope.cancel()
            await ground.write(process, b"go\n")
            assert await anext(source) == "done"


@on_every_ground
async def test_the_last_words_are_in_the_tail(ground: Ground) -> None:
    """E1: what a dying process says on stderr is there when its stream has ended."""
    async with ground.start("sh", "-c", "echo fine; echo 'no key' >&2; exit 41") as process:
        async with aclosing(lines(process)) as source:
            assert await all_of(source) == ["fine"]
            assert source.tail == Tail(stdout="fine\n", stderr="no key\n")


@on_every_ground
@pytest.mark.parametrize("stderr", [None, -2], ids=["inherited", "stdout"])
async def test_without_a_pipe_for_stderr(ground: Ground, stderr: int | None) -> None:
    """O3: stderr may be inherited, or go where stdout goes."""
    async with ground.start("echo", "a", stderr=stderr) as process:
        async with aclosing(lines(process)) as source:
            assert await all_of(source) == ["a"]
            assert source.tail.stderr == ""


@pytest.mark.parametrize("ground", [Ground("asyncio", "asyncio")], ids=str)
async def test_a_second_reader_of_stderr_is_no_failure_of_the_stream(ground: Ground) -> None:
    """S2: the owner may read stderr itself; the drain gives way, and the tail says so."""
    script = "echo a; read go; echo b >&2"
    async with ground.start("sh", "-c", script) as process, anyio.create_task_group() as group:
        got = []

        async def read_stderr() -> None:
            got.append(await process.stderr.readline())

        group.start_soon(read_stderr)
        await anyio.lowlevel.checkpoint()
        async with aclosing(lines(process)) as source:
            assert await anext(source) == "a"
            await ground.write(process, b"go\n")
            assert await all_of(source) == []
            assert "could read no further" in source.tail.stderr
    assert got == [b"b\n"]


@given(st.lists(st.text(max_size=6).map(str.encode)), st.integers(0, 12))
def test_a_tail_is_bounded_and_begins_with_a_whole_character(
    chunks: list[bytes], limit: int
) -> None:
    """E3: sizes are bounded, in any portions."""
    remembered = Remembered(limit)
    for chunk in chunks:
        remembered.add(chunk)
        assert len(remembered._data) <= limit
    said = b"".join(chunks).decode()
    text = remembered.text()
    assert said.endswith(text)
    assert len(text.encode()) > min(limit, len(said.encode())) - 4


# -- back-pressure -----------------------------------------------------------------------

# Writes 8 MiB; when nobody has read for half a second it says on stderr how far it came.
PRODUCER = r"""
import os, select
os.set_blocking(1, False)
room = select.poll()
room.register(1, select.POLLOUT)
line, written, told = b"x" * 1023 + b"\n", 0, False
while written < 8 << 20:
    try:
        written += os.write(1, line)
    except BlockingIOError:
        if not room.poll(None if told else 500):
            told = True
            os.write(2, b"full at %d\n" % written)
"""


@on_every_ground
async def test_a_slow_consumer_slows_the_process(ground: Ground) -> None:
    """O3: stdout is read when a line is asked for; asyncio itself reads ahead a little."""
    async with ground.start(*python(PRODUCER)) as process:
        async with aclosing(lines(process)) as source:
            await anext(source)
            await until(lambda: source.tail.stderr.endswith("\n"))
            # uvloop's pipes are sockets, and hold more.
            bound = (2048 if ground.backend == "uvloop" else 512) * 1024
            assert 0 < int(source.tail.stderr.split()[-1]) < bound
            assert len(await all_of(source)) == 8 * 1024 - 1


# -- cancelled pulls ---------------------------------------------------------------------


@on_every_ground
async def test_a_pull_cancelled_in_mid_line_loses_nothing(ground: Ground) -> None:
    """T8: a source that can go on goes on, from where it was."""
    async with ground.start("cat") as process, aclosing(lines(process)) as source:
        async with anyio.create_task_group() as group:
            group.start_soon(anext, source)
            await ground.write(process, b"half a ")
            await until(lambda: source.tail.stdout == "half a ")
            group.cancel_scope.cancel()
        await ground.write(process, b"line\n")
        assert await anext(source) == "half a line"


@pytest.mark.parametrize("ground", [g for g in GROUNDS if g.backend != "trio"], ids=str)
async def test_a_native_cancel_at_the_instant_of_the_bytes_loses_nothing(ground: Ground) -> None:
    """T9: what has arrived when a raw cancel strikes is given to the next pull."""
    async with ground.start("cat") as process, aclosing(lines(process)) as source:
        given = []
        for number in range(100):
            pull = asyncio.ensure_future(anext(source))
            await ground.write(process, b"%d\n" % number)
            for _ in range(number % 5):
                await asyncio.sleep(0)
            pull.cancel()
            try:
                given.append(await pull)
            except asyncio.CancelledError:
                given.append(await anext(source))
        assert given == [str(number) for number in range(100)]


# -- closing -----------------------------------------------------------------------------

# Says one line and a half; a grandchild holds all of its pipes.
HELD = "sleep 600 & echo one; printf half; exec sleep 600"


async def pull_nothing(source: Any) -> None:
    pass


async def pull_one(source: Any) -> None:
    assert await anext(source) == "one"


async def pull_into_the_next(source: Any) -> None:
    await pull_one(source)
    async with anyio.create_task_group() as group:
        group.start_soon(anext, source)
        await until(lambda: source.tail.stdout == "one\nhalf")
        group.cancel_scope.cancel()


closing_points = pytest.mark.parametrize("pull", [pull_nothing, pull_one, pull_into_the_next])


@on_every_ground
@closing_points
async def test_closing_waits_for_nobody_and_ends_the_stream(ground: Ground, pull: Any) -> None:
    """D1: a close does not hang, though process and grandchild live and hold the pipes."""
    async with ground.start("sh", "-c", HELD) as process:
        source = lines(process)
        await pull(source)
        await source.aclose()
        await source.aclose()
        assert await all_of(source) == []


@pytest.mark.parametrize("ground", [g for g in GROUNDS if g.backend != "trio"], ids=str)
@closing_points
def test_a_native_cancel_of_the_close_closes_all(ground: Ground, pull: Any) -> None:
    """D6: the same for a raw cancel, at each step of the close; one comes through any shield."""

    async def cancelled_after(steps: int) -> None:
        async with ground.start("sh", "-c", HELD) as process:
            before = set(open_files())
            source = lines(process, close_stdin=True)
            await pull(source)
            closing = asyncio.ensure_future(source.aclose())
            for _ in range(steps):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            await until(lambda: len(before - set(open_files())) >= 3)

    async def main() -> None:
        for steps in range(1, 6):  # with none, it would not even have begun
            await cancelled_after(steps)

    ground.run(main)


@on_every_ground
@closing_points
async def test_closing_under_a_cancel_closes_all(ground: Ground, pull: Any) -> None:
    """O7: an outer cancel does not keep the close from closing, nor from seeing it through."""
    async with ground.start("sh", "-c", HELD) as process:
        before, tasks = set(open_files()), living_tasks(ground)
        source = lines(process)
        await pull(source)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await source.aclose()
        assert not scope.cancelled_caught
        assert living_tasks(ground) == tasks
        await until(lambda: len(before - set(open_files())) >= 2)


@on_every_ground
async def test_closing_ends_a_pull_under_way(ground: Ground) -> None:
    """O6: closed from another task, a pull that waits ends, without half a line."""
    async with ground.start("sh", "-c", HELD) as process:
        source = lines(process)
        taken: list[str] = []

        async def pull() -> None:
            taken.extend([line async for line in source])
            taken.append("ended")

        async with anyio.create_task_group() as group:
            group.start_soon(pull)
            await until(lambda: source.tail.stdout == "one\nhalf")
            await source.aclose()
        assert taken == ["one", "ended"]


@pytest.mark.parametrize("ground", [g for g in GROUNDS if g.backend != "trio"], ids=str)
def test_a_native_cancel_of_a_close_that_ends_a_pull(ground: Ground) -> None:
    """O6: uvloop aborts the whole program when a descriptor is closed that someone waits on."""

    async def cancelled_after(steps: int) -> None:
        async with ground.start("sh", "-c", HELD) as process:
            source = lines(process)
            pull = asyncio.ensure_future(all_of(source))
            await until(lambda: source.tail.stdout == "one\nhalf")
            closing = asyncio.ensure_future(source.aclose())
            for _ in range(steps):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            assert await pull == ["one"]

    async def main() -> None:
        for steps in range(1, 6):  # with none, it would not even have begun
            await cancelled_after(steps)

    ground.run(main)


@on_every_ground
async def test_a_process_whose_reader_left_gets_sigpipe(ground: Ground) -> None:
    """O7: closing early is to a process what `| head -1` is."""
    async with ground.start("yes") as process:
        async with aclosing(lines(process)) as source:
            assert await anext(source) == "y"
        if ground.kind == "popen":
            await until(lambda: process.poll() is not None)
        else:
            await process.wait()
        # uvloop's pipes are sockets: unread bytes make it ECONNRESET, which `yes` reports.
        assert process.returncode in ((-13, 1) if ground.backend == "uvloop" else (-13,))


@pytest.mark.parametrize("ground", [g for g in GROUNDS if g.kind != "popen"], ids=str)
async def test_once_closed_a_dead_process_can_be_waited_for(ground: Ground) -> None:
    """D4: asyncio's `wait` would wait for a grandchild's end of the pipes, too."""
    script = "sleep 600 & echo one; exec cat"
    async with ground.start("sh", "-c", script) as process:
        source = lines(process, close_stdin=True)
        assert await anext(source) == "one"
        await source.aclose()
        await process.wait()
        assert process.returncode == 0


@on_every_ground
async def test_no_descriptor_and_no_task_is_left(ground: Ground) -> None:
    """O7: at whichever point it was closed."""

    async def once(pull: Any) -> None:
        async with ground.start("sh", "-c", HELD) as process:
            source = lines(process, close_stdin=True)
            await pull(source)
            await source.aclose()

    points = (pull_nothing, pull_one, pull_into_the_next)
    await once(pull_one)  # what a loop opens once for all
    files, tasks = open_files(), living_tasks(ground)
    for pull in points * 3:
        await once(pull)
    await until(lambda: len(open_files()) <= len(files))
    assert living_tasks(ground) == tasks


@on_every_ground
async def test_dropped_unclosed_it_leaves_nothing(ground: Ground) -> None:
    """O7: after a bare `break` its own finaliser ends the drain."""
    async with ground.start("sh", "-c", HELD) as process:
        tasks, files = living_tasks(ground), open_files()
        async for line in lines(process):
            assert line == "one"
            assert living_tasks(ground) > tasks
            break
        gc.collect()
        await until(lambda: living_tasks(ground) == tasks and open_files() == files)


def living_tasks(ground: Ground) -> int:
    if ground.backend == "trio":
        import trio

        return trio.lowlevel.current_statistics().tasks_living
    return len(asyncio.all_tasks())


# -- the end -----------------------------------------------------------------------------


# uvloop's children inherit copies of their own pipes, so a grandchild that has left stdout still
# holds it unless it closes all others, too.
HOLDS_STDERR = r"""
import os, time
os.write(1, b"one\nhalf")
os.closerange(3, 1024)
if not os.fork():
    os.close(1)
    time.sleep(600)
"""


@on_every_ground
async def test_stderr_held_by_a_grandchild_does_not_keep_the_end_back(ground: Ground) -> None:
    """D4: stdout's end is the stream's end; stderr's is waited for only for a moment."""
    async with ground.start(*python(HOLDS_STDERR)) as process:
        async with aclosing(lines(process)) as source:
            assert await all_of(source) == ["one", "half"]
            assert await all_of(source) == []


@on_every_ground
@pytest.mark.parametrize("pulled", [True, False], ids=["pulled", "not yet pulled"])
async def test_the_owner_may_close_the_process_under_it(ground: Ground, pulled: bool) -> None:
    """D1: a process that was closed has no more lines; that is an end, not an error."""
    async with ground.start("cat") as process:
        async with aclosing(lines(process)) as source:
            if pulled:
                await ground.write(process, b"a\n")
                assert await anext(source) == "a"
            process.kill()
            await ground._reap(process)
            assert await all_of(source) == []


@on_every_ground
async def test_stdin_closed_on_request(ground: Ground) -> None:
    """O3: a command line that waits for the end of its stdin gets it at the first pull."""
    async with ground.start("sh", "-c", "cat; echo done") as process:
        source = lines(process, close_stdin=True)
        await ground.write(process, b"given before\n")
        async with aclosing(source):
            assert await all_of(source) == ["given before", "done"]


@on_every_ground
async def test_stdin_of_a_process_that_is_gone(ground: Ground) -> None:
    """O3: closing the stdin of a process that has left already is no error."""
    async with ground.start("true") as process:
        if ground.kind == "popen":
            process.stdin.write(b"lost\n")  # in its buffer: the close has to flush it
            process.wait()
        else:
            await process.wait()
        async with aclosing(lines(process, close_stdin=True)) as source:
            assert await all_of(source) == []


# -- guarded -----------------------------------------------------------------------------


@on_every_ground
async def test_guarded_a_process_that_hangs_is_found(ground: Ground, form: str) -> None:
    """T2: two messages, half a line, and then nothing: idle, and the pipes are closed."""
    script = r"""printf '{"n": 1}\nnotice\n{"n": 2}\n{"n":'; exec sleep 600"""
    async with ground.start("sh", "-c", script) as process:
        before = set(open_files())
        killed = []

        def disconnect() -> None:
            process.kill()
            killed.append(process.pid)

        source = json_lines(process)
        taken = await take(source | idle_guard(0.2, first=PATIENCE, disconnect=disconnect), form)
        assert taken.messages == [{"n": 1}, {"n": 2}]
        assert isinstance(taken.error, IdleTimeoutError)
        assert taken.error.teardown is not None
        assert taken.error.teardown.confirmed
        assert killed == [process.pid]
        assert source.tail.stdout.endswith('{"n":')
        await until(lambda: len(before - set(open_files())) >= 2)


@on_every_ground
async def test_guarded_a_process_that_ends_ends(ground: Ground, form: str) -> None:
    """T10: of a backend that nobody knows, the end is the end."""
    async with ground.start("seq", "20000") as process:
        taken = await take(lines(process) | idle_guard(20), form)
        assert taken.error is None
        assert taken.messages == [str(n) for n in range(1, 20001)]


@on_every_ground
async def test_guarded_a_cancelled_pull_goes_on(ground: Ground) -> None:
    """T8: the consumer's own scope cut a pull in mid-line; the guarded stream goes on."""
    async with ground.start("cat") as process, aclosing(lines(process)) as source:
        messages = aiter(source | idle_guard(20))
        async with anyio.create_task_group() as group:
            group.start_soon(anext, messages)
            await ground.write(process, b"half a ")
            await until(lambda: source.tail.stdout == "half a ")
            group.cancel_scope.cancel()
        await ground.write(process, b"line\n")
        assert await anext(messages) == "half a line"


@on_every_ground
async def test_guarded_a_line_too_long_comes_out_as_itself(ground: Ground, form: str) -> None:
    """T7: the source's own error passes through, unrenamed and in no group."""
    async with ground.start("printf", r"a\nbbbbbbbb\nc\n") as process:
        taken = await take(lines(process, max_line=5) | idle_guard(20), form)
        assert taken.messages == ["a"]
        assert isinstance(taken.error, LineTooLongError)


@on_every_ground
async def test_guarded_lines_of_claude_are_recognised(ground: Ground) -> None:
    """S1: a tool in flight pauses idle, as read from JSON lines."""
    start = {
        "type": "assistant",
        "session_id": "s",
        "message": {"content": [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}]},
    }
    end = {"type": "result", "subtype": "success", "session_id": "s", "is_error": False}

    async with ground.start("cat") as process:
        stream = json_lines(process) | idle_guard(0.1, first=PATIENCE)
        messages = aiter(stream)
        await ground.write(process, json.dumps(start).encode() + b"\n")
        await anext(messages)

        async def answer_late() -> None:
            await anyio.sleep(0.3)
            await ground.write(process, json.dumps(end).encode() + b"\n")
            await ground.end_input(process)

        async with anyio.create_task_group() as group:
            group.start_soon(answer_late)
            assert [m["type"] async for m in messages] == ["result"]


# -- what is refused ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("process", "options", "complaint"),
    [
        ({"stdout": None}, {}, "stdout=PIPE"),
        ({"stdout": "text"}, {}, "stdout is a str"),
        ({}, {"max_line": 0}, "max_line=0"),
        ({}, {"max_line": 1.5}, "max_line=1.5"),
        ({}, {"tail": -1}, "tail=-1"),
        ({}, {"on_invalid": "ignore"}, "on_invalid='ignore'"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(
    process: dict[str, Any], options: dict[str, Any], complaint: str
) -> None:
    """T12: at the call, by name, with the next step."""
    some = {"pid": 1, "stdin": None, "stdout": sys.__stdout__, "stderr": None}
    with pytest.raises(ConfigError, match=complaint):
        json_lines(SimpleNamespace(**{**some, **process}), **options)


@pytest.mark.parametrize("ground", [Ground("trio", "popen")], ids=str)
async def test_its_name_tells_no_secrets(ground: Ground) -> None:
    """E3: a process's own repr has its arguments, and so the prompt; ours has the pid."""
    async with ground.start("echo", "the prompt") as process:
        async with aclosing(json_lines(process, on_invalid="raise")) as source:
            assert repr(source) == f"<JsonLines of process {process.pid}>"
            with pytest.raises(InvalidLineError) as caught:
                await anext(source)
            assert "the prompt" not in str(caught.value)
