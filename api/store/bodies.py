"""Texts that are stored once however often they come: those of snapshots and clusters."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, exists, or_

from api.store.dialects.statements import add_new
from api.store.tables import BODIES, CLUSTERS, PLANS, SNAPSHOTS
from api.store.texts import Body


def keep_body(connection: Connection, body: Body) -> None:
    """Insert a text unless it is there."""
    add_new(connection, BODIES, {"hash": body.hash, "num_bytes": body.num_bytes, "data": body.data})


def body_of(row: Any) -> Body:
    """The text of a row that has all columns of the bodies."""
    return Body(hash=row.hash, num_bytes=row.num_bytes, data=row.data)


def forget_bodies(connection: Connection, hashes: Sequence[str]) -> None:
    """Delete those of these texts that nothing has any more."""
    users = (PLANS.c.snapshot_hash, SNAPSHOTS.c.body_hash, CLUSTERS.c.body_hash)
    is_used = or_(*(exists().where(column == BODIES.c.hash) for column in users))
    connection.execute(delete(BODIES).where(BODIES.c.hash.in_(hashes), ~is_used))
