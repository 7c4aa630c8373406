"""Calendars and reservations as they are stored, for whoever reads one and has no database. Documents are JSON text."""

from dataclasses import dataclass

from pydantic import TypeAdapter

from api.schemas.calendar import CalendarEntryDoc
from api.schemas.reservation import ReservationDoc

ENTRIES: TypeAdapter[tuple[CalendarEntryDoc, ...]] = TypeAdapter(tuple[CalendarEntryDoc, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCalendar:
    """A calendar at one moment (Unix seconds).

    `cluster`: its nodes. `entries`: a list. `reservations`: those that are confirmed and not over, oldest first.
    """

    name: str
    at_s: float
    version: int
    updated_at_s: float
    cluster: str
    entries: str
    reservations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredReservation:
    """A reservation; `holds`: it was confirmed, and was not canceled. `until_s`: Unix time of its end."""

    id: str
    calendar: str
    holds: bool
    until_s: float | None
    document: str


def entries_of(stored: StoredCalendar) -> tuple[CalendarEntryDoc, ...]:
    """All that a calendar holds: its entries, then its reservations."""
    reserved = (ReservationDoc.model_validate_json(text).entry for text in stored.reservations)
    return (*ENTRIES.validate_json(stored.entries), *reserved)
