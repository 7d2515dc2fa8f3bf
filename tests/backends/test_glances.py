"""A reader's glance at a message says what a look with care says, or nothing: it is for speed alone."""

import copy
import itertools
import sys

import pytest

from benchmarks import messages
from streamguard import backends
from streamguard.backends._openai_responses import EVENTS
from streamguard.signals import Progress
from tests.backends.looks import Model
from tests.backends.test_all import vocabulary


def reading_of(message):
    """The module that reads it."""
    return sys.modules[backends.find(message).read.__module__]


# As benchmarks have them, and with what else the SDK has by now.
OF_A_SESSION = copy.copy(messages.OBJECTS["claude, a message"])
vars(OF_A_SESSION).update(session_id="s", message_id="m", usage=None)
PLAIN = {
    what: message
    for what, message in {**messages.OBJECTS, "claude, of a session": OF_A_SESSION}.items()
    if hasattr(reading_of(message), "_read")
}
NAMES = {messages.name_of(what) for what in PLAIN}
ODD = [
    *(None, True, False, 0, 7.5, "", " ", "x", b"", b" ", b"x", [], {}, (), ["x"], [None], [[]]),
    *([{}], [{"text": "x"}], {"text": "x"}, {"type": "x"}, float("nan"), 10**400),
    *(
        Model({}),
        Model({"text": "x"}),
        Model({"type": "text", "text": ""}),
        Model({"input_tokens": 1}),
    ),
]


def fields(thing):
    """Whatever has fields in `thing`, as a dict that can be changed."""
    extras = getattr(thing, "__pydantic_extra__", None)
    return [each for each in (getattr(thing, "__dict__", None), extras) if isinstance(each, dict)]


def places(thing):
    """All that can be replaced within `thing`: containers with a key of theirs."""
    if isinstance(thing, list):
        for index, each in enumerate(thing):
            yield thing, index
            yield from places(each)
    for table in fields(thing):
        for name, each in table.items():
            yield table, name
            yield from places(each)


def tables(thing):
    """All fields of all objects within `thing`."""
    yield from fields(thing)
    for container, key in places(thing):
        yield from fields(container[key])


def changed(message, words):
    """`message`, with any one thing in it gone, odd, one of two, or with a word of the backend's beside it."""
    for number, change in itertools.product(
        range(len(list(places(message)))), ["gone", "two", *ODD]
    ):
        mine = copy.deepcopy(message)
        container, key = next(itertools.islice(places(mine), number, None))
        if change == "gone":
            del container[key]
        elif change == "two" and isinstance(container, list):
            container.append(Model({"text": ""}))
        elif change == "two":
            container[key] = [container[key]] * 2
        else:
            container[key] = change
        yield mine
    values = (None, True, "x", "error", [{}], {"code": 1}, {"content": ""})
    for number, word in itertools.product(range(len(list(tables(message)))), words):
        names = list(next(itertools.islice(tables(message), number, None)))
        for name, value in [
            *((word, value) for value in values),
            *((name, word) for name in names),
        ]:
            mine = copy.deepcopy(message)
            next(itertools.islice(tables(mine), number, None))[name] = value
            yield mine


def outcome(read, message):
    """What it says, with what is no part of a signal's equality. To say nothing is to say progress."""
    said = read(message)
    several = [Progress()] if said is None else said if isinstance(said, list | tuple) else [said]
    return [
        (each, getattr(each, "input", None), getattr(each, "outcome", None)) for each in several
    ]


def test_those_that_look_into_objects_have_a_glance():
    assert {"acp", "claude", "google_adk", "google_genai", "litellm", "openai"} <= NAMES


@pytest.mark.parametrize("what", PLAIN)
def test_a_glance_suffices_for_a_plain_message(what, monkeypatch):
    """Cost: counted, not timed. What nearly all messages are is not looked at with care, but for the first."""
    reading = reading_of(PLAIN[what])
    said, looked = reading.read(PLAIN[what]), []
    monkeypatch.setattr(reading, "_read", looked.append)
    assert reading.read(PLAIN[what]) == said
    assert looked == []


@pytest.mark.parametrize("what", PLAIN)
def test_a_glance_says_what_a_look_with_care_says(what):
    """S2: of the plain message, and of all that look nearly as it does."""
    message = PLAIN[what]
    reading = reading_of(message)
    # An object has Python's names; the others are JSON's.
    words = {word for word in vocabulary(messages.name_of(what)) if word == word.lower()}
    for each in itertools.chain([message], changed(message, sorted(words | set(EVENTS)))):
        assert outcome(reading.read, each) == outcome(reading._read, each), vars(each)


def test_of_claudes_answers_some_types_are_kept_and_all_are_read(monkeypatch):
    """S2: counted. A class for each answer, and another of the same name, are read as one class is."""
    reading = reading_of(OF_A_SESSION)
    monkeypatch.setattr(reading, "_ANSWERS", set())
    said = reading.read(OF_A_SESSION)
    for _ in range(1000):
        kind = type("AssistantMessage", (type(OF_A_SESSION),), {})
        each = kind(**vars(OF_A_SESSION))
        assert reading.read(each) == reading.read(each) == said
    assert len(reading._ANSWERS) == reading._MOST_ANSWERS
    stranger = type("AssistantMessages", (), {})()
    vars(stranger).update(vars(OF_A_SESSION))
    assert reading.read(stranger) is None
