"""A tenure: the time in which an owner has its connection, as a table without I/O.

The table says what each event does in each state. The owner moves through it and does what it is
told; what has no row here cannot happen. The diagram in docs/sessions.md is checked against it.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, TypeAlias

from streamguard._base.machine import Machine, Table


class _Word(Enum):
    # By identity, as members are compared: the hash of an Enum costs more than the rest of a step.
    __hash__ = object.__hash__


class State(_Word):
    """Where an owner is."""

    NEW = "no turn was begun yet, and there is no task"
    READY = "a turn is under way, and its consumer has what has come"
    PULLING = "the backend is asked for a message"
    RESTING = "the turn is over, and the connection can take another"
    UNWANTED = "the consumer has left, and the backend is still asked"
    JUDGED = "a verdict is final, and one more pull concludes it"
    UNWINDING = "a verdict is final, or the pull deaf to it, and the pull is under way"
    DONE = "nothing more is asked, and all is to be closed"
    CLOSING = "stream and connection are being closed"
    RELEASED = "all is closed, and what came of it is known"
    ABANDONED = "it did not end in time: it was left behind, and its consumer is free"
    GONE = "it was left behind, and has ended after all"


class Event(_Word):
    """What can happen to it."""

    TURN = "a prompt is to be sent"
    ASKED = "its consumer waits for a message"
    CAME = "a message has come"
    TURN_OVER = "the turn has ended, and the connection is as good as it was"
    UNWOUND = "the task asks no more, be it for an error"
    LEFT = "its consumer has left"
    VERDICT = "a verdict on the turn is final"
    DEAF = "its pull was cancelled, and goes on"
    CLOSED = "all is closed"
    GIVEN_UP = "it has not ended within its bounds"


class Does(_Word):
    """What is done about it."""

    NOTHING = ""
    START = "its task starts"
    GO_ON = "its task goes on"
    REST = "its task rests"
    SEE_OFF = "a warden comes"
    SEE_OFF_DEAF = "a warden comes for a deaf pull"
    CONCLUDE = "a warden comes and the task concludes"
    SETTLE = "what came of it is told"
    SETTLE_UNBEGUN = "there is nothing to tell"
    LEAVE_BEHIND = "it is reported and told as not confirmed"


Tenure: TypeAlias = Machine[State, Event, Does]

# Cannot happen, for all of the states below:
#   TURN        but in a new or a resting one: a session asks `can_serve` before
#   ASKED       but where a pull may follow: the task itself says so
#   CAME, TURN_OVER   without a pull
#   VERDICT, DEAF     with no turn under way: its attempt is over, and decides nothing more
#   DEAF        after the verdict: it is decided because of it; and without a pull
#   UNWOUND     twice, and without a task
#   CLOSED      before the closing
#   GIVEN_UP    without a warden, and of what has ended; a verdict is concluded at once
TABLE: Final[Table[State, Event, Does]] = {
    State.NEW: {
        Event.TURN: (State.READY, Does.START),
        Event.LEFT: (State.RELEASED, Does.SETTLE_UNBEGUN),
    },
    State.READY: {
        Event.ASKED: (State.PULLING, Does.NOTHING),
        Event.UNWOUND: (State.CLOSING, Does.SEE_OFF),  # the loop is ending
        Event.LEFT: (State.DONE, Does.SEE_OFF),
        # Its consumer may be busy for an hour: what is to be torn down is not to wait for that.
        Event.VERDICT: (State.JUDGED, Does.CONCLUDE),
    },
    State.PULLING: {
        Event.CAME: (State.READY, Does.NOTHING),
        Event.TURN_OVER: (State.RESTING, Does.REST),
        Event.UNWOUND: (State.CLOSING, Does.SEE_OFF),
        Event.LEFT: (State.UNWANTED, Does.SEE_OFF),
        Event.VERDICT: (State.UNWINDING, Does.SEE_OFF),
        Event.DEAF: (State.UNWINDING, Does.SEE_OFF_DEAF),
    },
    State.RESTING: {
        Event.TURN: (State.READY, Does.GO_ON),
        Event.UNWOUND: (State.CLOSING, Does.SEE_OFF),  # the loop is ending
        Event.LEFT: (State.DONE, Does.SEE_OFF),
    },
    State.UNWANTED: {
        Event.CAME: (State.DONE, Does.NOTHING),
        Event.TURN_OVER: (State.DONE, Does.NOTHING),
        Event.UNWOUND: (State.CLOSING, Does.NOTHING),
        Event.LEFT: (State.UNWANTED, Does.NOTHING),
        Event.VERDICT: (State.UNWINDING, Does.NOTHING),
        Event.DEAF: (State.UNWINDING, Does.NOTHING),
        Event.GIVEN_UP: (State.ABANDONED, Does.LEAVE_BEHIND),
    },
    State.JUDGED: {
        Event.ASKED: (State.UNWINDING, Does.NOTHING),
        Event.UNWOUND: (State.CLOSING, Does.NOTHING),  # the loop is ending
        Event.LEFT: (State.JUDGED, Does.NOTHING),
    },
    State.UNWINDING: {
        Event.CAME: (State.JUDGED, Does.NOTHING),  # what ended the turn well, and was struck too
        Event.TURN_OVER: (State.DONE, Does.NOTHING),  # an end that was made by disconnecting
        Event.UNWOUND: (State.CLOSING, Does.NOTHING),
        Event.LEFT: (State.UNWINDING, Does.NOTHING),
        Event.VERDICT: (State.UNWINDING, Does.NOTHING),  # it follows when a pull is deaf
        Event.GIVEN_UP: (State.ABANDONED, Does.LEAVE_BEHIND),
    },
    State.DONE: {
        Event.UNWOUND: (State.CLOSING, Does.NOTHING),
        Event.LEFT: (State.DONE, Does.NOTHING),
        Event.VERDICT: (State.JUDGED, Does.NOTHING),  # `total`, before the task has noticed
        Event.GIVEN_UP: (State.ABANDONED, Does.LEAVE_BEHIND),
    },
    State.CLOSING: {
        Event.LEFT: (State.CLOSING, Does.NOTHING),
        Event.VERDICT: (State.CLOSING, Does.NOTHING),  # `total`: it surfaces at the block
        Event.CLOSED: (State.RELEASED, Does.SETTLE),
        Event.GIVEN_UP: (State.ABANDONED, Does.LEAVE_BEHIND),
    },
    State.RELEASED: {
        Event.LEFT: (State.RELEASED, Does.NOTHING),
    },
    State.ABANDONED: {
        Event.CAME: (State.ABANDONED, Does.NOTHING),
        Event.TURN_OVER: (State.ABANDONED, Does.NOTHING),
        Event.UNWOUND: (State.ABANDONED, Does.NOTHING),
        Event.LEFT: (State.ABANDONED, Does.NOTHING),
        Event.CLOSED: (State.GONE, Does.NOTHING),
    },
    State.GONE: {
        Event.LEFT: (State.GONE, Does.NOTHING),
    },
}

IS_PULLING: Final = frozenset({State.PULLING, State.UNWANTED, State.UNWINDING})
MAY_PULL: Final = frozenset({State.READY, State.JUDGED})
IS_ENDING: Final = frozenset(State) - {State.NEW, State.READY, State.PULLING, State.RESTING}


def tenure() -> Tenure:
    """A new one."""
    return Machine(TABLE, State.NEW)
