"""R2, O6: an owner's tenure: every pair of state and event is a row that happens, or cannot happen."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import anyio
import pytest

from streamguard import (
    Activity,
    Connection,
    IdleTimeoutError,
    Verdict,
    idle_guard,
    reconnecting_resume,
    session,
)
from streamguard._base.machine import ImpossibleError, arrows, missing
from streamguard.events import AttemptEnded, OwnerAbandoned
from streamguard.sessions.owner import Owner
from streamguard.sessions.tenure import IS_ENDING, TABLE
from streamguard.sessions.tenure import TenureEvent as Event
from streamguard.sessions.tenure import TenureState as State
from streamguard.testing import Script, done, fail, hang, opened, say, swallows_cancel
from tests.diagrams import mermaid, shown_in
from tests.sessions.backend import Backend
from tests.support import Events

INIT = {"type": "system", "subtype": "init", "session_id": "s", "tools": []}
WORDS = {"type": "assistant", "message": {"role": "assistant", "content": []}, "session_id": "s"}


# -- the table alone ---------------------------------------------------------------------------------


def test_what_has_no_row_is_said_to_be_impossible():
    """What is not in the table raises, and moves nothing."""
    pairs = list(missing(TABLE, State, Event))
    assert len(pairs) + len(list(arrows(TABLE))) == len(State) * len(Event)
    for state, event in pairs:
        owner = Owner.__new__(Owner)
        owner.state = state
        with pytest.raises(ImpossibleError):
            owner._move(event)
        assert owner.state is state


def test_which_pairs_are_impossible():
    """By the reasons that the module gives."""
    pulling = {State.PULLING, State.UNWANTED, State.UNWINDING}
    over = {State.RELEASED, State.GONE}
    late = {State.ABANDONED}
    possible = {
        Event.TURN: {State.NEW, State.RESTING},
        Event.ASKED: {State.READY, State.JUDGED},
        Event.CAME: pulling | late,
        Event.TURN_OVER: pulling | late,
        Event.UNWOUND: set(State) - over - {State.NEW, State.CLOSING},
        Event.LEFT: set(State),
        Event.VERDICT: set(State) - over - late - {State.NEW, State.RESTING, State.JUDGED},
        Event.DEAF: {State.PULLING, State.UNWANTED},
        Event.CLOSED: {State.CLOSING} | late,
        Event.GIVEN_UP: set(IS_ENDING) - over - late - {State.JUDGED},
    }
    for event in Event:
        assert {state for state in State if event in TABLE[state]} == possible[event], event


def test_no_way_leads_back():
    """Once it is to end, it ends, from wherever it is."""
    for state, _event, then, _does in arrows(TABLE):
        assert then in IS_ENDING or state not in IS_ENDING
    ends = {State.RELEASED, State.GONE}
    reach = {state: {row[0] for row in rows.values()} for state, rows in TABLE.items()}
    for state in State:
        seen, todo = set(), [state]
        while todo:
            if (each := todo.pop()) not in seen:
                seen.add(each)
                todo += reach[each]
        assert seen & ends


def test_the_diagram_in_the_docs():
    drawn = mermaid(TABLE, State.NEW, (State.RELEASED, State.GONE))
    assert shown_in("how-to/sessions.md", "## How an attempt's task ends") == drawn, drawn


# -- every row, as it happens --------------------------------------------------------------------------


@pytest.fixture
def walked(monkeypatch):
    """The rows that were walked."""
    rows = set()
    move = Owner._move

    def noted(owner, event):
        rows.add((owner.state.name, event.name))
        return move(owner, event)

    monkeypatch.setattr(Owner, "_move", noted)
    return rows


def opener(stream, closing=0.0, **handles):
    """An `open` that gives `stream`, and takes so long to close."""

    @asynccontextmanager
    async def open_(_point):
        try:
            yield Connection(stream, **handles)
        finally:
            end = anyio.current_time() + closing
            while anyio.current_time() < end:
                with suppress(anyio.get_cancelled_exc_class()), anyio.CancelScope(shield=True):
                    await anyio.sleep_until(end)

    return open_


async def _all(messages):
    with suppress(Exception):
        async for _ in messages:
            pass


def _owner(chat):
    return chat._conversation.owner


async def _pull_for(chat, seconds):
    with anyio.move_on_after(seconds):
        await _all(chat)


async def ends(walked):
    async with session(opener(Script(say("a"), done()))) | idle_guard(60) as chat:
        await _all(chat)
    return "NEW TURN, READY ASKED, PULLING CAME, PULLING TURN_OVER, RESTING LEFT, DONE UNWOUND, CLOSING CLOSED"


async def asks_twice(walked):
    turns = (Script(say("a"), done()), Script(say("b"), done()))
    async with session(Backend([turns]).open, prompt="one") | idle_guard(60) as chat:
        await _all(chat)
        await _all(chat.ask("two"))
    return "RESTING TURN"


async def fails(walked):
    async with session(opener(Script(fail(OSError())))) | idle_guard(60) as chat:
        await _all(chat)
    return "PULLING UNWOUND, RELEASED LEFT"


async def cannot_begin(walked):
    guard = idle_guard(60, activity=Activity("one"))
    async with session(opener(Script(hang()))) | guard as busy:
        await _pull_for(busy, 1)
        async with anyio.create_task_group() as tg:
            tg.start_soon(_all, busy)
            await anyio.sleep(1)
            async with session(opener(Script(hang()))) | guard as chat:
                await _all(chat)
            tg.cancel_scope.cancel()
    return "NEW LEFT"


async def leaves(walked):
    async with session(opener(Script(say("a"), hang()))) | idle_guard(60) as chat:
        await anext(aiter(chat))
        _owner(chat).stop()
        _owner(chat).stop()
    return "READY LEFT, DONE LEFT, DONE UNWOUND"


async def leaves_a_pull(walked):
    async with session(opener(Script(say("a"), hang()))) | idle_guard(60) as chat:
        await _pull_for(chat, 5)
        _owner(chat).stop()
        _owner(chat).stop()
    return "PULLING LEFT, UNWANTED LEFT, UNWANTED UNWOUND"


async def leaves_what_still_speaks(walked):
    async def stream():
        yield "a"
        try:
            await anyio.sleep(600)
        except anyio.get_cancelled_exc_class():
            yield "flushed"

    async with session(opener(stream())) | idle_guard(60) as chat:
        await _pull_for(chat, 5)
    return "UNWANTED CAME"


async def leaves_what_swallows(walked, *messages):
    async def stream():
        for message in messages:
            yield message
        with suppress(anyio.get_cancelled_exc_class()):
            await anyio.sleep(600)

    async with session(opener(stream())) | idle_guard(60) as chat:
        await _pull_for(chat, 5)
    return "UNWANTED TURN_OVER"


async def leaves_what_is_cut_short(walked):
    await leaves_what_swallows(walked, INIT, WORDS)
    return "UNWANTED VERDICT, UNWINDING UNWOUND"


async def leaves_while_a_verdict_is_deaf(walked):
    deaf = swallows_cancel(Script(say("a"), hang()))
    async with session(opener(deaf, disconnect=deaf.release)) | idle_guard(60) as chat:
        await _pull_for(chat, 64)
    return "UNWANTED DEAF, UNWINDING VERDICT"


async def hangs(walked):
    async with session(opener(Script(hang()))) | idle_guard(60) as chat:
        await _all(chat)
    return "PULLING VERDICT, UNWINDING UNWOUND"


async def hangs_deaf(walked):
    deaf = swallows_cancel(Script(say("a"), hang()))
    async with session(opener(deaf, disconnect=deaf.release)) | idle_guard(60) as chat:
        await _all(chat)
    return "PULLING DEAF, UNWINDING VERDICT"


async def leaves_a_teardown(walked):
    async def disconnect():
        await anyio.sleep(20)

    stream = Script(hang())
    async with session(opener(stream, disconnect=disconnect)) | idle_guard(60) as chat:
        await _pull_for(chat, 65)
    return "UNWINDING LEFT"


async def stays_open(walked):
    stream = Script(say("a"), done(), hang())
    async with session(opener(stream)) | idle_guard(60, exit_grace=10) as chat:
        await _all(chat)
    return "UNWINDING TURN_OVER"


async def is_interrupted(walked):
    async with _interrupted() as chat:
        await _all(chat)
    return "UNWINDING CAME, JUDGED ASKED"


@asynccontextmanager
async def _interrupted(observer=None):
    """A turn that an interrupt ends, of a client that does not outlive it."""
    interrupted = anyio.Event()

    async def stream():
        first, last = [each async for each in Script(opened("s"), done("error"))]
        yield first
        await interrupted.wait()
        yield last
        await anyio.sleep(600)

    value = session(opener(stream(), interrupt=interrupted.set))
    async with value | idle_guard(60, observer=observer) as chat:
        yield chat


async def works_past_total(walked):
    stream = Script(say("a"), hang())
    with suppress(Exception):
        async with session(opener(stream)) | idle_guard(60, total=100) as chat:
            async for _ in chat:
                await anyio.sleep(600)
    return "READY VERDICT, JUDGED ASKED"


async def leaves_as_total_strikes(walked):
    async with session(opener(Script(say("a"), hang()))) | idle_guard(60) as chat:
        await anext(aiter(chat))
        owner = _owner(chat)
        owner.stop()
        owner.attempt.decide(Verdict(limit="total", window=1, elapsed=1))
        owner.stop()
    return "DONE VERDICT, JUDGED LEFT"


async def leaves_a_close(walked):
    stream = Script(fail(OSError()))
    async with session(opener(stream, closing=3)) | idle_guard(60) as chat:
        await _pull_for(chat, 1)
    return "CLOSING LEFT"


async def closes_past_total(walked):
    stream = Script(say("a"), hang())
    with suppress(Exception):
        async with session(opener(stream, closing=3)) | idle_guard(60, total=100) as chat:
            await anext(aiter(chat))
            await anyio.sleep(98)
            await aiter(chat).aclose()
    return "CLOSING VERDICT"


async def never_closes(walked):
    stream = Script(say("a"), hang())
    async with session(opener(stream, closing=500)) | idle_guard(60) as chat:
        await anext(aiter(chat))
    await anyio.sleep(600)
    return "CLOSING GIVEN_UP, ABANDONED CLOSED"


async def is_deaf_to_the_end(walked):
    deaf = swallows_cancel(Script(hang()))
    async with session(opener(deaf)) | idle_guard(60) as chat:
        await _all(chat)
        _owner(chat).stop()
        deaf.release()
        await anyio.sleep(1)
    return "UNWINDING GIVEN_UP, ABANDONED UNWOUND, ABANDONED LEFT, ABANDONED CLOSED, GONE LEFT"


async def is_deaf_to_a_leave(walked):
    deaf = swallows_cancel(Script(hang()))
    async with session(opener(deaf)) | idle_guard(60) as chat:
        await _pull_for(chat, 5)
    deaf.release()
    await anyio.sleep(1)
    return "UNWANTED GIVEN_UP"


async def speaks_after_it_was_left_behind(walked, *last):
    """Late words, and then an end, with nothing to be cancelled in between."""
    late = anyio.Event()

    async def stream():
        yield "a"
        while not late.is_set():
            with suppress(anyio.get_cancelled_exc_class()), anyio.CancelScope(shield=True):
                await late.wait()
        for message in last:
            yield message

    async with session(opener(stream())) | idle_guard(600) as chat:
        await _pull_for(chat, 5)
    late.set()
    await anyio.sleep(60)
    return "ABANDONED CAME" if last else "ABANDONED TURN_OVER"


async def speaks_too_late(walked):
    return await speaks_after_it_was_left_behind(walked, "b")


async def never_starts(walked):
    """As a task that its loop's end has cancelled before it could run."""

    async def nothing():
        pass

    async with session(opener(Script(hang()))) | idle_guard(60) as chat:
        turn = aiter(chat)
        begin = chat._conversation.owner_at

        def owner_at(point):
            owner = begin(point)
            owner._run = nothing
            return owner

        chat._conversation.owner_at = owner_at
        with anyio.move_on_after(5):
            await anext(turn)
    return "DONE GIVEN_UP"


