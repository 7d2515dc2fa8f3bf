"""OpenAI, message by message: responses, chats, and the shapes that give them away."""

import pytest

from streamguard.backends import find, openai
from streamguard.backends._openai_errors import pause_in
from streamguard.signals import (
    Failed,
    Liveness,
    Progress,
    SessionOpened,
    TurnEnded,
    Usage,
    WorkFinished,
    WorkStarted,
)
from tests.backends.looks import Model, as_model, kind_named, said_by
from tests.backends.reading import asked, came, empty_ends

PROGRESS = [Progress()]
NOTHING = []


def said(message):
    return said_by(openai, message)


# --- responses ----------------------------------------------------------------------------


def response(kind, number=0, **more):
    return {"type": f"response.{kind}", "sequence_number": number, **more}


def state(kind, status, **more):
    return response(kind, response={"id": "resp_1", "status": status, **more})


def item(kind, what, **more):
    return response(f"output_item.{kind}", item={"type": what, "id": "it_1", **more})


def says(text):
    return {"type": "message", "content": [{"type": "output_text", "text": text}]}


USAGE = {"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 0}}
COUNTS = Usage({"input_tokens": 3, "output_tokens": 1}, "call", "resp_1")
RESPONSES = {
    "a response that runs here": (
        state("created", "in_progress", background=False),
        [SessionOpened("resp_1", resumable=False)],
    ),
    "a response that runs in background": (
        state("created", "queued", background=True),
        [SessionOpened("resp_1")],
    ),
    "it waits": (state("queued", "queued", background=True), [SessionOpened("resp_1")]),
    "it begins": (
        state("in_progress", "in_progress", background=None),
        [SessionOpened("resp_1", resumable=False)],
    ),
    "a response without an id": (response("created"), NOTHING),
    "text": (response("output_text.delta", delta="hi", item_id="it_1"), PROGRESS),
    "reasoning": (response("reasoning_summary_text.delta", delta="hm"), PROGRESS),
    "an event of a new kind": (response("gremlins"), PROGRESS),
    "a function call, which the caller runs": (
        item("added", "function_call", call_id="call_1", name="f"),
        PROGRESS,
    ),
    "all of a function call": (
        item("done", "function_call", call_id="call_1", status="completed"),
        PROGRESS,
    ),
    "a tool search, which either side may run": (item("added", "tool_search_call"), PROGRESS),
    "a message begins": (item("added", "message"), PROGRESS),
    "a search": (
        item("added", "web_search_call", status="in_progress"),
        [WorkStarted("it_1", "web_search", "server")],
    ),
    "a search is done": (
        item("done", "web_search_call", status="completed"),
        [WorkFinished("it_1")],
    ),
    "a search is done, it says": (
        response("web_search_call.completed", item_id="it_1"),
        PROGRESS,
    ),
    "a search goes on": (response("web_search_call.searching", item_id="it_1"), PROGRESS),
    "a call over MCP": (
        item("added", "mcp_call", name="roll", server_label="dice"),
        [WorkStarted("it_1", "roll", "server")],
    ),
    "a call over MCP fails": (
        response("mcp_call.failed", item_id="it_1"),
        PROGRESS,
    ),
    "a call over MCP has failed": (
        item("done", "mcp_call", error="no", status=None),
        [WorkFinished("it_1", error=True)],
    ),
    "code runs and fails": (
        item("done", "code_interpreter_call", status="failed"),
        [WorkFinished("it_1", error=True)],
    ),
    "the end": (
        state("completed", "completed", usage=USAGE),
        [COUNTS, SessionOpened("resp_1"), TurnEnded("success", "completed")],
    ),
    "the end, with an answer": (
        state("completed", "completed", store=False, output=[{"type": "reasoning"}, says("Hi.")]),
        [TurnEnded("success", "completed", answered=True)],
    ),
    "the end, with a call": (
        state("completed", "completed", store=False, output=[{"type": "function_call"}]),
        [TurnEnded("success", "completed", answered=True)],
    ),
    "the end, with nothing said": (
        state("completed", "completed", store=False, output=[{"type": "reasoning"}, says(" ")]),
        [TurnEnded("success", "completed", answered=False)],
    ),
    "the end, of which the output is left out": (
        state("completed", "completed", store=False, output=[]),
        [TurnEnded("success", "completed")],
    ),
    "the end of one that is not stored": (
        state("completed", "completed", store=False),
        [TurnEnded("success", "completed")],
    ),
    "a ceiling": (
        state("incomplete", "incomplete", incomplete_details={"reason": "max_output_tokens"}),
        [TurnEnded("incomplete", "max_output_tokens")],
    ),
    "a cancellation": (state("cancelled", "cancelled"), [TurnEnded("cancelled", "cancelled")]),
    "a failure": (
        state("failed", "failed", error={"code": "server_error", "message": "m"}, usage=USAGE),
        [
            Failed("server", detail="server_error"),
            COUNTS,
            TurnEnded("error", "server_error", retriable=True),
        ],
    ),
    "a failure that stays one": (
        state("failed", "failed", error={"code": "image_too_large"}),
        [Failed("validation", detail="image_too_large"), TurnEnded("error", "image_too_large")],
    ),
    "a failure of no kind": (
        state("failed", "failed", error=None),
        [Failed("unknown"), TurnEnded("error", "failed")],
    ),
    "an error, flat": (
        {"type": "error", "code": "rate_limit_exceeded", "message": "Please try again in 1.5s"},
        [Failed("rate_limit", 1.5, "rate_limit_exceeded")],
    ),
    "an error, nested": (
        {"type": "error", "error": {"type": "insufficient_quota", "code": None}},
        [Failed("permanent", detail="insufficient_quota")],
    ),
    "an error of no kind": ({"type": "error", "message": "oh"}, [Failed("unknown")]),
    "a keep-alive": ({"type": "keepalive", "sequence_number": 7}, [Liveness()]),
}

# --- chats --------------------------------------------------------------------------------


def chunk(*choices, **more):
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": list(choices),
        **more,
    }


