"""What a session has done, counted in one place: `Done` is the count, `Deeds` counts.

One `Deeds` serves all attempts at one prompt, so that what a retry is to know of the past, what an
`Activity` shows, and what errors, receipts and the status file say are the same. It is told by the watch,
which sees each signal once. Imports signals alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from streamguard._base.spending import Spending
from streamguard.signals import SessionOpened, Signal, TurnEnded, Usage, WorkStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What was done for one prompt, by all the attempts at it.

    `tools_run`: how many tool calls were begun. A stream that no session wraps counts from its start.
    `usage`: the latest token and cost counts, by the backend's names. `spent`: `tokens`, `cost` and `calls` of
    the model, added up over all attempts and prompts; empty as long as none were told. `tokens`: `input` and
    `output` among them, if the backend tells these apart; for measuring. `attempts`: how many the session has made.
    `work_dir`: the folder that the backend says it works in.
    """

    tools_run: int = 0
    usage: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    attempts: int = 1
    work_dir: str | None = None
    spent: Mapping[str, float] = field(default_factory=dict[str, float], hash=False)
    tokens: Mapping[str, float] = field(
        default_factory=dict[str, float], compare=False, repr=False
    )

    def as_json(self) -> dict[str, Any]:
        """The same, as `json.dumps` takes it."""
        return {
            "tools_run": self.tools_run,
            "usage": dict(self.usage),
            "spent": dict(self.spent),
            "tokens": dict(self.tokens),
            "attempts": self.attempts,
            "work_dir": self.work_dir,
        }


NOTHING_DONE: Final = Done()


_NO_USAGE: Final[Mapping[str, float]] = MappingProxyType({})


class Deeds:
    """Counts what signals tell of. Any thread may read it."""

    __slots__ = ("_carried", "_tools", "spending", "usage", "work_dir")

    def __init__(self) -> None:
        self._tools: set[str] | None = None  # most streams run none
        self._carried = 0
        self.usage: Mapping[str, float] = _NO_USAGE  # replaced, never changed
        self.spending: Spending | None = None  # most streams tell of none
        self.work_dir: str | None = None

    @property
    def tools_run(self) -> int:
        """How many tool calls were begun. The same one is often told twice."""
        return self._carried + len(self._tools or ())

    def carry(self, tools_run: int) -> None:
        """So many were begun before, and are not told again."""
        self._carried += tools_run

    @property
    def spent(self) -> Mapping[str, float]:
        """What was used up, in all."""
        return {} if self.spending is None else self.spending.whole

    def go_on_spending(self, spent: Mapping[str, float]) -> None:
        """So much was used up before, in another process of ours."""
        if spent and self.spending is None:
            self.spending = Spending(spent)

    def begin_process(self, *, is_resumed: bool) -> None:
        """Another process of the backend's, or connection, begins to count."""
        if self.spending is not None:
            self.spending.begin_process(is_resumed=is_resumed)

    def begin_attempt(self) -> None:
        """Another attempt begins: its backend may count its calls from the first one again."""
        self._carried, self._tools = self.tools_run, None

    def go_on_from(self, earlier: Deeds) -> None:
        """What is known of the backend holds for the next prompt, too; what was run was for the last."""
        self.usage = {**earlier.usage, **self.usage}
        self.work_dir = self.work_dir or earlier.work_dir
        self.spending = self.spending or earlier.spending

    def note(self, signal: Signal) -> None:
        """Something was said."""
        match signal:
            case WorkStarted(id="", scope=scope) if scope != "hook":
                self._carried += 1  # nobody can tell whether it was told before
            case WorkStarted(scope=scope) if scope != "hook":
                if self._tools is None:
                    self._tools = set()
                self._tools.add(signal.id)
            case Usage(counts):
                self.usage = {**self.usage, **counts}
                if self.spending is None:
                    self.spending = Spending()
                self.spending.note(signal)
            case TurnEnded():
                if self.spending is not None:
                    self.spending.end_turn()
            case SessionOpened(work_dir=str(folder)):
                self.work_dir = folder
            case _:
                pass

    def so_far(self, attempts: int = 1) -> Done:
        """The count."""
        return Done(
            tools_run=self._carried + len(self._tools or ()),
            usage=dict(self.usage),
            attempts=attempts,
            work_dir=self.work_dir,
            spent=self.spent,
            tokens={} if self.spending is None else self.spending.tokens,
        )
