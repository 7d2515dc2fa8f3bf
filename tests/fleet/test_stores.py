"""What every store promises, each in a sentence; the same for all of them."""

from __future__ import annotations

import pytest

from streamguard import ConfigError
from streamguard.fleet import statements
from streamguard.fleet.sql_store import SqlStore
from streamguard.fleet.store import Beat, Checkpoint, Claimed
from tests.fleet.places import MIDNIGHT

TTL = 15.0
SECRETS = ("hunter2-prompt", "hunter2-token", "hunter2-state")
SPEC = {"prompt": "hunter2-prompt"}
POINT = Checkpoint(point={"token": "hunter2-token"}, state={"note": "hunter2-state"}, delivered=7)
ODD_KEYS = (
    "a'b\"c;--",
    "%s %(x)s {} \\ $1 :key ?",
    "line\nend\ttab",
    "\x1b[31mred",
    "日本語 ✓ 🦀",
    "\u202egnp.exe",
    " ",
    "x" * 500,
    "🦀" * 500,
)


def beat(claimed: Claimed, checkpoint: Checkpoint | None = None, **more) -> Beat:
    return Beat(
        key=claimed.key,
        token=claimed.token,
        owner=claimed.owner,
        checkpoint=checkpoint,
        **more,
    )


def begun(store, key="s", owner="anna", ttl=TTL) -> Claimed:
    """A session that was submitted and claimed."""
    assert store.submit(key, SPEC)
    [claimed] = store.claim(owner, ttl, 1)
    assert claimed.key == key
    return claimed


def keys(claims) -> list[str]:
    return [claimed.key for claimed in claims]


# -- the queue ------------------------------------------------------------------------------


def test_a_session_is_queued_once(store):
    assert store.submit("s", {"n": 1})
    assert not store.submit("s", {"n": 2})
    [claimed] = store.claim("anna", TTL, 9)
    assert claimed.spec == {"n": 1}
    store.finish(beat(claimed))
    assert not store.submit("s", {})
    assert store.claim("anna", TTL, 9) == []


def test_a_claim_tells_all_that_is_needed_to_begin(store):
    assert begun(store) == Claimed(
        key="s", token=1, owner="anna", attempt=1, fruitless=0, spec=SPEC, checkpoint=Checkpoint()
    )


def test_the_longest_waiting_is_claimed_first(place, store):
    for key in ("first", "second", "third"):
        store.submit(key, {})
    [first] = store.claim("anna", TTL, 1)
    assert first.key == "first"
    place.advance(1)
    store.give_back(beat(first), 0)
    assert keys(store.claim("anna", TTL, 9)) == ["second", "third", "first"]


def test_one_that_was_lost_waits_since_its_lease_ended(place, store):
    lost = begun(store, "lost", ttl=5)
    place.advance(4)
    store.submit("early", {})
    place.advance(2)
    store.submit("late", {})
    assert keys(store.claim("bert", TTL, 9)) == ["early", lost.key, "late"]


def test_no_more_are_claimed_than_asked_for(store):
    for n in range(5):
        store.submit(str(n), {})
    assert keys(store.claim("anna", TTL, 2)) == ["0", "1"]
    assert keys(store.claim("bert", TTL, 9)) == ["2", "3", "4"]
    assert store.claim("anna", TTL, 9) == []


def test_one_that_is_held_is_claimed_by_nobody(place, store):
    held = begun(store)
    place.advance(TTL - 1)
    assert store.claim("bert", TTL, 9) == []
    assert store.beat([beat(held)], TTL) == {"s": "kept"}
    place.advance(TTL - 1)
    assert store.claim("bert", TTL, 9) == []
    place.advance(2)
    assert keys(store.claim("bert", TTL, 9)) == ["s"]


def test_a_token_grows_with_each_claim(place, store):
    tokens = []
    claimed = begun(store)
    for n in range(3):
        tokens.append(claimed.token)
        if n == 1:
            store.give_back(beat(claimed), 0, counts=False)
        place.advance(TTL + 1)
        [claimed] = store.claim("anna", TTL, 1)
    assert tokens == [1, 2, 3]


# -- what is held, and by whom --------------------------------------------------------------


