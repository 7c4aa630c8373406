"""What the checks of all allocation policies have in common: every job is covered, and the score is the objective; who
runs, who keeps its GPUs, and what is left for the others."""

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence, Set
from typing import TypeVar

import numpy as np

from models.plan import Plan, ScoreTerm
from models.workload import Job, Snapshot
from stowplan.arrays import FloatVector
from stowplan.errors import Issue
from topology.cluster import NodeState

TOLERANCE = 1e-6
Key = TypeVar("Key", bound=Hashable)


def coverage_violations(snapshot: Snapshot, plan: Plan) -> Iterator[Issue]:
    """Every job of the snapshot is allocated or unplaced, once."""
    counts = Counter([item.job_id for item in plan.allocations] + [item.job_id for item in plan.unplaced])
    for k, job in enumerate(snapshot.jobs):
        if counts[job.id] != 1:
            yield Issue(
                code="job_not_covered_once",
                pointer=f"/jobs/{k}",
                detail=f"job {job.id!r} occurs {counts[job.id]} times among allocations and unplaced jobs",
            )
    for name in sorted(counts.keys() - {job.id for job in snapshot.jobs}):
        yield Issue(code="unknown_job", pointer="", detail=f"the snapshot has no job {name!r}")


def running_jobs(snapshot: Snapshot) -> dict[str, Job]:
    """Jobs that run now, by id: not those of which a node is down."""
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    return {job.id: job for job in snapshot.jobs if job.current and not any(part.node in down for part in job.current)}


def pinned_jobs(snapshot: Snapshot) -> Set[str]:
    """Ids of the running jobs that keep their GPUs."""
    return {job.id for job in running_jobs(snapshot).values() if not job.preemptible}


def num_usable_gpus(snapshot: Snapshot, pinned: Set[str]) -> Counter[str]:
    """GPUs of each type on nodes that take work, without those of `pinned` jobs and of outside work."""
    usable: Counter[str] = Counter()
    up = {node.id: node for node in snapshot.cluster.nodes if node.state is NodeState.UP}
    for node in up.values():
        usable[node.gpu_type] += node.num_gpus - len(node.gpus_in_use)
    for job in snapshot.jobs:
        for part in job.current or () if job.id in pinned else ():
            if part.node in up:
                usable[up[part.node].gpu_type] -= len(part.gpus)
    return usable


def _job(term: ScoreTerm) -> str:
    return f"job {term.job_id!r}"


def score_violations(
    score: Sequence[ScoreTerm],
    keys: Sequence[Key],
    expected: Mapping[Key, float],
    objective: float,
    *,
    wanted: str,
    whose: Callable[[ScoreTerm], str] = _job,
) -> Iterator[Issue]:
    """The score has one right term for every key of `expected`, and these add up to the objective.

    `keys`: what tells the terms apart, in their order; `wanted`: the terms that there must be, and `whose` a term is,
    in words.
    """
    if Counter(keys) != Counter(list(expected)):
        yield Issue(code="score_terms", pointer="/score", detail=f"the score must have exactly one term per {wanted}")
    for k, (key, term) in enumerate(zip(keys, score, strict=True)):
        right = expected.get(key, math.nan)
        if not _is_close(term.value, right):
            yield Issue(
                code="wrong_score",
                pointer=f"/score/{k}/value",
                detail=f"the term of {whose(term)} is {term.value}; recomputed it is {right}",
            )
    total = math.fsum(expected.values())
    if not _is_close(objective, total):
        yield Issue(
            code="wrong_objective",
            pointer="/objective",
            detail=f"the objective is {objective}; recomputed from the plan it is {total}",
        )


def is_right_score(found: FloatVector, expected: FloatVector, objective: float) -> bool:
    """Whether the values `found` of the terms (J,), nan for a wrong one, are certainly those `expected` (J,), and add
    up."""
    beyond = np.abs(found - expected) - TOLERANCE * np.maximum(1.0, np.abs(expected))
    return bool((beyond <= 0).all()) and _is_close(objective, math.fsum(expected.tolist()))


def _is_close(found: float, right: float) -> bool:
    return math.isclose(found, right, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
