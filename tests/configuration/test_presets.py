"""Limits by name: in code, in files, in the environment, and for `streamguard run`."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import get_args

import pytest

import streamguard
from streamguard import ConfigError, RetryPolicy, from_config, idle_guard
from streamguard._guard.knobs import PresetName
from streamguard.cli.arguments import UsageError, parse
from streamguard.cli.run import OPTIONS, settings_of
from streamguard.limits import BUDGETS
from streamguard.presets import PRESETS, named

PAGE = Path(streamguard.__file__).parents[1] / "docs" / "how-to" / "presets.md"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    for name in ("IDLE", "MODE", "CONFIG", "PRESET", "TOTAL", "FIRST"):
        monkeypatch.delenv(f"STREAMGUARD_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written(empty_folder):
    def write(text):
        path = empty_folder / "streamguard.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


def limits_of(guard):
    plan = guard.plan
    said = {name: value for name, value in plan.limits.items() if value is not None}
    return said | {"kill_grace": plan.kill_grace, "tools": plan.tools["*"]}


def run(*words):
    said, command = parse([*words, "true"], OPTIONS)
    return settings_of(said, command)


# --- the numbers ------------------------------------------------------------------------------


def test_the_page_has_every_preset_and_every_number():
    table = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", PAGE.read_text(), re.MULTILINE)
    heading = re.search(r"^\| preset \|(.*)\|$", PAGE.read_text(), re.MULTILINE)[1]
    columns = [column.strip() for column in heading.split("|")]
    assert [name for name, _ in table] == list(PRESETS)
    for name, row in table:
        told = dict(zip(columns, (field.strip() for field in row.split("|")), strict=True))
        preset = PRESETS[name]
        values = {**preset.guard, "first_json": preset.first_json}
        assert set(preset.guard) <= set(columns)
        for column in columns[:-1]:
            value = values.get(column)
            assert told[column] == ("" if value is None else f"{value:g}"), (name, column)
        retry = preset.retry
        delays = "" if retry is None else ", ".join(f"{delay:g}" for delay in retry[1])
        assert told["retries"] == ("" if retry is None else f"{retry[0]} after {delays}")


def test_the_names_are_typed():
    assert get_args(PresetName) == tuple(PRESETS)


def test_the_seeds_numbers():
    """S0-34, S1-01, S2-01, S3-01 to 04, S3-08, S4-01."""
    assert PRESETS["mala-retry"].guard["idle"] == 12 * 60
    assert PRESETS["mala-retry"].guard["disconnect_timeout"] == 10  # S0-09
    assert PRESETS["mala-retry"].retry == (2, (0, 5, 15))  # S0-11, S0-12
    assert dict(PRESETS["mala-watchdog"].guard) == {"idle": 180, "kill_grace": 5}
    assert PRESETS["flow"].scopes == {
        "flow": (1800, 2700),
        "step": (600, 900),
        "llm_call": (120, 180),
        "tool": (300, 600),
    }
    claude = PRESETS["claude-print"]
    assert (claude.guard["first"], claude.first_json, claude.guard["total"]) == (90, 90, 3600)
    assert (claude.guard["turn"], claude.guard["kill_grace"]) == (120, 2)
    assert PRESETS["multica"].guard["idle"] == 300


def test_what_a_guard_cannot_take_is_for_who_can():
    """S0-11, S0-12, S2-01."""
    retry = PRESETS["mala-retry"].retry
    assert retry == (RetryPolicy().idle.retries, RetryPolicy().idle.delays)
    assert {kind: tuple(budget) for kind, budget in BUDGETS.items()} == PRESETS["flow"].scopes


# --- in code ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_a_guard_by_name(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guard = idle_guard(name)
    expected = {"kill_grace": 5, "tools": 7200, **PRESETS[name].guard}
    timeout = expected.pop("disconnect_timeout", 30)
    assert limits_of(guard) == {k: v for k, v in expected.items() if v is not None}
    assert guard.plan.disconnect_timeout == timeout
    assert repr(guard) == f"idle_guard({name!r})"


def test_what_is_written_goes_over_it():
    guard = idle_guard("claude-print", first=30, total=60, kill_grace=7, tools=10)
    assert limits_of(guard) == {
        "first": 30, "turn": 120, "total": 60, "kill_grace": 7, "tools": 10
    }  # fmt: skip
    piped = idle_guard("claude-print") | idle_guard(None, first=600, kill_grace=9)
    assert limits_of(piped)["first"] == 600
    assert piped.plan.kill_grace == 9


def test_idle_is_written_beside_a_preset_s4_01():
    """S4-01: both can be said at once, and the seconds go over the preset's."""
    guard = idle_guard("multica", idle=60)
    assert limits_of(guard) == {"idle": 60, "kill_grace": 5, "tools": 7200}
    assert repr(guard) == "idle_guard('multica', idle=60)"
    assert "idle" not in limits_of(idle_guard("multica", idle=None))
    assert limits_of(idle_guard("mala-retry", idle=50, total=1200))["idle"] == 50
    assert limits_of(idle_guard(idle=180)) == limits_of(idle_guard(180))
    assert repr(idle_guard(idle=180)) == "idle_guard(180)"
    assert limits_of(idle_guard(idle="flow")) == limits_of(idle_guard("flow"))
    again = idle_guard(60, first=5).replace("claude-print", idle=600)
    assert limits_of(again) == {
        "idle": 600, "first": 5, "turn": 120, "total": 3600, "kill_grace": 2, "tools": 7200
    }  # fmt: skip
    assert repr(again).endswith(".replace('claude-print', idle=600)")
    assert limits_of(idle_guard(60).replace(30))["idle"] == 30
    assert limits_of(idle_guard(60).replace(first=5))["idle"] == 60


