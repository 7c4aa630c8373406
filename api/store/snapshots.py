"""Snapshots that are stored once and planned often."""

import time
from dataclasses import dataclass

from api.common.errors import NotFoundError
from api.common.times import time_of
from api.convert.hashing import snapshot_id
from api.convert.located import located
from api.convert.snapshot import snapshot_from_document
from api.schemas.service import SnapshotLinksDoc, SnapshotReceiptDoc
from api.schemas.snapshot import SNAPSHOT, SnapshotDoc, SnapshotReference
from api.store.database import SnapshotRecord, Store
from models.workload import Snapshot
from stowplan.errors import InputError, Issue


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSnapshot:
    """A snapshot, the id of its content, and the JSON text of the document that named it."""

    snapshot: Snapshot
    id: str
    text: str


class Snapshots:
    """The stored snapshots, by the hash of their content."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, document: SnapshotDoc) -> tuple[SnapshotReceiptDoc, bool]:
        """Store a snapshot; the second value is False when it was there before.

        Raises
        ------
        InputError
            When it is no legal snapshot.
        """
        snapshot_from_document(document)
        text = document.model_dump_json()
        id_ = snapshot_id(text)
        created = self._store.add_snapshot(SnapshotRecord(id=id_, created_at_s=time.time(), document=text))
        receipt = SnapshotReceiptDoc(
            id=id_,
            created_at=time_of(self._record(id_).created_at_s),
            num_nodes=len(document.cluster.nodes),
            num_gpus=sum(node.num_gpus for node in document.cluster.nodes),
            num_jobs=len(document.jobs),
            links=SnapshotLinksDoc(self=f"/v1/snapshots/{id_}"),
        )
        return receipt, created

    def text(self, id_: str) -> str:
        """One snapshot as JSON text.

        Raises
        ------
        NotFoundError
            When there is none.
        """
        return self._record(id_).document

    def resolve(self, source: SnapshotDoc | SnapshotReference) -> ResolvedSnapshot:
        """Give the snapshot that a request brings or refers to.

        Raises
        ------
        InputError
            When it is wrong or not known; pointers are relative to the request.
        """
        text = source.model_dump_json()
        with located("/snapshot"):
            if isinstance(source, SnapshotReference):
                return ResolvedSnapshot(snapshot=self._stored(source.snapshot_id), id=source.snapshot_id, text=text)
            return ResolvedSnapshot(snapshot=snapshot_from_document(source), id=snapshot_id(text), text=text)

    def document(self, source: SnapshotDoc | SnapshotReference) -> SnapshotDoc:
        """Give the document of a snapshot that `resolve` has found."""
        return self._document(source.snapshot_id) if isinstance(source, SnapshotReference) else source

    def _stored(self, id_: str) -> Snapshot:
        return snapshot_from_document(self._document(id_))

    def _document(self, id_: str) -> SnapshotDoc:
        record = self._store.snapshot(id_)
        if record is None:
            detail = f"there is no snapshot {id_!r}; post it to /v1/snapshots first"
            raise InputError(detail, [Issue(code="unknown_snapshot", pointer="/snapshot_id", detail=detail)])
        return SNAPSHOT.validate_json(record.document)

    def _record(self, id_: str) -> SnapshotRecord:
        record = self._store.snapshot(id_)
        if record is None:
            raise NotFoundError(f"there is no snapshot {id_!r}")
        return record
