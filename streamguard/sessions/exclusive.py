"""`Exclusive`: of one session of a backend, one owner at a time, over all programs of the user on this machine.

Two programs that resume the same session corrupt it as two attempts of one program would (D5). So whoever is
about to open it has a lock on its name, from before the first attempt until the session's block is left and
all of its backends have certainly ended: also between turns and in backoff, so that no reconnection can lose
it, or refuse itself. Whoever comes meanwhile is told who has it.

The kernel takes the lock from a program that dies. What that has left at work is ended by the next one,
before it opens anything; where that cannot be proven, it is refused as well.

Where such locks cannot be had, that is logged once, and sessions go on without. Knows locks, what they
say of a program, and tokens, of which nothing but a hash leaves it.
"""

from __future__ import annotations

import logging
import os
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from streamguard._base.filelock import FileLock, peek
from streamguard._base.own_folder import UnsafeFolderError, own_folder
from streamguard._base.quoting import name, quoted
from streamguard.errors import SessionHeldError, SessionHolder
from streamguard.process.holder import Holder, Left, Record, end_left

if TYPE_CHECKING:
    from streamguard.activity import Activity
    from streamguard.process import ProcessTree
    from streamguard.process.members import TreeFacts

logger = logging.getLogger("streamguard")

# One place for all programs of a user, whatever is in their environment: a terminal, cron and a service
# have different ones. Beside it, nothing but where everybody may make a folder is known to all of them.
_ROOM: Final = Path("/tmp")  # noqa: S108 - what is made in it is looked at before it is used
# How long it is looked who has it, if that has not said so yet, in seconds.
_PAUSE: Final = 0.01
_LOOKS: Final = 100
# A client may start a process for each turn; those before the latest are long gone.
_MOST_TREES: Final = 64


