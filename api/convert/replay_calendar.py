"""The calendar of a replay: from time stamps to seconds from time zero of the trace."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from api.convert.calendar import entry_from_document
from api.schemas.calendar import CalendarEntryDoc
from executor.control.events import CalendarChange
from models.wording import counted
from stowplan.errors import InputError, Issue, raise_for_errors
from topology.calendar import EntryKind
from topology.calendar_issues import calendar_issues
from topology.cluster import Cluster

_ZERO = datetime(1970, 1, 1, tzinfo=UTC)


def replay_calendar(
    documents: Sequence[CalendarEntryDoc],
    cluster: Cluster,
    origin_s: float | None,
    *,
    known_s: float = 0.0,
    horizon_s: float | None = None,
    name: str | None = None,
) -> tuple[CalendarChange, ...]:
    """What becomes known of the calendar, and when; nothing where it is empty.

    Parameters
    ----------
    origin_s
        Time zero of the trace in seconds since 1970, where it is known.
    known_s
        When the entries become known, in seconds of the trace.
    name
        Of the calendar that a service has, where the entries are those of one: they have no places of their own then.

    Raises
    ------
    InputError
        When there are entries and time zero is not known, when they are of other nodes, or none is within the replay;
        pointers are relative to a request for replays.
    """
    if not documents:
        return ()
    if origin_s is None:
        detail = "is missing; a calendar needs to know when time zero of the trace was, in seconds since 1970"
        raise InputError(detail, [Issue(code="missing_field", pointer="/trace/origin_s", detail=detail)])
    zero = _ZERO + timedelta(seconds=origin_s)
    entries = tuple(entry_from_document(document, zero) for document in documents)
    issues = calendar_issues(cluster, entries)
    raise_for_errors(issues if name is None or not issues else [_of_named(issues, name)], "calendar")
    if all(entry.is_over or (horizon_s is not None and entry.from_s >= horizon_s) for entry in entries):
        end = "" if horizon_s is None else f" and ends {(zero + timedelta(seconds=horizon_s)).isoformat()}"
        detail = (
            f"has nothing that is within the replay, which begins {zero.isoformat()}{end}; see origin_s of the trace"
        )
        raise InputError(detail, [Issue(code="calendar_elsewhere", pointer="/calendar", detail=detail)])
    return (CalendarChange(at_s=known_s, entries=entries),)


def reserved_jobs(wanted: Mapping[str, tuple[str, str]], changes: Sequence[CalendarChange]) -> dict[str, str]:
    """Job -> its reservation, as said in `wanted` with the pointer of who says it.

    Raises
    ------
    InputError
        When the calendar has no such reservation.
    """
    raise_for_errors(list(_reservation_issues(wanted, changes)), "request")
    return {job: entry for job, (entry, _) in wanted.items()}


def _reservation_issues(wanted: Mapping[str, tuple[str, str]], changes: Sequence[CalendarChange]) -> Iterator[Issue]:
    known = {entry.name for change in changes for entry in change.entries if entry.kind is EntryKind.RESERVATION}
    for entry, pointer in wanted.values():
        if entry not in known:
            detail = f"is {entry!r}, and the calendar of the replay has no reservation of that name"
            yield Issue(code="unknown_reservation", pointer=pointer, detail=detail)


def _of_named(issues: Sequence[Issue], name: str) -> Issue:
    """The faults of a calendar that the request only names: it has no places of its own for them."""
    rest = "" if len(issues) == 1 else f" (and {counted(len(issues) - 1, 'fault')} more)"
    detail = f"is {name!r}, which does not go with the cluster of the replay: {issues[0].detail}{rest}"
    return replace(issues[0], pointer="/calendar/cluster", detail=detail)
