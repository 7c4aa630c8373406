"""Nodes and rank order of 3D plans over several minipods, by Arnold's Eq. 4: what the program leaves open.

The program says on how many nodes a job is, and in which class of placements. A job whose nodes are of several minipods
may have any free ones instead, so that its nodes, and the order of its ranks on them, are those that the policy
`arnold` gives to it beside all others: the largest job first, each on what the ones before leave. One within a minipod
has the least of Eq. 4 already. The program counts none of it, and no job gets nodes that it does not see as free.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from models.allocation.degrees import degrees_of
from models.clock import PhaseClock
from models.parallelism.binding import bind_plan
from models.parallelism.training import trained
from models.performance.iteration.modelling import performance_model
from models.placement.arnold.matrix import matrix_faults
from models.placement.arnold.parameters import ArnoldParameters
from models.placement.arnold.policy import formulate_arnold
from models.plan import Change, JobAllocation, Plan
from models.wording import counted
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.registry import EXACT
from stowplan.errors import InputError, Issue, Severity
from topology.calendar import minipod_depth

# All jobs together; who is not reached stays where the plan has put it.
_LIMIT_S = 1.0


def aligned(snapshot: Snapshot, plan: Plan, alpha: float, clock: PhaseClock) -> tuple[Plan, tuple[Issue, ...]]:
    """The plan with jobs that start or change laid out by Arnold with the affinity `alpha` of DP groups, those whose
    3D plan has a communication matrix (Eq. 1) and lies in several of the snapshot's minipods; and a warning of those
    for which there was no time."""
    depth = minipod_depth(snapshot.cluster)
    minipods = {node.id: node.path[:depth] for node in snapshot.cluster.nodes}
    sizes = {node.id: node.num_gpus for node in snapshot.cluster.nodes}
    jobs = {job.id: job for job in snapshot.jobs}
    found = {item.job_id: item for item in plan.allocations}
    until_s = time.perf_counter() + min(_LIMIT_S, clock.limit_s)
    left: list[str] = []
    for item in sorted(plan.allocations, key=lambda one: -one.num_gpus):
        job = jobs[item.job_id]
        degrees = _degrees(job, item, sizes)
        if degrees is None or len({minipods[part.node] for part in item.gpus}) == 1:
            continue
        limit_s = until_s - time.perf_counter()
        if limit_s <= 0:
            left.append(job.id)
            continue
        hosts = _hosts(snapshot, jobs, found, item, degrees, ArnoldParameters(alpha=alpha), limit_s)
        if hosts and set(hosts) != {part.node for part in job.current or ()}:
            found[job.id] = _moved(snapshot, job, item, hosts)
    return replace(plan, allocations=tuple(found[item.job_id] for item in plan.allocations)), tuple(_warnings(left))


def _warnings(left: Sequence[str]) -> Iterator[Issue]:
    if left:
        yield Issue(
            code="not_aligned",
            pointer="/parameters/alpha",
            detail=f"there was no time to lay out {counted(len(left), 'job')} by it, {left[0]!r} among them: they are "
            "where the plan has put them",
            severity=Severity.WARNING,
        )


def _degrees(job: Job, item: JobAllocation, sizes: Mapping[str, int]) -> Parallelism | None:
    """Degrees of a plan that Arnold may lay out: each of its nodes is one cell, and the performance model alone says
    how fast it is on which nodes."""
    plan = item.parallel_plan
    if item.change is Change.KEPT or plan is None or job.performance is not None:
        return None
    size, cells = sizes[item.gpus[0].node], [node for node, _ in plan.gpus]
    whole = all(len(part.gpus) == sizes[part.node] == size for part in item.gpus)
    degrees = degrees_of(plan) if whole else None
    if degrees is None or [*matrix_faults(degrees, size)]:
        return None
    return degrees if all(len(set(cells[k : k + size])) == 1 for k in range(0, len(cells), size)) else None


def _hosts(
    snapshot: Snapshot,
    jobs: Mapping[str, Job],
    found: Mapping[str, JobAllocation],
    item: JobAllocation,
    degrees: Parallelism,
    parameters: ArnoldParameters,
    limit_s: float,
) -> Sequence[str]:
    """Hosts in rank order that Arnold gives to one job beside all others; none where his nodes are of another size."""
    others = tuple(
        replace(jobs[other.job_id], current=other.gpus, parallel_plan=None, expansions=())
        for other in found.values()
        if other is not item
    )
    asked = Job(id=item.job_id, parallelism=degrees, gpu_types=(item.gpu_type,), min_gpus=item.num_gpus)
    try:
        formulation = formulate_arnold(
            replace(snapshot, jobs=(*others, asked)), parameters, clock := PhaseClock(limit_s)
        )
    except InputError:
        return ()
    result = formulation.solve(SolveOptions(solver=EXACT, time_limit_s=limit_s), SolveMonitor())
    placement = None if result.incumbent is None else formulation.extract(result.incumbent, clock).pretraining
    return () if placement is None else placement.hosts


def _moved(snapshot: Snapshot, job: Job, item: JobAllocation, hosts: Sequence[str]) -> JobAllocation:
    """The allocation on whole nodes in rank order, as fast as its plan is there."""
    every = tuple(range(len(item.gpus[0].gpus)))
    assert job.model is not None  # noqa: S101 - it has a plan
    assert item.parallel_plan is not None  # noqa: S101 - asked in `_degrees`
    plan = bind_plan(item.parallel_plan, [NodeGpus(node=host, gpus=every) for host in hosts])
    model = performance_model(trained(job.model, plan.training), snapshot.cluster, job.calibration)
    gpus = tuple(NodeGpus(node=host, gpus=every) for host in sorted(hosts))
    return replace(item, gpus=gpus, parallel_plan=plan, expected_goodput=model.throughput(plan))
