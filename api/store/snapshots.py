"""Snapshots that are stored once and planned often."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from api.common.errors import NotFoundError
from api.common.times import time_of
from api.convert.hashing import snapshot_id
from api.convert.located import located
from api.convert.snapshot import snapshot_from_document
from api.schemas.service import SnapshotLinksDoc, SnapshotReceiptDoc
from api.schemas.snapshot import SNAPSHOT, PlannedSnapshotReference, SnapshotDoc, SnapshotReference
from api.store.database import SnapshotRecord, Store
from api.store.texts import Body
from models.workload import Snapshot
from stowplan.errors import InputError, Issue

# How a document begins that refers to a snapshot.
_REFERENCE = '{"snapshot_id":'
_LONGEST_REFERENCE = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedSnapshot:
    """A snapshot, the id of its content, and its document as JSON text."""

    snapshot: Snapshot
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LegalSnapshot:
    """A snapshot that was checked: its document with defaults filled in, the id of that, and its size."""

    id: str
    body: Body
    num_nodes: int
    num_gpus: int
    num_jobs: int


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

    def resolve(self, source: SnapshotDoc | SnapshotReference) -> ResolvedSnapshot:
        """Give the snapshot that a request brings or refers to; raises what `resolved` does."""
        return resolved(source, self.find)

    def _record(self, id_: str) -> SnapshotRecord:
        record = self._store.snapshot(id_)
        if record is None:
            raise NotFoundError(f"there is no snapshot {id_!r}")
        return record


def resolved(source: SnapshotDoc | SnapshotReference, find: Callable[[str], str | None]) -> ResolvedSnapshot:
    """Give the snapshot that a request brings or refers to; `find` gives the text of a stored one by its id.

    Raises
    ------
    InputError
        When it is wrong or not known; pointers are relative to the request.
    """
    with located("/snapshot"):
        document = source_document(source, find)
    return resolved_document(source, document)


def resolved_document(source: SnapshotDoc | SnapshotReference, document: SnapshotDoc) -> ResolvedSnapshot:
    """The same where the document that a request brings or refers to is known; the text is that of the document."""
    text = document.model_dump_json()
    with located("/snapshot"):
        snapshot = snapshot_from_document(document)
    id_ = source.snapshot_id if isinstance(source, SnapshotReference) else snapshot_id(text)
    return ResolvedSnapshot(snapshot=snapshot, id=id_, text=text)


def source_document(source: SnapshotDoc | SnapshotReference, find: Callable[[str], str | None]) -> SnapshotDoc:
    """Give the document of a snapshot; InputError when it is not known."""
    if not isinstance(source, SnapshotReference):
        return source
    text = find(source.snapshot_id)
    if text is None:
        detail = f"there is no snapshot {source.snapshot_id!r}; post it to /v1/snapshots first"
        raise InputError(detail, [Issue(code="unknown_snapshot", pointer="/snapshot_id", detail=detail)])
    return SNAPSHOT.validate_json(text)


def legal_snapshot(document: SnapshotDoc) -> LegalSnapshot:
    """Check a snapshot before it is stored.

    Raises
    ------
    InputError
        When it is no legal snapshot.
    """
    snapshot_from_document(document)
    text = document.model_dump_json()
    return LegalSnapshot(
        id=snapshot_id(text),
        body=Body.of(text),
        num_nodes=len(document.cluster.nodes),
        num_gpus=sum(node.num_gpus for node in document.cluster.nodes),
        num_jobs=len(document.jobs),
    )