def choice(finish=None, index=0, **delta):
    return {"index": index, "delta": delta, "finish_reason": finish}


CALL = {"index": 0, "id": "call_1", "function": {"name": "f", "arguments": ""}}
CHAT_USAGE = {"prompt_tokens": 3, "completion_tokens": 1, "prompt_tokens_details": None}
CHAT_COUNTS = Usage({"prompt_tokens": 3, "completion_tokens": 1}, "call", "chatcmpl-1")
CHATS = {
    "a role, which is no word": (chunk(choice(role="assistant", content="")), NOTHING),
    "a word": (chunk(choice(content="hi")), PROGRESS),
    "a thought, as others send it": (chunk(choice(content="", reasoning="hm")), PROGRESS),
    "a tool call, which the caller runs": (chunk(choice(tool_calls=[CALL])), PROGRESS),
    "a refusal": (chunk(choice(refusal="no")), PROGRESS),
    "a filter's verdict": (chunk(prompt_filter_results=[]), NOTHING),
    "the end": (chunk(choice("stop")), [TurnEnded("success", "stop")]),
    "the end, to call tools": (chunk(choice("tool_calls")), [TurnEnded("success", "tool_calls")]),
    "the end, with the last word": (
        chunk(choice("stop", content="!")),
        [Progress(), TurnEnded("success", "stop")],
    ),
    "a ceiling": (chunk(choice("length")), [TurnEnded("incomplete", "length")]),
    "a filter": (chunk(choice("content_filter")), [TurnEnded("incomplete", "content_filter")]),
    "an error that a gateway tells": (
        chunk(choice("error"), error={"code": 502, "type": "server_error"}),
        [Failed("server", detail="server_error"), TurnEnded("error", "error")],
    ),
    "usage behind the end": (
        chunk(usage=CHAT_USAGE),
        [CHAT_COUNTS],
    ),
    "usage behind the end, in an empty choice": (
        chunk(choice(role="assistant", content=""), usage=CHAT_USAGE),
        [CHAT_COUNTS],
    ),
    "usage beside each word": (
        chunk(choice(content="hi"), usage=CHAT_USAGE),
        [Progress(), CHAT_COUNTS],
    ),
    "two answers, of which one ends": (
        chunk(choice("stop"), choice(index=1, content="hi")),
        [Progress(), TurnEnded("success", "stop")],
    ),
    "an error in the place of choices": (
        {"error": {"type": "overloaded_error", "message": "m"}},
        [Failed("server", detail="overloaded_error")],
    ),
    "the older completions": (
        {"object": "text_completion", "choices": [{"text": "hi", "finish_reason": None}]},
        PROGRESS,
    ),
    "the chat helper around a chunk": (
        {"type": "chunk", "chunk": chunk(choice("stop"))},
        [TurnEnded("success", "stop")],
    ),
    "what the chat helper makes of the last one": (
        {"type": "content.done", "content": "hi"},
        NOTHING,
    ),
    "what it makes of a call": ({"type": "tool_calls.function.arguments.done"}, NOTHING),
}
ALL = RESPONSES | CHATS


