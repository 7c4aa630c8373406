"""Forecasters in the database, by name."""

from collections.abc import Sequence

from sqlalchemy import Boolean, Column, Integer, MetaData, String, Table, Text, delete, insert, select, update

from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.listing import listed

_metadata = MetaData()
_forecasters = Table(
    "forecasters",
    _metadata,
    Column("sequence", Integer, primary_key=True, autoincrement=True),
    Column("name", String, nullable=False, unique=True),
    Column("final", Boolean, nullable=False, index=True),
    Column("document", Text, nullable=False),
    # What was learned, and how well it did; null until it has succeeded.
    Column("record", Text),
    Column("report", Text),
    sqlite_autoincrement=True,
)
# Names are given by clients: no name is the id of something else whose key would be freed with it.
_KEY_PREFIX = "forecaster/"


class ForecasterStore:
    """The table of forecasters beside those of `Store`, in the same database. Documents are JSON text."""

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.writing() as connection:
            _metadata.create_all(connection)

    def name_of(self, request: RequestKey | None) -> str | None:
        """Name of the forecaster that came of the same request before; as `Store.resource_of`."""
        known = self._store.resource_of(request)
        return None if known is None else known.removeprefix(_KEY_PREFIX)

    def add(self, name: str, document: str, request: RequestKey | None = None) -> None:
        """Insert a forecaster that is not final."""
        with self._store.writing() as connection:
            keep_key(connection, request, _KEY_PREFIX + name)
            connection.execute(insert(_forecasters).values(name=name, final=False, document=document))

    def finish(
        self,
        name: str,
        document: str,
        record: str | None = None,
        report: str | None = None,
        *,
        is_interrupted: bool = False,
    ) -> None:
        """Write its final state; one that was interrupted has its key forgotten, so that a retry begins anew."""
        values = {"final": True, "document": document, "record": record, "report": report}
        with self._store.writing() as connection:
            if is_interrupted:
                forget_key(connection, _KEY_PREFIX + name)
            connection.execute(update(_forecasters).where(_forecasters.c.name == name).values(**values))

    def delete(self, name: str) -> bool:
        """Delete a forecaster; False when there is none."""
        with self._store.writing() as connection:
            forget_key(connection, _KEY_PREFIX + name)
            return connection.execute(delete(_forecasters).where(_forecasters.c.name == name)).rowcount > 0

    def document(self, name: str) -> str | None:
        """A forecaster as it was written last."""
        return self._text(name, _forecasters.c.document)

    def record(self, name: str) -> str | None:
        """What it learned."""
        return self._text(name, _forecasters.c.record)

    def report(self, name: str) -> str | None:
        """How well it did."""
        return self._text(name, _forecasters.c.report)

    def page(self, fields: Sequence[str], limit: int, before: int | None) -> list[tuple[int, str]]:
        """Sequence and these fields of documents, from the newest to the oldest; only sequences below `before`."""
        with self._store.reading() as connection:
            return listed(connection, _forecasters, fields, limit, before)

    def unfinished(self) -> list[str]:
        """Documents that are not final."""
        with self._store.reading() as connection:
            return list(connection.scalars(select(_forecasters.c.document).where(~_forecasters.c.final)))

    def _text(self, name: str, column: Column[str]) -> str | None:
        with self._store.reading() as connection:
            return connection.scalar(select(column).where(_forecasters.c.name == name))
