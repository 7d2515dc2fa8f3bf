"""The schemas of files say what is written and read, and refuse what is not; `tests/evidence` and `tests/runner` check with
them whatever they make.
"""

from __future__ import annotations

import json
import signal
import tomllib
from typing import Any, get_args

import jsonschema
import pytest

from streamguard import ConfigError, from_config
from streamguard.errors import Limit
from streamguard.evidence.files import read_lines
from streamguard.runner.options import Settings
from streamguard.runner.result import Fired, Result, described
from tests.docs.blocks import all_blocks
from tests.docs.file_formats import FILES, SCHEMAS, schema
from tests.docs.recorded import record
from tests.evidence.support import check


def is_refused(name: str, value: object) -> bool:
    try:
        check(name, value)
    except jsonschema.ValidationError:
        return True
    return False


def test_every_schema_is_one_and_has_a_name():
    assert {path.name for path in SCHEMAS.iterdir()} == {f"{name}.schema.json" for name in FILES}
    for name in FILES:
        jsonschema.Draft202012Validator.check_schema(schema(name))
        assert schema(name)["$id"] == f"urn:streamguard:schema:{name}:1"
        assert is_refused(name, [])


# --- streamguard.toml -------------------------------------------------------------------------

GOOD = [
    "[guard]\nidle = 180\n",
    '[guard]\nidle = "3m"\nfirst = "1h30m"\ntools = { Bash = "10m", "*" = 0 }\nrepeats = false\n',
    '[guard]\nidle = "tokens"\nend_on = ["repeats"]\nmode = "warn"\ntotal = "off"\n',
    '[guards.coder]\npreset = "multica"\ncost = 2.5\n',
    '[retry]\ncap = 60\n[retry.idle]\nretries = 2\ndelays = [0, "5s", 15]\n',
    '[breaker]\npause = "500ms"\nescalate_after = false\non_open = "wait"\n[breakers.api]\nprobes = 2\n',
    '[run]\nkill_after = 0\nidle = "15m"\nstdin = "null"\nverbose = true\nbackoff = [0]\n',
    "[timeouts]\nstep = 900000\n[hard_limits]\nstep = 1800000\n",
    '[resume]\nprompt = "Go on."\n',
    "",
]
WRONG = [
    "[guard]\nidel = 3\n",
    "[gaurd]\n",
    "[guard]\nidle = -1\n",
    "[guard]\nidle = true\n",
    '[guard]\nidle = "3 minutes"\n',
    "[guard]\nfirst = 900000\n",  # milliseconds
    "[guard]\nrepeats = 1\n",
    '[guard]\nend_on = ["idle"]\n',
    '[guard]\nmode = "loud"\n',
    '[guards.coder]\npreset = "nobody"\n',
    "[retry.idle]\nretries = -1\n",
    "[retry.idle]\ndelays = []\n",
    "[retry]\nidle = 3\n",
    "[run]\npty = 1\n",
    '[run]\nstdin = "tty"\n',
    "[resume]\nprompt = 3\n",
    "guard = 3\n",
]


def read(text: str, tmp_path: Any) -> None:
    file = tmp_path / "streamguard.toml"
    file.write_text(text, "utf-8")
    from_config(file)


@pytest.mark.parametrize("text", GOOD)
def test_what_can_be_read_is_as_the_schema_says(text, tmp_path):
    read(text, tmp_path)
    check("configuration", tomllib.loads(text))


@pytest.mark.parametrize("text", WRONG)
def test_what_cannot_be_read_is_refused(text, tmp_path):
    with pytest.raises(ConfigError):
        read(text, tmp_path)
    assert is_refused("configuration", tomllib.loads(text))


def test_the_pages_configurations_are_as_the_schema_says():
    for block in all_blocks("toml"):
        if not block.why_not:
            table = tomllib.loads(block.text)
            check("configuration", table.get("tool", {}).get("streamguard", table))


# --- the status file --------------------------------------------------------------------------


def ended(**facts: Any) -> dict[str, Any]:
    outcome, settings = Result(), Settings()
    settings.command = ("claude", "-p")
    for name, value in facts.items():
        setattr(outcome, name, value)
    told = described(outcome, settings, 1, 124)
    return json.loads(json.dumps({**told, "waited_for_limit": 0.0, "began_afresh": False}))


def test_a_runs_end_is_as_the_schema_says():
    """In the three ways in which a run ends; those of real runs are checked where they are read."""
    check("status", ended(why_not="it was not found"))
    check("status", ended(pid=7, status=0, is_dead=True, is_seen=True, passed=3, result="success"))
    fired = Fired("idle", 900.0, 900.001, "'claude' idle for 900 s")
    told = ended(
        pid=7, fired=fired, signals=["TERM", "KILL"], survivors=(8,), status=signal.SIGKILL
    )
    check("status", told)
    check("status", {**told, "not_recorded": 0, "receipt": None})
    assert is_refused("status", {**told, "limit": 3})
    assert is_refused("status", {**told, "exit_code": 256})
    assert is_refused("status", {**told, "else": 1})
    assert is_refused("status", {name: told[name] for name in told if name != "reason"})


# --- evidence ---------------------------------------------------------------------------------


def test_a_recorded_run_is_as_the_schemas_say(tmp_path):
    record(tmp_path)
    (timeout,) = read_lines(*tmp_path.glob("**/timeouts.jsonl"))
    check("timeouts", timeout)
    (receipt,) = tmp_path.glob("**/receipts/*-timeout.json")
    check("receipt", json.loads(receipt.read_text("utf-8")))
    lines = list(read_lines(*tmp_path.glob("**/timeline.jsonl")))
    assert {line["kind"] for line in lines} == {"writer", "counts", "span", "mark"}
    for line in lines:
        check("timeline", line)
        assert is_refused("timeline", {**line, "kind": "dot"})
        assert is_refused("timeline", {name: line[name] for name in line if name != "writer"})
    assert is_refused("timeouts", {**timeout, "limit": "nothing"})


def test_every_limit_may_be_in_the_evidence():
    for about in (schema("timeouts"), schema("receipt")["properties"]["timeout_event"]):
        assert set(about["properties"]["limit"]["enum"]) == set(get_args(Limit))
