"""PostgreSQL: a database on a server, which one service owns as long as its connection for writing lasts.

That connection has an advisory lock of its session, and is the only one that writes. Whoever loses it loses both, so
that nothing is ever written beside another service that has taken over: with the next connection the lock is taken
again, and refused where another service was there meanwhile. What this one has in memory no longer holds then.
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
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from api.common.errors import StoreError
from api.store.dialects.base import Dialect
from stowplan.errors import ExtraMissingError

# "STOWPLAN" in ASCII: one lock a database.
_LOCK = 0x53544F57504C414E
# Comment on the table of the schema; behind it stands who has opened the database last.
_OURS = "Schema of a database of Stowplan, opened last by "
_COMMENT = "SELECT obj_description(to_regclass('alembic_version'))"
_LONGEST_NAME = 63
_CONNECT_S = 5
# Of a statement, and of a transaction whose program is silent.
_STATEMENT_MS = 60_000
_SESSION = (
    f"-c statement_timeout={_STATEMENT_MS} -c idle_in_transaction_session_timeout={_STATEMENT_MS} "
    # The server learns within a minute that the machine of a service is gone, and lets another one take over.
    "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"
)
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
_HOLDER = """
SELECT a.pid, a.application_name, coalesce(host(a.client_addr), 'this machine')
FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1 AND (l.classid::bigint << 32 | l.objid::bigint) = %s
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
        # One connection: it has the lock.
        self.writer = self._engine(parsed, pool_size=1, max_overflow=0)
        self.reader = self._engine(parsed, pool_size=_READERS, max_overflow=_MORE_READERS)
        event.listen(self.writer, "connect", self._own)
        self._is_open = False
        self._lost: str | None = None
        self._followed: str | None = None
        self._closing = threading.Event()
        self._watch = threading.Thread(target=self._look_after, name="watch-database", daemon=True)

    def begin(self, connection: Connection) -> None:
        """Take as long as it takes, and refuse what cannot hold all texts."""
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        encoding = connection.scalar(text("SHOW server_encoding"))
        if encoding != "UTF8":
            raise StoreError(f"{self.name} is in {encoding}; make one in UTF8 (createdb --encoding UTF8 -T template0)")

    def is_ours(self, connection: Connection) -> bool:
        """Whether the table of the schema says so."""
        return (connection.scalar(text(_COMMENT)) or "").startswith(_OURS)

    def mark(self, connection: Connection) -> None:
        """Say so, and who has opened it."""
        connection.execute(text(f"COMMENT ON TABLE alembic_version IS '{_OURS}{self._application}'"))

    def opened(self, *, was_older: bool) -> None:  # noqa: ARG002 - the server looks after space
        """Look after the connection from here on."""
        self._is_open = True
        self._watch.start()

    @property
    def trouble(self) -> str | None:
        """What was wrong when the database was used last, or looked at."""
        return self._followed or self._lost

    def refuse(self) -> None:
        """Raise StoreError when another service has taken over."""
        if self._followed is not None:
            raise StoreError(self._followed)

    def remedy(self, error: Exception) -> str:
        """Keep in mind that the connection is lost, if it is; what can be done about other things the server says."""
        if not isinstance(error, DBAPIError) or not _is_lost(error):
            return ""
        self._lost = f"{self.name} is lost: {reason(error)}"
        return "; the connection is made anew when it is asked again"

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One to write in. Where the connection goes while it is committed, the server is asked what became of it."""
        with self.writer.connect() as connection:
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

    def _engine(self, url: URL, pool_size: int, max_overflow: int) -> Engine:
        said = dict(url.query)
        arguments = {name: value for name, value in _DEFAULTS.items() if name not in said}
        arguments |= {"application_name": self._application, "options": f"{_SESSION} {said.get('options', '')}"}
        return create_engine(
            url.set(drivername="postgresql+psycopg"),
            connect_args=arguments,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_timeout=_POOL_S,
            pool_pre_ping=True,
            isolation_level="READ COMMITTED",
        )

    def _own(self, connection: Any, _: object) -> None:
        """Take the lock with a new connection for writing; StoreError when another service has it, or had it."""
        try:
            self._lock(connection)
            self._refuse_followed(connection)
            connection.commit()
        except BaseException:
            connection.close()
            raise

    def _lock(self, connection: Any) -> None:
        end_s = time.monotonic() + _ENDING_S
        while not _row(connection, "SELECT pg_try_advisory_lock(%s)", _LOCK)[0]:
            holder = _row(connection, _HOLDER, _LOCK)
            # The lock may have been let go meanwhile.
            if holder is not None and holder[1] != self._application:
                raise self._in_use(f" ({holder[1] or 'without a name'}, from {holder[2]})")
            if time.monotonic() > end_s:
                raise self._in_use("")
            if holder is not None:
                # A session of ours whose connection is lost: the server has not noticed yet.
                _row(connection, "SELECT pg_terminate_backend(%s)", holder[0])
            time.sleep(_POLL_S)

    def _refuse_followed(self, connection: Any) -> None:
        if self._is_open and _row(connection, _COMMENT)[0] != _OURS + self._application:
            self._followed = (
                f"another service has used {self.name} after this one had lost its connection; what this one knows of "
                "it no longer holds: stop it, or start it again when no other one runs"
            )
            raise StoreError(self._followed)

    def _in_use(self, by: str) -> StoreError:
        return StoreError(f"{self.name} is in use by another process{by}; stop it or name another database")

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
