"""`run --record` leaves what a `Recorder` leaves of the same messages: line for line, key for key."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from streamguard import (
    Activity,
    Backoff,
    Recorder,
    RetryPolicy,
    StreamGuardError,
    idle_guard,
    reconnecting_resume,
    record_with,
    session,
)
from streamguard.evidence.files import read_document, read_lines
from tests.runner.commands import INIT, OURS, RESULT, TEXT, TOOL, TOOL_DONE, sh

RECORDED = Path(__file__).parents[1] / "real" / "recorded"
# Of a stream that ends before its turn the library makes a verdict; a command's exit code says it.
CUT_SHORT = (
    "codex-interrupted",
    "copilot-killed",
    "gemini-killed",
    "kimi-refused",
    "opencode-interrupted",
    "opencode-killed",
    "qwen-killed",
)
HANGS = 1.0
# An allowed wait, what it cost, and work that is still going on.
USAGE = {**TEXT, "message": {**TEXT["message"], "usage": {"input_tokens": 5, "output_tokens": 7}}}
COMPACTING = {"type": "system", "subtype": "status", "status": "compacting"}
DONE = {**RESULT, "usage": {"input_tokens": 5, "output_tokens": 9}, "total_cost_usd": 0.25}
STORIES = {
    "well": [INIT, USAGE, TOOL, TOOL_DONE, DONE],
    "holds": [INIT, TEXT, COMPACTING, TOOL, TOOL_DONE, DONE],
    "dropped": [INIT, TOOL, RESULT],
    **{
        path.stem: [json.loads(line) for line in path.read_text().splitlines()]
        for path in sorted(RECORDED.glob("*.jsonl"))
        if path.stem not in CUT_SHORT
    },
}
HANGING = {
    "after work": [INIT, USAGE, TOOL, TOOL_DONE],
    "before it named a session": [TEXT],
}
# Only a command is a process, and of a window that collides a person is told, once per process.
OF_ONE_ALONE = {"ProcessAdopted", "ProcessExited", "ProcessKilled", "WindowCollides"}

# Of a run's command that is known; the library here has a stream without a process.
OF_A_PROCESS = {"vitals", "signals", "tree", "exit"}


def by_run(commands, messages, *words, hangs, retried=False):
    """What `run --record` leaves of a command that writes these."""
    work = commands.folder / "work"
    work.mkdir()
    (work / "lines").write_text("".join(json.dumps(message) + "\n" for message in messages))
    script = "cat lines" + ("; exec sleep 600" if hangs else "")
    folder = commands.folder / "run"
    command = [*OURS, "run", "--record", str(folder), *words, "--", *sh(script)]
    done = commands.run(*command, cwd=work)
    assert done.code == (124 if hangs and not retried else 0), done.err
    assert "--record" not in done.err
    return Left(folder)


def by_library(commands, messages, *, hangs, then=None):
    """What a `Recorder` leaves of a session whose stream gives these."""
    folder, work = commands.folder / "library", commands.folder / "work"
    recorder = Recorder(folder, run_id="run", flow="run", step="the-step", work_dir=work)
    opened = []

    async def backend(messages, *, hangs):
        for message in messages:
            yield message
        if hangs:
            await anyio.sleep_forever()

    @asynccontextmanager
    async def open_(_point):
        opened.append(_point)
        if len(opened) > 1:
            yield backend(then or (), hangs=False)
        else:
            yield backend(messages, hangs=hangs)

    async def main():
        pipe = idle_guard(HANGS, first=600, activity=Activity("the-step")) | record_with(recorder)
        if then is not None:
            pipe |= reconnecting_resume(policy=RetryPolicy(idle=Backoff(1, (0.0,))))
        async with recorder, session(open_, prompt="Go") | pipe as chat:
            async for _ in chat:
                pass

    try:
        anyio.run(main)
    except StreamGuardError:
        assert hangs
    return Left(folder)


class Left:
    """A folder of evidence without what is another one in each run."""

    def __init__(self, folder):
        (transcript,) = (folder / "run" / "llm").iterdir()
        self.step = transcript.name.removesuffix("-partial.jsonl")
        self.folder = folder
        # A recorder's thread may write the end of an attempt after the first of the next one.
        lines = sorted(read_lines(transcript), key=lambda line: (line["attempt"], "ended" in line))
        self.transcript = [self._bare(line) for line in lines]
        lines = list(read_lines(folder / "timeline.jsonl"))
        (self.header,) = (self._bare(line) for line in lines if line["kind"] == "writer")
        # What is told again replaces what was told before; instants decide on the order.
        spans = {line["id"]: line for line in lines if line["kind"] == "span"}
        self.spans = self._sorted(spans.values())
        marks = [line for line in lines if line["kind"] == "mark"]
        self.marks = self._sorted(line for line in marks if line["of"] not in OF_ONE_ALONE)
        self.counts = self._counts(lines)
        self.timeouts = [self._bare(line) for line in read_lines(folder / "run/timeouts.jsonl")]
        receipt = folder / "run" / "receipts" / f"{self.step}-timeout.json"
        self.receipt = self._bare(read_document(receipt) or {})

    def _counts(self, lines):
        counts = {}
        for line in lines:
            for stream, of, name, number, n, *_ in line.get("counts", ()):
                counts[stream == self.step, of, name, number] = n
        said = {}
        for (ours, of, name, _), n in counts.items():
            said[ours, of, name] = said.get((ours, of, name), 0) + n
        return said

    def _sorted(self, lines):
        return sorted((self._bare(line) for line in lines), key=json.dumps)

    def _bare(self, value, key=""):
        if isinstance(value, dict):
            return {n: self._bare(each, n) for n, each in value.items() if n not in OF_A_PROCESS}
        if isinstance(value, list):
            return [self._bare(each) for each in value]
        if key in {"at", "timestamp", "id", "wall", "pid", "writer", "timeout_id"}:
            return f"<{key}>"
        if isinstance(value, float) and key not in {"window", "delay", "total_cost_usd"}:
            return "<a time>"
        if key.endswith("_ms") and key != "timeout_ms" and value is not None:
            return "<a time>"
        if isinstance(value, str):
            value = value.replace(str(self.folder), "FOLDER")
            step = rf"{re.escape(self.step)}(?![_-](?:start|finish)\b)"  # they are opencode's
            value = re.sub(step, "STEP", value)
            value = value.replace("stream 'sh'", "stream 'STEP'")
            value = re.sub(r" \(/\S+\.py:\d+\)", "", value)
            value = re.sub(r" \[cpu [^]]*\]", "", value)
            value = re.sub(r"(teardown \w+) .*", r"\1", value)
            return re.sub(r"\d+(\.\d+)? m?s\b", "N s", value)
        return value


@pytest.mark.parametrize("story", STORIES)
def test_of_a_stream_that_ends(commands, story):
    ours = by_run(commands, STORIES[story], "--idle", "600", hangs=False)
    theirs = by_library(commands, STORIES[story], hangs=False)
    assert ours.transcript == theirs.transcript
    assert ours.header == theirs.header
    assert ours.spans == theirs.spans
    assert ours.counts == theirs.counts
    assert ours.marks == theirs.marks


@pytest.mark.parametrize("story", HANGING)
def test_of_a_stream_that_hangs(commands, story):
    words = ["--first", "600", "--idle", str(HANGS)]
    ours = by_run(commands, HANGING[story], *words, hangs=True)
    theirs = by_library(commands, HANGING[story], hangs=True)
    assert ours.transcript == theirs.transcript
    assert ours.timeouts == theirs.timeouts
    for receipt in (ours.receipt, theirs.receipt):
        receipt["teardown"] = receipt["teardown"].keys()
        del receipt["done"]["work_dir"]  # a run knows where it runs
    assert ours.receipt == theirs.receipt
    assert ours.spans == theirs.spans
    assert ours.counts == theirs.counts
    assert ours.marks == theirs.marks


def test_of_a_stream_that_hangs_and_goes_on(commands):
    first, then = [INIT, USAGE, TOOL, TOOL_DONE], [INIT, TEXT, DONE]
    rest = commands.folder / "rest"
    rest.write_text("".join(json.dumps(message) + "\n" for message in then))
    words = ["--first", "600", "--idle", str(HANGS), "--retries", "1", "--backoff", "0"]
    words += ["--resume-cmd", f"sh -c 'cat {rest}' {{session_id}}"]
    ours = by_run(commands, first, *words, hangs=True, retried=True)
    theirs = by_library(commands, first, hangs=True, then=then)
    assert ours.transcript == theirs.transcript
    assert ours.timeouts == theirs.timeouts
    for receipt in (ours.receipt, theirs.receipt):
        receipt["teardown"] = receipt["teardown"].keys()
        del receipt["done"]["work_dir"]
    assert ours.receipt == theirs.receipt
    assert ours.spans == theirs.spans
    assert ours.counts == theirs.counts
    # A busy machine may keep the library's loop waiting, which it tells.
    told = [mark["of"] for mark in theirs.marks if mark["of"] != "LoopStalled"]
    assert [mark["of"] for mark in ours.marks] == told
