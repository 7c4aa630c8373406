"""The calendar of a replay in a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter
from pydantic_core import to_json

from api.cli.json_files import read_json
from api.cli.paths import readable
from api.convert.reading import read_document
from api.convert.replay_calendar import replay_calendar, reserved_jobs
from api.schemas.calendar import CalendarEntryDoc
from executor.control.events import CalendarChange
from stowplan.errors import InputError
from topology.cluster import Cluster
from workloads.trace import Trace

_ENTRIES: TypeAdapter[tuple[CalendarEntryDoc, ...]] = TypeAdapter(tuple[CalendarEntryDoc, ...])


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCalendar:
    """What becomes known of the calendar, and which jobs belong to which reservation."""

    changes: tuple[CalendarChange, ...]
    reserved_for: dict[str, str]


def calendar_of(
    file: Path | None,
    reserved: Sequence[str],
    trace: Trace,
    cluster: Cluster,
    *,
    known_s: float,
    horizon_s: float | None,
) -> ReplayCalendar:
    """Read the calendar of a replay, where there is one.

    Parameters
    ----------
    file
        A list of entries, an object with `entries` (as a service gives its calendars), a snapshot or a plan request.
    reserved
        JOB=ENTRY for every job that belongs to a reservation.

    Raises
    ------
    FileFormatError
        When the file cannot be read or is not JSON; names the line.
    InputError
        When it is wrong, or does not go with the trace and the cluster.
    """
    belongs = [_belongs(text, trace) for text in reserved]
    if file is None:
        if belongs:
            raise InputError("--reserved names reservations, and there is no --calendar")
        return ReplayCalendar(changes=(), reserved_for={})
    if trace.origin_s is None:
        raise InputError(
            f"--calendar: {trace.name!r} does not say when its time zero was; give --origin, as 2026-12-07T09:00:00Z"
        )
    text = to_json(calendar_entries(read_json(readable(file)), file), inf_nan_mode="constants")
    try:
        documents = read_document(_ENTRIES, text, "calendar")
        changes = replay_calendar(documents, cluster, trace.origin_s, known_s=known_s, horizon_s=horizon_s)
    except InputError as error:
        raise InputError(f"{file}: {error.detail}", error.issues) from error
    wanted = {job: (entry, "--reserved") for job, entry in belongs}
    return ReplayCalendar(changes=changes, reserved_for=reserved_jobs(wanted, changes))


def origin_of(text: str) -> float:
    """The moment of `--origin` in seconds since 1970; InputError when it is none, or of no time zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise InputError(f"--origin is {text!r}; must be a moment with its time zone, such as 2026-12-07T09:00:00Z")
    return moment.timestamp()


def calendar_entries(document: object, source: object) -> object:
    """The entries of a document: a list, an object with `entries` (as a service gives its calendars), a snapshot or a
    plan request.

    Raises
    ------
    InputError
        When it has none; names the source.
    """
    if not isinstance(document, dict):
        return document
    if isinstance(document.get("entries"), list):
        # Reservations that are confirmed stand beside them.
        kept = (one.get("entry") for one in document.get("reservations", []) if isinstance(one, dict))
        return [*document["entries"], *kept]
    snapshot = document.get("snapshot", document)
    if isinstance(snapshot, dict) and isinstance(snapshot.get("calendar"), list):
        return snapshot["calendar"]
    raise InputError(f"{source}: has no list of entries; write a list, or an object with `entries` or `calendar`")


def _belongs(text: str, trace: Trace) -> tuple[str, str]:
    job, equals, entry = text.partition("=")
    if not (job and equals and entry):
        raise InputError(f"--reserved is {text!r}; must be JOB=ENTRY")
    if all(one.id != job for one in trace.jobs):
        raise InputError(f"--reserved: {trace.name!r} has no job {job!r}")
    return job, entry
