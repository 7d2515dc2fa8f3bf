"""`Lease`: one session that this worker holds, as its handler sees it, and as its session obeys it.

    async def handler(lease: Lease) -> None:
        async with session(open, point=lease.resume_point()) | idle_guard(180) as chat:
            async for message in chat: ...

A lease is good until `sent + 0.7 ttl`: counted from when the last beat that the store kept was *sent*, on a clock that
goes on while the machine sleeps. Past that nothing is delivered, opened or checkpointed here (F2), and what is left of the
ttl is for tearing down: a process that is left of it at `sent + 0.9 ttl` is killed. It is the session's `Custody`. What is
checkpointed is what the consumer is done with (F3): a snapshot is taken while it waits in a pull, else at its next one. Engines renew it and write what it has to say;
nothing here knows a store. All of it belongs to one loop's thread.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from streamguard._base.boottime import boottime
from streamguard.errors import ConfigError, StreamGuardError
from streamguard.events.teller import logger
from streamguard.fleet.store import JSON, Beat, Checkpoint, Claimed
from streamguard.sessions.points import ResumePoint

if TYPE_CHECKING:
    from streamguard.process import ProcessTree
    from streamguard.process.sentinel.sentinel import Held
    from streamguard.sessions.custody import Entrusted

# What of a ttl a worker uses; the rest is for ending what it had, before another one begins.
FENCE: Final = 0.7
# When a backend's process is killed, of a ttl. Another worker may begin at its very end, and a kill on a busy machine takes
# its time: at the end itself, backends were measured at work up to 16 ms into another one's lease.
KILL: Final = 0.9


class Lease:
    """One session, held by this worker.

    `key`, `spec`: what was submitted. `attempt`: how many workers have had it, this one included. Those
    that drained and handed it on do not count.
    `token`: grows with each worker. Pass it to services that must tell a stale owner from the present one.
    `state`: yours; it goes with the next checkpoint and comes back with the next attempt. It must be JSON.
    """

    def __init__(
        self,
        claimed: Claimed,
        ttl: float,
        sent: float,
        *,
        clock: Callable[[], float] = boottime,
        cancel: Callable[[], None] = lambda: None,
        changed: Callable[[], None] = lambda: None,
    ) -> None:
        """Held since `sent`, on `clock`.

        `cancel`: ends its handler, whatever that is doing. `changed`: called when its end has moved, or who sees to it.
        """
        self.key: Final = claimed.key
        self.token: Final = claimed.token
        self.owner: Final = claimed.owner
        self.attempt: Final = claimed.attempt
        self.fruitless: Final = claimed.fruitless
        self.spec: Final[Mapping[str, JSON]] = claimed.spec
        self.ttl: Final = ttl
        self._clock = clock
        self._sent = sent
        self._lost_at = math.inf
        self._set_end()
        self._began = claimed.checkpoint
        self.state: dict[str, JSON] = json.loads(json.dumps(dict(claimed.checkpoint.state)))
        self._session: Entrusted | None = None
        self._held: dict[object, Held] = {}
        # What was last seen of the session, and what of it the store has.
        self._snapshot = self._saved = claimed.checkpoint
        self._wants_snapshot = False
        # Its session was left in the midst of a message: what is known of it stays as it was before that.
        self._is_frozen = False
        self._leaves_at_pull = False
        self._had_session = self._has_progressed = False
        self._cancel, self._changed = cancel, changed
        # Whether every backend that was opened under it is certainly gone.
        self.is_gone = True

    def __repr__(self) -> str:
        left = self.until - self._clock()
        state = f"{left:.1f} s left" if left > 0 else "over"
        return f"<Lease on {self.key!r}, attempt {self.attempt}, {state}>"

    def resume_point(self) -> ResumePoint:
        """Where the session goes on; the prompt of the first attempt is `spec["prompt"]`, if there is one.

        Pass it to `session(open, point=...)`. The lease goes with it, and the session ends when the lease does.
        """
        said = self._snapshot.point
        if said is not None:
            return replace(ResumePoint.from_json(said), custody=self)
        prompt = self.spec.get("prompt")
        if not isinstance(prompt, str | None):
            raise ConfigError(
                f'session {self.key!r} was submitted with a "prompt" that is no text but {type(prompt).__name__}'
            )
        return ResumePoint(prompt=prompt, custody=self)

    # -- for the session: its custody ------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether nothing may be delivered or opened any more. It is asked for each message."""
        return self._clock() >= self.until

    def term(self, now: float) -> tuple[float, float]:
        """When it was last renewed, and when it is over, on a loop's clock that shows `now`."""
        ahead = now - self._clock()
        return self._sent + ahead, self.until + ahead

    def begin(self, session: Entrusted) -> None:
        """That session acts for it. RuntimeError if another one does."""
        if self._session is not None:
            raise RuntimeError(
                f"lease on {self.key!r}: a session under it is open already. Of one lease there is one session at a time: "
                "leave the other one's block first, or submit a second key"
            )
        self._session, self._had_session = session, True
        self._is_frozen = False
        self._changed()

    def asked(self) -> None:
        """The consumer pulls: it is done with what came before."""
        if self._wants_snapshot:
            self._wants_snapshot = False
            self._take_snapshot()
        if self._leaves_at_pull:
            self._cancel()

    def keep(self, tree: ProcessTree) -> Callable[[], None]:
        """End `tree` before the end of the ttl, even if this program is stopped or gone by then."""
        from streamguard.process.sentinel.sentinel import hold

        try:
            # No grace: that was the time since the lease was over.
            held = hold(tree, 0.0, self._killing)
        except StreamGuardError:
            logger.exception("fleet: process %d may outlive the lease on %r", tree.pid, self.key)
            return _nothing
        handle = object()
        self._held[handle] = held

        def let_go() -> None:
            self._held.pop(handle, None)
            held.drop()

        return let_go

    @property
    def _killing(self) -> float:
        return self._sent + KILL * self.ttl

    def end(self, *, is_gone: bool) -> None:
        """The session's block was left."""
        self._look()
        self._is_frozen = self._wants_snapshot
        self._session, self._wants_snapshot = None, False
        self.is_gone = self.is_gone and is_gone
        self._changed()

    # -- for engines -------------------------------------------------------------------------

    def renewed(self, sent: float) -> None:
        """A beat that was sent then was kept."""
        self._sent = max(self._sent, sent)
        self._set_end()
        self._changed()

    def lose(self) -> None:
        """Another worker has it, or none may."""
        self._lost_at = min(self._lost_at, self._clock())
        self._set_end()
        if self._session is not None:
            self._session.look()
        self._changed()

    def _set_end(self) -> None:
        # When it is over unless it is renewed, on its own clock.
        self.until = min(self._sent + FENCE * self.ttl, self._lost_at)

    @property
    def was_taken(self) -> bool:
        """Whether the store has said that another worker has it."""
        return self._lost_at != math.inf

    @property
    def has_session(self) -> bool:
        """Whether a session acts for it, which sees to its end itself."""
        return self._session is not None

    @property
    def progressed(self) -> bool:
        """Whether it has come forward since it was claimed: its backend, or, without a session, its state.

        A handler that counts its attempts in its state has not come forward with that.
        """
        if self._had_session:
            return self._has_progressed
        return self._snapshot.state != self._began.state

    def beat(self) -> Beat:
        """The beat to write now. Call `saved` once it is written."""
        self._look()
        return self._beat()

    def _beat(self) -> Beat:
        is_news = self._snapshot is not self._saved
        return Beat(
            key=self.key,
            token=self.token,
            owner=self.owner,
            checkpoint=self._snapshot if is_news else None,
            progressed=self.progressed,
        )

    def saved(self, beat: Beat) -> None:
        """The store has what that beat took along."""
        if beat.checkpoint is not None:
            self._saved = beat.checkpoint

    def leave_at_pull(self) -> None:
        """Have the handler end as soon as nothing is lost by that: now, if it waits for a message."""
        self._leaves_at_pull = True
        self._look()
        if not self._wants_snapshot:
            self._cancel()

    # -- snapshots ---------------------------------------------------------------------------

    def _look(self) -> None:
        """Take a snapshot as soon as the consumer is done with what it has got."""
        if self._is_frozen:
            return
        if self._session is None or self._session.settled_point() is not None:
            self._take_snapshot()
        else:
            self._wants_snapshot = True

    def _take_snapshot(self) -> None:
        point, delivered = self._snapshot.point, self._snapshot.delivered
        if self._session is not None and (settled := self._session.settled_point()) is not None:
            point = settled.as_json()
            self._has_progressed = self._has_progressed or self._session.has_progressed
            delivered = self._began.delivered + self._session.delivered
        now = Checkpoint(point=point, state=self._state_as_json(), delivered=delivered)
        if now != self._snapshot:
            self._snapshot = now

    def _state_as_json(self) -> dict[str, JSON]:
        try:
            state: dict[str, Any] = json.loads(json.dumps(self.state, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"lease.state of {self.key!r} cannot be written as JSON ({error}): keep texts, numbers, lists and "
                "dicts in it"
            ) from None
        return state


def put_off_ends(leases: Iterable[Lease]) -> None:
    """Move the deadlines of their backends' processes with their own, in a few messages."""
    from streamguard.process.sentinel.sentinel import renew_all

    by_end: dict[float, list[Held]] = {}
    for lease in leases:
        if lease._held:
            by_end.setdefault(lease._killing, []).extend(lease._held.values())
    for end, held in by_end.items():
        try:
            renew_all(held, end)
        except StreamGuardError:
            logger.exception("fleet: %d processes may end before their lease", len(held))


def _nothing() -> None:
    pass
