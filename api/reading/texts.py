"""What a reader gets, and what it says when it needs more: readers have no store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar

from api.common.settings import Settings
from api.common.times import time_of
from api.convert.hashing import snapshot_id
from api.convert.located import located
from api.convert.snapshot import cluster_from_document
from api.jobs.calibrated_snapshots import MeasuredJob, MeasuredSnapshot, filled_in
from api.schemas.calendar import CalendarReference
from api.schemas.snapshot import ClusterDoc, PlannedSnapshotReference, SnapshotDoc, SnapshotReference
from api.store.calendars import StoredCalendar, entries_of
from api.store.snapshots import ResolvedSnapshot, resolved, source_document
from solver.monitor import SolveMonitor
from stowplan.errors import InputError, Issue
from topology.cluster import Cluster

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestText:
    """The body of a request, and what is known of what it may refer to.

    `snapshots`: texts of stored ones by id, None for one that there is not; `calendars` by name likewise. `measured`:
    of those jobs, among `measured_jobs`, that the request has.
    """

    body: bytes
    settings: Settings
    measured_jobs: frozenset[str] = frozenset()
    snapshots: Mapping[str, str | None] = field(default_factory=dict)
    measured: Mapping[str, MeasuredJob] = field(default_factory=dict)
    calendars: Mapping[str, StoredCalendar | None] = field(default_factory=dict)

    def with_found(
        self,
        lacking: "Lacking",
        snapshot: str | None,
        measured: Mapping[str, MeasuredJob],
        calendar: StoredCalendar | None,
    ) -> "RequestText":
        """The same with what it was lacking."""
        snapshots = self.snapshots if lacking.snapshot_id is None else {lacking.snapshot_id: snapshot}
        calendars = self.calendars if lacking.calendar is None else {lacking.calendar: calendar}
        return replace(self, snapshots=snapshots, calendars=calendars, measured={**self.measured, **measured})

    @property
    def num_bytes(self) -> int:
        """Size of everything that is to be read."""
        texts = [*self.snapshots.values()]
        for calendar in self.calendars.values():
            texts += () if calendar is None else (calendar.entries, *calendar.reservations)
        return len(self.body) + sum(len(text or "") for text in texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What a text refers to and does not bring: a stored snapshot or calendar, or measurements of jobs."""

    snapshot_id: str | None = None
    calendar: str | None = None
    jobs: frozenset[str] = frozenset()


class LackingError(Exception):
    """Ends the reading of a text that lacks something; it is read again with that."""

    def __init__(self, lacking: Lacking) -> None:
        super().__init__(lacking)
        self.lacking = lacking


def reading_task(read: Callable[[RequestText], T]) -> Callable[[RequestText, SolveMonitor], T | Lacking]:
    """Make a task of readers of a function that reads a text; it gives what the text lacks, where that is something."""

    @wraps(read)
    def task(text: RequestText, monitor: SolveMonitor) -> T | Lacking:  # noqa: ARG001 - the pool's calling convention
        try:
            return read(text)
        except LackingError as error:
            return error.lacking

    return task


def snapshot_of(source: SnapshotDoc | SnapshotReference, text: RequestText) -> ResolvedSnapshot:
    """Give the snapshot that a request brings or refers to, with the calendar that it refers to; the id is that of what
    the request says itself.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    LackingError
        When it is to be fetched first.
    """
    return _as_posted(source, _resolved(source, text))


def cluster_of(source: ClusterDoc | SnapshotReference, text: RequestText) -> Cluster:
    """Give the cluster that a request brings, or that of the stored snapshot that it refers to.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    LackingError
        When it is to be fetched first.
    """
    with located("/cluster"):
        if isinstance(source, SnapshotReference):
            source = source_document(source, lambda id_: _stored(id_, text)).cluster
        return cluster_from_document(source)


def measured_snapshot_of(source: SnapshotDoc | SnapshotReference, policy: str, text: RequestText) -> MeasuredSnapshot:
    """Give the snapshot, filled in with what was measured of its jobs; raises what `snapshot_of` does."""
    used = _resolved(source, text)
    measured = text.measured_jobs & {job.id for job in used.snapshot.jobs}
    if measured - text.measured.keys():
        raise LackingError(Lacking(jobs=measured))
    found = MeasuredSnapshot(posted=used, used=used)
    if measured:
        document = source_document(_with_calendar(source, text), lambda id_: _stored(id_, text))
        found = filled_in(used, document, policy, {job: text.measured[job] for job in measured})
    return replace(found, posted=_as_posted(source, used))


def _resolved(source: SnapshotDoc | SnapshotReference, text: RequestText) -> ResolvedSnapshot:
    return resolved(_with_calendar(source, text), lambda id_: _stored(id_, text))


def _as_posted(source: SnapshotDoc | SnapshotReference, found: ResolvedSnapshot) -> ResolvedSnapshot:
    """The same under the id of the request, which is the same whatever is in the calendar that it names."""
    if _calendar_name(source) is None:
        return found
    posted = source.model_dump_json()
    return replace(found, id=snapshot_id(posted), text=posted)


def _calendar_name(source: SnapshotDoc | SnapshotReference) -> str | None:
    """The calendar that a request names."""
    calendar = source.calendar if isinstance(source, SnapshotDoc | PlannedSnapshotReference) else None
    return calendar.cluster if isinstance(calendar, CalendarReference) else None


def _with_calendar(source: SnapshotDoc | SnapshotReference, text: RequestText) -> SnapshotDoc | SnapshotReference:
    """The snapshot with the entries of the calendar that it names, as they are now."""
    name = _calendar_name(source)
    if name is None:
        return source
    with located("/snapshot"):
        document = source_document(source, lambda id_: _stored(id_, text))
    if name not in text.calendars:
        raise LackingError(Lacking(calendar=name))
    stored = text.calendars[name]
    if stored is None:
        detail = f"is {name!r}; there is no calendar of that name: PUT /v1/clusters/NAME/calendar first"
        raise InputError(detail, [Issue(code="unknown_cluster", pointer="/snapshot/calendar/cluster", detail=detail)])
    taken_at = document.taken_at or time_of(stored.at_s)
    return document.model_copy(update={"calendar": entries_of(stored), "taken_at": taken_at})


def _stored(snapshot_id: str, text: RequestText) -> str | None:
    if snapshot_id not in text.snapshots:
        raise LackingError(Lacking(snapshot_id=snapshot_id))
    return text.snapshots[snapshot_id]
