"""What holds for every backend: its reader is total and pure, and nobody pays for another's SDK."""

import ast
import copy
import json
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import messages
from streamguard import backends
from streamguard.signals import SIGNALS, Progress
from tests.backends.looks import as_model, said_by
from tests.sizes import size

NAMES = sorted(backends.NAMES)
SDKS = [
    *("acp", "agents", "anthropic", "claude_agent_sdk", "google", "langchain_core", "langgraph"),
    *("litellm", "mcp", "openai", "openai_codex", "pydantic", "pydantic_ai"),
]


# --- readers are total ----------------------------------------------------------------------


@cache
def vocabulary(name):
    """Every string that the backend's modules know: keys, kinds, words of its messages."""
    home = Path(backends.__file__).parent
    module = import_module(f"{backends.__name__}.{name}")
    helpers = {
        Path(sys.modules[value.__module__].__file__)
        for value in vars(module).values()
        if getattr(value, "__module__", "").startswith(backends.__name__)
    }
    sources = [Path(module.__file__), *sorted(path for path in helpers if home in path.parents)]
    trees = [ast.walk(ast.parse(path.read_text())) for path in sources]
    texts = {n.value for tree in trees for n in tree if isinstance(n, ast.Constant)}
    return sorted(text for text in texts if isinstance(text, str) and len(text) < 60)


def garbage(name):
    """Messages made of the backend's own words, put together as nobody would."""
    words = st.sampled_from(vocabulary(name))
    odd = st.sampled_from(
        [None, True, False, 0, -1, 7.5, float("nan"), float("inf"), 10**400, "", b"x"]
    )
    return st.recursive(
        words | odd,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.tuples(inner, inner)
            | st.dictionaries(words, inner, max_size=6)
        ),
        max_leaves=10,
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_makes_signals_of_anything(name):
    """S2: whatever comes, and whether it comes as JSON or as objects; and nothing is changed."""
    read = backends.resolve(name).read

    @settings(max_examples=size(dev=6, ci=30), deadline=None, database=None, derandomize=True)
    @given(st.dictionaries(st.sampled_from(vocabulary(name)), garbage(name)) | garbage(name))
    def check(message):
        before = copy.deepcopy(message)
        for form in (message, as_model(message)):
            said = read(form)
            several = (said,) if said is None or isinstance(said, SIGNALS) else tuple(said)
            assert all(each is None or isinstance(each, SIGNALS) for each in several)
        assert repr(message) == repr(before)

    check()


# --- what is imported -----------------------------------------------------------------------

# Whoever asks for an SDK is noted, and told that it is not there.
READ_ONE = """
import json, sys

asked = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sdks!r}:
            asked.append(name)
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Finder())
from benchmarks import messages
from streamguard import backends

message = {{**messages.OBJECTS, **messages.DICTS}}[{what!r}]
backend = backends.find(message)
backend.read(message)
ours = [m.rpartition(".")[2] for m in sys.modules if m.startswith("streamguard.backends.")]
print(json.dumps([asked, backend.name, [name for name in ours if name in backends.NAMES]]))
"""
WHATS = {messages.name_of(what): what for what in (*messages.DICTS, *messages.OBJECTS)}


@pytest.mark.parametrize("what", WHATS.values(), ids=WHATS)
def test_to_read_one_backend_no_sdk_is_imported_and_no_other_backend(what):
    """S1: who does not use a backend does not pay for it; who does pays for the reader alone."""
    program = READ_ONE.format(sdks=set(SDKS), what=what)
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60
    )
    name = messages.name_of(what)
    assert json.loads(done.stdout) == [[], name, [name]]


def test_of_every_backend_there_is_a_message_to_measure_and_to_try():
    assert messages.missing() == set()


@pytest.mark.parametrize(
    ("what", "message"),
    [*messages.OBJECTS.items(), *messages.DICTS.items()],
    ids=lambda x: str(x)[:30],
)
def test_those_messages_are_found_and_are_progress(what, message):
    backend = backends.find(message)
    assert backend.name == messages.name_of(what)
    assert Progress() in said_by(backend, message)
