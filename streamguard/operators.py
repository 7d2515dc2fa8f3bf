"""The operators: immutable, pipeable values. Each is a plan, and piping them merges plans (O1, O2).

    stream | idle_guard(180)                            what most people need
    stream | idle_timeout(180) | inflight_tool_gate()   the same in parts

An operator is bound to no stream: made once, it guards any number. What a knob means is in
`watch`; what may be written for it is checked here, where it is written.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import AsyncIterable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from streamguard._guard.knobs import (
    CONFIGURED,
    DEFAULT_DISCONNECT_TIMEOUT,
    DEFAULT_KILL_GRACE,
    DEFAULT_TOOLS,
    Configured,
    Default,
    Disconnect,
    IdleLimit,
    Seconds,
    check_callable,
    fields_of,
    seconds,
    with_limit,
)
from streamguard._guard.plan import Plan
from streamguard.activity import Activity
from streamguard.errors import ConfigError
from streamguard.presets import idle_for

if TYPE_CHECKING:
    from streamguard._guard.guarded import Guarded
    from streamguard._guard.modes import Mode
    from streamguard._guard.monitor import Monitor
    from streamguard._guard.supervision import Process
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard._watch.watch import Limits
    from streamguard.backends import Readable
    from streamguard.events.kinds import Observer
    from streamguard.sessions.hosting_operators import HostingOperator
    from streamguard.sessions.session import Session

T = TypeVar("T")
U = TypeVar("U")


class Operator:
    """What to guard a stream with. `source | operator` gives a `Guarded`; nothing runs yet."""

    def __init__(self, plan: Plan, written: str) -> None:
        self._plan = plan
        self._written = written

    @property
    def plan(self) -> Plan:
        """The knobs, merged."""
        return self._plan

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits as the watch wants them."""
        return self._plan.watch_limits()

    def __repr__(self) -> str:
        return self._written

    if TYPE_CHECKING:

        @overload
        def __call__(self, source: Session[T], /) -> Session[T]: ...
        @overload
        def __call__(self, source: AsyncIterable[T], /) -> Guarded[T]: ...

    def __call__(self, source: Any, /) -> Any:
        from streamguard._guard.guarded import Guarded

        sessions: Any = sys.modules.get("streamguard.sessions.session")
        if sessions is not None and isinstance(source, sessions.Session):
            return cast("Session[Any]", source) | self
        if not hasattr(cast("object", type(source)), "__aiter__"):
            raise TypeError(
                f"{source!r} | {self!r}: the left side is not an async iterable; "
                f"{_what_was_forgotten(source)}"
            )
        stream = cast("AsyncIterable[Any]", source)
        if isinstance(source, Guarded):
            return stream | self  # fused, and so of any order, when called, too (O2)
        if self._plan.wants_owner:
            from streamguard.sessions.session import session_of

            return session_of(stream, self)
        return Guarded(stream, self)

    if TYPE_CHECKING:

        @overload
        def __ror__(self, source: Session[T], /) -> Session[T]: ...
        @overload
        def __ror__(self, source: AsyncIterable[T], /) -> Guarded[T]: ...

    def __ror__(self, source: Any, /) -> Any:
        return self(cast("AsyncIterable[Any]", source))

    if TYPE_CHECKING:

        @overload
        def __or__(self, other: HostingOperator[U], /) -> HostingOperator[U]: ...
        @overload
        def __or__(self, other: Operator, /) -> Operator: ...

    def __or__(self, other: Any, /) -> Any:
        if not isinstance(cast("object", other), Operator):
            raise TypeError(
                f"{self!r} | {other!r}: the right side is not an operator. Write the source first: "
                "stream | idle_guard(180) | ..., so that what follows gets a stream"
            )
        return Operator(self._plan.merged(other.plan), f"{self!r} | {other!r}")

    def replace(self, limit: IdleLimit = CONFIGURED, /, **knobs: Any) -> Operator:
        """This operator with `knobs` set anew, whatever was written for them before.

        `limit`: as for `idle_guard`; left out, `idle` stays as it is unless it is in `knobs`.
        """
        written = _as_written(limit, knobs)
        knobs = with_limit(limit, knobs)
        fields = fields_of(knobs, before=self._plan.written)
        if "limits" in fields:
            fields["limits"] = {**self._plan.limits, **fields["limits"]}
        others = self._plan.tools["*"]
        if fields.get("tools", {}).get("*") is DEFAULT_TOOLS and isinstance(others, Default):
            fields["tools"] = {**fields["tools"], "*": others}
        plan = self._plan.anew(fields, is_other_client="client" in knobs)
        return Operator(plan, f"{self!r}.replace({written})")

    def monitor(self) -> Monitor:
        """The same as an object, for loops that cannot be wrapped (O10)."""
        from streamguard._guard.monitor import Monitor

        return Monitor(self._plan, self.limits)


