"""A tenure: the time in which an owner has its connection, as a table without I/O.

The table says what each event does in each state. The owner moves through it and does what it is
told; what has no row here cannot happen. The diagram in docs/how-to/sessions.md is checked against it.
"""

from __future__ import annotations

from typing import Final

from streamguard._base.machine import Table, Word


class TenureState(Word):
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


class TenureEvent(Word):
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


class Does(Word):
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


S, E, D = TenureState, TenureEvent, Does

# Cannot happen, for all of the states below:
#   TURN        but in a new or a resting one: a session asks `can_serve` before
#   ASKED       but where a pull may follow: the task itself says so
#   CAME, TURN_OVER   without a pull
#   VERDICT, DEAF     with no turn under way: its attempt is over, and decides nothing more
#   DEAF        after the verdict: it is decided because of it; and without a pull
#   UNWOUND     twice, and without a task
#   CLOSED      before the closing
#   GIVEN_UP    without a warden, and of what has ended; a verdict is concluded at once
TABLE: Final[Table[TenureState, TenureEvent, Does]] = {
    S.NEW: {
        E.TURN: (S.READY, D.START),
        E.LEFT: (S.RELEASED, D.SETTLE_UNBEGUN),
    },
    S.READY: {
        E.ASKED: (S.PULLING, D.NOTHING),
        E.UNWOUND: (S.CLOSING, D.SEE_OFF),  # the loop is ending
        E.LEFT: (S.DONE, D.SEE_OFF),
        # Its consumer may be busy for an hour: what is to be torn down is not to wait for that.
        E.VERDICT: (S.JUDGED, D.CONCLUDE),
    },
    S.PULLING: {
        E.CAME: (S.READY, D.NOTHING),
        E.TURN_OVER: (S.RESTING, D.REST),
        E.UNWOUND: (S.CLOSING, D.SEE_OFF),
        E.LEFT: (S.UNWANTED, D.SEE_OFF),
        E.VERDICT: (S.UNWINDING, D.SEE_OFF),
        E.DEAF: (S.UNWINDING, D.SEE_OFF_DEAF),
    },
    S.RESTING: {
        E.TURN: (S.READY, D.GO_ON),
        E.UNWOUND: (S.CLOSING, D.SEE_OFF),  # the loop is ending
        E.LEFT: (S.DONE, D.SEE_OFF),
    },
    S.UNWANTED: {
        E.CAME: (S.DONE, D.NOTHING),
        E.TURN_OVER: (S.DONE, D.NOTHING),
        E.UNWOUND: (S.CLOSING, D.NOTHING),
        E.LEFT: (S.UNWANTED, D.NOTHING),
        E.VERDICT: (S.UNWINDING, D.NOTHING),
        E.DEAF: (S.UNWINDING, D.NOTHING),
        E.GIVEN_UP: (S.ABANDONED, D.LEAVE_BEHIND),
    },
    S.JUDGED: {
        E.ASKED: (S.UNWINDING, D.NOTHING),
        E.UNWOUND: (S.CLOSING, D.NOTHING),  # the loop is ending
        E.LEFT: (S.JUDGED, D.NOTHING),
    },
    S.UNWINDING: {
        E.CAME: (S.JUDGED, D.NOTHING),  # what ended the turn well, and was struck too
        E.TURN_OVER: (S.DONE, D.NOTHING),  # an end that was made by disconnecting
        E.UNWOUND: (S.CLOSING, D.NOTHING),
        E.LEFT: (S.UNWINDING, D.NOTHING),
        E.VERDICT: (S.UNWINDING, D.NOTHING),  # it follows when a pull is deaf
        E.GIVEN_UP: (S.ABANDONED, D.LEAVE_BEHIND),
    },
    S.DONE: {
        E.UNWOUND: (S.CLOSING, D.NOTHING),
        E.LEFT: (S.DONE, D.NOTHING),
        E.VERDICT: (S.JUDGED, D.NOTHING),  # `total`, before the task has noticed
        E.GIVEN_UP: (S.ABANDONED, D.LEAVE_BEHIND),
    },
    S.CLOSING: {
        E.LEFT: (S.CLOSING, D.NOTHING),
        E.VERDICT: (S.CLOSING, D.NOTHING),  # `total`: it surfaces at the block
        E.CLOSED: (S.RELEASED, D.SETTLE),
        E.GIVEN_UP: (S.ABANDONED, D.LEAVE_BEHIND),
    },
    S.RELEASED: {
        E.LEFT: (S.RELEASED, D.NOTHING),
    },
    S.ABANDONED: {
        E.CAME: (S.ABANDONED, D.NOTHING),
        E.TURN_OVER: (S.ABANDONED, D.NOTHING),
        E.UNWOUND: (S.ABANDONED, D.NOTHING),
        E.LEFT: (S.ABANDONED, D.NOTHING),
        E.CLOSED: (S.GONE, D.NOTHING),
    },
    S.GONE: {
        E.LEFT: (S.GONE, D.NOTHING),
    },
}

IS_PULLING: Final = frozenset({S.PULLING, S.UNWANTED, S.UNWINDING})
MAY_PULL: Final = frozenset({S.READY, S.JUDGED})
IS_ENDING: Final = frozenset(TenureState) - {S.NEW, S.READY, S.PULLING, S.RESTING}