@pytest.mark.parametrize(
    ("limit", "idle"), [(180, 60), (180, None), (None, 60), ("multica", "tokens"), (180, "tokens")]
)
def test_two_limits_for_idle_are_one_too_many(limit, idle):
    for write in (idle_guard, idle_guard(5).replace):
        with pytest.raises(
            ConfigError, match=r"are both the idle limit: write one of them\. Beside"
        ):
            write(limit, idle=idle)


def test_tools_by_name_leave_the_preset_its_number_for_the_others_s2_01(written):
    """S2-01: also where table and preset are written in two places."""
    by_name = {"*": 300, "Bash": 3000}
    assert idle_guard("flow", tools={"Bash": 3000}).plan.tools == by_name
    assert idle_guard("flow").replace(tools={"Bash": 3000}).plan.tools == by_name
    assert idle_guard(9).replace("flow", tools={"Bash": 3000}).plan.tools == by_name
    assert idle_guard("flow", tools={"Bash": 3000, "*": 9}).plan.tools["*"] == 9
    assert idle_guard(9, tools=30).replace(tools={"Bash": 3000}).plan.tools["*"] == 7200
    for text in (
        '[guard]\npreset = "flow"\ntools = { Bash = "50m" }\n',
        '[guard]\npreset = "flow"\n[guards.coder]\ntools = { Bash = "50m" }\n',
        '[guard]\nidle = 9\ntools = { Edit = 1, "*" = 300 }\n[guards.coder]\ntools = {Bash = "50m"}\n',
    ):
        coder = "[guards.coder]" in text
        written(text)
        assert from_config().guard("coder" if coder else "").plan.tools == by_name
    written('[guard]\npreset = "flow"\n')
    assert from_config().guard(tools={"Bash": 3000}).plan.tools == by_name
    written('[guard]\nidle = 9\ntools = { Bash = "50m" }\n')
    assert from_config().guard().plan.tools == {"*": 7200, "Bash": 3000}
    written('[guard]\npreset = "flow"\ntools = { Bash = "50m" }\n')
    assert (run().tools, run().tools_by_name) == (300, {"Bash": 3000})


def test_what_was_written_before_stays():
    guard = idle_guard(60, total=5000, kill_grace=7, tools=30)
    assert limits_of(guard.replace(idle="claude-print")) == {
        "first": 90, "turn": 120, "total": 5000, "kill_grace": 7, "tools": 30
    }  # fmt: skip
    again = guard.replace(idle="multica", tools=50, total=None)
    assert limits_of(again) == {"idle": 300, "kill_grace": 7, "tools": 50}


