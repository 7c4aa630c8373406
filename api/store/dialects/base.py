"""What the store asks of a kind of database."""

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError


class Listener(Protocol):
    """A connection of its own, outside of all transactions that write."""

    connection: Connection

    def heard(self, timeout_s: float) -> list[str]:
        """What was told since it was asked last, or is within this time."""


class Dialect(ABC):
    """One database, and all that only its kind has.

    Attributes
    ----------
    name
        For people: without a password.
    identity
        What no other database is called; without a password.
    writer, reader
        Engines to write and to read with; they may be the same.
    """

    name: str
    identity: str
    writer: Engine
    reader: Engine

    @abstractmethod
    def begin(self, connection: Connection) -> None:
        """Look at the database before its tables are made or changed, in a transaction that nobody else disturbs.

        Raises
        ------
        StoreError
            When it must not be used.
        """

    @abstractmethod
    def is_ours(self, connection: Connection) -> bool:
        """Whether tables that are there are ours."""

    @abstractmethod
    def mark(self, connection: Connection) -> None:
        """Say that the tables are ours: they are as they should be."""

    def refuse_others(self, connection: Connection) -> None:  # noqa: B027 - a file has one owner
        """Raise StoreError when another service has the database open: its tables are about to be made or changed."""

    def opened(self, *, was_older: bool) -> None:  # noqa: B027 - not every kind has something to do
        """Do what is to be done when the tables are there; `was_older`: those of another version were."""

    @property
    def is_lasting(self) -> bool:
        """Whether what is stored is there for the next process."""
        return True

    @property
    @abstractmethod
    def trouble(self) -> str | None:
        """What keeps the database from being used, as far as that is known; None when nothing does."""

    @abstractmethod
    def refuse(self) -> None:
        """Raise StoreError when nothing must be read or written any more."""

    @abstractmethod
    def remedy(self, error: Exception) -> str:
        """What can be done about an error, to be said behind it; empty where that is not known."""

    @abstractmethod
    def is_unavailable(self, error: DBAPIError) -> bool:
        """Whether an error is that of anything that is asked for now, and not of what was to be written."""

    @property
    def is_shared(self) -> bool:
        """Whether other services may use the database as well."""
        return False

    def listening(self) -> AbstractContextManager["Listener"]:
        """A connection to say that this service lives, and to hear what others tell; of shared databases only."""
        raise NotImplementedError

    def aside(self) -> AbstractContextManager[Connection]:
        """A connection that writes each statement by itself, for what may be lost; of shared databases only."""
        raise NotImplementedError

    def transaction(self) -> AbstractContextManager[Connection]:
        """One to write in: written when the body ends, and forgotten when it raises."""
        return self.writer.begin()

    def reading(self, write_lock: AbstractContextManager[object]) -> AbstractContextManager[object]:  # noqa: ARG002 - see below
        """What a reader holds; `write_lock` is what writers do."""
        return nullcontext()

    def return_pages(self, num_pages: int) -> bool:  # noqa: ARG002 - not every kind has something to do
        """Give up to so many pages that nothing is in back to the disk, as a writer; whether there are more."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Release the database."""
