"""What a reader gets, and what it says when it needs more: readers have no store."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TypeVar

from api.common.settings import Settings
from api.common.times import time_of
from api.convert.changed_snapshot import changed_snapshot, issue_in_source, on_cluster, told_in
from api.convert.hashing import snapshot_id
from api.convert.located import located
from api.convert.snapshot import cluster_from_document
from api.jobs.calibrated_snapshots import MeasuredJob, MeasuredSnapshot, filled_in
from api.jobs.forecast_snapshots import with_forecasts
from api.schemas.calendar import CalendarEntryDoc, CalendarReference, CalendarSource
from api.schemas.model import CalibrationDoc
from api.schemas.snapshot import (
    SNAPSHOT,
    ChangedSnapshot,
    ClusterDoc,
    ClusterSnapshot,
    PlannedSnapshotReference,
    SnapshotDoc,
    SnapshotReference,
)
from api.store.resolved import ResolvedSnapshot, resolved_document, source_document
from api.store.stored_calendar import StoredCalendar, entries_of
from api.store.texts import Body, BodyName
from models.forecast.known import KnownJob, SnapshotForecasts, unforeseen_jobs
from solver.monitor import SolveMonitor
from stowplan.errors import InputError, Issue
from stowplan.pickling import quickly_pickled
from topology.cluster import Cluster

T = TypeVar("T")
# All ways in which a request says its snapshot.
Source = SnapshotDoc | SnapshotReference | ClusterSnapshot | ChangedSnapshot


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class RequestText:
    """The body of a request, and what is known of what it may refer to.

    `snapshots`: stored ones, and those of plans, by id, None for one that there is not, the name alone for who keeps
    it; `clusters`, `calendars` and `calibrations` by name likewise. `measured`: of those jobs, among `measured_jobs`,
    that the request has. `forecasts`: what the forecaster that it names says of its jobs, or why it says nothing, with
    a pointer relative to the request.
    """

    body: bytes
    settings: Settings
    measured_jobs: frozenset[str] = frozenset()
    snapshots: Mapping[str, BodyName | None] = field(default_factory=dict)
    measured: Mapping[str, MeasuredJob] = field(default_factory=dict)
    clusters: Mapping[str, str | None] = field(default_factory=dict)
    calendars: Mapping[str, StoredCalendar | None] = field(default_factory=dict)
    calibrations: Mapping[str, CalibrationDoc | None] = field(default_factory=dict)
    forecasts: SnapshotForecasts | Issue | None = None

    def with_found(
        self,
        lacking: "Lacking",
        snapshot: Body | None,
        measured: Mapping[str, MeasuredJob],
        calendar: StoredCalendar | None,
    ) -> "RequestText":
        """The same with what it was lacking, but for forecasts."""
        snapshots = self.snapshots if lacking.snapshot_id is None else {lacking.snapshot_id: snapshot}
        calendars = self.calendars if lacking.calendar is None else {lacking.calendar: calendar}
        return replace(self, snapshots=snapshots, calendars=calendars, measured={**self.measured, **measured})

    @property
    def num_bytes(self) -> int:
        """Size of everything that is to be read."""
        texts = [*self.clusters.values()]
        for calendar in self.calendars.values():
            texts += () if calendar is None else (calendar.entries, *calendar.reservations)
        stored = sum(0 if body is None else body.num_bytes for body in self.snapshots.values())
        return len(self.body) + stored + sum(len(text or "") for text in texts)

    @property
    def wants(self) -> str | None:
        """What a process may have kept that reads this soonest; None where it is no one thing."""
        hashes = [body.hash for body in self.snapshots.values() if body is not None]
        return hashes[0] if len(hashes) == 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedForecasts:
    """A forecaster by name, and what it is asked about. `at_s`: the moment of the snapshot in seconds since 1970, None
    for now."""

    forecaster: str
    jobs: tuple[KnownJob, ...]
    at_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """What a text refers to and does not bring: a stored snapshot, cluster or calendar, stored calibrations,
    measurements of jobs, or forecasts."""

    snapshot_id: str | None = None
    cluster: str | None = None
    calendar: str | None = None
    calibrations: frozenset[str] = frozenset()
    jobs: frozenset[str] = frozenset()
    forecasts: WantedForecasts | None = None


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


def snapshot_of(source: Source, text: RequestText) -> ResolvedSnapshot:
    """Give the snapshot that a request brings or refers to, with the calendar and forecasts that it refers to; the id
    is that of what the request says itself.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    LackingError
        When it is to be fetched first.
    """
    return _as_posted(source, _found(source, text).used)


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


def calendar_entries(source: CalendarSource, text: RequestText) -> tuple[CalendarEntryDoc, ...]:
    """Give the entries that a request brings, or those of the calendar that it refers to.

    Raises
    ------
    InputError
        When there is no such calendar; the pointer is relative to the request.
    LackingError
        When it is to be fetched first.
    """
    return entries_of(_stored_calendar(source.cluster, text)) if isinstance(source, CalendarReference) else source


def measured_snapshot_of(source: Source, policy: str, text: RequestText) -> MeasuredSnapshot:
    """Give the snapshot, filled in with forecasts and with what was measured of its jobs; raises what `snapshot_of`
    does."""
    found = _found(source, text)
    measured = text.measured_jobs & {job.id for job in found.used.snapshot.jobs}
    if measured - text.measured.keys():
        raise LackingError(Lacking(jobs=measured))
    filled = MeasuredSnapshot(posted=found.used, used=found.used)
    if measured:
        filled = filled_in(found.used, found.document, policy, {job: text.measured[job] for job in measured})
    notes = (issue_in_source(note, source, found.document) for note in (*found.notes, *filled.notes))
    return replace(filled, posted=_as_posted(source, found.used), notes=tuple(notes))


def _expanded(source: Source, text: RequestText) -> SnapshotDoc | SnapshotReference:
    """The snapshot of a request, whole or by reference; pointers are relative to the request."""
    if isinstance(source, SnapshotReference):
        return source
    with located("/snapshot"):
        return whole_snapshot(source, text)


def whole_snapshot(source: SnapshotDoc | ClusterSnapshot | ChangedSnapshot, text: RequestText) -> SnapshotDoc:
    """Give a snapshot that is told by what is other than in what the service has as if it had been posted whole.

    Raises
    ------
    InputError
        When that is not known, or the changes do not go with it; pointers are relative to the source.
    LackingError
        When it is to be fetched first.
    """
    if isinstance(source, ClusterSnapshot):
        return on_cluster(source, _stored_cluster(source.cluster, text))
    if isinstance(source, ChangedSnapshot):
        base = _stored(source.base, text)
        if base is None:
            detail = f"there is no snapshot and no plan {source.base!r}; post the snapshot whole"
            raise InputError(detail, [Issue(code="unknown_snapshot", pointer="/base", detail=detail)])
        return changed_snapshot(source, SNAPSHOT.validate_json(base))
    return source


def _stored_cluster(name: str, text: RequestText) -> ClusterDoc:
    if name not in text.clusters:
        raise LackingError(Lacking(cluster=name))
    stored = text.clusters[name]
    if stored is None:
        detail = f"there is no cluster {name!r}; PUT it to /v1/clusters/NAME first"
        raise InputError(detail, [Issue(code="unknown_cluster", pointer="/cluster", detail=detail)])
    return ClusterDoc.model_validate_json(stored)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resolved:
    """A snapshot with the calendar and forecasts that it refers to, its document, and notes on the forecasts."""

    used: ResolvedSnapshot
    document: SnapshotDoc
    notes: tuple[Issue, ...] = ()


def _found(source: Source, text: RequestText) -> _Resolved:
    whole = _expanded(source, text)
    if isinstance(whole, SnapshotReference):
        return _resolved(whole, text)
    with told_in(source, whole):
        return _resolved(whole, text)


def _resolved(source: SnapshotDoc | SnapshotReference, text: RequestText) -> _Resolved:
    with located("/snapshot"):
        stored = source_document(source, lambda id_: _stored(id_, text))
    document = _with_calibrations(_with_calendar(source, stored, text), text)
    name = _forecaster_name(source)
    if name is None:
        return _Resolved(
            used=resolved_document(source if document is stored else document, document), document=document
        )
    document = document.model_copy(update={"forecaster": None})
    return _forecast(name, resolved_document(document, document), document, text)


def _forecast(name: str, used: ResolvedSnapshot, document: SnapshotDoc, text: RequestText) -> _Resolved:
    """Fill in what a forecaster says."""
    forecasts = text.forecasts
    if forecasts is None:
        at_s = None if document.taken_at is None else document.taken_at.timestamp()
        jobs = tuple(unforeseen_jobs(used.snapshot))
        raise LackingError(Lacking(forecasts=WantedForecasts(forecaster=name, jobs=jobs, at_s=at_s)))
    if isinstance(forecasts, Issue):
        raise InputError(forecasts.detail, [forecasts])
    filled = with_forecasts(document, used.snapshot, forecasts, name)
    content = filled.document.model_dump_json()
    used = ResolvedSnapshot(snapshot=filled.snapshot, id=snapshot_id(content), text=content)
    return _Resolved(used=used, document=filled.document, notes=filled.notes)


def _as_posted(source: Source, found: ResolvedSnapshot) -> ResolvedSnapshot:
    """The same under the id of the request, which is the same whatever is in the cluster, the calendar and the
    calibrations that it names, and whatever the forecaster says."""
    if isinstance(source, SnapshotDoc | SnapshotReference) and not (
        _calendar_name(source) or _forecaster_name(source) or _calibration_names(source)
    ):
        return found
    return replace(found, id=snapshot_id(source.model_dump_json()))


def _calendar_name(source: SnapshotDoc | SnapshotReference) -> str | None:
    """The calendar that a request names."""
    calendar = source.calendar if isinstance(source, SnapshotDoc | PlannedSnapshotReference) else None
    return calendar.cluster if isinstance(calendar, CalendarReference) else None


def _forecaster_name(source: SnapshotDoc | SnapshotReference) -> str | None:
    """The forecaster that a request names."""
    return source.forecaster if isinstance(source, SnapshotDoc | PlannedSnapshotReference) else None


def _calibration_names(source: SnapshotDoc | SnapshotReference) -> frozenset[str]:
    """The calibrations that jobs of a request name."""
    if not isinstance(source, SnapshotDoc):
        return frozenset()
    return frozenset(job.calibration for job in source.jobs if isinstance(job.calibration, str))


def _with_calibrations(document: SnapshotDoc, text: RequestText) -> SnapshotDoc:
    """The snapshot with the calibrations that its jobs name; one that is not stored is left to who builds the job, and
    knows those that come along."""
    names = _calibration_names(document)
    if not names:
        return document
    found = {name: calibration_of(name, text, names) for name in names}
    jobs = (
        job.model_copy(update={"calibration": found.get(str(job.calibration)) or job.calibration})
        for job in document.jobs
    )
    return document.model_copy(update={"jobs": tuple(jobs)})


def calibration_of(name: str, text: RequestText, others: frozenset[str] = frozenset()) -> CalibrationDoc | None:
    """The calibration that was posted under a name, None where there is none; `others`: to be fetched with it.

    Raises
    ------
    LackingError
        When it is to be fetched first.
    """
    if name not in text.calibrations:
        raise LackingError(Lacking(calibrations=others | {name}))
    return text.calibrations[name]


def _with_calendar(source: SnapshotDoc | SnapshotReference, document: SnapshotDoc, text: RequestText) -> SnapshotDoc:
    """The snapshot with the entries of the calendar that the request names, as they are now."""
    name = _calendar_name(source)
    if name is None:
        return document
    with located("/snapshot"):
        stored = _stored_calendar(name, text)
    taken_at = document.taken_at or time_of(stored.at_s)
    return document.model_copy(update={"calendar": entries_of(stored), "taken_at": taken_at})


def _stored_calendar(name: str, text: RequestText) -> StoredCalendar:
    """The calendar that the service has under a name, as it is now; the pointer is relative to what refers to it."""
    if name not in text.calendars:
        raise LackingError(Lacking(calendar=name))
    stored = text.calendars[name]
    if stored is None:
        detail = f"is {name!r}; there is no calendar of that name: PUT /v1/clusters/NAME/calendar first"
        raise InputError(detail, [Issue(code="unknown_cluster", pointer="/calendar/cluster", detail=detail)])
    return stored


def _stored(snapshot_id: str, text: RequestText) -> str | None:
    body = stored_body(snapshot_id, text)
    if body is None or isinstance(body, Body):
        return None if body is None else body.text
    raise LackingError(Lacking(snapshot_id=snapshot_id))


def stored_body(snapshot_id: str, text: RequestText) -> BodyName | None:
    """A snapshot that the service has, or which one that is; None where it has none of this id.

    Raises
    ------
    LackingError
        When it is to be fetched first.
    """
    if snapshot_id not in text.snapshots:
        raise LackingError(Lacking(snapshot_id=snapshot_id))
    return text.snapshots[snapshot_id]
