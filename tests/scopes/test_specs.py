"""What a flow's spec may say, in a mapping, in TOML and in YAML, and how it says where it is wrong."""

from __future__ import annotations

import math
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from streamguard import ConfigError, scope
from streamguard._base.warning import StreamGuardWarning
from streamguard.limits import Override
from streamguard.specs import FlowSpec
from tests.conftest import Loop

# The same, as each of the three would write it.
MAPPING = {
    "name": "build",
    "timeouts": {"step": 900_000, "llm_call": 180_000},
    "hard_limits": {"step": 1_800_000},
    "steps": [
        {"id": "plan", "agent": "architect"},
        {"id": "heavy-analysis", "timeout_override": 1_200_000},
        {"id": "endless", "timeout_override": 2_400_000, "hard_limit_override": 3_000_000},
    ],
}
YAML = """\
name: build
timeouts:
  step: 900000     # 15 minutes for complex flows
  llm_call: 180000 # 3 minutes for complex prompts
hard_limits:
  step: 1800000
steps:
  - id: plan
    agent: architect
  - id: heavy-analysis
    timeout_override: 1200000  # 20 minutes for this step
  - id: endless
    timeout_override: 2400000
    hard_limit_override: 3000000
"""
TOML = """\
name = "build"

[timeouts]
step = 900_000      # 15 minutes for complex flows
llm_call = 180_000  # 3 minutes for complex prompts

[hard_limits]
step = 1_800_000

[[steps]]
id = "plan"
agent = "architect"

[[steps]]
id = "heavy-analysis"
timeout_override = 1_200_000

[[steps]]
id = "endless"
timeout_override = 2_400_000
hard_limit_override = 3_000_000
"""


@pytest.fixture(params=["mapping", "toml", "yaml", "yml"])
def spec(request, tmp_path):
    if request.param == "mapping":
        return FlowSpec.of(MAPPING)
    file = tmp_path / f"build.{request.param}"
    file.write_text(TOML if request.param == "toml" else YAML, encoding="utf-8")
    return FlowSpec.load(file)


# -- what it says ----------------------------------------------------------------------------------


def test_a_text_says_its_unit_and_a_number_is_milliseconds():
    spec = FlowSpec.of(
        {"timeouts": {"step": "9m", "llm_call": 90000}, "hard_limits": {"step": "0.5h"}}
    )
    assert spec.scope("step").timeout == 540
    assert spec.scope("step").hard == 1800
    assert spec.scope("llm_call").timeout == 90


def test_all_three_say_the_same(spec):
    assert spec == FlowSpec(
        {"step": Override(900, 1800), "llm_call": Override(180, None)},
        {"heavy-analysis": Override(1200, None), "endless": Override(2400, 3000)},
    )


def limits(made):
    return made.timeout, made.hard


async def test_the_most_specific_wins(spec, loop: Loop):
    """What the code says, else the step's own, else the flow's, else the table."""
    async with spec.scope(name="build") as flow:
        assert (flow.kind, flow.name) == ("flow", "build")
        assert limits(flow) == (1800, 2700)
        assert limits(scope("step")) == (900, 1800)
        assert limits(scope("step", "plan")) == (900, 1800)
        assert limits(scope("step", "heavy-analysis")) == (1200, 1800)
        assert limits(scope("step", "endless")) == (2400, 3000)
        assert limits(scope("step", "endless", timeout=60, hard=90)) == (60, 90)
        assert limits(scope("llm_call", "heavy-analysis")) == (180, 180)
        assert limits(scope("tool")) == (300, 600)
    assert limits(scope("step", "heavy-analysis")) == (600, 900)


async def test_a_spec_reaches_what_lies_deep_inside(spec, loop: Loop):
    """Through scopes and cleanups, and without a flow where a step is all there is."""
    async with spec.scope("step", "heavy-analysis", timeout=30) as step:
        assert limits(step) == (30, 1800)
        async with scope("tool"), step.cleanup():
            assert limits(scope("llm_call")) == (180, 180)


async def test_an_inner_flow_may_have_a_spec_of_its_own(spec, loop: Loop):
    async with spec.scope():
        async with FlowSpec.of({"timeouts": {"step": 60_000}}).scope(name="inner"):
            assert limits(scope("step")) == (60, 900)
        assert limits(scope("step")) == (900, 1800)


async def test_past_the_hard_limit_in_code_under_a_spec(spec, loop: Loop):
    async with spec.scope():
        with pytest.raises(ConfigError, match="timeout=1801 is past the hard limit of 1800 s"):
            scope("step", timeout=1801)


def test_other_peoples_keys_are_left_alone():
    spec = {
        "flow": "build",
        "agents": {"timeout": "10m"},
        "on_timeout": "escalate",
        1: "a number for a key",
        "steps": ["prepare", {"id": "a", "run": "make", "retries": 3}, {"run": "no id"}, None],
    }
    assert FlowSpec.of(spec) == FlowSpec()