@pytest.fixture(params=["token", "owner"])
def stale(request, place, store) -> Beat:
    """A beat of who has lost the session "s": its token is old, or it is not the owner."""
    first = begun(store)
    if request.param == "owner":
        return Beat(key="s", token=first.token, owner="bert")
    place.advance(TTL + 1)
    [_] = store.claim(first.owner, TTL, 1)
    return beat(first)


def writes(store, stale: Beat) -> dict[str, bool]:
    """Everything that only the holder may do, each on its own; whether it was let through."""
    tries = {
        "beat": lambda: bool(store.beat([stale], TTL)),
        "log_timeout": lambda: store.log_timeout(stale, {"limit": "idle"}),
        "give_back": lambda: store.give_back(stale, 0),
        "park": lambda: store.park(stale, "it looks bad"),
        "finish": lambda: store.finish(stale),
        "cancelled": lambda: store.finish(stale, cancelled=True),
    }
    return {name: attempt() for name, attempt in tries.items()}


def test_who_has_lost_a_session_changes_nothing_of_it(store, stale):
    stale = Beat(key="s", token=stale.token, owner=stale.owner, checkpoint=POINT, progressed=True)
    before = store.show("s")
    assert set(writes(store, stale).values()) == {False}
    assert store.show("s") == before
    assert list(store.timeouts()) == []


@pytest.mark.parametrize("column", ["token", "owner"])
@pytest.mark.parametrize("name", ["BEAT", "END", "LOG"])
def test_without_its_where_a_stale_write_would_be_seen(place, monkeypatch, name, column):
    """The control of the one above: with one column left out of one WHERE, what is stale is let through."""
    if name == "BEAT" and place.name == "postgresql":
        name = "BEATS"
    fenced = getattr(statements, name)
    fences = f" AND {column} = :{column}", f" AND s.{column} = b.{column}"
    [fence] = [fence for fence in fences if fence in fenced]
    monkeypatch.setattr(statements, name, fenced.replace(fence, ""))
    store = place.store()
    first = begun(store)
    stale = Beat(key="s", token=first.token, owner="bert")
    if column == "token":
        place.advance(TTL + 1)
        store.claim("anna", TTL, 1)
        stale = beat(first)
    assert True in writes(store, stale).values()


def test_of_many_beats_those_that_are_lost_are_missing(place, store):
    for n in range(6):
        store.submit(str(n), {})
    claims = store.claim("anna", TTL, 6)
    place.advance(TTL + 1)
    assert keys(store.claim("bert", TTL, 2)) == ["0", "1"]
    store.cancel("3", "enough")
    late = [beat(claimed) for claimed in claims]
    assert store.beat([*late, Beat(key="who?", token=1, owner="anna")], TTL) == {
        "2": "kept", "4": "kept", "5": "kept"
    }  # fmt: skip
    store.cancel("4", "enough")
    assert store.beat(late, TTL) == {"2": "kept", "4": "cancel", "5": "kept"}
    assert store.beat([], TTL) == {}


def test_a_late_beat_keeps_what_nobody_has_claimed(place, store):
    claimed = begun(store)
    place.advance(10 * TTL)
    assert store.beat([beat(claimed)], TTL) == {"s": "kept"}
    assert store.claim("bert", TTL, 1) == []


# -- checkpoints ----------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["beat", "give_back", "park"])
def test_a_checkpoint_comes_back_with_the_next_claim(place, store, way):
    last = beat(begun(store), POINT)
    if way == "beat":
        store.beat([last], TTL)
    elif way == "give_back":
        store.give_back(last, 0)
    else:
        store.park(last, "look at it")
        store.release("s")
    place.advance(TTL + 1)
    [again] = place.store().claim("bert", TTL, 1)
    assert again.checkpoint == POINT
    assert store.show("s").delivered == 7


def test_a_beat_without_news_leaves_the_checkpoint(place, store):
    claimed = begun(store)
    store.beat([beat(claimed, POINT)], TTL)
    store.beat([beat(claimed)], TTL)
    place.advance(TTL + 1)
    assert store.claim("bert", TTL, 1)[0].checkpoint == POINT


