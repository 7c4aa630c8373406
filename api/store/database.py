"""Plans, comparisons and snapshots in SQLite. What is final survives a restart; one process owns the database."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import DatabaseError
from sqlalchemy.pool import StaticPool

from api.common.errors import StoreError
from api.schemas.plan import PlanStatus
from api.store.damage import look_for_damage, remedy
from api.store.file import DatabaseFile
from api.store.keys import RequestKey, forget_key, keep_key, resource_of
from api.store.listing import listed
from api.store.tables import BEGUN_AGAIN, COMPARISONS, METADATA, NOTES, PLANS, POSTED, SNAPSHOTS, TAKEN_UP

SCHEMA_VERSION = 1
_APPLICATION_ID = 0x53544F57  # "STOW" in the header of the file
_ACTIVE = [status.value for status in PlanStatus if not status.final]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One row of the plans, without its input and events. Times are Unix seconds; documents are JSON text.

    `sequence` orders plans by arrival; the store gives it out.
    """

    id: str
    policy: str
    status: PlanStatus
    queued_at_s: float
    version: str
    input_hash: str
    options: str
    timings: str
    sequence: int = 0
    idempotency_key: str | None = None
    building_at_s: float | None = None
    solving_at_s: float | None = None
    finished_at_s: float | None = None
    objective: float | None = None
    bound: float | None = None
    relative_gap: float | None = None
    outcome: str | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """A plan that an earlier process left unfinished.

    `times_taken_up`: by how many processes, this one included, since one last ended in good order;
    `times_begun_again`: in how many of those before this a worker had begun with it.
    """

    record: PlanRecord
    times_taken_up: int
    times_begun_again: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRecord:
    """One stored snapshot; `document` is JSON text."""

    id: str
    created_at_s: float
    document: str


_RECORD_COLUMNS = [PLANS.c[field.name] for field in fields(PlanRecord)]
_LIST_COLUMNS = [column for column in _RECORD_COLUMNS if column.name != "outcome"]


