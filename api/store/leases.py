"""Leases: which service has what is not final, and which services live.

A row of `LEASES` stands for each thing that is not final, with its owner and an epoch that grows whenever another owner
takes it. Whoever writes its end deletes that row first, and only where it is still the owner of that epoch, in one
transaction: an end is written once. All times are those of the database's clock.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, bindparam, delete, exists, func, insert, select, update

from api.common.asking import caller_now
from api.store.connection import Database
from api.store.dialects.frequent import Frequent
from api.store.dialects.statements import Now, tell
from api.store.tables import INSTANCES, LEASES

# How long a service is believed to live that has not been heard of.
SILENT_S = 10.0
# How long a plan waits where it was accepted before a service with nothing to do takes it.
_PATIENCE_S = 1.0
PLANS_LEASES = "plans"
# What services tell one another beside ids: look for what belongs to nobody.
LOOK = ""
_NOBODY = ""
# Of every plan, and so made once.
_INSERT = Frequent(insert(LEASES).values(since_s=Now()))
_HELD = delete(LEASES).where(LEASES.c.resource_id == bindparam("ended"), LEASES.c.owner == bindparam("holder"))
_END, _END_OF_EPOCH = Frequent(_HELD), Frequent(_HELD.where(LEASES.c.epoch == bindparam("since")))
_LIVES = INSTANCES.c.seen_at_s > Now() - SILENT_S
_SERVICES = select(func.count(), func.coalesce(func.sum(INSTANCES.c.room), 0)).where(_LIVES)
_CLIENTS = Frequent(
    select(LEASES.c.client, func.count()).where(LEASES.c.collection == bindparam("of")).group_by(LEASES.c.client)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """What this service has."""

    epoch: int
    wants_end: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """All services that live, this one included, as far as the database knows any: for how many plans they have room;
    what of one collection runs or waits, by client."""

    num_services: int
    room: int
    active: Counter[str | None]


def lease(
    connection: Connection,
    database: Database,
    resource_id: str,
    collection: str,
    *,
    client: str | None = None,
    due_s: float | None = None,
) -> None:
    """Have something new, in the transaction that writes it."""
    values = {"resource_id": resource_id, "collection": collection, "owner": database.owner, "epoch": 1}
    counts = {"times_taken_up": 0, "times_begun_again": 0}
    flags = {"wants_end": False, "is_begun": False}
    known = {**values, **counts, **flags, "client": client, "due_s": due_s}
    _INSERT.change(connection, known)


def lease_turn(
    connection: Connection, database: Database, resource_id: str, collection: str, admit: Callable[[Others], None]
) -> None:
    """Have something new that waits for its turn here, for the client that asks; `admit` may refuse it, by raising."""
    admit(others(connection, database, collection))
    lease(connection, database, resource_id, collection, client=caller_now().client)


def end_lease(connection: Connection, database: Database, resource_id: str, epoch: int | None = None) -> bool:
    """Give back what ends in this transaction; False where this service does not have it (any more).

    Parameters
    ----------
    epoch
        Since when it has it; None where that cannot have changed.
    """
    held = {"ended": resource_id, "holder": database.owner}
    if epoch is None:
        ended = _END.change(connection, held) > 0
    else:
        ended = _END_OF_EPOCH.change(connection, {**held, "since": epoch}) > 0
    if ended:
        tell(connection, database.owner, resource_id)
    return ended


def forget_lease(connection: Connection, resource_id: str) -> None:
    """Nobody has any more what is deleted."""
    connection.execute(delete(LEASES).where(LEASES.c.resource_id == resource_id))


def holds(connection: Connection, database: Database, resource_id: str, epoch: int) -> bool:
    """Whether this service has it since that epoch."""
    held = (LEASES.c.resource_id == resource_id) & (LEASES.c.owner == database.owner) & (LEASES.c.epoch == epoch)
    return bool(connection.scalar(select(exists().where(held))))


def take_over(connection: Connection, database: Database, collection: str, also: Collection[str] = ()) -> list[str]:
    """Take what belongs to no service that lives, and of its own what it does not know (`also`); their ids.

    Where a service is alone with its database, nobody else lives.
    """
    wanted = _left(database, collection, also)
    return _take(connection, database, wanted, times_taken_up=LEASES.c.times_taken_up + 1)


def take_waiting(connection: Connection, database: Database, num_most: int) -> list[str]:
    """Take plans that wait elsewhere and whose turn is next; their ids."""
    turns = select(LEASES.c.resource_id).where(*_waiting(database)).order_by(LEASES.c.due_s, LEASES.c.resource_id)
    ids = connection.scalars(turns.limit(num_most)).all()
    return _take(connection, database, (LEASES.c.resource_id.in_(ids),)) if ids else []


def is_left(database: Database, collection: str, also: Collection[str] = ()) -> bool:
    """Whether there is anything for `take_over`; to ask keeps nobody from writing."""
    return _is_any(database, _left(database, collection, also))


def is_waiting(database: Database) -> bool:
    """Whether there is anything for `take_waiting`; to ask keeps nobody from writing."""
    return _is_any(database, _waiting(database))


def _left(database: Database, collection: str, also: Collection[str]) -> Sequence[Any]:
    left = LEASES.c.owner.not_in(living()) & (LEASES.c.owner != database.owner)
    return LEASES.c.collection == collection, left | LEASES.c.resource_id.in_(also)


def _waiting(database: Database) -> Sequence[Any]:
    waits = (LEASES.c.owner != database.owner) & (LEASES.c.owner != _NOBODY) & ~LEASES.c.is_begun
    return LEASES.c.collection == PLANS_LEASES, waits, LEASES.c.since_s < Now() - _PATIENCE_S


def _is_any(database: Database, wanted: Sequence[Any]) -> bool:
    with database.reading() as connection:
        return bool(connection.scalar(select(exists().where(*wanted))))


def _take(connection: Connection, database: Database, wanted: Sequence[Any], **counts: Any) -> list[str]:
    values = {"owner": database.owner, "epoch": LEASES.c.epoch + 1, "is_begun": False, "since_s": Now(), **counts}
    taken = connection.scalars(update(LEASES).where(*wanted).values(**values).returning(LEASES.c.resource_id)).all()
    for resource_id in taken:
        tell(connection, database.owner, resource_id)
    return list(taken)


class Leases:
    """What one service has, and what it hears of others."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def held(self) -> dict[str, Lease]:
        """All that this service has, by id."""
        query = select(LEASES.c.resource_id, LEASES.c.epoch, LEASES.c.wants_end)
        with self._database.reading() as connection:
            rows = connection.execute(query.where(LEASES.c.owner == self._database.owner)).all()
        return {row.resource_id: Lease(epoch=row.epoch, wants_end=row.wants_end) for row in rows}

    def num_living(self) -> int:
        """How many services live that use the database."""
        with self._database.reading() as connection:
            return connection.scalar(select(func.count()).select_from(INSTANCES).where(_LIVES)) or 0

    def ask_end(self, resource_id: str) -> bool:
        """Ask the service that has it to end it; False where nobody else has."""
        known = (LEASES.c.resource_id == resource_id) & (LEASES.c.owner != self._database.owner)
        with self._database.writing() as connection:
            asked = connection.execute(update(LEASES).where(known).values(wants_end=True)).rowcount > 0
            if asked:
                tell(connection, self._database.owner, resource_id)
        return asked

    def begin(self, plan_id: str, epoch: int, times_begun_again: int) -> bool:
        """Write down that a worker begins with a plan; False where this service has it no longer."""
        held = (LEASES.c.resource_id == plan_id) & (LEASES.c.owner == self._database.owner) & (LEASES.c.epoch == epoch)
        values = {"is_begun": True, "times_begun_again": times_begun_again}
        with self._database.writing() as connection:
            return connection.execute(update(LEASES).where(held).values(**values)).rowcount > 0

    def let_go(self) -> None:
        """This service ends in good order: what it leaves unfinished did not break it, and is anybody's."""
        mine = LEASES.c.owner == self._database.owner
        values = {"owner": _NOBODY, "times_taken_up": 0, "times_begun_again": 0, "is_begun": False}
        with self._database.writing() as connection:
            connection.execute(update(LEASES).where(mine).values(**values))
            connection.execute(delete(INSTANCES).where(INSTANCES.c.id == self._database.owner))
            tell(connection, self._database.owner, LOOK)


def living() -> Select[Any]:
    """Ids of all services that live."""
    return select(INSTANCES.c.id).where(_LIVES)


def live(connection: Connection, database: Database, room: int) -> None:
    """Say that this service lives; forget those that have been silent for long."""
    here = INSTANCES.c.id == database.owner
    if not connection.execute(update(INSTANCES).where(here).values(seen_at_s=Now(), room=room)).rowcount:
        connection.execute(insert(INSTANCES).values(id=database.owner, seen_at_s=Now(), room=room))
        connection.execute(delete(INSTANCES).where(INSTANCES.c.seen_at_s < Now() - 10 * SILENT_S))


def others(connection: Connection, database: Database, collection: str) -> Others:
    """All services that live, and what of a collection they have to do."""
    active: Counter[str | None] = Counter()
    for client, count in _CLIENTS.rows(connection, {"of": collection}):
        active[client] = count
    # A service that is alone with its database says nothing of itself.
    num_services, room = connection.execute(_SERVICES).one() if database.is_shared else (0, 0)
    return Others(num_services=num_services, room=room, active=active)
