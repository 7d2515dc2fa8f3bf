"""What to do after a failed attempt: resume, start afresh, or give up and say why (R3).

`decide` is a pure function of a `State` and a policy. It asks in this order, and the first "no"
ends it:

    is there any time at all?                       deadline
    is this class of errors retried?                class
    are retries left for it?                        retries
    is the old backend certainly gone?              unsafe
    can it be resumed, or started afresh?           unsafe
    does the circuit breaker let us?                circuit
    does the delay fit into the time that is left?  deadline

Two things go another way from the second question on, where the user has said so. A session that the backend
does not know is begun afresh, once, unless tools ran in it. A usage limit whose end is known is waited
out, if that is not too long (deadline). Neither is a retry of a class.

Imports nothing that waits; nothing is changed by asking.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from streamguard._base.durations import in_hours, in_words
from streamguard.retry.classes import ErrorClass
from streamguard.retry.policy import RetryPolicy, Tally

DelaySource: TypeAlias = Literal["policy", "retry_after", "circuit", "usage_limit"]
GaveUp: TypeAlias = Literal["retries", "unsafe", "deadline", "circuit", "class"]


NOTHING_SPENT: Final = Tally()


@dataclass(frozen=True, kw_only=True)
class State:
    """What is known when an attempt has failed: all that `decide` needs.

    `error_class`: what `RetryPolicy.classify` says of the error. `what`: its name, for people.
    `retry_after`: what `retry_after` says of it, with the policy's `cap`.
    `tally`: what the session has spent so far.
    `token`: resumes the session; None if there is none, or it cannot be resumed.
    `tool_calls`: how many were begun in this turn, in all its attempts.
    `delivered`: how many messages of this turn the consumer got that it cannot give back.
    `keys_repeat`: whether a replay cannot be told from new messages.
    `messages`, `lived`: how many messages the failed attempt brought, and how long it lasted.
    `productive`: seconds between its first and its last *new* progress; a replay is not new.
    `teardown_confirmed`: whether the old backend is certainly gone.
    `unconfirmed_allowed`: the user's `resume_after_unconfirmed_teardown`.
    `is_unknown`: whether the backend certainly does not know the session it was to resume.
    `fresh_if_unknown`: whether the user wants a fresh start then.
    `tools_in_session`: how many tool calls were begun in all its turns.
    `limit_over_in`: seconds until a usage limit is over, if the session waits for that;
    `limit_over_at`: the same in words.
    `remaining`: seconds until `total` or an outer deadline; None without any.
    `circuit`: seconds in which the breaker certainly allows no attempt (`pause_left`); infinite if
    only `reset()` helps. `circuit_waits`: whether to wait for it, as sessions do.
    """

    error_class: ErrorClass
    what: str = ""
    retry_after: float | None = None
    tally: Tally = NOTHING_SPENT
    token: str | None = None
    tool_calls: int = 0
    delivered: int = 0
    keys_repeat: bool = False
    messages: int = 0
    lived: float = math.inf
    productive: float = 0.0
    teardown_confirmed: bool = True
    unconfirmed_allowed: bool = False
    is_unknown: bool = False
    fresh_if_unknown: bool = False
    tools_in_session: int = 0
    limit_over_in: float | None = None
    limit_over_at: str = ""
    remaining: float | None = None
    circuit: float = 0.0
    circuit_waits: bool = False


@dataclass(frozen=True, kw_only=True)
class _Retry:
    """One more attempt, after `delay` seconds. `retry` counts from 1, in its class.

    `tally` is what the session has spent with this one, for the next `State`. `delay_source`
    says who wanted the delay: the policy, the server, or the circuit breaker.
    """

    delay: float
    delay_source: DelaySource
    error_class: ErrorClass
    retry: int
    tally: Tally
    why: str


@dataclass(frozen=True, kw_only=True)
class Resume(_Retry):
    """Go on with the session that `token` names."""

    token: str


@dataclass(frozen=True, kw_only=True)
class Restart(_Retry):
    """Start afresh with the first prompt: nothing has happened that this could repeat.

    `forgets`: whether there is a session that is left for it, since the backend does not know that.
    """

    forgets: bool = False


@dataclass(frozen=True, kw_only=True)
class GiveUp:
    """No further attempt. `reason` goes to the error's `gave_up`, `why` to the log.

    `escalate`: whether a person should hear of it, since it does not get better by itself.
    """

    reason: GaveUp
    why: str
    error_class: ErrorClass
    escalate: bool = False


Decision: TypeAlias = Resume | Restart | GiveUp

DEFAULT_POLICY: Final = RetryPolicy()


def decide(state: State, policy: RetryPolicy = DEFAULT_POLICY) -> Decision:
    """What to do after the failure that `state` describes, by the rules of `policy`."""
    tally = _tally_after(state, policy)
    if state.is_unknown:
        return _begin_afresh(state, policy, tally)
    if state.limit_over_in is not None:
        return _wait_out(state, policy, tally, state.limit_over_in)
    delay = policy.base_delay(
        state.error_class,
        tally.of(state.error_class),
        retry_after=state.retry_after,
        instant=tally.instant,
    )
    refusal = (
        _no_time_at_all(state)
        or _not_this_class(state, policy)
        or _no_retries_left(state, policy, tally)
        or _not_safe(state)
        or _circuit_is_open(state, delay)
        or _does_not_fit(state, policy, delay)
    )
    return refusal or _retry(state, policy, tally, delay)


def _tally_after(state: State, policy: RetryPolicy) -> Tally:
    """The counts with this failure in them, cleared if the attempt was productive (R5)."""
    # A limit of ours takes its time to be reached, however short the user made it (R9).
    is_verdict = state.error_class is ErrorClass.IDLE
    instantly = not (is_verdict or state.messages) and state.lived < policy.instant
    is_productive = state.productive >= policy.productive_span
    tally = state.tally.reset() if is_productive else state.tally
    return tally.failed(instantly=instantly)


def _no_time_at_all(state: State) -> GiveUp | None:
    if state.remaining is None or state.remaining > 0:
        return None
    return _give_up("deadline", state, "no time is left")


def _not_this_class(state: State, policy: RetryPolicy) -> GiveUp | None:
    error_class = state.error_class
    # Of a kind that gets better, no retry is a number that somebody wrote: `_no_retries_left`.
    if policy.backoff(error_class).retries == 0 and not error_class.is_transient:
        return _give_up("class", state, _WHY_NOT[error_class])
    if error_class is ErrorClass.UNKNOWN and (
        done := work_done(state.tool_calls, state.delivered)
    ):
        why = f"the error is of no known kind, and {done}: another attempt might do that again"
        return _give_up("class", state, why)
    return None


def _no_retries_left(state: State, policy: RetryPolicy, tally: Tally) -> GiveUp | None:
    allowed = policy.backoff(state.error_class).retries
    if allowed == 0:
        return _give_up("retries", state, "the policy has no retry for it")
    if tally.of(state.error_class) >= allowed:
        return _give_up("retries", state, f"its {_count(allowed, 'retry')} made no difference")
    if len(tally.spent) >= policy.max_in_a_row:
        spent = _count(len(tally.spent), "retry")
        why = f"{spent} in a row made no difference (max_in_a_row={policy.max_in_a_row})"
        return _give_up("retries", state, why)
    return _no_reconnects_left(state, policy, tally)


def _no_reconnects_left(state: State, policy: RetryPolicy, tally: Tally) -> GiveUp | None:
    if tally.reconnects < policy.max_reconnects:
        return None
    spent = _count(tally.reconnects, "reconnect")
    why = f"the session has had {spent} (max_reconnects={policy.max_reconnects})"
    return _give_up("retries", state, why)


def _not_gone(state: State) -> GiveUp | None:
    if state.teardown_confirmed or state.unconfirmed_allowed:
        return None
    why = "the old backend may still be alive, and two owners would corrupt the session"
    return _give_up("unsafe", state, why)


def _not_safe(state: State) -> GiveUp | None:
    if (refusal := _not_gone(state)) is not None:
        return refusal
    if state.keys_repeat:
        why = (
            "dedupe_by gave one key to several messages, so a replay could not be told from new "
            "messages: give keys that are unique"
        )
        return _give_up("unsafe", state, why)
    if state.token is None and (done := work_done(state.tool_calls, state.delivered)):
        why = f"{done} without session context, and a fresh start would repeat that"
        return _give_up("unsafe", state, why)
    return None


def _circuit_is_open(state: State, delay: float) -> GiveUp | None:
    if state.circuit == math.inf:
        why = "the circuit breaker stays open until reset() is called"
        return _give_up("circuit", state, why, escalate=True)
    if state.circuit_waits or state.circuit <= delay:
        return None
    why = f"the circuit breaker is open for another {in_words(state.circuit)}"
    return _give_up("circuit", state, why)


def _does_not_fit(state: State, policy: RetryPolicy, delay: float) -> GiveUp | None:
    if state.remaining is None:
        return None
    delay = max(delay, state.circuit)
    room = state.remaining - delay
    if room > 0 and room >= policy.min_attempt:
        return None
    why = (
        f"the next attempt may begin in {in_words(delay)}, and only "
        f"{in_words(state.remaining)} are left"
    )
    return _give_up("deadline", state, why)


def _retry(state: State, policy: RetryPolicy, tally: Tally, delay: float) -> Resume | Restart:
    error_class, token = state.error_class, state.token
    jittered = policy.jittered(error_class, delay, _room(state, policy))
    source = _delay_source(state, policy, tally, delay, jittered)
    delay = max(jittered, state.circuit)
    retry = tally.of(error_class) + 1
    facts: dict[str, Any] = {
        "delay": delay,
        "delay_source": source,
        "error_class": error_class,
        "retry": retry,
        "tally": tally.retried(error_class),
    }
    number = f"{_named(state)}: retry {retry} of {policy.backoff(error_class).retries}"
    when = f"in {in_words(delay)}" if delay else "at once"
    if token is None:
        why = f"{number} {when}, started afresh: nothing has happened that this could repeat"
        return Restart(**facts, why=why)
    return Resume(**facts, why=f"{number} {when}, resuming session {token[:8]}", token=token)


# -- where the user has said so --------------------------------------------------------------


def _begin_afresh(state: State, policy: RetryPolicy, tally: Tally) -> Restart | GiveUp:
    session = f"session {(state.token or '')[:8]}"
    refusal = (
        _no_time_at_all(state)
        or _not_asked_for(state, session)
        or _was_begun_afresh(state, tally, session)
        or _no_reconnects_left(state, policy, tally)
        or _not_gone(state)
        or _work_would_be_lost(state, session)
        or _circuit_is_open(state, 0.0)
        or _does_not_fit(state, policy, 0.0)
    )
    if refusal is not None:
        return refusal
    return Restart(
        delay=state.circuit,
        delay_source="circuit" if state.circuit else "policy",
        error_class=state.error_class,
        retry=1,
        tally=tally.begins_afresh(),
        why=(
            f"{_named(state)}: the backend does not know {session}: started afresh with the first prompt, "
            "without what was said before (fresh_if_unknown)"
        ),
        forgets=True,
    )


def _not_asked_for(state: State, session: str) -> GiveUp | None:
    if state.fresh_if_unknown:
        return None
    why = f"the backend does not know {session} (fresh_if_unknown=True would start afresh)"
    return _give_up("class", state, why)


def _was_begun_afresh(state: State, tally: Tally, session: str) -> GiveUp | None:
    if not tally.forgotten:
        return None
    why = f"the backend does not know {session} either, and it was started afresh once already"
    return _give_up("retries", state, why)


def _work_would_be_lost(state: State, session: str) -> GiveUp | None:
    # Messages are no obstacle: that what was said is lost is what the user has agreed to.
    if not (tools := max(state.tools_in_session, state.tool_calls)):
        return None
    why = (
        f"the backend does not know {session}, in which {_count(tools, 'tool call')} occurred: a fresh start "
        "might do that again"
    )
    return _give_up("unsafe", state, why)


def _wait_out(
    state: State, policy: RetryPolicy, tally: Tally, left: float
) -> Resume | Restart | GiveUp:
    delay = policy.limit_wait(left, tally.waited, _room(state, policy))
    refusal = _no_time_at_all(state) or _limit_is_too_long(state, policy, tally, left, delay)
    if refusal is None:
        assert delay is not None
        refusal = (
            _no_reconnects_left(state, policy, tally)
            or _not_safe(state)
            or _circuit_is_open(state, delay)
            or _does_not_fit(state, policy, delay)
        )
    if refusal is not None or delay is None:
        assert refusal is not None
        return refusal
    waited = max(delay, state.circuit)
    facts: dict[str, Any] = {
        "delay": waited,
        "delay_source": "circuit" if state.circuit > delay else "usage_limit",
        "error_class": state.error_class,
        "retry": 1,
        "tally": tally.waits(waited),
    }
    why = f"{_named(state)}: usage limit: waiting until {_over_at(state, left)}"
    if state.token is None:
        return Restart(**facts, why=f"{why}, then starting afresh")
    return Resume(
        **facts, why=f"{why}, then resuming session {state.token[:8]}", token=state.token
    )


def _limit_is_too_long(
    state: State, policy: RetryPolicy, tally: Tally, left: float, delay: float | None
) -> GiveUp | None:
    if delay is not None:
        return None
    before = f" of which {in_hours(tally.waited)} were spent" if tally.waited else ""
    why = (
        f"usage limit until {_over_at(state, left)}: longer than "
        f"wait_for_limit={in_hours(policy.wait_for_limit or 0.0)} allows{before}"
    )
    return _give_up("deadline", state, why, escalate=True)


def _over_at(state: State, left: float) -> str:
    return f"{state.limit_over_at or 'its reset'} ({in_hours(max(0.0, left))})"


def _room(state: State, policy: RetryPolicy) -> float:
    return math.inf if state.remaining is None else state.remaining - policy.min_attempt


def _delay_source(
    state: State, policy: RetryPolicy, tally: Tally, delay: float, jittered: float
) -> DelaySource:
    if state.circuit > jittered:
        return "circuit"
    if state.retry_after is None:
        return "policy"
    spent = tally.of(state.error_class)
    own = policy.base_delay(state.error_class, spent, instant=tally.instant)
    return "policy" if own == delay else "retry_after"


def work_done(tool_calls: int, delivered: int) -> str:
    """What a turn has done that a second run would do again, in words; "" for nothing."""
    if tool_calls:
        return f"{_count(tool_calls, 'tool call')} occurred"
    if delivered:
        return f"{_count(delivered, 'message')} had been delivered"
    return ""


def _give_up(reason: GaveUp, state: State, why: str, *, escalate: bool = False) -> GiveUp:
    error_class = state.error_class
    return GiveUp(
        reason=reason,
        why=f"{_named(state)}: {why}",
        error_class=error_class,
        escalate=escalate or error_class.needs_a_person,
    )


def _named(state: State) -> str:
    """What failed: the error by its name, and the class that its retries are counted in."""
    word = state.error_class.value
    return f"{state.what} (class {word})" if state.what else word


def _count(number: int, noun: str) -> str:
    many = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{number} {noun if number == 1 else many}"


_WHY_NOT: Final = {
    ErrorClass.NEVER: "it is no failure of the backend's",
    ErrorClass.AUTH: "the backend refuses the credentials: renew them",
    ErrorClass.PERMANENT: "the backend refuses the account: look at billing and limits",
    ErrorClass.VALIDATION: "the same request would fail again",
}
