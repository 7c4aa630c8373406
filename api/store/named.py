"""Documents by the names that clients give them."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Table, delete, select

from api.store.audit import note_deletion
from api.store.database import Store
from api.store.keys import RequestKey, forget_key
from api.store.leases import forget_lease
from api.store.listing import listed


class NamedStore:
    """A table beside those of `Store`, in the same database. Documents are JSON text.

    Parameters
    ----------
    table
        Has columns `sequence`, `name` and `document`.
    kind
        What stands in it. Names are given by clients: with it no name is the id of something else whose key would be
        freed with it.
    """

    def __init__(self, store: Store, table: Table, kind: str) -> None:
        self._store, self._table, self._prefix = store, table, f"{kind}/"

    def name_of(self, request: RequestKey | None) -> str | None:
        """Name of what came of the same request before; as `Store.resource_of`."""
        known = self._store.resource_of(request)
        return None if known is None else known.removeprefix(self._prefix)

    def delete(self, name: str) -> bool:
        """Delete one; False when there is none."""
        with self._store.writing() as connection:
            forget_key(connection, self._prefix + name)
            forget_lease(connection, self._prefix + name)
            gone = connection.execute(delete(self._table).where(self._table.c.name == name)).rowcount
            return note_deletion(connection, gone)

    def document(self, name: str) -> str | None:
        """One as it was written last."""
        return self._text(name, self._table.c.document)

    def page(self, fields: Sequence[str], limit: int, before: int | None) -> list[tuple[int, str]]:
        """Sequence and these fields of documents, from the newest to the oldest; only sequences below `before`."""
        with self._store.reading() as connection:
            return listed(connection, self._table, fields, limit, before)

    def _text(self, name: str, column: ColumnElement[str]) -> str | None:
        with self._store.reading() as connection:
            return connection.scalar(select(column).where(self._table.c.name == name))
