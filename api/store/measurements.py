"""Measurements of jobs in the database: what ran, and every step of every rank once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    Connection,
    func,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from api.schemas.metrics import StepRecordDoc, WholeStepDoc
from api.store.database import Store
from api.store.tables import NUMBERS, RUNS, STEPS, WHOLE_STEPS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """One launch of a job; `document` is JSON text. `since_s`, `until_s`: Unix time of its first and last step."""

    id: int
    launch: int
    document: str
    num_records: int
    first_step: int | None
    since_s: float | None
    until_s: float | None


class JobStore:
    """Tables of measurements beside those of `Store`, in the same database."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(
        self, job_id: str, run: tuple[int, str] | None, records: Sequence[StepRecordDoc], steps: Sequence[WholeStepDoc]
    ) -> int:
        """Keep records, and their launch if it is new: all or nothing; returns how many were not there before.

        Parameters
        ----------
        run
            Launch and JSON text of what it runs; None when the launches of all records are known.
        """
        added = 0
        by_launch = attrgetter("launch")
        with self._store.writing() as connection:
            if run is not None:
                values = {"job_id": job_id, "launch": run[0], "document": run[1]}
                connection.execute(insert(RUNS).values(**values).on_conflict_do_nothing())
            for launch, group in groupby(sorted(records, key=by_launch), by_launch):
                added += _add_to_run(connection, job_id, launch, list(group))
            for launch, whole in groupby(sorted(steps, key=by_launch), by_launch):
                added += _add_to_run(connection, job_id, launch, list(whole))
        return added

    def job_ids(self) -> set[str]:
        """Jobs with measurements."""
        with self._store.reading() as connection:
            return set(connection.scalars(select(RUNS.c.job_id).distinct()))

    def run(self, job_id: str, launch: int) -> StoredRun | None:
        """One launch."""
        with self._store.reading() as connection:
            query = select(RUNS).where(RUNS.c.job_id == job_id, RUNS.c.launch == launch)
            row = connection.execute(query).one_or_none()
        return None if row is None else _stored(row._mapping)

    def runs(self, job_id: str) -> list[StoredRun]:
        """Launches that have records, newest first."""
        query = select(RUNS).where(RUNS.c.job_id == job_id, RUNS.c.num_records > 0)
        with self._store.reading() as connection:
            return [_stored(row._mapping) for row in connection.execute(query.order_by(RUNS.c.launch.desc()))]

    def newest_steps(self, run: int, num_steps: int, columns: Iterable[str]) -> list[tuple[Any, ...]]:
        """Columns of the records of the last `num_steps` steps of a launch."""
        last = select(func.max(STEPS.c.step)).where(STEPS.c.run == run).scalar_subquery()
        query = select(*(STEPS.c[name] for name in columns))
        with self._store.reading() as connection:
            rows = connection.execute(query.where(STEPS.c.run == run, STEPS.c.step > last - num_steps))
            return [tuple(row) for row in rows]

    def newest_whole_steps(self, run: int, num_steps: int) -> list[tuple[int, float, float]]:
        """(step, start, seconds) of the last steps of a launch that a program of a user's own has told of."""
        table = WHOLE_STEPS
        query = select(table.c.step, table.c.started_at_s, table.c.step_s).where(table.c.run == run)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(table.c.step.desc()).limit(num_steps))
            return [(step, started_at_s, step_s) for step, started_at_s, step_s in rows]

    def whole_summaries(self, run: int, limit: int, before: int | None) -> list[dict[str, Any]]:
        """Those steps, newest first; only those below `before`."""
        query = select(WHOLE_STEPS).where(WHOLE_STEPS.c.run == run)
        if before is not None:
            query = query.where(WHOLE_STEPS.c.step < before)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(WHOLE_STEPS.c.step.desc()).limit(limit))
            return [{**row._mapping, "num_ranks": 1} for row in rows]

    def summaries(self, run: int, limit: int, before: int | None) -> list[dict[str, Any]]:
        """Steps of a launch with means over their ranks, newest first; only those below `before`."""
        query = select(
            STEPS.c.step,
            func.count().label("num_ranks"),
            func.min(STEPS.c.started_at_s).label("started_at_s"),
            func.max(STEPS.c.peak_memory_bytes).label("peak_memory_bytes"),
            *(func.avg(STEPS.c[name]).label(name) for name in NUMBERS),
        ).where(STEPS.c.run == run)
        if before is not None:
            query = query.where(STEPS.c.step < before)
        with self._store.reading() as connection:
            rows = connection.execute(query.group_by(STEPS.c.step).order_by(STEPS.c.step.desc()).limit(limit))
            return [dict(row._mapping) for row in rows]


def _add_to_run(
    connection: Connection, job_id: str, launch: int, records: Sequence[StepRecordDoc] | Sequence[WholeStepDoc]
) -> int:
    """Keep records of a launch that is known; returns how many are new."""
    this = (RUNS.c.job_id == job_id) & (RUNS.c.launch == launch)
    run = connection.execute(select(RUNS).where(this)).one()
    table = WHOLE_STEPS if isinstance(records[0], WholeStepDoc) else STEPS
    names = [column.name for column in table.columns if column.name != "run"]
    rows = [{"run": run.id, **{name: getattr(record, name) for name in names}} for record in records]
    added = connection.execute(insert(table).on_conflict_do_nothing(), rows).rowcount
    first = min(record.step for record in records)
    since_s = min(record.started_at_s for record in records)
    until_s = max(record.started_at_s + record.step_s for record in records)
    if run.num_records:
        first, since_s, until_s = min(first, run.first_step), min(since_s, run.since_s), max(until_s, run.until_s)
    grown = {"num_records": run.num_records + added, "first_step": first, "since_s": since_s, "until_s": until_s}
    connection.execute(update(RUNS).where(this).values(**grown))
    return added


def _stored(row: Any) -> StoredRun:
    return StoredRun(**{name: value for name, value in row.items() if name != "job_id"})