@pytest.mark.parametrize(
    "spec", [{}, {"timeouts": None}, {"steps": None}, {"steps": []}, {"timeouts": {}}]
)
def test_nothing_written_is_nothing_changed(spec):
    """Also where all lines of a section are commented out."""
    assert FlowSpec.of(spec) == FlowSpec()


def test_a_default_gives_way_to_a_lower_hard_limit():
    spec = FlowSpec.of({"hard_limits": {"step": 300_000}})
    assert limits(spec.scope("step")) == (300, 300)


def test_a_second_is_enough():
    assert FlowSpec.of({"timeouts": {"tool": 1000}}).scope("tool").timeout == 1


def test_fractions_of_a_millisecond_are_kept():
    assert FlowSpec.of({"timeouts": {"tool": 1500.5}}).scope("tool").timeout == 1.5005


# -- where it is wrong -----------------------------------------------------------------------------


def step(**keys):
    return {"steps": [{"id": "a"}, {"id": "b", **keys}]}


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (
            {"timeouts": {"setp": 900_000}},
            r"timeouts\.setp: .*no scope 'setp': did you mean 'step'",
        ),
        ({"timeouts": {"xyzzy": 900_000}}, r"use one of flow, step, llm_call, tool"),
        ({"timeouts": {3: 900_000}}, r"timeouts\.3: there is no scope 3"),
        ({"hard_limits": {"flwo": 900_000}}, r"hard_limits\.flwo: .*did you mean 'flow'"),
        ({"timeout": {"step": 900_000}}, r"timeout: unknown; did you mean 'timeouts'"),
        ({"hard_limit": {"step": 900_000}}, r"hard_limit: unknown; did you mean 'hard_limits'"),
        (step(timeout_overide=1), r"steps\[1\]\.timeout_overide: .*'timeout_override'"),
        (step(hard_limits_override=1), r"steps\[1\]\.hard_limits_override: unknown"),
        (
            {"timeouts": {"step": "900000"}},
            r"timeouts\.step: '900000': .*without quotes, or a unit",
        ),
        ({"timeouts": {"step": "15 min"}}, r"timeouts\.step: '15 min': write \"15m\""),
        ({"timeouts": {"step": "0s"}}, r"timeouts\.step: 0.0 is no time"),
        ({"timeouts": {"step": "soon"}}, r"timeouts\.step: 'soon': write a text with a unit"),
        ({"timeouts": {"step": True}}, r"not True \(bool\)"),
        ({"timeouts": {"step": None}}, r"timeouts\.step: .*not nothing"),
        ({"timeouts": {"step": [900_000]}}, r"not \[900000\] \(list\)"),
        ({"timeouts": {"step": 0}}, r"timeouts\.step: 0 is no time"),
        ({"timeouts": {"step": -1}}, r"-1 is no time"),
        ({"timeouts": {"step": math.nan}}, r"nan is no time"),
        ({"timeouts": {"step": math.inf}}, r"inf is no time"),
        ({"timeouts": {"step": 10**400}}, r"is no time"),
        ({"timeouts": {"step": 900}}, r"900 ms is less than .*1000 ms.*seconds .* write 900000"),
        ({"timeouts": 900_000}, r"timeouts: write milliseconds by scope"),
        ({"timeouts": [{"step": 900_000}]}, r"timeouts: write milliseconds by scope"),
        (step(timeout_override="20 mins"), r"steps\[1\]\.timeout_override: .*write \"20m\""),
        ({"steps": {"a": {}}}, r"steps: write a list of steps"),
        ({"steps": "a"}, r"steps: write a list of steps"),
        ({"steps": [{"timeout_override": 60_000}]}, r"steps\[0\]: .* needs an id"),
        ({"steps": [{"id": 7, "timeout_override": 60_000}]}, r"in quotes"),
        ({"steps": [{"id": "", "timeout_override": 60_000}]}, r"needs an id"),
        (
            {"steps": [{"id": "a", "timeout_override": 60_000}] * 2},
            r"steps\[1\]\.id: 'a' has a limit further up",
        ),
        (
            {"timeouts": {"step": 900_001}},
            (
                r"timeouts\.step: 900001 ms \(900 s\) is past the hard limit of 900000 ms \(900 s\)"
                r"\. Lower it, or raise the limit: hard_limits\.step"
            ),
        ),
        (
            {"timeouts": {"step": 800_000}, "hard_limits": {"step": 700_000}},
            r"timeouts\.step: 800000 ms .*past the hard limit of 700000 ms",
        ),
        (
            step(timeout_override=1_200_000),
            r"timeout_override of step 'b': 1200000 ms .* 900000 ms.*hard_limit_override",
        ),
        (
            {**step(hard_limit_override=300_000), "timeouts": {"step": 600_000}},
            r"timeouts\.step of step 'b': 600000 ms .* past the hard limit of 300000 ms",
        ),
        ([], r"a spec is a mapping, not \[\]"),
        ("timeouts:", r"a spec is a mapping, not 'timeouts:'"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(spec, text):
    """T12: the path of keys, what is there, what would be right."""
    with pytest.raises(ConfigError, match=text):
        FlowSpec.of(spec)


def test_the_file_is_named_in_front(tmp_path):
    file = tmp_path / "flow.yaml"
    file.write_text("timeouts:\n  step: [15]\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"flow\.yaml: timeouts\.step: write a number"):
        FlowSpec.load(file)


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("flow.toml", b"timeouts = 1 2", "flow.toml: no valid TOML: .*line 1"),
        ("flow.toml", b"[timeouts]\nstep = 900000\nstep = 60000\n", "flow.toml: no valid TOML"),
        ("flow.yaml", b"timeouts: [", "flow.yaml: no valid YAML"),
        ("flow.yaml", b"timeouts:\n  step: 900000\n  step: 60000\n", "duplicate key"),
        ("flow.yaml", b"a: 1\n---\nb: 2\n", "flow.yaml: no valid YAML: .*single document"),
        ("flow.yaml", b"a: !!python/object:os.system x\n", "flow.yaml: no valid YAML"),
        ("flow.yaml", b"- a\n", "flow.yaml: a spec is a mapping"),
        ("flow.yml", b"\xff\xfe\xfa", "flow.yml: cannot be read"),
        ("flow.ini", b"", r"flow.ini: a spec is a .toml, .yaml or .yml file"),
    ],
)
def test_a_file_that_is_no_spec(tmp_path, name, content, text):
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=f"(?s){text}"):
        FlowSpec.load(str(file))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"flow\.toml: there is no such file"):
        FlowSpec.load(tmp_path / "flow.toml")


