"""Facts for the doctor: what is installed, and which windows forestall a backend's own recovery."""

import logging
import os
import stat
import sys
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import backends, idle_guard
from streamguard.backends import facts
from streamguard.backends.facts import (
    FACTS,
    Installed,
    codex_config,
    collisions,
    installed,
    news_of_collisions,
    watchdogs,
)
from streamguard.events import WindowCollides
from streamguard.testing import Script, message, silence
from tests.support import Events, take

GATEWAY = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:8080"}
INIT = {"type": "system", "subtype": "init", "session_id": "s"}
RESULT = {
    "type": "result",
    "subtype": "success",
    "is_error": False,
    "session_id": "s",
    "result": "Hi.",
}


def test_every_backend_has_its_facts():
    assert set(FACTS) >= backends.NAMES


@pytest.mark.parametrize("each", FACTS.values(), ids=FACTS)
def test_facts_can_be_shown(each):
    assert each.package or each.command
    assert all(sentence.endswith(".") for sentence in each.limits)


def test_it_is_known_when_a_backend_tells_what_it_has_used():
    """What a ceiling can strike in the midst of, and what it can only strike behind."""
    told = {
        "claude": ("call", "turn"),
        "codex": ("turn", None),
        "gemini": ("end", None),
        "opencode": ("call", "call"),
        "copilot": (None, None),
        "acp": ("turn", "turn"),
        "pydantic_ai": ("turn", "turn"),
        **dict.fromkeys(("openai", "openai_agents", "anthropic", "litellm"), ("call", None)),
        **dict.fromkeys(("google_genai", "google_adk", "langgraph"), ("call", None)),
    }
    assert {name: (FACTS[name].usage_told, FACTS[name].cost_told) for name in told} == told


# --- what is installed --------------------------------------------------------------------


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A command line called `gemini`, the only one there is."""

    def make(script):
        path = tmp_path / "gemini"
        path.write_text(f"#!{sys.executable}\n{script}")
        path.chmod(path.stat().st_mode | stat.S_IEXEC)
        return str(path)

    monkeypatch.setenv("PATH", str(tmp_path))
    return make


def test_a_command_is_asked_for_its_version(command):
    path = command("print('0.61.0'); print('more')")
    assert installed("gemini") == Installed(command="0.61.0", path=path)


def test_a_command_that_a_package_brings_goes_first(command, tmp_path, monkeypatch):
    """And the package is found, not imported."""
    inside = tmp_path / "brings_it"
    inside.mkdir()
    (inside / "__init__.py").write_text("raise AssertionError")
    monkeypatch.syspath_prepend(tmp_path)
    facts_ = facts.Facts("gemini", command="gemini", bundled=("brings_it", "gemini"))
    monkeypatch.setitem(FACTS, "gemini", facts_)
    path = command("print('on the path')")
    assert installed("gemini") == Installed(command="on the path", path=path)
    (inside / "gemini").write_text(f"#!{sys.executable}\nprint('brought')")
    (inside / "gemini").chmod(0o700)
    assert installed("gemini") == Installed(command="brought", path=str(inside / "gemini"))


def test_a_command_that_hangs_has_no_version(command):
    path = command("import time; time.sleep(600)")
    assert installed("gemini", timeout=0.2) == Installed(command=None, path=path)


def test_a_command_that_cannot_be_run_has_no_version(command, tmp_path):
    path = command("")
    (tmp_path / "gemini").write_text("#!/nowhere/python\n")
    assert installed("gemini") == Installed(command=None, path=path)


def test_what_is_not_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert installed("gemini") == Installed()


def test_a_package_is_found_without_importing_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(FACTS, "anyio", facts.Facts("anyio", package="anyio"))
    assert installed("anyio").package == metadata.version("anyio")


# --- collisions ---------------------------------------------------------------------------


def fired(name, windows, environ, config=None):
    """The collisions, as knob and watchdog's seconds."""
    found = collisions(name, windows, environ, config)
    return [(each.limit, each.watchdog.seconds) for each in found]


def test_three_minutes_fire_before_the_claude_cli_recovers():
    """300 s of a silent API, measured, then it asks again; and 360 s without any answer."""
    assert fired("claude", {"idle": 180}, GATEWAY) == [("idle", 300), ("idle", 360)]


def test_a_tie_is_a_collision():
    """At 300 s the CLI begins to recover; nothing can be seen of it yet."""
    assert fired("claude", {"idle": 300}, GATEWAY) == [("idle", 300), ("idle", 360)]


def test_a_window_with_room_for_the_recovery_does_not_collide():
    assert fired("claude", {"idle": 420, "first": 420}, GATEWAY) == []
    assert fired("claude", {"idle": 419}, GATEWAY) == [("idle", 360)]


