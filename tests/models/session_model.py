"""What a session does, told naively from the rules (T, D, R and P): an oracle.

A session's pulls are driven by its consumer, so one straight walk through the consumer's acts is
enough: each pull asks the backend's script what comes when, and compares that instant with every
limit's. Where the rules leave the outcome open, or where the details are beyond a naive model
(an upstream that swallows its cancellation, an outer scope at the very instant of a limit), the
walk ends with `UnsureError`, and what is logged from that instant on is not compared.

Shares no code with streamguard and knows nothing of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

GIVEN = "Go on."
ERROR_OF = {
    "idle": "IdleTimeoutError",
    "first": "FirstMessageTimeoutError",
    "tools": "ToolTimeoutError",
    "turn": "TurnTimeoutError",
    "total": "TotalTimeoutError",
}
RAISED = {
    "network": ("ConnectionError", "network"),
    "server": ("StatusError", "server"),
    "auth": ("StatusError", "auth"),
    "limit": ("StatusError", "rate_limit"),
    "validation": ("StatusError", "validation"),
    "unknown": ("RuntimeError", "unknown"),
    "timeout": ("TimeoutError", "network"),
}
# P2: how often, after how long.
RETRIES: dict[str, tuple[int, list[float]]] = {
    "network": (3, [1, 2, 4]),
    "server": (3, [1, 2, 4]),
    "rate_limit": (5, [60]),
    "unknown": (3, [1, 2, 4]),
    "auth": (0, [0]),
    "validation": (0, [0]),
}
TINY = 1e-5
ACTS = ("progress", "work", "worked", "done")


class UnsureError(Exception):
    """From this instant on the model does not say what happens."""

    def __init__(self, at: float) -> None:
        self.at = at


@dataclass
class Failure:
    """What ends an attempt: a limit, or an error of the backend's."""

    name: str
    kind: str
    limits: frozenset[str] = frozenset()


@dataclass
class Attempt:
    """A connection's turn, as its watch and its ledger see it."""

    number: int
    began: float
    turn_began: float
    silent: float = 0.0
    progressed: bool = False
    turn_open: bool = True
    ended_at: float = 0.0  # when its turn did
    work: dict[str, float] = field(default_factory=dict)
    messages: int = 0
    first_new: float | None = None
    last_new: float = 0.0
    # What the pull that is under way will bring, and when.
    coming: tuple[float, str, Any] | None = None
    failed: str | None = None
    spans_turns: bool = False
    is_playing: bool = False
    # Until when it ends, and what then follows.
    ending: tuple[float, Callable[[], Any]] | None = None


@dataclass
class Turn:
    """One prompt, over all its attempts."""

    prompt: str
    tools: set[str] = field(default_factory=set)
    delivered: int = 0
    heard: bool = False
    over: str | None = None  # "end", or an error's name, and it is raised again
    attempt: Attempt | None = None
    next_prompt: str | None = None
    not_before: float = -math.inf
    begun: bool = False
    said: list[tuple[str, ...]] = field(default_factory=list)