@pytest.mark.parametrize(("total", "idle"), [(1200, 300), (3600, 720), (86400, 900)])
def test_idle_follows_the_total_that_is_written(total, idle):
    """S0-34."""
    assert limits_of(idle_guard("mala-retry", total=total))["idle"] == idle
    assert run("--preset", "mala-retry", "--total", str(total)).idle == idle


# --- in files and in the environment ----------------------------------------------------------


def test_a_preset_in_a_file(written):
    path = written('[guard]\npreset = "claude-print"\nfirst = 30\n')
    assert limits_of(from_config().guard()) == limits_of(idle_guard("claude-print", first=30))
    assert limits_of(idle_guard()) == limits_of(idle_guard("claude-print", first=30))
    lines = [re.split(r"\s{2,}", line) for line in from_config().explain().splitlines()]
    told = {line[0]: line[1:] for line in lines}
    assert told["guard.turn"] == ["120 s", f"{path}:2, preset claude-print"]
    assert told["guard.first"] == ["30 s", f"{path}:3"]
    assert told["guard.preset"] == ["claude-print", f"{path}:2"]


def test_a_preset_counts_where_it_is_written(written, monkeypatch):
    """And takes nothing away that it does not have."""
    written(
        '[guard]\nidle = 60\nfirst = 20\nturn = 900\n[guards.coder]\npreset = "mala-watchdog"\n'
        "kill_grace = 1\n"
    )
    limits = limits_of(from_config().guard("coder"))
    assert limits == {"idle": 180, "first": 20, "turn": 900, "kill_grace": 1, "tools": 7200}
    monkeypatch.setenv("STREAMGUARD_PRESET", "multica")
    monkeypatch.setenv("STREAMGUARD_FIRST", "45")
    limits = limits_of(from_config().guard("coder"))
    assert (limits["idle"], limits["first"], limits["turn"]) == (300, 45, 900)
    assert limits_of(from_config().guard("coder", idle=50))["idle"] == 50


def test_a_preset_in_the_environment(monkeypatch):
    monkeypatch.setenv("STREAMGUARD_PRESET", "claude-print")
    assert limits_of(idle_guard()) == limits_of(idle_guard("claude-print"))
    assert (
        "environment variable STREAMGUARD_PRESET, preset claude-print" in from_config().explain()
    )


def test_a_presets_retries_are_the_sessions(written):
    """S0-11, S0-12."""
    written('[guard]\npreset = "mala-retry"\n[retry.idle]\ndelays = [1]\n')
    policy = from_config().retry_policy
    assert (policy.idle.retries, tuple(policy.idle.delays)) == (2, (1,))


def test_an_unknown_name_is_told_those_that_there_are(written, monkeypatch):
    names = f"there is no such preset; there are {', '.join(PRESETS)}"
    with pytest.raises(ValueError, match=names):
        named("claude")
    with pytest.raises(ConfigError, match=r"idle='claude': .* one of the presets 'tokens', "):
        idle_guard("claude")
    with pytest.raises(UsageError, match=f"option '--preset': 'claude': {names}"):
        run("--preset", "claude")
    written('[guard]\npreset = "claude"\n')
    with pytest.raises(ConfigError, match=rf"toml:2: guard.preset = 'claude': {names}"):
        from_config()
    written("")
    monkeypatch.setenv("STREAMGUARD_PRESET", "claude")
    with pytest.raises(ConfigError, match=f"^environment variable .*PRESET='claude': {names}$"):
        from_config()


# --- streamguard run --------------------------------------------------------------------------


def of_run(settings):
    names = ("idle", "first", "first_json", "turn", "total", "kill_after", "retries")
    return tuple(getattr(settings, name) for name in names)


CLAUDE = (None, 90, 90, 120, 3600, 2, 0)


