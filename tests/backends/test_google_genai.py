"""Gemini's API, chunk by chunk: objects as google-genai makes them, and the API's own lines."""

import pytest
from hypothesis import given

from streamguard.backends import find, google_genai, resolve
from streamguard.signals import Failed, Progress, TurnEnded, Usage
from tests.backends.reading import PROGRESS, empty_ends, garbage, is_found_or_not, is_well_made
from tests.backends.reading import said as said_by


def said(message):
    return said_by(google_genai, message)


class FinishReason:
    """An enum's member, as the SDK has it."""

    def __init__(self, value):
        self.value = value


class Thing:
    def __init__(self, **fields):
        vars(self).update(fields)


def answer(*parts, reason=None):
    finish = None if reason is None else FinishReason(reason)
    return Thing(content=Thing(parts=list(parts), role="model"), finish_reason=finish)


def chunk(*candidates, usage=None, feedback=None):
    cls = type("GenerateContentResponse", (Thing,), {"__module__": "google.genai.types"})
    return cls(candidates=list(candidates), usage_metadata=usage, prompt_feedback=feedback)


TEXT = Thing(text="sun", function_call=None)
CALL = Thing(text=None, function_call=Thing(id=None, name="weather", args={}))
COUNTS = Thing(prompt_token_count=3, total_token_count=5, prompt_tokens_details=None)
COUNTED = Usage(
    {"prompt_token_count": 3, "total_token_count": 5, "input_tokens": 3, "total_tokens": 5}, "turn"
)
EMPTY = Thing(text="", thought_signature=b"x", function_call=None)

CHUNKS = {
    "text": (chunk(answer(TEXT)), PROGRESS),
    "text and counts": (chunk(answer(TEXT), usage=COUNTS), [COUNTED, Progress()]),
    "a call, which the caller runs": (chunk(answer(CALL)), PROGRESS),
    "a chunk with nothing in it": (chunk(answer(EMPTY)), []),
    "the end, in the same chunk as the answer": (
        chunk(answer(TEXT, reason="STOP")),
        [TurnEnded("success", "STOP", answered=True)],
    ),
    "the end, behind the answer": (
        chunk(answer(EMPTY, reason="STOP")),
        [TurnEnded("success", "STOP")],
    ),
    "the end, and counts": (
        chunk(answer(reason="STOP"), usage=COUNTS),
        [COUNTED, TurnEnded("success", "STOP")],
    ),
    "a call, and the end": (
        chunk(answer(CALL, reason="STOP")),
        [TurnEnded("success", "STOP", answered=True)],
    ),
    "counts alone, after the end": (chunk(usage=COUNTS), [COUNTED]),
    "too long": (
        chunk(answer(reason="MAX_TOKENS")),
        [TurnEnded("incomplete", "MAX_TOKENS")],
    ),
    "a refusal": (
        chunk(answer(reason="SAFETY")),
        [Failed("validation", detail="SAFETY"), TurnEnded("error", "SAFETY")],
    ),
    "a slip of the model's": (
        chunk(answer(reason="MALFORMED_FUNCTION_CALL")),
        [
            Failed("server", detail="MALFORMED_FUNCTION_CALL"),
            TurnEnded("error", "MALFORMED_FUNCTION_CALL", retriable=True),
        ],
    ),
    "any other end": (
        chunk(answer(reason="OTHER")),
        [Failed("unknown", detail="OTHER"), TurnEnded("error", "OTHER")],
    ),
    "no reason yet": (chunk(answer(TEXT, reason="FINISH_REASON_UNSPECIFIED")), PROGRESS),
    "one of two has finished": (chunk(answer(reason="STOP"), answer(TEXT)), PROGRESS),
    "both have": (
        chunk(answer(reason="STOP"), answer(reason="STOP")),
        [TurnEnded("success", "STOP")],
    ),
    "a prompt that is blocked": (
        chunk(feedback=Thing(block_reason=FinishReason("PROHIBITED_CONTENT"))),
        [
            Failed("validation", detail="PROHIBITED_CONTENT"),
            TurnEnded("error", "PROHIBITED_CONTENT"),
        ],
    ),
    "a line": (
        {"candidates": [{"content": {"parts": [{"text": "x"}]}}], "modelVersion": "m"},
        PROGRESS,
    ),
    "the last line": (
        {
            "candidates": [{"content": {"role": "model"}, "finishReason": "STOP", "index": 0}],
            "usageMetadata": {"promptTokenCount": 3, "promptTokensDetails": [{"tokenCount": 3}]},
            "responseId": "r",
        },
        [
            Usage({"promptTokenCount": 3, "input_tokens": 3}, "call", "r"),
            TurnEnded("success", "STOP"),
        ],
    ),
    "a line that blocks": (
        {"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m"},
        [Failed("validation", detail="SAFETY"), TurnEnded("error", "SAFETY")],
    ),
}