class Model:
    """One walk through a schedule. `log` is what the world's log should say."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.log: list[tuple[Any, ...]] = []
        self.now = 0.0
        self.token: str | None = None
        self.opened = 0
        self.connection: int | None = None  # the one that is open
        self.turns_of: dict[int, int] = {}
        self.steps: Any = None
        self.spent: list[str] = []
        self.instant = 0
        self.reconnects = 0
        self.can_reuse = False
        self.carried: tuple[set[str], int] = (set(), 0)
        self.unsure_from = math.inf
        self.current: Turn | None = None
        self.at: Turn | None = None

    def note(self, *what: Any) -> None:
        self.log.append((round(self.now, 6), *what))

    def walk(self) -> None:
        """All of it. What is logged before `unsure_from` is certain."""
        outer = self.plan.get("outer")
        until = outer["at"] if outer and outer["kind"] else math.inf
        try:
            self._session(self.plan["sessions"][0])
            if len(self.plan["sessions"]) > 1:
                raise UnsureError(self.now)
            self.note("left")
        except UnsureError as unsure:
            self.unsure_from = min(self.unsure_from, unsure.at)
        self.unsure_from = min(self.unsure_from, until)

    # -- the consumer ----------------------------------------------------------------------

    def _session(self, acts: list[Any]) -> None:
        self.at = Turn("go")
        for act in acts:
            match act:
                case ["take", most, work, *how]:
                    if not self._take(most, work, how):
                        return
                case ["within", seconds]:
                    if not self._within(seconds):
                        return
                case ["ask", prompt]:
                    self.at = Turn(prompt)
                case ["aclose"]:
                    self._aclose()
                case ["sleep", seconds]:
                    self._work(seconds)
                case ["raise"]:
                    self._leave()
                    self.note("error", "LeftError", None, None)
                    raise UnsureError(self.now)
        self._leave()

    def _work(self, seconds: float) -> None:
        """The consumer's own time; `total` may strike in it, and how that ends is not said here."""
        total = self.plan.get("total")
        if total is not None and self.now + seconds >= total:
            raise UnsureError(total)
        self.now += seconds

    def _take(self, most: int | None, work: float, how: list[str]) -> bool:
        taken = 0
        while most is None or taken < most:
            every = self.plan.get("keep_alive")
            kind, value = self._pull(math.inf if every is None else self.now + every)
            match kind:
                case "message":
                    self.note("got", *value)
                case "gave in":
                    self.note("kept alive")
                case "end":
                    self.note("end")
                    return True
                case _:
                    return self._failed(value, how)
            taken += 1
            self._work(work)
        return True

    def _within(self, seconds: float) -> bool:
        every = self.plan.get("keep_alive")
        until = self.now + seconds
        is_kept = every is not None and every <= seconds
        kind, value = self._pull(self.now + every if is_kept else until)
        if is_kept and every == seconds and self.now >= until:
            raise UnsureError(until)  # either may go first
        match kind:
            case "message":
                self.note("got", *value)
            case "gave in":
                self.note("kept alive" if is_kept else "gave in")
            case "end":
                self.note("end")
            case _:
                return self._failed(value, [])
        return True

    def _failed(self, failure: Any, how: list[str]) -> bool:
        name, gave_up, limits = failure
        self.note("failed", name, gave_up, limits)
        if "catch" in how:
            if self.unsure_from < math.inf:
                raise UnsureError(self.now)
            return True
        self._leave()
        self.note("error", name, gave_up, limits)
        raise UnsureError(self.now)

    def _aclose(self) -> None:
        turn = self.at
        assert turn is not None
        is_open = turn.attempt is not None and turn.over is None
        if is_open:
            self._cut(turn)
            turn.over = "end"
            self._close(turn)
            turn.attempt = None
        elif turn.over is None:
            turn.over = "end"
        self.note("closed")

    def _leave(self) -> None:
        self._cut(self.current)
        if self.connection is not None:
            self._close(self.current)

    def _cut(self, turn: Turn | None) -> None:
        """A pull that is under way is cancelled."""
        attempt = turn.attempt if turn is not None else None
        if attempt is not None and attempt.ending is not None:
            raise UnsureError(self.now)
        if attempt is not None and attempt.coming is not None and attempt.coming[0] <= self.now:
            raise UnsureError(self.now)
        if attempt is not None and attempt.coming is not None and attempt.coming[0] > self.now:
            self._only_plain(attempt)

    def _only_plain(self, attempt: Attempt) -> None:
        script = self._script(attempt.number)
        if (script.get("manner") or {}).get("kind", "plain") != "plain":
            raise UnsureError(self.now)

    def _script(self, number: int | None) -> dict[str, Any]:
        attempts = self.plan["attempts"]
        assert number is not None
        return attempts[min(number, len(attempts) - 1)]

    def _close(self, turn: Turn | None) -> None:
        """The connection's own end, which takes its time; what was being opened has none."""
        if self._was_opening(turn):
            self.connection, self.can_reuse = None, False
            return
        closing = self._script(self.connection).get("close") or {}
        if closing.get("end", "ok") != "ok":
            raise UnsureError(self.now)
        took = closing.get("takes", 0)
        if took >= self.plan["disconnect_timeout"]:
            raise UnsureError(self.now)
        self._work(took)
        self.connection = None
        self.can_reuse = False

    # -- one pull --------------------------------------------------------------------------

    def _pull(self, until: float) -> tuple[str, Any]:
        turn = self.at
        assert turn is not None
        while True:
            if turn.over is not None:
                return ("end", None) if turn.over == "end" else ("error", turn.over)
            if turn.attempt is None:
                if not self._begin(turn, until):
                    return "gave in", None
                continue
            outcome = self._wait(turn, turn.attempt, until)
            if outcome is not None:
                return outcome

    def _begin(self, turn: Turn, until: float) -> bool:
        """The next attempt of the turn, or False if the consumer did not wait so long."""
        left = self.current
        if not turn.begun:
            turn.begun = True
            if self.current is not None and self.current is not turn:
                if self.current.over is None:
                    self.current.over = "superseded"
                self.spent, self.instant = [], 0
            self.current = turn
        if left is not turn:
            self._cut(left)
        if not self.can_reuse and self.connection is not None:
            closing = self._script(self.connection).get("close")
            if not self._was_opening(left) and until <= self.now + self._takes(closing, self.now):
                raise UnsureError(self.now)
            self._close(left)
        if turn.not_before > self.now:
            if until < turn.not_before:
                self._work(until - self.now)
                return False
            if until == turn.not_before:
                raise UnsureError(until)
            self._work(turn.not_before - self.now)
        if self.plan.get("total") is not None and self.now >= self.plan["total"]:
            raise UnsureError(self.now)
        if self.can_reuse:
            assert self.connection is not None
            if self.token is None:
                turn.tools |= self.carried[0]
                turn.delivered += self.carried[1]
            turn.attempt = Attempt(self.connection, self.now, self.now, spans_turns=True)
            self.can_reuse = False
            return True
        self.connection = self.opened
        self.opened += 1
        self.carried = (set(), 0)
        prompt = turn.prompt if turn.next_prompt is None else turn.next_prompt
        self.note("open", self.connection, self.opened, prompt, self.token)
        turn.attempt = Attempt(self.connection, self.now, self.now)
        return True

    def _ask(self, attempt: Attempt, turn: Turn) -> tuple[float, str, Any]:
        """What the backend brings to a pull that begins now, and when."""
        at = self.now
        script = self._script(attempt.number)
        if attempt.messages == 0 and attempt.coming is None and not attempt.spans_turns:
            opening = script.get("open") or {}
            at += opening.get("takes", 0)
            match opening.get("end", "ok"):
                case "ok":
                    pass
                case "hang":
                    return math.inf, "hang", None
                case kind:
                    return at, "raise", kind
        if attempt.messages == 0 and not attempt.is_playing:
            attempt.is_playing = True
            number = self.turns_of.get(attempt.number, 0)
            self.turns_of[attempt.number] = number + 1
            turns = script["turns"]
            self.steps = iter(list(enumerate(turns[min(number, len(turns) - 1)])))
            self.began = at
            self.turn_number = number + 1
            self.replayed = self._replayed(turn) if number == 0 else []
        if self.replayed:
            return at, "replay", self.replayed.pop(0)
        for number, step in self.steps:
            match step:
                case ["wait", seconds]:
                    at += seconds
                case ["at", seconds]:
                    at = max(at, self.began + seconds)
                case ["hang"]:
                    return math.inf, "hang", None
                case ["say", *words]:
                    id_ = f"{attempt.number}.{self.turn_number}.{number}"
                    return at, "message", (id_, tuple(words))
                case ["raise", kind]:
                    return at, "raise", kind
        return at, "end", None

    def _replayed(self, turn: Turn) -> list[tuple[str, ...]]:
        keys = self.plan.get("keys")
        if keys is None:
            return []
        return turn.said[-keys["again"] :] if keys["again"] is not None else list(turn.said)

    def _wait(self, turn: Turn, attempt: Attempt, until: float) -> tuple[str, Any] | None:
        if attempt.ending is not None:
            return self._see_end(attempt, until)
        if attempt.coming is None:
            attempt.coming = self._ask(attempt, turn)
        arrives, kind, value = attempt.coming
        dues = self._dues(attempt)
        due = min(dues.values(), default=math.inf)
        instant = max(self.now, min(arrives, due, until))
        if until <= instant and until in (arrives, due) and until > self.now:
            raise UnsureError(until)
        if attempt.turn_open and not attempt.work:
            attempt.silent += instant - self.now
        self.now = instant
        if arrives <= instant:
            attempt.coming = None
            outcome = self._came(turn, attempt, kind, value, arrives)
        elif due <= instant:
            self._verdict(turn, attempt, frozenset(k for k in dues if dues[k] == due))
            outcome = None
        else:
            return "gave in", None
        return self._see_end(attempt, until) if attempt.ending is not None else outcome

    def _see_end(self, attempt: Attempt, until: float) -> tuple[str, Any] | None:
        """The consumer learns of the end when it is over (R2)."""
        assert attempt.ending is not None
        released, then = attempt.ending
        if until < released:
            self.now = until
            return "gave in", None
        if until == released > self.now:
            raise UnsureError(until)
        self.now = max(self.now, released)
        if self.plan.get("total") is not None and self.now >= self.plan["total"]:
            # The block's own end is due, if not at an instant that is past.
            self.unsure_from = min(self.unsure_from, self.now + TINY)
            outcome = then()
            if outcome is None or outcome[0] == "end":
                raise UnsureError(self.now)
            return outcome
        return then()

    def _dues(self, attempt: Attempt) -> dict[str, float]:
        """T1, T5, T14: when each limit strikes, if nothing comes."""
        plan, dues = self.plan, dict[str, float]()
        if plan.get("total") is not None:
            dues["total"] = plan["total"]
        if not attempt.turn_open:
            if plan.get("exit_grace") is not None:
                dues["exit_grace"] = attempt.ended_at + plan["exit_grace"]
            return {limit: max(at, self.now) for limit, at in dues.items()}
        if not attempt.work:
            if plan.get("first") is not None and not attempt.progressed:
                dues["first"] = self.now + plan["first"] - attempt.silent
            else:
                dues["idle"] = self.now + plan["idle"] - attempt.silent
        elif (allowance := plan.get("tools")) is not None:
            dues["tools"] = min(attempt.work.values()) + allowance
        else:
            dues["tools"] = min(attempt.work.values()) + 7200
        if plan.get("turn") is not None:
            dues["turn"] = attempt.turn_began + plan["turn"]
        return {limit: max(at, self.now) for limit, at in dues.items()}

    # -- what comes ------------------------------------------------------------------------

    def _came(
        self, turn: Turn, attempt: Attempt, kind: str, value: Any, arrived: float
    ) -> tuple[str, Any] | None:
        match kind:
            case "message":
                turn.said.append(value[1])
                self._read(turn, attempt, value[1], arrived)
                return "message", value
            case "replay":  # the backend lives, and nothing is new
                self._read(turn, attempt, value, arrived, is_new=False)
                return None
            case "end":
                return self._complete(turn, reuses=bool(self.plan.get("reuses")))
            case _:
                if value == "exit" or value not in RAISED:  # what users have words for
                    raise UnsureError(self.now)
                name, error_class = RAISED[value]
                if attempt.failed is not None and error_class == "unknown":
                    error_class = attempt.failed
                elif attempt.failed is not None:
                    raise UnsureError(self.now)  # which of two names goes first is not said
                took = 0.0
                if not self._is_opening(attempt, self._script(attempt.number)):
                    took = self._takes(self._script(attempt.number).get("close"), self.now)
                self.connection = None
                if not attempt.turn_open:  # T3: what has ended well stays so
                    attempt.ending = self.now + took, lambda: self._complete(turn, reuses=False)
                    return None
                failure, ended = Failure(name, error_class), self.now
                attempt.ending = (
                    self.now + took,
                    lambda: self._weigh(turn, attempt, failure, ended),
                )
                return None

    def _takes(self, how: dict[str, Any] | None, at: float) -> float:
        """How long closing or disconnecting takes, if it is done as it should be."""
        how = how or {}
        took: float = how.get("takes", 0)
        if how.get("end", "ok") != "ok" or took >= self.plan["disconnect_timeout"]:
            raise UnsureError(at)
        return took

    def _read(
        self,
        turn: Turn,
        attempt: Attempt,
        words: tuple[str, ...],
        at: float,
        *,
        is_new: bool = True,
    ) -> None:
        attempt.messages += 1
        turn.heard = True
        acts = is_new and any(word.partition(":")[0] in ACTS for word in words)
        if acts:
            turn.delivered += 1
            if attempt.first_new is None:
                attempt.first_new = at
            attempt.last_new = at
        for word in words:
            kind, _, rest = word.partition(":")
            if kind in ("unknown", "limit"):
                raise UnsureError(at)
            if kind in ("progress", "work") and not attempt.turn_open:
                attempt.turn_open, attempt.progressed = True, False
                attempt.turn_began = at
                attempt.silent = 0.0
            match kind:
                case "token" | "lost":
                    if is_new:
                        self.token = rest if kind == "token" else None
                    if self.plan.get("first") is None or attempt.progressed:
                        attempt.silent = 0.0
                case "ping":
                    pass
                case "done":
                    attempt.turn_open = False
                    attempt.ended_at = at
                    attempt.work = {}
                    attempt.silent, attempt.progressed = 0.0, True
                    if rest == "success":
                        attempt.failed = None
                case _:
                    attempt.silent, attempt.progressed = 0.0, True
                    if is_new:
                        attempt.failed = rest if kind == "failed" else None
                    if kind == "work":
                        turn.tools.add(rest)
                        attempt.work.setdefault(rest, at)
                    if kind == "worked":
                        attempt.work.pop(rest, None)

    def _complete(self, turn: Turn, *, reuses: bool) -> tuple[str, Any]:
        turn.over = "end"
        turn.attempt = None
        self.spent, self.instant = [], 0
        self.carried = (turn.tools, turn.delivered)
        self.can_reuse = reuses and self.connection is not None
        return "end", None

    def _verdict(self, turn: Turn, attempt: Attempt, limits: frozenset[str]) -> None:
        """D1: cut the pull, disconnect, close; then decide."""
        self._only_plain(attempt)
        script = self._script(attempt.number)
        attempt.coming = None
        at, took = self.now, 0.0
        if attempt.messages or not self._is_opening(attempt, script):
            took += self._takes(script.get("disconnect"), at)
            took += self._takes(script.get("close"), at)
        self.connection = None
        if len(limits) > 1:
            raise UnsureError(at)  # which of them is named is not said
        (limit,) = limits
        if limit == "exit_grace":
            attempt.ending = at + took, lambda: self._complete(turn, reuses=False)
            return
        # An error that came as a message classifies what then ends the attempt (S0).
        failure = Failure(ERROR_OF[limit], attempt.failed or "idle", limits)
        attempt.ending = at + took, lambda: self._weigh(turn, attempt, failure, at)

    def _was_opening(self, turn: Turn | None) -> bool:
        """Whether the connection that a turn has is none yet."""
        attempt = turn.attempt if turn is not None else None
        return attempt is not None and self._is_opening(attempt, self._script(attempt.number))

    def _is_opening(self, attempt: Attempt, script: dict[str, Any]) -> bool:
        opening = script.get("open") or {}
        return not attempt.spans_turns and (
            opening.get("end", "ok") != "ok" or self.now < attempt.began + opening.get("takes", 0)
        )

    # -- what follows a failure (R3) ---------------------------------------------------------

    def _weigh(
        self, turn: Turn, attempt: Attempt, failure: Failure, attempt_ended: float
    ) -> tuple[str, Any] | None:
        turn.attempt = None
        retry = self.plan.get("retry")
        limit = next(iter(failure.limits)) if failure.limits else None
        if retry is None:
            turn.over = (failure.name, None, limit)  # type: ignore[assignment]
            return "error", turn.over
        gave_up = self._decide(turn, attempt, failure, attempt_ended, retry)
        if gave_up is not None:
            turn.over = (failure.name, gave_up, limit)  # type: ignore[assignment]
            return "error", turn.over
        return None

    def _decide(
        self, turn: Turn, attempt: Attempt, failure: Failure, ended: float, retry: dict[str, Any]
    ) -> str | None:
        kind = failure.kind
        total = self.plan.get("total")
        left = math.inf if total is None else total - self.now
        if left <= 0 or "total" in failure.limits:
            return "deadline"
        keys = self.plan.get("keys")
        replays = keys is not None
        if keys is not None and len(set(keys["values"])) < len(keys["values"]):
            raise UnsureError(self.now)  # by keys that repeat nobody can tell what is a replay
        done = not replays and bool(turn.tools or turn.delivered)
        allowed, delays = RETRIES.get(kind) or (retry["retries"], retry["backoff"])
        if kind in ("auth", "validation") or (kind == "unknown" and done):
            return "class"
        productive = attempt.first_new is not None and attempt.last_new - attempt.first_new >= 60
        spent = [] if productive else list(self.spent)
        is_instant = kind != "idle" and not attempt.messages and ended - attempt.began < 1.0
        instant = (0 if productive else self.instant) + 1 if is_instant else 0
        if allowed == 0 or spent.count(kind) >= allowed:
            return "retries"
        if len(spent) >= retry.get("in_a_row", 10):
            return "retries"
        if self.reconnects >= retry.get("reconnects", 50):
            return "retries"
        if self.token is None and done:
            return "unsafe"
        delay = delays[min(spent.count(kind), len(delays) - 1)]
        if instant:
            delay = max(delay, 2.0 ** (instant - 1))
        if left - delay < 1.0:
            return "deadline"
        self.spent = [*spent, kind]
        self.instant = instant
        self.reconnects += 1
        turn.not_before = self.now + delay
        resumes = self.token is not None and turn.heard
        turn.next_prompt = GIVEN if resumes else None
        return None
