"""`streamguard doctor`: what it finds, and what it calls wrong."""

from __future__ import annotations

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from streamguard.backends import facts
from streamguard.cli import doctor, extras, main, namesakes


@pytest.fixture(autouse=True)
def nothing_is_here(tmp_path, monkeypatch):
    """No configuration, no backend and no namesake but what a test puts there."""
    for name in (
        *(name for name in os.environ if name.startswith("STREAMGUARD_")),
        "ANTHROPIC_BASE_URL",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(facts, "installed", lambda name: facts.Installed())
    monkeypatch.setattr(facts, "command_here", lambda name: facts.Installed())
    monkeypatch.setattr(namesakes, "namesakes", lambda: ())


@pytest.fixture
def diagnosis(capsys):
    """Findings by name, or by their text where they have none; and the exit code."""

    def run(*words):
        code = doctor.main(["--json", *words])
        findings = json.loads(capsys.readouterr().out)
        return code, {found["name"] or found["text"]: found for found in findings}

    return run


def test_a_machine_like_this_has_nothing_to_mend(diagnosis, capsys):
    code, found = diagnosis()
    assert code == 0
    assert found["Python"]["state"] == "ok"
    assert found["pidfd"]["state"] == ("ok" if doctor.has_pidfd() else "note")
    assert found["anyio"]["state"] == "ok"
    assert "claude" in found["not installed"]["text"]
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.endswith("Nothing to mend.\n")


def test_a_kill_switch_that_may_be_a_slip_is_wrong_s1_18(diagnosis, monkeypatch, caplog):
    """S1-18: it is on, and whoever looks is told what it is read as."""
    monkeypatch.setenv("STREAMGUARD_MODE", "wran")
    code, found = diagnosis()
    assert code == 1
    assert "did you mean 'warn'?" in found["STREAMGUARD_MODE"]["text"]
    assert caplog.text == ""  # it is said here, once
    monkeypatch.setenv("STREAMGUARD_MODE", "true")
    assert diagnosis()[0] == 0


def test_a_duration_in_the_environment_s4_01(diagnosis, monkeypatch):
    monkeypatch.setenv("STREAMGUARD_IDLE", "5m")
    _, found = diagnosis()
    assert "guard.idle = 300 s environment variable STREAMGUARD_IDLE" in {
        " ".join(name.split()) for name in found
    }


def test_what_is_not_there_is_no_fault(diagnosis, monkeypatch):
    monkeypatch.delattr(doctor.os, "pidfd_open")
    monkeypatch.delattr(doctor.os, "openpty")
    code, found = diagnosis()
    assert code == 0
    assert found["pidfd"]["state"] == found["PTY"]["state"] == "note"


@pytest.mark.parametrize(("version", "code"), [("0.2.110", 1), ("0.2.111", 0), ("0.3.0rc1", 0)])
def test_a_backend_that_is_too_old_is_wrong(diagnosis, monkeypatch, version, code):
    monkeypatch.setattr(
        facts, "installed", lambda name: facts.Installed(version if name == "claude" else None)
    )
    got, found = diagnosis("--verbose")
    assert got == code
    assert version in found["claude"]["text"]
    assert ("upgrade it" in found["claude"]["text"]) == bool(code)
    assert any("query(session_id=...)" in text for text in found)  # its known limits
    assert "retry.idle.delays = 0, 5, 15 s  default" in found


def test_a_window_that_forestalls_a_backends_own_recovery_is_told(
    diagnosis, monkeypatch, tmp_path
):
    (tmp_path / "streamguard.toml").write_text('[guard]\nidle = "3m"\n')
    monkeypatch.setattr(
        facts, "installed", lambda name: facts.Installed("9.9" if name == "claude" else None)
    )
    code, found = diagnosis()
    assert code == 0  # it may be wanted
    assert any(text.startswith("idle=180 fires before claude recovers") for text in found)
    assert any(text.startswith("guard.idle = 180 s  /") for text in found)


def test_a_presets_values_are_told_with_their_origin(diagnosis, tmp_path):
    """S3-01 to 04: which limit is whose."""
    (tmp_path / "streamguard.toml").write_text('[run]\npreset = "claude-print"\n')
    _, found = diagnosis()
    (told,) = (text for text in found if text.startswith("run.first_json = 90 s"))
    assert told.endswith("streamguard.toml:2, preset claude-print")


def test_a_configuration_that_cannot_be_used_is_wrong(diagnosis, tmp_path):
    (tmp_path / "streamguard.toml").write_text("[guard]\nidel = 3\n")
    code, found = diagnosis()
    assert code == 1
    assert any("did you mean 'idle'?" in text for text in found)


def test_a_configuration_that_is_not_trusted_is_noted(diagnosis, tmp_path):
    (tmp_path / "streamguard.toml").write_text("[guard]\nidle = 3\n")
    (tmp_path / "streamguard.toml").chmod(0o666)
    code, found = diagnosis()
    assert code == 0
    assert any("streamguard.toml is not used: everybody may write to it" in text for text in found)
    assert not any(text.startswith("guard.idle") for text in found)


@pytest.mark.parametrize("name", ["IDLE", "TOTAL", "FIRST", "PRESET"])
def test_a_variable_that_cannot_be_used_is_wrong_s4_01(diagnosis, monkeypatch, name):
    """S4-01: and no traceback."""
    monkeypatch.setenv(f"STREAMGUARD_{name}", "5x")
    code, found = diagnosis()
    assert code == 1
    (wrong,) = [each["text"] for each in found.values() if each["state"] == "wrong"]
    assert wrong.startswith(f"environment variable STREAMGUARD_{name}='5x': ")


def test_a_limit_that_is_off_by_a_word_is_fine_s4_01(diagnosis, monkeypatch):
    """S4-01."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "off")
    code, found = diagnosis()
    assert code == 0
    assert any(text.startswith("guard.idle = off") for text in found)


def test_a_namesake_is_wrong(diagnosis, monkeypatch):
    other = namesakes.Namesake("streamguard", "0.2.0", "the command 'streamguard'")
    monkeypatch.setattr(namesakes, "namesakes", lambda: (other,))
    code, found = diagnosis()
    assert code == 1
    assert found["streamguard"]["text"] == other.advice


# -- what is installed -------------------------------------------------------------------------


def test_each_extra_of_the_project_is_looked_for():
    """Here, as an observer, or as a backend's package; those of the project's own chores are not."""
    text = Path(doctor.__file__).parents[2].joinpath("pyproject.toml").read_text("utf-8")
    given = tomllib.loads(text)["project"]["optional-dependencies"]
    for extra in (*extras.EXTRAS, *extras.OBSERVERS):
        assert re.split(r"[\[>=]", given[extra.name][0])[0] == extra.package
    packages = {facts_of.package for facts_of in facts.FACTS.values()}
    known = {extra.name for extra in (*extras.EXTRAS, *extras.OBSERVERS)}
    chores = {"test", "test-all", "real", "real-litellm", "fuzz", "bench", "docs", "dev"}
    others = given.keys() - known - chores
    assert {
        name for name in others if re.split(r"[\[>=]", given[name][0])[0] not in packages
    } == set()


def test_what_is_missing_says_how_to_get_it(diagnosis, monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda package: None if package != "anyio" else "9")
    code, found = diagnosis()
    assert code == 0
    assert "pip install 'agent-streamguard[prometheus]'" in found["prometheus"]["text"]
    assert found["missing"]["text"].startswith("trio (guards")
    assert "pip install 'agent-streamguard[NAME]'" in found["missing"]["text"]
    monkeypatch.setattr(doctor, "version_of", lambda package: None)
    code, found = diagnosis()
    assert (code, found["anyio"]["state"]) == (1, "wrong")


def test_a_package_that_is_too_old_is_wrong(diagnosis, monkeypatch):
    monkeypatch.setattr(doctor, "version_of", lambda package: "0.1")
    monkeypatch.setattr(doctor, "too_old", lambda package, version: "0.29")
    code, found = diagnosis()
    assert code == 1
    assert found["trio"]["text"] == "0.1 is older than 0.29, which is needed: upgrade it"


def test_what_is_needed_at_least_is_read_from_the_installation(monkeypatch):
    said = ["trio>=0.29; extra == 'trio'", "psycopg[binary]>=3.2.3; extra == 'postgres'", "odd"]
    monkeypatch.setattr(extras.metadata, "requires", lambda name: said)
    assert extras.too_old("trio", "0.28.1") == "0.29"
    assert extras.too_old("trio", "0.30rc1") is None
    assert extras.too_old("psycopg", "3.1") == "3.2.3"
    assert extras.too_old("other", "0") is None


def test_tools_are_asked_for_their_version(diagnosis, monkeypatch):
    _, found = diagnosis()
    assert found["git"]["state"] == "note"
    here = facts.Installed(None, "git version 9", "/bin/git")
    monkeypatch.setattr(facts, "command_here", lambda name: here)
    _, found = diagnosis()
    assert found["git"]["text"] == "/bin/git git version 9"


# -- the environment ---------------------------------------------------------------------------


def test_variables_in_force_are_shown_and_others_named(diagnosis, monkeypatch):
    monkeypatch.setenv("STREAMGUARD_IDLE", "5m")
    monkeypatch.setenv("STREAMGUARD_IDEL", "3")
    monkeypatch.setenv("STREAMGUARD_FLEET", "postgresql://me:secret@host/db")
    code, found = diagnosis()
    assert code == 0
    assert found["STREAMGUARD_IDLE"]["text"] == "5m"
    assert "did you mean 'STREAMGUARD_IDLE'?" in found["STREAMGUARD_IDEL"]["text"]
    assert "secret" not in json.dumps(found)


@pytest.mark.parametrize(
    ("word", "state", "told"),
    [
        ("off", "note", "nothing is guarded"),
        ("warn", "note", "end nothing"),
        ("", "ok", "not used"),
    ],
)
def test_the_kill_switch_says_what_it_does(diagnosis, monkeypatch, word, state, told):
    monkeypatch.setenv("STREAMGUARD_MODE", word)
    _, found = diagnosis()
    assert found["STREAMGUARD_MODE"]["state"] == state
    assert told in found["STREAMGUARD_MODE"]["text"]


def test_it_is_readable_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("STREAMGUARD_CONFIG_", "word " * 60)
    doctor.main([])
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if len(line) > 80] == []
