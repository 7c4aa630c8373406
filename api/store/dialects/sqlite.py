"""SQLite: a file that one process owns, or a database in memory."""

import logging
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

from sqlalchemy import Connection, Engine, create_engine, event, text
from sqlalchemy.exc import DatabaseError, DBAPIError
from sqlalchemy.pool import StaticPool

from api.common.errors import StoreError
from api.store.dialects.base import Dialect
from api.store.dialects.damage import PRIMARY_CODE, look_for_damage, remedy
from api.store.dialects.file import DatabaseFile

_APPLICATION_ID = 0x53544F57  # "STOW" in the header of the file
# Stowplans that know no migrations look at it, and refuse what is above 1.
_USER_VERSION = 2
_logger = logging.getLogger("stowplan.api.store.dialects.sqlite")


class Sqlite(Dialect):
    """A database in a file; None stands for one in memory.

    Raises
    ------
    StoreError
        When the file cannot be written, or another process owns it.
    """

    def __init__(self, path: Path | None) -> None:
        self.name = "the database in memory" if path is None else f"the database {path}"
        # What a database in memory has seen is gone with it: the next one has another name.
        self.identity = f"memory-{uuid.uuid4().hex}" if path is None else str(path.resolve())
        self._file = None if path is None else DatabaseFile(path)
        self.writer = self.reader = _engine(path)
        # Of all that is written: to ask the engine for one each time takes as long as two statements.
        self._writing: Connection | None = None

    def begin(self, connection: Connection) -> None:
        """Let nobody else write, also while tables change, and look for damage."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        look_for_damage(self.name, connection)

    def is_ours(self, connection: Connection) -> bool:
        """Whether the header of the file says so."""
        return bool(connection.scalar(text("PRAGMA application_id")) == _APPLICATION_ID)

    def mark(self, connection: Connection) -> None:
        """Write it into the header."""
        connection.execute(text(f"PRAGMA application_id = {_APPLICATION_ID}"))
        connection.execute(text(f"PRAGMA user_version = {_USER_VERSION}"))

    def opened(self, *, was_older: bool) -> None:
        """Give back the space that older tables had, and know the files beside the database."""
        if was_older:
            self._return_space()
        if self._file is not None:
            self._file.note_log()

    @property
    def is_lasting(self) -> bool:
        """Whether it is in a file."""
        return self._file is not None

    @property
    def trouble(self) -> str | None:
        """What keeps that which is written from being found again; None when nothing does."""
        return None if self._file is None else self._file.trouble

    def refuse(self) -> None:
        """Raise StoreError when the file has gone away."""
        if trouble := self.trouble:
            raise StoreError(trouble)

    def remedy(self, error: Exception) -> str:
        """What can be done about an error of SQLite."""
        return remedy(error.orig) if isinstance(error, DBAPIError) else ""

    def is_unavailable(self, error: DBAPIError) -> bool:
        """Whether another program writes, or the file cannot be used; a smaller plan may fit a disk that is full."""
        code = getattr(error.orig, "sqlite_errorcode", 0) & PRIMARY_CODE
        return isinstance(error.orig, sqlite3.OperationalError) and code != sqlite3.SQLITE_FULL

    def reading(self, write_lock: AbstractContextManager[object]) -> AbstractContextManager[object]:
        """A database in memory has one connection, which readers and writers share."""
        return nullcontext() if self.is_lasting else write_lock

    def transaction(self) -> AbstractContextManager[Connection]:
        """One to write in, of a file on the one connection that is kept for it."""
        return self.writer.begin() if self._file is None else self._on_kept_connection()

    @contextmanager
    def _on_kept_connection(self) -> Iterator[Connection]:
        if self._writing is None:
            self._writing = self.writer.connect()
        with self._writing.begin():
            yield self._writing

    def return_pages(self, num_pages: int) -> bool:
        """Give free pages back; whether there are more."""
        if not self.is_lasting:
            return False
        with self.writer.connect() as connection:
            raw = cast("sqlite3.Connection", connection.connection.driver_connection)
            # It gives a page back at every step of the statement, of which `execute` does one.
            raw.executescript(f"PRAGMA incremental_vacuum({num_pages})")
            return bool(connection.exec_driver_sql("PRAGMA freelist_count").scalar())

    def close(self) -> None:
        """Close the connections, then let others have the file."""
        if self._writing is not None:
            self._writing.close()
        self.writer.dispose()
        if self._file is not None:
            self._file.close()

    def _return_space(self) -> None:
        """Write the file anew, without the space that older tables had; it goes on with it where that fails."""
        try:
            with self.writer.connect() as connection:
                connection.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM")
        except DatabaseError as error:
            _logger.warning("%s keeps space that it does not need: %s%s", self.name, error.orig, remedy(error.orig))


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