def idle_guard(
    limit: IdleLimit = CONFIGURED,
    /,
    *,
    idle: IdleLimit = CONFIGURED,
    first: Seconds | None = None,
    liveness: Seconds | None = None,
    tools: Seconds | Mapping[str, Seconds | None] | None = DEFAULT_TOOLS,
    turn: Seconds | None = None,
    exit_grace: Seconds | None = None,
    total: Seconds | None = None,
    client: SupportsDisconnect | None = None,
    disconnect: Disconnect | None = None,
    interrupt: Disconnect | None = None,
    process: Process | None = None,
    disconnect_timeout: Seconds = DEFAULT_DISCONNECT_TIMEOUT,
    kill_grace: Seconds = DEFAULT_KILL_GRACE,
    activity: Activity | None = None,
    read: Readable = "auto",
    observer: Observer | None = None,
    mode: Mode | None = None,
) -> Operator:
    """The one operator most people need: stamp, gate and idle limit, with teardown (O9).

    Args:
        limit: Seconds of silence that end the stream; or a preset: how finely the backend talks,
            "tokens" (120 s, first 300), "messages" (900 s) or "command" (1800 s), or whose
            limits they are, such as "claude-print" (see docs/presets.md). What is written beside
            it goes over it. None for no idle limit. Left out, and `idle` too, the configuration
            says it, and all else that is not written here: see `from_config`.

        idle: The same by its name: `idle_guard(idle=180)`. Beside a preset, the seconds in place
            of its own: `idle_guard("multica", idle=60)`.

        first: Seconds until a turn's first progress, in place of `idle` until then.

        liveness: Seconds without any message, pings included, once pings were seen.

        tools: Seconds a piece of work may be in flight; by tool name with a mapping ("*" for the
            others); None pauses `idle` for as long as it takes.

        turn: Seconds for a whole turn.

        exit_grace: Seconds a stream may stay open after its turn's end; then it ends normally.

        total: Seconds for everything, never reset.

        client: What has `async def disconnect()`; short for `disconnect=client.disconnect`. Its
            process is looked for: by `get_subprocess_pid()`, then where known SDKs keep theirs.
            Of a client of a known SDK, interrupt and reader are taken, too. What is written here
            goes before all of that. See docs/backends.md.

        disconnect: Called on a verdict, sync or async, in a task of its own.

        interrupt: Called first, while the stream is still read: what asks the backend to end its
            turn by itself. If it does so with success within 5 s, nothing is torn down.

        process: The backend's process: a pid, a process object, or a function that gives either
            (None as long as there is none). It is watched, and ended with all that it started.

        disconnect_timeout: Seconds after which a disconnect is abandoned and reported.

        kill_grace: Seconds between asking the process's tree to end (TERM) and killing it.

        activity: The live state to fill, when others must reach it before the stream exists.

        read: Which reader understands the messages; found by itself as a rule.

        observer: Called with each event.

        mode: "enforce", "warn" (events only) or "off".

    Raises:
        ConfigError: If a value cannot be used, or `idle` is said nowhere.
    """
    given: dict[str, Any] = {
        "first": first,
        "liveness": liveness,
        "turn": turn,
        "exit_grace": exit_grace,
        "total": total,
        "client": client,
        "disconnect": disconnect,
        "interrupt": interrupt,
        "process": process,
        "disconnect_timeout": disconnect_timeout,
        "kill_grace": kill_grace,
        "activity": activity,
        "observer": observer,
        "mode": mode,
    }
    written: dict[str, Any] = {} if isinstance(idle, Configured) else {"idle": idle}
    written["tools"] = tools
    written |= {k: v for k, v in given.items() if v is not None and not isinstance(v, Default)}
    if read != "auto":
        written["read"] = read
    if isinstance(limit, Configured) and "idle" not in written:
        from streamguard.configuration import from_config

        return from_config().guard(**{k: v for k, v in written.items() if v is not DEFAULT_TOOLS})
    if isinstance(limit, Configured):
        limit = written.pop("idle")
    return _operator("idle_guard", written, limit)