@pytest.mark.parametrize("form", [lambda x: x, as_model], ids=["dict", "object"])
@pytest.mark.parametrize(("message", "signals"), list(ALL.values()), ids=list(ALL))
def test_what_a_message_says(message, signals, form):
    """The table that the docstrings promise; dicts and objects alike."""
    assert said(form(message)) == signals


HOSTED = {
    "over MCP": ("mcp_call", {"arguments": '{"n": 6}', "output": "6"}, '{"n": 6}', "6"),
    "over MCP, in vain": ("mcp_call", {"arguments": "{}", "error": "no"}, "{}", "no"),
    "a search": ("web_search_call", {"action": {"query": "q"}}, {"query": "q"}, None),
    "files": ("file_search_call", {"queries": ["q"], "results": [1]}, ["q"], [1]),
    "code": ("code_interpreter_call", {"code": "1", "outputs": [2]}, "1", [2]),
}


@pytest.mark.parametrize(("kind", "more", "input_", "outcome"), HOSTED.values(), ids=HOSTED)
def test_what_a_tool_of_openais_was_asked_is_told_with_what_came_of_it(
    kind, more, input_, outcome
):
    done = said(item("done", kind, status="completed", **more))
    assert [type(signal) for signal in done] == [WorkStarted, WorkFinished]
    assert asked(done) == {"it_1": input_}
    assert came(done) == {"it_1": outcome}
    assert asked(said(item("added", kind, arguments=""))) == {"it_1": None}


EMPTY = {
    "a response": (state("created", "in_progress"), state("completed", "completed", output=[])),
    "a response with a blank message": (
        item("added", "message"),
        state("completed", "completed", output=[says("")]),
    ),
    "a chat": (chunk(choice(role="assistant", content="")), chunk(choice("stop"))),
}
ANSWERS = {
    "a response": (
        response("output_text.delta", delta="hi"),
        state("completed", "completed", output=[]),
    ),
    "a chat": (chunk(choice(content="hi")), chunk(choice("stop")), chunk(usage=CHAT_USAGE)),
    "a chat that calls": (chunk(choice(tool_calls=[CALL])), chunk(choice("tool_calls"))),
}


@pytest.mark.parametrize("messages", EMPTY.values(), ids=EMPTY)
def test_a_success_that_is_empty_is_told(messages):
    assert list(empty_ends(openai, messages)) == [True]


@pytest.mark.parametrize("messages", ANSWERS.values(), ids=ANSWERS)
def test_a_success_that_is_none_is_never_told_to_be_empty(messages):
    assert list(empty_ends(openai, messages)) == [False]


