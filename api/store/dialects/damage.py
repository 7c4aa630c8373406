"""Damaged databases: how they are found, and what can be done where SQLite cannot go on."""

import logging
import sqlite3
import threading
from typing import cast

from sqlalchemy import Connection, text
from sqlalchemy.exc import DatabaseError

from api.common.errors import StoreError

# A small database is looked at as a whole; one of gigabytes must not keep the service from starting.
_LOOK_S = 2.0
# Of an error; what is above says more of it.
PRIMARY_CODE = 0xFF
_RECOVERY = (
    "stop the service, then give it a copy that `stowplan backup` has made, or what `sqlite3 DAMAGED .recover | "
    "sqlite3 RECOVERED` can still read"
)
_WRITABLE = "this user must be able to write it, and to make files beside it"
_REMEDIES = {
    sqlite3.SQLITE_CORRUPT: _RECOVERY,
    sqlite3.SQLITE_NOTADB: f"name another file; if it was one, {_RECOVERY}",
    sqlite3.SQLITE_FULL: "make room on its disk",
    sqlite3.SQLITE_CANTOPEN: _WRITABLE,
    sqlite3.SQLITE_READONLY: _WRITABLE,
}
_logger = logging.getLogger("stowplan.api.store.dialects.damage")


def remedy(error: BaseException | None) -> str:
    """What can be done about an error of SQLite, to be said behind it; empty where that is not known."""
    found = _REMEDIES.get(getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE)
    return f"; {found}" if found else ""


def refuse_damage(name: str, found: str) -> None:
    """Raise StoreError unless SQLite has `found` nothing wrong in the database."""
    if found != "ok":
        raise StoreError(f"{name} is damaged: {found.splitlines()[-1]}; {_RECOVERY}")


def look_for_damage(name: str, connection: Connection) -> None:
    """Look for two seconds whether a database hangs together.

    Raises
    ------
    StoreError
        When it does not.
    DatabaseError
        When it cannot be read.
    """
    raw = cast("sqlite3.Connection", connection.connection.driver_connection)
    limit = threading.Timer(_LOOK_S, raw.interrupt)
    limit.start()
    try:
        refuse_damage(name, connection.scalar(text("PRAGMA quick_check(1)")) or "")
    except DatabaseError as error:
        if getattr(error.orig, "sqlite_errorcode", None) != sqlite3.SQLITE_INTERRUPT:
            raise
        _logger.warning("%s is too large to be looked at as a whole at start; `stowplan backup` does that", name)
    finally:
        limit.cancel()
