"""What it costs that a message is understood: of each backend, beyond the guard.

Beyond the guard means: beyond a guarded stream with a reader that says nothing. So to find out whose
a message is counts as the reader's, and to take more from it than progress.
"""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Figure
from benchmarks.messages import DICTS, OBJECTS
from benchmarks.race import Contestant, race, run
from benchmarks.sources import MESSAGE, exhaust, turn
from streamguard import Operator, idle_guard
from streamguard.signals import Progress, TurnEnded

_SILENT = "a reader that says nothing"
_PROGRESS = "object: a reader that says Progress()"
_GUARD = idle_guard(180)
_HOLDS = {"object": 300.0, "dict": 1000.0}


def measure(rounds: int, n: int) -> list[Figure]:
    forms = {"object": OBJECTS, "dict": DICTS}
    messages = {(form, what): m for form, table in forms.items() for what, m in table.items()}
    contestants = {f"{form}: {what}": _guarded(m) for (form, what), m in messages.items()}
    contestants[_PROGRESS] = _guarded(MESSAGE, idle_guard(180, read=_say_progress))
    silent = _guarded(MESSAGE, idle_guard(180, read=_say_nothing))
    laps = run("asyncio", race, {_SILENT: silent, **contestants}, rounds, n // 4)
    bare = laps[_SILENT]
    return [
        Figure(
            group="readers",
            loop="asyncio",
            what=what,
            value=(laps[what].best - bare.best) * 1e9,
            median=(laps[what].median - bare.median) * 1e9,
            unit="ns added",
            hold=_HOLDS[what.partition(":")[0]],
        )
        for what in contestants
    ]


def _guarded(message: Any, guard: Operator = _GUARD) -> Contestant:
    return lambda n: exhaust(aiter(turn(n, message, TurnEnded()) | guard))


def _say_nothing(_message: Any) -> None:
    """A reader to whom everything is progress."""


def _say_progress(_message: Any) -> Progress:
    """The same, said anew for each message."""
    return Progress()
