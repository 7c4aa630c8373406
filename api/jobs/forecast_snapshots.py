"""Plans use what a forecaster says of how long jobs last, where the request names one and the jobs do not say it.

What is filled in becomes part of the snapshot, so that the stored input and its hash cover it, and variants of the plan
go by the same.

lasting    jobs without lasting and remaining_s, but for those of which planning ahead computes how long they last
taken_at   where the snapshot has none: the moment as of which the forecaster was asked
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from api.common.times import time_of
from api.schemas.snapshot import JobLastingDoc, SnapshotDoc
from models.forecast.known import SnapshotForecasts
from models.wording import counted
from models.workload import Snapshot
from stowplan.errors import Issue, Severity, pointer_of

# More names than that do not help anybody; the snapshot has them all.
_MOST_NAMED = 100
_DAY_S = 86_400.0
_WHY_NOT = {
    "user": "no user is given, without whom nothing is known of a job; give user, and queue",
    "queue": "no queue is given, without which nothing is known of a job; give queue",
    "running_s": "nobody says for how long it has run; give running_s (or attained_gpu_s)",
    None: "longer than anything that it has seen; give lasting, or train it on newer jobs",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSnapshot:
    """A snapshot and its document with forecasts, and notes on them; pointers relative to the request."""

    document: SnapshotDoc
    snapshot: Snapshot
    notes: tuple[Issue, ...]


def with_forecasts(
    document: SnapshotDoc, snapshot: Snapshot, forecasts: SnapshotForecasts, name: str
) -> ForecastSnapshot:
    """Fill what the forecaster `name` said into a snapshot and its document."""
    known = {id_: said.lasting for id_, said in forecasts.jobs.items() if said.lasting is not None}
    changed = [
        job.model_copy(update={"lasting": JobLastingDoc.model_validate(known[job.id], from_attributes=True)})
        if job.id in known
        else job
        for job in document.jobs
    ]
    jobs = tuple(replace(job, lasting=known.get(job.id, job.lasting)) for job in snapshot.jobs)
    return ForecastSnapshot(
        document=document.model_copy(
            update={"jobs": tuple(changed), "taken_at": document.taken_at or time_of(forecasts.at_s)}
        ),
        snapshot=replace(snapshot, jobs=jobs),
        notes=tuple(_notes(snapshot, forecasts, name)),
    )


def _notes(snapshot: Snapshot, forecasts: SnapshotForecasts, name: str) -> list[Issue]:
    """What was filled in, and for whom nothing was, by reason; pointers at the first job of each."""
    position = {job.id: k for k, job in enumerate(snapshot.jobs)}
    known = [id_ for id_, said in forecasts.jobs.items() if said.lasting is not None]
    notes = []
    if known:
        until = _until(forecasts)
        detail = (
            f"is forecast by {name!r}, which was trained on {forecasts.history!r}{until}, for {_named(known)}; the "
            "input of the plan has the quantiles, give your own to plan without them"
        )
        notes.append(_warning("forecast", pointer_of("snapshot", "jobs", position[known[0]], "lasting"), detail))
    for lacks, why in _WHY_NOT.items():
        unknown = [id_ for id_, said in forecasts.jobs.items() if said.lasting is None and said.lacks == lacks]
        if unknown:
            field = lacks or "lasting"
            pointer = pointer_of("snapshot", "jobs", position[unknown[0]], field)
            detail = f"{name!r} says nothing of {_named(unknown)}: {why}. Planned as if without an end"
            notes.append(_warning("not_forecast", pointer, detail))
    return notes


def _until(forecasts: SnapshotForecasts) -> str:
    """Until when the forecaster was trained, and how long before the snapshot that was, where it is days."""
    until_s = forecasts.trained_until_s
    if until_s is None:
        return ""
    days = round((forecasts.at_s - until_s) / _DAY_S)
    age = f", {counted(abs(days), 'day')} {'before' if days > 0 else 'after'} the snapshot" if days else ""
    return f" until {time_of(until_s).isoformat(timespec='seconds')}{age}"


def _named(ids: Sequence[str]) -> str:
    shown = ", ".join(map(repr, ids[:_MOST_NAMED]))
    more = f" and {len(ids) - _MOST_NAMED} more" if len(ids) > _MOST_NAMED else ""
    return f"{counted(len(ids), 'job')} ({shown}{more})"


def _warning(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail, severity=Severity.WARNING)
