"""Plans, comparisons and snapshots. What is final survives a restart; one process owns the database."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from api.schemas.plan import PlanStatus
from api.store.audit import note_change, note_deletion
from api.store.bodies import Body, PlanInput, body_of, forget_bodies, keep_body
from api.store.connection import Database
from api.store.keys import RequestKey, forget_key, keep_key, resource_of
from api.store.listing import listed
from api.store.tables import BEGUN_AGAIN, BODIES, COMPARISONS, NOTES, PLANS, POSTED, SNAPSHOTS, TAKEN_UP

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
    document: Body


_RECORD_COLUMNS = [PLANS.c[field.name] for field in fields(PlanRecord)]
_LIST_COLUMNS = [column for column in _RECORD_COLUMNS if column.name != "outcome"]


class Store(Database):
    """Plans, comparisons and snapshots; tables of other stores lie beside them."""

    def add_plan(
        self, record: PlanRecord, asked: PlanInput, posted_hash: str | None = None, notes: str | None = None
    ) -> None:
        """Insert a plan; `posted_hash` is that of the request if it differs, `notes` what is said of what was filled
        in."""
        values = {name: value for name, value in asdict(record).items() if name != "sequence"}
        with self.writing() as connection:
            note_change(connection, record.id)
            keep_body(connection, asked.snapshot)
            connection.execute(insert(PLANS).values(**values, request=asked.rest, snapshot_hash=asked.snapshot.hash))
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
            return note_deletion(connection, delete_plans(connection, [plan_id]))

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
        query = select(PLANS.c.request, *BODIES.c).join(BODIES, BODIES.c.hash == PLANS.c.snapshot_hash)
        with self.reading() as connection:
            row = connection.execute(query.where(PLANS.c.id == plan_id)).one_or_none()
        if row is None:
            return None
        return PlanInput(rest=row.request, snapshot=body_of(row)).text

    def plan_snapshot(self, plan_id: str) -> str | None:
        """Snapshot of a plan as JSON text, all filled in that it was planned with."""
        query = select(BODIES).join(PLANS, PLANS.c.snapshot_hash == BODIES.c.hash).where(PLANS.c.id == plan_id)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else body_of(row).text

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
                note_change(connection, record.id)
                keep_body(connection, record.document)
                values = {"id": record.id, "created_at_s": record.created_at_s, "body_hash": record.document.hash}
                connection.execute(insert(SNAPSHOTS).values(**values))
        return not known

    def snapshot(self, snapshot_id: str) -> SnapshotRecord | None:
        """One snapshot."""
        query = select(SNAPSHOTS.c.created_at_s, *BODIES.c).join(BODIES, BODIES.c.hash == SNAPSHOTS.c.body_hash)
        with self.reading() as connection:
            row = connection.execute(query.where(SNAPSHOTS.c.id == snapshot_id)).one_or_none()
        if row is None:
            return None
        return SnapshotRecord(id=snapshot_id, created_at_s=row.created_at_s, document=body_of(row))

    def resource_of(self, request: RequestKey | None) -> str | None:
        """Id of what came of the same request under the same key before; IdempotencyConflictError for another one."""
        if request is None:
            return None
        with self.reading() as connection:
            return resource_of(connection, request)

    def add_comparison(self, comparison_id: str, document: str, request: RequestKey | None = None) -> None:
        """Insert a comparison that is not final; `document` is JSON text."""
        with self.writing() as connection:
            note_change(connection, comparison_id)
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
            gone = connection.execute(delete(COMPARISONS).where(COMPARISONS.c.id == comparison_id)).rowcount
            return note_deletion(connection, gone)

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
            query = select(COMPARISONS.c.document).where(~COMPARISONS.c.final)
            return list(connection.scalars(query.order_by(COMPARISONS.c.sequence)))

    def _one_plan(self, condition: Any) -> PlanRecord | None:
        with self.reading() as connection:
            row = connection.execute(select(*_RECORD_COLUMNS).where(condition)).one_or_none()
        return None if row is None else _record(row._mapping)


def _record(row: Any) -> PlanRecord:
    return PlanRecord(**{**row, "status": PlanStatus(row["status"])})


def delete_plans(connection: Connection, ids: Sequence[str]) -> int:
    """Delete plans with all that is theirs; how many there were."""
    for table in (POSTED, NOTES, TAKEN_UP, BEGUN_AGAIN):
        connection.execute(delete(table).where(table.c.plan_id.in_(ids)))
    gone = connection.scalars(delete(PLANS).where(PLANS.c.id.in_(ids)).returning(PLANS.c.snapshot_hash)).all()
    forget_bodies(connection, gone)
    return len(gone)
