"""What one run was asked for: plain values, made by the command line and read by the machine.

A plain class: the command's start pays for this module. Imports the defaults.
"""

from __future__ import annotations

from streamguard._base import defaults

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

TERM = 15
_LIMITS = ("idle", "first", "first_json", "liveness", "tools", "turn", "exit_grace", "total")


class Settings:
    """The values of one run; seconds, and None is off."""

    command: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # what is doubtful about all this
    program: str = "streamguard run"  # whose messages these are

    idle: float | None = None
    first: float | None = None
    first_json: float | None = None
    liveness: float | None = None
    tools: float | None = defaults.TOOLS
    tools_by_name: Mapping[str, float | None] | None = None
    watches_tools: bool = False  # `tools` was asked for: enough to look at the output
    turn: float | None = None
    exit_grace: float | None = None
    wants_exit_grace: bool = False  # it was asked for, and is no default
    total: float | None = None
    after_sleep: float | None = defaults.AFTER_SLEEP
    wants_after_sleep: bool = False  # it was asked for, and is no default
    # Beyond silence: what is told, and only with `end_on` ends anything.
    quiet: float | None = defaults.QUIET
    quiet_by_name: Mapping[str, float | None] | None = None
    repeats: int | None = defaults.REPEATS
    tokens: float | None = None
    cost: float | None = None
    calls: float | None = None
    end_on: frozenset[Any] = frozenset()
    watches_progress: bool = False  # one of them was asked for: enough to look at the output
    transcript: str | None = None  # what is written there counts, too

    kill_after: float | None = defaults.KILL_GRACE
    signal: int = TERM
    preserve_status: bool = False
    # As GNU `timeout`: the command and its group are sent signals, not its whole tree; nothing of
    # its output is looked at; and SIGALRM means that the time is up.
    group_only: bool = False
    only_warn: bool = False
    is_off: bool = False  # the kill switch: become the command, and guard nothing (T11)

    stdin: str = "inherit"  # or "null"
    pty: bool = False
    foreground: bool = False
    reap: bool = False

    retries: int = 0
    backoff: tuple[float, ...] = defaults.BACKOFF
    resume_command: str | None = None
    fresh_if_unknown: bool = False
    wait_for_limit: float | None = None

    lock: str | None = None
    github: bool | None = None  # None: as GitHub Actions' own variable says
    on_warn: tuple[str, ...] | None = None
    on_end: tuple[str, ...] | None = None

    record: str | None = None
    status_file: str | None = None
    errors_as_json: bool = False
    verbose: bool = False
    elsewhere: str | None = None  # where its work is done, if not by what it starts: see `cli`
    notify_systemd: bool = False
    heartbeat: str | None = None  # the file that is renewed while all is well
    speaks_json: bool = False  # what its arguments say; its output may say so, too

    def unlimit(self) -> None:
        """No limit is in force, whatever was said."""
        for name in (*_LIMITS, "tools_by_name", "record"):
            setattr(self, name, None)
        self.watches_tools = self.wants_exit_grace = self.fresh_if_unknown = False
        self.wait_for_limit = None

    @property
    def has_pulse(self) -> bool:
        """Whether somebody waits for signs of life."""
        return self.notify_systemd or self.heartbeat is not None

    @property
    def watches_output(self) -> bool:
        """Whether anything depends on what the command writes."""
        is_limited = self.watches_tools or self.watches_progress
        is_limited |= any(limit is not None for limit in self._of_output)
        return is_limited or self.record is not None or self.overcomes

    @property
    def overcomes(self) -> bool:
        """Whether what ends an agent by itself is looked at: an unknown session, a usage limit."""
        return self.fresh_if_unknown or self.wait_for_limit is not None

    @property
    def may_go_on(self) -> bool:
        """Whether there may be a second attempt."""
        return self.retries > 0 or self.wait_for_limit is not None

    @property
    def notifies(self) -> bool:
        """Whether anybody beside the log is told of concerns and of the end."""
        return bool(self.github or self.on_warn or self.on_end)

    @property
    def _of_output(self) -> tuple[float | None, ...]:
        """The limits on what the command writes; of its tools there is one by default, too."""
        silences = (self.idle, self.first, self.first_json, self.liveness)
        return (*silences, self.turn, self.exit_grace)

    @property
    def measures_silence(self) -> bool:
        """Whether there is a limit that a transcript can put off."""
        silences = (self.idle, self.first, self.first_json)
        return self.tools_are_silence or any(limit is not None for limit in silences)

    @property
    def depends_on_lines(self) -> bool:
        """Whether a limit was asked for that depends on what lines say, however late they come."""
        is_limited = self.liveness is not None or self.turn is not None
        is_limited |= self.watches_tools or self.wants_exit_grace or self.watches_progress
        return is_limited or self.overcomes

    @property
    def ceilings(self) -> dict[Any, float]:
        """How much may be used up."""
        most = {"tokens": self.tokens, "cost": self.cost, "calls": self.calls}
        return {name: number for name, number in most.items() if number is not None}

    @property
    def tools_are_silence(self) -> bool:
        """Whether silence counts as a tool, of a command that says nothing of its tools."""
        return self.watches_tools and self.idle is None and self.tools is not None

    @property
    def shortest_limit(self) -> float:
        """The soonest that anything could have to be decided."""
        limits = [*self._of_output, self.total]
        if self.watches_tools:
            limits += [self.tools, *(self.tools_by_name or {}).values()]
        return min((limit for limit in limits if limit is not None), default=float("inf"))
