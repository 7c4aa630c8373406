"""Plans, comparisons and snapshots. What is final survives a restart, and what is not has an owner."""

from collections.abc import Callable, Collection, Sequence
from contextvars import Context
from dataclasses import fields
from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from api.common.errors import IdempotencyConflictError, StoreUnavailableError
from api.schemas.plan import PlanStatus
from api.store.audit import note_change, note_deletion
from api.store.bodies import body_of, forget_bodies, keep_body
from api.store.connection import Database
from api.store.dialects.frequent import Frequent
from api.store.dialects.statements import add_new, tell
from api.store.keys import RequestKey, forget_key, keep_key, resource_of
from api.store.leases import (
    PLANS_LEASES,
    Others,
    end_lease,
    forget_lease,
    holds,
    is_left,
    is_waiting,
    lease,
    lease_turn,
    others,
    take_over,
    take_waiting,
)
from api.store.listing import listed
from api.store.records import LeftBehind, NewPlan, PlanNews, PlanRecord, SnapshotRecord
from api.store.tables import BODIES, COMPARISONS, LEASES, NOTES, PLAN_EVENTS, PLANS, POSTED, SNAPSHOTS
from api.store.texts import Body, PlanInput
from stowplan.errors import StowplanError

_ACTIVE = [status.value for status in PlanStatus if not status.final]
# What `finish_plan` takes.
PlanEnd = tuple[PlanRecord, str, int | None]

_RECORD_COLUMNS = [PLANS.c[field.name] for field in fields(PlanRecord)]
# Made once: SQLAlchemy takes as long to build a statement with its values in it as SQLite takes to carry it out.
_WRITTEN = [column.name for column in _RECORD_COLUMNS if column.name != "sequence"]
_INSERT, _INSERT_ENDED = Frequent(insert(PLANS)), Frequent(insert(PLANS))
# Of every plan that is told by changes, with a key.
_INSERT_POSTED = Frequent(insert(POSTED))
_FINISH = Frequent(update(PLANS).where(PLANS.c.id == bindparam("ended")))
_FORGET_EVENTS = Frequent(delete(PLAN_EVENTS).where(PLAN_EVENTS.c.plan_id == bindparam("ended")))
_ONE = select(*_RECORD_COLUMNS).where(PLANS.c.id == bindparam("wanted"))
_LIST_COLUMNS = [column for column in _RECORD_COLUMNS if column.name != "outcome"]


