"""What is old goes: plans, what was compared and replayed, events, measurements; and its space is given back."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

from sqlalchemy import Connection, Select, Table, delete, func, select, update

from api.common.errors import StoreError
from api.common.settings import Settings
from api.schemas.plan import PlanStatus
from api.store.bodies import forget_bodies
from api.store.connection import Database
from api.store.database import delete_plans
from api.store.deployments import delete_old_deployments, old_deployments
from api.store.dialects.statements import FieldText
from api.store.keys import forget_key
from api.store.tables import (
    AUDIT,
    COMPARISONS,
    PLANS,
    REPLAYS,
    RESERVATIONS,
    RESULTS,
    RUNS,
    SNAPSHOTS,
    STEPS,
    WHOLE_STEPS,
)

DAY_S = 86_400.0
# Rows of a transaction: whoever writes meanwhile waits for no more.
_BATCH = 200
_FINAL = [status.value for status in PlanStatus if status.final]
# Pages that are given back at a time.
_PAGES = 2_000
_EVERY_S = 3_600.0
_logger = logging.getLogger("stowplan.api.store.purge")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long, and how much, is kept. Ages are seconds since a thing was final, or was written last.

    `age_s`: plans, comparisons, replays, stored snapshots, and reservations that are over. `num_plans`: of final plans
    the newest so many. `events_age_s`: what the solves of plans have told on their way. `metrics_age_s`: launches of
    jobs with their steps; `num_steps`: of a launch the newest so many. `audit_age_s`: entries of the audit log.
    `deployments_age_s`: what was told of deployments that no service looks after.
    """

    age_s: float
    num_plans: int
    events_age_s: float
    metrics_age_s: float
    num_steps: int
    audit_age_s: float
    deployments_age_s: float

    @classmethod
    def of(cls, settings: Settings) -> "Retention":
        """As a service is set to."""
        return cls(
            age_s=settings.keep_days * DAY_S,
            num_plans=settings.keep_plans,
            events_age_s=settings.keep_events_days * DAY_S,
            metrics_age_s=settings.keep_metrics_days * DAY_S,
            num_steps=settings.keep_steps,
            audit_age_s=settings.keep_audit_days * DAY_S,
            deployments_age_s=settings.keep_deployments_days * DAY_S or math.inf,
        )


@dataclass(slots=True, kw_only=True)
class Purged:
    """How many of each went."""

    plans: int = 0
    comparisons: int = 0
    replays: int = 0
    snapshots: int = 0
    reservations: int = 0
    event_logs: int = 0
    launches: int = 0
    steps: int = 0
    audit_entries: int = 0
    told_deployments: int = 0

    @property
    def told(self) -> str:
        """In words."""
        gone = [f"{getattr(self, field.name)} {field.name.replace('_', ' ')}" for field in fields(self)]
        return f"deleted: {', '.join(each for each in gone if not each.startswith('0 ')) or 'nothing'}"

    @property
    def total(self) -> int:
        """Of all kinds."""
        return sum(getattr(self, field.name) for field in fields(self))


def purge(database: Database, keep: Retention, now_s: float, stopping: Callable[[], bool] = lambda: False) -> Purged:
    """Delete what is older than it is kept, a few rows a transaction, until nothing is left or `stopping`.

    What is not final stays, whatever its age, but for deployments that no service looks after; and so do calendars,
    calibrations and forecasters, which have names.
    """
    purged = Purged()
    before_s, told_before_s = now_s - keep.age_s, now_s - keep.deployments_age_s
    parts: tuple[tuple[str, Select[Any], Callable[[Connection, Sequence[Any]], int]], ...] = (
        ("plans", _older_plans(before_s), partial(delete_plans, database)),
        ("plans", _surplus_plans(keep.num_plans), partial(delete_plans, database)),
        ("comparisons", _older(COMPARISONS, before_s), partial(_delete_documents, COMPARISONS)),
        ("replays", _older(REPLAYS, before_s), partial(_delete_documents, REPLAYS)),
        ("snapshots", _older_snapshots(before_s), _delete_snapshots),
        ("reservations", _older_reservations(before_s), partial(_delete_documents, RESERVATIONS)),
        ("event_logs", _older_events(now_s - keep.events_age_s), _delete_events),
        ("launches", _older_launches(now_s - keep.metrics_age_s), _delete_launches),
        ("steps", _surplus_steps(STEPS, keep.num_steps), partial(_delete_steps, STEPS)),
        ("steps", _surplus_steps(WHOLE_STEPS, keep.num_steps), partial(_delete_steps, WHOLE_STEPS)),
        ("audit_entries", _older_entries(now_s - keep.audit_age_s), _delete_entries),
        (
            "told_deployments",
            old_deployments(told_before_s).limit(_BATCH),
            partial(delete_old_deployments, told_before_s),
        ),
    )
    for name, old, delete_some in parts:
        while not stopping():
            # Nobody waits while it looks for them: what is final stays so, and of deployments it is looked at again.
            with database.reading() as connection:
                found = [tuple(row) if len(row) > 1 else row[0] for row in connection.execute(old)]
            if not found:
                break
            with database.writing() as connection:
                setattr(purged, name, getattr(purged, name) + delete_some(connection, found))
    if purged.total:
        return_pages(database, stopping)
    return purged


