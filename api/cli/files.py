"""Plan requests and placements in files, for those who plan without a server."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.json_files import read_json
from api.common.settings import Settings
from api.convert.calendar import calendar_from_documents
from api.convert.located import located
from api.convert.reading import read_document
from api.convert.request import check_request, issue_in_request
from api.convert.snapshot import cluster_from_document, snapshot_from_document
from api.jobs.forecast_snapshots import ForecastSnapshot, with_forecasts
from api.schemas.calendar import CalendarEntryDoc, CalendarReference
from api.schemas.request import MAX_THREADS, MAX_TIME_LIMIT_S, PLAN_BODIES, PLAN_BODY, AllocationDoc, PlanBodyDoc
from api.schemas.snapshot import SNAPSHOT, SnapshotDoc
from models.forecast.extra import require_lightgbm
from models.forecast.forecaster import Forecaster
from models.forecast.known import unforeseen_jobs
from models.forecast.snapshots import forecast_jobs
from models.plan import PlanRequest
from models.workload import Snapshot
from stowplan.errors import FileFormatError, InputError, Issue
from stowplan.records import from_document
from topology.calendar import CalendarEntry
from topology.calendar_issues import calendar_issues, calendar_warnings
from topology.cluster import Cluster

_ALLOCATIONS: TypeAdapter[tuple[AllocationDoc, ...]] = TypeAdapter(tuple[AllocationDoc, ...])
# Who plans on an own machine may ask for as much as a document can say.
UNCAPPED = Settings(max_time_limit_s=MAX_TIME_LIMIT_S, max_threads=MAX_THREADS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFile:
    """A request in a file, and its warnings, with pointers as the file has them; the first of them are of what was
    `filled_in`. is_bare: the file is a snapshot; body is the request as it was read."""

    body: PlanBodyDoc
    request: PlanRequest
    warnings: tuple[Issue, ...]
    is_bare: bool
    filled_in: tuple[Issue, ...] = ()

    def in_file(self, issues: Iterable[Issue]) -> tuple[Issue, ...]:
        """What planning says, which points from the snapshot, with pointers as the file has them."""
        return tuple(issue if self.is_bare else issue_in_request(issue) for issue in issues)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarFile:
    """The calendar of a snapshot in a file, and what is wrong with it; pointers are relative to the snapshot."""

    cluster: Cluster
    documents: tuple[CalendarEntryDoc, ...]
    entries: tuple[CalendarEntry, ...]
    taken_at: datetime
    issues: tuple[Issue, ...]


def load_request(
    path: Path,
    policy: str | None = None,
    parameters: Mapping[str, object] | None = None,
    options: Mapping[str, object] | None = None,
    forecaster: Path | None = None,
) -> PlanFile:
    """Read a whole plan request, or a snapshot that `policy` plans with its default parameters.

    Parameters
    ----------
    path
        The file.
    policy
        Needed for a snapshot; must agree with that of a request.
    parameters, options
        Fields that take precedence over those of the file.
    forecaster
        File of the one that says how long jobs last that do not say it themselves.

    Returns
    -------
    asked
        Where the file names no time limit, the default of `Settings` holds.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When the document is wrong; pointers are relative to the file.
    """
    learned = None if forecaster is None else load_forecaster(forecaster)
    # The packaged examples say what they are.
    document = {name: part for name, part in _document(path).items() if name not in ("title", "description")}
    bare = "snapshot" not in document
    body: dict[str, Any] = {"snapshot": document} if bare else document
    named = body.setdefault("policy", policy)
    if named is None:
        raise InputError(f"{path}: names no policy; choose one of {list(PLAN_BODIES)}")
    if policy is not None and named != policy:
        raise InputError(f"{path}: is a request for policy {named!r}, not {policy!r}")
    for part, overrides in (("parameters", parameters), ("options", options)):
        given = body.get(part, {})
        if overrides and isinstance(given, dict):
            body[part] = {**given, **overrides}
    try:
        read = read_document(PLAN_BODY, to_json(body, inf_nan_mode="constants"))
        with located("/snapshot"):
            snapshot = _inline(read.snapshot)
        notes: tuple[Issue, ...] = ()
        if learned is not None and isinstance(read.snapshot, SnapshotDoc):
            filled = _with_forecasts(read.snapshot, snapshot, learned)
            read, snapshot, notes = read.model_copy(update={"snapshot": filled.document}), filled.snapshot, filled.notes
        checked = check_request(read, snapshot, UNCAPPED)
        told = _in_file(notes, bare)
        warnings = (*told, *_in_file(checked.issues, bare))
        return PlanFile(body=read, request=checked.required(), warnings=warnings, is_bare=bare, filled_in=told)
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", _in_file(error.issues, bare)) from error


def load_forecaster(path: Path) -> Forecaster:
    """Read what `stowplan forecast train` wrote.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When it is no forecaster, or one of another version.
    """
    try:
        return from_document(Forecaster, read_json(path), "forecaster")
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def load_snapshot(path: Path, forecaster: Path | None = None) -> Snapshot:
    """Read a snapshot, or that of a whole plan request; with what a forecaster in a file says of its jobs.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When the document is wrong; pointers are relative to the snapshot.
    """
    source, snapshot = _read_snapshot(path)
    if forecaster is None:
        return snapshot
    return _with_forecasts(source, snapshot, load_forecaster(forecaster)).snapshot


def load_dated_snapshot(path: Path) -> tuple[Snapshot, datetime | None]:
    """Read a snapshot as `load_snapshot` does, and its moment, where it says one; raises what that does."""
    source, snapshot = _read_snapshot(path)
    return snapshot, source.taken_at


def load_calendar(path: Path) -> CalendarFile:
    """Read the calendar of a snapshot, or of that of a whole plan request, whatever is wrong with it.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When the document is wrong beside that; pointers are relative to the snapshot.
    """
    document = _document(path)
    try:
        source = _snapshot_document(document)
        with located("/cluster"):
            cluster = cluster_from_document(source.cluster)
        entries = calendar_from_documents(source.calendar, source.taken_at)
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error
    faults = calendar_issues(cluster, entries)
    unsound = any(issue.code == "unknown_node" for issue in faults)
    return CalendarFile(
        cluster=cluster,
        documents=() if isinstance(source.calendar, CalendarReference) else source.calendar,
        entries=entries,
        taken_at=source.taken_at or datetime.now(UTC),
        issues=(*faults, *(() if unsound else calendar_warnings(cluster, entries))),
    )


def load_allocations(path: Path) -> tuple[AllocationDoc, ...]:
    """Read allocations: an object with `allocations`, each with `job_id` and `gpus`; a plan is such an object.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When the document is wrong; pointers are relative to the file.
    """
    document = _document(path)
    items = document.get("allocations")
    if not isinstance(items, list):
        raise InputError(f"{path}: has no list of allocations, each with job_id and gpus (node id -> GPU indices)")
    told = [_only(item, ("job_id", "gpus")) if isinstance(item, dict) else item for item in items]
    try:
        with located("/allocations"):
            return read_document(_ALLOCATIONS, to_json(told, inf_nan_mode="constants"), "placement")
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def _only(document: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: document[name] for name in names if name in document}


def _document(path: Path) -> dict[str, Any]:
    document = read_json(path)
    if not isinstance(document, dict):
        raise FileFormatError.at(str(path), None, "must be an object: a plan request, a snapshot or a plan")
    return document


def _read_snapshot(path: Path) -> tuple[SnapshotDoc, Snapshot]:
    document = _document(path)
    try:
        source = _snapshot_document(document)
        return source, snapshot_from_document(source)
    except InputError as error:
        raise InputError(f"{path}: {error.detail}", error.issues) from error


def _snapshot_document(document: dict[str, Any]) -> SnapshotDoc:
    """The snapshot of a file that is one, or a whole plan request."""
    return read_document(SNAPSHOT, to_json(document.get("snapshot", document), inf_nan_mode="constants"), "snapshot")


def _with_forecasts(document: SnapshotDoc, snapshot: Snapshot, forecaster: Forecaster) -> ForecastSnapshot:
    """The snapshot with what a forecaster says of its jobs."""
    jobs = tuple(unforeseen_jobs(snapshot))
    if jobs:
        require_lightgbm()
    found = forecast_jobs(forecaster, jobs, (document.taken_at or datetime.now(UTC)).timestamp())
    return with_forecasts(document, snapshot, found, forecaster.history)


def _inline(source: object) -> Snapshot:
    if not isinstance(source, SnapshotDoc):
        raise InputError("refers to what only a service has; give the cluster and its jobs here")
    return snapshot_from_document(source)


def _in_file(issues: tuple[Issue, ...], bare: bool) -> tuple[Issue, ...]:
    """Pointers as the file has them: a bare snapshot knows no /snapshot."""
    return tuple(replace(issue, pointer=issue.pointer.removeprefix("/snapshot")) if bare else issue for issue in issues)
