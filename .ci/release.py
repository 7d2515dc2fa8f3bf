"""Makes a release ready: checks the tree, builds, checks what was built, and tags. It never pushes and never publishes.

    python .ci/release.py --dry-run      all but the tag
    python .ci/release.py                and the tag, on this machine
    git push origin v1.2.3               a person's: the workflow then publishes, and attests where it was built

Before it: the version in `streamguard/_version.py`, and in CHANGELOG.md a section `## 1.2.3 - 2030-01-31` in place of
`## Unreleased`. Needs what `.[dev]` installs, and git. The workflow says `--built-from v1.2.3`: the tag is there then.
"""

from __future__ import annotations

import argparse
import email
import hashlib
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
VERSION = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
SECTION = re.compile(
    r"^## (?P<version>\S+)(?: - (?P<date>[^\n]+))?\n(?P<text>.*?)(?=^## |\Z)",
    re.MULTILINE | re.DOTALL,
)
DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def fail(text: str) -> NoReturn:
    sys.exit(f"release: {text}")


def run(*words: str | Path, cwd: Path = ROOT) -> str:
    """What a command says; its failure is ours."""
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        fail(f"this failed: {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


# --- before it is built -------------------------------------------------------------------


def version_of(root: Path) -> str:
    found = re.search(
        r'^__version__ = "(.*)"$', (root / "streamguard/_version.py").read_text(), re.MULTILINE
    )
    if found is None or not VERSION.fullmatch(found[1]):
        fail("streamguard/_version.py has no version such as 1.2.3 or 1.2.3rc1")
    return found[1]


def check_changelog(text: str, version: str) -> None:
    sections = {found["version"]: found for found in SECTION.finditer(text)}
    if "Unreleased" in sections and sections["Unreleased"]["text"].strip():
        fail(f"CHANGELOG.md still has lines below '## Unreleased': they belong to {version}")
    section = sections.get(version)
    if section is None or not DATE.fullmatch(section["date"] or ""):
        fail(f"CHANGELOG.md needs a section '## {version} - YYYY-MM-DD'")
    if not section["text"].strip():
        fail(f"CHANGELOG.md says nothing about {version}")


def check_tree(version: str, built_from: str | None) -> None:
    if changed := run("git", "status", "--porcelain"):
        fail(f"the tree is not clean:\n{changed}")
    tag = f"v{version}"
    if built_from is not None:
        if built_from != tag:
            fail(f"the tag is {built_from}, and the version {version}: it should be {tag}")
    elif run("git", "tag", "--list", tag):
        fail(
            f"there is a tag {tag} already: the version in streamguard/_version.py is to be raised"
        )


def check_api() -> None:
    run(sys.executable, "-m", "tests.docs.public_api", "--check")


# --- what was built -----------------------------------------------------------------------


def build(dist: Path, *, offline: bool) -> tuple[Path, Path]:
    """The wheel, made of the sdist as others would, and the sdist."""
    words = ["--no-isolation"] if offline else []
    run(sys.executable, "-m", "build", *words, "--outdir", dist, ROOT)
    wheels, sdists = list(dist.glob("*.whl")), list(dist.glob("*.tar.gz"))
    if len(wheels) != 1 or len(sdists) != 1:
        fail(f"{dist} should hold one wheel and one sdist, and nothing from before")
    return wheels[0], sdists[0]


def check_files(wheel: Path, sdist: Path, version: str) -> None:
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        info = f"agent_streamguard-{version}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    if (metadata["Name"], metadata["Version"]) != ("agent-streamguard", version):
        fail(f"the wheel says it is {metadata['Name']} {metadata['Version']}")
    if others := {name.partition("/")[0] for name in names} - {"streamguard", info}:
        fail(f"the wheel holds what is not the package: {', '.join(sorted(others))}")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    if missing := {"pyproject.toml", "LICENSE", "CHANGELOG.md", "SECURITY.md"} - inside:
        fail(f"the sdist lacks {', '.join(sorted(missing))}")


def check_installed(wheel: Path, version: str, *, offline: bool) -> None:
    """In an environment with nothing else, from a folder with nothing of ours."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        venv.create(home / "venv", symlinks=True)
        python = home / "venv/bin/python"
        words = ["--no-index", "--no-deps"] if offline else []
        run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *words, wheel)
        for command in ([home / "venv/bin/streamguard"], [python, "-I", "-m", "streamguard"]):
            said = run(*command, "--version", cwd=home)
            if said != f"streamguard {version}\n":
                fail(f"installed, it says {said!r}")


# --- all of it ----------------------------------------------------------------------------


def steps(asked: argparse.Namespace, version: str) -> Iterator[tuple[str, Callable[[], None]]]:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    yield "the tree is clean, the tag fits", lambda: check_tree(version, asked.built_from)
    yield "the changelog has the version, with a date", lambda: check_changelog(text, version)
    yield "the public API is written down", check_api


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dry-run", action="store_true", help="all but the tag")
    parser.add_argument("--built-from", metavar="TAG", help="that tag is there: check and build")
    parser.add_argument("--dist", type=Path, default=ROOT / "dist", help="where to (./dist)")
    parser.add_argument("--offline", action="store_true", help="a rehearsal without the network")
    asked = parser.parse_args()
    version = version_of(ROOT)
    print(f"{version}:")
    for what, check in steps(asked, version):
        check()
        print(f"  {what}")
    if asked.dist.exists() and any(asked.dist.iterdir()):
        fail(f"{asked.dist} is not empty")
    wheel, sdist = build(asked.dist, offline=asked.offline)
    check_files(wheel, sdist, version)
    print("  built, and its metadata and contents checked")
    check_installed(wheel, version, offline=asked.offline)
    print("  installed, where nothing else is")
    for file in (wheel, sdist):
        print(f"  {hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}")
    finish(asked, version)


def finish(asked: argparse.Namespace, version: str) -> None:
    tag = f"v{version}"
    if asked.built_from:
        return
    if asked.dry_run:
        print(f"A rehearsal: no tag was made. Without --dry-run it would be {tag}.")
        return
    run("git", "tag", "--annotate", "--message", f"streamguard {version}", tag)
    print(
        f"Tagged {tag}. To publish: git push origin {tag}\n"
        "The workflow `release` builds it again from the tag, attests where that was, and publishes without a password: the\n"
        "index has to trust it once (project agent-streamguard, workflow release.yml, environment pypi).\n"
        "To undo before the push: git tag --delete " + tag
    )


if __name__ == "__main__":
    main()