class Store(Database):
    """Plans, comparisons and snapshots; tables of other stores lie beside them."""

    def add_plan(
        self, record: PlanRecord, asked: PlanInput, posted_hash: str | None = None, notes: str | None = None
    ) -> None:
        """Insert one plan, whatever there is already; see `add_plans`."""
        with self.writing() as connection:
            self._insert_plan(connection, NewPlan(record=record, asked=asked, posted_hash=posted_hash, notes=notes))

    def add_plans(self, new: Sequence[NewPlan], admit: Callable[[int, Others], None]) -> list[str]:
        """Insert plans that nobody has asked for under their keys, all or none; the ids of all, known ones included.

        Parameters
        ----------
        admit
            Is told how many are new, and what else there is to do; may refuse, by raising.

        Raises
        ------
        IdempotencyConflictError
            When a key was used with another request.
        """
        with self.writing() as connection:
            return self._add_plans(connection, new, admit)

    def add_each(
        self, groups: Sequence[tuple[Sequence[NewPlan], Context]], admit: Callable[[int, Others], None]
    ) -> list[list[str] | Exception]:
        """Do what `add_plans` does for groups of plans, each as asked for in its context, and write all that is not
        refused at once: to wait for the disk takes as long for one as for many."""
        try:
            return self.write_together((), groups, admit)[1]
        except StoreUnavailableError as error:
            # To try them one by one would wait as often.
            return [error] * len(groups)
        except Exception as error:  # noqa: BLE001 - whoever asked gets it
            # What one of them holds may be why.
            return [error] if len(groups) == 1 else self._add_one_by_one(groups, admit)

    def finish_plans(self, ends: Sequence[PlanEnd]) -> list[bool]:
        """Do what `finish_plan` does for many, and write them at once."""
        with self.writing() as connection:
            return [self._finish_plan(connection, *end) for end in ends]

    def write_together(
        self,
        ends: Sequence[PlanEnd],
        groups: Sequence[tuple[Sequence[NewPlan], Context]],
        admit: Callable[[int, Others], None],
    ) -> tuple[list[bool], list[list[str] | Exception]]:
        """Do what `finish_plan` and `add_plans` do for many, and write all that is not refused at once; raises where
        the database does not take that."""
        found: list[list[str] | Exception] = []
        with self.writing() as connection:
            ended = [self._finish_plan(connection, *end) for end in ends]
            for new, context in groups:
                try:
                    found.append(context.run(self._add_plans, connection, new, admit))
                except StowplanError as error:
                    # Nothing of it has been inserted.
                    found.append(error)
        return ended, found

    def finish_plan(self, record: PlanRecord, events: str, epoch: int | None = None) -> bool:
        """Write the final state of a plan; False when this service does not have it (any more).

        Parameters
        ----------
        epoch
            Of its lease; None where nobody else can have taken it.
        """
        with self.writing() as connection:
            return self._finish_plan(connection, record, events, epoch)

    def tell_of_plans(self, news: Sequence[PlanNews]) -> None:
        """Write down what plans have told, of those that this service still has."""
        with self.writing() as connection:
            for plan in news:
                if not holds(connection, self, plan.plan_id, plan.epoch):
                    continue
                if plan.events:
                    rows = [
                        {"plan_id": plan.plan_id, "number": number, "event": event}
                        for number, event in plan.events.items()
                    ]
                    add_new(connection, PLAN_EVENTS, rows)
                state = {"building_at_s": plan.building_at_s, "solving_at_s": plan.solving_at_s}
                known = update(PLANS).where(PLANS.c.id == plan.plan_id)
                connection.execute(known.values(status=plan.status.value, **state))
                tell(connection, self.owner, plan.plan_id)

    def told_of_plan(self, plan_id: str, after: int) -> list[str]:
        """Events of a plan that is not final, as JSON text, above that id, as far as they are written."""
        query = select(PLAN_EVENTS.c.event).where(PLAN_EVENTS.c.plan_id == plan_id, PLAN_EVENTS.c.number > after)
        with self.reading() as connection:
            return list(connection.scalars(query.order_by(PLAN_EVENTS.c.number)))

    def delete_plan(self, plan_id: str) -> bool:
        """Delete a plan; False when there is none."""
        with self.writing() as connection:
            return note_deletion(connection, delete_plans(self, connection, [plan_id]))

    def plan(self, plan_id: str) -> PlanRecord | None:
        """One plan."""
        with self.reading() as connection:
            row = connection.execute(_ONE, {"wanted": plan_id}).one_or_none()
        return None if row is None else _record(row._mapping)

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

    def plan_snapshot(self, plan_id: str) -> Body | None:
        """Snapshot of a plan, all filled in that it was planned with."""
        query = select(BODIES).join(PLANS, PLANS.c.snapshot_hash == BODIES.c.hash).where(PLANS.c.id == plan_id)
        with self.reading() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else body_of(row)

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

    def take_up_plans(self, also: Collection[str] = ()) -> list[LeftBehind]:
        """Take plans that no living service has, and of its own those that it does not know (`also`); oldest first."""
        if not is_left(self, PLANS_LEASES, also):
            return []
        with self.writing() as connection:
            return self._taken(connection, take_over(connection, self, PLANS_LEASES, also))

    def take_waiting_plans(self, num_most: int) -> list[LeftBehind]:
        """Take plans that wait elsewhere, those first whose turn is next."""
        if not is_waiting(self):
            return []
        with self.writing() as connection:
            return self._taken(connection, take_waiting(connection, self, num_most))

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

    def add_comparison(
        self,
        comparison_id: str,
        document: str,
        request: RequestKey | None = None,
        admit: Callable[[Others], None] = lambda _: None,
    ) -> None:
        """Insert a comparison that is not final, unless `admit` refuses it; `document` is JSON text."""
        with self.writing() as connection:
            note_change(connection, comparison_id)
            keep_key(connection, request, comparison_id)
            lease_turn(connection, self, comparison_id, COMPARISONS.name, admit)
            connection.execute(insert(COMPARISONS).values(id=comparison_id, final=False, document=document))

    def finish_comparison(self, comparison_id: str, document: str, *, is_interrupted: bool) -> None:
        """Write the final state of a comparison; one that was interrupted loses its key."""
        known = COMPARISONS.c.id == comparison_id
        with self.writing() as connection:
            if not end_lease(connection, self, comparison_id):
                return
            if is_interrupted:
                forget_key(connection, comparison_id)
            connection.execute(update(COMPARISONS).where(known).values(final=True, document=document))

    def delete_comparison(self, comparison_id: str) -> bool:
        """Delete a comparison; False when there is none."""
        with self.writing() as connection:
            forget_key(connection, comparison_id)
            forget_lease(connection, comparison_id)
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

    def take_up_comparisons(self) -> list[str]:
        """Take comparisons that are not final and that no living service has; JSON text, oldest first."""
        if not is_left(self, COMPARISONS.name):
            return []
        with self.writing() as connection:
            ids = take_over(connection, self, COMPARISONS.name)
            query = select(COMPARISONS.c.document).where(COMPARISONS.c.id.in_(ids)).order_by(COMPARISONS.c.sequence)
            return list(connection.scalars(query)) if ids else []

    def _add_one_by_one(
        self, groups: Sequence[tuple[Sequence[NewPlan], Context]], admit: Callable[[int, Others], None]
    ) -> list[list[str] | Exception]:
        found: list[list[str] | Exception] = []
        for group in groups:
            found += self.add_each([group], admit)
            if isinstance(found[-1], StoreUnavailableError):
                return found + found[-1:] * (len(groups) - len(found))
        return found

    def _add_plans(
        self, connection: Connection, new: Sequence[NewPlan], admit: Callable[[int, Others], None]
    ) -> list[str]:
        known = [_known_plan(connection, plan) for plan in new]
        if None in known:
            admit(known.count(None), others(connection, self, PLANS_LEASES))
        for plan, id_ in zip(new, known, strict=True):
            if id_ is None:
                self._insert_plan(connection, plan)
        return [id_ or plan.record.id for plan, id_ in zip(new, known, strict=True)]

    def _finish_plan(self, connection: Connection, record: PlanRecord, events: str, epoch: int | None) -> bool:
        if not end_lease(connection, self, record.id, epoch):
            return False
        if self.is_shared:
            # Nobody else tells others what its plans do.
            _FORGET_EVENTS.change(connection, {"ended": record.id})
        return _FINISH.change(connection, {**_values(record), "ended": record.id, "events": events}) > 0

    def _insert_plan(self, connection: Connection, plan: NewPlan) -> None:
        record = plan.record
        note_change(connection, record.id)
        snapshot = plan.asked.snapshot
        keep_body(connection, snapshot)
        values = {**_values(record), "request": plan.asked.rest, "snapshot_hash": snapshot.hash}
        if plan.events is None:
            _INSERT.change(connection, values)
            lease(connection, self, record.id, PLANS_LEASES, client=plan.client, due_s=plan.due_s)
        else:
            _INSERT_ENDED.change(connection, {**values, "events": plan.events})
        if not self.is_shared:
            # Others would delete plans without a word.
            self.recent_snapshots.put(record.id, snapshot.name, 1)
        # Whoever asks again is known by the key alone.
        if record.idempotency_key is not None and plan.posted_hash not in (None, record.input_hash):
            _INSERT_POSTED.change(connection, {"plan_id": record.id, "input_hash": plan.posted_hash})
        if plan.notes is not None:
            connection.execute(insert(NOTES).values(plan_id=record.id, notes=plan.notes))

    def _taken(self, connection: Connection, ids: Sequence[str]) -> list[LeftBehind]:
        """Plans that were taken begin again, whatever their states were elsewhere."""
        if not ids:
            return []
        anew = {"status": PlanStatus.QUEUED.value, "building_at_s": None, "solving_at_s": None}
        active = PLANS.c.id.in_(ids) & PLANS.c.status.in_(_ACTIVE)
        connection.execute(update(PLANS).where(active).values(**anew))
        counts = (LEASES.c.times_taken_up, LEASES.c.times_begun_again, LEASES.c.epoch, LEASES.c.wants_end)
        query = select(*_RECORD_COLUMNS, *counts, LEASES.c.client).join(LEASES, LEASES.c.resource_id == PLANS.c.id)
        rows = connection.execute(query.where(active).order_by(PLANS.c.sequence)).all()
        return [
            LeftBehind(
                record=_record({column.name: row._mapping[column.name] for column in _RECORD_COLUMNS}),
                **{field.name: row._mapping[field.name] for field in fields(LeftBehind) if field.name != "record"},
            )
            for row in rows
        ]


