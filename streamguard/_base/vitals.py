"""`Vitals`: what a process and all below it were seen to be at, in one look.

A value, for events, verdicts and receipts. Numbers and the kernel's own words alone: no command line, no
path, no address and no host name (E3). How it is taken: `process/look`. Imports durations.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from streamguard._base.durations import in_words

# Whom a connection is with, as far as its address tells: a machine elsewhere, one near by, this one.
Peer: TypeAlias = Literal["public", "private", "loopback", ""]

_MEGABYTE: Final = 1_000_000
# A line in the log shows so many of each.
_SHOWN: Final = 3


class Sockets(NamedTuple):
    """TCP sockets that are alike: how many, their state, with whom, and the bytes in their queues.

    `port`: the other side's, such as 443; of one that listens its own.
    """

    state: str
    peer: Peer
    port: int | None
    number: int
    to_send: int
    to_read: int

    def __str__(self) -> str:
        where = self.peer + (f":{self.port}" if self.port is not None else "")
        what = f"{self.number} {self.state}{f' {where}' if where else ''}"
        if self.state == "LISTEN":
            return what
        return f"{what} ({self.to_send} to send, {self.to_read} to read)"


class Waiters(NamedTuple):
    """What some processes wait in (`epoll_wait`, `read of a pipe`), or are (`running`, `stopped`)."""

    where: str
    number: int

    def __str__(self) -> str:
        return f"{self.number} x {self.where}" if self.number > 1 else self.where


@dataclass(frozen=True, slots=True, kw_only=True)
class Vitals:
    """A process tree at one instant. A field is None if the system did not tell it.

    `cpu`: seconds of processor time that it has used in the `over` seconds before, children that
    have ended included. `rss`: bytes in memory, shared ones counted in each process. `processes`: it and
    all below it; `threads`: all of theirs. `unix` and `pipes` are counted, `sockets` are TCP's. `parked`: where the processes
    wait. `is_partial`: there was more than is looked at, or the system did not show all.
    """

    cpu: float | None = None
    over: float | None = None
    rss: int | None = None
    processes: int = 1
    threads: int | None = None
    sockets: tuple[Sockets, ...] | None = None
    unix: int | None = None
    pipes: int | None = None
    parked: tuple[Waiters, ...] | None = None
    is_partial: bool = False

    def __str__(self) -> str:
        """One line for a person."""
        said: list[str] = []
        if self.cpu is not None and self.over is not None:
            said.append(f"cpu {self.cpu:.1f} s in the last {in_words(self.over)}")
        if self.rss is not None:
            said.append(f"{self.rss / _MEGABYTE:.0f} MB")
        children = self.processes - 1
        said.append(f"{children} {'child' if children == 1 else 'children'}")
        parts = [", ".join(said)]
        if self.sockets is not None:
            parts.append(f"sockets: {_some(self.sockets) or 'none'}")
        if self.parked:
            parts.append(f"parked on {', '.join(map(str, self.parked[:_SHOWN]))}")
        if self.is_partial:
            parts.append("there is more than was looked at")
        return "; ".join(parts)

    def as_json(self) -> dict[str, Any]:
        """The same, as `json.dumps` takes it."""
        return {
            "cpu_s": None if self.cpu is None else round(self.cpu, 3),
            "over_s": None if self.over is None else round(self.over, 3),
            "rss": self.rss,
            "processes": self.processes,
            "threads": self.threads,
            "sockets": None if self.sockets is None else [each._asdict() for each in self.sockets],
            "unix": self.unix,
            "pipes": self.pipes,
            "parked": None if self.parked is None else [each._asdict() for each in self.parked],
            "is_partial": self.is_partial,
        }

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """What `as_json` gave."""
        sockets, parked = told["sockets"], told["parked"]
        return cls(
            cpu=told["cpu_s"],
            over=told["over_s"],
            rss=told["rss"],
            processes=told["processes"],
            threads=told["threads"],
            sockets=None if sockets is None else tuple(Sockets(**each) for each in sockets),
            unix=told["unix"],
            pipes=told["pipes"],
            parked=None if parked is None else tuple(Waiters(**each) for each in parked),
            is_partial=told["is_partial"],
        )


def _some(sockets: tuple[Sockets, ...]) -> str:
    shown = ", ".join(map(str, sockets[:_SHOWN]))
    more = sum(each.number for each in sockets[_SHOWN:])
    return f"{shown}, {more} more" if more else shown