def test_an_empty_file_is_an_empty_spec(tmp_path):
    for name in ("flow.toml", "flow.yaml"):
        (tmp_path / name).touch()
        assert FlowSpec.load(tmp_path / name) == FlowSpec()


# -- what cannot both matter -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("timeouts", "text"),
    [
        ({"flow": 600_000, "step": 600_000}, r"timeouts\.step \(600 s\) can never be reached"),
        ({"step": 60_000, "llm_call": 90_000}, r"timeouts\.step \(60 s\) comes first"),
        ({"step": 60_000, "tool": 60_000}, r"timeouts\.tool"),
        ({"flow": 60_000, "tool": 60_000}, r"timeouts\.flow \(60 s\) comes first"),
    ],
)
def test_two_written_limits_that_cannot_both_matter(timeouts, text):
    """T12: a warning, once, with both names, where the spec was read."""
    with pytest.warns(StreamGuardWarning, match=text) as told:
        FlowSpec.of({"timeouts": timeouts})
    assert len(told) == 1
    assert told[0].filename == __file__


def test_defaults_never_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FlowSpec.of({"timeouts": {"flow": 60_000}})
        FlowSpec.of({"timeouts": {"flow": 600_000, "step": 300_000, "tool": 60_000}})


# -- only when it is used --------------------------------------------------------------------------


def test_yaml_is_an_extra_that_is_named_when_it_is_missing(tmp_path, monkeypatch):
    for module in ("ruamel", "ruamel.yaml", "ruamel.yaml.error"):
        monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / "flow.yaml").write_text(YAML, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"agent-streamguard\[yaml\]"):
        FlowSpec.load(tmp_path / "flow.yaml")
    (tmp_path / "flow.toml").write_text(TOML, encoding="utf-8")
    assert FlowSpec.load(tmp_path / "flow.toml") == FlowSpec.of(MAPPING)


def test_nothing_reads_yaml_before_there_is_some():
    code = (
        "import sys; from streamguard.specs import FlowSpec; "
        "FlowSpec.of({'timeouts': {'step': 900_000}}); "
        "assert not [name for name in sys.modules if name.startswith('ruamel')]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


# -- the guide -------------------------------------------------------------------------------------


def test_the_spec_in_the_guide(tmp_path):
    """What docs/how-to/scopes.md shows is a spec, and says what the guide says of it."""
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "scopes.md").read_text(
        encoding="utf-8"
    )
    (tmp_path / "build.yaml").write_text(
        guide.partition("```yaml\n")[2].partition("```")[0], encoding="utf-8"
    )
    spec = FlowSpec.load(tmp_path / "build.yaml")
    assert limits(spec.scope("step", "heavy-analysis")) == (1200, 1800)
    assert limits(spec.scope("step", "migration")) == (2400, 3000)
