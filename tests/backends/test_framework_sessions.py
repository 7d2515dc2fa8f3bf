"""Sessions of langgraph, google_adk and pydantic_ai: what is refused, without their packages."""

import subprocess
import sys

import pytest

from streamguard.backends import google_adk, langgraph, pydantic_ai
from streamguard.errors import ConfigError

THREAD = {"configurable": {"thread_id": "7"}}


class Graph:
    checkpointer = None


@pytest.mark.parametrize("config", [{}, {"configurable": {}}, {"configurable": {"thread_id": ""}}])
def test_a_graph_is_gone_on_with_by_its_thread(config):
    with pytest.raises(ConfigError, match="thread_id"):
        langgraph.session(Graph(), config, prompt="hi")


def test_a_graph_without_checkpoints_cannot_be_gone_on_with():
    with pytest.raises(ConfigError, match="checkpointer"):
        langgraph.session(Graph(), THREAD, prompt="hi")


def test_an_agent_is_not_a_runner():
    with pytest.raises(ConfigError, match="Runner"):
        google_adk.session(object(), user_id="u", session_id="s", prompt="hi")


def test_a_model_is_not_an_agent():
    with pytest.raises(ConfigError, match="run_stream_events"):
        pydantic_ai.session(object(), prompt="hi")


@pytest.mark.parametrize("name", ["google_adk", "langgraph", "pydantic_ai"])
def test_who_only_reads_pays_for_no_session(name):
    """S1: nor for any SDK."""
    code = (
        f"import sys, streamguard.backends.{name} as backend; backend.read(None);"
        "roots = {module.partition('.')[0] for module in sys.modules};"
        "assert not roots & {'google', 'langgraph', 'langchain_core', 'pydantic_ai', 'anyio'};"
        "assert 'streamguard.resume' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True
    )
    assert done.stderr == ""
