"""States of clusters: from what was asked for to the reader's options, and from what it read to documents."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from api.convert.snapshot import snapshot_to_document
from api.schemas.cluster_state import HeldJobDoc, ImportBody, ImportedSnapshotDoc, ImportNoteDoc
from models.cluster_state import ClusterState, SourceDocument, StateOptions, read_state
from topology.cluster import GpuType


def imported_body(body: ImportBody) -> ImportedSnapshotDoc:
    """The snapshot of documents that were posted.

    Raises
    ------
    InputError
        When a document is wrong: names it, and the JSON pointer or line in it.
    """
    documents: dict[str, list[SourceDocument]] = {}
    for document in body.documents:
        source = SourceDocument(name=document.name or document.role, text=document.text)
        documents.setdefault(document.role, []).append(source)
    options = StateOptions(
        gpu_type=body.gpu_type,
        gpu_types=tuple(GpuType(**vars(kind)) for kind in body.gpu_types),
        gpu_products=body.gpu_products,
        minipod_tier=body.minipod_tier,
        taken_at_s=None if body.taken_at is None else body.taken_at.timestamp(),
        settings=body.settings,
    )
    return imported(body.format, documents, options)


def imported(
    format_: str, documents: Mapping[str, Sequence[SourceDocument]], options: StateOptions
) -> ImportedSnapshotDoc:
    """The snapshot of documents; raises what `imported_body` does."""
    return state_to_document(read_state(format_, documents, options))


def state_to_document(state: ClusterState) -> ImportedSnapshotDoc:
    """The snapshot of a state, and what is not in it."""
    taken_at = datetime.fromtimestamp(state.taken_at_s, UTC)
    snapshot = snapshot_to_document(state.snapshot(), taken_at)
    return ImportedSnapshotDoc(
        snapshot=snapshot.model_copy(update={"taken_at": taken_at}),
        held=tuple(
            HeldJobDoc(id=item.job.id, num_gpus=item.job.min_gpus, why=item.held)
            for item in state.jobs
            if item.held is not None
        ),
        notes=tuple(
            ImportNoteDoc(
                code=note.code, detail=note.detail, document=note.document, pointer=note.pointer, count=note.count
            )
            for note in state.notes
        ),
    )
