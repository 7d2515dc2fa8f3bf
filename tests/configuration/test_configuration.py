"""What may be configured, where it is found, and what is said of what cannot be used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamguard import Activity, ConfigError, from_config, idle_guard
from streamguard.backends.facts import who_tells
from streamguard.configuration import values
from streamguard.configuration.toml_files import find
from streamguard.errors import ScopeName
from streamguard.specs import FlowSpec
from streamguard.testing import Script, hang
from tests.support import take

DOCS = Path(__file__).parents[2] / "docs" / "how-to" / "configuration.md"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    """Nothing is configured but what a test writes."""
    for name in ("STREAMGUARD_CONFIG", "STREAMGUARD_IDLE", "STREAMGUARD_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def written(empty_folder):
    """Writes streamguard.toml and gives its path."""

    def write(text, name="streamguard.toml"):
        path = empty_folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    return write


def limits_of(operator):
    limits = operator.limits
    return {name: getattr(limits, name) for name in ("idle", "first", "turn", "tools", "total")}


# --- where it is found ------------------------------------------------------------------------


def test_the_nearest_file_is_in_force(written, empty_folder, monkeypatch):
    written("[guard]\nidle = 100\n")
    written("[tool.streamguard.guard]\nidle = 200\n", "a/pyproject.toml")
    written("[tool.other]\nx = 1\n", "a/b/pyproject.toml")
    below = empty_folder / "a" / "b"
    monkeypatch.chdir(below)
    assert limits_of(from_config().guard())["idle"] == 200
    monkeypatch.chdir(empty_folder)
    assert limits_of(from_config().guard())["idle"] == 100


def test_our_own_file_goes_before_the_shared_one(written):
    written("[tool.streamguard.guard]\nidle = 200\n", "pyproject.toml")
    own = written("[guard]\nidle = 100\n")
    assert from_config().path == own


def test_a_file_may_be_named(written, monkeypatch):
    written("[guard]\nidle = 100\n")
    other = written("[guard]\nidle = 300\n", "elsewhere/guards.toml")
    assert limits_of(from_config(other).guard())["idle"] == 300
    monkeypatch.setenv("STREAMGUARD_CONFIG", str(other))
    assert limits_of(from_config().guard())["idle"] == 300


@pytest.mark.parametrize("word", ["", "0", "off", "None"])
def test_files_may_be_switched_off(written, monkeypatch, word):
    written("[guard]\nidle = 100\n")
    monkeypatch.setenv("STREAMGUARD_CONFIG", word)
    assert from_config().path is None


def test_a_file_that_is_named_and_missing_is_an_error(monkeypatch):
    monkeypatch.setenv("STREAMGUARD_CONFIG", "nowhere.toml")
    with pytest.raises(ConfigError, match=r"STREAMGUARD_CONFIG='nowhere.toml': there is no such"):
        from_config()


def test_a_working_directory_that_is_gone_has_none(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert from_config().path is None


def test_nothing_written_is_a_configuration_too():
    config = from_config()
    assert config.path is None
    assert config.flow.kinds == {}
    assert limits_of(config.guard(idle=60))["idle"] == 60
    with pytest.raises(ConfigError, match=r"idle = 180"):
        config.guard()


# --- what is made of it -----------------------------------------------------------------------


def test_idle_guard_without_a_limit_takes_the_configuration(written):
    """O9: all of it, but for what is written in the code."""
    written('[guard]\nidle = "3m"\nfirst = 90\ntools = "1h"\nturn = 600\n')
    guard = idle_guard(turn=900)
    assert limits_of(guard) == {
        "idle": 180, "first": 90, "turn": 900, "tools": 3600, "total": None,
    }  # fmt: skip
    assert limits_of(idle_guard(60))["first"] is None  # who writes the limit, writes it all


async def test_a_configured_guard_guards(loop, written):
    written("[guard]\nidle = 60\n")
    activity = Activity("coder")
    taken = await take(Script(hang()) | idle_guard(activity=activity), "bare")
    assert taken.error.verdict.window == 60


def test_the_environment_goes_before_a_file(written, monkeypatch):
    written("[guard]\nidle = 100\nfirst = 50\n")
    monkeypatch.setenv("STREAMGUARD_IDLE", "30")
    assert limits_of(idle_guard())["idle"] == 30
    assert limits_of(idle_guard())["first"] == 50


def test_guards_by_name(written):
    written("[guard]\nidle = 100\nfirst = 50\n\n[guards.coder]\nidle = 900\n")
    config = from_config()
    assert limits_of(config.guard("coder"))["idle"] == 900
    assert limits_of(config.guard("coder"))["first"] == 50
    with pytest.raises(ConfigError, match=r"there is no \[guards.codr\]; there are: coder"):
        config.guard("codr")


def test_tools_by_name(written):
    written('[guard]\nidle = 60\n[guard.tools]\nBash = "10m"\n"*" = "off"\n')
    limits = from_config().guard().limits
    assert limits.tools_by_name == {"Bash": 600}
    assert limits.tools is None


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("90", 90), ('"90"', 90), ('"90s"', 90), ('"5m"', 300), ('"1.5h"', 5400)],
        *[('"1h30m"', 5400), ('"1h 30m"', 5400)],
        *[('" 5 m "', 300), ('"250 ms"', 0.25), ('"1d"', 86400), ('"1e2"', 100)],
    ],
)
def test_a_file_takes_the_durations_of_the_command_line_s4_01(written, text, seconds):
    """S4-01: one parser for all of them."""
    written(f"[guard]\nidle = {text}\n[run]\ntotal = {text}\n")
    assert limits_of(from_config().guard())["idle"] == seconds
    assert from_config().run["total"] == seconds


@pytest.mark.parametrize("text", ['"180000"', "180000"])
def test_milliseconds_are_no_seconds_in_quotes_either(written, text):
    written(f"[guard]\nidle = {text}\n")
    with pytest.raises(
        ConfigError, match="that is 50 hours; if milliseconds are meant, write 180"
    ):
        from_config()


def test_the_environment_takes_the_same_durations_s4_01(written, monkeypatch):
    written("[guard]\nidle = 100\n")
    monkeypatch.setenv("STREAMGUARD_IDLE", "5m")
    assert limits_of(idle_guard())["idle"] == 300
    assert from_config().run["idle"] == 300
    monkeypatch.setenv("STREAMGUARD_IDLE", "0s")
    assert limits_of(idle_guard())["idle"] is None


@pytest.mark.parametrize("off", ["0", "false", '"off"', '"0"', '"0s"'])
def test_a_limit_may_be_off(written, off):
    written(f"[guard]\nidle = {off}\n")
    assert limits_of(from_config().guard())["idle"] is None


def test_a_pace(written):
    written('[guard]\nidle = "tokens"\n')
    assert limits_of(from_config().guard())["idle"] == 120


def test_a_retry_policy(written):
    written(
        '[retry]\nmax_reconnects = 7\ncap = "2m"\n[retry.idle]\nretries = 4\ndelays = [0, "1m"]\n'
        "[resume]\nprompt = 'go on'\n"
    )
    config = from_config()
    assert config.retry_policy.max_reconnects == 7
    assert config.retry_policy.cap == 120
    assert config.retry_policy.idle.retries == 4
    assert tuple(config.retry_policy.idle.delays) == (0, 60)
    assert config.retry_policy.network.retries == 3
    settings = config.reconnect().plan.reconnecting
    assert settings.policy.idle.retries == 4
    assert settings.prompt == "go on"


def test_breakers(written):
    written("[breaker]\npause = 60\n[breakers.api]\nopen_after = 2\nescalate_after = false\n")
    config = from_config()
    assert "pause=60" in repr(config.breaker("api")._rules)
    assert config.breaker("api")._rules.open_after == 2
    assert config.breaker("api")._rules.escalate_after is None
    assert config.breaker("other")._rules.open_after == 3


def test_flow_limits_in_the_file(written):
    written("[timeouts]\nstep = 600000\n[[steps]]\nid = 'heavy'\ntimeout_override = 700000\n")
    flow = from_config().flow
    assert flow.kinds["step"].timeout == 600
    assert flow.steps["heavy"].timeout == 700
    assert ScopeName("step", "heavy").name in flow.steps


def test_flow_limits_in_a_file_of_their_own(written):
    written("timeouts:\n  step: 600000\n", "specs/flow.yaml")
    written('flow = "specs/flow.yaml"\n')
    assert from_config().flow.kinds["step"].timeout == 600


def test_what_the_command_takes(written, monkeypatch):
    written(
        '[guard]\nidle = "messages"\nfirst = 90\nkill_grace = 2\ntools = {Bash = 60}\n'
        '[run]\nfirst = 30\nerrors = "json"\nbackoff = [0, 1]\n'
    )
    assert from_config().run == {
        "idle": 900,
        "first": 30,
        "kill_after": 2,
        "tools_by_name": {"Bash": 60},
        "errors": "json",
        "backoff": (0, 1),
    }
    monkeypatch.setenv("STREAMGUARD_IDLE", "10")
    assert from_config().run["idle"] == 10


# --- what cannot be used ----------------------------------------------------------------------

WRONG = [
    ("[gaurd]\n", "streamguard.toml:1: gaurd: unknown; did you mean 'guard'?"),
    ("\n[guard]\nidel = 3\n", "streamguard.toml:3: guard.idel: unknown; did you mean 'idle'?"),
    ("[guard]\nxyz = 3\n", "streamguard.toml:2: guard.xyz: unknown; use one of idle, first"),
    ("guard.idle = -1\n", "streamguard.toml:1: guard.idle = -1: write seconds"),
    ("[guard]\nidle = true\n", "streamguard.toml:2: guard.idle = True: write seconds"),
    ('[guard]\nidle = "3 parsecs"\n', "guard.idle = '3 parsecs': write seconds, or a text with a"),
    ("[guard]\nidle = nan\n", "guard.idle = nan: write seconds"),
    (
        "[guard]\nidle = 180000\n",
        "guard.idle = 180000: that is 50 hours; if milliseconds are meant, write 180",
    ),
    ("[guard]\ndisconnect_timeout = 0\n", "guard.disconnect_timeout = 0: write seconds"),
    ('[guard]\nmode = "wran"\n', "guard.mode = 'wran': write one of 'enforce', 'warn', 'off'"),
    ("[guard.tools]\nBash = -3\n", "guard.tools = {'Bash': -3}: Bash = -3: write seconds"),
    ("guard = 3\n", "streamguard.toml:1: guard: write a table, [guard]"),
    (
        "[guard]\nidle = 300\nturn = 200\n",
        "streamguard.toml:2: guard.idle (300 s) can never be reached: turn (200 s) comes first",
    ),
    (
        "[guard]\nturn = 200\n[guards.coder]\nidle = 300\n",
        "streamguard.toml:4: guards.coder.idle (300 s) can never be reached",
    ),
    ("[retry.idel]\n", "retry.idel: unknown; did you mean 'idle'?"),
    ("[retry.idle]\ndelays = []\n", "retry.idle.delays = []: write a delay, or a list of delays"),
    ("[retry.idle]\nretries = 1.5\n", "retry.idle.retries = 1.5: write a whole number"),
    ("[resume]\nprompt = ''\n", "resume.prompt = '': write a text"),
    ("[breaker]\npause_growth = 0.5\n", "streamguard.toml: pause_growth=0.5: use 1 or more"),
    ("[timeouts]\nstep = 60\n", "is less than nothing can be begun with"),
    ('flow = "f.yaml"\n[timeouts]\nstep = 60000\n', "flow: the limits of scopes are in this file"),
    ("flow = 3\n", 'flow: write a path, such as "flow.yaml"'),
    ("[run]\npty = 1\n", "streamguard.toml:2: run.pty = 1: write true or false"),
    ("[guard\n", "no valid TOML"),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[said[:40] for _, said in WRONG])
def test_a_mistake_is_said_with_its_place(written, text, said):
    """T12: file, line, key, and what to write instead; when it is read, and not when it is used."""
    written(text)
    with pytest.raises(ConfigError, match=re.escape(said)):
        from_config()


def test_a_line_in_the_shared_file_is_found_too(written):
    written("[project]\nname = 'x'\n\n[tool.streamguard.guard]\nidel = 1\n", "pyproject.toml")
    with pytest.raises(ConfigError, match=r"pyproject\.toml:5: guard\.idel: unknown"):
        from_config()


def test_a_file_that_cannot_be_read_is_said(empty_folder):
    (empty_folder / "streamguard.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        find()


# --- what is in force -------------------------------------------------------------------------


def test_what_is_in_force_is_told_with_its_origin(written, monkeypatch):
    path = written(
        "[guard]\nfirst = 90\nmode = 'warn'\n[guards.coder]\nidle = 'tokens'\n"
        "[retry.idle]\nretries = 4\n[timeouts]\nstep = 600000\n"
    )
    monkeypatch.setenv("STREAMGUARD_IDLE", "30")
    lines = [re.split(r"\s{2,}", line) for line in from_config().explain().splitlines()]
    told = {line[0]: line[1:] for line in lines}
    assert lines[0] == [f"# {path}"]
    assert told["guard.idle"] == ["30 s", "environment variable STREAMGUARD_IDLE"]
    assert told["guard.first"] == ["90 s", f"{path}:2"]
    assert told["guard.turn"] == ["off", "default"]
    assert told["guard.after_sleep"] == ["30 s", "default"]
    assert told["guard.mode"] == ["warn", f"{path}:3"]
    assert told["guards.coder.idle"] == ["tokens", f"{path}:5"]
    assert told["retry.idle.retries"] == ["4", f"{path}:7"]
    assert told["retry.idle.delays"] == ["0, 5, 15 s", "default"]
    assert told["timeouts.step" if "timeouts.step" in told else "flow.timeouts.step"][0] == "600 s"
    monkeypatch.setenv("STREAMGUARD_MODE", "off")
    assert "environment variable STREAMGUARD_MODE" in from_config().explain()


def test_every_key_is_documented():
    page = DOCS.read_text(encoding="utf-8")
    for section in (
        values.GUARD,
        values.RETRY,
        values.BACKOFF,
        values.RESUME,
        values.BREAKER,
        values.RUN,
    ):
        for key in section:
            assert f"`{key}`" in page, key


def test_the_documented_example_is_valid(written):
    example = re.search(r"```toml\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    written(example[1])
    config = from_config()
    assert config.guard("coder").limits.idle == 900
    assert config.explain()


# --- numbers of any size ------------------------------------------------------------------------

HUGE = "1" + "0" * 400


@pytest.mark.parametrize(
    "text",
    [
        f"[guard]\nidle = {HUGE}",
        f"[guard]\nidle = -{HUGE}",
        "[guard]\nidle = 1e999",
        f'[guard]\nidle = "{HUGE}s"',
        f"[guard.tools]\nBash = {HUGE}",
        f"[retry.idle]\ndelays = [{HUGE}]",
        f"[retry.idle]\njitter = {HUGE}",
        f"[breaker]\nlongest_pause = {HUGE}",
        f"[breaker]\npause_growth = {HUGE}",
    ],
    ids=lambda text: text[:24],
)
def test_a_number_that_no_clock_knows_is_an_error_like_others(written, text):
    """T12."""
    with pytest.raises(ConfigError, match="write "):
        from_config(written(text))


def test_a_path_that_cannot_be_one_is_an_error_like_others(written):
    with pytest.raises(ConfigError, match=r"a\\x00.toml: cannot be read"):
        from_config(written('flow = "a\\u0000.toml"'))


@pytest.mark.parametrize("name", ["flow.toml", "flow.yaml"])
@pytest.mark.parametrize("value", ["[" * 5000, "9" * 5000], ids=["brackets", "digits"])
def test_a_spec_that_no_reader_takes_is_an_error_like_others(written, name, value):
    if name.endswith("yaml"):
        pytest.importorskip("ruamel.yaml")
    told = (
        f"timeouts = {{step = {value}}}"
        if name.endswith("toml")
        else f"timeouts:\n  step: {value}"
    )
    with pytest.raises(ConfigError):
        FlowSpec.load(written(told, name))


def test_what_is_no_time_has_no_seconds_behind_it(written):
    """And what is left out is told by what it means."""
    written("[breakers.api]\npause_growth = 3\n[retry.network]\njitter = 0.25\n")
    lines = [re.split(r"\s{2,}", line) for line in from_config().explain().splitlines()]
    told = {line[0]: line[1] for line in lines[1:]}
    assert told["breaker.pause_growth"] == "2"
    assert told["breakers.api.pause_growth"] == "3"
    assert told["retry.network.jitter"] == "0.25"
    assert told["retry.server.jitter"] == "0.5"
    assert told["breaker.pause"] == "30 s"
    assert told["breaker.on_open"] == "raise, in a session wait"


def test_explain_says_when_a_ceiling_can_be_known(tmp_path, monkeypatch):
    """B4: what a backend says only at the end can be seen no sooner."""
    (tmp_path / "streamguard.toml").write_text("[guard]\nidle = 60\ncost = 5\n")
    said = from_config(tmp_path / "streamguard.toml").explain().splitlines()
    assert said[-1].startswith("# cost: told ")
    assert "at a turn's end by " in said[-1]
    assert "claude" in said[-1]
    assert not any(line.startswith("# tokens") for line in said)
    (cost,) = (line for line in said if line.startswith("guard.cost"))
    assert " s " not in cost


def test_calls_may_be_told_where_tokens_are_not():
    """B4: Copilot's lines tell each call, and no tokens."""
    assert "copilot" in who_tells("calls").split(";")[0]
    assert "copilot" in who_tells("tokens").split("never by")[1]
