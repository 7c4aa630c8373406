"""What formats of a whole plan are made of, and what they give: a hand-over to a scheduler that has the queue."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from models.plan import Plan
from models.workload import Snapshot
from stowplan.errors import InputError, Issue

_NAMED = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedPlan:
    """A plan of any policy, and what was planned: its jobs, where they ran, and the calendar.

    `taken_at_s`: the moment of the snapshot in seconds since 1970, None where nobody has said one.

    Raises
    ------
    InputError
        When the plan is of another snapshot: it has other jobs or nodes.
    """

    plan: Plan
    snapshot: Snapshot
    taken_at_s: float | None = None

    def __post_init__(self) -> None:
        if issues := list(_faults(self.plan, self.snapshot)):
            raise InputError("the plan is none of this snapshot; give the request that was planned", issues)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFiles:
    """Text by name of file. `notes`: what the scheduler cannot be told, or was not; warnings with pointers into the
    plan."""

    files: Mapping[str, str]
    notes: tuple[Issue, ...] = ()


def _faults(plan: Plan, snapshot: Snapshot) -> Iterator[Issue]:
    """Jobs that only one of them has, of which the first few are named, and nodes that only the plan has."""
    known = {job.id for job in snapshot.jobs}
    placed = {item.job_id: f"/allocations/{k}/job_id" for k, item in enumerate(plan.allocations)}
    placed |= {item.job_id: f"/unplaced/{k}/job_id" for k, item in enumerate(plan.unplaced)}
    for job_id, pointer in islice(((name, at) for name, at in placed.items() if name not in known), _NAMED):
        yield Issue(code="unknown_job", pointer=pointer, detail=f"the snapshot has no job {job_id!r}")
    for job in islice((job for job in snapshot.jobs if job.id not in placed), _NAMED):
        yield Issue(code="job_not_planned", pointer="/allocations", detail=f"the plan says nothing of job {job.id!r}")
    nodes = {node.id for node in snapshot.cluster.nodes}
    for k, item in enumerate(plan.allocations):
        for part in item.gpus:
            if part.node not in nodes:
                detail = f"the snapshot has no node {part.node!r}"
                yield Issue(code="unknown_node", pointer=f"/allocations/{k}/gpus", detail=detail)
                return
