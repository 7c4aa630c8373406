"""Calendars of clusters and reservations in the database.

What is decided of a calendar is decided in one transaction whose first statement raises its version: until it has ended
SQLite lets no other one write, and PostgreSQL none that writes this row, whichever connection or process that is; and
each statement behind the first sees all that was written before it. So of two decisions that exclude each other the
second sees the first. Documents are JSON text.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, delete, insert, or_, select, update

from api.store.audit import note_change, note_deletion
from api.store.database import Store
from api.store.dialects.statements import add_new
from api.store.keys import RequestKey, forget_key, keep_key, resource_of
from api.store.stored_calendar import StoredCalendar, StoredReservation
from api.store.tables import CALENDARS, RESERVATIONS


class CalendarStore:
    """Tables of calendars and reservations beside those of `Store`, in the same database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def calendar(self, name: str, now_s: float) -> StoredCalendar | None:
        """A calendar, with the reservations that are not over."""
        with self._store.reading() as connection:
            return _calendar(connection, name, now_s)

    def create(
        self, name: str, now_s: float, cluster: str, entries: str, check: Callable[[StoredCalendar], None]
    ) -> bool:
        """Insert a calendar, unless `check` raises; False when there is one of that name."""
        values = {"name": name, "version": 1, "updated_at_s": now_s, "cluster": cluster, "entries": entries}
        with self._store.writing() as connection:
            if not add_new(connection, CALENDARS, values):
                return False
            check(_known(connection, name, now_s))
            note_change(connection)
        return True

    def replace(
        self,
        name: str,
        version: int,
        now_s: float,
        cluster: str,
        entries: str,
        check: Callable[[StoredCalendar], None],
    ) -> bool:
        """Replace a version of a calendar, unless `check` of the result raises; False when it is another by now."""
        same = (CALENDARS.c.name == name) & (CALENDARS.c.version == version)
        values = {"version": version + 1, "updated_at_s": now_s, "cluster": cluster, "entries": entries}
        with self._store.writing() as connection:
            if not connection.execute(update(CALENDARS).where(same).values(**values)).rowcount:
                return False
            check(_known(connection, name, now_s))
            note_change(connection)
        return True

    def add_reservation(self, new: StoredReservation, request: RequestKey | None = None) -> None:
        """Insert a reservation."""
        with self._store.writing() as connection:
            note_change(connection, new.id)
            keep_key(connection, request, new.id)
            connection.execute(insert(RESERVATIONS).values(**_row(new)))

    def decide(
        self, id_: str, now_s: float, decide: Callable[[StoredCalendar, StoredReservation], StoredReservation]
    ) -> StoredReservation | None:
        """Write what `decide` makes of a reservation and its calendar, unless it raises; None when there is none."""
        calendar = select(RESERVATIONS.c.calendar).where(RESERVATIONS.c.id == id_).scalar_subquery()
        raised = update(CALENDARS).where(CALENDARS.c.name == calendar)
        with self._store.writing() as connection:
            # First of all: from here on nobody else decides anything.
            connection.execute(raised.values(version=CALENDARS.c.version + 1, updated_at_s=now_s))
            # Nor is it deleted meanwhile; SQLite needs not be told.
            known = _reservation(connection, id_, is_held=True)
            if known is None:
                return None
            decided = decide(_known(connection, known.calendar, now_s), known)
            connection.execute(update(RESERVATIONS).where(RESERVATIONS.c.id == id_).values(**_row(decided)))
            note_change(connection)
        return decided

    def reservation(self, id_: str) -> StoredReservation | None:
        """One reservation."""
        with self._store.reading() as connection:
            return _reservation(connection, id_)

    def delete_reservation(self, id_: str) -> bool:
        """Delete a reservation; False when there is none."""
        with self._store.writing() as connection:
            forget_key(connection, id_)
            gone = connection.execute(delete(RESERVATIONS).where(RESERVATIONS.c.id == id_)).rowcount
            return note_deletion(connection, gone)

    def reservation_of(self, request: RequestKey) -> str | None:
        """Id of what came of the same request under the same key; IdempotencyConflictError for another request."""
        with self._store.reading() as connection:
            return resource_of(connection, request)

    def page(self, limit: int, before: int | None, calendar: str | None) -> list[tuple[int, str]]:
        """Sequence and document of reservations, newest first; only sequences below `before`, only of a calendar."""
        query = select(RESERVATIONS.c.sequence, RESERVATIONS.c.document)
        if before is not None:
            query = query.where(RESERVATIONS.c.sequence < before)
        if calendar is not None:
            query = query.where(RESERVATIONS.c.calendar == calendar)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(RESERVATIONS.c.sequence.desc()).limit(limit))
            return [(row.sequence, row.document) for row in rows]


def _calendar(connection: Connection, name: str, now_s: float) -> StoredCalendar | None:
    row = connection.execute(select(CALENDARS).where(CALENDARS.c.name == name)).one_or_none()
    if row is None:
        return None
    held = select(RESERVATIONS.c.document).where(
        RESERVATIONS.c.calendar == name,
        RESERVATIONS.c.holds == 1,
        or_(RESERVATIONS.c.until_s.is_(None), RESERVATIONS.c.until_s > now_s),
    )
    reservations = tuple(connection.scalars(held.order_by(RESERVATIONS.c.sequence)))
    return StoredCalendar(**row._mapping, at_s=now_s, reservations=reservations)


def _known(connection: Connection, name: str, now_s: float) -> StoredCalendar:
    """A calendar that there is: none is ever deleted."""
    found = _calendar(connection, name, now_s)
    assert found is not None  # noqa: S101 - see above
    return found


def _reservation(connection: Connection, id_: str, *, is_held: bool = False) -> StoredReservation | None:
    query = select(RESERVATIONS).where(RESERVATIONS.c.id == id_)
    row = connection.execute(query.with_for_update() if is_held else query).one_or_none()
    if row is None:
        return None
    return StoredReservation(
        id=row.id, calendar=row.calendar, holds=bool(row.holds), until_s=row.until_s, document=row.document
    )


def _row(reservation: StoredReservation) -> dict[str, Any]:
    return {
        "id": reservation.id,
        "calendar": reservation.calendar,
        "holds": int(reservation.holds),
        "until_s": reservation.until_s,
        "document": reservation.document,
    }