class Store:
    """The database. Safe from threads: readers work side by side, writers one after another.

    Raises
    ------
    StoreError
        When the file cannot be opened or written, is no database of ours, was written by a newer version, is damaged,
        or is in use by another process.
    """

    def __init__(self, path: Path | None) -> None:
        self._write_lock = threading.Lock()
        # A database in memory has one connection, which readers and writers share.
        self._read_lock: AbstractContextManager[object] = self._write_lock if path is None else nullcontext()
        self._name = "the database in memory" if path is None else f"the database {path}"
        self._file = None if path is None else DatabaseFile(path)
        self._engine = _engine(path)
        try:
            with self.writing() as connection:
                self._check_version(connection)
                look_for_damage(self._name, connection)
                METADATA.create_all(connection)
                connection.execute(text(f"PRAGMA application_id = {_APPLICATION_ID}"))
                connection.execute(text(f"PRAGMA user_version = {SCHEMA_VERSION}"))
            if self._file is not None:
                self._file.note_log()
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Release the database."""
        self._engine.dispose()
        if self._file is not None:
            self._file.close()

    @property
    def is_lasting(self) -> bool:
        """Whether what is stored is there for the next process."""
        return self._file is not None

    @property
    def trouble(self) -> str | None:
        """What keeps that which is written from being found again; None when nothing does."""
        return None if self._file is None else self._file.trouble

    def ping(self) -> None:
        """Raise StoreError when the database cannot be read."""
        with self.reading() as connection:
            connection.execute(select(func.max(PLANS.c.sequence)))

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is written when the body ends, and forgotten when it raises; one at a time."""
        with self._write_lock, self._failing("written"), self._engine.begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with self._read_lock, self._failing("read"), self._engine.connect() as connection:
            yield connection

    def add_plan(
        self, record: PlanRecord, document: str, posted_hash: str | None = None, notes: str | None = None
    ) -> None:
        """Insert a plan; `document` is its input as JSON text, `posted_hash` that of the request if it differs, `notes`
        what is said of what was filled in."""
        values = {name: value for name, value in asdict(record).items() if name != "sequence"}
        with self.writing() as connection:
            connection.execute(insert(PLANS).values(**values, input=document))
            if posted_hash is not None:
                connection.execute(insert(POSTED).values(plan_id=record.id, input_hash=posted_hash))
            if notes is not None:
                connection.execute(insert(NOTES).values(plan_id=record.id, notes=notes))

    def finish_plan(self, record: PlanRecord, events: str) -> bool:
        """Write the final state of a plan; False when it has been deleted meanwhile."""
        values = {name: value for name, value in asdict(record).items() if name != "sequence"}
        with self.writing() as connection:
            done = connection.execute(update(PLANS).where(PLANS.c.id == record.id).values(**values, events=events))
        return done.rowcount > 0

    def delete_plan(self, plan_id: str) -> bool:
        """Delete a plan; False when there is none."""
        with self.writing() as connection:
            for table in (POSTED, NOTES, TAKEN_UP, BEGUN_AGAIN):
                connection.execute(delete(table).where(table.c.plan_id == plan_id))
            return connection.execute(delete(PLANS).where(PLANS.c.id == plan_id)).rowcount > 0

    def plan(self, plan_id: str) -> PlanRecord | None:
        """One plan."""
        return self._one_plan(PLANS.c.id == plan_id)

    def plan_by_key(self, idempotency_key: str) -> PlanRecord | None:
        """The plan that was asked for under this key."""
        return self._one_plan(PLANS.c.idempotency_key == idempotency_key)

    def posted_hash(self, plan_id: str) -> str | None:
        """Hash of the request behind a plan, where measurements were filled in."""
        with self.reading() as connection:
            return connection.scalar(select(POSTED.c.input_hash).where(POSTED.c.plan_id == plan_id))

    def plan_notes(self, plan_id: str) -> str | None:
        """What was said of what was filled in, as JSON text; None where nothing was."""
        with self.reading() as connection:
            return connection.scalar(select(NOTES.c.notes).where(NOTES.c.plan_id == plan_id))

    def plan_input(self, plan_id: str) -> str | None:
        """Input of a plan as JSON text."""
        with self.reading() as connection:
            return connection.scalar(select(PLANS.c.input).where(PLANS.c.id == plan_id))

    def plan_events(self, plan_id: str) -> str | None:
        """Events of a finished plan as JSON text."""
        with self.reading() as connection:
            return connection.scalar(select(PLANS.c.events).where(PLANS.c.id == plan_id))

    def plans(self, limit: int, before: int | None, statuses: list[PlanStatus]) -> list[PlanRecord]:
        """Plans from the newest to the oldest, without outcomes; only those with a sequence below `before`."""
        query = select(*_LIST_COLUMNS).order_by(PLANS.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(PLANS.c.sequence < before)
        if statuses:
            query = query.where(PLANS.c.status.in_([status.value for status in statuses]))
        with self.reading() as connection:
            return [_record(row._mapping) for row in connection.execute(query)]

    def take_up_plans(self) -> list[LeftBehind]:
        """Plans that an earlier process left unfinished, oldest first."""
        taken_up, begun_again = (
            func.coalesce(select(table.c.times).where(table.c.plan_id == PLANS.c.id).scalar_subquery(), 0)
            for table in (TAKEN_UP, BEGUN_AGAIN)
        )
        query = select(*_RECORD_COLUMNS, taken_up.label("taken_up"), begun_again.label("begun_again"))
        with self.writing() as connection:
            rows = connection.execute(query.where(PLANS.c.status.in_(_ACTIVE)).order_by(PLANS.c.sequence)).all()
            connection.execute(delete(TAKEN_UP))
            if rows:
                counts = [{"plan_id": row.id, "times": row.taken_up + 1} for row in rows]
                connection.execute(insert(TAKEN_UP), counts)
        return [
            LeftBehind(
                record=_record({column.name: row._mapping[column.name] for column in _RECORD_COLUMNS}),
                times_taken_up=row.taken_up + 1,
                times_begun_again=row.begun_again,
            )
            for row in rows
        ]

    def note_begun_again(self, plan_id: str, times: int) -> None:
        """Write down that a worker has begun with a plan that was taken up, for the `times`-th time."""
        with self.writing() as connection:
            connection.execute(delete(BEGUN_AGAIN).where(BEGUN_AGAIN.c.plan_id == plan_id))
            connection.execute(insert(BEGUN_AGAIN).values(plan_id=plan_id, times=times))

    def forget_crashes(self) -> None:
        """Say that this process ends in good order: what it leaves unfinished did not break it."""
        with self.writing() as connection:
            for table in (TAKEN_UP, BEGUN_AGAIN):
                connection.execute(delete(table))

    def add_snapshot(self, record: SnapshotRecord) -> bool:
        """Insert a snapshot; False when it is there already."""
        with self.writing() as connection:
            known = connection.scalar(select(func.count()).where(SNAPSHOTS.c.id == record.id))
            if not known:
                connection.execute(insert(SNAPSHOTS).values(**asdict(record)))
        return not known

    def snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        """One snapshot."""
        with self.reading() as connection:
            row = connection.execute(select(SNAPSHOTS).where(SNAPSHOTS.c.id == snapshot_id)).one_or_none()
        return None if row is None else SnapshotRecord(**row._mapping)

    def resource_of(self, request: RequestKey | None) -> str | None:
        """Id of what came of the same request under the same key before; IdempotencyConflictError for another one."""
        if request is None:
            return None
        with self.reading() as connection:
            return resource_of(connection, request)

    def add_comparison(self, comparison_id: str, document: str, request: RequestKey | None = None) -> None:
        """Insert a comparison that is not final; `document` is JSON text."""
        with self.writing() as connection:
            keep_key(connection, request, comparison_id)
            connection.execute(insert(COMPARISONS).values(id=comparison_id, final=False, document=document))

    def finish_comparison(self, comparison_id: str, document: str, *, is_interrupted: bool) -> None:
        """Write the final state of a comparison; one that was interrupted loses its key."""
        known = COMPARISONS.c.id == comparison_id
        with self.writing() as connection:
            if is_interrupted:
                forget_key(connection, comparison_id)
            connection.execute(update(COMPARISONS).where(known).values(final=True, document=document))

    def delete_comparison(self, comparison_id: str) -> bool:
        """Delete a comparison; False when there is none."""
        with self.writing() as connection:
            forget_key(connection, comparison_id)
            return connection.execute(delete(COMPARISONS).where(COMPARISONS.c.id == comparison_id)).rowcount > 0

    def comparison(self, comparison_id: str) -> str | None:
        """One comparison as JSON text."""
        with self.reading() as connection:
            return connection.scalar(select(COMPARISONS.c.document).where(COMPARISONS.c.id == comparison_id))

    def comparisons(self, fields: Sequence[str], limit: int, before: int | None) -> list[tuple[int, str]]:
        """Sequence and these fields of comparisons, from the newest to the oldest; only sequences below `before`."""
        with self.reading() as connection:
            return listed(connection, COMPARISONS, fields, limit, before)

    def unfinished_comparisons(self) -> list[str]:
        """Comparisons that are not final, as JSON text."""
        with self.reading() as connection:
            return list(connection.scalars(select(COMPARISONS.c.document).where(~COMPARISONS.c.final)))

    def _one_plan(self, condition: Any) -> PlanRecord | None:
        with self.reading() as connection:
            row = connection.execute(select(*_RECORD_COLUMNS).where(condition)).one_or_none()
        return None if row is None else _record(row._mapping)

    def _check_version(self, connection: Connection) -> None:
        application = connection.scalar(text("PRAGMA application_id"))
        version = connection.scalar(text("PRAGMA user_version")) or 0
        if application != _APPLICATION_ID and connection.scalar(text("SELECT count(*) FROM sqlite_master")):
            raise StoreError(f"{self._name} belongs to another program; name another file")
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self._name} has schema version {version}, written by a newer Stowplan; this one knows "
                f"{SCHEMA_VERSION}. Update Stowplan or name another file"
            )

    @contextmanager
    def _failing(self, done: str) -> Iterator[None]:
        self._refuse_trouble()
        try:
            yield
        except DatabaseError as error:
            raise StoreError(f"{self._name} cannot be {done}: {error.orig}{remedy(error.orig)}") from error
        # What has been written meanwhile may have gone where nobody finds it.
        self._refuse_trouble()

    def _refuse_trouble(self) -> None:
        if trouble := self.trouble:
            raise StoreError(trouble)


def _record(row: Any) -> PlanRecord:
    return PlanRecord(**{**row, "status": PlanStatus(row["status"])})


def _engine(path: Path | None) -> Engine:
    if path is None:
        engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
    else:
        engine = create_engine(f"sqlite:///{path}")
    event.listen(engine, "connect", _configure)
    return engine


def _configure(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    # FULL: a plan that was promised to a client survives a power failure, too.
    for pragma in ("journal_mode = WAL", "synchronous = FULL", "busy_timeout = 5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
