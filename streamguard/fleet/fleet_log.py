"""`FleetLog`: the verdicts on one session, as lines for the fleet's log of timeouts.

It is in force while the session's handler runs, whatever streams that opens, as a `Recorder` would be. A line waits until it is
decided what follows its verdict, and is then the engine's to write. It names no session token, no prompt and no error's text.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Self

from streamguard import events
from streamguard.events import recorders as recording
from streamguard.evidence.receipts import FinalAction, Marks, Place, Standing, Timeout

if TYPE_CHECKING:
    from streamguard._guard.attempt import Attempt
    from streamguard.activity import Activity
    from streamguard.errors import ScopeName, Verdict
    from streamguard.events.event import Event, ScopeEvent
    from streamguard.events.recorders import Tap
    from streamguard.fleet.lease import Lease


class FleetLog(recording.Recording):
    """What is to be written of one session."""

    reads_all = False

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._open: list[Timeout] = []
        self._again: list[dict[str, Any]] = []

    def decided(self, at_last: FinalAction | None = None) -> list[dict[str, Any]]:
        """The lines that are ready, which are the caller's from now on.

        `at_last`: what follows in the end, when the handler is over, from all that nothing has followed yet.
        """
        if at_last is not None:
            self._decide(at_last)
        ready = [each for each in self._open if each.final_action is not None]
        self._open = [each for each in self._open if each.final_action is None]
        again, self._again = self._again, []
        return [*again, *map(self._line, ready)]

    def again(self, lines: list[dict[str, Any]]) -> None:
        """Those could not be written."""
        self._again += lines

    def _line(self, timeout: Timeout) -> dict[str, Any]:
        return {**timeout.line(), "attempt": self._lease.attempt, "worker": self._lease.owner}

    # -- as a recording ----------------------------------------------------------------------

    def __enter__(self) -> Self:
        recording.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        recording.leave(self)

    def __call__(self, event: Event | ScopeEvent, /) -> None:
        match event:
            case events.TimedOut(enforced=True) if event.verdict.limit != "exit_grace":
                self._note(event.verdict, event.activity)
            case events.ScopeTimedOut():
                self._note(event.verdict, event.activity)
            case events.RetryScheduled():  # what the session gives up, the fleet may not
                self._decide("retry")
            case _:
                pass

    def _note(self, verdict: Verdict, activity: Activity | None) -> None:
        key = self._lease.key
        self._open.append(
            Timeout(
                id=uuid.uuid4().hex,
                verdict=verdict,
                place=Place(run_id=key, flow="fleet", step=key, agent=None),
                marks=Marks(),
                standing=Standing(
                    stream=(activity.name if activity is not None else "") or None,
                    retries=self._lease.attempt - 1,
                ),
                recovery_path="",
                transcript_path=None,
                needs_teardown=True,
            )
        )

    def _decide(self, action: FinalAction) -> None:
        for timeout in self._open:
            timeout.final_action = timeout.final_action or action

    def tap(self, attempt: Attempt) -> Tap:  # noqa: ARG002 - messages are none of its business
        return lambda _message, _signals: None

    def await_decision(self, activity: Activity) -> None:
        pass

    def session_over(self, activity: Activity) -> None:
        pass

    def scope_began(self, path: tuple[ScopeName, ...], scope: object) -> None:
        pass

    def scope_over(
        self, path: tuple[ScopeName, ...], scope: object, *, came_through: bool
    ) -> None:
        pass

    async def written(self) -> None:
        pass
