"""What users hand in or get a hold of: readers, observers, holds, the monitor. Checked, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from streamguard import Activity, GuardedIterator, Monitor, idle_guard
from streamguard.backends import claude
from streamguard.errors import Limit
from streamguard.events import Concern, Event, Observer, TimedOut
from streamguard.signals import Liveness, Progress, Signal, TurnEnded, Usage, WorkStarted


class Message:
    """What some backend yields."""

    kind: str = ""


def receive() -> AsyncIterator[Message]:
    raise NotImplementedError


# --- readers: one message in; a signal, several, or None out (S0)


def reads_one(message: Message) -> Signal | None:
    return Liveness() if message.kind == "ping" else None


def reads_several(message: Message) -> Iterable[Signal]:
    yield Progress()
    yield Usage(counts={"input_tokens": 1})


def reads_anything(message: object) -> TurnEnded | list[WorkStarted] | None:
    return None


def readers() -> None:
    idle_guard(180, read=reads_one)
    idle_guard(180, read=reads_several)
    idle_guard(180, read=reads_anything)
    idle_guard(180, read=lambda message: Progress() if message else None)
    idle_guard(180, read="claude")
    idle_guard(180, read=claude)
    idle_guard(180, read=claude.read)


# --- observers: any callable of one event (E6)


def observes(event: Event) -> None:
    if isinstance(event, TimedOut):
        assert_type(event.enforced, bool)
        assert_type(event.verdict.messages, int)
    assert_type(event.activity, Activity)


class Witness:
    def __call__(self, event: Event) -> None: ...


def observers() -> None:
    either: list[Observer] = [observes, Witness(), print]
    idle_guard(180, observer=observes)
    idle_guard(180, observer=Witness())
    idle_guard(180, observer=either[0])
    idle_guard(180, observer=lambda event: readers() if event.at else None)


# --- warnings alone (B6)


def pages(concern: Concern) -> None:
    assert_type(concern.limit, Limit)
    if concern.vitals is not None:
        assert_type(concern.vitals.rss, int | None)
        assert_type(concern.vitals.as_json(), dict[str, Any])


def warnings() -> None:
    idle_guard(180, on_warn=pages)
    idle_guard(180, on_warn=observes)  # who takes any event takes a warning
    idle_guard(180, on_warn=lambda concern: concern.limit)


# --- holds: a context manager, and a decorator that keeps the signature (T6)

activity = Activity("issue-7", repository="streamguard")


@activity.hold("permission prompt", allowance=timedelta(minutes=10))
async def may_use(tool: str, *, risky: bool = False) -> bool:
    return not risky


@activity.hold("lint", until=datetime(2030, 1, 1, tzinfo=UTC))
def lint(path: str) -> int:
    return len(path)


class Session:
    @activity.hold("approval")
    async def approve(self, tool: str) -> bool:
        return bool(tool)


async def decorated_callbacks_keep_their_signatures(session: Session) -> None:
    assert_type(await may_use("Bash", risky=True), bool)
    assert_type(lint("a.py"), int)
    assert_type(await session.approve("Bash"), bool)
    wanted: Callable[[str], Coroutine[Any, Any, bool]] = may_use
    assert_type(await wanted("Bash"), bool)
    await may_use(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    lint()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


# --- the monitor, for loops that cannot be wrapped (O10)


async def monitored() -> None:
    async with idle_guard(180).monitor() as monitor:
        assert_type(monitor, Monitor)
        assert_type(monitor.activity, Activity)
        with monitor.waiting():
            message = await anext(receive())
        monitor.saw(message)


# --- by hand


async def stepped_by_hand() -> None:
    async with receive() | idle_guard(180) as messages:
        assert_type(messages, GuardedIterator[Message])
        assert_type(await anext(messages), Message)
        assert_type(await anext(messages, None), Message | None)
        await messages.aclose()
    assert_type(await anext(aiter(receive() | idle_guard(180))), Message)


def mistakes() -> None:
    idle_guard(180, read=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, observer=lint)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, on_warn=lint)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180, observer="log")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    activity.hold("prompt", allowance=["soon"])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    idle_guard(180).monitor().saw()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
