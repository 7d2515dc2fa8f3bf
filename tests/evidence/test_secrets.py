"""What counts as a secret, and what does not (E3)."""

from __future__ import annotations

import json
import time

import pytest

from streamguard.evidence.rendering import Rendering
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
        ("https://abcdefghijklmnop1234@host/x", f"https://{REDACTED}@host/x"),
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


@pytest.mark.parametrize("length", [600, 900, 5000])
def test_nothing_is_left_of_a_long_value_where_a_text_is_cut(length):
    value = "".join(f"{number:08}" for number in range(length // 8))
    render = Rendering(Redaction(environment={"BIG_TOKEN": value}), lambda: None)
    for before in (7000, 7900, 8100, 8190):
        said = render("x" * before + value + "y" * 200)
        assert "00000001" not in said
        assert REDACTED in said or before > 8180


def test_the_environments_secrets_go_as_they_are_written_within_json():
    redact = Redaction(environment={"MY_TOKEN": 'ab"cd\\efgh/ij'})
    assert redact(json.dumps({"a": 'ab"cd\\efgh/ij'})) == f'{{"a": "{REDACTED}"}}'


KEY_FILE = """-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED

MIIEpAIBAAKCAQEA7bq3mG1p0ZsT
c2VjcmV0cw==
-----END RSA PRIVATE KEY-----"""


def test_a_private_key_of_which_each_line_comes_by_itself():
    render = Rendering(Redaction(environment={}), lambda: None)
    said = [render(line) for line in ["cat key", *KEY_FILE.splitlines(), "word", "MIIE"]]
    assert said == ["cat key", *[REDACTED] * 6, "word", "MIIE"]


def test_what_is_no_part_of_a_key_ends_it():
    render = Rendering(Redaction(environment={}), lambda: None)
    begins, *_ = KEY_FILE.splitlines()
    assert render(begins) == REDACTED
    assert render("another process says something") == "another process says something"
    assert render("word") == "word"
    assert render(begins) == REDACTED
    assert render({"text": "word"}) == {"text": "word"}
    assert render("word") == "word"


@pytest.mark.parametrize("name", ["sk-ant-api03-AAAAbbbbCCCC1234", "AKIAABCDEFGHIJKLMNOP"])
def test_a_secret_as_the_name_of_a_field(name):
    render = Rendering(Redaction(environment={}), lambda: None)
    assert render({name: 1, "name": 2}) == {REDACTED: 1, "name": 2}


def test_a_hidden_field_is_hidden_with_all_that_is_in_it():
    render = Rendering(Redaction(environment={}), lambda: None)
    said = {"credentials": {"user": "a"}, "token": {"id": 5, "text": "word"}, "cookie": None}
    assert render({"token": ["abc"]}) == {"token": REDACTED}
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
