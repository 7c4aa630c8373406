"""Placements by anybody, as allocations that can be checked."""

import re
from collections.abc import Sequence
from dataclasses import replace

from api.convert.parallel_plan import (
    slices_from_map,
)
from api.schemas.request import AllocationDoc
from models.calendar_check import calendar_violations
from models.placement.check import placement_violations
from models.plan import Change, JobAllocation
from models.workload import Snapshot
from stowplan.errors import Issue

_DERIVED_FIELD = re.compile(r"^(/allocations/[0-9]+)/(?:num_gpus|gpu_type)$")


def placement_issues(documents: Sequence[AllocationDoc], snapshot: Snapshot, epsilon: float) -> list[Issue]:
    """Every rule that a placement by anybody breaks, those of the calendar included; pointers are relative to an object
    with `allocations`. epsilon: as in `calendar_violations`."""
    allocations = _allocations(documents, snapshot)
    violations = [
        *placement_violations(snapshot, allocations),
        *calendar_violations(snapshot, allocations, epsilon),
    ]
    # What follows from the GPUs is no field of the document.
    return [replace(issue, pointer=_DERIVED_FIELD.sub(r"\1/gpus", issue.pointer)) for issue in violations]


def _allocations(documents: Sequence[AllocationDoc], snapshot: Snapshot) -> list[JobAllocation]:
    """Allocations whose type and count follow from the GPUs; what happens to the jobs is not judged."""
    type_of = {node.id: node.gpu_type for node in snapshot.cluster.nodes}
    return [
        JobAllocation(
            job_id=document.job_id,
            gpu_type=next((type_of[node] for node in document.gpus if node in type_of), ""),
            num_gpus=sum(len(gpus) for gpus in document.gpus.values()),
            gpus=slices_from_map(document.gpus),
            change=Change.KEPT,
        )
        for document in documents
    ]