def idle_timeout(idle: Seconds | None) -> Operator:
    """Raises `IdleTimeoutError` when the backend keeps us waiting for `idle` seconds.

    By itself it knows no work in flight: add `inflight_tool_gate()`, or take `idle_guard`.
    """
    return _operator("idle_timeout", {}, idle)


def inflight_tool_gate(
    tools: Seconds | Mapping[str, Seconds | None] | None = DEFAULT_TOOLS, /
) -> Operator:
    """Pauses `idle` while work is in flight, for at most `tools` seconds each."""
    return _operator("inflight_tool_gate", {"tools": tools})


def activity_stamp(
    into: Activity | Callable[[Activity], object], /, *, every: Seconds = 0
) -> Operator:
    """Fills an `Activity`, or calls a function with it at most once in `every` seconds."""
    interval = 0.0 if every == 0 else seconds(every, "every")
    if isinstance(into, Activity):
        return _operator("activity_stamp", {"activity": into})
    if not callable(into):
        raise ConfigError(f"activity_stamp({into!r}): give it an Activity or a function of one")
    check_callable("into", into, "activity")
    spaced = f", every={every!r}" if every else ""
    return Operator(Plan(stamps=((into, interval),)), f"activity_stamp({into!r}{spaced})")


def derived_idle(total: Seconds) -> float:
    """An idle limit for a job of `total` seconds: a fifth of it, between 300 and 900."""
    return idle_for(seconds(total, "total"))


def _operator(
    name: str,
    knobs: dict[str, Any],
    limit: IdleLimit = CONFIGURED,
) -> Operator:
    fields = fields_of(with_limit(limit, knobs))
    return Operator(Plan(**fields), f"{name}({_as_written(limit, knobs)})")


def _as_written(limit: IdleLimit, knobs: Mapping[str, Any]) -> str:
    first = [] if isinstance(limit, Configured) else [repr(limit)]
    others = [f"{k}={v!r}" for k, v in knobs.items() if not isinstance(v, Default)]
    return ", ".join((*first, *others))


def _what_was_forgotten(source: object) -> str:
    """The call, the await, the method: what would make a stream of `source` (O1)."""
    if inspect.iscoroutine(source):
        source.close()  # or Python would also warn that it was never awaited
        return "it is a coroutine: await it first, (await ...) | operator"
    if isinstance(source, type):
        return f"it is a class: pipe an object of it, {source.__name__}(...) | operator"
    if hasattr(source, "receive_response"):
        return "it is a client: pipe its stream, client.receive_response() | operator"
    if hasattr(source, "__await__"):
        return "it is awaitable: await it first, (await ...) | operator"
    if hasattr(source, "__aenter__"):
        return "it is a context manager: enter it first, async with ... as stream, and pipe that"
    if hasattr(source, "__enter__"):
        return "it is a context manager: enter it first, with ... as stream, and pipe that"
    if callable(source):
        return _what_to_call(source)
    if hasattr(source, "__iter__"):
        return "it is iterated without async, so nothing can be awaited in between"
    return "pipe what you would write after `async for ... in`"


def _what_to_call(function: Callable[..., Any]) -> str:
    called = f"{getattr(function, '__name__', 'it')}()"
    if inspect.iscoroutinefunction(function):
        return f"it is a coroutine function: call and await it first, (await {called}) | operator"
    return f"it is a function: call it first, {called} | operator"
