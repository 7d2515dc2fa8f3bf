"""Scripted streams: say what a backend does, then iterate it, as often as you like.

    Script(opened("s-1"), say("hello"), tool("Bash", 3600), silence(200), hang())

A `Script` is an immutable async iterable; each iteration plays it from its start, in a fresh
async generator, on asyncio, uvloop and trio. Misbehaviour is in `misbehaving`. Imports anyio,
messages and clocks.
"""

from __future__ import annotations

import inspect
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import anyio

from streamguard._base.numbers import wait
from streamguard.testing import messages
from streamguard.testing.clocks import block_loop

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from datetime import datetime, time

    from streamguard._base.numbers import Seconds
    from streamguard.signals import Outcome, UsageSpan, WaitReason


@dataclass(frozen=True)
class Emit:
    """Yield a message."""

    message: Any


@dataclass(frozen=True)
class Silence:
    """Let time pass."""

    seconds: float

    async def act(self) -> None:
        """Sleep."""
        await anyio.sleep(self.seconds)


@dataclass(frozen=True)
class Hang:
    """Never go on."""

    async def act(self) -> None:
        """Sleep until cancelled."""
        await anyio.sleep_forever()


@dataclass(frozen=True)
class BlockedLoop:
    """Keep the whole event loop from running."""

    seconds: float

    async def act(self) -> None:
        """Block."""
        block_loop(self.seconds)


@dataclass(frozen=True)
class Fail:
    """Raise inside the stream."""

    error: BaseException | type[BaseException]

    async def act(self) -> None:
        """Raise."""
        raise self.error


@dataclass(frozen=True)
class Call:
    """Call back into the test."""

    fn: Callable[[], object]

    async def act(self) -> None:
        """Call, and await what wants to be awaited."""
        result = self.fn()
        if inspect.isawaitable(result):
            await result


@dataclass(frozen=True)
class Repeat:
    """Play some steps again and again, without end if `times` is None."""

    steps: tuple[Step, ...]
    times: int | None


Act: TypeAlias = Silence | Hang | BlockedLoop | Fail | Call
Step: TypeAlias = Emit | Act | Repeat


@dataclass(frozen=True, init=False, repr=False)
class Script:
    """What a backend does, step by step. `parts` are steps and other scripts."""

    steps: tuple[Step, ...]

    def __init__(self, *parts: Step | Script) -> None:
        steps: list[Step] = []
        for part in cast("tuple[Any, ...]", parts):
            if isinstance(part, Script):
                steps += part.steps
            elif isinstance(part, Emit | Act | Repeat):
                steps.append(part)
            else:  # said here, and not when it is played
                name = getattr(part, "__name__", None)
                is_uncalled = callable(part) and name
                hint = f"call it, {name}()" if is_uncalled else "say('...') makes a message"
                raise TypeError(f"{part!r} is no step of a script: {hint}")
        object.__setattr__(self, "steps", tuple(steps))

    def __aiter__(self) -> AsyncGenerator[Any, None]:  # noqa: PYI058 - callers may close it
        return _play(self.steps)

    def __add__(self, other: Step | Script) -> Script:
        return Script(self, other)

    def __repr__(self) -> str:
        return f"Script({', '.join(map(repr, self.steps))})"


def _unrolled(steps: tuple[Step, ...]) -> Iterator[Emit | Act]:
    for step in steps:
        if isinstance(step, Repeat):
            rounds = itertools.count() if step.times is None else range(step.times)
            for _ in rounds:
                yield from _unrolled(step.steps)
        else:
            yield step


async def _play(steps: tuple[Step, ...]) -> AsyncGenerator[Any, None]:
    # One flat generator: a nested one would stay open when the outer one is closed.
    for step in _unrolled(steps):
        if isinstance(step, Emit):
            yield step.message
        else:
            await step.act()


def say(text: str) -> Step:
    """The model says `text`."""
    return Emit(messages.Said(text))


def message(anything: object) -> Step:
    """`anything` at all, for instance a real backend's message."""
    return Emit(anything)


def tool(
    name: str,
    seconds: Seconds,
    *,
    id: str | None = None,  # noqa: A002 - the signal's own word
    background: bool = False,
    input: object = None,  # noqa: A002 - the signal's own word
    outcome: object = None,
) -> Script:
    """The tool `name` starts, is silent for `seconds`, and is done: asked `input`, it gives `outcome`.

    `id`: by which its start and its end are told; a new one unless it is written. `background`: it outlives its turn.
    """
    which = name if id is None else id
    start = tool_start(which, name, background=background, input=input)
    return Script(start, silence(seconds), tool_end(which, outcome=outcome))


