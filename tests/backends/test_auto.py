"""Whose message is this: by root package, by shape, by what the user said; no SDK imported."""

import asyncio
import re
import subprocess
import sys
import types
from dataclasses import dataclass

import pytest

from streamguard import backends
from streamguard.backends import Backend, claude, find, resolve
from streamguard.errors import ConfigError
from streamguard.signals import SIGNALS, Liveness, Progress, SessionOpened, TurnEnded, WorkStarted

ASSISTANT_LINE = {"type": "assistant", "message": {"content": []}, "session_id": "s", "uuid": "u"}


def named(name, module, base=object):
    """A class as some package would define it."""
    return type(name, (base,), {"__module__": module})


# --- find: objects ------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["claude_agent_sdk", "claude_agent_sdk.types"])
def test_an_object_is_known_by_the_root_package_of_its_type(module):
    """S1: submodules move between releases, the root package does not."""
    assert find(named("AssistantMessage", module)()).name == "claude"


@pytest.mark.parametrize("module", ["claude_agent_sdk_extras", "my.claude_agent_sdk", "builtins"])
def test_a_package_of_a_similar_name_is_somebody_elses(module):
    """S1: the root package, exactly."""
    assert find(named("AssistantMessage", module)()) is None


def test_a_users_subclass_of_a_backends_message_is_that_backends():
    """S1: a subclass carries on what its base says."""
    base = named("AssistantMessage", "claude_agent_sdk.types")
    assert find(named("Mine", "app.messages", base)()).name == "claude"


def test_the_answer_for_an_object_depends_on_its_type_alone():
    """Callers keep it per type, so two instances must never differ."""
    kind = named("AssistantMessage", "claude_agent_sdk")
    one, other = kind(), kind()
    other.signals = other.type = "system"
    assert find(one) is find(other)


def test_a_type_without_a_proper_module_is_unknown():
    """S2: a class can claim any module."""
    assert find(named("Odd", None)()) is None
    assert find(named("Odd", 7)()) is None


@pytest.mark.parametrize(
    "message", [None, 1, "text", b"line", ["system"], ("values", {}), object()]
)
def test_what_nobody_knows_has_no_backend(message):
    assert find(message) is None


# --- find: scripted messages --------------------------------------------------------------


@pytest.mark.parametrize("kind", SIGNALS, ids=lambda kind: kind.__name__)
def test_a_signal_that_comes_as_a_message_speaks_for_itself(kind):
    needed = {"token": "t", "id": "i", "counts": {}, "reason": "human"}
    signal = kind(**{name: needed[name] for name in kind.__slots__ if name in needed})
    assert find(signal).read(signal) is signal


def test_a_scripted_message_says_what_it_carries():
    carried = (SessionOpened("t"), WorkStarted("w"))
    scripted = named("Message", "streamguard.testing.script")()
    scripted.signals = carried
    assert find(scripted).read(scripted) == carried


def test_a_message_of_this_package_without_signals_is_progress():
    message = named("Message", "streamguard.testing.script")()
    assert find(message).read(message) is None


def test_the_end_of_a_scripted_stream_is_a_normal_end():
    """T10: a script has no habits of its own."""
    assert find(Progress()).always_ends_turns is False


# --- find: dicts --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        ASSISTANT_LINE,
        {"type": "system", "subtype": "init", "session_id": "s"},
        {"type": "user", "message": {"role": "user", "content": "hi"}, "session_id": ""},
        {"type": "result", "subtype": "success", "is_error": False, "session_id": "s"},
        {"type": "stream_event", "event": {"type": "ping"}, "session_id": "s", "uuid": "u"},
        {"type": "rate_limit_event", "rate_limit_info": {}, "session_id": "s"},
        {"type": "tool_progress", "tool_use_id": "t", "session_id": "s", "heartbeat": True},
    ],
    ids=lambda line: line["type"],
)
def test_a_stream_json_line_is_known_by_its_shape(line):
    backend = find(line)
    assert (backend.name, backend.always_ends_turns) == ("claude", True)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"type": "ping"},
        {"type": "keep_alive"},
        {"type": "system"},
        {"type": ["system"], "subtype": "init", "session_id": "s"},
        {"type": "system", "subtype": "init", "session_id": None},
        {"type": "message", "role": "assistant", "content": "hi", "delta": True},
        {"type": "init", "session_id": "s", "model": "m"},
        {"type": "result", "status": "success", "stats": {}},
        {"type": "thread.started"},
        {"type": "item.started", "id": "1"},
        {"type": "message_start", "message": {"content": []}},
        {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}},
        {1: 2},
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_a_dict_of_another_making_stays_unknown(line):
    """S1: a wrong guess would be worse than Progress."""
    assert find(line) is None