SCENES = [
    *(ends, asks_twice, fails, cannot_begin, leaves, leaves_a_pull, leaves_what_still_speaks),
    *(leaves_what_swallows, leaves_what_is_cut_short, leaves_while_a_verdict_is_deaf, hangs),
    *(hangs_deaf, leaves_a_teardown, stays_open, is_interrupted, works_past_total),
    *(leaves_as_total_strikes, leaves_a_close, closes_past_total, never_closes),
    *(is_deaf_to_the_end, is_deaf_to_a_leave, speaks_too_late, never_starts),
    speaks_after_it_was_left_behind,
]
BY_THE_LOOPS_END = {("READY", "UNWOUND"), ("RESTING", "UNWOUND"), ("JUDGED", "UNWOUND")}


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
async def test_a_row_as_it_happens(loop, walked, scene):
    """Each scene walks the rows that it names."""
    named = {tuple(row.split()) for row in (await scene(walked)).split(", ")}
    assert named <= walked


def test_every_row_happens(loop, walked):
    """No row is there for nothing."""

    async def main():
        for scene in SCENES:
            await scene(walked)

    loop.run(main)
    rows = {(state.name, event.name) for state, event, _, _ in arrows(TABLE)}
    assert rows - walked == BY_THE_LOOPS_END


@pytest.mark.parametrize("state", ["READY", "RESTING", "JUDGED"])
async def test_a_task_that_its_loop_cancels(native, walked, state):
    """O6: as `asyncio.run` does with what is left; nobody waits for it in vain."""
    turns = (Script(say("a"), done()), Script(hang()))
    async with session(Backend([turns]).open, prompt="go") | idle_guard(60) as chat:
        turn = aiter(chat)
        await anext(turn)
        if state == "RESTING":
            await _all(turn)
        elif state == "JUDGED":
            _owner(chat).attempt.decide(Verdict(limit="total", window=1, elapsed=1))
        assert _owner(chat).state.name == state
        for task in asyncio.all_tasks():
            if task.get_name() == "streamguard owner":
                task.cancel()
        with anyio.fail_after(30):
            await _owner(chat).released.wait()
    assert (state, "UNWOUND") in walked


