"""States of clusters: from what was asked for to the reader's options, and from what it read to documents."""

from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_json

from api.convert.located import located
from api.convert.reading import MAX_ISSUES, read_document
from api.convert.snapshot import snapshot_from_document, snapshot_to_document
from api.schemas.cluster_state import HeldJobDoc, ImportBody, ImportedSnapshotDoc, ImportNoteDoc
from api.schemas.snapshot import JobDoc, SnapshotDoc
from models.cluster_state import ClusterState, SourceDocument, StateOptions, read_state
from stowplan.collection import without_collection
from stowplan.errors import InputError, Issue, pointer_of
from topology.cluster import GpuType
from topology.gpu_catalogue import known_product
from topology.node_readers import read_node_facts

_JOB: TypeAdapter[JobDoc] = TypeAdapter(JobDoc)


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
        node_facts={
            name: read_node_facts(f"node_topologies/{name}", text, known_product(body.gpu_products.get(name, name)))
            for name, text in body.node_topologies.items()
        },
        settings=body.settings,
    )
    return imported(body.format, documents, options, body.jobs)


def imported(
    format_: str,
    documents: Mapping[str, Sequence[SourceDocument]],
    options: StateOptions,
    changes: Mapping[str, Mapping[str, Any]],
) -> ImportedSnapshotDoc:
    """The snapshot of documents; `changes`: job id -> fields of its document. Raises what `imported_body` does."""
    with without_collection():
        return imported_state(read_state(format_, documents, options), changes)


def imported_state(state: ClusterState, changes: Mapping[str, Mapping[str, Any]]) -> ImportedSnapshotDoc:
    """The snapshot of a state that was read, as `imported` gives it."""
    snapshot = _document(state, changes)
    if changes:
        snapshot = _changed(snapshot, changes, state)
        snapshot_from_document(snapshot)
    return ImportedSnapshotDoc(
        snapshot=snapshot,
        held=tuple(
            HeldJobDoc(id=item.job.id, num_gpus=item.job.min_gpus, why=item.held or "") for item in state.held(changes)
        ),
        notes=tuple(
            ImportNoteDoc(
                code=note.code, detail=note.detail, document=note.document, pointer=note.pointer, count=note.count
            )
            for note in state.notes
        ),
    )


def _document(state: ClusterState, released: Collection[str]) -> SnapshotDoc:
    """The document of what is planned of a state.

    Raises
    ------
    InputError
        When a document cannot say it: a name that is too long, a time too far away.
    """
    snapshot = state.snapshot(released)
    try:
        taken_at = datetime.fromtimestamp(state.taken_at_s, UTC)
        return snapshot_to_document(snapshot, taken_at).model_copy(update={"taken_at": taken_at})
    except ValidationError as error:
        # It knows every document there is, which takes half a second to load.
        from api.convert.faults import fault_issue

        issues = [fault_issue(fault, error.title) for fault in error.errors(include_url=False)[:MAX_ISSUES]]
        raise InputError(
            f"what the scheduler says of a {error.title.removesuffix('Doc')} is out of range", issues
        ) from error
    except (OverflowError, ValueError) as error:
        raise InputError(f"what the scheduler says of times is out of range: {error}") from error


def _such_as(names: Collection[str]) -> str:
    return f"; there are {len(names)}, such as {next(iter(names))!r}" if names else ""


def _changed(snapshot: SnapshotDoc, changes: Mapping[str, Mapping[str, Any]], state: ClusterState) -> SnapshotDoc:
    """The snapshot with fields of jobs that others say."""
    held = {item.job.id: item.held for item in state.jobs if item.held is not None}
    position = {job.id: k for k, job in enumerate(snapshot.jobs)}
    jobs = list(snapshot.jobs)
    for name, fields in changes.items():
        pointer = pointer_of("jobs", name)
        if name not in position:
            why = (
                f"job {name!r} is held ({held[name]})"
                if name in held
                else f"there is no job {name!r}{_such_as(position)}"
            )
            raise InputError(why, [Issue(code="unknown_job", pointer=pointer, detail=why)])
        with located(pointer):
            document = jobs[position[name]].model_dump(mode="json") | {**fields, "id": name}
            jobs[position[name]] = read_document(_JOB, to_json(document, inf_nan_mode="constants"), "job")
    return snapshot.model_copy(update={"jobs": tuple(jobs)})
