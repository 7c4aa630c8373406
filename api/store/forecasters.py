"""Forecasters in the database, by name."""

from collections.abc import Callable

from sqlalchemy import delete, insert, select, update

from api.common.errors import ForecasterExistsError
from api.store.audit import note_change
from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.leases import Others, end_lease, is_left, lease_turn, take_over
from api.store.named import NamedStore
from api.store.tables import FORECASTERS


class ForecasterStore(NamedStore):
    """Forecasters with what they have learned."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, FORECASTERS, "forecaster")

    def lease_id(self, name: str) -> str:
        """As what one that is not final is leased."""
        return self._prefix + name

    def add(
        self,
        name: str,
        document: str,
        request: RequestKey | None = None,
        admit: Callable[[Others], None] = lambda _: None,
        may_replace: Callable[[str], bool] = lambda _: False,
    ) -> None:
        """Insert a forecaster that is not final, unless `admit` refuses it.

        Parameters
        ----------
        may_replace
            Says of the document of one that has the name whether it leaves it.

        Raises
        ------
        ForecasterExistsError
            When another one keeps the name.
        """
        with self._store.writing() as connection:
            note_change(connection, name)
            keep_key(connection, request, self._prefix + name)
            # In this transaction: another service may have been asked for the same name at the same moment.
            there = connection.scalar(select(FORECASTERS.c.document).where(FORECASTERS.c.name == name))
            if there is not None and not may_replace(there):
                raise ForecasterExistsError(f"there is a forecaster {name!r}; delete it, or take another name")
            connection.execute(delete(FORECASTERS).where(FORECASTERS.c.name == name))
            lease_turn(connection, self._store, self.lease_id(name), FORECASTERS.name, admit)
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
