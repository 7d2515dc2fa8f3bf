"""The release script refuses what is not ready, and a rehearsal in a copy of the tree comes to a tag."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def load():
    spec = importlib.util.spec_from_file_location("release", ROOT / ".ci/release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("## Unreleased\n\n- a\n\n## 1.2.3 - 2030-01-31\n\n- b\n", "still has lines below"),
        ("## 1.2.3 - Unreleased\n\n- b\n", "'## 1.2.3 - YYYY-MM-DD'"),
        ("## 1.2.2 - 2030-01-31\n\n- b\n", "'## 1.2.3 - YYYY-MM-DD'"),
        ("## 1.2.3 - 2030-01-31\n\n## 1.2.2 - 2030-01-01\n\n- b\n", "says nothing"),
    ],
)
def test_a_changelog_that_is_not_ready_is_refused(text, why):
    with pytest.raises(SystemExit, match=why):
        release.check_changelog(text, "1.2.3")


def test_a_changelog_that_is_ready_may_have_an_empty_section_for_what_comes():
    release.check_changelog("## Unreleased\n\n## 1.2.3 - 2030-01-31\n\n- b\n", "1.2.3")


def test_a_version_that_is_none_is_refused(tmp_path):
    (tmp_path / "streamguard").mkdir()
    (tmp_path / "streamguard/_version.py").write_text('__version__ = "1.2"\n')
    with pytest.raises(SystemExit, match=r"no version such as 1\.2\.3"):
        release.version_of(tmp_path)


@pytest.fixture
def clone(tmp_path):
    """A repository with this tree in it, as it would be for a release."""
    for name in ("build", "hatchling", "twine", "claude_agent_sdk"):
        pytest.importorskip(name)
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    tree = tmp_path / "tree"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "dist")
    shutil.copytree(ROOT, tree, ignore=left_out)
    shutil.copytree(ROOT / ".ci", tree / ".ci")
    (tree / ".gitignore").write_text("__pycache__/\n/dist/\n")
    (tree / "CHANGELOG.md").write_text(
        f"# Changelog\n\n## {release.version_of(ROOT)} - 2030-01-31\n\n- It is there.\n"
    )
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--message", "ready")
    return tree


def git(tree, *words):
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.invalid"]
    done = subprocess.run(
        ["git", *who, *words], cwd=tree, capture_output=True, text=True, check=True
    )
    return done.stdout


def run(tree, *words):
    """The script, in that tree, without the network."""
    who = {"GIT_COMMITTER_NAME": "somebody", "GIT_COMMITTER_EMAIL": "somebody@example.invalid"}
    done = subprocess.run(
        [sys.executable, ".ci/release.py", "--offline", *words],
        cwd=tree,
        env={**os.environ, **who, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_rehearsal_builds_and_tags_and_pushes_nothing(clone):
    version = release.version_of(ROOT)
    code, said = run(clone)
    assert code == 0, said
    assert f"agent_streamguard-{version}-py3-none-any.whl" in said
    assert f"To publish: git push origin v{version}" in said
    assert git(clone, "tag", "--list") == f"v{version}\n"
    # Once more: the tag is there.
    code, said = run(clone, "--dry-run")
    assert (code, "there is a tag" in said) == (1, True), said
    # As the workflow does it, with a tag that is not the version's.
    code, said = run(clone, "--built-from", "v9.9.9")
    assert (code, f"it should be v{version}" in said) == (1, True), said
    (clone / "README.md").write_text("changed")
    code, said = run(clone)
    assert (code, "the tree is not clean" in said) == (1, True), said


def test_a_dry_run_makes_no_tag(clone):
    code, said = run(clone, "--dry-run", "--dist", str(clone.parent / "dist"))
    assert code == 0, said
    assert "A rehearsal: no tag was made" in said
    assert git(clone, "tag", "--list") == ""
