"""What a recorder costs: per message, at a verdict, and how long it keeps the loop waiting.

What the stream pays is CPU time of the loop's thread. What the writer's thread pays beside it is told,
too: it is slow work (JSON, redaction), and it gives way to the loop. A lap is no longer than the
writer's queue, so that no message is dropped.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio

from benchmarks.figures import Figure
from benchmarks.race import LOOPS, percentile, run
from benchmarks.sources import MESSAGE, buffered, exhaust, lines, turn
from streamguard import IdleTimeoutError, Recorder, idle_guard, record_with
from streamguard.evidence.stream import QUEUE

_LONG = {"type": "note", "text": "the token of https://example.org is " * 2000, "n": [{}] * 3000}
_KINDS = ("not recorded", "without a transcript", "with a transcript")
_HOLDS = {"without a transcript": 300.0, "with a transcript": 3000.0}
_BEATS = 1000
_BEAT = 0.002


def measure(rounds: int, n: int) -> list[Figure]:
    figures: list[Figure] = []
    for loop in LOOPS:
        figures += run(loop, _per_message, loop, rounds, n)
        figures += run(loop, _waits, loop)
    return figures


@contextmanager
def _recorder(**knobs: Any) -> Iterator[Recorder]:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "run", flow="f", step="s", work_dir=folder, **knobs)
        try:
            yield recorder
        finally:
            recorder.flush(60)


async def _per_message(loop: str, rounds: int, n: int) -> list[Figure]:
    said, last = lines()
    n = min(n, QUEUE)
    sources: dict[str, Callable[[], AsyncIterator[Any]]] = {
        "plain progress": lambda: buffered(n),
        "Claude's JSON lines": lambda: turn(n, said, last),
    }
    figures: list[Figure] = []
    for what, make in sources.items():
        laps: dict[str, list[tuple[float, float]]] = {kind: [] for kind in _KINDS}
        for _ in range(max(3, rounds)):
            for kind in _KINDS:
                laps[kind].append(await _lap(make(), kind, n))
        bare = [min(values) for values in zip(*laps["not recorded"], strict=True)]
        for kind, hold in _HOLDS.items():
            mine = [min(values) for values in zip(*laps[kind], strict=True)]
            for where, value, held in (
                ("loop's thread", mine[0] - bare[0], hold),
                ("both threads", mine[1] - bare[1], None),
            ):
                name = f"{what}, {kind}, {where}"
                figures.append(_figure(loop, name, value * 1e9, "ns added", held))
    return figures


async def _lap(source: AsyncIterator[Any], kind: str, n: int) -> tuple[float, float]:
    """CPU seconds per message: of this thread until it is through, and of all until it is written."""
    with _recorder(transcript=kind == "with a transcript") as recorder:
        guard = idle_guard(180)
        stream = source | (guard if kind == "not recorded" else guard | record_with(recorder))
        gc.collect(0)
        gc.disable()
        try:
            mine, all_ = time.thread_time(), time.process_time()
            await exhaust(aiter(stream))
            took = time.thread_time() - mine
            await recorder.written()
            return took / n, (time.process_time() - all_) / n
        finally:
            gc.enable()


async def _endless(message: Any) -> AsyncIterator[Any]:
    while True:
        yield message
        await anyio.sleep(_BEAT)


async def _waits(loop: str) -> list[Figure]:
    """How long the loop is kept from running: by what it does itself, and by the writer beside it."""
    quiet = await _beats(None)
    with _recorder() as recorder:
        longest = _watched(recorder)
        busy = await _beats(recorder)
        verdicts = [await _verdict(recorder) for _ in range(20)]
    return [
        _figure(loop, "longest call on the loop's thread", max(longest) * 1e3, "ms", 1.0),
        _figure(loop, "a sleep of 2 ms, median lateness, not recorded", quiet, "ms"),
        _figure(loop, "the same, added by a writer of 64 KB messages", busy - quiet, "ms", 1.0),
        _figure(loop, "a verdict's wait for its receipt, median", percentile(verdicts, 50), "ms"),
    ]


def _watched(recorder: Recorder) -> list[float]:
    """How long each call of the recorder's takes, as the loop's thread is charged for it."""
    took: list[float] = []
    told, tap = Recorder.__call__, recorder.tap

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.thread_time()
            try:
                return function(*arguments)
            finally:
                took.append(time.thread_time() - began)

        return call

    class Timed(Recorder):
        __call__ = timed(told)

    recorder.__class__ = Timed
    recorder.tap = lambda attempt: timed(tap(attempt))  # type: ignore[method-assign]
    return took


async def _beats(recorder: Recorder | None) -> float:
    late: list[float] = []

    async def feed() -> None:
        assert recorder is not None
        await exhaust(aiter(_endless(_LONG) | idle_guard(180) | record_with(recorder)))

    async with anyio.create_task_group() as group:
        if recorder is not None:
            group.start_soon(feed)
        for _ in range(_BEATS):
            began = time.perf_counter()
            await anyio.sleep(_BEAT)
            late.append((time.perf_counter() - began - _BEAT) * 1e3)
        group.cancel_scope.cancel()
    return percentile(late, 50)


async def _verdict(recorder: Recorder) -> float:
    """From a verdict to its error, with nothing to be torn down."""
    decided: list[float] = []

    def observe(event: object) -> None:
        if type(event).__name__ == "TimedOut":
            decided.append(time.perf_counter())

    async def silent() -> AsyncIterator[Any]:
        yield MESSAGE
        await anyio.sleep_forever()

    try:
        await exhaust(
            aiter(silent() | idle_guard(0.001, observer=observe) | record_with(recorder))
        )
    except IdleTimeoutError:
        return (time.perf_counter() - decided[0]) * 1e3
    raise AssertionError("it must hang")


def _figure(loop: str, what: str, value: float, unit: str, hold: float | None = None) -> Figure:
    return Figure(group="recording", loop=loop, what=what, value=value, unit=unit, hold=hold)