def _values(record: PlanRecord) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _WRITTEN}


def _record(row: Any) -> PlanRecord:
    return PlanRecord(**{**row, "status": PlanStatus(row["status"])})


def _known_plan(connection: Connection, plan: NewPlan) -> str | None:
    """Id of the plan that was asked for under the same key; IdempotencyConflictError when it was another request."""
    if plan.record.idempotency_key is None:
        return None
    posted = func.coalesce(POSTED.c.input_hash, PLANS.c.input_hash)
    query = select(PLANS.c.id, posted.label("hash")).join(POSTED, POSTED.c.plan_id == PLANS.c.id, isouter=True)
    known = connection.execute(query.where(PLANS.c.idempotency_key == plan.record.idempotency_key)).one_or_none()
    if known is None:
        return None
    # Not what was filled in: that may have changed since.
    if known.hash != (plan.posted_hash or plan.record.input_hash):
        raise IdempotencyConflictError.of(known.id)
    return str(known.id)


def delete_plans(database: Database, connection: Connection, ids: Sequence[str]) -> int:
    """Delete plans with all that is theirs; how many there were."""
    database.recent_snapshots.clear()
    for table in (POSTED, NOTES, PLAN_EVENTS):
        connection.execute(delete(table).where(table.c.plan_id.in_(ids)))
    connection.execute(delete(LEASES).where(LEASES.c.resource_id.in_(ids)))
    gone = connection.scalars(delete(PLANS).where(PLANS.c.id.in_(ids)).returning(PLANS.c.snapshot_hash)).all()
    forget_bodies(connection, gone)
    return len(gone)