@pytest.mark.parametrize(("message", "signals"), CHUNKS.values(), ids=CHUNKS)
def test_a_chunk_says(message, signals):
    assert said(message) == signals


def test_what_a_call_has_used_so_far_is_told_in_everybodys_names():
    """What the cache had is part of the prompt; thoughts are not part of the answer."""
    counts = {"promptTokenCount": 9, "cachedContentTokenCount": 4, "toolUsePromptTokenCount": 1}
    counts |= {"candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 15}
    line = {"candidates": [], "usageMetadata": counts, "responseId": "r"}
    ours = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    assert said(line) == [Usage({**counts, **ours}, "call", "r")]


def test_an_answer_that_is_none_is_told_from_others():
    empty = [chunk(answer(EMPTY)), chunk(answer(reason="STOP"), usage=COUNTS)]
    assert list(empty_ends(resolve("google_genai"), empty)) == [True]
    for text in ([chunk(answer(TEXT, reason="STOP"))], [chunk(answer(TEXT)), *empty]):
        assert list(empty_ends(resolve("google_genai"), text)) == [False]


@pytest.mark.parametrize("message", [message for message, _ in CHUNKS.values()], ids=CHUNKS)
def test_every_chunk_is_known(message):
    """S1, T10: and an answer without a finish is a cut one."""
    backend = find(message)
    assert (backend.name, backend.always_ends_turns) == ("google_genai", True)


def test_where_the_sdk_calls_functions_itself_a_finished_answer_is_no_end():
    """The SDK asks the model again within the same stream."""
    read = google_genai.read_automatic_functions
    assert read(chunk(answer(CALL, reason="STOP"), usage=COUNTS)) == (COUNTED, Progress())
    assert read(chunk(answer(TEXT))) is None
    assert resolve(read).always_ends_turns is False


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("google.genai.types", "LiveServerMessage"),
        ("google.genai._interactions.types", "InteractionSSEEvent"),
        ("google.cloud.aiplatform", "GenerateContentResponse"),
        ("google", "GenerateContentResponse"),
        ("googles.genai", "GenerateContentResponse"),
    ],
)
def test_other_streams_of_google_are_not_its(module, name):
    """S1: they end otherwise, so they would look cut."""
    assert find(type(name, (), {"__module__": module})()) is None


@pytest.mark.parametrize(
    "line",
    [
        {"candidates": [{"name": "Ada"}, {"name": "Bob"}]},
        {"candidates": 3, "modelVersion": "m"},
        {"usageMetadata": {}, "responseId": "r"},
    ],
)
def test_a_dict_of_a_users_own_is_not_its(line):
    """S1"""
    assert find(line) is None


KEYS = [
    *("candidates", "content", "parts", "finish_reason", "finishReason", "usage_metadata"),
    *("usageMetadata", "prompt_feedback", "promptFeedback", "block_reason", "value", "type"),
    *("modelVersion", "responseId"),
]
WORDS = ["STOP", "MAX_TOKENS", "SAFETY", "OTHER", "429", "x" * 300]


@given(garbage(KEYS, WORDS))
def test_no_message_makes_the_reader_raise(message):
    """S2"""
    assert all(is_well_made(signal) for signal in said(message))
    google_genai.read_automatic_functions(message)
    assert is_found_or_not(find(message))
