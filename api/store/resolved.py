"""Snapshots as requests bring or name them, for whoever reads or checks one and has no database."""

from collections.abc import Callable
from dataclasses import dataclass

from api.convert.hashing import snapshot_id
from api.convert.located import located
from api.convert.snapshot import snapshot_from_document
from api.schemas.snapshot import SNAPSHOT, SnapshotDoc, SnapshotReference
from api.store.texts import Body
from models.workload import Snapshot
from stowplan.errors import InputError, Issue


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
