"""The performance of a job: from its document to the type that the planner evaluates, and back."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from pydantic import TypeAdapter

from api.schemas.performance import (
    GoodputDoc,
    PerformanceDoc,
    TableEntryDoc,
    ThroughputTableDoc,
    TypeProfileDoc,
)
from models.performance.goodput.spec import (
    BatchRange,
    GoodputModel,
    GoodputObservations,
    GoodputTable,
    GradientStatistics,
    Observation,
    Performance,
    TableEntry,
    ThroughputParameters,
    ThroughputTable,
    TypeProfile,
)

_ADAPTER: TypeAdapter[PerformanceDoc] = TypeAdapter(PerformanceDoc)
_KINDS: Mapping[type[Performance], str] = {
    GoodputModel: "goodput",
    GoodputObservations: "goodput",
    ThroughputTable: "throughput_table",
    GoodputTable: "goodput_table",
}


def performance_from_document(document: PerformanceDoc) -> Performance:
    """Build the performance; its legality on a cluster is the policy's to judge."""
    if isinstance(document, GoodputDoc):
        return _goodput(document)
    entries = tuple(_entry(entry) for entry in document.entries)
    if isinstance(document, ThroughputTableDoc):
        return ThroughputTable(entries=entries, batch_size=document.batch_size)
    return GoodputTable(entries=entries)


def performance_to_document(performance: Performance) -> PerformanceDoc:
    """Give the document that `performance_from_document` turns into an equal performance."""
    values: dict[str, Any] = {part.name: getattr(performance, part.name) for part in fields(performance)}
    return _ADAPTER.validate_python({"kind": _KINDS[type(performance)], **values}, from_attributes=True)


def _entry(document: TableEntryDoc) -> TableEntry:
    return TableEntry(**vars(document))


def _goodput(document: GoodputDoc) -> GoodputModel | GoodputObservations:
    batch = BatchRange(**vars(document.batch))
    gradient = GradientStatistics(**vars(document.gradient))
    if document.profiles is not None:
        profiles = {name: _profile(profile) for name, profile in sorted(document.profiles.items())}
        return GoodputModel(batch=batch, gradient=gradient, profiles=profiles)
    return GoodputObservations(
        batch=batch,
        gradient=gradient,
        observations=tuple(Observation(**vars(point)) for point in document.observations or ()),
        max_local_batch=document.max_local_batch,
        gpus_per_replica=document.gpus_per_replica,
        shared_with=document.shared_with,
    )


def _profile(document: TypeProfileDoc) -> TypeProfile:
    return TypeProfile(**{**vars(document), "parameters": ThroughputParameters(**vars(document.parameters))})
