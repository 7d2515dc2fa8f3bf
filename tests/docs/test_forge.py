"""What the repository's host reads: its YAML parses, workflows call `.ci/run`, and each action is pinned by its commit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github"
WORKFLOWS = sorted((FOLDER / "workflows").glob("*.yml"))
FORMS = sorted(FOLDER.glob("ISSUE_TEMPLATE/[0-9]*.yml"))

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="not a part of the sdist")


def read(path):
    yaml = pytest.importorskip("ruamel.yaml")
    return yaml.YAML(typ="safe", pure=True).load(path.read_text("utf-8"))


def steps_of(workflow):
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


def test_there_are_workflows_and_forms():
    assert [path.stem for path in WORKFLOWS] == ["ci", "release"]
    assert len(FORMS) == 3


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_do_no_more_than_it_must(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    assert all(job["timeout-minutes"] <= 60 for job in workflow["jobs"].values())
    for step in steps_of(workflow):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
        else:  # nothing that a stranger chose is put into a shell
            assert "${{" not in step["run"]


def test_ci_is_the_command_that_everybody_has():
    steps = steps_of(read(FOLDER / "workflows/ci.yml"))
    assert [step["run"] for step in steps if "run" in step] == ["bash .ci/run"]
    pythons = next(s["with"]["python-version"] for s in steps if "setup-python" in s["uses"])
    run = (ROOT / ".ci/run").read_text("utf-8")
    assert sorted(pythons.split()) == re.search(r"VERSIONS=\((.*)\)", run)[1].split()


def test_a_release_is_checked_attested_and_published_without_a_password():
    workflow = read(FOLDER / "workflows/release.yml")
    text = (FOLDER / "workflows/release.yml").read_text("utf-8")
    assert ".ci/release.py --built-from" in text
    assert "attest-build-provenance" in text
    assert workflow["jobs"]["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in text


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_it_needs(path):
    form = read(path)
    assert form["name"]
    assert form["description"]
    ids = [each["id"] for each in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(each["attributes"]["label"] for each in form["body"])
    if "question" not in path.stem:
        assert "doctor" in ids
