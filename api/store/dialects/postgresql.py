"""PostgreSQL: a database on a server, which several services use side by side.

They write one after another, as the threads of one service do: every transaction that writes begins with the same
advisory lock, and reads what all before it have written. So what holds in one service holds for all of them. A service
that is killed lets go of it with its session.

Another advisory lock says who has the database open: shared by services of one schema, and taken alone by whoever makes
or changes the tables. Services that knew no others take it alone, too, so that none of them runs beside these.
"""

import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.common.errors import StoreError
from api.store.dialects.base import Dialect, Listener
from api.store.dialects.statements import CHANNEL
from stowplan.errors import ExtraMissingError

# "STOWPLAN" in ASCII: who has the database open.
_LOCK = 0x53544F57504C414E
# Who writes, until the transaction ends.
_WRITING = _LOCK + 1
# Comment on the table of the schema; behind it stands who has opened the database last.
_OURS = "Schema of a database of Stowplan, opened last by "
_COMMENT = "SELECT obj_description(to_regclass('alembic_version'))"
_REVISION = "SELECT version_num FROM alembic_version"
_LONGEST_NAME = 63
_CONNECT_S = 5
# Of a statement.
_STATEMENT_MS = 60_000
# Of a transaction whose program is silent: others wait to write.
_SILENT_MS = 10_000
_SESSION = (
    f"-c statement_timeout={_STATEMENT_MS} -c idle_in_transaction_session_timeout={_SILENT_MS} "
    # The server learns within a minute that the machine of a service is gone, and lets another one take over.
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
# What readers write may be lost: that a service lives, how often clients have asked.
_UNHURRIED = "-c synchronous_commit=off"
_DEFAULTS = {
    "connect_timeout": _CONNECT_S,
    "client_encoding": "utf8",
    "target_session_attrs": "read-write",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}
# Readers at a time; others wait for one.
_READERS, _MORE_READERS = 4, 12
_POOL_S = 10.0
# How often a service looks whether it has its connection.
_WATCH_S = 5.0
# How long an own session may take to end that the server has not known to be lost, or to say how a transaction ended.
_ENDING_S = 5.0
_POLL_S = 0.05
# Classes of its codes: it has no more room, or memory, or a row exceeds a limit.
_TOO_LARGE = ("53", "54")
_HOLDER = """
SELECT a.application_name, coalesce(host(a.client_addr), 'this machine')
FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND l.pid <> pg_backend_pid()
AND (CAST(l.classid AS bigint) << 32 | CAST(l.objid AS bigint)) = :lock
"""
_logger = logging.getLogger("stowplan.api.store.dialects.postgresql")


class Postgresql(Dialect):
    """A database by its URL (postgresql://user@host/name); what that leaves out is as for all clients of libpq.

    Raises
    ------
    ExtraMissingError
        When psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        if find_spec("psycopg") is None:
            raise ExtraMissingError(
                "a database on PostgreSQL needs psycopg; install the extra: pip install -e '.[postgresql]' in a "
                "checkout"
            )
        parsed = make_url(url)
        place = {name: parsed.query[name] for name in ("host", "port") if name in parsed.query}
        self.identity = parsed.set(password=None, query=place).render_as_string()
        self.name = f"the database {self.identity}"
        # What no other service is called, in letters that need no quotes.
        machine = re.sub(r"[^\w.-]", "_", socket.gethostname(), flags=re.ASCII)[:32]
        self._application = f"stowplan {machine} {os.getpid()} {secrets.token_hex(4)}"[:_LONGEST_NAME]
        # One connection: it says that the database is open.
        self.writer = self._engine(parsed, _SESSION, pool_size=1, max_overflow=0)
        self.reader = self._engine(parsed, f"{_SESSION} {_UNHURRIED}", pool_size=_READERS, max_overflow=_MORE_READERS)
        event.listen(self.writer, "connect", self._come_back)
        self._is_open = False
        # The schema that it has, as it was opened.
        self._revision: str | None = None
        self._lost: str | None = None
        self._changed: str | None = None
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._look_after, name="watch-database", daemon=True)

    def begin(self, connection: Connection) -> None:
        """Say that it is open, and refuse what cannot hold all texts; it takes as long as it takes."""
        if not connection.scalar(text(f"SELECT pg_try_advisory_lock_shared({_LOCK})")):
            raise self._in_use(connection, "stop it or name another database")
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise StoreError(f"{self.name} is in {encoding}; make one in UTF8 (createdb --encoding UTF8 -T template0)")

    def refuse_others(self, connection: Connection) -> None:
        """Raise StoreError when another service has it open, unless it ends just now."""
        end_s = time.monotonic() + _ENDING_S
        while not connection.scalar(text(f"SELECT pg_try_advisory_xact_lock({_LOCK})")):
            if time.monotonic() > end_s:
                raise self._in_use(connection, "its tables are to be changed: stop all services first")
            time.sleep(_POLL_S)

    def is_ours(self, connection: Connection) -> bool:
        """Whether the table of the schema says so."""
        return (connection.scalar(text(_COMMENT)) or "").startswith(_OURS)

    def mark(self, connection: Connection) -> None:
        """Say so, and who has opened it."""
        connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_OURS}{self._application}'"))
        self._revision = connection.scalar(text(_REVISION))

    def opened(self, *, was_older: bool) -> None:  # noqa: ARG002 - the server looks after space
        """Look after the connection from here on."""
        self._is_open = True
        self._watch.start()

    @property
    def trouble(self) -> str | None:
        """What was wrong when the database was used last, or looked at."""
        return self._changed or self._lost

    def refuse(self) -> None:
        """Raise StoreError when the tables are those of another version by now."""
        if self._changed is not None:
            raise StoreError(self._changed)

    def remedy(self, error: Exception) -> str:
        """Keep in mind that the connection is lost, if it is; what can be done about other things the server says."""
        if not isinstance(error, DBAPIError) or not _is_lost(error):
            return ""
        self._lost = f"{self.name} is lost: {reason(error)}"
        return "; the connection is made anew when it is asked again"

    def is_unavailable(self, error: DBAPIError) -> bool:
        """Whether the server is lost, or lets others go first; a smaller plan may fit what it has left."""
        code = getattr(error.orig, "sqlstate", None) or ""
        return isinstance(error, OperationalError) and not code.startswith(_TOO_LARGE)

    @property
    def is_shared(self) -> bool:
        """It is."""
        return True

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """A connection that hears what `statements.tell` says, and writes without a transaction."""
        with self.reader.connect() as pooled:
            connection = pooled.execution_options(isolation_level="AUTOCOMMIT")
            # It listens until it is closed: nobody else may get it.
            connection.detach()
            connection.exec_driver_sql(f"LISTEN {CHANNEL}")
            yield _Listener(connection)

    @contextmanager
    def aside(self) -> Iterator[Connection]:
        """One of the readers', which wait for no disk."""
        with self.reader.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One to write in, when nobody else writes.

        Where the connection goes while it is committed, the server is asked what became of it.
        """
        with self.writer.connect() as connection:
            if not self._is_open:
                # Another service may bring the tables up to date, and so may this one.
                for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
                    connection.execute(text(f"SET LOCAL {limit} = 0"))
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_WRITING})"))
            yield connection
            number = connection.scalar(text("SELECT pg_current_xact_id_if_assigned()::text"))
            try:
                connection.commit()
            except DBAPIError as error:
                if not _is_lost(error) or number is None or not self._was_committed(number):
                    raise

    def close(self) -> None:
        """Close the connections; the lock goes with its own."""
        self._closing.set()
        if self._watch.is_alive():
            self._watch.join()
        self.reader.dispose()
        self.writer.dispose()

    def _engine(self, url: URL, session: str, pool_size: int, max_overflow: int) -> Engine:
        said = dict(url.query)
        arguments = {name: value for name, value in _DEFAULTS.items() if name not in said}
        arguments |= {"application_name": self._application, "options": f"{session} {said.get('options', '')}"}
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=arguments,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_timeout=_POOL_S,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
        )

    def _come_back(self, connection: Any, _: object) -> None:
        """Say with another connection that it is still open; StoreError when its tables are no longer the same."""
        if not self._is_open:
            return
        try:
            if not _row(connection, "SELECT pg_try_advisory_lock_shared(%s)", _LOCK)[0]:
                raise StoreError(f"{self.name} is being changed by another service")
            if (now := _row(connection, _REVISION)[0]) != self._revision:
                self._changed = (
                    f"{self.name} was brought from schema {self._revision} to {now} after this service had lost its "
                    "connection: start the version that has done that"
                )
                raise StoreError(self._changed)
            connection.commit()
        except BaseException:
            connection.close()
            raise

    def _in_use(self, connection: Connection, remedy: str) -> StoreError:
        holder = connection.execute(text(_HOLDER), {"lock": _LOCK}).first()
        # It may have ended meanwhile.
        by = "" if holder is None else f" ({holder[0] or 'without a name'}, from {holder[1]})"
        return StoreError(f"{self.name} is in use by another process{by}; {remedy}")

    def _was_committed(self, number: str) -> bool:
        """How a transaction ended whose connection was lost; False where that cannot be learned."""
        end_s = time.monotonic() + _ENDING_S
        while time.monotonic() < end_s:
            try:
                with self.reader.connect() as connection:
                    state = connection.scalar(text("SELECT pg_xact_status(CAST(:number AS xid8))"), {"number": number})
            except (DBAPIError, PoolTimeoutError):
                state = "in progress"
            if state != "in progress":
                return bool(state == "committed")
            time.sleep(_POLL_S)
        return False

    def _look_after(self) -> None:
        while not self._closing.wait(_WATCH_S):
            try:
                # To take it asks it, and makes a new one where it is lost.
                with self.writer.connect():
                    self._lost = None
            except PoolTimeoutError:
                # Somebody writes.
                pass
            except (DBAPIError, StoreError) as error:
                if self._lost is None:
                    _logger.warning("%s is lost: %s", self.name, reason(error))
                self._lost = f"{self.name} is lost: {reason(error)}"


class _Listener:
    """See `Listener`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def heard(self, timeout_s: float) -> list[str]:
        """Wait for one, and give all that have come with it."""
        # Behind `driver_connection` there is none once it is detached from its pool.
        raw: Any = self.connection.connection.dbapi_connection
        if raw is None:
            raise StoreError("the database is lost: the connection is closed")
        try:
            return [notice.payload for notice in raw.notifies(timeout=timeout_s, stop_after=1)]
        except self.connection.dialect.loaded_dbapi.Error as error:
            raise StoreError(f"the database is lost: {reason(error)}") from error


def reason(error: Exception) -> str:
    """What the server or its driver says, on one line."""
    said = str(error.orig if isinstance(error, DBAPIError) else error)
    return re.sub(r"\s+", " ", said).strip()


def _is_lost(error: DBAPIError) -> bool:
    """Whether there is no connection; what a server says that can be reached has a code (57P: it ends, or begins)."""
    code = getattr(error.orig, "sqlstate", None)
    return error.connection_invalidated or code is None or code.startswith("57P")


def _row(connection: Any, query: str, *values: object) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        return cursor.fetchone()
