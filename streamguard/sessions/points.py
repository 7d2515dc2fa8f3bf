"""What goes in and out of `open`: the `ResumePoint` it gets, the `Connection` it may give.

Values only: nothing here runs.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Hashable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from streamguard._base.callbacks import check_callable
from streamguard._base.calling import checked_class
from streamguard._guard.knobs import Derived, fields_of
from streamguard._guard.plan import Plan

if TYPE_CHECKING:
    from streamguard._guard.knobs import Disconnect
    from streamguard._guard.supervision import Process
    from streamguard._guard.teardown import SupportsDisconnect
    from streamguard.activity import Activity
    from streamguard.sessions.custody import Custody


def check_opener(open_: object, where: str) -> None:
    """A TypeError unless `open_` looks like what opens a stream; most is seen only when it is called."""
    if not callable(open_):
        raise TypeError(
            f"{where}({open_!r}): pass a function of one ResumePoint that opens the stream. A "
            "stream that is open already is piped as it is: stream | idle_guard(180)"
        )
    if inspect.isasyncgenfunction(open_) or inspect.iscoroutinefunction(open_):
        verb = "yield" if inspect.isasyncgenfunction(open_) else "yield, not return,"
        raise TypeError(
            f"{where}({open_!r}): what it gives cannot be entered. Write "
            f"@contextlib.asynccontextmanager over it, and {verb} the stream or a Connection, once"
        )
    check_callable("open", open_, "ResumePoint")


T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@checked_class
@dataclass(frozen=True, kw_only=True)
class ResumePoint:
    """Where a session stands: `open` gets it for each attempt, and you can keep it.

    `attempt`: its number in the session, from 1. Of a turn that is completed, the last one's.
    `prompt`: what to ask now; None if the stream needs no prompt, or there is nothing to ask.
    `token`: resumes the session, if the backend keeps its history; None for a fresh start.
    `cursor`: what `dedupe_by` said of the last message delivered in this turn; None if nothing.
    `reason`: what ended the attempt before; None for the first of a turn.
    `tools_run`: tool calls begun in this turn so far. If there is no token, those of the
        connection's earlier turns count, too: a fresh start would know nothing of them.
    `delivered`: messages of this turn that its consumer has got: that its pulls have returned.
    `committed`: those of them that it can act on, so that no fresh start takes them back; counted
        as `tools_run`.
    `heard`: whether the backend has answered the prompt; a session that is resumed by its token is
        then asked to continue instead.
    `completed`: whether the turn has ended, so that nothing is asked again.
    `spent`: tokens, cost and calls of the model that the session has used up, for ceilings.
    `work_dir`: the folder that the backend says it works in: many sessions can only be resumed there.
    `activity`: the session's live state, for holds in what `open` makes; None outside of `open`.
    `custody`: a fleet's lease puts it there (`Lease.resume_point`): keep it with `dataclasses.replace`.
    """

    attempt: int = 1
    prompt: str | None = None
    token: str | None = None
    cursor: Hashable | None = None
    reason: BaseException | None = None
    tools_run: int = 0
    delivered: int = 0
    committed: int = 0
    heard: bool = False
    completed: bool = False
    work_dir: str | None = None
    spent: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    activity: Activity | None = field(default=None, repr=False, compare=False)
    custody: Custody | None = field(default=None, repr=False, compare=False)

    @property
    def is_resumed(self) -> bool:
        """Whether there is a session to go on with."""
        return self.token is not None

    def asking(self, prompt: str) -> ResumePoint:
        """The point from which the session is asked this instead."""
        if self.completed:
            return ResumePoint(
                attempt=self.attempt + 1,
                prompt=prompt,
                token=self.token,
                work_dir=self.work_dir,
                spent=self.spent,
                custody=self.custody,
            )
        return replace(self, prompt=prompt, heard=False)

    def as_json(self) -> dict[str, Any]:
        """All of it but `activity` and `custody`, as what `json.dumps` takes. It holds the prompt and the token.

        Raises:
            ConfigError: If the cursor is neither an int nor a str.
        """
        from streamguard.sessions.point_as_json import written

        return written(self)

    @classmethod
    def from_json(cls, said: Mapping[str, Any] | str | bytes) -> ResumePoint:
        """The point that `as_json` gave, or its text, in this or another process.

        Of `reason` the type's name and its text survive, as an `EarlierError`.

        Raises:
            ConfigError: If it is anything else, or of a version that is not known here.
        """
        from streamguard.sessions.point_as_json import read

        return read(said)


@checked_class
@dataclass(frozen=True)
class Connection(Generic[T_co]):
    """A stream with the handles that end its backend; `open` may give it instead of a bare stream.

    `source`: the stream; or a function that sends a prompt and gives the stream of its turn, so
    that one connection can serve many prompts.
    `client`, `disconnect`, `interrupt`, `process`: the handles that end this attempt's backend, as for
    `idle_guard`; they go before those of the pipe, which would be another attempt's.
    `outlives_interrupt`: a turn that `interrupt` has ended leaves the client as good as it was, so
    that nothing is torn down and the next prompt goes to the same one. None: as it is known of the
    client.
    """

    source: AsyncIterable[T_co] | Callable[[str], AsyncIterable[T_co] | Awaitable[Any]]
    client: SupportsDisconnect | None = None
    disconnect: Disconnect | None = None
    interrupt: Disconnect | None = None
    process: Process | None = None
    outlives_interrupt: bool | None = None

    def __post_init__(self) -> None:
        if not (callable(self.source) or hasattr(type(self.source), "__aiter__")):
            raise TypeError(
                f"Connection({self.source!r}): give a stream (an async iterable), or a function "
                "that takes the prompt and gives the stream of its turn"
            )
        _ = self.plan  # what cannot be used is said here, not when it is needed

    @cached_property
    def plan(self) -> Plan:
        """The handles that end the backend, as a plan."""
        names = ("client", "disconnect", "interrupt", "process")
        given = {name: getattr(self, name) for name in names}
        given["process"] = given["process"] or getattr(self.source, "guarded_process", None)
        fields = fields_of({k: v for k, v in given.items() if v is not None})
        outlives = self.outlives_interrupt
        if outlives is None:
            interrupts = fields.get("interrupts", ())
            outlives = any(isinstance(each, Derived) and each.spares for each in interrupts)
        return Plan(**fields, outlives_interrupt=outlives)

    def over(self, plan: Plan) -> Plan:
        """`plan` with this connection's handles in the place of its own."""
        mine = self.plan
        if not (mine.disconnects or mine.interrupts or mine.process):
            return plan
        return replace(
            plan,
            disconnects=mine.disconnects,
            interrupts=mine.interrupts,
            outlives_interrupt=mine.outlives_interrupt,
            process=mine.process,
            expected=mine.expected,
        )


Opener: TypeAlias = Callable[
    [ResumePoint], AbstractAsyncContextManager["AsyncIterable[T] | Connection[T]"]
]
