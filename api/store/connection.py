"""The connection to the SQLite file: one process owns it; its schema is brought up to date when it is opened."""

import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, create_engine, event, func, select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

from api.common.errors import StoreError
from api.store.damage import look_for_damage, remedy
from api.store.file import DatabaseFile
from api.store.schema import bring_up_to_date
from api.store.tables import PLANS

_logger = logging.getLogger("stowplan.api.store")


class Database:
    """The database. Safe from threads: readers work side by side, writers one after another.

    Raises
    ------
    StoreError
        When the file cannot be opened or written, is no database of ours, was written by a newer version, is damaged,
        or is in use by another process.
    """

    def __init__(self, path: Path | None) -> None:
        self._write_lock = threading.Lock()
        # A database in memory has one connection, which readers and writers share.
        self._read_lock: AbstractContextManager[object] = self._write_lock if path is None else nullcontext()
        self._name = "the database in memory" if path is None else f"the database {path}"
        self._file = None if path is None else DatabaseFile(path)
        self._engine = _engine(path)
        try:
            with self.writing() as connection:
                # From here on nobody else writes, also while tables change.
                connection.exec_driver_sql("BEGIN IMMEDIATE")
                look_for_damage(self._name, connection)
                was_older = bring_up_to_date(connection, self._name)
            if was_older:
                self._return_space()
            if self._file is not None:
                self._file.note_log()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the database."""
        self._engine.dispose()
        if self._file is not None:
            self._file.close()

    @property
    def is_lasting(self) -> bool:
        """Whether what is stored is there for the next process."""
        return self._file is not None

    @property
    def trouble(self) -> str | None:
        """What keeps that which is written from being found again; None when nothing does."""
        return None if self._file is None else self._file.trouble

    def ping(self) -> None:
        """Raise StoreError when the database cannot be read."""
        with self.reading() as connection:
            connection.execute(select(func.max(PLANS.c.sequence)))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is written when the body ends, and forgotten when it raises; one at a time."""
        with self._write_lock, self._failing("written"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with self._read_lock, self._failing("read"), self._engine.connect() as connection:
            yield connection

    def return_pages(self, num_pages: int) -> bool:
        """Give up to so many pages that nothing is in back to the disk; whether there are more."""
        if not self.is_lasting:
            return False
        with self._write_lock, self._failing("written"), self._engine.connect() as connection:
            raw = cast("sqlite3.Connection", connection.connection.driver_connection)
            # It gives a page back at every step of the statement, of which `execute` does one.
            raw.executescript(f"PRAGMA incremental_vacuum({num_pages})")
            return bool(connection.exec_driver_sql("PRAGMA freelist_count").scalar())

    def _return_space(self) -> None:
        """Write the file anew, without the space that older tables had; it goes on with it where that fails."""
        try:
            with self._engine.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")
        except DatabaseError as error:
            _logger.warning("%s keeps space that it does not need: %s%s", self._name, error.orig, remedy(error.orig))

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        self._refuse_trouble()
        try:
            yield
        except DatabaseError as error:
            raise StoreError(f"{self._name} cannot be {done}: {error.orig}{remedy(error.orig)}") from error
        # What has been written meanwhile may have gone where nobody finds it.
        self._refuse_trouble()

    def _refuse_trouble(self) -> None:
        if trouble := self.trouble:
            raise StoreError(trouble)


def _engine(path: Path | None) -> Engine:
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # First, since it counts when a file is made: what is deleted can be given back to the disk.
    # FULL: a plan that was promised to a client survives a power failure, too.
    for pragma in ("auto_vacuum = INCREMENTAL", "journal_mode = WAL", "synchronous = FULL", "busy_timeout = 5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