def test_run_takes_a_preset_wherever_it_is_said(written, monkeypatch):
    """S3-01 to 04: all four of its timeouts are in force."""
    assert of_run(run("--preset", "claude-print")) == CLAUDE
    assert of_run(run("--preset", "claude-print", "--first-json", "5", "--idle", "9")) == (
        9, 90, 5, 120, 3600, 2, 0
    )  # fmt: skip
    for section in ("run", "guard"):
        written(f'[{section}]\npreset = "claude-print"\n')
        assert of_run(run()) == CLAUDE
        assert run("--first-json", "0").first_json is None
    written("[run]\nfirst = 10\nidle = 700\n")
    monkeypatch.setenv("STREAMGUARD_PRESET", "claude-print")
    assert of_run(run()) == (700, *CLAUDE[1:])


def test_run_retries_as_the_preset_says():
    """S0-11, S0-12."""
    settings = run("--preset", "mala-retry")
    assert (settings.idle, settings.retries, settings.backoff) == (720, 2, (0, 5, 15))


def test_a_preset_of_the_guards_is_all_of_it_for_run_s0_11(written):
    """S0-11, S0-12: with its retries, as if it were written below [run], which goes over it."""
    everything = run("--preset", "mala-retry")
    for section in ("guard", "run"):
        written(f'[{section}]\npreset = "mala-retry"\n')
        assert of_run(run()) == of_run(everything)
        assert run().backoff == (0, 5, 15)
    written('[guard]\npreset = "mala-retry"\ntotal = 1200\nkill_grace = 1\n[run]\nretries = 1\n')
    assert of_run(run()) == (300, None, None, None, 1200, 1, 1)
    written('[guard]\npreset = "claude-print"\n[run]\nfirst_json = 0\nkill_after = 9\n')
    assert of_run(run()) == (None, 90, None, 120, 3600, 9, 0)


def test_how_finely_a_backend_talks_is_the_same_for_guard_and_run(written, monkeypatch):
    """What "tokens" says of the first message goes with it."""
    written('[guard]\nidle = "tokens"\n')
    assert limits_of(from_config().guard()) == limits_of(idle_guard("tokens"))
    assert (run().idle, run().first) == (120, 300)
    assert from_config().windows == {"idle": 120, "first": 300}
    assert re.search(r"guard\.first +300 s .*preset tokens", from_config().explain())
    assert (run("--first", "9").first, run("--first", "0").first) == (9, None)
    written('[guard]\nidle = "tokens"\nfirst = 20\n')
    assert (run().idle, run().first) == (120, 20)
    written('[guard]\nidle = "tokens"\n[run]\nidle = 50\n')
    assert (run().idle, run().first) == (50, None)
    monkeypatch.setenv("STREAMGUARD_IDLE", "70")
    assert limits_of(from_config().guard()) == {"idle": 70, "tools": 7200, "kill_grace": 5}
    assert (run().idle, run().first) == (70, None)


def test_code_goes_over_the_environment_that_over_a_file_and_a_preset_lies_below_its_place(
    written, monkeypatch
):
    """S4-01: as docs/how-to/configuration.md tells it."""
    written('[guard]\npreset = "flow"\nturn = 500\n')
    monkeypatch.setenv("STREAMGUARD_PRESET", "multica")
    monkeypatch.setenv("STREAMGUARD_IDLE", "1m")
    limits = limits_of(idle_guard())
    assert (limits["idle"], limits["tools"], limits["turn"]) == (60, 7200, 500)
    assert limits_of(idle_guard("multica"))["idle"] == 300
    assert limits_of(idle_guard(50))["idle"] == 50
    assert run("--preset", "mala-watchdog").idle == 180
    assert run().idle == 60


def test_the_commands_tools_have_the_allowances_of_the_guards(written):
    """A limit that was asked for is in force for the command, too."""
    written('[guard]\nidle = 900\ntools = { Bash = 60, "*" = 600 }\n')
    settings = run()
    assert (settings.tools, settings.tools_by_name) == (600, {"Bash": 60})
    assert settings.watches_tools
    settings = run("--tools", "30")
    assert (settings.tools, settings.tools_by_name) == (30, None)


def test_the_start_of_run_loads_no_preset_that_nobody_asked_for():
    import subprocess
    import sys

    script = "import sys, streamguard.cli.run; print('streamguard.presets' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert told.stdout == b"False\n"
