"""F3, F5: what Temporal keeps of a session, as one worker leaves it and the next one finds it."""

from __future__ import annotations

import json

import pytest

from streamguard import ConfigError
from streamguard.fleet.store import Beat, Checkpoint
from streamguard.fleet.temporal_record import SessionRecord

HERE = Checkpoint(point={"token": "s"}, state={"n": 3}, delivered=7)


def beat(checkpoint=None, *, progressed=False):
    return Beat(key="k", token=1, owner="w", checkpoint=checkpoint, progressed=progressed)


def test_the_first_worker_begins_with_nothing():
    record = SessionRecord.from_json(None).taken()
    claimed = record.claimed("k", "w", {"prompt": "go"})
    assert (claimed.key, claimed.owner, claimed.spec) == ("k", "w", {"prompt": "go"})
    assert (claimed.token, claimed.attempt, claimed.fruitless) == (1, 1, 0)
    assert claimed.checkpoint == Checkpoint()


def test_a_beat_without_news_keeps_the_checkpoint():
    record = SessionRecord().taken().beaten(beat(HERE, progressed=True)).beaten(beat())
    assert record.checkpoint == HERE
    assert record.progressed


@pytest.mark.parametrize(
    ("progressed", "leave", "attempt", "fruitless"),
    [
        (False, lambda record: record, 2, 1),  # lost
        (True, lambda record: record, 2, 0),
        (False, lambda record: record.given_back(), 2, 1),
        (True, lambda record: record.given_back(), 2, 0),
        (False, lambda record: record.given_back(counts=False), 1, 0),
        (True, lambda record: record.given_back(counts=False), 1, 0),
        (False, lambda record: record.given_back().released(), 2, 0),
    ],
)
def test_what_the_next_worker_finds(progressed, leave, attempt, fruitless):
    """F5: attempts count as a store counts them, whatever Temporal's own count is. The token always grows."""
    left = leave(SessionRecord().taken().beaten(beat(HERE, progressed=progressed)))
    record = SessionRecord.from_json(json.loads(json.dumps(left.as_json()))).taken()
    assert (record.token, record.attempt, record.fruitless) == (2, attempt, fruitless)
    assert not record.progressed
    assert record.checkpoint == HERE


def test_fruitless_attempts_add_up_over_all_ways_to_end():
    record = SessionRecord()
    for end in (lambda r: r, SessionRecord.given_back, lambda r: r.given_back(counts=False)):
        record = end(record.taken())
    assert record.taken().fruitless == 2


@pytest.mark.parametrize("said", [{"version": 2}, {"version": 1}, "x", 7, {}])
def test_what_cannot_be_read_is_refused(said):
    with pytest.raises(ConfigError, match="record"):
        SessionRecord.from_json(said)


def test_it_shows_no_secret():
    record = SessionRecord(
        checkpoint=Checkpoint(point={"prompt": "hush"}, state={"key": "hush"}, delivered=1)
    )
    assert "hush" not in repr(record)
