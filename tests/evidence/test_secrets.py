"""What counts as a secret, and what does not (E3)."""

from __future__ import annotations

import time

import pytest

from streamguard.evidence.messages import Rendering
from streamguard.evidence.secrets import REDACTED, Redaction, is_secret

BEARER = "Bearer " + "abcDEF123456"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("sk-ant-api03-AAAAbbbbCCCC1234", REDACTED),
        ("use sk-proj-AAAAbbbbCCCC now", f"use {REDACTED} now"),
        ("ghp_abcdefghijklmnopqrst", REDACTED),
        ("github_pat_11ABCDEFG0abcdefghijk", REDACTED),
        ("glpat-ABCDEFGHIJKLMNOPQRST", REDACTED),
        ("xoxb-123456789012-abcdef", REDACTED),
        ("AKIAIOSFODNN7EXAMPLE", REDACTED),
        ("sk_live_abcdefgh12345678", REDACTED),
        ("hf_abcdefghijklmnopqrstuvw", REDACTED),
        ("AIzaSyA1234567890abcdefghijklmnopqrstu", REDACTED),
        (f"jwt {JWT}.", f"jwt {REDACTED}."),
        (f"Authorization: {BEARER}", f"Authorization: Bearer {REDACTED}"),
        (f"x{KEY}y", f"x{REDACTED}y"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEow", REDACTED),
        ("https://me:hunter22@host/x", f"https://me:{REDACTED}@host/x"),
        ("export FOO_TOKEN=abc-def-ghi", f"export FOO_TOKEN={REDACTED}"),
        ('{"api_key": "abc-def-ghi"}', f'{{"api_key": "{REDACTED}"}}'),
        ('"{\\"password\\": \\"abc-def\\"}"', f'"{{\\"password\\": \\"{REDACTED}\\"}}"'),
        ("db_password: 'correct-horse'", f"db_password: '{REDACTED}'"),
    ],
)
def test_secrets_go(text, left):
    assert Redaction(environment={})(text) == left


@pytest.mark.parametrize(
    "text",
    [
        "total_tokens: 12345678",
        "the token is the word",
        "skipped sk- and risk-averse people",
        "https://example.org/a:b@c",
        "a basic thing, and a bearer of news",
        "key = value",
        "max_tokens=4096",
        "commit 5554638a9f0e1d2c3b4a5968778695a4b3c2d1e0",
    ],
)
def test_what_is_none_stays(text):
    assert Redaction(environment={})(text) == text


@pytest.mark.parametrize(
    "name",
    [
        *("api_key", "apiKey", "x-api-key", "ANTHROPIC_API_KEY", "private_key"),
        *("password", "dbPassword", "Authorization", "Cookie", "AWS_SECRET_ACCESS_KEY"),
        *("client_secret", "refresh_token", "token"),
    ],
)
def test_names_of_secrets(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    ["input_tokens", "key", "monkey", "session_id", "author", "max_tokens", "keyboard", "k" * 100],
)
def test_names_of_other_things(name):
    assert not is_secret(name)


def test_the_environments_secrets_go_wherever_they_are():
    redact = Redaction(environment={"MY_API_KEY": "plain-looking", "HOME": "/home/me-myself"})
    assert redact("a plain-looking b /home/me-myself") == f"a {REDACTED} b /home/me-myself"


def test_the_users_own_rule_comes_last():
    redact = Redaction(lambda text: text.replace("ACME", "***"), environment={})
    assert redact("ACME ghp_abcdefghijklmnopqrst") == f"*** {REDACTED}"


def test_no_half_of_a_secret_is_left_where_a_text_is_cut():
    render = Rendering(Redaction(environment={}), lambda: None)
    for before in range(8150, 8200):
        text = "x" * before + " sk-ant-api03-AAAAbbbbCCCC1234" + "y" * 200
        assert "sk-" not in render(text)


def test_a_secret_as_the_name_of_a_field():
    render = Rendering(Redaction(environment={}), lambda: None)
    assert render({"sk-ant-api03-AAAAbbbbCCCC1234": 1}) == {REDACTED: 1}


def test_a_hidden_field_is_hidden_with_all_that_is_in_it():
    render = Rendering(Redaction(environment={}), lambda: None)
    said = {"credentials": {"user": "a"}, "token": {"id": 5, "text": "word"}, "cookie": None}
    assert render({**said, "password": "x", "secret": True}) == {
        "credentials": REDACTED,
        "token": {"id": 5, "text": "word"},
        "cookie": None,
        "password": REDACTED,
        "secret": True,
    }


@pytest.mark.parametrize(
    "text", ["token=" * 1400, "a_token" * 1200, "://" * 2800, "Bearer " * 1200]
)
def test_no_text_takes_the_patterns_long(text):
    """E3: a pattern that backtracks would hold the interpreter, and with it every loop."""
    redact = Redaction(environment={})
    redact(text)
    best = min(_seconds(redact, text) for _ in range(5))
    assert best < 0.1  # 100 times what it takes; exponential ones take minutes


def _seconds(redact, text):
    began = time.thread_time()
    redact(text)
    return time.thread_time() - began