def test_what_is_large_comes_back_whole(place, store):
    spec = {"prompt": "é🦀\x00\ud800" * 500_000, "n": [1, 2.5, None, True, {"": "NaN"}]}
    point = Checkpoint(point={"ledger": ["x" * 1000] * 1000}, state={"a": float("inf")})
    store.submit("s", spec)
    [claimed] = store.claim("anna", TTL, 1)
    assert claimed.spec == spec
    store.beat([beat(claimed, point)], TTL)
    place.advance(TTL + 1)
    assert store.claim("bert", TTL, 1)[0].checkpoint == point


@pytest.mark.parametrize("key", ODD_KEYS)
def test_a_key_may_be_any_text(place, store, key):
    claimed = begun(store, key)
    assert store.beat([beat(claimed, POINT)], TTL) == {key: "kept"}
    assert store.log_timeout(beat(claimed), {"limit": "idle"})
    assert next(store.timeouts())["session"] == key
    assert [row.key for row in store.live()] == [key]
    assert store.park(beat(claimed), key)
    assert store.release(key)
    assert store.cancel(key, key)
    assert store.show(key).status == "cancelled"


@pytest.mark.parametrize("key", ["", "x" * 501, "a\0b", "\ud800", 7, None])
def test_what_no_database_keeps_is_no_key(store, key):
    with pytest.raises(ConfigError, match="key="):
        store.submit(key, {})
    with pytest.raises(ConfigError, match="owner="):
        store.claim(key, TTL, 1)


def test_a_reason_may_be_any_text(store):
    claimed = begun(store)
    assert store.park(beat(claimed), "bad\0\ud800\x1b" + "x" * 10_000)
    why = store.show("s").why
    assert why.startswith("bad\\x00\\ud800\\x1bxxx")
    assert len(why) <= 1000


@pytest.mark.parametrize("what", ["spec", "checkpoint"])
def test_what_is_no_json_is_refused_and_not_shown(store, what):
    class Secret:
        def __repr__(self):
            return "hunter2"

    with pytest.raises(ConfigError, match="of session 's' is no JSON") as caught:
        if what == "spec":
            store.submit("s", {"a": Secret()})
        else:
            claimed = begun(store)
            store.beat([beat(claimed, Checkpoint(state={"a": Secret()}))], TTL)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda store: store.claim("anna", 0, 1), "ttl"),
        (lambda store: store.claim("anna", float("nan"), 1), "ttl"),
        (lambda store: store.claim("anna", TTL, 0), "limit"),
        (lambda store: store.beat([], -1), "ttl"),
        (lambda store: store.give_back(Beat(key="s", token=1, owner="a"), -1), "delay"),
    ],
)
def test_numbers_that_are_none_are_refused(store, call, name):
    with pytest.raises(ConfigError, match=f"{name}="):
        call(store)


# -- how a claim ends -----------------------------------------------------------------------


def test_what_is_done_is_done(place, store):
    claimed = begun(store)
    assert store.finish(beat(claimed, POINT))
    row = store.show("s")
    assert (row.status, row.owner, row.why, row.delivered) == ("done", "", "", 7)
    place.advance(1000)
    assert store.claim("bert", TTL, 1) == []
    assert store.live() == []
    assert store.live(all=True) == [store.show("s")]


def test_what_is_given_back_waits_out_its_delay(place, store):
    claimed = begun(store)
    assert store.give_back(beat(claimed), 30, why="IdleTimeoutError")
    row = store.show("s")
    assert (row.status, row.wait, row.why) == ("waiting", 30.0, "IdleTimeoutError")
    place.advance(29)
    assert store.claim("bert", TTL, 1) == []
    place.advance(2)
    [again] = store.claim("bert", TTL, 1)
    assert (again.attempt, again.fruitless, again.token) == (2, 1, 2)


def test_what_is_parked_waits_for_a_person(place, store):
    claimed = begun(store)
    assert store.park(beat(claimed), "it is not safe to begin again")
    row = store.show("s")
    assert (row.status, row.why) == ("parked", "it is not safe to begin again")
    place.advance(1000)
    assert store.claim("bert", TTL, 1) == []
    assert store.release("s")
    assert not store.release("s")
    [again] = store.claim("bert", TTL, 1)
    assert again.fruitless == 0


def test_nothing_but_what_is_parked_is_released(store):
    assert not store.release("s")
    claimed = begun(store)
    assert not store.release("s")
    store.finish(beat(claimed))
    assert not store.release("s")


