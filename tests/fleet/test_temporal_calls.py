"""What Temporal's refusals mean, each as one line that says what to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

pytest.importorskip("temporalio")
from temporalio.service import RPCError, RPCStatusCode

from streamguard.errors import ConfigError, StoreError
from streamguard.fleet.temporal_calls import NotThereError, bounded


def refused(status: RPCStatusCode, said: str) -> BaseException:
    async def call() -> None:
        raise RPCError(said, status, b"")

    with pytest.raises((StoreError, ConfigError, NotThereError)) as caught:
        asyncio.run(bounded(call(), 1.0))
    return caught.value


@pytest.mark.parametrize(
    ("status", "said", "kind", "words"),
    [
        ("NOT_FOUND", "activity not found for ID: k", NotThereError, "not found"),
        ("FAILED_PRECONDITION", "activity is in terminal state", NotThereError, "terminal"),
        ("NOT_FOUND", "Namespace x is not found.", StoreError, "namespace create"),
        ("UNIMPLEMENTED", "unknown method", StoreError, "Temporal Server 1.32 or newer"),
        ("UNAVAILABLE", "tcp connect error", StoreError, "whether the server runs"),
        ("DEADLINE_EXCEEDED", "Timeout expired", StoreError, "whether the server runs"),
        ("PERMISSION_DENIED", "Request unauthorized.", StoreError, "API key or certificate"),
        ("UNAUTHENTICATED", "no", StoreError, "API key or certificate"),
        ("INVALID_ARGUMENT", "input exceeds length limit", ConfigError, "does not take that"),
        ("RESOURCE_EXHAUSTED", "rps limit", StoreError, "resource_exhausted: rps limit"),
    ],
)
def test_what_a_refusal_means(status, said, kind, words):
    error = refused(RPCStatusCode[status], said)
    assert type(error) is kind
    assert words in str(error)
    assert "\n" not in str(error)


def test_what_the_server_says_is_quoted():
    assert "\x1b" not in str(refused(RPCStatusCode.INTERNAL, "\x1b[31mred\nline" + "x" * 9999))


def test_a_call_that_takes_too_long():
    with pytest.raises(StoreError, match=r"not answered within 0\.01 s"):
        asyncio.run(bounded(asyncio.sleep(60), 0.01))


def test_nothing_of_temporalio_is_imported_before_it_is_used():
    """It takes a third of a second."""
    code = "import sys; from streamguard.fleet import TemporalEngine; sys.exit('temporalio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("version", ["1.32.1", "1.9.0"])
def test_a_library_that_is_too_old(monkeypatch, version):
    from streamguard.fleet import TemporalEngine

    monkeypatch.setattr("temporalio.service.__version__", version)
    with pytest.raises(ConfigError, match=r"too old: pip install 'temporalio>=1\.33'"):
        TemporalEngine(_client())


def _client():
    from temporalio.client import Client

    return asyncio.run(Client.connect("127.0.0.1:1", lazy=True))


def test_a_library_that_is_missing(monkeypatch):
    from streamguard.fleet import TemporalEngine

    monkeypatch.setitem(sys.modules, "temporalio.client", None)
    with pytest.raises(ConfigError, match=r"agent-streamguard\[temporal\]"):
        TemporalEngine(object())
