"""A terminal that shows lines, again and again, until somebody has seen enough.

The lines are on a screen of their own, and the terminal is left as it was found: after `q`, after a signal, and while
the program is stopped by Ctrl-Z. Keys are read from the terminal that is drawn on, so standard input may be anything.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, Final

# Another screen, without a cursor, where a line that is too long is cut; and back.
_ENTER: Final = b"\x1b[?1049h\x1b[?25l\x1b[?7l"
_LEAVE: Final = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_ERASE_LINE: Final = "\x1b[2K"
_ERASE_BELOW: Final = "\x1b[J"
_ESCAPE: Final = b"\x1b"
_ENDS: Final = frozenset(b"qQ\x03\x04")
_MORE_OF_A_KEY: Final = 0.1
_BY_SIGNAL: Final = 128
_USUAL: Final = (80, 24)


def can_show() -> bool:
    """Whether standard output is a terminal that can be drawn on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def size() -> tuple[int, int]:
    """How many columns and lines it has now, whatever $COLUMNS said at the start."""
    with suppress(OSError):
        columns, lines = os.get_terminal_size(sys.stdout.fileno())
        if columns and lines:
            return columns, lines
    return _USUAL


def is_coloured() -> bool:
    """Whether colours are wanted: https://no-color.org."""
    return not os.environ.get("NO_COLOR")


def show(lines: Callable[[int, int], Sequence[str]], every: float) -> None:
    """Draw what `lines(width, height)` gives, every so many seconds, until a key or a signal ends it."""
    sys.stdout.flush()
    with _Terminal().shown() as terminal, suppress(KeyboardInterrupt):
        while terminal.is_there:
            columns, height = size()
            terminal.draw(lines(columns, height)[:height], height)
            if terminal.is_ended_within(every):
                return


class _Terminal:
    """Standard output, and the keys of the same terminal."""

    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._keys = -1
        self._before: Any = None
        self._woken, self._waking = -1, -1
        self.is_there = True

    @contextmanager
    def shown(self) -> Generator[_Terminal, None, None]:
        """Within the block it is ours."""
        with suppress(OSError):
            self._keys = os.open(os.ttyname(self._out), os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC)
        self._woken, self._waking = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(self._waking, False)
        handlers = {
            signal.SIGTERM: _end,
            signal.SIGHUP: _end,
            signal.SIGTSTP: self._stop,
            signal.SIGWINCH: _nothing,  # `select` ends by it, and the new size is asked for
        }
        before = {
            number: signal.signal(number, handler)
            for number, handler in handlers.items()
            if signal.getsignal(number) != signal.SIG_IGN  # as `nohup` has it
        }
        waking_before = signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        try:
            self._enter()
            yield self
        finally:
            self._leave()
            signal.set_wakeup_fd(waking_before)
            for number, handler in before.items():
                signal.signal(number, handler)
            for fd in (self._keys, self._woken, self._waking):
                if fd >= 0:
                    os.close(fd)

    def draw(self, lines: Sequence[str], height: int) -> None:
        """Show these lines, and nothing else."""
        # Erased before it is written: behind a whole line the cursor is still on its last place.
        text = "\r\n".join(f"{_ERASE_LINE}{line}" for line in lines)
        rest = f"\r\n{_ERASE_BELOW}" if len(lines) < height else ""
        self._write(f"{_HOME}{text}{rest}".encode(errors="replace"))

    def is_ended_within(self, seconds: float) -> bool:
        """Whether somebody ends it before so many seconds are over, or before there is something to draw anew."""
        watched = [self._woken, *([self._keys] if self._keys >= 0 else [])]
        ready, _, _ = select.select(watched, [], [], seconds)
        if self._woken in ready:
            with suppress(BlockingIOError):
                os.read(self._woken, 4096)
        return self._keys in ready and self._is_end()

    def _is_end(self) -> bool:
        try:
            typed = os.read(self._keys, 256)
        except OSError:
            typed = b""
        if not typed:  # nobody is there any more
            return True
        if typed.startswith(
            _ESCAPE
        ):  # with more behind it, which may come late, it is an arrow or a function key
            return typed == _ESCAPE and not select.select([self._keys], [], [], _MORE_OF_A_KEY)[0]
        return not _ENDS.isdisjoint(typed)

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        """Ctrl-Z: the terminal is the shell's until we go on."""
        self._leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        self._enter()

    def _enter(self) -> None:
        if self._keys >= 0:
            with suppress(ImportError, OSError, ValueError):
                import termios
                import tty

                self._before = termios.tcgetattr(self._keys)
                tty.setcbreak(self._keys)
        self._write(_ENTER)

    def _leave(self) -> None:
        self._write(_LEAVE)
        if self._before is not None:
            import termios

            with suppress(termios.error):
                termios.tcsetattr(self._keys, termios.TCSADRAIN, self._before)

    def _write(self, text: bytes) -> None:
        try:
            while text:
                text = text[os.write(self._out, text) :]
        except OSError:
            self.is_there = False


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_BY_SIGNAL + number)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """Nothing is to be done at once."""
