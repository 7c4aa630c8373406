"""Statements of every plan, which SQLite is asked for by its driver: SQLAlchemy takes several times as long as SQLite.

What is asked, and in which transaction, is as SQLAlchemy would have it; errors are its own, too.
"""

import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

_Processor = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A statement of SQLite for values of these names. `parameters`, in the order of the text: name, what makes the
    driver's value of it, and the value where none is given."""

    names: frozenset[str]
    text: str
    parameters: tuple[tuple[str, _Processor, Any], ...]

    def execute(self, connection: Connection, values: Mapping[str, Any]) -> sqlite3.Cursor:
        """Carry it out in the transaction of the connection; when SQLite refuses, the DBAPIError (DataError,
        IntegrityError, ...) that SQLAlchemy has for it."""
        if values.keys() != self.names:
            raise ValueError(f"{self.text} is for values of {sorted(self.names)}, not {sorted(values)}")
        given = [
            processed(value) if processed is not None and value is not None else value
            for name, processed, default in self.parameters
            for value in (values.get(name, default),)
        ]
        driver = cast("sqlite3.Connection", connection.connection.driver_connection)
        try:
            return driver.execute(self.text, given)
        except sqlite3.Error as error:
            raise DBAPIError.instance(self.text, None, error, sqlite3.Error, dialect=connection.dialect) from error


class Frequent:
    """A statement of SQLAlchemy that is asked for again and again, with the same names of values every time, of columns
    without defaults in Python."""

    def __init__(self, statement: Executable) -> None:
        self.statement = statement
        self._prepared: _Prepared | None = None

    def change(self, connection: Connection, values: Mapping[str, Any]) -> int:
        """Carry it out; how many rows it changed."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self.statement, values).rowcount
        return self._for_sqlite(connection, values).execute(connection, values).rowcount

    def rows(self, connection: Connection, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Ask for rows, as the driver gives their values."""
        if connection.dialect.name != "sqlite":
            return [tuple(row) for row in connection.execute(self.statement, values)]
        return self._for_sqlite(connection, values).execute(connection, values).fetchall()

    def _for_sqlite(self, connection: Connection, values: Mapping[str, Any]) -> _Prepared:
        if self._prepared is None:
            self._prepared = _prepared(self.statement, connection, values)
        return self._prepared


def _prepared(statement: Executable, connection: Connection, values: Mapping[str, Any]) -> _Prepared:
    dialect = connection.dialect
    compiled = cast("SQLCompiler", cast("Any", statement).compile(dialect=dialect, column_keys=list(values)))
    if compiled.insert_prefetch or compiled.update_prefetch:
        raise ValueError(f"{compiled} has columns whose values are made in Python")
    return _Prepared(
        names=frozenset(values),
        text=str(compiled),
        parameters=tuple(
            (name, compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect), compiled.params[name])
            for name in compiled.positiontup or ()
        ),
    )
