"""What became of a tree, as a value. Imports errors for the way a duration is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamguard._base.durations import in_words

if TYPE_CHECKING:
    from streamguard.errors import Cause


@dataclass(frozen=True, kw_only=True)
class Termination:
    """How a process and its tree ended, and whether that is certain.

    `cause`: *exited* without a signal of ours, *terminated* by TERM, *killed* by KILL, *survived*
    (`survivors` are left), or *unproven*. Unproven means that no process is known to be left, but
    there was no table of processes to prove it. `signals` in the order of their first use;
    `exit` as `Popen.returncode` says it, None if it cannot be known without reaping.
    """

    cause: Cause
    signals: tuple[str, ...] = ()
    elapsed: float = 0.0
    exit: int | None = None
    survivors: tuple[int, ...] = ()

    @property
    def confirmed(self) -> bool:
        """Whether the process and all of its tree are proven dead."""
        return self.cause not in ("survived", "unproven")

    def __str__(self) -> str:
        sent = f" ({', '.join(self.signals)})" if self.signals else ""
        left = f", still alive: {', '.join(map(str, self.survivors))}" if self.survivors else ""
        status = "" if self.exit is None else f", exit status {self.exit}"
        return f"process tree {self.cause}{sent} after {in_words(self.elapsed)}{status}{left}"
