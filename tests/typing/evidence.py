"""The evidence, as users write it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import assert_type

from streamguard import (
    Operator,
    Recorder,
    ResumePlan,
    ResumePoint,
    idle_guard,
    plan_resume,
    record_with,
    resume_from,
    scope,
    session,
)
from streamguard.events import Event, RecordingFailed
from streamguard.evidence.surroundings import Artifact


async def numbers() -> AsyncIterator[int]:
    yield 1


@asynccontextmanager
async def open_stream(point: ResumePoint) -> AsyncGenerator[AsyncIterator[int], None]:
    yield numbers()


def written() -> Iterator[str | Artifact]:
    yield "src/auth.py"
    yield Artifact(Path("out"), complete=True, bytes_written=5)


async def record(run: Path) -> None:
    recorder = Recorder(
        run,
        run_id="17",
        flow="build",
        step="step-3",
        agent="coder",
        artifacts=written,
        redact=str.upper,
    )
    recorder.mark(phase="work", progress="3 of 7", checkpoint="step-2")
    assert_type(record_with(recorder), Operator)
    with recorder as same:
        assert_type(same, Recorder)
        async with scope("step", "step-3"):
            async for number in numbers() | idle_guard(180) | record_with(recorder):
                assert_type(number, int)
    async with Recorder(str(run), artifacts=["a.py", Path("b.py")], transcript=False) as other:
        assert_type(other.flush(1.0), bool)
        assert_type(other.failures["x"], int)


async def resume(run: Path) -> None:
    plan = plan_resume(run, "build")
    assert_type(plan, ResumePlan | None)
    if plan is None or plan.recommendation == "escalate":
        return
    point = resume_from(plan, prompt="Go on.")
    assert_type(point, ResumePoint)
    async with session(open_stream, point=point) | idle_guard(180) as chat:
        async for number in chat:
            assert_type(number, int)
    resume_from(run)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    resume_from(plan, action="escape")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    record_with(run)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def observe(event: Event) -> None:
    if isinstance(event, RecordingFailed):
        assert_type((event.what, event.path, event.why), tuple[str, str | None, str])