def test_an_unknown_dict_does_not_bar_a_known_one_that_follows():
    """S1: `auto` picks per stream, and the first line may be anybody's."""
    assert [find(line) and find(line).name for line in ({"hello": 1}, ASSISTANT_LINE)] == [
        None,
        "claude",
    ]


# --- imports ------------------------------------------------------------------------------


def run(code):
    """What a fresh interpreter prints."""
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=30
    ).stdout.split()


LOADED = """
import sys
from streamguard.backends import find
print('streamguard.backends.claude' in sys.modules)
find({message})
print('streamguard.backends.claude' in sys.modules, 'claude_agent_sdk' in sys.modules)
"""


def test_a_backend_is_loaded_at_its_first_message_and_its_sdk_never():
    """S1: who does not use a backend does not pay for it."""
    assert run(LOADED.format(message=ASSISTANT_LINE)) == ["False", "True", "False"]


def test_other_messages_load_no_backend():
    assert run(LOADED.format(message={"type": "ping"})) == ["False", "False", "False"]


# --- resolve ------------------------------------------------------------------------------


def test_auto_is_decided_by_the_stream():
    assert resolve("auto") is None


@pytest.mark.parametrize("read", ["claude", claude, claude.read], ids=["name", "module", "reader"])
def test_a_backend_can_be_named_in_three_ways_that_mean_the_same(read):
    """T10: `read=claude.read` must not lose that Claude always ends its turns."""
    assert resolve(read) == find(ASSISTANT_LINE) == Backend("claude", claude.read, True)


def test_a_backend_is_taken_as_it_is():
    backend = Backend("mine", lambda _: None, always_ends_turns=True)
    assert resolve(backend) is backend


def test_a_users_function_is_a_reader_whose_streams_may_simply_end():
    def read(message):
        return Liveness() if message == "ping" else None

    backend = resolve(read)
    assert (backend.read, backend.always_ends_turns) == (read, False)
    assert backend.name.endswith("read")


def test_a_callable_object_is_a_reader():
    class Reading:
        def __call__(self, message):
            return TurnEnded()

    assert resolve(Reading()).read("x") == TurnEnded()


def test_a_users_module_may_be_a_backend():
    module = types.ModuleType("app.backends.mine")
    module.read, module.ALWAYS_ENDS_TURNS = (lambda _: None), True
    assert resolve(module) == Backend("mine", module.read, True)


async def areads(message):
    return None


async def streams(message):
    yield None


@dataclass
class NotCallable:
    pass


@pytest.mark.parametrize(
    ("read", "why"),
    [
        ("cluade", "'cluade' is not a backend"),
        ("", "'' is not a backend"),
        (None, "None is not a reader"),
        (3, "3 is not a reader"),
        (NotCallable(), "is not a reader"),
        (asyncio, "module asyncio has no function read"),
        (areads, "is async, but a reader is a plain function"),
        (streams, "is async, but a reader is a plain function"),
        (Progress, "is a class"),
    ],
    ids=lambda value: re.sub(" at 0x[0-9a-f]+", "", str(value)),
)
def test_what_cannot_read_is_refused_where_it_is_written(read, why):
    """T12: a ConfigError that says what was given."""
    with pytest.raises(ConfigError, match=why):
        resolve(read)


def test_the_public_surface_is_small():
    names = {
        "NAMES",
        "Backend",
        "Client",
        "Readable",
        "adapted",
        "find",
        "is_own",
        "of_client",
        "resolve",
    }
    assert set(backends.__all__) == names