def ends(store):
    return {
        "done": store.finish,
        "cancelled": lambda last: store.finish(last, cancelled=True),
        "waiting": lambda last: store.give_back(last, 5),
        "parked": lambda last: store.park(last, "why"),
    }


@pytest.mark.parametrize("status", ["done", "cancelled", "waiting", "parked"])
def test_an_end_whose_answer_was_lost_may_be_told_again(store, status):
    last = beat(begun(store))
    end = ends(store)[status]
    assert end(last)
    before = store.show("s")
    assert before.status == status
    assert end(last)
    assert store.show("s") == before
    assert store.beat([last], TTL) == {}
    others = [other for name, other in ends(store).items() if name not in (status, "cancelled")]
    if status != "cancelled":
        assert [other(last) for other in others] == [False, False]
    assert store.show("s") == before


# -- attempts, and those that came to nothing -----------------------------------------------


def test_attempts_that_come_to_nothing_are_counted_until_one_does(place, store):
    claimed = begun(store)
    seen = []
    for how in (
        "lost",
        "given back",
        "not heard",
        "lost",
        "progressed",
        "lost",
        "drained",
        "lost",
    ):
        seen.append((claimed.attempt, claimed.fruitless))
        if how == "lost":
            store.beat([beat(claimed)], TTL)
        if how == "progressed":
            store.beat([beat(claimed, progressed=True)], TTL)
        elif how == "given back":
            store.give_back(beat(claimed), 0, why="X")
        elif how == "drained":
            store.give_back(beat(claimed), 0, counts=False)
        place.advance(TTL + 1)
        [claimed] = store.claim("anna", TTL, 1)
    assert seen == [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (6, 0), (7, 1), (7, 1)]
    assert (claimed.attempt, claimed.fruitless) == (8, 2)


def test_progress_that_is_told_with_the_end_counts(store):
    claimed = begun(store)
    store.give_back(beat(claimed, progressed=True), 0)
    [again] = store.claim("anna", TTL, 1)
    assert (again.attempt, again.fruitless) == (2, 0)


def test_a_session_that_was_lost_says_so(place, store):
    begun(store)
    place.advance(TTL + 1)
    store.claim("bert", TTL, 1)
    assert store.show("s").why == "lost"


# -- cancelling -----------------------------------------------------------------------------


def test_what_waits_is_cancelled_at_once(store):
    store.submit("s", SPEC)
    assert store.cancel("s", "no longer wanted")
    row = store.show("s")
    assert (row.status, row.why, row.cancelling) == ("cancelled", "no longer wanted", False)
    assert store.claim("anna", TTL, 1) == []


def test_what_runs_is_told_with_the_next_beat(store):
    claimed = begun(store)
    assert store.cancel("s", "no longer wanted")
    assert store.cancel("s", "a second reason")
    row = store.show("s")
    assert (row.status, row.owner, row.cancelling) == ("running", "anna", True)
    assert store.beat([beat(claimed)], TTL) == {"s": "cancel"}
    assert store.finish(beat(claimed), cancelled=True)
    row = store.show("s")
    assert (row.status, row.why, row.cancelling) == ("cancelled", "no longer wanted", False)


def test_what_is_done_before_it_hears_of_a_cancel_is_done(store):
    claimed = begun(store)
    store.cancel("s", "no longer wanted")
    assert store.finish(beat(claimed))
    assert (store.show("s").status, store.show("s").why) == ("done", "")


@pytest.mark.parametrize("status", ["waiting", "parked"])
def test_what_is_let_go_of_after_a_cancel_is_cancelled(place, store, status):
    claimed = begun(store)
    store.cancel("s", "no longer wanted")
    for _ in range(2):
        assert ends(store)[status](beat(claimed))
        row = store.show("s")
        assert (row.status, row.why) == ("cancelled", "no longer wanted")
    place.advance(1000)
    assert store.claim("bert", TTL, 1) == []


def test_what_is_lost_is_cancelled_at_once(place, store):
    claimed = begun(store)
    place.advance(TTL + 1)
    assert store.cancel("s", "no longer wanted")
    assert store.show("s").status == "cancelled"
    assert set(writes(store, beat(claimed)).values()) == {False}


