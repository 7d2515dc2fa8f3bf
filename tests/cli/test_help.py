"""The help of every command: 80 columns, with its defaults and its exit codes, made of what reads the words."""

from __future__ import annotations

import os
import shlex

import pytest

from streamguard._base.quoting import in_shell
from streamguard.cli import COMMANDS, main, run
from streamguard.cli.helping import default_of, with_unit
from streamguard.cli.reference import Command, commands
from streamguard.runner import result
from streamguard.runner.options import Settings


@pytest.fixture(autouse=True)
def _narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def helped(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    try:
        code: object = main([*name.split(), "--help"])
    except SystemExit as ended:
        code = ended.code
    assert not code
    return capsys.readouterr().out


EVERY = [each.name for each in commands()]


@pytest.mark.parametrize("name", EVERY)
def test_help_fits_into_80_columns(name, capsys):
    assert [line for line in helped(name, capsys).splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_with_what_each_exit_code_means(name, capsys):
    told = helped(name, capsys)
    (command,) = (each for each in commands() if each.name == name)
    assert command.exit_codes
    assert [code for code, _ in command.exit_codes if f"\n  {code} " not in told] == []


def test_help_has_every_option_by_its_heading(capsys):
    told = helped("run", capsys)
    for heading, options in run.GROUPS.items():
        assert f"\n{heading}:\n" in told
        assert [name for name in options if f"--{name}" not in told] == []
    assert "--tools DURATION " in told
    assert "[2h]" in told


def test_the_defaults_in_the_help_are_those_in_force():
    settings = Settings()
    later = {"exit_grace"}  # only with another limit
    for options in run.GROUPS.values():
        for name, option in options.items():
            if isinstance(option.default, float | tuple) and option.attribute not in later:
                assert getattr(settings, option.attribute) == option.default, name
            assert option.says, name


@pytest.mark.parametrize(("seconds", "text"), [(30.0, "30s"), (7200.0, "2h"), (900.0, "15m")])
def test_a_default_says_its_unit(seconds, text):
    assert with_unit(seconds) == text


def test_every_code_that_is_given_is_explained():
    given = {"TIMED_OUT", "OUR_FAILURE", "LOCKED", "CANNOT_RUN", "NOT_FOUND", "KILLED"}
    explained = {code for code, _ in result.EXIT_CODES}
    assert {str(getattr(result, name)) for name in given} <= explained


def test_a_generator_finds_the_whole_command_line():
    found = {each.name: each for each in commands()}
    assert [name for name in found if " " not in name] == list(COMMANDS)
    assert {"fleet serve", "fleet log"} <= found.keys()
    assert isinstance(found["run"], Command)
    flags = [flag for group in found["run"].groups.values() for flag in group]
    assert ("--tools DURATION", "2h") in {(flag.flags, flag.default) for flag in flags}
    assert default_of(run.GROUPS["Trying again"]["backoff"]) == "0,5,15"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["report", "--svgg"], "report: there is no option '--svgg'; did you mean '--svg'?"),
        (["fleet", "list", "--al\x1b"], "fleet list: there is no option '--al\\x1b'"),
        (["fleet", "lits"], "fleet: command: there is no 'lits'; did you mean 'list'?"),
        (["fleet", "x\x1b"], "fleet: command: there is no 'x\\x1b'; there are submit, serve, "),
        (
            ["fleet", "serve", "--loop", "trioo", "a:b"],
            "fleet serve: --loop: there is no 'trioo'; did you mean 'trio'?",
        ),
        (["healthy", "a", "b"], "healthy: 'b' is one argument too many"),
    ],
)
def test_a_word_that_is_not_known_is_told_what_it_may_have_been(words, told, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith(f"streamguard {told}")
    assert "\nTry 'streamguard " in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--idle", "--", "x"], "option '--idle' needs a value"),
        (["--idle"], "option '--idle' needs a value"),
        (["--preset", "claude-prnt", "--", "x"], "did you mean 'claude-print'?"),
        (["--end-on", "quite", "--", "x"], "did you mean 'quiet'?"),
        (["--ilde", "5", "--", "x"], "there is no option '--ilde'; did you mean '--idle'?"),
        ([], "which command? Put it at the end"),
    ],
)
def test_a_mistake_is_told_with_its_remedy(words, told, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == result.OUR_FAILURE
    assert told in capfd.readouterr().err


def test_a_limit_behind_the_command_is_told_where_it_belongs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("STREAMGUARD_"):
            monkeypatch.delenv(name)
    (warning,) = run.settings_of({}, ["claude", "-p", "--idle=5"]).warnings[:1]
    assert warning.endswith("--idle=5 stands behind the command: put it before")
    (warning,) = run.settings_of({}, ["claude", "-p"]).warnings[:1]
    assert "behind the command" not in warning


def test_a_report_of_nothing_says_how_a_run_is_recorded(capsys, tmp_path):
    assert main(["report", str(tmp_path)]) == 2
    assert "`streamguard run --record DIR -- COMMAND`" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["", "a b", "it's", "/tmp/run-1", "$HOME", "a\\b", "é"])
def test_a_command_to_paste_means_what_it_says(word):
    assert shlex.split(in_shell(word)) == [word]
