"""Nodes and rank order of 3D plans over several minipods, by Arnold's Eq. 4: what the program leaves open.

The program says on how many nodes a job is, and in which class of placements. A job whose nodes are of several minipods
may have any free ones that lie as near to one another, so that its nodes, and the order of its ranks on them, are those
that the policy `arnold` would choose among these: the largest job first, each on what the ones before leave. One within
a minipod has the least of Eq. 4 already. The program counts none of it. What it costs a job by its performance model is
said, and no reason to do otherwise: whoever gives an affinity has measured it.
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from models.allocation.degrees import degrees_of
from models.clock import PhaseClock
from models.parallelism.binding import bind_plan
from models.parallelism.training import trained
from models.performance.iteration.fabric import Fabric, fabric_of
from models.performance.iteration.modelling import performance_model
from models.placement.arnold.assignment import arrange, pick_nodes
from models.placement.arnold.budget import Budget
from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.instance import arnold_instance
from models.placement.arnold.labels import counts_of, labels_of
from models.placement.arnold.matrix import communication_matrix, matrix_faults, stage_major
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.pool import by_minipod
from models.placement.occupancy import occupancy
from models.plan import Change, JobAllocation, Plan
from models.wording import counted
from models.workload import Job, NodeGpus, Parallelism, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.registry import EXACT
from stowplan.errors import Issue, Severity
from topology.bandwidth import fractions_of, group_fraction
from topology.calendar import minipod_depth
from topology.cluster import Node

# All jobs together, which take some milliseconds each; who is not reached stays where the plan has put it.
_LIMIT_S = 1.0
# Whoever is slower by less is told nothing.
_SLOWER = 0.99
_UNIT = SchedulingUnit.PP


def aligned(snapshot: Snapshot, plan: Plan, alpha: float, clock: PhaseClock) -> tuple[Plan, tuple[Issue, ...]]:
    """The plan with jobs that start or change laid out by Arnold with the affinity `alpha` of DP groups, those whose
    3D plan has a communication matrix (Eq. 1) and lies in several of the snapshot's minipods; and warnings of those
    for which there was no time, and of those that are slower for it."""
    jobs, nodes = {job.id: job for job in snapshot.jobs}, {node.id: node for node in snapshot.cluster.nodes}
    depth, fabric = minipod_depth(snapshot.cluster), fabric_of(snapshot.cluster)
    free = _free_nodes(snapshot, plan)
    found: dict[str, JobAllocation] = {}
    left: list[str] = []
    until_s = time.perf_counter() + min(_LIMIT_S, clock.limit_s)
    for item in sorted(plan.allocations, key=lambda one: -one.num_gpus):
        job, own = jobs[item.job_id], [nodes[part.node] for part in item.gpus]
        degrees = _degrees(job, item, own)
        if degrees is None or len({node.path[:depth] for node in own}) == 1:
            continue
        limit_s = until_s - time.perf_counter()
        if limit_s <= 0:
            left.append(job.id)
            continue
        free.update({node.id: node for node in own})
        hosts = _hosts(_as_near(snapshot, free.values(), own), depth, degrees, alpha, limit_s)
        if hosts and set(hosts) != {part.node for part in job.current or ()}:
            found[job.id] = _moved(snapshot, fabric, job, item, hosts)
        for part in found.get(job.id, item).gpus:
            del free[part.node]
    slower = {
        item.job_id: ratio
        for item in plan.allocations
        if item.job_id in found and (ratio := _ratio(found[item.job_id], item)) < _SLOWER
    }
    allocations = tuple(found.get(item.job_id, item) for item in plan.allocations)
    return replace(plan, allocations=allocations), tuple(_warnings(left, slower))


def _free_nodes(snapshot: Snapshot, plan: Plan) -> dict[str, Node]:
    """Nodes with every GPU to hand out, on which nobody is in the plan."""
    taken = {part.node for item in plan.allocations for part in item.gpus}
    masks = zip(snapshot.cluster.nodes, occupancy(snapshot).free_masks, strict=True)
    return {node.id: node for node, mask in masks if mask == (1 << node.num_gpus) - 1 and node.id not in taken}


def _degrees(job: Job, item: JobAllocation, own: Sequence[Node]) -> Parallelism | None:
    """Degrees of a plan that Arnold may lay out: each of its nodes is one cell, and the performance model alone says
    how fast it is on which nodes."""
    plan = item.parallel_plan
    if item.change is Change.KEPT or plan is None or job.performance is not None:
        return None
    size, cells = own[0].num_gpus, [node for node, _ in plan.gpus]
    parts = zip(item.gpus, own, strict=True)
    degrees = degrees_of(plan) if all(len(part.gpus) == node.num_gpus == size for part, node in parts) else None
    if degrees is None or [*matrix_faults(degrees, size)]:
        return None
    return degrees if all(len(set(cells[k : k + size])) == 1 for k in range(0, len(cells), size)) else None


def _as_near(snapshot: Snapshot, free: Collection[Node], own: Sequence[Node]) -> list[Node]:
    """Free nodes like a job's own ones in the unit in which these have the bandwidth that they have between them: its
    placement class promises no less."""
    fractions = fractions_of(snapshot.cluster)
    here = group_fraction(fractions, [node.path for node in own])
    around = next(depth for depth, fraction in enumerate(fractions) if fraction >= here)
    like = own[0].gpu_type, own[0].num_gpus, own[0].path[:around]
    return [node for node in free if (node.gpu_type, node.num_gpus, node.path[:around]) == like]


def _hosts(free: Sequence[Node], depth: int, degrees: Parallelism, alpha: float, limit_s: float) -> Sequence[str]:
    """Hosts in rank order that Arnold gives to a job, of free nodes, with its own ones; none without an answer."""
    matrix = communication_matrix(degrees, free[0].num_gpus)
    minipods, nodes = by_minipod(free, depth)
    free_nodes = np.array([len(members) for members in nodes], dtype=np.int64)
    instance = arnold_instance(matrix, _UNIT, alpha, minipods, free_nodes)
    budget = Budget(options=SolveOptions(solver=EXACT, time_limit_s=limit_s), monitor=SolveMonitor())
    solution = solve_exactly(instance, budget, lambda *_: None).solution
    if solution is None:
        return ()
    # As the policy `arnold` reads its answers.
    placed = arrange(labels_of(counts_of(solution, len(minipods))), _UNIT)
    return stage_major(pick_nodes(placed, nodes, _UNIT))


def _moved(snapshot: Snapshot, fabric: Fabric, job: Job, item: JobAllocation, hosts: Sequence[str]) -> JobAllocation:
    """The allocation on whole nodes in rank order, as fast as its plan is there."""
    every = tuple(range(len(item.gpus[0].gpus)))
    assert job.model is not None  # noqa: S101 - it has a plan
    assert item.parallel_plan is not None  # noqa: S101 - asked in `_degrees`
    plan = bind_plan(item.parallel_plan, [NodeGpus(node=host, gpus=every) for host in hosts])
    model = performance_model(trained(job.model, plan.training), snapshot.cluster, job.calibration, fabric)
    gpus = tuple(NodeGpus(node=host, gpus=every) for host in sorted(hosts))
    return replace(item, gpus=gpus, parallel_plan=plan, expected_goodput=model.throughput(plan))


def _ratio(now: JobAllocation, before: JobAllocation) -> float:
    return (now.expected_goodput or 0.0) / (before.expected_goodput or 1.0)


def _warnings(left: Sequence[str], slower: Mapping[str, float]) -> Iterator[Issue]:
    if left:
        yield Issue(
            code="not_aligned",
            pointer="/parameters/alpha",
            detail=f"there was no time to lay out {counted(len(left), 'job')} by it, {left[0]!r} among them: they are "
            "where the plan has put them",
            severity=Severity.WARNING,
        )
    if slower:
        worst = min(slower, key=lambda name: slower[name])
        yield Issue(
            code="aligned_slower",
            pointer="/parameters/alpha",
            detail=f"by it {counted(len(slower), 'job')} are laid out so that the performance model says they are "
            f"slower, {worst!r} at {slower[worst]:.2f} of its speed; leave it out, or give another affinity",
            severity=Severity.WARNING,
        )
