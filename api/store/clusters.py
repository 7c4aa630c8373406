"""Clusters by the names that clients give them."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, update

from api.store.audit import note_change, note_deletion
from api.store.bodies import body_of, forget_bodies, keep_body
from api.store.connection import Database
from api.store.tables import BODIES, CLUSTERS
from api.store.texts import Body


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredCluster:
    """A cluster; `body`: its document as JSON text. `updated_at_s`: Unix time."""

    name: str
    version: int
    updated_at_s: float
    body: Body


class ClusterStore:
    """Clusters, each with the number of times that it was written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def cluster(self, name: str) -> StoredCluster | None:
        """One cluster."""
        found = self._found(name)
        return found[0] if found else None

    def page(self, limit: int, after: str | None) -> Sequence[StoredCluster]:
        """Clusters by name; only those behind `after`."""
        query = _QUERY.order_by(CLUSTERS.c.name).limit(limit)
        if after is not None:
            query = query.where(CLUSTERS.c.name > after)
        with self._database.reading() as connection:
            return [_stored(row) for row in connection.execute(query)]

    def put(self, name: str, body: Body, now_s: float, version: int | None) -> int | None:
        """Write a cluster; gives its version, None where it is not of the `version` that is asked for."""
        with self._database.writing() as connection:
            known = connection.execute(select(CLUSTERS).where(CLUSTERS.c.name == name)).one_or_none()
            if version is not None and version != (0 if known is None else known.version):
                return None
            note_change(connection)
            keep_body(connection, body)
            values = {"updated_at_s": now_s, "body_hash": body.hash}
            if known is None:
                connection.execute(insert(CLUSTERS).values(name=name, version=1, **values))
                return 1
            changed = update(CLUSTERS).where(CLUSTERS.c.name == name)
            connection.execute(changed.values(version=known.version + 1, **values))
            forget_bodies(connection, [known.body_hash])
            return int(known.version) + 1

    def delete(self, name: str) -> bool:
        """Delete a cluster; False when there is none."""
        gone = delete(CLUSTERS).where(CLUSTERS.c.name == name).returning(CLUSTERS.c.body_hash)
        with self._database.writing() as connection:
            hashes = connection.scalars(gone).all()
            forget_bodies(connection, hashes)
            return note_deletion(connection, len(hashes))

    def _found(self, name: str) -> list[StoredCluster]:
        with self._database.reading() as connection:
            return [_stored(row) for row in connection.execute(_QUERY.where(CLUSTERS.c.name == name))]


_QUERY = select(CLUSTERS.c.name, CLUSTERS.c.version, CLUSTERS.c.updated_at_s, *BODIES.c).join(
    BODIES, BODIES.c.hash == CLUSTERS.c.body_hash
)


def _stored(row: object) -> StoredCluster:
    return StoredCluster(name=row.name, version=row.version, updated_at_s=row.updated_at_s, body=body_of(row))  # type: ignore[attr-defined]
