"""Measurements of jobs in the database: what ran, and every step of every rank once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    func,
    select,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from api.schemas.metrics import StepRecordDoc, WholeStepDoc
from api.store.database import Store

_metadata = MetaData()
_runs = Table(
    "measured_runs",
    _metadata,
    Column("id", Integer, primary_key=True),
    Column("job_id", String, nullable=False),
    Column("launch", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
    Column("num_records", BigInteger, nullable=False, default=0),
    Column("first_step", BigInteger),
    Column("since_s", Float),
    Column("until_s", Float),
    UniqueConstraint("job_id", "launch"),
)
# What the run says already is not kept with every record.
_IMPLIED = ("launch", "pipe", "data", "tensor", "num_micro_batches", "tokens", "small_batch", "large_batch")
# Nor what few records have, and nothing is computed of.
_KEPT = frozenset(StepRecordDoc.model_fields) - {*_IMPLIED, "validation_loss"}
_NUMBERS = sorted(_KEPT - {"rank", "step", "host", "peak_memory_bytes", "started_at_s"})
_steps = Table(
    "measured_steps",
    _metadata,
    # Steps of a launch lie together in their order, so that pages and the newest steps are read without a search.
    Column("run", Integer, ForeignKey(_runs.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("host", String, nullable=False),
    Column("peak_memory_bytes", BigInteger, nullable=False),
    Column("started_at_s", Float, nullable=False),
    *(Column(name, Float, nullable=False) for name in _NUMBERS),
    sqlite_with_rowid=False,
)

# Of launches of programs of users: of a step one line, which knows nothing of its parts.
_whole_steps = Table(
    "measured_whole_steps",
    _metadata,
    Column("run", Integer, ForeignKey(_runs.c.id), primary_key=True),
    Column("step", BigInteger, primary_key=True),
    Column("started_at_s", Float, nullable=False),
    Column("step_s", Float, nullable=False),
    Column("loss", Float),
    sqlite_with_rowid=False,
)


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
        with store.writing() as connection:
            _metadata.create_all(connection)

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
                connection.execute(insert(_runs).values(**values).on_conflict_do_nothing())
            for launch, group in groupby(sorted(records, key=by_launch), by_launch):
                added += _add_to_run(connection, job_id, launch, list(group))
            for launch, whole in groupby(sorted(steps, key=by_launch), by_launch):
                added += _add_to_run(connection, job_id, launch, list(whole))
        return added

    def job_ids(self) -> set[str]:
        """Jobs with measurements."""
        with self._store.reading() as connection:
            return set(connection.scalars(select(_runs.c.job_id).distinct()))

    def run(self, job_id: str, launch: int) -> StoredRun | None:
        """One launch."""
        with self._store.reading() as connection:
            query = select(_runs).where(_runs.c.job_id == job_id, _runs.c.launch == launch)
            row = connection.execute(query).one_or_none()
        return None if row is None else _stored(row._mapping)

    def runs(self, job_id: str) -> list[StoredRun]:
        """Launches that have records, newest first."""
        query = select(_runs).where(_runs.c.job_id == job_id, _runs.c.num_records > 0)
        with self._store.reading() as connection:
            return [_stored(row._mapping) for row in connection.execute(query.order_by(_runs.c.launch.desc()))]

    def newest_steps(self, run: int, num_steps: int, columns: Iterable[str]) -> list[tuple[Any, ...]]:
        """Columns of the records of the last `num_steps` steps of a launch."""
        last = select(func.max(_steps.c.step)).where(_steps.c.run == run).scalar_subquery()
        query = select(*(_steps.c[name] for name in columns))
        with self._store.reading() as connection:
            rows = connection.execute(query.where(_steps.c.run == run, _steps.c.step > last - num_steps))
            return [tuple(row) for row in rows]

    def newest_whole_steps(self, run: int, num_steps: int) -> list[tuple[int, float, float]]:
        """(step, start, seconds) of the last steps of a launch that a program of a user's own has told of."""
        table = _whole_steps
        query = select(table.c.step, table.c.started_at_s, table.c.step_s).where(table.c.run == run)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(table.c.step.desc()).limit(num_steps))
            return [(step, started_at_s, step_s) for step, started_at_s, step_s in rows]

    def whole_summaries(self, run: int, limit: int, before: int | None) -> list[dict[str, Any]]:
        """Those steps, newest first; only those below `before`."""
        query = select(_whole_steps).where(_whole_steps.c.run == run)
        if before is not None:
            query = query.where(_whole_steps.c.step < before)
        with self._store.reading() as connection:
            rows = connection.execute(query.order_by(_whole_steps.c.step.desc()).limit(limit))
            return [{**row._mapping, "num_ranks": 1} for row in rows]

    def summaries(self, run: int, limit: int, before: int | None) -> list[dict[str, Any]]:
        """Steps of a launch with means over their ranks, newest first; only those below `before`."""
        query = select(
            _steps.c.step,
            func.count().label("num_ranks"),
            func.min(_steps.c.started_at_s).label("started_at_s"),
            func.max(_steps.c.peak_memory_bytes).label("peak_memory_bytes"),
            *(func.avg(_steps.c[name]).label(name) for name in _NUMBERS),
        ).where(_steps.c.run == run)
        if before is not None:
            query = query.where(_steps.c.step < before)
        with self._store.reading() as connection:
            rows = connection.execute(query.group_by(_steps.c.step).order_by(_steps.c.step.desc()).limit(limit))
            return [dict(row._mapping) for row in rows]


def _add_to_run(
    connection: Connection, job_id: str, launch: int, records: Sequence[StepRecordDoc] | Sequence[WholeStepDoc]
) -> int:
    """Keep records of a launch that is known; returns how many are new."""
    this = (_runs.c.job_id == job_id) & (_runs.c.launch == launch)
    run = connection.execute(select(_runs).where(this)).one()
    table = _whole_steps if isinstance(records[0], WholeStepDoc) else _steps
    names = [column.name for column in table.columns if column.name != "run"]
    rows = [{"run": run.id, **{name: getattr(record, name) for name in names}} for record in records]
    added = connection.execute(insert(table).on_conflict_do_nothing(), rows).rowcount
    first = min(record.step for record in records)
    since_s = min(record.started_at_s for record in records)
    until_s = max(record.started_at_s + record.step_s for record in records)
    if run.num_records:
        first, since_s, until_s = min(first, run.first_step), min(since_s, run.since_s), max(until_s, run.until_s)
    grown = {"num_records": run.num_records + added, "first_step": first, "since_s": since_s, "until_s": until_s}
    connection.execute(update(_runs).where(this).values(**grown))
    return added


def _stored(row: Any) -> StoredRun:
    return StoredRun(**{name: value for name, value in row.items() if name != "job_id"})
