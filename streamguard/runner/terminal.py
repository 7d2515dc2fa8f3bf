"""Terminals: one for the command (`--pty`), and ours, given back as it was found.

Without a person at it the command's terminal changes nothing of what is written (no carriage
returns, no echo). With one, it is set as ours was and ours passes keys on unchanged, so that
Ctrl-C and line editing are the command's terminal's business. Imports the standard library.
"""

from __future__ import annotations

import os

from streamguard.runner._signal import signal

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

_STANDARD = (0, 1, 2)
_USUAL_SIZE = (24, 80)


class Terminal:
    """Our own terminal, if there is one at any of our standard descriptors."""

    def __init__(self) -> None:
        self._fd = next((fd for fd in _STANDARD if os.isatty(fd)), None)
        self._before = None if self._fd is None else _attributes(self._fd)
        self.is_typed_at = os.isatty(0)
        self._passes_keys_on = False

    def open_for_command(self) -> tuple[int, int]:
        """Our end and the command's."""
        import termios
        import tty

        ours, theirs = os.openpty()
        if self.is_typed_at and self._before is not None:
            termios.tcsetattr(theirs, termios.TCSANOW, self._before)
        else:
            tty.setraw(theirs, termios.TCSANOW)
        self.copy_size(theirs)
        return ours, theirs

    def copy_size(self, terminal: int) -> None:
        """As ours is, or as a terminal usually is."""
        import termios

        size = _USUAL_SIZE
        if self._fd is not None:
            try:
                size = termios.tcgetwinsize(self._fd)
            except OSError:
                pass
        try:
            termios.tcsetwinsize(terminal, size)
        except OSError:
            pass  # the command has gone

    def pass_keys_on(self) -> None:
        """Ours shall do nothing with what is typed."""
        if self.is_typed_at and self._is_ours_to_change():
            import termios
            import tty

            self._passes_keys_on = True
            try:
                tty.setraw(0, termios.TCSANOW)
            except termios.error:
                pass

    def resume(self) -> None:
        """After a stop: pass keys on again, if we did."""
        if self._passes_keys_on:
            self.pass_keys_on()

    def restore(self, *, if_changed_by_us: bool = False) -> None:
        """As it was found. A command that was killed may have left it otherwise."""
        if self._fd is None or self._before is None:
            return
        if if_changed_by_us and not self._passes_keys_on:
            return
        if not self._is_ours_to_change():
            return
        import termios

        # Also from the background, where that would stop us.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            termios.tcsetattr(self._fd, termios.TCSANOW, self._before)
        except termios.error:
            pass  # it has been hung up
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _is_ours_to_change(self) -> bool:
        """Not if we are in the background: then it is set as the shell, or another job, needs it."""
        assert self._fd is not None
        try:
            group = os.tcgetpgrp(self._fd)
            if group != os.getpgrp():
                os.killpg(group, 0)  # a command's that is dead by now is nobody's
                return False
        except ProcessLookupError:
            return True
        except OSError:  # it is not the terminal of our session, so it has no background
            return True
        return True


def _attributes(fd: int) -> list[Any] | None:
    import termios

    try:
        return termios.tcgetattr(fd)
    except termios.error:
        return None
