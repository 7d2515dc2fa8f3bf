"""Who is told, beside the log, of a concern and of the end: GitHub Actions, and commands of the user's.

None of them decides anything, and nobody waits for them but at the very end, within their bounds. Imported
where one of them is asked for.
"""

from __future__ import annotations

import os
from contextlib import suppress

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from streamguard.runner.hooks import Hooks
    from streamguard.runner.result import Result
    from streamguard.runner.run import CommandRun

# What is told to who asked for it, and is no warning for everybody.
_QUIET = ("half_time",)


class Notices:
    """Those of one run; `status_file` is where it is written, if it is."""

    def __init__(self, run: CommandRun, status_file: str | None) -> None:
        self._run = run
        self._settings = settings = run.settings
        self._status_file = status_file
        self._summary: str | None = None
        self._hooks: Hooks | None = None
        if settings.github:
            from streamguard.runner import github

            self._github = github
            self._summary = os.environ.get(github.SUMMARY)
            with suppress(OSError):  # the folder that we are in was removed
                # Who writes it stands elsewhere.
                self._summary = os.path.abspath(self._summary) if self._summary else None
        if settings.on_warn or settings.on_end:
            from streamguard.runner.hooks import Hooks

            self._hooks = Hooks(settings.program, run.wakeups, run.closed, run.complain)

    def concern(self, kind: str, text: str, facts: Mapping[str, object]) -> None:
        """Something that ends nothing: an event by its name, and what is known of it."""
        event = _in_words(kind)
        if self._settings.github and event not in _QUIET:
            title = f"streamguard: {event.replace('_', ' ')}"
            self._run.words.say_as_it_is(self._github.annotation("warning", title, text))
        if self._hooks is not None and self._settings.on_warn:
            told = {
                "EVENT": event,
                "REASON": text,
                "LIMIT": facts.get("limit"),
                "WINDOW": facts.get("window", facts.get("ceiling")),
                "ELAPSED": facts.get("elapsed", facts.get("spent")),
                "PID": facts.get("pid"),
                "STATUS_FILE": self._status_file,
                "SESSION_ID": facts.get("session_id"),
            }
            self._hooks.begin("--on-warn", self._settings.on_warn, told)

    def limit(self, outcome: Result, told: Mapping[str, Any]) -> None:
        """A limit has ended the run, and the log has it."""
        if not self._settings.github:
            return
        self._run.words.say_as_it_is(self._github.of_limit(outcome, told))
        why: str | None = "GITHUB_STEP_SUMMARY is not set"
        if self._summary:
            text = self._github.summary(outcome, told, self._status_file)
            why = self._github.add_to_summary(self._summary, text)
        if why is not None:
            self._run.complain(f"--github: the step's summary is not written: {why}")

    def ended(self, outcome: Result, told: Mapping[str, Any]) -> None:
        """The run is over, and all else is written."""
        if self._hooks is None:
            return
        if self._settings.on_end:
            facts = {
                "EVENT": "ended",
                "REASON": told["reason"],
                "LIMIT": told["limit"],
                "WINDOW": told["window"],
                "ELAPSED": told["elapsed"],
                "PID": told["pid"],
                "EXIT": told["exit_code"],
                "RECEIPT": told.get("receipt"),
                "STATUS_FILE": self._status_file,
                "SESSION_ID": outcome.token,
            }
            self._hooks.begin("--on-end", self._settings.on_end, facts)
        self._run.let_go_of_output()
        self._hooks.finish()

    @property
    def longest(self) -> float:
        """How long the end of the run may wait for who is told of it."""
        if self._hooks is None:
            return 0.0
        from streamguard.runner.hooks import LONGEST

        return LONGEST


def _in_words(kind: str) -> str:
    """`half_time` for `HalfTime`."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in kind).lstrip("_")
