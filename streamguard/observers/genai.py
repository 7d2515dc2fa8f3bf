"""The names of OpenTelemetry's conventions for generative AI that are used here, and their version.

They are written out because no package has all of them: `opentelemetry-semantic-conventions` has those of before the
conventions moved into a repository of their own, as deprecated, and none of the metrics of agents. Everything there is
in development; `SCHEMA_URL` says which state of it is meant. Knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

# https://github.com/open-telemetry/semantic-conventions-genai, which has no releases: what its manifest says.
VERSION: Final = "1.42.0-dev"
SCHEMA_URL: Final = f"https://opentelemetry.io/schemas/gen-ai-dev/{VERSION}"

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
AGENT: Final = "gen_ai.agent.name"
CONVERSATION: Final = "gen_ai.conversation.id"
TOOL: Final = "gen_ai.tool.name"
TOOL_CALL: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105 - a token of text
ERROR: Final = "error.type"

# Who serves the model of a backend, as the conventions call it. Frameworks take any.
PROVIDERS: Final[Mapping[str, str]] = {
    "anthropic": "anthropic",
    "claude": "anthropic",
    "codex": "openai",
    "openai": "openai",
    "gemini": "gcp.gen_ai",
    "google_genai": "gcp.gen_ai",
}

INVOKE_AGENT: Final = "invoke_agent"
EXECUTE_TOOL: Final = "execute_tool"
# What runs where the model does: the provider's own search, say.
EXTENSION: Final = "extension"
# What the conventions for MCP call a tool that answered with an error.
TOOL_ERROR: Final = "tool_error"


class Histogram(NamedTuple):
    """A metric: its unit, what it says, and where its buckets end."""

    unit: str
    text: str
    bounds: tuple[float, ...]


def _doubling(first: float, times: int) -> tuple[float, ...]:
    return tuple(round(first * 2**i, 2) for i in range(times))


AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"
INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
TOKENS: Final = "gen_ai.client.token.usage"
TOOL_DURATION: Final = "gen_ai.execute_tool.duration"

HISTOGRAMS: Final[Mapping[str, Histogram]] = {
    AGENT_DURATION: Histogram("s", "How long an agent worked.", _doubling(0.1, 13)),
    TOOL_CALLS: Histogram("{tool_call}", "Tool calls of one invocation.", _doubling(1, 8)),
    INFERENCE_CALLS: Histogram(
        "{inference_call}", "Calls of the model in one invocation.", _doubling(1, 8)
    ),
    TOKENS: Histogram("{token}", "Tokens used.", tuple(4**i for i in range(14))),
    TOOL_DURATION: Histogram("s", "How long a tool worked.", _doubling(0.01, 14)),
}
