"""What tests of readers share: what a message says, and messages that nobody has thought of."""

import sys

from hypothesis import strategies as st

from streamguard import backends
from streamguard.signals import (
    SIGNALS,
    Failed,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WaitEnded,
    Waiting,
    WorkFinished,
    WorkStarted,
)

PROGRESS = [Progress()]
NOTHING = []
CLASSES = {
    "never",
    "auth",
    "permanent",
    "validation",
    "rate_limit",
    "server",
    "network",
    "unknown",
}


def said(backend, message):
    """The signals of a message, None being Progress."""
    signals = backend.read(message)
    if signals is None:
        return PROGRESS
    return [signals] if isinstance(signals, SIGNALS) else list(signals)


def is_well_made(signal):
    """No signal carries what its field's type does not allow, however odd the message."""
    match signal:
        case SessionOpened(token=text, work_dir=folder):
            return isinstance(text, str) and text != "" and isinstance(folder, str | None)
        case WaitEnded(id=text):
            return isinstance(text, str) and text != ""
        case WorkFinished(id=text):
            return isinstance(text, str)
        case WorkStarted(id=text, name=name):
            return isinstance(text, str) and isinstance(name, str)
        case Waiting(id=text, until=until):
            return isinstance(text, str) and (until is None or abs(until) <= sys.float_info.max)
        case Failed(error_class=text, detail=detail):
            return text in CLASSES and isinstance(detail, str) and len(detail) < 200
        case TurnEnded(outcome=outcome, subtype=subtype):
            outcomes = {"success", "error", "cancelled", "incomplete", "paused"}
            return outcome in outcomes and isinstance(subtype, str)
        case Usage(counts=counts):
            named = all(isinstance(name, str) for name in counts)
            return named and all(type(count) in {int, float} for count in counts.values())
        case _:
            return isinstance(signal, SIGNALS)


class Gremlin:
    """An object with any attributes, as of a package that has changed."""

    def __init__(self, attributes):
        vars(self).update(attributes)

    def __repr__(self):
        return f"Gremlin({vars(self)!r})"


def garbage(keys, words):
    """Messages whose keys and words are a backend's, and whose values are anything."""
    leaves = (
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=8)
        | st.sampled_from(words)
        | st.just(10**400)
        | st.binary(max_size=3)
    )
    names = st.sampled_from(keys) | st.text(max_size=4)

    def nested(children):
        fields = st.dictionaries(names, children, max_size=6)
        return st.lists(children, max_size=3) | fields | st.builds(Gremlin, fields)

    anything = st.recursive(leaves, nested, max_leaves=12)
    line = st.fixed_dictionaries(
        {"type": st.sampled_from(words)}, optional={key: anything for key in keys if key != "type"}
    )
    pair = st.fixed_dictionaries(
        {"method": st.sampled_from(words), "params": anything}, optional={"id": anything}
    )
    return anything | line | pair | st.builds(Gremlin, line)


def is_found_or_not(backend):
    """Whether the answer to "whose message is this?" is one."""
    return backend is None or backend.name in {*backends.NAMES, "neutral"}
