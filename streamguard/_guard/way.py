"""The way of a verdict: every state an attempt can be in, and what each event does there.

    UNBEGUN ──> WATCHING ──> DUE ──> CUT ──────> DECIDED ──> CLAIMED ──> OVER
                               │                    ^
                               └──> INTERRUPTING ──>┘

A limit is *due* when the watch says so; the loop then makes its passes, so that what has arrived is
handed over first (T3, T4). What still waits is cut, and the verdict is a candidate: a message that
comes after all withdraws it (T3). When the pull has unwound, or stays deaf, the verdict is decided:
it is final, and the teardown begins (D1, O6); whoever pulls claims it. Where the user gave an
`interrupt`, that is tried before the cut, and from then on only a turn that ends well withdraws
the verdict.

A table without I/O. `attempt` finds out which event has happened, and does what the row says; the
diagram in docs/explanation/verdict.md is checked against it. Imports `machine` alone.
"""

from __future__ import annotations

from typing import Final

from streamguard._base.machine import Table, Word


class WayState(Word):
    """Where an attempt stands."""

    UNBEGUN = "no message was asked for so far"
    WATCHING = "no limit is due"
    DUE = "a limit is due; what has arrived is handed over first"
    INTERRUPTING = "the interrupt runs; the turn may end well by itself"
    INTERRUPTED = "the interrupt is over, the turn is not; the pull is to be cut"
    CUT = "the pull is cancelled; a message withdraws the verdict"
    LAST_CUT = "the pull is cancelled after an interrupt; only a good end of the turn withdraws"
    STRUCK = "the block is cancelled; a body that ends by itself withdraws the verdict"
    DECIDED = "the verdict is final, and no pull has met it so far: the next pull raises it"
    CLAIMED = "the verdict is final; its consumer waits for the teardown and then gets it"
    SURFACING = "the verdict is final; the block is cancelled and raises it"
    LEAVING = "the consumer is done; the source is being closed"
    OVER = "nothing is watched any more"


class WayEvent(Word):
    """What can happen to an attempt."""

    BEGIN = "the first pull, the block's entry, or a pull after an earlier end"
    REACHED = "the watch says that a limit is reached"
    GONE = "after the passes the limit is not due any more, or nobody waits"
    TOLD = "it is only to be told of (mode warn)"
    INTERRUPT = "there is a turn that an interrupt could end"
    BUSY = "what would be cut has its answer already: it is not cut"
    PULL_CUT = "the pull was cancelled"
    BLOCK_CUT = "the block's scope was cancelled"
    DEAF = "the pull did not let itself be cut, or did not unwind, within its bound"
    BLOCK_DEAF = "the block could not be cancelled within that bound"
    FRUITLESS = "the interrupt failed or took too long, and a pull waits"
    UNATTENDED = "the interrupt failed or took too long, and nobody waits"
    MESSAGE = "a message came that ends no turn"
    GOOD_END = "a message came that ends the turn well"
    BAD_END = "a message came that ends the turn otherwise"
    ANSWERED = "the pull is over, without a message"
    UNWOUND = "the pull has raised, and not for somebody else's cancellation"
    FOREIGN = "somebody else's cancellation came out of the pull"
    LATE = "our own cancellation came out of the source, a message after it was withdrawn"
    PROVEN = (
        "a message has shown what the stream is to be ended for: it is delivered, and the last"
    )
    VERDICT = "a verdict that no window was waited for: a spent total, a truncated end"
    ASIDE = "a hold, a touch or a prompt: something was said by hand"
    CLAIM = "a pull comes for the verdict that is final"
    TORN_DOWN = "the teardown is over"
    LEFT = "the consumer leaves of its own accord"
    LEFT_CUT = "the consumer leaves by a cancellation, or an error that came of one"
    END = "the attempt's owner ends it"


