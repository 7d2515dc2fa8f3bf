"""Seeing to it that a command ends: asked, given its grace, killed, until nobody is left of it.

A signal that was passed on goes to the command and its group, as a terminal would send it; a verdict
asks the whole tree. From either the same grace runs, and nothing that comes later prolongs it. When
the command is dead, whoever is left of its tree is asked, too. With `group_only` (GNU's way) all of
that stops at the command itself. Knows no output and no limits; told the time, it never waits.
"""

from __future__ import annotations

import os

from streamguard.runner._signal import name_of, signal
from streamguard.runner.outcome import say

TYPE_CHECKING = False

if TYPE_CHECKING:
    from streamguard.runner.child import Child
    from streamguard.runner.outcome import Outcome
    from streamguard.runner.run import Run
    from streamguard.runner.tree import Tree

_NEVER = float("inf")
# Looks for who is left of a tree, in seconds.
_FIRST_LOOK = 0.02
_LAST_LOOK = 0.25


class Ending:
    """The end of one child; what it took is noted in `outcome`."""

    def __init__(self, run: Run, child: Child, outcome: Outcome, mark: str | None) -> None:
        self._run = run
        self._settings = run.settings
        self._child = child
        self._outcome = outcome
        self._mark = mark
        self._tree: Tree | None = None
        self._tree_is_gone = False
        self._kill_at = _NEVER
        self._look_at = _NEVER
        self._pause = _FIRST_LOOK
        self.began: float | None = None

    @property
    def has_begun(self) -> bool:
        """Whether anybody or anything has asked for an end."""
        return self.began is not None

    @property
    def is_over(self) -> bool:
        """Whether nobody is left, or whoever is left cannot be ended."""
        if self._mark is None:
            return self._child.is_dead
        return self._tree_is_gone and (self._child.is_dead or bool(self._outcome.survivors))

    def due(self) -> float:
        """When `pursue` has something to do; inf if never."""
        return min(self._kill_at, self._look_at)

    def ask_command(self, number: int, now: float) -> None:
        """Send the command, and its group if it has one, a signal that asks for an end."""
        self._begin(now)
        self.send(number)

    def ask_tree(self, number: int, now: float) -> None:
        """Send everything that the command ever started a signal; with `group_only`, its group."""
        if self._mark is None:
            self.ask_command(number, now)
            return
        self._begin(now)
        self._announce(number)
        self._note(*self._whole_tree().ask(number))
        self._look_at = now

    def hurry(self, now: float) -> None:
        """The grace is over: kill."""
        self._begin(now)
        self._kill_at = now

    def child_has_died(self, now: float) -> None:
        """The command itself is dead, or an orphan of its has ended."""
        if self._mark is not None and self.has_begun and not self._tree_is_gone:
            self._look_at = now

    def pursue(self, now: float) -> None:
        """Do what is due."""
        if now >= self._kill_at:
            self._kill_at = _NEVER
            self._kill()
        elif now >= self._look_at:
            self._look(now)

    def send(self, number: int) -> None:
        """Send the command, and its group if it has one, a signal; a stopped one is continued."""
        self._announce(number)
        self.deliver(number)
        self._note(name_of(number))
        if number not in (signal.SIGKILL, signal.SIGCONT):
            self.deliver(signal.SIGCONT)

    def deliver(self, number: int) -> None:
        """The same, and nothing is said or noted of it."""
        if self._child.is_dead:  # its number may be another's by now
            return
        try:
            if self._settings.foreground:
                os.kill(self._child.pid, number)
            else:
                os.killpg(self._child.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def close(self) -> None:
        """Let go of what is held."""
        if self._tree is not None:
            self._tree.close()

    def _begin(self, now: float) -> None:
        if self.began is None:
            self.began = now
            if self._settings.kill_after is not None:
                self._kill_at = now + self._settings.kill_after

    def _look(self, now: float) -> None:
        if not self._whole_tree().living():
            self._tree_is_gone = True
            self._look_at = _NEVER
            return
        if self._child.is_dead:  # those who have nobody else to end them
            self._note(*self._whole_tree().ask(signal.SIGTERM))
        self._look_at = now + self._pause
        self._pause = min(2 * self._pause, _LAST_LOOK)

    def _kill(self) -> None:
        if self._mark is None:
            if not self._child.is_dead:
                self.send(signal.SIGKILL)
            return
        self._announce(signal.SIGKILL)
        ended = self._whole_tree().kill()
        self._note(*ended.signals)
        self._outcome.survivors = ended.survivors
        self._tree_is_gone = True
        self._look_at = _NEVER

    def _whole_tree(self) -> Tree:
        if self._tree is None:
            from streamguard.runner.tree import Tree

            assert self._mark is not None
            self._tree = Tree(
                self._child,
                mark=self._mark,
                leads_session=not self._settings.foreground,
                adopts_orphans=self._run.adopts_orphans,
            )
            self._run.spare_sentinel()
        return self._tree

    def _announce(self, number: int) -> None:
        if self._settings.verbose:
            name, command = name_of(number), self._settings.command[0]
            say(f"{self._settings.program}: sending signal {name} to command '{command}'")

    def _note(self, *names: str) -> None:
        self._outcome.signals += [name for name in names if name not in self._outcome.signals]
