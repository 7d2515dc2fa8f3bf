"""docs/how-to/backends/own.md stays true: every block of Python in it is run here, under a guard."""

import re
from pathlib import Path

import anyio
import pytest

from streamguard import IdleTimeoutError, LivenessTimeoutError, StreamTruncatedError, idle_guard
from streamguard.backends import Backend
from streamguard.signals import Failed, SessionOpened, TurnEnded
from streamguard.testing import Script, hang, message, silence
from tests.support import take

TEXT = (Path(__file__).parents[2] / "docs/how-to/backends/own.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.DOTALL | re.MULTILINE))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run_block(section):
    """The names that a section's block defines."""
    (block,) = BLOCK.findall(SECTIONS[section])
    names = {}
    exec(compile(block, section, "exec"), names)
    return names


def test_every_block_is_in_a_section_of_this_file():
    shown = ["Server-sent events", "A websocket", "JSON-RPC", "Callbacks and blocking calls"]
    with_blocks = [name for name, body in SECTIONS.items() if BLOCK.search(body)]
    assert with_blocks == shown
    assert len(BLOCK.findall(TEXT)) == len(shown)


TOOL = 'data: {"type": "tool_start", "id": "t", "name": "Bash"}'
TOOL_END = 'data: {"type": "tool_end", "id": "t"}'
TOKEN = 'data: {"type": "token"}'
DONE = 'data: {"type": "done"}'


def comments(number, every):
    return [step for _ in range(number) for step in (silence(every), message(": ping"))]


def steps(*parts):
    """Texts as messages, steps as they are."""
    return [message(each) if isinstance(each, str | bytes | dict) else each for each in parts]


def play(loop, form, guard, *parts):
    async def main():
        return await take(Script(*steps(*parts)) | guard, form)

    return loop.run(main)


def test_comments_of_sse_keep_nobody_from_hanging(loop, form):
    read = run_block("Server-sent events")["read"]
    guard = idle_guard(180, liveness=60, read=read)
    got = play(loop, form, guard, TOKEN, "", *comments(20, 30), hang())
    assert type(got.error) is IdleTimeoutError
    assert loop.took(got.elapsed, 180)


def test_comments_that_stop_are_missed(loop, form):
    read = run_block("Server-sent events")["read"]
    guard = idle_guard(900, liveness=60, read=read)
    got = play(loop, form, guard, TOKEN, *comments(2, 30), hang())
    assert type(got.error) is LivenessTimeoutError
    assert loop.took(got.elapsed, 120)


def test_a_tool_of_sse_is_no_silence_and_its_end_is_known(loop, form):
    read = run_block("Server-sent events")["read"]
    parts = ("event: x", TOOL, "", silence(600), TOOL_END, DONE, "data: [DONE]")
    got = play(loop, form, idle_guard(180, read=read), *parts)
    assert got.error is None
    assert len(got.messages) == 6


def test_sse_that_is_cut_is_known_where_the_reader_says_so(loop, form):
    """T10"""
    read = run_block("Server-sent events")["read"]
    mine = Backend("mine", read, always_ends_turns=True)
    assert type(play(loop, form, idle_guard(180, read=mine), TOKEN).error) is StreamTruncatedError
    assert play(loop, form, idle_guard(180, read=mine), TOKEN, DONE).error is None
    assert play(loop, form, idle_guard(180, read=read), TOKEN).error is None


def test_a_websocket_that_waits_for_a_person_is_not_idle(loop, form):
    read = run_block("A websocket")["read"]
    asked = b'{"event": "approval_needed", "id": "a"}'
    answered = '{"event": "approved", "id": "a"}'
    done = '{"event": "done", "ok": true}'
    guard = idle_guard(180, read=read)
    assert play(loop, form, guard, asked, silence(900), answered, done).error is None
    beats = [part for _ in range(9) for part in (silence(30), '{"event": "heartbeat"}')]
    assert type(play(loop, form, guard, asked, answered, *beats).error) is IdleTimeoutError
    assert read('{"event": "hello", "session": "s"}') == SessionOpened("s")
    assert read('{"event": "done", "ok": false}') == TurnEnded("error")


def test_json_rpc_names_its_errors(loop, form):
    read = run_block("JSON-RPC")["read"]
    begun = {"method": "tool/started", "params": {"id": 1, "name": "build"}}
    ended = {"method": "tool/finished", "params": {"id": 1}}
    guard = idle_guard(180, read=read)
    answer = {"id": 7, "result": {}}
    assert play(loop, form, guard, begun, silence(900), ended, answer).error is None
    error = play(loop, form, guard, begun, ended, {"method": "$/alive"}, hang()).error
    assert type(error) is IdleTimeoutError
    assert read({"id": 7, "error": {"code": -32603}}) == (Failed("server"), TurnEnded("error"))
    assert read({"id": 7, "error": {"code": 1}})[0] == Failed("unknown")
    assert read({"method": "log"}) is None


async def test_what_is_pushed_is_a_stream_that_ends_what_it_began(loop, form):
    pushed = run_block("Callbacks and blocking calls")["pushed"]
    told = []

    def subscribe(callback):
        callback("one")
        callback("two")
        return lambda: told.append("unsubscribed")

    got = await take(pushed(subscribe) | idle_guard(180), form)
    assert got.messages == ["one", "two"]
    assert type(got.error) is IdleTimeoutError
    assert told == ["unsubscribed"]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_blocks_is_a_stream(backend):
    """In real time: threads know no other."""
    polled = run_block("Callbacks and blocking calls")["polled"]
    answers = iter(["one", "two", None])

    async def main():
        return [each async for each in polled(lambda: next(answers)) | idle_guard(60)]

    assert anyio.run(main, backend=backend) == ["one", "two"]
