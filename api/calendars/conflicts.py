"""What a calendar excludes, and what is odd about it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from api.common.errors import CalendarConflictError
from api.convert.calendar import calendar_from_documents
from api.convert.snapshot import cluster_from_document
from api.schemas.calendar import CalendarEntryDoc
from api.schemas.snapshot import ClusterDoc
from api.store.stored_calendar import StoredCalendar, entries_of
from stowplan.errors import Issue, raise_for_errors
from topology.calendar_issues import calendar_issues, calendar_warnings
from topology.cluster import Cluster

_WHOLE = "/calendar"


def cluster_of(text: str) -> Cluster:
    """The cluster of a calendar."""
    return cluster_from_document(ClusterDoc.model_validate_json(text))


def refuse_faults(
    cluster: Cluster, entries: Sequence[CalendarEntryDoc], now: datetime, prefix: str, of: str = _WHOLE
) -> None:
    """Refuse entries that are wrong by themselves; `prefix` takes the place of `of` in pointers.

    Raises
    ------
    InputError
        With one issue per fault.
    """
    found = calendar_issues(cluster, calendar_from_documents(entries, now))
    raise_for_errors([_moved(issue, of, prefix) for issue in found], "calendar")


def refuse_conflicts(
    stored: StoredCalendar,
    now: datetime,
    new: Sequence[CalendarEntryDoc] = (),
    what: str = "the calendar cannot be like that",
) -> None:
    """Refuse entries that cannot stand beside those of a calendar; `what` says what is refused.

    Raises
    ------
    CalendarConflictError
        The issues name both sides.
    """
    entries = calendar_from_documents((*entries_of(stored), *new), now)
    found = calendar_issues(cluster_of(stored.cluster), entries)
    if found:
        issues = [replace(issue, pointer="") for issue in found]
        raise CalendarConflictError(f"{what}: {found[0].detail}", issues)


def oddities(
    stored: StoredCalendar, now: datetime, num_own: int, new: Sequence[CalendarEntryDoc] = ()
) -> tuple[Issue, ...]:
    """Warnings about a calendar that has `num_own` entries beside its reservations; about `new` ones alone, if any."""
    entries = calendar_from_documents((*entries_of(stored), *new), now)
    first = len(entries) - len(new)
    found = []
    for issue in calendar_warnings(cluster_of(stored.cluster), entries):
        k = int(issue.pointer.split("/")[2])
        old = f"{_WHOLE}/{k}"
        if new:
            found += [_moved(issue, old, "")] if k >= first else []
        else:
            found.append(_moved(issue, old, f"/entries/{k}" if k < num_own else f"/reservations/{k - num_own}/entry"))
    return tuple(found)


def _moved(issue: Issue, old: str, new: str) -> Issue:
    return replace(issue, pointer=new + issue.pointer.removeprefix(old))
