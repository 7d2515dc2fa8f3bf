"""Signs of life for who looks after a run: `--notify-systemd` and `--heartbeat`.

A sign is given by the loop that sees to limits and ends, at its receiver's interval: so none is given where
that loop does not run. Nor is one given of a run that is *overdue*: its end was asked for, and all that
bounds an end is over. Without a receiver there is no pulse, and nobody is woken for one. Standard library only.
"""

from __future__ import annotations

import time

from streamguard._base.quoting import quoted
from streamguard.runner.heartbeat import Heartbeat
from streamguard.runner.notify import Manager

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from streamguard.runner.options import Settings

_NEVER = float("inf")
# The first sign is followed by another soon, which also says what became of it.
_SOON = 1.0
# Of a line that others show: how long it is, a name in it, and how many names.
_LINE = 300
_NAME = 40
_NAMES = 5


class Pulse:
    """What a run tells of itself while it lasts. Every instant is the monotonic clock's."""

    def __init__(
        self, manager: Manager | None, heartbeat: Heartbeat | None, complain: Callable[[str], None]
    ) -> None:
        self._manager = manager
        self._heartbeat = heartbeat
        self._complain = complain
        self._beats: list[tuple[float, Callable[[], object]]] = []
        if manager is not None and manager.every is not None:
            self._beats.append((manager.every, manager.beat))
        if heartbeat is not None:
            self._beats.append((heartbeat.every, heartbeat.beat))
        self._due = [_NEVER] * len(self._beats)
        self._runs = False
        self._is_ending = False
        self._is_overdue = False

    @classmethod
    def of(
        cls, settings: Settings, path: str | None, complain: Callable[[str], None]
    ) -> Pulse | None:
        """The pulse that `settings` ask for, `path` being where the heartbeat's file is; None for none."""
        manager = Manager.of_environment(complain) if settings.notify_systemd else None
        heartbeat = None if path is None else Heartbeat(path, complain)
        if manager is None and heartbeat is None:
            return None
        return cls(manager, heartbeat, complain)

    @property
    def due(self) -> float:
        """When `beat` has something to do; inf if never."""
        again = _NEVER if self._manager is None else self._manager.again_at
        return min([*self._due, again])

    def runs(self, now: float) -> None:
        """The command runs, once more or for the first time."""
        if self._runs:
            return
        self._runs = True
        if self._manager is not None:
            self._manager.ready()
        for index, (every, beat) in enumerate(self._beats):
            beat()
            self._due[index] = now + min(every, _SOON)

    def beat(self, now: float, *, is_overdue: bool) -> None:
        """Give the signs that are due."""
        if self._manager is not None:
            self._manager.flush(now)
        if is_overdue and not self._is_overdue:
            self._complain("it should have ended by now: no sign of life is given any more")
        self._is_overdue = is_overdue
        for index, (every, beat) in enumerate(self._beats):
            if now >= self._due[index]:
                self._due[index] = now + every
                if not is_overdue:
                    beat()

    def goes_on(
        self,
        state: str,
        silent_for: float | None,
        in_flight: Sequence[str],
        attempt: int,
        attempts: int,
    ) -> None:
        """How it goes, without a word of what the command writes."""
        if self._manager is None or self._is_ending:
            return
        told = [state]
        if silent_for is not None:
            at = time.localtime(time.time() - silent_for)
            told.append(f"last output {time.strftime('%Y-%m-%d %H:%M:%S', at)}")
        if in_flight:
            names = [quoted(name, _NAME) for name in in_flight[:_NAMES]]
            more = len(in_flight) - len(names)
            told.append(f"in flight: {', '.join(names)}{f' and {more} more' if more else ''}")
        if attempts > 1:
            told.append(f"attempt {attempt} of {attempts}")
        self._manager.status(quoted("; ".join(told), _LINE))

    def ends(self, why: str, within: float) -> None:
        """The run is to end, and will be over within so many seconds (inf: nobody knows)."""
        if self._manager is None:
            return
        self._manager.status(quoted(why, _LINE))
        if not self._is_ending:
            self._is_ending = True
            self._manager.stopping(within)

    def close(self) -> None:
        """The run is over."""
        if self._manager is not None:
            self._manager.close()
        if self._heartbeat is not None:
            self._heartbeat.close()
