"""systemd, told how a run goes: `sd_notify`'s datagrams, and its watchdog.

The variables are ours alone: the command does not get them, so it cannot answer for us, and systemd's
`NotifyAccess=main` is enough. Nothing is waited for: what the manager has no room for is said later, if it is
still true then. Standard library only.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SOCKET = "NOTIFY_SOCKET"
WATCHDOG = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"
OURS = (SOCKET, WATCHDOG, WATCHDOG_PID)

_NEVER = float("inf")
# Of the watchdog's time: under half of it, for a machine that is busy.
_SHARE = 0.4
# How soon what was not taken is said again, in seconds.
_AGAIN = 1.0


class Manager:
    """The service manager that has started us."""

    def __init__(
        self, address: str | bytes, every: float | None, complain: Callable[[str], None]
    ) -> None:
        import _socket  # all of `socket` would take as long as our own start

        self.every = every  # between two beats; None: there is no watchdog, or it is another's
        self.again_at = _NEVER  # when `flush` has something to do
        self._address = address
        self._complain = complain
        self._socket = _socket.socket(_socket.AF_UNIX, _socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._status = ""
        self._waiting: list[str] = []
        self._is_told = False

    @classmethod
    def of_environment(cls, complain: Callable[[str], None]) -> Manager | None:
        """Who is named there; None, and a complaint, if nobody is who could be told."""
        named = os.environ.get(SOCKET, "")
        if not named:
            complain(f"warning: --notify-systemd: ${SOCKET} is not set, so nobody is told")
            return None
        if named[0] not in "/@":
            complain(f"warning: --notify-systemd: ${SOCKET} is neither a path nor an @ and a name")
            return None
        address = b"\0" + os.fsencode(named[1:]) if named[0] == "@" else named
        return cls(address, _interval(os.environ), complain)

    def ready(self) -> None:
        """The command runs."""
        self._must("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`; the same one is not said again."""
        if text != self._status:
            self._status = text if self._send(f"STATUS={text}") else ""

    def beat(self) -> None:
        """All is well."""
        self._send("WATCHDOG=1")

    def stopping(self, within: float) -> None:
        """The run ends, and systemd's own bound for that is not to come before ours."""
        more = f"\nEXTEND_TIMEOUT_USEC={int(within * 1e6)}" if within < _NEVER else ""
        self._must(f"STOPPING=1{more}")

    def flush(self, now: float) -> None:
        """Say what had no room before."""
        if now < self.again_at:
            return
        self.again_at = _NEVER
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._must(each)

    def close(self) -> None:
        """Nothing more is said."""
        self.flush(_NEVER)
        self._socket.close()

    def _must(self, line: str) -> None:
        if self._waiting or not self._send(line):
            self._waiting.append(line)
            self.again_at = time.monotonic() + _AGAIN

    def _send(self, text: str) -> bool:
        """Whether that is done with; False: there is no room for it now."""
        try:
            self._socket.sendto(text.encode(errors="replace"), self._address)
        except BlockingIOError:
            return False
        except OSError as error:
            if not self._is_told:
                self._is_told = True
                self._complain(f"--notify-systemd: systemd is not told: {error.strerror or error}")
        return True


def without_ours(environment: Mapping[str, str]) -> dict[str, str]:
    """What the command gets of it."""
    return {name: value for name, value in environment.items() if name not in OURS}


def _interval(environment: Mapping[str, str]) -> float | None:
    """How often the watchdog wants to hear of us."""
    if environment.get(WATCHDOG_PID, str(os.getpid())) != str(os.getpid()):
        return None
    text = environment.get(WATCHDOG, "")
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text)):
        return None
    return int(text) * 1e-6 * _SHARE
