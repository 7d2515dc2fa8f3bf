"""What users write after `|`: each operator in the words and with the defaults of its knobs.

    stream | idle_guard(180)                            what most people need
    stream | idle_timeout(180) | inflight_tool_gate()   the same in parts

`reconnecting_resume` and `keep_alive`, which make a session of a stream, are in `sessions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from streamguard._base.callbacks import check_callable, several
from streamguard._base.calling import checked, factory
from streamguard._base.numbers import Default, Seconds, seconds, wait
from streamguard._guard.knobs import (
    CONFIGURED,
    DEFAULT_AFTER_SLEEP,
    DEFAULT_DISCONNECT_TIMEOUT,
    DEFAULT_KILL_GRACE,
    DEFAULT_QUIET,
    DEFAULT_REPEATS,
    DEFAULT_TOOLS,
    Configured,
    Disconnect,
    Endable,
    IdleLimit,
    check_endings,
    fields_of,
)
from streamguard._guard.operator import Operator, beside_others, operator
from streamguard._guard.plan import Plan
from streamguard.activity import Activity
from streamguard.errors import ConfigError
from streamguard.presets import idle_for

if TYPE_CHECKING:
    from streamguard._guard.modes import Mode
    from streamguard._guard.supervision import Process
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard.backends import Readable
    from streamguard.events.teller import Observer, OnWarn

F = TypeVar("F")


@factory("stream | idle_guard(180)")
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
    after_sleep: Seconds | None = DEFAULT_AFTER_SLEEP,
    quiet: Seconds | Mapping[str, Seconds | None] | None = DEFAULT_QUIET,
    repeats: float | None = DEFAULT_REPEATS,
    tokens: float | None = None,
    cost: float | None = None,
    calls: float | None = None,
    end_on: Endable | Collection[Endable] = (),
    client: SupportsDisconnect | None = None,
    disconnect: Disconnect | None = None,
    interrupt: Disconnect | None = None,
    process: Process | None = None,
    disconnect_timeout: Seconds = DEFAULT_DISCONNECT_TIMEOUT,
    kill_grace: Seconds = DEFAULT_KILL_GRACE,
    activity: Activity | None = None,
    read: Readable = "auto",
    observer: Observer | Iterable[Observer] | None = None,
    on_warn: OnWarn | Iterable[OnWarn] | None = None,
    mode: Mode | None = None,
) -> Operator:
    """End a stream that falls silent, and its backend with it. This is the operator that most people need.

    Every limit is seconds, a text such as "15m" or "1h30m", or a timedelta; None, 0 and "off" are no limit.

    Args:
        limit: The silence that ends the stream; or a preset, such as "tokens" (120 s, first 300),
            "messages" (900 s), "command" (1800 s) or "claude-print" (see docs/how-to/presets.md). What you
            write beside a preset wins over it. None for no idle limit. Without `limit` and `idle`,
            the configuration gives it, and all other values that are not written here: see `from_config`.

        idle: The same by its name: `idle_guard(idle=180)`. Beside a preset, it replaces the preset's
            own limit: `idle_guard("multica", idle=60)`.

        first: Seconds until a turn's first progress, in place of `idle` until then.

        liveness: Seconds without any message, pings included, once pings were seen.

        tools: Seconds a piece of work may be in flight; by tool name with a mapping ("*" for the
            others); None pauses `idle` for as long as it takes.

        turn: Seconds for a whole turn.

        exit_grace: Seconds a stream may stay open after its turn's end; then it ends normally.

        total: Seconds for everything, never reset.

        after_sleep: Seconds that a silence may go on after this machine has slept, since the connection
            is mostly lost by then; None for the usual limit. Work in flight and holds are left alone. So is
            the process of an unknown backend, unless you write this.

        quiet: Seconds a sub-agent, or other work that speaks for itself, may say nothing, though others
            talk; by name with a mapping (wildcards allowed, "*" for the others). Work that is named there
            must speak from its start, other work only once it has spoken. Told, not ended.

        repeats: How often the same work with the same input may have the same outcome in a row, or a
            cycle of up to four of them. Told, not ended; None for never.

        tokens: How many tokens all attempts together may use. Told once, as the next two.

        cost: What they may cost, in the backend's currency.

        calls: How many calls of the model they may make.

        end_on: Which of "quiet", "repeats", "tokens", "cost", "calls" end the stream; without it they are
            only told. It may also have "empty" (a turn ended with success and did nothing) and
            "abandoned" (work was left open in the background): these raise at the turn's or stream's end.

        client: What has `async def disconnect()`; short for `disconnect=client.disconnect`. The guard
            looks for its process: by `get_subprocess_pid()`, then where known SDKs keep theirs.
            From a client of a known SDK it takes interrupt and reader, too. What you write here
            wins over all of that. See docs/how-to/backends/index.md.

        disconnect: Called on a verdict, sync or async, in a task of its own.

        interrupt: Called first, while the stream is still read: asks the backend to end its
            turn by itself. If the turn ends with success within 5 s, nothing is torn down.

        process: The backend's process: a pid, a process object, or a function that gives either
            (None as long as there is none). It is watched, and ended with all that it started.

        disconnect_timeout: Seconds after which a disconnect is abandoned and reported.

        kill_grace: Seconds between asking the process's tree to end (TERM) and killing it.

        activity: The live state to fill, for code that must reach it before the stream exists.

        read: Which reader understands the messages; mostly found by itself.

        observer: Called with each event; one, or several as a list. An operator that has observers
            and nothing else sets no limit beside others: `stream | idle_guard(180) | idle_guard(observer=x)`.
            Alone it takes the configured limits; without any it only observes.

        on_warn: Called with each warning (`events.Concern`), such as half of a silence being gone. Use it
            for what a person must not miss, such as a page; plain functions, as observers.

        mode: "enforce", "warn" (events only) or "off".

    Raises:
        ConfigError: If a value cannot be used, or no place gives `idle`.
    """
    observers, on_warn = (
        several("observer", observer, "event"),
        several("on_warn", on_warn, "event"),
    )
    given: dict[str, Any] = {
        "first": first,
        "liveness": liveness,
        "turn": turn,
        "exit_grace": exit_grace,
        "total": total,
        "tokens": tokens,
        "cost": cost,
        "calls": calls,
        "end_on": end_on or None,
        "client": client,
        "disconnect": disconnect,
        "interrupt": interrupt,
        "process": process,
        "disconnect_timeout": disconnect_timeout,
        "kill_grace": kill_grace,
        "activity": activity,
        "observer": _one_or_all(observers),
        "on_warn": _one_or_all(on_warn),
        "mode": mode,
    }
    written: dict[str, Any] = {} if isinstance(idle, Configured) else {"idle": idle}
    if not isinstance(after_sleep, Default):
        written["after_sleep"] = after_sleep
    written |= {"tools": tools, "quiet": quiet, "repeats": repeats}
    written |= {k: v for k, v in given.items() if v is not None and not isinstance(v, Default)}
    if read != "auto":
        written["read"] = read
    if end_on:
        wanted = fields_of({"end_on": end_on})["end_on"]
        if not isinstance(limit, Configured) or "idle" in written:
            check_endings(wanted, {**given, "quiet": quiet, "repeats": repeats})
    if isinstance(limit, Configured) and "idle" not in written:
        from streamguard.configuration import from_config

        config = from_config()
        said = {k: v for k, v in written.items() if not isinstance(v, Default)}
        if not said or said.keys() - {"observer", "on_warn"}:
            return config.guard(**said)
        alone = config.guard(**said) if config.says_idle else operator("idle_guard", written)
        return beside_others(alone, said)
    if isinstance(limit, Configured):
        limit = written.pop("idle")
    return operator("idle_guard", written, limit)


def _one_or_all(functions: tuple[F, ...]) -> F | tuple[F, ...] | None:
    """As people write them, which is how an operator shows them."""
    return functions[0] if len(functions) == 1 else functions or None


@factory("stream | idle_timeout(180)")
def idle_timeout(idle: Seconds | None) -> Operator:
    """Raises `IdleTimeoutError` when the backend keeps us waiting for `idle` seconds.

    By itself it knows no work in flight: add `inflight_tool_gate()`, or take `idle_guard`.
    """
    return operator("idle_timeout", {}, idle)


@factory("stream | idle_timeout(180) | inflight_tool_gate()")
def inflight_tool_gate(
    tools: Seconds | Mapping[str, Seconds | None] | None = DEFAULT_TOOLS, /
) -> Operator:
    """Pause `idle` while work is in flight, for at most `tools` seconds for each piece of work."""
    return operator("inflight_tool_gate", {"tools": tools})


@factory("stream | activity_stamp(activity) | idle_guard(180)")
def activity_stamp(
    into: Activity | Callable[[Activity], object], /, *, every: Seconds = 0
) -> Operator:
    """Fill an `Activity`, or call a function with it at most once in `every` seconds."""
    interval = wait(every, "every")
    is_class = cast("object", into) is Activity
    if isinstance(into, Activity):
        return operator("activity_stamp", {"activity": into})
    if is_class or not callable(into):
        raise ConfigError(f"activity_stamp({into!r}): give it an Activity or a function of one")
    check_callable("into", into, "activity")
    spaced = f", every={every!r}" if every else ""
    return Operator(Plan(stamps=((into, interval),)), f"activity_stamp({into!r}{spaced})")


@checked
def idle_for_total(total: Seconds) -> float:
    """An idle limit for a job of `total` seconds: a fifth of it, between 300 and 900."""
    return idle_for(seconds(total, "total"))


derived_idle = idle_for_total  # its old name
