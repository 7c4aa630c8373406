"""Forecasters in the database, by name."""

from sqlalchemy import Boolean, Column, Integer, MetaData, String, Table, Text, insert, select, update

from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.named import NamedStore

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


class ForecasterStore(NamedStore):
    """Forecasters with what they have learned."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, _forecasters, "forecaster")

    def add(self, name: str, document: str, request: RequestKey | None = None) -> None:
        """Insert a forecaster that is not final."""
        with self._store.writing() as connection:
            keep_key(connection, request, self._prefix + name)
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
                forget_key(connection, self._prefix + name)
            connection.execute(update(_forecasters).where(_forecasters.c.name == name).values(**values))

    def record(self, name: str) -> str | None:
        """What it learned."""
        return self._text(name, _forecasters.c.record)

    def report(self, name: str) -> str | None:
        """How well it did."""
        return self._text(name, _forecasters.c.report)

    def unfinished(self) -> list[str]:
        """Documents that are not final."""
        with self._store.reading() as connection:
            return list(connection.scalars(select(_forecasters.c.document).where(~_forecasters.c.final)))
