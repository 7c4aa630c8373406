"""The connection to the database; its schema is brought up to date when it is opened."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DataError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.common.errors import StoreError, StoreUnavailableError
from api.store.dialects.base import Dialect, Listener
from api.store.dialects.postgresql import Postgresql, reason
from api.store.dialects.sqlite import Sqlite
from api.store.schema import bring_up_to_date
from api.store.tables import PLANS
from api.store.texts import BodyName
from stowplan.errors import InputError
from stowplan.recent import Recent

_NUM_RECENT = 256


class Database:
    """The database. Safe from threads: readers work side by side, writers one after another.

    Parameters
    ----------
    location
        File of SQLite; None for one in memory; a text is the URL of one on PostgreSQL.

    Raises
    ------
    StoreError
        When the database cannot be opened or written, is none of ours, was written by a newer version, is damaged, or
        is in use by another process.
    ExtraMissingError
        When it is on PostgreSQL, and psycopg is not installed.
    """

    def __init__(self, location: Path | str | None) -> None:
        # Who this is among those that use the database.
        self.owner = uuid.uuid4().hex
        # Snapshots of plans that were stored lately, by the ids of these; all are forgotten when a plan is deleted.
        self.recent_snapshots: Recent[BodyName] = Recent(most=_NUM_RECENT, most_of_one=1, most_entries=_NUM_RECENT)
        self._write_lock = threading.Lock()
        self._dialect: Dialect = Postgresql(location) if isinstance(location, str) else Sqlite(location)
        self._read_lock = self._dialect.reading(self._write_lock)
        try:
            with self.writing() as connection:
                self._dialect.begin(connection)
                was_older = bring_up_to_date(connection, self._dialect)
            self._dialect.opened(was_older=was_older)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the database."""
        self._dialect.close()

    @property
    def identity(self) -> str:
        """What no other database is called."""
        return self._dialect.identity

    @property
    def is_lasting(self) -> bool:
        """Whether what is stored is there for the next process."""
        return self._dialect.is_lasting

    @property
    def is_shared(self) -> bool:
        """Whether other services may use it as well."""
        return self._dialect.is_shared

    @property
    def trouble(self) -> str | None:
        """What keeps that which is written from being found again, or anything from being written; None: nothing."""
        return self._dialect.trouble

    def ping(self) -> None:
        """Raise StoreError when the database cannot be read."""
        with self.reading() as connection:
            connection.execute(select(func.max(PLANS.c.sequence)))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is written when the body ends, and forgotten when it raises; of all that use the
        database one at a time."""
        with self._write_lock, self._failing("written"), self._dialect.transaction() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with self._read_lock, self._failing("read"), self._dialect.reader.connect() as connection:
            yield connection

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A connection to say that this service lives, and to hear what others tell; of shared databases only."""
        with self._failing("listened to"), self._dialect.listening() as listener:
            yield listener

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        """A connection that writes each statement by itself, beside `writing`, for what may be lost when the server
        crashes; of shared databases only."""
        with self._failing("written"), self._dialect.aside() as connection:
            yield connection

    def return_pages(self, num_pages: int) -> bool:
        """Give up to so many pages that nothing is in back to the disk; whether there are more."""
        with self._write_lock, self._failing("written"):
            return self._dialect.return_pages(num_pages)

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        self._dialect.refuse()
        try:
            yield
        except DataError as error:
            # A text with U+0000, which only SQLite takes.
            raise InputError(f"{self._dialect.name} cannot hold or find this: {reason(error)}") from error
        except (DBAPIError, PoolTimeoutError) as error:
            name, remedy = self._dialect.name, self._dialect.remedy(error)
            is_for_all = isinstance(error, PoolTimeoutError) or self._dialect.is_unavailable(error)
            kind = StoreUnavailableError if is_for_all else StoreError
            raise kind(f"{name} cannot be {done}: {reason(error)}{remedy}") from error
        # What has been written meanwhile may have gone where nobody finds it.
        self._dialect.refuse()
