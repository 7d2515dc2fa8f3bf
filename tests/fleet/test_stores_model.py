"""Random schedules of all that can be done to a store, against a naive model of it."""

from __future__ import annotations

import random

import pytest

from streamguard.fleet import statements
from streamguard.fleet.store import Beat, Checkpoint
from tests.fleet.places import MIDNIGHT, FilePlace
from tests.fleet.stores_naive import NaiveStore
from tests.sizes import size

KEYS = ("s", "t", "u")
OWNERS = ("anna", "bert")
WEIGHTS = {
    "submit": 2,
    "claim": 6,
    "beat": 4,
    "finish": 1,
    "give_back": 3,
    "park": 2,
    "release": 2,
    "cancel": 1,
    "log_timeout": 2,
    "advance": 4,
}


def schedule(seed: int) -> list[tuple]:
    """Forty steps. What they are about is drawn when it is known who holds what."""
    draw = random.Random(seed)
    return [
        (name, draw.getrandbits(32)) for name in draw.choices([*WEIGHTS], WEIGHTS.values(), k=40)
    ]


def beat_of(model: NaiveStore, draw: random.Random, key: str | None = None) -> Beat:
    """Mostly a beat of who holds a session; else of who held it, or of somebody else."""
    key = key or draw.choice(KEYS)
    session = model.find(key)
    last = session.tenures[-1] if session and session.tenures else None
    is_right = draw.random() < 0.8
    delivered = draw.randint(0, 3)
    return Beat(
        key=key,
        token=(last.token if last else 0) - (0 if is_right else draw.randint(-1, 1)),
        owner=last.owner if last and (is_right or draw.random() < 0.3) else draw.choice(OWNERS),
        progressed=draw.random() < 0.2,
        checkpoint=Checkpoint(point={"n": delivered}, delivered=delivered) if delivered else None,
    )


def resolved(model: NaiveStore, name: str, seed: int) -> tuple:
    """One step with all that it is about."""
    draw = random.Random(seed)
    match name:
        case "submit" | "release":
            return name, draw.choice(KEYS)
        case "claim":
            return name, draw.choice(OWNERS), draw.choice((5.0, 20.0)), draw.randint(1, 3)
        case "beat":
            keys = draw.sample(KEYS, draw.randint(0, 3))
            return name, [beat_of(model, draw, key) for key in keys]
        case "finish":
            return name, beat_of(model, draw), draw.random() < 0.3
        case "give_back":
            return name, beat_of(model, draw), draw.choice((0.0, 7.0)), draw.random() < 0.6
        case "cancel":
            return name, draw.choice(KEYS), draw.choice(("why", "why not"))
        case "log_timeout":
            return name, beat_of(model, draw), draw.randint(0, 3)
        case "park":
            return name, beat_of(model, draw)
    return name, draw.choice((1.0, 5.0, 6.0, 20.0))


def do(store, model: NaiveStore, step):
    """One step on either; what came of it."""
    match step:
        case ["submit", key]:
            return store.submit(key, {"key": key})
        case ["claim", owner, ttl, limit]:
            claims = store.claim(owner, ttl, limit)
            return claims if store is model else [brief(claim) for claim in claims]
        case ["beat", beats]:
            return dict(store.beat(beats, 10.0))
        case ["finish", beat, cancelled]:
            return store.finish(beat, cancelled=cancelled)
        case ["give_back", beat, delay, counts]:
            return store.give_back(beat, delay, counts=counts, why="X")
        case ["park", beat]:
            return store.park(beat, "look")
        case ["release", key]:
            return store.release(key)
        case ["cancel", key, why]:
            return store.cancel(key, why)
        case ["log_timeout", beat, number]:
            return store.log_timeout(beat, {"n": number})
    raise AssertionError(step)


def brief(claim):
    assert claim.spec == {"key": claim.key}
    kept = None if claim.checkpoint == Checkpoint() else claim.checkpoint
    return claim.key, claim.token, claim.attempt, claim.fruitless, kept


def rows(store):
    return [
        (row.key, row.status, row.owner, row.attempt, row.fruitless, row.delivered, row.why,
         row.cancelling, row.wait, row.silent, row.age)
        for row in store.live(all=True)
    ]  # fmt: skip


def play(place, store, seed: int) -> None:
    """A schedule on an empty store; every answer, and all that is seen after each step, as the model has it."""
    for table in ("sessions", "timeouts"):
        place.execute(f"DELETE FROM streamguard_{table}")
    place.advance(MIDNIGHT - place.now)
    model = NaiveStore(place.now)
    done: list[tuple] = []
    for name, number in schedule(seed):
        step = resolved(model, name, number)
        done.append(step)
        if name == "advance":
            place.advance(step[1])
            model.now = place.now
        else:
            assert do(store, model, step) == do(model, model, step), (seed, done)
        assert rows(store) == model.rows(), (seed, done)
    shown = [row for row in store.live(all=True) if row.status not in ("done", "cancelled")]
    assert store.live() == shown
    assert list(store.timeouts()) == model.lines


def test_a_store_does_what_the_model_says(place, store):
    store.initialise()
    for seed in range(size(dev=100, ci=500)):
        play(place, store, seed)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("CLAIM", "ORDER BY due, id", "ORDER BY id"),
        ("CLAIM", "token = token + 1,", ""),
        ("CLAIM", "progressed = -1,", ""),
        ("CLAIM", "WHEN cancelling IS NOT NULL THEN cancelling ", ""),
        ("BEAT", "THEN 0 ELSE fruitless", "THEN fruitless ELSE fruitless"),
        ("END", " AND token = :token", ""),
        ("END", "attempt - :uncounted", "attempt"),
        ("END", "{gives_way} THEN NULL ELSE", "{gives_way} THEN due ELSE"),
        ("HAS_ENDED", " AND owner = :owner", ""),
        ("CANCEL", "'parked')", "'done')"),
        ("CANCEL", "COALESCE(cancelling, :why) END,\n", ":why END,\n"),
        ("RELEASE", "fruitless = 0, ", ""),
        ("LOG", " AND owner = :owner", ""),
    ],
)
def test_a_fault_would_be_found(tmp_path, monkeypatch, name, good, bad):
    """The control: with one fault in a statement, some schedule is not as the model says."""
    text = getattr(statements, name)
    for word, meaning in (("{gives_way}", ":gives_way = 1 AND cancelling IS NOT NULL"),):
        good, bad = good.replace(word, meaning), bad.replace(word, meaning)
    assert good in text
    monkeypatch.setattr(statements, name, text.replace(good, bad))
    place = FilePlace(tmp_path)
    store = place.store()
    store.initialise()
    with pytest.raises(AssertionError):
        for seed in range(1000):
            play(place, store, seed)
    place.close()
