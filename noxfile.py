"""The common chores, each in an environment of its own: `nox -l` lists them, `nox -s lint types` runs two.

What CI runs, and what a release needs, is `.ci/run`: it also has what no environment holds (real clients, the
README's commands, the oldest dependencies).
"""

from __future__ import annotations

import nox

nox.needs_version = ">=2025.2.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.error_on_external_run = True
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["lint", "types", "tests"]

_PYTHONS = nox.project.python_versions(nox.project.load_toml("pyproject.toml"))
_OLDEST = _PYTHONS[0]  # what lints and types there does so everywhere


@nox.session(python=_PYTHONS)
def tests(session: nox.Session) -> None:
    """The tests on each Python: `nox -s tests-3.12 -- tests/guard -k hold`."""
    session.install("-e", ".[test-all]")
    session.run("python", "-m", "pytest", "-n", "4", *session.posargs)


@nox.session(python=_OLDEST)
def lint(session: nox.Session) -> None:
    """Ruff, and whether everything is formatted."""
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session(python=_OLDEST)
def types(session: nox.Session) -> None:
    """Two checkers, both strict."""
    session.install("-e", ".[dev]")
    session.run("mypy")
    session.run("pyright", "--pythonpath", f"{session.bin}/python")


@nox.session(python=_OLDEST)
def bench(session: nox.Session) -> None:
    """A look at all figures; for what is kept, say so: `nox -s bench -- --rows message`."""
    session.install("-e", ".[bench]")
    session.run("python", "-m", "benchmarks", *(session.posargs or ["--quick", "--no-save"]))