# -- what it is good for -----------------------------------------------------------------------------


async def test_a_verdict_does_not_wait_for_a_busy_consumer(loop):
    """O6, D1: the task concludes what an interrupt has ended, and is not taken for one that hangs."""
    told = Events()
    async with _interrupted(told) as chat:
        with pytest.raises(IdleTimeoutError) as caught:
            async for _ in chat:
                await anyio.sleep(100)
    assert caught.value.teardown.confirmed
    assert told.of(OwnerAbandoned) == []
    assert [each.outcome for each in told.of(AttemptEnded)] == ["failed"]


async def test_a_turn_that_was_left_to_another_task_ends_as_left(loop):
    """R1: a pull in one task, and another prompt in the next: the pull says what became of it."""
    backend = Backend([Script(opened("s"), hang()), Script(say("b"), done())])
    async with (
        session(backend.open, prompt="one") | idle_guard(60) | reconnecting_resume() as chat
    ):
        errors = []

        async def pull():
            with pytest.raises(RuntimeError, match="left before its end") as caught:
                await _through(chat)
            errors.append(caught.value)

        async with anyio.create_task_group() as tg:
            tg.start_soon(pull)
            await anyio.sleep(5)
            await _all(chat.ask("two"))
        assert len(errors) == 1
    backend.check()


async def _through(messages):
    async for _ in messages:
        pass
