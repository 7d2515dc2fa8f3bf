"""What becomes long or many over a run: attempts, events, lines of evidence, sessions of a report, runs of `top`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.growth.curve import Growth, timed
from benchmarks.sources import MESSAGE, buffered
from streamguard import (
    Activity,
    Backoff,
    CircuitBreaker,
    ResumePoint,
    RetryPolicy,
    events,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard.breaker import MemoryStore
from streamguard.cli.top import RUNS, rows, screen
from streamguard.errors import Verdict
from streamguard.evidence.files import Folder, as_line, read_lines
from streamguard.evidence.report import drawing, page, read_run
from streamguard.evidence.stream_names import stream_of
from streamguard.evidence.timeline import Timeline
from streamguard.retry import ErrorClass
from streamguard.signals import SessionOpened, WorkFinished, WorkStarted
from streamguard.top.published import read_all
from streamguard.top.publisher import _Board

_MANY = 10**9
_TIMES = 1_000
_LOT = 32
_STREAMS = 1_000  # that one recorder tells one by one
_LINE = as_line({"at": "2026-11-20T02:14:26.000Z", "number": 1, "message": "x" * 100})
# As XDG_RUNTIME_DIR mostly is.
_IN_MEMORY = "/dev/shm"
_FAIL, _RETRY = b"fail ", b"retry"


# -- attempts --------------------------------------------------------------------------------------


async def _attempts(n: int) -> Mapping[str, float]:
    """Each of them is lost after a message, and none of it is ever forgiven."""

    @asynccontextmanager
    async def lose(point: ResumePoint) -> AsyncIterator[Any]:
        async def messages() -> AsyncIterator[Any]:
            yield SessionOpened("s")
            yield MESSAGE
            if point.attempt < n:
                raise ConnectionError

        yield messages()

    network = Backoff(_MANY, (0.0,))
    policy = RetryPolicy(network=network, max_in_a_row=_MANY, max_reconnects=_MANY)
    guard = idle_guard(180).replace(read=_read) | reconnecting_resume(policy=policy)
    with timed(n) as watch:
        async with session(lose, prompt="go") | guard as chat:
            async for _ in chat:
                pass
    return {"one more": watch.seconds}


def _read(message: Any) -> Any:
    return message if message is not MESSAGE else None


async def _permits(n: int) -> Mapping[str, float]:
    breaker = CircuitBreaker(pause=1e-6, longest_pause=1e-6, escalate_after=None)
    with timed(n) as watch:
        for _ in range(n):
            (await breaker.acquire(on_open="wait")).failed(ErrorClass.SERVER)
    return {"a permit, and a failure": watch.seconds}


async def _circuits(n: int) -> Mapping[str, float]:
    store = MemoryStore()
    breakers = [CircuitBreaker(str(number), store=store) for number in range(n)]
    for breaker in breakers:
        store.listen(breaker.key, _nothing)
    with timed(n) as watch:
        for breaker in breakers:
            breaker.try_acquire().failed(ErrorClass.SERVER)
    return {"a failure, where each has somebody waiting": watch.seconds}


def _nothing(*_: object) -> None:
    """A listener, or an observer."""


# -- events ----------------------------------------------------------------------------------------


async def _events(n: int) -> Mapping[str, float]:
    async def works() -> AsyncIterator[Any]:
        for number in range(n // 2):
            yield WorkStarted(str(number), "Bash")
            yield WorkFinished(str(number))

    stream = aiter(works() | idle_guard(180, observer=_nothing).replace(read=_read))
    with timed(n) as watch:
        async for _ in stream:
            pass
    return {"a tool's beginning or end, observed": watch.seconds}


async def _observers(n: int) -> Mapping[str, float]:
    activity = Activity("s")
    heard = tuple(lambda event, number=number: number for number in range(n))
    with timed(n * _TIMES // 10) as watch:
        for _ in range(_TIMES // 10):
            events.tell(heard, events.StreamStarted(activity=activity, at=0.0))
    return {"an event, for each": watch.seconds}


# -- evidence --------------------------------------------------------------------------------------


@contextmanager
def _folder(*, in_memory: bool = False) -> Iterator[Path]:
    """`in_memory`, where that is: what a disk makes of many small files is not ours."""
    within = _IN_MEMORY if in_memory and Path(_IN_MEMORY).is_dir() else None
    with tempfile.TemporaryDirectory(dir=within) as folder:
        yield Path(folder) / "run"


async def _timeline(n: int) -> Mapping[str, float]:
    """A day of a stream, however many messages it has, written each half second."""
    timeline, each = Timeline(), 86_400 / n
    with timed(n) as watch:
        for number in range(n):
            timeline.message("s", "Progress", number * each)
            if number % 50 == 0:
                timeline.take()
    return {"a message in the timeline": watch.seconds}


async def _lanes(n: int) -> Mapping[str, float]:
    timeline = Timeline()
    activities = [Activity(f"s-{number}") for number in range(n)]
    with timed(n) as watch:
        for number, activity in enumerate(activities):
            timeline.event(events.StreamStarted(activity=activity, at=number))
            timeline.event(events.StreamEnded(activity=activity, at=number + 0.5, error=None))
            if number % 50 == 0:
                timeline.take()
    return {"a stream in the timeline": watch.seconds}


async def _lines(n: int) -> Mapping[str, float]:
    with _folder() as run:
        folder = Folder(run)
        with timed(n) as writing:
            for _ in range(n // _LOT + 1):
                folder.append("lines.jsonl", [_LINE] * _LOT, cap=1 << 30)
        with timed(n) as reading:
            for _ in read_lines(run / "lines.jsonl"):
                pass
    return {"written": writing.seconds, "read": reading.seconds}


async def _verdicts(n: int) -> Mapping[str, float]:
    """All of them are written before it is known of any what follows."""
    with _folder(in_memory=True) as run, mock.patch("os.fsync"):
        log, receipts = Folder(run), Folder(run, "receipts")
        lines = [
            as_line({"id": f"{number:09}", "text": "x" * 500, "a": "fail "}) for number in range(n)
        ]
        with timed(n) as writing:
            ends = [log.append("timeouts.jsonl", [line], cap=1 << 30).end for line in lines]
        with timed(n) as amending:
            for line, end in zip(lines, ends, strict=True):
                log.amend("timeouts.jsonl", line, line.replace(_FAIL, _RETRY), end=end)
        with timed(n) as receipt:
            for number in range(n):
                receipts.replace(f"{number}.json", _LINE)
    return {
        "a line": writing.seconds,
        "what follows": amending.seconds,
        "a receipt": receipt.seconds,
    }


async def _report(n: int) -> Mapping[str, float]:
    with _folder() as folder:
        _record(folder, n)
        with timed(n) as reading:
            run = read_run(folder)
    with timed(n) as paging:
        page(run)
    with timed(n) as drawing_it:
        drawing(run)
    return {
        "read": reading.seconds,
        "as a page": paging.seconds,
        "as a picture": drawing_it.seconds,
    }


def _record(folder: Path, n: int) -> None:
    """Sessions that work for a while and are cut, each with its receipt."""
    receipts = folder / "f/receipts"
    receipts.mkdir(parents=True)
    with (folder / "timeline.jsonl").open("wb") as file:
        for first in range(0, n, _STREAMS):
            head = {
                "kind": "writer",
                "run_id": "r",
                "flow": "f",
                "pid": 1,
                "at": 0.0,
                "wall": 1.8e9,
            }
            timeline = Timeline()
            for number in range(first, min(n, first + _STREAMS)):
                receipt = _cut(timeline, f"s-{number}", float(number))
                (receipts / f"s-{number}-timeout.json").write_text(json.dumps(receipt))
            for line in (head, *timeline.take(last=True)):
                file.write(as_line({"writer": f"w-{first}", **line}))


def _cut(timeline: Timeline, name: str, at: float) -> dict[str, Any]:
    """A session in the timeline; its receipt."""
    about: dict[str, Any] = {"activity": Activity(name)}
    verdict = Verdict(limit="tools", window=60, elapsed=60, at=at + 62, name=name)
    work: dict[str, Any] = {"id": "t", "name": "Bash", "background": False}
    timeline.event(events.StreamStarted(**about, at=at))
    timeline.message(stream_of(about["activity"]), "Progress", at + 1, 10)
    timeline.event(events.WorkBegan(**about, **work, at=at + 2))
    timeline.event(events.TimedOut(**about, at=verdict.at, verdict=verdict, enforced=True))
    timeline.event(events.StreamEnded(**about, at=verdict.at, error=TimeoutError()))
    return {"timeout_event": {"reason": verdict.reason, "stream": stream_of(about["activity"])}}


# -- what runs -------------------------------------------------------------------------------------


async def _top(n: int) -> Mapping[str, float]:
    async with AsyncExitStack() as stack:
        stack.enter_context(_runtime_folder())
        for _ in range(n):
            stream = aiter(buffered(2) | idle_guard(180))
            await stack.enter_async_context(aclosing(stream))
            await anext(stream)
        board = _Board()
        with timed(n) as first:
            board.look()
        with timed(n) as again:
            board.look()
        with timed(n) as reading:
            runs = read_all()
        with timed(n) as drawing_it:
            shown = rows(runs, 0.0)
            screen(RUNS, shown, "run", width=160, height=50)
    return {
        "written first": first.seconds,
        "looked at again": again.seconds,
        "read": reading.seconds,
        "drawn": drawing_it.seconds,
    }


@contextmanager
def _runtime_folder() -> Iterator[None]:
    with _folder(in_memory=True) as folder:
        folder.mkdir(0o700)
        with mock.patch.dict(os.environ, XDG_RUNTIME_DIR=str(folder)):
            yield


ROWS = (
    Growth(grows="attempts", sizes=(10, 100, 1_000, 10_000), lap=_attempts, law="linear"),
    Growth(grows="attempts", sizes=(10, 1_000, 100_000), lap=_permits, law="linear"),
    Growth(grows="circuits", sizes=(10, 100, 1_000, 10_000), lap=_circuits, law="linear"),
    Growth(grows="events", sizes=(1_000, 10_000, 100_000), lap=_events, law="constant"),
    Growth(grows="observers", sizes=(1, 10, 100, 1_000), lap=_observers, law="linear"),
    Growth(
        grows="messages", sizes=(1_000, 10_000, 100_000, 1_000_000), lap=_timeline, law="linear"
    ),
    Growth(grows="streams", sizes=(100, 1_000, 10_000), lap=_lanes, law="linear"),
    Growth(grows="lines", sizes=(1_000, 10_000, 100_000, 1_000_000), lap=_lines, law="linear"),
    Growth(grows="verdicts", sizes=(10, 100, 1_000, 10_000), lap=_verdicts, law="linear"),
    Growth(grows="a report's sessions", sizes=(10, 100, 1_000, 10_000), lap=_report, law="linear"),
    Growth(grows="runs of top", sizes=(10, 100, 1_000, 5_000), lap=_top, law="linear"),
)
