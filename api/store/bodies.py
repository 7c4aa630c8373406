"""Texts that are stored once however often they come: those of snapshots and clusters."""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from sqlalchemy import Connection, delete, exists, or_

from api.store.compressed import compressed
from api.store.dialects.statements import add_new
from api.store.tables import BODIES, CLUSTERS, PLANS, SNAPSHOTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A text that is stored once however often it comes. `hash`: SHA-256 of it; `data`: compressed with zlib."""

    hash: str
    num_bytes: int
    data: bytes

    @classmethod
    def of(cls, text: str) -> "Body":
        """Compress a text."""
        raw = text.encode()
        return cls(hash=hashlib.sha256(raw).hexdigest(), num_bytes=len(raw), data=compressed(raw))

    @property
    def text(self) -> str:
        """The text."""
        return zlib.decompress(self.data).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanInput:
    """The JSON text of a request for a plan: all other fields as an object, and behind them the `snapshot`, which is by
    far the largest part and often comes again."""

    rest: str
    snapshot: Body

    @property
    def text(self) -> str:
        """The whole request."""
        return f'{self.rest[:-1]},"snapshot":{self.snapshot.text}}}'


def keep_body(connection: Connection, body: Body) -> None:
    """Insert a text unless it is there."""
    add_new(connection, BODIES, asdict(body))


def body_of(row: Any) -> Body:
    """The text of a row that has all columns of the bodies."""
    return Body(hash=row.hash, num_bytes=row.num_bytes, data=row.data)


def forget_bodies(connection: Connection, hashes: Sequence[str]) -> None:
    """Delete those of these texts that nothing has any more."""
    users = (PLANS.c.snapshot_hash, SNAPSHOTS.c.body_hash, CLUSTERS.c.body_hash)
    is_used = or_(*(exists().where(column == BODIES.c.hash) for column in users))
    connection.execute(delete(BODIES).where(BODIES.c.hash.in_(hashes), ~is_used))