def return_pages(database: Database, stopping: Callable[[], bool] = lambda: False) -> None:
    """Give pages that nothing is in back to the disk, a few at a time."""
    while not stopping() and database.return_pages(_PAGES):
        pass


def _older_plans(before_s: float) -> Select[Any]:
    return select(PLANS.c.id).where(PLANS.c.finished_at_s < before_s, PLANS.c.status.in_(_FINAL)).limit(_BATCH)


def _surplus_plans(num_plans: int) -> Select[Any]:
    """Final plans behind the newest ones."""
    final = PLANS.c.status.in_(_FINAL)
    last = select(PLANS.c.sequence).where(final).order_by(PLANS.c.sequence.desc()).offset(num_plans).limit(1)
    return select(PLANS.c.id).where(final, PLANS.c.sequence <= last.scalar_subquery()).limit(_BATCH)


def _older(table: Table, before_s: float) -> Select[Any]:
    # Times in documents are ISO 8601 in UTC with a Z, of which texts compare as times do.
    finished = FieldText(table.c.document, "times", "finished")
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(before_s))
    return select(table.c.id).where(table.c.final, finished < before).limit(_BATCH)


def _older_snapshots(before_s: float) -> Select[Any]:
    return select(SNAPSHOTS.c.id).where(SNAPSHOTS.c.created_at_s < before_s).limit(_BATCH)


def _older_reservations(before_s: float) -> Select[Any]:
    return select(RESERVATIONS.c.id).where(RESERVATIONS.c.until_s < before_s).limit(_BATCH)


def _older_events(before_s: float) -> Select[Any]:
    return _older_plans(before_s).where(PLANS.c.events.is_not(None))


def _older_launches(before_s: float) -> Select[Any]:
    # One at a time: each may have millions of steps.
    return select(RUNS.c.id).where(RUNS.c.until_s < before_s).limit(1)


def _surplus_steps(table: Table, num_steps: int) -> Select[Any]:
    """A launch that has more, and the last step that is too old."""
    last, first = (
        select(end(table.c.step)).where(table.c.run == RUNS.c.id).scalar_subquery() for end in (func.max, func.min)
    )
    return select(RUNS.c.id, last - num_steps).where(last - first >= num_steps).limit(1)


def _older_entries(before_s: float) -> Select[Any]:
    return select(AUDIT.c.sequence).where(AUDIT.c.at_s < before_s).limit(_BATCH)


def _delete_documents(table: Table, connection: Connection, ids: Sequence[Any]) -> int:
    for id_ in ids:
        forget_key(connection, id_)
    if table is REPLAYS:
        connection.execute(delete(RESULTS).where(RESULTS.c.replays_id.in_(ids)))
    return connection.execute(delete(table).where(table.c.id.in_(ids))).rowcount


def _delete_snapshots(connection: Connection, ids: Sequence[Any]) -> int:
    gone = connection.scalars(delete(SNAPSHOTS).where(SNAPSHOTS.c.id.in_(ids)).returning(SNAPSHOTS.c.body_hash)).all()
    forget_bodies(connection, gone)
    return len(gone)


def _delete_events(connection: Connection, ids: Sequence[Any]) -> int:
    return connection.execute(update(PLANS).where(PLANS.c.id.in_(ids)).values(events=None)).rowcount


def _delete_launches(connection: Connection, runs: Sequence[Any]) -> int:
    for table in (STEPS, WHOLE_STEPS):
        connection.execute(delete(table).where(table.c.run.in_(runs)))
    return connection.execute(delete(RUNS).where(RUNS.c.id.in_(runs))).rowcount


def _delete_steps(table: Table, connection: Connection, found: Sequence[Any]) -> int:
    [(run, last)] = found
    gone = connection.execute(delete(table).where(table.c.run == run, table.c.step <= last)).rowcount
    kept = {"num_records": RUNS.c.num_records - gone, "first_step": last + 1}
    connection.execute(update(RUNS).where(RUNS.c.id == run).values(**kept))
    return gone


def _delete_entries(connection: Connection, sequences: Sequence[Any]) -> int:
    return connection.execute(delete(AUDIT).where(AUDIT.c.sequence.in_(sequences))).rowcount


class Purging:
    """Purges at start and every hour, in a thread of its own, until closed."""

    def __init__(self, database: Database, keep: Retention, and_then: Callable[[], None]) -> None:
        """`and_then` is called behind every purge, for what lies elsewhere."""
        self._database, self._keep, self._and_then = database, keep, and_then
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="purge", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """Stop behind the transaction that is under way."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                purged = purge(self._database, self._keep, time.time(), self._closing.is_set)
                if purged.total:
                    _logger.info("purged what is older than it is kept; %s", purged.told)
                self._and_then()
            except (StoreError, OSError):
                # What is kept too long does no harm until the next round.
                _logger.exception("nothing more is purged before %.0f s", _EVERY_S)
            self._closing.wait(_EVERY_S)
