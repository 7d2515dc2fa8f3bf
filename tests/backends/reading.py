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
    WorkProgressed,
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


def asked(signals):
    """What work that begins was asked, by its id: no part of a signal's equality. The last word counts."""
    told = [s for s in signals if isinstance(s, WorkStarted)]
    return {s.id: s.input for s in told}


def came(signals):
    """What came of work that ends, by its id."""
    return {s.id: s.outcome for s in signals if isinstance(s, WorkFinished)}


def empty_ends(backend, messages):
    """Of each turn that ends with success, whether it was empty: by a naive model."""
    worked = spoke = False
    for message in messages:
        for signal in said(backend, message):
            match signal:
                case TurnEnded("success", answered=answered):
                    yield not worked and (answered is False or (answered is None and not spoke))
                    worked = spoke = False
                case TurnEnded():
                    worked = spoke = False
                case WorkStarted():
                    worked = True
                case Progress():
                    spoke = True
                case _:
                    pass


def is_well_made(signal):
    """No signal carries what its field's type does not allow, however odd the message."""
    match signal:
        case SessionOpened(token=text, work_dir=folder):
            return isinstance(text, str) and text != "" and isinstance(folder, str | None)
        case WaitEnded(id=text):
            return isinstance(text, str) and text != ""
        case WorkFinished(id=text):
            return isinstance(text, str)
        case WorkStarted(id=text, name=name, parent=parent):
            named = isinstance(text, str) and isinstance(name, str)
            return named and (parent is None or isinstance(parent, str))
        case WorkProgressed(id=text):
            return isinstance(text, str) and text != ""
        case Waiting(id=text, until=until):
            return isinstance(text, str) and (until is None or abs(until) <= sys.float_info.max)
        case Failed(error_class=text, detail=detail):
            return text in CLASSES and isinstance(detail, str) and len(detail) < 200
        case TurnEnded(outcome=outcome, subtype=subtype, answered=answered):
            outcomes = {"success", "error", "cancelled", "incomplete", "paused"}
            told = isinstance(answered, bool | None)
            return outcome in outcomes and isinstance(subtype, str) and told
        case Usage(counts=counts, span=span, call=call):
            named = all(isinstance(name, str) for name in (*counts, call))
            known = span in {"call", "turn", "process", "session"}
            return named and known and all(type(c) in {int, float} for c in counts.values())
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