class Exclusive:
    """What one session has of its backend. `take`, before a connection is opened, is the one that may refuse.

    What a connection uses it by is any object of its own; `gone` is said of that when its backend has certainly
    ended. What is never said so keeps the locks as long as this program lives.
    """

    def __init__(self, backend: str, activity: Activity) -> None:
        self._backend = backend
        self._activity = activity
        self._locks: dict[str, FileLock] = {}
        self._inherited: dict[str, Record] = {}
        self._uses: dict[object, list[TreeFacts]] = {}
        self._is_left = False
        self._me: Holder | None = None

    # -- getting it ------------------------------------------------------------------------

    async def take(self, use: object, token: str | None) -> None:
        """A connection is about to be opened that resumes `token`; or none, and the token comes later.

        Raises:
            SessionHeldError: If another program, or another session of this one, has it; or if
                what a dead one has left at work is not proven to have ended.
        """
        if token is not None and token not in self._locks:
            try:
                await self._lock(token)
            except (OSError, UnsafeFolderError) as error:
                _go_without(error)
        self._uses.setdefault(use, [])

    def known(self, token: str) -> None:
        """That is its name, by what the backend says. Raises nothing: it is at work already."""
        if token in self._locks or (self._is_left and not self._uses):
            return
        try:
            path = self._path(token)
            if (lock := FileLock.take(path)) is None:
                who = _in_words(_holder_of(path))
                logger.warning(
                    "a session that was just opened is at work in another owner: %s", who
                )
                return
        except (OSError, UnsafeFolderError) as error:
            _go_without(error)
            return
        before = self._record_in(lock)
        self._have(token, lock, before)

    async def _lock(self, token: str) -> None:
        path = self._path(token)
        for _ in range(_LOOKS):
            if (lock := FileLock.take(path)) is not None:
                break
            if (holder := _holder_of(path)) is not None:
                raise self._refusal(holder)
            await anyio.sleep(_PAUSE)  # it has not said yet who it is
        else:
            raise self._refusal(None)
        before = self._record_in(lock)
        self._have(token, lock, before)
        if before is not None:
            await self._succeed(token, before)

    async def _succeed(self, token: str, before: Record) -> None:
        """Nobody has it, but somebody has not let go of it: see that nothing is left of that."""
        try:
            left = await anyio.to_thread.run_sync(end_left, before)
        except OSError as error:  # no descriptor left, for one
            left = Left("", f"its end cannot be seen to: {error}")
        if left.why_not:
            self._let_go(token)
            raise self._refusal(before.holder, left.why_not)
        del self._inherited[token]
        self._tell(token)
        who = _in_words(before.holder)
        logger.warning(
            "a session is taken over from %s, which is gone: %s", who, quoted(left.said)
        )

    def _have(self, token: str, lock: FileLock, before: Record | None) -> None:
        """It is ours. What its last owner has left stays on record until it has ended, whoever dies first."""
        self._locks[token] = lock
        if before is not None:
            self._inherited[token] = before
        self._tell(token)

    def _record_in(self, lock: FileLock) -> Record | None:
        if (text := lock.read()) == "":
            return None
        record = None if text is None else Record.from_text(text)
        if record is None:
            logger.warning("%s cannot be read, and is overwritten", quoted(lock.path))
        return record

    # -- having it -------------------------------------------------------------------------

    def keep(self, use: object, tree: ProcessTree) -> None:
        """That is the process of one's connection: whoever comes after a death of ours is to end it."""
        if use in self._uses and tree.proof != "gone":
            trees = self._uses[use]
            trees.append(tree._members.facts)
            del trees[:-_MOST_TREES]
            self._tell(*self._locks)

    def _tell(self, *tokens: str) -> None:
        ours = [facts for trees in self._uses.values() for facts in trees]
        if self._me is None:
            self._me = Holder.of_this_program()
        for token in tokens:
            before = self._inherited.get(token)
            trees = (*(() if before is None else before.trees), *ours)
            _write(self._locks[token], Record(self._me, trees[-_MOST_TREES:]))

    # -- letting go of it ------------------------------------------------------------------

    def gone(self, use: object) -> None:
        """The backend of one's connection has certainly ended."""
        if self._uses.pop(use, None):
            self._tell(*self._locks)
        self._let_go_if_unused()

    def leave(self) -> None:
        """The session's block was left."""
        self._is_left = True
        self._let_go_if_unused()

    def _let_go_if_unused(self) -> None:
        if self._is_left and not self._uses:
            for token in tuple(self._locks):
                self._let_go(token)

    def _let_go(self, token: str) -> None:
        lock, before = self._locks.pop(token), self._inherited.pop(token, None)
        if before is not None:  # what that has left was not ended
            _write(lock, before)
        lock.release(keep_file=before is not None)

    # -- the place, and the words ----------------------------------------------------------

    def _path(self, token: str) -> str:
        """Where its lock is. UnsafeFolderError, OSError if there is no such place."""
        if not hasattr(os, "getuid"):
            raise OSError("this system has no such users")
        home = own_folder(str(_ROOM / f"streamguard-{os.getuid()}"), create=True)
        folder = own_folder(f"{home}/sessions", create=True)
        said = f"{self._backend}\0{token}".encode(errors="surrogatepass")
        return f"{folder}/{sha256(said).hexdigest()[:40]}"

    def _refusal(self, holder: Holder | None, why_not: str = "") -> SessionHeldError:
        who = _in_words(holder)
        if why_not:
            said = (
                f"this session of {self._backend} was left by {who}, and what that had at work may live on: "
                f"{why_not}. Two owners would corrupt the session: see that it ends, and begin again"
            )
        elif holder is not None and (holder.pid, holder.host) == (
            os.getpid(),
            os.uname().nodename,
        ):
            said = (
                f"this session of {self._backend} is at work in this very program already, since "
                f"{_when(holder):%Y-%m-%d %H:%M:%S} UTC. Two owners would corrupt it: leave the other block first"
            )
        else:
            said = (
                f"this session of {self._backend} is at work in {who}. Two owners would corrupt it: let "
                "that program come to its end, or end it, and begin again"
            )
        error = SessionHeldError(f"{said} (exclusive= turns this off)", activity=self._activity)
        if holder is not None:
            error.holder = SessionHolder(
                pid=holder.pid, program=holder.program, host=holder.host, since=_when(holder)
            )
        return error


def _holder_of(path: str) -> Holder | None:
    """Who has the lock; None if that cannot be told yet."""
    record = Record.from_text(peek(path) or "")
    if record is None:
        return None
    holder = record.holder
    # The dead have no locks: whoever has it now has not said so yet.
    is_stale = holder.is_in_sight and holder.started > 0 and not holder.is_alive()
    return None if is_stale else holder


def _in_words(holder: Holder | None) -> str:
    if holder is None:
        return "another program, which has not said who it is"
    return (
        f"process {holder.pid} ({name(holder.program)}) on {name(holder.host)}, "
        f"since {_when(holder):%Y-%m-%d %H:%M:%S} UTC"
    )


def _when(holder: Holder) -> datetime:
    return datetime.fromtimestamp(min(holder.since, 1e11), UTC)


def _write(lock: FileLock, record: Record) -> None:
    try:
        lock.write(record.as_text())
    except OSError as error:  # the disk is full: the lock holds all the same
        _go_without(error)


_is_told: list[object] = []


def _go_without(error: Exception) -> None:
    """Once in a program, for it would be the same each time."""
    if not _is_told:
        _is_told.append(error)
        logger.warning(
            "sessions are not kept to one program at a time here: %s. Two programs that resume the same "
            "session would corrupt it, and nothing would tell them",
            quoted(error),
        )