def test_the_advice_ends_the_collision():
    """What the text says to set: followed, there is nothing left to say."""
    windows = {"idle": 180.0}
    for each in collisions("claude", windows, GATEWAY):
        assert f"{each.watchdog.seconds + 60:g} or more" in str(each)
    environ = {
        **GATEWAY,
        "CLAUDE_ENABLE_BYTE_WATCHDOG": "1",
        "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "90000",
        "API_TIMEOUT_MS": "90000",
    }
    text = " ".join(map(str, collisions("claude", windows, GATEWAY)))
    for name in environ.keys() - GATEWAY.keys():
        assert f"{name}={environ[name]}" in text
    assert collisions("claude", windows, environ) == []


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 180),
        ({"ANTHROPIC_BASE_URL": "https://api.anthropic.com/"}, 180),
        ({"ANTHROPIC_BASE_URL": "https://anthropic.com.example"}, 300),
        ({"ANTHROPIC_BASE_URL": "http://["}, 300),
        ({"CLAUDE_CODE_USE_BEDROCK": "1"}, 300),
        ({"CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "60000"}, 60),
        ({"CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "1"}, 10),
        ({"CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "nan"}, 180),
        ({"CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS": "60000", **GATEWAY}, 300),
    ],
)
def test_the_byte_watchdog_is_armed_for_the_first_party_alone(environ, seconds):
    assert watchdogs("claude", environ)[0].seconds == seconds


def test_codex_waits_as_its_configuration_says():
    provider = {"mock": {"stream_idle_timeout_ms": 90_000}}
    config = {"model_provider": "mock", "model_providers": provider}
    assert fired("codex", {"idle": 180}, {}) == [("idle", 300)]
    assert fired("codex", {"idle": 180}, {}, config) == []
    assert fired("codex", {"idle": 180, "first": 100}, {}, config) == [("first", 90)]


def test_codex_keeps_its_configuration_in_a_file(tmp_path):
    (tmp_path / "config.toml").write_text('model_provider = "mock"')
    assert codex_config({"CODEX_HOME": str(tmp_path)}) == {"model_provider": "mock"}
    assert codex_config({"HOME": str(tmp_path)}) == {}
    (tmp_path / "config.toml").write_bytes(b"\xff = [")
    assert codex_config({"CODEX_HOME": str(tmp_path)}) == {}


@pytest.mark.parametrize("name", sorted(set(FACTS) - {"claude", "codex", "qwen"}))
def test_most_backends_have_no_watchdog_of_their_own(name):
    assert fired(name, {"idle": 1, "first": 1}, {}) == []


def test_windows_that_are_off_do_not_collide():
    assert fired("claude", {"idle": None, "first": None, "tools": 1}, {}) == []


texts = st.text(max_size=12) | st.sampled_from(["1", "true", "1e9", "-1", "inf", "http://[x"])
ENVIRON = ["ANTHROPIC_BASE_URL", "API_TIMEOUT_MS", "CLAUDE_BYTE_STREAM_IDLE_TIMEOUT_MS"]
junk = st.recursive(
    st.none() | st.integers() | st.floats() | texts,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                ["model_provider", "model_providers", "stream_idle_timeout_ms", "mock", ""]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(sorted(FACTS)),
    st.dictionaries(st.sampled_from(ENVIRON), texts),
    junk.filter(lambda config: isinstance(config, dict)),
)
def test_no_environment_makes_it_raise(name, environ, config):
    for each in collisions(name, {"idle": 60.0}, environ, config):
        assert 0 < each.watchdog.seconds < 1e10
        assert str(each)


# --- the one line of log ------------------------------------------------------------------


@pytest.fixture
def anew(monkeypatch):
    """A process in which nothing was told yet."""
    monkeypatch.setattr(facts, "_told", set())
    for name in ENVIRON:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", GATEWAY["ANTHROPIC_BASE_URL"])


def guarded(loop, form, guard, *, times=1):
    """What is told of turns under `guard`."""
    events = Events()

    async def main():
        for _ in range(times):
            source = Script(message(INIT), silence(1), message(RESULT))
            taken = await take(source | guard.replace(observer=events), form)
            assert taken.messages == [INIT, RESULT]
            assert taken.error is None

    loop.run(main)
    return events.of(WindowCollides)


def test_a_window_that_collides_is_told_once(anew, loop, form, caplog):
    """E6: a line of log, and never a warning, which a test of the user's could turn into an error."""
    with caplog.at_level(logging.WARNING, "streamguard"):
        told = guarded(loop, form, idle_guard(180), times=2)
    assert [(each.limit, each.window) for each in told] == [("idle", 180), ("idle", 180)]
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "idle=180 fires before claude recovers by itself" in caplog.text


@pytest.mark.parametrize("guard", [idle_guard(None, turn=600), idle_guard(900)])
def test_a_window_that_leaves_room_is_not_told(anew, loop, form, guard):
    assert guarded(loop, form, guard) == []


def test_a_backend_without_a_watchdog_is_never_told_of(anew):
    assert news_of_collisions("gemini", {"idle": 1}) == []
    assert not os.environ.get("API_TIMEOUT_MS")


def test_qwens_own_watchdog_is_known_and_so_is_what_sets_it():
    (dog,) = facts.watchdogs("qwen", {})
    assert dog.seconds == 240
    (dog,) = facts.watchdogs("qwen", {"QWEN_STREAM_IDLE_TIMEOUT_MS": "60000"})
    assert dog.seconds == 60
