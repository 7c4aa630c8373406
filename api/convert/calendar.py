"""Calendars: from time stamps to seconds from the snapshot, and back."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from api.convert.issues import issue_documents
from api.schemas.calendar import (
    CalendarEntryDoc,
    CalendarListingDoc,
    CalendarReference,
    ListedEntryDoc,
    ShapeDoc,
)
from stowplan.errors import InputError, Issue, Severity
from topology.calendar import CalendarEntry, Shape
from topology.calendar_nodes import entry_nodes
from topology.cluster import Cluster


def calendar_from_documents(
    documents: Sequence[CalendarEntryDoc] | CalendarReference, taken_at: datetime | None
) -> tuple[CalendarEntry, ...]:
    """Build the entries of a snapshot that was taken at a moment.

    Raises
    ------
    InputError
        When there are entries and nobody says when the snapshot was taken, or the entries are elsewhere.
    """
    if isinstance(documents, CalendarReference):
        detail = "names a calendar, which only requests to a service that has it can do; give the entries here"
        raise InputError(detail, [Issue(code="stored_calendar", pointer="/calendar", detail=detail)])
    if not documents:
        return ()
    if taken_at is None:
        detail = "is missing; a calendar needs the moment of the snapshot, such as 2026-12-07T09:00:00Z"
        raise InputError(detail, [Issue(code="missing_field", pointer="/taken_at", detail=detail)])
    return tuple(entry_from_document(document, taken_at) for document in documents)


def calendar_to_documents(entries: Sequence[CalendarEntry], taken_at: datetime) -> tuple[CalendarEntryDoc, ...]:
    """Give the documents of entries."""
    return tuple(entry_to_document(entry, taken_at) for entry in entries)


def entry_from_document(document: CalendarEntryDoc, taken_at: datetime) -> CalendarEntry:
    """Build one entry, with its times from a moment."""
    until = document.until_time
    return CalendarEntry(
        name=document.name,
        kind=document.kind,
        from_s=(document.from_time - taken_at).total_seconds(),
        until_s=None if until is None else (until - taken_at).total_seconds(),
        nodes=document.nodes,
        shape=None if document.shape is None else Shape(**vars(document.shape)),
        hard=document.hard,
        owner=document.owner or "",
    )


def entry_to_document(entry: CalendarEntry, taken_at: datetime) -> CalendarEntryDoc:
    """Give the document of one entry."""
    return CalendarEntryDoc(
        name=entry.name,
        kind=entry.kind,
        from_time=taken_at + timedelta(seconds=entry.from_s),
        until_time=None if entry.until_s is None else taken_at + timedelta(seconds=entry.until_s),
        nodes=entry.nodes,
        shape=None if entry.shape is None else ShapeDoc.model_validate(entry.shape, from_attributes=True),
        hard=entry.hard,
        owner=entry.owner or None,
    )


def listing(
    cluster: Cluster,
    documents: Sequence[CalendarEntryDoc],
    entries: Sequence[CalendarEntry],
    issues: Sequence[Issue],
) -> CalendarListingDoc:
    """Entries with their nodes and what they are at the moment, and what is wrong with them."""
    legal = not any(issue.severity is Severity.ERROR for issue in issues)
    positions = entry_nodes(cluster, entries).positions if legal else {}
    listed = tuple(
        ListedEntryDoc(
            entry=document,
            status="over" if entry.is_over else "now" if entry.in_effect else "ahead",
            nodes=tuple(cluster.nodes[n].id for n in positions.get(entry.name, ())),
        )
        for document, entry in zip(documents, entries, strict=True)
    )
    return CalendarListingDoc(entries=listed, issues=issue_documents(issues))