class Do(Word):
    """What is to be done on the way."""

    NOTHING = ""
    BEGIN = "start the clocks and tell"
    REARM = "set the next alarm"
    REST = "drop what was due, set the next alarm"
    JUDGE_AGAIN = "ask the watch anew after the passes"
    PASS = "let the loop make its passes"  # noqa: S105
    LOOK_AGAIN = "look again soon"
    WARN = "only tell"
    INTERRUPT = "start the interrupt"
    AWAIT_UNWINDING = "allow 5 s to unwind"
    GIVE_UP_INTERRUPT = "stop the interrupt, make the passes"
    DECIDE = "tell and tear down"
    DECIDE_UNASKED = "tell, tear down, let a block know"
    END_BADLY = "tell, tear down unless the interrupt spared the client"
    DECIDE_DEAF = "tell that it is deaf, tear down"
    AWAIT_END = "allow a second to end"
    CANCEL_AGAIN = "cancel again, each second"
    WITHDRAW = "take the verdict back"
    WITHDRAW_CUT = "take the verdict back, remember the cancel"
    STOP_WATCHING = "drop the alarm"
    WITHDRAW_AND_STOP = "take the verdict back, drop the alarm"
    END = "let go and tell"


S, E, D = WayState, WayEvent, Do

WAY: Final[Table[WayState, WayEvent, Do]] = {
    S.UNBEGUN: {
        E.BEGIN: (S.WATCHING, D.BEGIN),
        E.LEFT: (S.UNBEGUN, D.NOTHING),
        E.LEFT_CUT: (S.UNBEGUN, D.NOTHING),
        E.END: (S.UNBEGUN, D.NOTHING),
    },
    S.WATCHING: {
        E.REACHED: (S.DUE, D.PASS),
        E.MESSAGE: (S.WATCHING, D.NOTHING),
        E.GOOD_END: (S.WATCHING, D.NOTHING),
        E.BAD_END: (S.WATCHING, D.NOTHING),
        E.ANSWERED: (S.WATCHING, D.NOTHING),
        E.FOREIGN: (S.WATCHING, D.NOTHING),
        E.LATE: (S.CLAIMED, D.DECIDE),
        E.PROVEN: (S.DECIDED, D.DECIDE_UNASKED),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.WATCHING, D.REARM),
        E.LEFT: (S.LEAVING, D.STOP_WATCHING),
        E.LEFT_CUT: (S.LEAVING, D.STOP_WATCHING),
        E.END: (S.OVER, D.END),
    },
    S.DUE: {
        E.GONE: (S.WATCHING, D.REST),
        E.TOLD: (S.WATCHING, D.WARN),
        E.INTERRUPT: (S.INTERRUPTING, D.INTERRUPT),
        E.BUSY: (S.DUE, D.LOOK_AGAIN),
        E.PULL_CUT: (S.CUT, D.AWAIT_UNWINDING),
        E.BLOCK_CUT: (S.STRUCK, D.AWAIT_UNWINDING),
        E.DEAF: (S.DECIDED, D.DECIDE_DEAF),
        E.BLOCK_DEAF: (S.SURFACING, D.DECIDE_DEAF),
        # At the tie the message wins.
        E.MESSAGE: (S.WATCHING, D.REST),
        E.GOOD_END: (S.WATCHING, D.REST),
        E.BAD_END: (S.WATCHING, D.REST),
        E.ANSWERED: (S.WATCHING, D.REST),
        E.FOREIGN: (S.WATCHING, D.REST),
        E.LATE: (S.CLAIMED, D.DECIDE),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.DUE, D.JUDGE_AGAIN),
        E.LEFT: (S.LEAVING, D.STOP_WATCHING),
        E.LEFT_CUT: (S.LEAVING, D.STOP_WATCHING),
        E.END: (S.OVER, D.END),
    },
    S.INTERRUPTING: {
        E.FRUITLESS: (S.INTERRUPTED, D.GIVE_UP_INTERRUPT),
        E.UNATTENDED: (S.DECIDED, D.DECIDE_UNASKED),
        E.MESSAGE: (S.INTERRUPTING, D.NOTHING),  # what the turn still had to say
        E.GOOD_END: (S.WATCHING, D.WITHDRAW),
        E.BAD_END: (S.DECIDED, D.END_BADLY),  # but that message is delivered
        E.ANSWERED: (S.INTERRUPTING, D.NOTHING),
        E.UNWOUND: (S.CLAIMED, D.DECIDE),
        E.FOREIGN: (S.WATCHING, D.WITHDRAW),
        E.LATE: (S.CLAIMED, D.DECIDE),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.INTERRUPTING, D.NOTHING),
        E.LEFT: (S.LEAVING, D.WITHDRAW_AND_STOP),
        E.LEFT_CUT: (S.LEAVING, D.WITHDRAW_AND_STOP),
        E.END: (S.OVER, D.END),
    },
    S.INTERRUPTED: {
        E.GONE: (S.DECIDED, D.DECIDE_UNASKED),
        E.BUSY: (S.INTERRUPTED, D.LOOK_AGAIN),
        E.PULL_CUT: (S.LAST_CUT, D.AWAIT_UNWINDING),
        E.BLOCK_CUT: (S.STRUCK, D.AWAIT_UNWINDING),
        E.DEAF: (S.DECIDED, D.DECIDE_DEAF),
        E.BLOCK_DEAF: (S.SURFACING, D.DECIDE_DEAF),
        E.MESSAGE: (S.DECIDED, D.DECIDE_UNASKED),
        E.GOOD_END: (S.WATCHING, D.WITHDRAW),
        E.BAD_END: (S.DECIDED, D.END_BADLY),
        E.ANSWERED: (S.INTERRUPTED, D.NOTHING),
        E.UNWOUND: (S.CLAIMED, D.DECIDE),
        E.FOREIGN: (S.WATCHING, D.WITHDRAW),
        E.LATE: (S.CLAIMED, D.DECIDE),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.INTERRUPTED, D.NOTHING),
        E.LEFT: (S.LEAVING, D.WITHDRAW_AND_STOP),
        E.LEFT_CUT: (S.LEAVING, D.WITHDRAW_AND_STOP),
        E.END: (S.OVER, D.END),
    },
    S.CUT: {
        E.DEAF: (S.DECIDED, D.DECIDE_DEAF),
        E.MESSAGE: (S.WATCHING, D.WITHDRAW_CUT),
        E.GOOD_END: (S.WATCHING, D.WITHDRAW_CUT),
        E.BAD_END: (S.WATCHING, D.WITHDRAW_CUT),
        E.ANSWERED: (S.CUT, D.NOTHING),
        E.UNWOUND: (S.CLAIMED, D.DECIDE),
        E.FOREIGN: (S.WATCHING, D.WITHDRAW),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.CUT, D.NOTHING),
        # Another task's pull was cut, and nothing may take it for a cancellation of its own.
        E.LEFT: (S.CLAIMED, D.DECIDE),
        E.LEFT_CUT: (S.CLAIMED, D.DECIDE),
        E.END: (S.OVER, D.END),
    },
    S.LAST_CUT: {
        E.DEAF: (S.DECIDED, D.DECIDE_DEAF),
        E.MESSAGE: (S.DECIDED, D.DECIDE_UNASKED),
        E.GOOD_END: (S.WATCHING, D.WITHDRAW_CUT),
        E.BAD_END: (S.DECIDED, D.END_BADLY),
        E.ANSWERED: (S.LAST_CUT, D.NOTHING),
        E.UNWOUND: (S.CLAIMED, D.DECIDE),
        E.FOREIGN: (S.WATCHING, D.WITHDRAW),
        E.VERDICT: (S.CLAIMED, D.DECIDE),
        E.ASIDE: (S.LAST_CUT, D.NOTHING),
        E.LEFT: (S.CLAIMED, D.DECIDE),
        E.LEFT_CUT: (S.CLAIMED, D.DECIDE),
        E.END: (S.OVER, D.END),
    },
    S.STRUCK: {
        E.BLOCK_DEAF: (S.SURFACING, D.DECIDE_DEAF),
        E.MESSAGE: (S.STRUCK, D.NOTHING),  # it is delivered, and the block ends all the same
        E.GOOD_END: (S.STRUCK, D.NOTHING),
        E.BAD_END: (S.STRUCK, D.NOTHING),
        E.ANSWERED: (S.STRUCK, D.NOTHING),
        E.UNWOUND: (S.SURFACING, D.DECIDE),  # it has waited in the block's cancelled scope
        E.FOREIGN: (S.STRUCK, D.NOTHING),
        E.VERDICT: (S.SURFACING, D.DECIDE),
        E.ASIDE: (S.STRUCK, D.NOTHING),
        E.LEFT: (S.LEAVING, D.WITHDRAW_AND_STOP),
        E.LEFT_CUT: (S.SURFACING, D.DECIDE),
        E.END: (S.OVER, D.END),
    },
    S.DECIDED: {
        E.DEAF: (S.DECIDED, D.CANCEL_AGAIN),
        E.BLOCK_CUT: (S.SURFACING, D.NOTHING),
        E.BUSY: (S.DECIDED, D.NOTHING),  # somebody cancels the block already
        E.ANSWERED: (S.DECIDED, D.NOTHING),
        E.FOREIGN: (S.DECIDED, D.NOTHING),
        E.ASIDE: (S.DECIDED, D.NOTHING),
        E.CLAIM: (S.CLAIMED, D.NOTHING),
        E.TORN_DOWN: (S.DECIDED, D.AWAIT_END),
        E.LEFT: (S.CLAIMED, D.NOTHING),
        E.LEFT_CUT: (S.CLAIMED, D.NOTHING),
        E.END: (S.OVER, D.END),
    },
    S.CLAIMED: {  # the block is not struck any more: that would hide the verdict
        E.DEAF: (S.CLAIMED, D.CANCEL_AGAIN),  # a pull in another task
        E.ANSWERED: (S.CLAIMED, D.NOTHING),
        E.FOREIGN: (S.CLAIMED, D.NOTHING),
        E.ASIDE: (S.CLAIMED, D.NOTHING),
        E.CLAIM: (S.CLAIMED, D.NOTHING),
        E.TORN_DOWN: (S.CLAIMED, D.AWAIT_END),
        E.LEFT: (S.CLAIMED, D.NOTHING),
        E.LEFT_CUT: (S.CLAIMED, D.NOTHING),
        E.END: (S.OVER, D.END),
    },
    S.SURFACING: {
        E.DEAF: (S.SURFACING, D.CANCEL_AGAIN),
        E.ANSWERED: (S.SURFACING, D.NOTHING),
        E.FOREIGN: (S.SURFACING, D.NOTHING),
        E.ASIDE: (S.SURFACING, D.NOTHING),
        E.CLAIM: (S.SURFACING, D.NOTHING),
        E.TORN_DOWN: (S.SURFACING, D.AWAIT_END),
        E.LEFT: (S.SURFACING, D.NOTHING),
        E.LEFT_CUT: (S.SURFACING, D.NOTHING),
        E.END: (S.OVER, D.END),
    },
    S.LEAVING: {
        # Another task may still be pulling.
        E.MESSAGE: (S.LEAVING, D.NOTHING),
        E.GOOD_END: (S.LEAVING, D.NOTHING),
        E.BAD_END: (S.LEAVING, D.NOTHING),
        E.ANSWERED: (S.LEAVING, D.NOTHING),
        E.FOREIGN: (S.LEAVING, D.NOTHING),
        E.ASIDE: (S.LEAVING, D.NOTHING),
        E.LEFT: (S.LEAVING, D.NOTHING),
        E.LEFT_CUT: (S.LEAVING, D.NOTHING),
        E.END: (S.OVER, D.END),
    },
    S.OVER: {
        E.BEGIN: (S.WATCHING, D.BEGIN),
        E.MESSAGE: (S.OVER, D.NOTHING),
        E.GOOD_END: (S.OVER, D.NOTHING),
        E.BAD_END: (S.OVER, D.NOTHING),
        E.ANSWERED: (S.OVER, D.NOTHING),
        E.FOREIGN: (S.OVER, D.NOTHING),
        E.VERDICT: (S.OVER, D.NOTHING),
        E.ASIDE: (S.OVER, D.NOTHING),  # from another thread, it may come late
        E.CLAIM: (S.OVER, D.NOTHING),
        E.TORN_DOWN: (S.OVER, D.NOTHING),  # so may the end of a teardown that was left
        E.LEFT: (S.OVER, D.NOTHING),
        E.LEFT_CUT: (S.OVER, D.NOTHING),
        E.END: (S.OVER, D.NOTHING),
    },
}

# What the rest asks of a state.
JUDGED: Final = frozenset({S.WATCHING, S.DUE})
FINAL: Final = frozenset({S.DECIDED, S.CLAIMED, S.SURFACING})
CUT: Final = frozenset({S.CUT, S.LAST_CUT})
AFTER_INTERRUPT: Final = frozenset({S.INTERRUPTING, S.INTERRUPTED, S.LAST_CUT})