def test_what_is_lost_after_a_cancel_is_not_claimed(place, store):
    begun(store, "gone")
    store.cancel("gone", "no longer wanted")
    place.advance(TTL + 1)
    store.submit("next", {})
    assert keys(store.claim("bert", TTL, 1)) == ["next"]
    row = store.show("gone")
    assert (row.status, row.why, row.attempt) == ("cancelled", "no longer wanted", 1)


def test_what_is_parked_can_be_cancelled(store):
    store.park(beat(begun(store)), "look")
    assert store.cancel("s", "no longer wanted")
    assert (store.show("s").status, store.show("s").why) == ("cancelled", "no longer wanted")
    assert not store.release("s")


def test_there_may_be_nothing_to_cancel(store):
    assert not store.cancel("s", "why")
    store.finish(beat(begun(store)))
    assert not store.cancel("s", "why")


# -- what is seen ---------------------------------------------------------------------------


def test_a_row_says_how_long_ago(place, store):
    claimed = begun(store)
    place.advance(10)
    store.beat([beat(claimed)], TTL)
    place.advance(4)
    store.submit("t", {})
    row, other = store.live()
    assert (row.silent, row.age, row.wait) == (4.0, 14.0, 0.0)
    assert (other.silent, other.age, other.wait) == (0.0, 0.0, 0.0)


def test_live_shows_what_is_not_over_in_the_order_it_came(store):
    for key in ("done", "running", "cancelled", "waiting", "parked"):
        store.submit(key, {})
    for claimed in store.claim("anna", TTL, 2):
        if claimed.key == "done":
            store.finish(beat(claimed))
    store.cancel("cancelled", "why")
    store.give_back(beat(store.claim("anna", TTL, 1)[0]), 99)
    store.park(beat(store.claim("anna", TTL, 1)[0]), "look")
    assert [row.key for row in store.live()] == ["running", "waiting", "parked"]
    assert [row.status for row in store.live(all=True)] == [
        "done", "running", "cancelled", "waiting", "parked"
    ]  # fmt: skip
    assert store.show("nobody") is None


def test_the_log_is_read_from_a_time_on(place, store):
    claimed = begun(store)
    for n in range(3):
        assert store.log_timeout(beat(claimed), {"limit": "idle", "n": n})
        place.advance(10)
    assert next(iter(store.timeouts())) == {
        "limit": "idle", "n": 0, "session": "s", "logged": MIDNIGHT
    }  # fmt: skip
    assert [line["n"] for line in store.timeouts(MIDNIGHT + 10)] == [1, 2]
    assert list(store.timeouts(MIDNIGHT + 21)) == []


def test_a_long_log_is_read_in_parts_and_holds_nothing(place, store):
    claimed = begun(store)
    for n in range(1100):
        store.log_timeout(beat(claimed), {"n": n})
    lines = store.timeouts()
    assert next(lines)["n"] == 0
    store.log_timeout(beat(claimed), {"n": 1100})
    assert [line["n"] for line in lines] == list(range(1, 1101))


def test_no_secret_is_seen(place, store):
    claimed = begun(store)
    store.beat([beat(claimed, POINT)], TTL)
    store.log_timeout(beat(claimed), {"limit": "idle"})
    seen = [claimed, store, store.circuits, store.live(), store.live(all=True), store.show("s")]
    seen += [beat(claimed, POINT), *store.timeouts()]
    place.advance(TTL + 1)
    seen += store.claim("bert", TTL, 1)
    assert [secret for secret in SECRETS for thing in seen if secret in repr(thing)] == []


def test_two_stores_at_one_place_are_one(place, store):
    other = place.store()
    claimed = begun(store)
    assert other.claim("bert", TTL, 1) == []
    assert other.beat([beat(claimed)], TTL) == {"s": "kept"}
    assert isinstance(other, SqlStore)
    assert other.live() == store.live()


def test_a_line_of_a_session_that_is_kept_elsewhere(place, store):
    """Where an engine keeps its sessions itself, there is no row here to fence it by."""
    place.advance(5)
    store.note_timeout("elsewhere", {"limit": "idle", "n": 1})
    assert list(store.timeouts()) == [
        {"limit": "idle", "n": 1, "session": "elsewhere", "logged": MIDNIGHT + 5}
    ]
    with pytest.raises(ConfigError, match="is no JSON"):
        store.note_timeout("elsewhere", {"limit": object()})
