"""What the search has kept is tried on every Python; some changes of it, too; and each oracle can fail."""

from __future__ import annotations

import random

import pytest

from streamguard.backends.registry import Backend
from tests.fuzzing import corpus_files, targets
from tests.fuzzing.seeds import SEEDS
from tests.fuzzing.targets import TARGETS

CHANGES = 60


@pytest.mark.parametrize("name", TARGETS)
def test_the_corpus(name):
    for data in (*SEEDS[name], *corpus_files.read(name)):
        TARGETS[name](data)


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_near_it(name):
    draw = random.Random(name)
    for _ in range(CHANGES):
        TARGETS[name](_changed(draw, draw.choice(SEEDS[name])))


def _changed(draw, data):
    for _ in range(draw.randint(1, 4)):
        at, length = draw.randrange(len(data) + 1), draw.randint(0, 8)
        data = draw.choice(
            (
                data[:at] + draw.randbytes(length) + data[at:],
                data[:at] + data[at + length :],
                data[:at]
                + draw.choice((b"null", b"-1", b"1e999", b'"', b"[[", b"\n"))
                + data[at + length :],
                data[:at],
                data + data[at:],
            )
        )
    return data[:2048]


class Careless:
    """Forgets what it was given, and draws what nobody can."""

    def __init__(self):
        self.ready = []

    def feed(self, data):
        self.ready = [data]

    def end(self):
        pass

    def take(self, line):
        pass

    def sessions(self):
        return [self]

    def instants(self):
        return [float("nan")]


CONTROLS = {
    "splitter": ("Splitter", lambda size: Careless()),
    "json_line": ("object_in", lambda data: None),
    "pushback": ("retry_after", lambda error, now: 1e9),
    "timeline": ("TimelineReader", Careless),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_control_an_oracle_sees_what_is_wrong(name, monkeypatch):
    monkeypatch.setattr(targets, *CONTROLS[name])
    with pytest.raises(AssertionError):
        for seed in SEEDS[name]:
            TARGETS[name](seed)


def test_control_a_reader_that_fails_is_seen(monkeypatch):
    def fails(message):
        raise KeyError(message)

    monkeypatch.setattr(targets, "_READERS", {"own": Backend("own", fails)})
    with pytest.raises(AssertionError, match="a reader failed"):
        TARGETS["readers"](SEEDS["readers"][0])
