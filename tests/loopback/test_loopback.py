"""The model server, asked by plain sockets: what others' tests rest upon."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.loopback.script import (
    LAST,
    cut,
    drip,
    end,
    error,
    pings,
    reset,
    rest,
    stall,
    status,
    text,
    tool,
)
from tests.loopback.server import PATIENCE, ModelServer

# The path, the body of a streaming request, and the events of `text("Hello, ", "world")`.
APIS = {
    "anthropic": ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}]}, 7),
    "responses": ("/v1/responses", {"input": "Hi"}, 10),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, 5),
    "gemini": (
        "/v1beta/models/g:streamGenerateContent",
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        2,
    ),
}
PING = {"anthropic": b"event: ping", "responses": b": ", "chat": b": ", "gemini": b": "}


@pytest.fixture
def server():
    with ModelServer() as server:
        yield server


@pytest.fixture(params=APIS)
def api(request):
    return request.param


class Client:
    """One connection; `ask` sends a request, `line` and `rest` read its answer."""

    def __init__(self, server):
        self._connection = http.client.HTTPConnection(
            urlsplit(server.url).netloc, timeout=PATIENCE
        )

    def send(self, method, path, body=None):
        self._connection.request(method, path, None if body is None else json.dumps(body))

    def ask(self, method, path, body=None):
        self.send(method, path, body)
        return self.answer()

    def stream(self, api):
        path, body, _ = APIS[api]
        return self.ask("POST", path, {"stream": True, **body})

    def answer(self):
        self.response = self._connection.getresponse()
        return self.response

    def frames(self, many):
        """So many events: what is between blank lines."""
        taken = []
        while len(taken) < many:
            frame = b""
            while (line := self.response.readline()) not in (b"\n", b""):
                frame += line
            taken.append(frame)
        return taken

    def close(self):
        self._connection.close()


@pytest.fixture
def client(server):
    with closing(Client(server)) as client:
        yield client


def data_of(body):
    lines = [line.removeprefix(b"data: ") for line in body.splitlines() if line[:5] == b"data:"]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


def test_a_turn_that_goes_well(server, client, api):
    server.script(text("Hello, ", "world"), text("Again"))
    first = client.stream(api)
    assert first.status == 200
    body = first.read()
    assert len(body.split(b"\n\n")) - 1 == APIS[api][2]
    assert b"Hello, " in body
    assert b"Again" in client.stream(api).read()  # on the same connection
    assert [request.ended for request in server.requests] == ["complete"] * 2
    assert server.requests[0].history == [("user", "Hi")]


def test_a_tool_call_with_its_id_and_input(server, client, api):
    server.script(text("Look: ") + tool("Bash", {"command": "ls"}, id="toolu_mine"))
    said = json.dumps(data_of(client.stream(api).read()))
    assert "Bash" in said
    assert "command" in said
    assert "toolu_mine" in said


@pytest.mark.parametrize("whole", ["anthropic", "responses", "chat", "gemini"])
def test_all_of_it_at_once(server, client, whole):
    server.script(text("Hello, ", "world") + tool("Bash", {"command": "ls"}))
    path, body, _ = APIS[whole]
    path = path.replace("streamGenerateContent", "generateContent")
    answer = json.loads(client.ask("POST", path, body).read())
    said = json.dumps(answer)
    assert "Bash" in said
    assert "Hello, " in said


def test_tokens_are_counted_beside_the_script(server, client):
    messages = [{"role": "user", "content": "Hi"}]
    answer = client.ask("POST", "/v1/messages/count_tokens", {"messages": messages})
    assert json.loads(answer.read()) == {"input_tokens": 10}
    assert server.requests == []


def test_a_stall_before_the_first_byte(server, client, api):
    server.script(text("Hello") | stall())
    path, body, _ = APIS[api]
    client.send("POST", path, {"stream": True, **body})
    server.until(lambda: server.stalled)
    server.release()
    assert b"Hello" in client.answer().read()


@pytest.mark.parametrize("after", [0, 1, LAST])
def test_a_stall_after_some_events(server, client, api, after):
    server.script(text("Hello, ", "world") | stall(after=after))
    many = min(after, APIS[api][2])
    answer = client.stream(api)
    assert all(client.frames(many))
    server.until(lambda: server.stalled)
    server.release()
    assert len(answer.read().split(b"\n\n")) - 1 == APIS[api][2] - many
    assert server.requests[0].ended == "complete"


def test_a_client_that_leaves_a_stall_is_noticed(server, client, api):
    server.script(text("Hello") | stall(after=1))
    client.stream(api)
    client.frames(1)
    server.until(lambda: server.stalled)
    client.close()
    client.response.close()
    server.until(lambda: server.requests[0].ended == "left")


def test_pings_for_ever(server, client, api):
    server.script(text("Hello, ", "world") | pings(after=1, every=0.001))
    client.stream(api)
    first, *more = client.frames(20)
    assert not first.startswith(PING[api])
    assert all(each.startswith(PING[api]) for each in more)
    assert server.requests[0].ended == ""


def test_a_reset(server, client, api):
    server.script(text("Hello") | reset(after=1), text("Hello") | reset())
    answer = client.stream(api)
    with pytest.raises(ConnectionResetError):
        answer.read()
    client.close()
    with pytest.raises(ConnectionResetError):
        client.stream(api)
    server.until(lambda: [each.ended for each in server.requests] == ["reset", "reset"])


def test_a_cut_and_an_early_end(server, client, api):
    server.script(text("Hello") | end(after=1), text("Hello") | cut(after=1))
    assert len(client.stream(api).read().split(b"\n\n")) == 2
    answer = client.stream(api)
    with pytest.raises(http.client.IncompleteRead):
        answer.read()


def test_an_error_in_the_stream(server, client, api):
    server.script(text("Hello") | error(after=1, kind="overloaded_error"))
    said = data_of(client.stream(api).read())
    assert "overloaded_error" in json.dumps(said[1])
    assert len(said) == 2


@pytest.mark.parametrize(
    ("code", "word"), [(429, "rate_limit_error"), (529, "overloaded_error"), (500, "api_error")]
)
def test_an_http_error(server, client, code, word):
    server.script(status(code, retry_after=2), text("Hello"))
    answer = client.stream("anthropic")
    assert (answer.status, answer.getheader("retry-after")) == (code, "2")
    assert json.loads(answer.read())["error"]["type"] == word
    assert b"Hello" in client.stream("anthropic").read()


def test_a_drip(server, client):
    server.script(text("Hello") | drip(0.001))
    assert b"Hello" in client.stream("anthropic").read()


def test_the_rest_of_a_background_response(server, client):
    """The events come again as they were, from where the client says; that may stall, too."""
    server.script(text(*"abcdef") | cut(after=5), rest() | cut(after=2))
    body = {"input": "Hi", "stream": True, "background": True}
    client.ask("POST", "/v1/responses", body)
    first = data_of(b"\n".join(client.frames(5)))
    client.close()
    id_ = first[0]["response"]["id"]
    where = f"/v1/responses/{id_}?stream=true&starting_after="
    client.ask("GET", where + "4")
    second = data_of(b"\n".join(client.frames(2)))
    client.close()
    third = data_of(client.ask("GET", where + "6").read())
    numbers = [event["sequence_number"] for event in first + second + third]
    assert numbers == list(range(len(numbers)))
    assert third[-1]["type"] == "response.completed"
    whole = json.loads(client.ask("GET", f"/v1/responses/{id_}").read())
    assert whole["output"][0]["content"][0]["text"] == "abcdef"
    cancelled = client.ask("POST", f"/v1/responses/{id_}/cancel")
    assert json.loads(cancelled.read())["status"] == "cancelled"


def test_scripts_by_conversation_and_for_ever(server, client):
    server.script(text("for others"), when=lambda request: request.prompt != "Hi")
    server.script(forever=text("for Hi"))
    for _ in range(2):
        assert b"for Hi" in client.stream("chat").read()


def test_what_is_none_of_the_scripts():
    with (
        ModelServer(aside=lambda request: not request.offers_tools) as server,
        closing(Client(server)) as client,
    ):
        assert b"An aside." in client.stream("anthropic").read()
        assert client.ask("HEAD", "/").status == 404
        client.response.read()
        assert client.ask("GET", "/v1/models").status == 404
        assert (len(server.asides), len(server.others), server.requests) == (1, 2, [])


def test_a_client_that_speaks_no_http_is_hung_up_on(server, client):
    """Such as one that begins with TLS."""
    port = urlsplit(server.url).port
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as other:
        other.sendall(b"\x16\x03\x01 no request \r\n\r\n")
        assert other.recv(1) == b""
    server.script(text("Hello"))
    assert b"Hello" in client.stream("chat").read()


def test_what_the_script_does_not_answer_fails_the_test():
    with pytest.raises(AssertionError, match="does not answer"), ModelServer() as server:
        with closing(Client(server)) as client:
            assert client.stream("chat").status == 400


def test_leaving_ends_what_is_stalled():
    with ModelServer() as server:
        server.script(text("Hello") | stall(after=1))
        client = Client(server)
        answer = client.stream("anthropic")
        server.until(lambda: server.stalled)
    with closing(client), pytest.raises((http.client.IncompleteRead, ConnectionResetError)):
        answer.read()
    answer.close()
    assert not [each for each in threading.enumerate() if each.name == "model server"]


def test_histories_read_alike(server, client):
    """What was called and what came of it, in each API's own shape."""
    server.script(forever=text("ok"))
    call = {"id": "c1", "name": "Bash", "input": {"command": "ls"}}
    function = {"name": "Bash", "arguments": '{"command": "ls"}'}
    bodies = {
        "anthropic": {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "Go"}]},
                {"role": "assistant", "content": [{"type": "tool_use", **call}]},
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "x"}],
                },
            ]
        },
        "responses": {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Go"}]},
                {"type": "function_call", "call_id": "c1", **function},
                {"type": "function_call_output", "call_id": "c1", "output": "x"},
            ]
        },
        "chat": {
            "messages": [
                {"role": "user", "content": "Go"},
                {"role": "assistant", "tool_calls": [{"id": "c1", "function": function}]},
                {"role": "tool", "tool_call_id": "c1", "content": "x"},
            ]
        },
        "gemini": {
            "contents": [
                {"role": "user", "parts": [{"text": "Go"}]},
                {
                    "role": "model",
                    "parts": [
                        {"functionCall": {"id": "c1", "name": "Bash", "args": call["input"]}}
                    ],
                },
                {
                    "role": "user",
                    "parts": [{"functionResponse": {"id": "c1", "response": {"output": "x"}}}],
                },
            ]
        },
    }
    for api, body in bodies.items():
        client.ask("POST", APIS[api][0], body).read()
        (_, asked), (_, called), (_, result) = server.requests[-1].history
        assert asked == "Go"
        assert called == '[call c1 Bash {"command": "ls"}]'
        assert result.startswith("[result c1 ")
        assert "x" in result