def tool_start(
    id: str,  # noqa: A002 - the signal's own word
    name: str = "",
    *,
    background: bool = False,
    parent: str | None = None,
    input: object = None,  # noqa: A002 - the signal's own word
) -> Step:
    """The tool `name` starts, asked `input`, begun by the work `parent`. With `id=""` the backend gives it none.

    `background`: it outlives its turn.
    """
    return Emit(messages.ToolUsed(id, name or id, background, parent, input))


def tool_progress(id: str) -> Step:  # noqa: A002 - the signal's own word
    """The tool `id` shows itself that it gets on, as a sub-agent does with each message."""
    return Emit(messages.ToolGoesOn(id))


def tool_end(id: str, *, error: bool = False, outcome: object = None) -> Step:  # noqa: A002 - the signal's own word
    """The tool `id` is done; `error`: it failed; `outcome`: what came of it."""
    return Emit(messages.ToolDone(id, error, outcome))


def silence(seconds: Seconds) -> Step:
    """Nothing at all for `seconds`. `silence(0)` only lets the other tasks run."""
    return Silence(_duration(seconds))


def ping() -> Step:
    """One keep-alive."""
    return Emit(messages.Pinged())


def pings(every: Seconds, times: int | None = None) -> Step:
    """A keep-alive after every so many seconds; without `times`, for ever."""
    return Repeat((silence(every), ping()), times)


def repeat(*parts: Step | Script, times: int | None = None) -> Step:
    """All `parts` again and again; without `times`, for ever."""
    return Repeat(Script(*parts).steps, times)


def opened(token: str, *, resumable: bool = True, work_dir: str | None = None) -> Step:
    """The session opens, and can be resumed by `token` if it is `resumable`. It works in `work_dir`."""
    return Emit(messages.Opened(token, resumable, work_dir))


def waiting(
    id: str,  # noqa: A002 - the signal's own word
    reason: WaitReason = "human",
    *,
    until: datetime | float | None = None,
) -> Step:
    """The backend announces a wait for something outside itself.

    `id`, `reason`, `until`: as in `signals.Waiting`.
    """
    return Emit(messages.WaitsFor(id, reason, until))


def wait_ended(id: str) -> Step:  # noqa: A002 - the signal's own word
    """The wait that was announced as `id` is over."""
    return Emit(messages.WaitOver(id))


def usage(*, span: UsageSpan = "call", call: str = "", **counts: float) -> Step:
    """Token or cost counts, `usage(input_tokens=12)`: of one call, or of all since the `span` began."""
    return Emit(messages.Counted(tuple(counts.items()), span, call))


def failed(
    error_class: str = "unknown",
    *,
    retry_after: float | None = None,
    detail: str = "",
    session_unknown: bool = False,
    resets_at: datetime | time | float | None = None,
) -> Step:
    """An error that comes as a message; see `fail` for one that is raised.

    `error_class`, `retry_after`, `detail`, `session_unknown`, `resets_at`: as in `signals.Failed`.
    """
    said = messages.ErrorSaid(error_class, retry_after, detail, session_unknown, resets_at)
    return Emit(said)


def done(
    outcome: Outcome = "success",
    *,
    subtype: str = "",
    retriable: bool = False,
    more_expected: bool = False,
    answered: bool | None = None,
) -> Step:
    """The turn is over; the stream goes on if the script does.

    `outcome`, `subtype`, `retriable`, `more_expected`, `answered`: as in `signals.TurnEnded`.
    """
    return Emit(messages.Ended(outcome, subtype, retriable, more_expected, answered))


def fail(error: BaseException | type[BaseException]) -> Step:
    """The stream raises `error`."""
    return Fail(error)


def hang() -> Step:
    """Nothing, for ever."""
    return Hang()


def block(seconds: Seconds) -> Step:
    """Keep the event loop from running for `seconds`, as a blocking call does.

    In virtual time the clock moves on and nothing else runs.
    """
    return BlockedLoop(_duration(seconds))


def call(fn: Callable[[], object]) -> Step:
    """Call `fn()` at this point, and await what it returns if that is awaitable."""
    return Call(fn)


def _duration(seconds: Seconds) -> float:
    return wait(seconds, "seconds", infinite=True)
