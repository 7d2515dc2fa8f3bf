"""`from_env`: variables of one's own, read as ours are."""

from __future__ import annotations

import re

import pytest

from streamguard import ConfigError, from_config, from_env, idle_guard
from streamguard._base.configured import IN_ENVIRONMENT
from streamguard.cli.arguments import parse
from streamguard.cli.run import OPTIONS, settings_of

ALL = {
    "IDLE": "5m",
    "FIRST": "90",
    "LIVENESS": "45s",
    "TOOLS": "2h",
    "TURN": "30m",
    "EXIT_GRACE": "10",
    "TOTAL": "3h",
}


@pytest.fixture(autouse=True)
def variables(tmp_path, monkeypatch):
    """Sets variables; before that there are none, and no file."""
    monkeypatch.chdir(tmp_path)
    for knob in IN_ENVIRONMENT:
        monkeypatch.delenv(f"STREAMGUARD_{knob.upper()}", raising=False)

    def put(prefix="MYAPP", **values):
        for name, value in values.items():
            monkeypatch.setenv(f"{prefix}_{name}", value)

    return put


def limits_of(guard):
    return {name: value for name, value in guard.plan.limits.items() if value is not None}


@pytest.mark.parametrize("prefix", ["MYAPP", "MYAPP_", "MALA_WATCHDOG"])
def test_every_limit_has_a_variable(variables, prefix):
    """S1-18: a prefix of one's own."""
    variables(prefix.rstrip("_"), **ALL)
    guard = from_env(prefix).guard()
    assert limits_of(guard) == {
        "idle": 300,
        "first": 90,
        "liveness": 45,
        "turn": 1800,
        "exit_grace": 10,
        "total": 10800,
    }
    assert guard.plan.tools == {"*": 7200}
    assert set(ALL) | {"PRESET", "MODE"} == {knob.upper() for knob in IN_ENVIRONMENT}


def test_ours_are_read_by_the_same_code(variables):
    """The default prefix; idle has its own, older spelling."""
    variables("STREAMGUARD", **ALL | {"IDLE": "300"})
    assert limits_of(from_env().guard()) == limits_of(from_config().guard())
    assert limits_of(from_config().guard())["total"] == 10800


def test_a_file_is_not_read_and_goes_behind_the_environment(variables, tmp_path):
    path = tmp_path / "streamguard.toml"
    path.write_text("[guard]\nidle = 60\nfirst = 30\n")
    path.chmod(0o600)
    variables(IDLE="120")
    variables("STREAMGUARD", FIRST="20")
    assert limits_of(from_env("MYAPP").guard()) == {"idle": 120}
    assert limits_of(from_config().guard()) == {"idle": 60, "first": 20}


def test_the_code_goes_before_a_variable(variables):
    """The constructor goes first."""
    variables(IDLE="120", FIRST="60")
    assert limits_of(from_env("MYAPP").guard(idle=30)) == {"idle": 30, "first": 60}


@pytest.mark.parametrize("off", ["0", "off", "OFF", "no", "false", "none", "0.0"])
def test_what_is_off_there_is_off_whatever_the_code_says(variables, off):
    """Off from the environment always wins."""
    variables(FIRST=off, IDLE="10")
    assert limits_of(from_env("MYAPP").guard(first=60, idle=30)) == {"idle": 30}


@pytest.mark.parametrize("off", ["0", "off", "OFF", " no ", "false", "None", "0.0"])
def test_our_own_idle_is_off_by_the_same_words_s4_01(variables, off):
    """S4-01: 0 is off, and so is every word that is off for another limit."""
    variables("STREAMGUARD", IDLE=off, FIRST=off)
    assert limits_of(idle_guard()) == {}
    assert limits_of(from_env().guard(idle=30, first=60)) == {}
    said, command = parse(["true"], OPTIONS)
    settings = settings_of(said, command)
    assert (settings.idle, settings.first) == (None, None)


def test_in_a_file_a_limit_is_off_by_the_same_words(tmp_path):
    path = tmp_path / "streamguard.toml"
    path.write_text('[guard]\nidle = "none"\nfirst = "OFF"\nturn = false\n')
    assert limits_of(from_config(path).guard()) == {}


def test_every_variable_is_checked_when_the_configuration_is_read_s1_18(variables):
    """S1-18: all that is wrong is said at once."""
    variables("STREAMGUARD", IDLE="5x", TOTAL="5x")
    with pytest.raises(ConfigError, match=r"STREAMGUARD_IDLE='5x': .*STREAMGUARD_TOTAL='5x': "):
        from_config()


