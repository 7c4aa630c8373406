"""Forecasters in the database, by name."""

from sqlalchemy import insert, select, update

from api.store.audit import note_change
from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.leases import end_lease, is_left, lease, take_over
from api.store.named import NamedStore
from api.store.tables import FORECASTERS


class ForecasterStore(NamedStore):
    """Forecasters with what they have learned."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, FORECASTERS, "forecaster")

    def lease_id(self, name: str) -> str:
        """As what one that is not final is leased."""
        return self._prefix + name

    def add(self, name: str, document: str, request: RequestKey | None = None) -> None:
        """Insert a forecaster that is not final."""
        with self._store.writing() as connection:
            note_change(connection, name)
            keep_key(connection, request, self._prefix + name)
            lease(connection, self._store, self.lease_id(name), FORECASTERS.name)
            connection.execute(insert(FORECASTERS).values(name=name, final=False, document=document))

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
            if not end_lease(connection, self._store, self.lease_id(name)):
                return
            if is_interrupted:
                forget_key(connection, self._prefix + name)
            connection.execute(update(FORECASTERS).where(FORECASTERS.c.name == name).values(**values))

    def record(self, name: str) -> str | None:
        """What it learned."""
        return self._text(name, FORECASTERS.c.record)

    def report(self, name: str) -> str | None:
        """How well it did."""
        return self._text(name, FORECASTERS.c.report)

    def take_up(self) -> list[str]:
        """Take forecasters that are not final and that no living service has; their documents."""
        if not is_left(self._store, FORECASTERS.name):
            return []
        with self._store.writing() as connection:
            names = [id_.removeprefix(self._prefix) for id_ in take_over(connection, self._store, FORECASTERS.name)]
            query = select(FORECASTERS.c.document).where(FORECASTERS.c.name.in_(names))
            return list(connection.scalars(query.order_by(FORECASTERS.c.sequence))) if names else []
