"""Replays in the database: each is written when it has ended, so that no crash takes it away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    delete,
    insert,
    select,
    update,
)

from api.store.audit import note_change, note_deletion
from api.store.database import Store
from api.store.keys import RequestKey, forget_key, keep_key
from api.store.leases import Others, end_lease, forget_lease, is_left, lease_turn, take_over
from api.store.listing import listed
from api.store.tables import REPLAYS, RESULTS


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftReplays:
    """Replays that an earlier process left unfinished: JSON text of all, and of the rows that had ended by number."""

    document: str
    rows: dict[int, str]


class ReplayStore:
    """Tables of replays beside those of `Store`, in the same database. Documents are JSON text."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def resource_of(self, request: RequestKey | None) -> str | None:
        """As `Store.resource_of`."""
        return self._store.resource_of(request)

    def add(
        self,
        id_: str,
        document: str,
        cluster: str,
        request: RequestKey | None = None,
        admit: Callable[[Others], None] = lambda _: None,
    ) -> None:
        """Insert replays that are not final, unless `admit` refuses them."""
        with self._store.writing() as connection:
            note_change(connection, id_)
            keep_key(connection, request, id_)
            lease_turn(connection, self._store, id_, REPLAYS.name, admit)
            connection.execute(insert(REPLAYS).values(id=id_, final=False, document=document, cluster=cluster))

    def add_result(self, id_: str, number: int, row: str, result: str) -> None:
        """Keep what came out of one of them, once, however often it is said."""
        known = (RESULTS.c.replays_id == id_, RESULTS.c.number == number)
        with self._store.writing() as connection:
            # A connection that was lost may have taken it.
            connection.execute(delete(RESULTS).where(*known))
            connection.execute(insert(RESULTS).values(replays_id=id_, number=number, row=row, result=result))

    def finish(self, id_: str, document: str, events: str, *, is_interrupted: bool) -> None:
        """Write their final state; those that were interrupted lose their key."""
        known = REPLAYS.c.id == id_
        with self._store.writing() as connection:
            if not end_lease(connection, self._store, id_):
                return
            if is_interrupted:
                forget_key(connection, id_)
            connection.execute(update(REPLAYS).where(known).values(final=True, document=document, events=events))

    def delete(self, id_: str) -> bool:
        """Delete replays; False when there are none."""
        with self._store.writing() as connection:
            forget_key(connection, id_)
            forget_lease(connection, id_)
            connection.execute(delete(RESULTS).where(RESULTS.c.replays_id == id_))
            return note_deletion(connection, connection.execute(delete(REPLAYS).where(REPLAYS.c.id == id_)).rowcount)

    def document(self, id_: str) -> str | None:
        """Replays as they were written last."""
        with self._store.reading() as connection:
            return connection.scalar(select(REPLAYS.c.document).where(REPLAYS.c.id == id_))

    def events(self, id_: str) -> str | None:
        """Events of final replays."""
        with self._store.reading() as connection:
            return connection.scalar(select(REPLAYS.c.events).where(REPLAYS.c.id == id_))

    def cluster(self, id_: str) -> str | None:
        """Their cluster."""
        with self._store.reading() as connection:
            return connection.scalar(select(REPLAYS.c.cluster).where(REPLAYS.c.id == id_))

    def numbers(self, id_: str) -> list[int]:
        """Which of them have a result, in order."""
        query = select(RESULTS.c.number).where(RESULTS.c.replays_id == id_).order_by(RESULTS.c.number)
        with self._store.reading() as connection:
            return list(connection.scalars(query))

    def result(self, id_: str, number: int) -> str | None:
        """What came out of one of them."""
        query = select(RESULTS.c.result).where(RESULTS.c.replays_id == id_, RESULTS.c.number == number)
        with self._store.reading() as connection:
            return connection.scalar(query)

    def page(self, fields: Sequence[str], limit: int, before: int | None) -> list[tuple[int, str]]:
        """Sequence and these fields of documents, from the newest to the oldest; only sequences below `before`."""
        with self._store.reading() as connection:
            return listed(connection, REPLAYS, fields, limit, before)

    def take_up(self) -> list[LeftReplays]:
        """Take replays that are not final and that no living service has."""
        if not is_left(self._store, REPLAYS.name):
            return []
        with self._store.writing() as connection:
            ids = take_over(connection, self._store, REPLAYS.name)
            query = select(REPLAYS.c.id, REPLAYS.c.document).where(REPLAYS.c.id.in_(ids))
            left = connection.execute(query.order_by(REPLAYS.c.sequence)).all() if ids else []
            rows = select(RESULTS.c.number, RESULTS.c.row)
            return [
                LeftReplays(
                    document=document,
                    rows={row.number: row.row for row in connection.execute(rows.where(RESULTS.c.replays_id == id_))},
                )
                for id_, document in left
            ]