OF_THE_PROGRAM = (
    "there is no [guards.multica]: from_env() reads no file, from_config() does. 'multica' is a "
    "preset: write MYAPP_PRESET=multica in the environment, and guard() without a name; or "
    "idle_guard('multica')"
)
OF_OURS = (
    "there is no [guards.multica]; there are: none. 'multica' is a preset: write "
    'STREAMGUARD_PRESET=multica in the environment, or preset = "multica" below [guard] in '
    "streamguard.toml, and guard() without a name; or idle_guard('multica')"
)


@pytest.mark.parametrize(
    ("config", "told"), [(lambda: from_env("MYAPP"), OF_THE_PROGRAM), (from_config, OF_OURS)]
)
def test_a_preset_in_the_place_of_a_name_is_told_where_it_belongs(config, told):
    with pytest.raises(ConfigError, match=f"^{re.escape(told)}$"):
        config().guard("multica")
    with pytest.raises(ConfigError, match=r"there is no \[guards\.coder\][^']*$"):
        config().guard("coder")


@pytest.mark.parametrize(
    ("set_to", "code", "mode"),
    [
        ("off", "enforce", "off"),
        ("no", "enforce", "off"),
        ("warn", "enforce", "warn"),
        ("enforce", "warn", "warn"),
    ],
)
def test_the_mode_is_the_weaker_of_both(variables, set_to, code, mode):
    """S1-19."""
    variables(MODE=set_to, IDLE="10")
    assert from_env("MYAPP").guard(mode=code).plan.mode == mode
    alone = from_env("MYAPP").guard().plan.mode
    assert alone == ("off" if set_to == "no" else set_to)


def test_a_doubtful_mode_is_on_and_told_by_its_variable(variables, caplog):
    """S1-18: as our own kill switch."""
    variables("OTHERAPP", MODE="wran", IDLE="10")
    assert from_env("OTHERAPP").guard().plan.mode == "enforce"
    assert "environment variable OTHERAPP_MODE='wran' is read as enforce" in caplog.text


def test_a_preset_lies_under_the_other_variables(variables):
    variables(PRESET="claude-print", FIRST="30")
    config = from_env("MYAPP")
    assert limits_of(config.guard()) == {"first": 30, "turn": 120, "total": 3600}
    assert config.guard().plan.kill_grace == 2
    assert config.run["first_json"] == 90


def test_all_that_is_wrong_is_said_at_once(variables):
    """S1-18: bad values are collected."""
    variables(LIVENESS="maybe", IDLE="soon", TOTAL="-5", PRESET="mine", FIRST="60")
    with pytest.raises(ConfigError) as refused:
        from_env("MYAPP")
    told = str(refused.value)
    for name in ("LIVENESS='maybe'", "IDLE='soon'", "TOTAL='-5'", "PRESET='mine'"):
        assert f"environment variable MYAPP_{name}: " in told
    assert "MYAPP_FIRST" not in told
    assert "\n" not in told


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e999", "3 parsecs", "180000", "1,5"])
def test_what_is_no_duration_is_refused(variables, value):
    variables(TOTAL=value)
    with pytest.raises(ConfigError, match="environment variable MYAPP_TOTAL="):
        from_env("MYAPP")


@pytest.mark.parametrize("prefix", ["", "_", "MY APP", "MY-APP", "7UP", "A\0"])
def test_a_prefix_that_no_variable_can_have(prefix):
    with pytest.raises(ConfigError, match='write what your variables begin with, such as "MYAPP"'):
        from_env(prefix)


def test_nothing_said_is_no_limit_and_no_guard():
    config = from_env("MYAPP")
    with pytest.raises(ConfigError, match="set MYAPP_IDLE or MYAPP_PRESET, or write it, from_env"):
        config.guard()
    assert limits_of(config.guard(idle=5)) == {"idle": 5}


def test_what_is_in_force_is_told_by_the_variables_name(variables):
    variables(IDLE="120", PRESET="multica", MODE="warn")
    head, *lines = from_env("MYAPP").explain().splitlines()
    assert head == "# environment variables MYAPP_*"
    told = {line[0]: line[1:] for line in (re.split(r"\s{2,}", line) for line in lines)}
    assert told["guard.idle"] == ["120 s", "environment variable MYAPP_IDLE"]
    assert told["guard.tools"] == ["7200 s", "environment variable MYAPP_PRESET, preset multica"]
    assert told["guard.mode"] == ["warn", "environment variable MYAPP_MODE"]
    assert repr(from_env("MYAPP")) == "<Configuration from MYAPP_*>"
