"""Snapshots that are stored once and planned often."""

import time

from api.common.errors import NotFoundError
from api.common.times import time_of
from api.schemas.service import SnapshotLinksDoc, SnapshotReceiptDoc
from api.schemas.snapshot import PlannedSnapshotReference, SnapshotDoc, SnapshotReference
from api.store.database import Store
from api.store.records import SnapshotRecord
from api.store.resolved import LegalSnapshot, ResolvedSnapshot, resolved
from api.store.texts import Body, BodyName

# How a document begins that refers to a snapshot.
_REFERENCE = '{"snapshot_id":'
_LONGEST_REFERENCE = 1024


class Snapshots:
    """The stored snapshots, by the hash of their content."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, new: LegalSnapshot) -> tuple[SnapshotReceiptDoc, bool]:
        """Store a snapshot; the second value is False when it was there before."""
        created = self._store.add_snapshot(SnapshotRecord(id=new.id, created_at_s=time.time(), document=new.body))
        receipt = SnapshotReceiptDoc(
            id=new.id,
            created_at=time_of(self._record(new.id).created_at_s),
            num_nodes=new.num_nodes,
            num_gpus=new.num_gpus,
            num_jobs=new.num_jobs,
            links=SnapshotLinksDoc(self=f"/v1/snapshots/{new.id}"),
        )
        return receipt, created

    def text(self, id_: str) -> str:
        """One snapshot as JSON text.

        Raises
        ------
        NotFoundError
            When there is none.
        """
        return self._record(id_).document.text

    def find(self, id_: str) -> str | None:
        """One snapshot as JSON text, by its id or by that of a plan that was made of it; None when there is none."""
        body = self.find_body(id_)
        return None if body is None else body.text

    def find_body(self, id_: str) -> Body | None:
        """The same as it is stored."""
        record = self._store.snapshot(id_)
        if record is not None:
            return record.document
        body = self._store.plan_snapshot(id_)
        # Plans of schema 0001 may have kept what they were asked with: the id of a stored snapshot.
        if body is not None and body.num_bytes <= _LONGEST_REFERENCE and body.text.startswith(_REFERENCE):
            return self.find_body(PlannedSnapshotReference.model_validate_json(body.text).snapshot_id)
        return body

    def recent(self, plan_id: str) -> BodyName | None:
        """Which text is the snapshot of a plan, where that is known without a look at the database."""
        return self._store.recent_snapshots.get(plan_id)

    def resolve(self, source: SnapshotDoc | SnapshotReference) -> ResolvedSnapshot:
        """Give the snapshot that a request brings or refers to; raises what `resolved` does."""
        return resolved(source, self.find)

    def _record(self, id_: str) -> SnapshotRecord:
        record = self._store.snapshot(id_)
        if record is None:
            raise NotFoundError(f"there is no snapshot {id_!r}")
        return record
