"""Where a fleet's sessions are kept: the interface of stores, and the values that go in and out.

A store is a queue, a lease on each session, its checkpoint, the log of timeouts and the live view, in one
place. Its methods are synchronous and may block: engines call them in worker threads, so that a store serves
asyncio and trio alike. All writes about a session that somebody holds are *fenced*: they name the token and the
owner of the claim, and change nothing if the session has gone to another since. All times are
the store's own, in seconds since the epoch; no machine's clock is compared with another's.

What is a secret (the spec, the checkpoint) comes back from `claim` alone, never from what is listed or logged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

JSON: TypeAlias = "bool | int | float | str | list[JSON] | dict[str, JSON] | None"
Status: TypeAlias = Literal["waiting", "running", "done", "parked", "cancelled"]
Kept: TypeAlias = Literal["kept", "cancel"]

STATUSES: tuple[Status, ...] = ("waiting", "running", "done", "parked", "cancelled")


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """What another worker goes on from. It holds the prompt and the session's token.

    `point`: a `ResumePoint` as JSON; None while nothing has happened. `state`: the user's own.
    `delivered`: messages that the consumer is done with, over all attempts: for people.
    """

    point: Mapping[str, Any] | None = field(default=None, repr=False)
    state: Mapping[str, JSON] = field(default_factory=dict[str, JSON], repr=False)
    delivered: int = 0


@dataclass(frozen=True, kw_only=True)
class Claimed:
    """One session, held from now on by the worker that has claimed it.

    `token` grows with each claim of the session; `owner` is the claimant's. Both fence what is written.
    `attempt`: how many claims counted, this one included. `fruitless`: how many of those before it, in
    a row, made no progress.
    """

    key: str
    token: int
    owner: str
    attempt: int
    fruitless: int
    spec: Mapping[str, JSON] = field(repr=False)
    checkpoint: Checkpoint = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Beat:
    """A sign of life of one session, from the worker that holds it.

    `checkpoint`: where it stands; None if nothing has changed since the last beat that was kept.
    `progressed`: whether it has made progress since it was claimed. Then earlier claims without
    progress no longer count.
    """

    key: str
    token: int
    owner: str
    checkpoint: Checkpoint | None = None
    progressed: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """One session as people may see it: no token, no prompt, no text of an error.

    `key`: what it was submitted as. `status`: whether it waits, runs, or is over. `delivered`: messages so far.
    `owner`: the worker that holds a running one. `why`: of a parked or cancelled one, or the type of the
    error that ended its last attempt, "lost" if its owner was. `fruitless`: claims that are over, in a row,
    without progress. `wait`: seconds until a waiting one may be claimed. `silent`: seconds since the
    last beat of a running one's owner. `age`: seconds since it was submitted.
    `cancelling`: a cancel was asked for, and its owner has not answered.
    """

    key: str
    status: Status
    owner: str = ""
    attempt: int = 0
    fruitless: int = 0
    delivered: int = 0
    why: str = ""
    wait: float = 0.0
    silent: float = 0.0
    age: float = 0.0
    cancelling: bool = False


class Blocking(Protocol):
    """What is asked over a network, or of a disk.

    `blocks`: whether its methods may take long, so that they are called in a worker thread.
    """

    blocks: bool

    def interrupt(self) -> None:
        """End whatever waits in a connection, from any thread: it raises `StoreError`. The next call makes a new one."""
        ...


class TimeoutsLog(Blocking, Protocol):
    """A fleet's log of timeouts, for an engine that keeps its sessions elsewhere. Stores have it, too."""

    def note_timeout(self, key: str, line: Mapping[str, Any]) -> None:
        """Add a line of timeouts.jsonl. Nothing fences it: a worker that has lost the session may say how."""
        ...

    def timeouts(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """The log's lines, oldest first, from that time on, each with its `session` and when it was `logged`."""
        ...


class CheckpointStore(Blocking, Protocol):
    """Where a fleet's sessions are kept. Any thread may call, several at once.

    Each method is one transaction. A store that cannot be reached raises `StoreError`. Then nothing was
    changed, or it is not known whether it was. You may repeat each of them: an owner that ends its claim
    in the same way once more gets True again.

    Keys and owners are texts of 1 to 500 characters. Other ones, and what is no JSON, are a `ConfigError`;
    then none of several beats is written.
    """

    def submit(self, key: str, spec: Mapping[str, JSON]) -> bool:
        """Queue a session; False if the key is known already, even if the session is over."""
        ...

    def claim(self, owner: str, ttl: float, limit: int) -> list[Claimed]:
        """Take up to `limit` sessions that wait and may begin, or whose owner has not been heard of for its ttl.

        The longest waiting first. Each claim counts as an attempt. A claim that is over (lost, or given back)
        without a beat that told progress is `fruitless`. A claim that was lost before its first beat is not:
        its owner may never have heard of it. If a cancel was asked for when its owner was lost, the session
        is cancelled, not claimed.
        """
        ...

    def beat(self, beats: Sequence[Beat], ttl: float) -> Mapping[str, Kept]:
        """Renew leases and write checkpoints, in one go. A key that is missing in the answer is lost.

        A beat that comes late is kept if the session was not claimed since.
        """
        ...

    def finish(self, beat: Beat, *, cancelled: bool = False) -> bool:
        """The session is done, or was cancelled on request. False: it was lost before."""
        ...

    def give_back(self, beat: Beat, delay: float, *, counts: bool = True, why: str = "") -> bool:
        """Make it free to claim again after `delay` seconds. Not `counts`: as if it had not been claimed.

        If a cancel was asked for and not answered, it is cancelled instead. `park` does the same.
        """
        ...

    def park(self, beat: Beat, why: str) -> bool:
        """Leave it to a person: no worker claims it until it is released."""
        ...

    def release(self, key: str) -> bool:
        """A parked session may be claimed again, and its attempts without progress are forgotten."""
        ...

    def cancel(self, key: str, why: str) -> bool:
        """End a session. A running one hears of it with its owner's next beat; a lost one is not waited for.

        False: there is none to end.
        """
        ...

    def log_timeout(self, beat: Beat, line: Mapping[str, Any]) -> bool:
        """Add a line of timeouts.jsonl to the fleet's log. False, and nothing is added: it was lost before."""
        ...

    def timeouts(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """The log's lines, oldest first, from that time on, each with its `session` and when it was `logged`."""
        ...

    def live(self, *, all: bool = False) -> list[Row]:  # noqa: A002 - the word of the command line
        """What is there to see: all that is not over, or all."""
        ...

    def show(self, key: str) -> Row | None:
        """One session."""
        ...

    def close(self) -> None:
        """Let go of all connections."""
        ...
