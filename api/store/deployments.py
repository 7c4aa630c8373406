"""Deployments as services on one database have told one another of them.

A deployment is processes and files on its machines: what is true of it stands in its folder, which some service looks
after. Here is what that one has told last and, as a lease, that it is not over and which service has it. A service that
is gone leaves its leases, which services of the same folder take: nobody else could go on.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, delete, exists, insert, select, update

from api.store.connection import Database
from api.store.dialects.statements import FieldText, Now, add_new
from api.store.leases import forget_lease, lease, living
from api.store.tables import DEPLOYMENTS, LEASES

_BEING_STARTED = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldDeployment:
    """One deployment. `holders` and `document` are JSON text; for the rest see `DEPLOYMENTS`."""

    id: str
    place: str
    host: str
    job_id: str
    started_at_s: float
    holders: str
    document: str = _BEING_STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownDeployment:
    """What is known of one: `is_over`, or else whether a service that lives `is_there`, and its end is wanted."""

    told: ToldDeployment
    is_over: bool
    is_there: bool
    wants_end: bool


class DeploymentStore:
    """Deployments beside the tables of `Store`, in the same database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def claim(self, new: ToldDeployment, refuse: Callable[[Sequence[KnownDeployment]], None]) -> None:
        """Have a deployment that is about to be started, or to change, unless `refuse` raises.

        Parameters
        ----------
        refuse
            Is told which others are not over. Those whose service is gone and whose end is wanted are not among them.
        """
        with self._database.writing() as connection:
            _forget_unstarted(connection, self._database)
            others = _known(connection, _QUERY.where(LEASES.c.owner.is_not(None), DEPLOYMENTS.c.id != new.id))
            refuse([each for each in others if each.is_there or not each.wants_end])
            changed = update(DEPLOYMENTS).where(DEPLOYMENTS.c.id == new.id).values(holders=new.holders)
            if not connection.execute(changed).rowcount:
                connection.execute(insert(DEPLOYMENTS).values(**asdict(new), told_at_s=Now()))
            _have(connection, self._database, new.id)

    def tell(self, told: ToldDeployment, *, is_over: bool) -> bool:
        """Write what is known of a deployment; False where another service that lives looks after it."""
        with self._database.writing() as connection:
            if is_over:
                forget_lease(connection, told.id)
            elif not _have(connection, self._database, told.id):
                return False
            values = {**asdict(told), "told_at_s": connection.scalar(select(Now()))}
            if not add_new(connection, DEPLOYMENTS, values):
                connection.execute(update(DEPLOYMENTS).where(DEPLOYMENTS.c.id == told.id).values(**values))
        return True

    def forget(self, ids: Collection[str]) -> None:
        """Delete what there is no folder of."""
        with self._database.writing() as connection:
            for id_ in ids:
                _delete(connection, id_)

    def ids(self, place: str) -> list[str]:
        """Those of a folder that are not just being started."""
        started = DEPLOYMENTS.c.document != _BEING_STARTED
        with self._database.reading() as connection:
            return list(connection.scalars(select(DEPLOYMENTS.c.id).where(DEPLOYMENTS.c.place == place, started)))

    def known(self, id_: str) -> KnownDeployment | None:
        """One of them."""
        with self._database.reading() as connection:
            return next(iter(_known(connection, _SHOWN.where(DEPLOYMENTS.c.id == id_))), None)

    def elsewhere(self, place: str | None) -> list[KnownDeployment]:
        """All that lie in other folders than this one, from the newest to the oldest."""
        query = _SHOWN if place is None else _SHOWN.where(DEPLOYMENTS.c.place != place)
        with self._database.reading() as connection:
            return _known(connection, query.order_by(DEPLOYMENTS.c.started_at_s.desc(), DEPLOYMENTS.c.id))

    def newest(self, job_id: str, field: str) -> str | None:
        """The newest value of a field of documents of a job that is not null, as JSON text."""
        value = FieldText(DEPLOYMENTS.c.document, field)
        query = select(value).where(DEPLOYMENTS.c.job_id == job_id, DEPLOYMENTS.c.document != _BEING_STARTED)
        with self._database.reading() as connection:
            found = connection.scalars(query.order_by(DEPLOYMENTS.c.started_at_s.desc()))
            return next((str(each) for each in found if each is not None), None)


_QUERY = (
    select(DEPLOYMENTS, LEASES.c.owner, LEASES.c.wants_end, LEASES.c.owner.in_(living()).label("is_there"))
    .select_from(DEPLOYMENTS)
    .join(LEASES, LEASES.c.resource_id == DEPLOYMENTS.c.id, isouter=True)
)
_SHOWN = _QUERY.where(DEPLOYMENTS.c.document != _BEING_STARTED)


def _known(connection: Connection, query: Select[Any]) -> list[KnownDeployment]:
    return [
        KnownDeployment(
            told=ToldDeployment(**{field.name: row._mapping[field.name] for field in fields(ToldDeployment)}),
            is_over=row.owner is None,
            is_there=bool(row.is_there),
            wants_end=bool(row.wants_end),
        )
        for row in connection.execute(query)
    ]


def old_deployments(before_s: float) -> Select[Any]:
    """Ids of those that no service that lives looks after, and of which none has told anything since `before_s`."""
    return select(DEPLOYMENTS.c.id).where(*_are_old(before_s))


def delete_old_deployments(before_s: float, connection: Connection, ids: Sequence[str]) -> int:
    """Delete those of `ids` that are old still: a service may have come back to its folder; how many these were."""
    old = delete(DEPLOYMENTS).where(DEPLOYMENTS.c.id.in_(ids), *_are_old(before_s)).returning(DEPLOYMENTS.c.id)
    gone = connection.scalars(old).all()
    for id_ in gone:
        forget_lease(connection, id_)
    return len(gone)


def _are_old(before_s: float) -> tuple[ColumnElement[bool], ...]:
    is_looked_after = exists().where(LEASES.c.resource_id == DEPLOYMENTS.c.id, LEASES.c.owner.in_(living()))
    return DEPLOYMENTS.c.told_at_s < before_s, ~is_looked_after


def _have(connection: Connection, database: Database, id_: str) -> bool:
    """Take or keep the lease of a deployment; False where another service that lives has it."""
    mine = LEASES.c.resource_id == id_
    owner = connection.scalar(select(LEASES.c.owner).where(mine))
    if owner is None:
        lease(connection, database, id_, DEPLOYMENTS.name)
    elif owner != database.owner:
        values = {"owner": database.owner, "epoch": LEASES.c.epoch + 1}
        gone = LEASES.c.owner.not_in(living())
        return connection.execute(update(LEASES).where(mine, gone).values(**values)).rowcount > 0
    return True


def _forget_unstarted(connection: Connection, database: Database) -> None:
    """Forget deployments whose services were gone before they could say that they had started them."""
    gone = (LEASES.c.owner != database.owner) & LEASES.c.owner.not_in(living())
    query = select(DEPLOYMENTS.c.id).join(LEASES, LEASES.c.resource_id == DEPLOYMENTS.c.id)
    for id_ in connection.scalars(query.where(DEPLOYMENTS.c.document == _BEING_STARTED, gone)).all():
        _delete(connection, id_)


def _delete(connection: Connection, id_: str) -> None:
    forget_lease(connection, id_)
    connection.execute(delete(DEPLOYMENTS).where(DEPLOYMENTS.c.id == id_))