def test_what_a_model_does_not_declare_counts_too():
    """Thoughts and usage of other providers, and whether a response is stored, are extras."""
    thought = Model({"content": None, "role": None}, {"reasoning_content": "hm"})
    thinks = Model({"choices": [Model({"delta": thought, "finish_reason": None})]})
    used = Model({"choices": [], "usage": None}, {"usage": CHAT_USAGE})
    forgotten = Model({"id": "resp_1"}, {"store": False})
    ended = Model({"type": "response.completed", "response": forgotten})
    assert said(thinks) == PROGRESS
    assert said(used) == [Usage({"prompt_tokens": 3, "completion_tokens": 1})]
    assert said(ended) == [TurnEnded("success", "completed")]


@pytest.mark.parametrize(
    ("message", "seconds"),
    [
        ("Rate limit reached for m on tokens. Please try again in 1.898s. Visit ...", 1.898),
        ("Please try again in 20s.", 20),
        ("please try again in 250ms", 0.25),
        ("Please try again in 6m0s.", 360),
        ("Please try again in 1h2m3s", 3723),
        ("Please try again in 7m", 420),
        ("Please try again in a moment", None),
        ("Please try again in ", None),
        ("no", None),
        (None, None),
        (7, None),
    ],
)
def test_the_pause_that_an_error_asks_for_is_in_its_words(message, seconds):
    """P2: inside a stream there is no Retry-After."""
    assert pause_in(message) == seconds


@pytest.mark.parametrize(
    ("code", "error_class"),
    [
        ("server_error", "server"),
        ("rate_limit_exceeded", "rate_limit"),
        ("insufficient_quota", "permanent"),
        ("invalid_api_key", "auth"),
        ("invalid_prompt", "validation"),
        ("context_length_exceeded", "validation"),
        ("vector_store_timeout", "network"),
        ("invalid_image_url", "validation"),
        ("bio_policy", "validation"),
        ("failed_to_download_image", "validation"),
        ("gremlins", "unknown"),
    ],
)
def test_the_class_of_a_failed_response(code, error_class):
    """P1"""
    failed, ended = said(state("failed", "failed", error={"code": code, "message": "m"}))
    assert (failed.error_class, failed.detail) == (error_class, code)
    assert ended.retriable is (error_class in {"server", "rate_limit", "network"})


# --- whose it is --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "ResponseTextDeltaEvent",
        "ResponseCompletedEvent",
        "BetaResponseCompletedEvent",
        "ResponseErrorEvent",
        "ChatCompletionChunk",
        "ChunkEvent",
        "ContentDoneEvent[NoneType]",
        "FunctionToolCallArgumentsDoneEvent",
    ],
)
def test_the_events_of_the_package_are_known(name):
    assert find(kind_named(name, "openai.types.whatever")()).name == "openai"


@pytest.mark.parametrize(
    "name",
    ["Model", "FileObject", "FineTuningJobEvent", "ResponseOutputMessage", "ParsedResponse"],
)
def test_what_is_paged_through_is_no_turn_that_could_be_cut(name):
    """T10: `async for model in client.models.list()` ends, and that is all."""
    assert find(kind_named(name, "openai.types.model")()) is None


@pytest.mark.parametrize(
    "line",
    [
        response("created", response={"id": "r"}),
        response("output_text.delta", 4, delta="hi"),
        {"object": "chat.completion.chunk", "choices": []},
    ],
    ids=["the first event", "any event", "a chunk"],
)
def test_the_json_of_an_event_is_known_by_its_shape(line):
    found = find(line)
    assert (found.name, found.always_ends_turns) == ("openai", True)


@pytest.mark.parametrize(
    "line",
    [
        {"type": "response.created", "event_id": "e", "response": {"id": "r"}},  # Realtime
        {"type": "response.done", "event_id": "e"},
        {"type": "response.created", "sequence_number": True},
        {"type": "response.created", "sequence_number": "1"},
        {"type": "error", "sequence_number": 1, "code": None},
        {"type": "keepalive", "sequence_number": 1},
        {"object": "chat.completion", "choices": []},
        {"object": "chat.completion.chunk", "choices": None},
        {"type": "response"},
    ],
    ids=str,
)
def test_a_dict_of_another_making_stays_unknown(line):
    """S1: a wrong guess would be worse than Progress."""
    assert find(line) is None
