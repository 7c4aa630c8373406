"""Statements that SQLite and PostgreSQL write differently; all others of the store are the same for both."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Float,
    Table,
    Text,
    cast,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from api.store.dialects.frequent import Frequent

CHANNEL = "stowplan"
_INSERT: Mapping[str, Any] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}


def add_new(connection: Connection, table: Table, rows: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> int:
    """Insert those rows that are not there yet; how many these are."""
    statement = _inserting_new(connection.dialect.name, table)
    if isinstance(rows, Mapping):
        return statement.change(connection, rows)
    # Of many rows it is known only where it is asked for.
    return connection.execute(statement.statement.execution_options(preserve_rowcount=True), rows).rowcount


@cache
def _inserting_new(dialect: str, table: Table) -> Frequent:
    return Frequent(_INSERT[dialect](table).on_conflict_do_nothing())


class Now(FunctionElement[float]):
    """Unix seconds by the clock of the database, the same for all services that use it."""

    name = "now_s"
    type = Float()
    inherit_cache = True


@compiles(Now, "sqlite")
def _now_sqlite(element: Now, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ARG001 - it has no clauses
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(Now, "postgresql")
def _now_postgresql(element: Now, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ARG001 - it has no clauses
    return "CAST(extract(epoch FROM clock_timestamp()) AS double precision)"


def tell(connection: Connection, owner: str, word: str) -> None:
    """Tell other services on the database something, once the transaction is written; on a file there are none."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_notify(CHANNEL, f"{owner} {word}")))


class FieldText(FunctionElement[str]):
    """A field of a `document` of JSON text: a string as it is, an object as JSON text.

    Such texts compare by their code points, whatever the language of the database.
    """

    name = "field_text"
    type = Text()
    inherit_cache = True

    def __init__(self, document: ColumnElement[str], *path: str) -> None:
        super().__init__(document, *path)


class FieldsObject(FunctionElement[str]):
    """JSON text of an object with these fields of a `document` of JSON text; null stands for one that it lacks."""

    name = "fields_object"
    type = Text()
    inherit_cache = True

    def __init__(self, document: ColumnElement[str], *fields: str) -> None:
        super().__init__(document, *fields)


@compiles(FieldText, "sqlite")
def _field_text_sqlite(element: FieldText, compiler: SQLCompiler, **options: Any) -> str:
    document, *path = element.clauses
    return compiler.process(func.json_extract(document, _path(path)), **options)


# Type json, not jsonb: that refuses texts in which U+0000 is escaped.
@compiles(FieldText, "postgresql")
def _field_text_postgresql(element: FieldText, compiler: SQLCompiler, **options: Any) -> str:
    document, *path = element.clauses
    return compiler.process(func.json_extract_path_text(cast(document, JSON), *path).collate("C"), **options)


@compiles(FieldsObject, "sqlite")
def _fields_object_sqlite(element: FieldsObject, compiler: SQLCompiler, **options: Any) -> str:
    document, *fields = element.clauses
    shown = [part for name in fields for part in (name, func.json_extract(document, _path([name])))]
    return compiler.process(func.json_object(*shown), **options)


@compiles(FieldsObject, "postgresql")
def _fields_object_postgresql(element: FieldsObject, compiler: SQLCompiler, **options: Any) -> str:
    document, *fields = element.clauses
    whole = cast(document, JSON)
    shown = [part for name in fields for part in (name, func.json_extract_path(whole, name))]
    return compiler.process(cast(func.json_build_object(*shown), Text), **options)


def _path(names: Sequence[ColumnElement[Any]]) -> ColumnElement[Any]:
    path: ColumnElement[Any] = literal_column("'$'", Text)
    for name in names:
        path = path + literal_column("'.'", Text) + name
    return path
