"""A database as stores use it: statements on a connection of the right lane, checked, bounded, with clear errors.

What SQLite and PostgreSQL have in common is here; each has a module of its own for the rest. `use` gives a
function that runs statements: on SQLite all of them are one transaction, on PostgreSQL each is one, so
that no transaction there waits for us, holding locks, when a network goes black. `whole` gives one
transaction on both, for the schema alone.

Every error of a database becomes a `StoreError` of one line, which says what to do and no secret. Knows nothing of what
is kept.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from streamguard.errors import StoreError
from streamguard.fleet import schema
from streamguard.fleet.pool import Lane, Link, Pool

if TYPE_CHECKING:
    from streamguard.fleet.schema import Dialect, Migration, Run

L = TypeVar("L", bound=Link)


class Database(ABC, Generic[L]):
    """The database at one place, for the threads of one process."""

    dialect: ClassVar[Dialect]
    limits: ClassVar[Mapping[Lane, int]]
    lanes: ClassVar[Mapping[Lane, Lane]]
    """The lane that each kind of work takes here."""

    def __init__(
        self, place: str, *, patience: float, migrations: Sequence[Migration] = schema.MIGRATIONS
    ) -> None:
        self.place = place
        self.patience = patience
        self._migrations = migrations
        self._pid = os.getpid()
        self._pool = Pool[L](self._connect, self.limits, patience=patience, place=place)

    @contextmanager
    def use(self, lane: Lane) -> Generator[Run]:
        """Run statements about what is kept."""
        with self._link(self.lanes[lane]) as link:
            if not link.is_checked:
                self._check(link)
                link.is_checked = True
            with self._using(link, lane):
                yield link.run

    def create(self) -> None:
        """Make what is kept, unless it is there."""
        with self.whole() as run:
            schema.create(run, self.dialect, self._migrations, self.place)

    def migrate(self) -> list[str]:
        """Bring what is kept to the present version; what was done, in words."""
        with self.whole() as run:
            return schema.migrate(run, self.dialect, self._migrations, self.place)

    @contextmanager
    def whole(self) -> Generator[Run]:
        """Run statements in one transaction, that nobody else's changes of the schema overlap."""
        with self._link(self.lanes["write"]) as link:
            link.is_bounded = False
            self._begin_whole(link)
            yield link.run
            link.commit()
            link.is_bounded = True

    def interrupt(self) -> None:
        """Cut all connections: whoever waits in one gets a StoreError."""
        if os.getpid() == self._pid:
            self._pool.interrupt()

    def close(self) -> None:
        """Cut them for good."""
        if os.getpid() == self._pid:
            self._pool.close()

    @contextmanager
    def _link(self, lane: Lane) -> Generator[L]:
        if os.getpid() != self._pid:
            raise StoreError(
                f"{self.place} was opened by process {self._pid}, and this is a fork of it: "
                "make a store in each process"
            )
        link = self._pool.take(lane)
        try:
            yield link
        except BaseException as error:
            self._pool.drop(link)
            if told := self._told(error, link):
                # What a database says may hold what was to be written: its own text is not shown.
                raise told from None
            raise
        self._pool.put(link)

    def _told(self, error: BaseException, link: L) -> StoreError | None:
        if link.cut_because and not isinstance(error, StoreError) and self._is_its_own(error):
            return StoreError(
                f"{self.place}: {link.cut_because}, and its connection was cut. It is not known "
                "whether what was under way was done: try again"
            )
        return self._explained(error) if self._is_its_own(error) else None

    def _check(self, link: L) -> None:
        if not schema.check(link.run, self.dialect, self._migrations, self.place):
            raise StoreError(
                f"{self.place} holds no store yet: run `streamguard fleet init`, or call "
                "initialise()"
            )

    @abstractmethod
    def _connect(self, lane: Lane) -> L:
        """A new connection, or a StoreError."""

    @contextmanager
    def _using(self, link: L, lane: Lane) -> Generator[None]:  # noqa: ARG002 - of what is overridden
        """What surrounds statements about what is kept."""
        yield

    @abstractmethod
    def _begin_whole(self, link: L) -> None:
        """Begin a transaction that changes the schema."""

    @abstractmethod
    def _is_its_own(self, error: BaseException) -> bool:
        """Whether an error is one of the database."""

    @abstractmethod
    def _explained(self, error: BaseException) -> StoreError:
        """What a person is told of an error of the database."""
