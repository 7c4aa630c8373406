"""Independent check of a pre-training placement and of the plan around it. Knows no solver and no formulation.

Everything is recomputed from the snapshot. Pointers are relative to the plan (`/pretraining/cells/0/1`).
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

from models.placement.arnold.matrix import communication_matrix, matrix_faults, stage_major
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit, SpreadObjective
from models.placement.arnold.spread import measure, units_of
from models.plan import JobAllocation, Plan, PretrainingPlacement
from models.workload import Job, Parallelism, Snapshot
from stowplan.errors import Issue
from topology.cluster import Node, NodeState

_TOLERANCE = 1e-6
_DEFAULT = ArnoldParameters()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Scene:
    """The snapshot as the check needs it: nodes by id, those that are up and have no work from outside, who holds GPUs
    where, depth of a minipod path."""

    nodes: dict[str, Node]
    free: set[str]
    jobs: dict[str, Job]
    running: frozenset[str]
    holders: dict[str, set[str]]
    depth: int


def placement_violations(
    snapshot: Snapshot, placement: PretrainingPlacement, tier: str, num_spares: int = 0
) -> list[Issue]:
    """Everything that is wrong with `placement` when the units of `tier` are the minipods.

    `num_spares` nodes must be kept free in every minipod used.
    """
    return _violations(_scene(snapshot, tier), placement, num_spares)


def _violations(scene: _Scene, placement: PretrainingPlacement, num_spares: int) -> list[Issue]:
    job = scene.jobs.get(placement.job_id)
    if job is None or job.parallelism is None:
        detail = f"the snapshot has no pre-training job {placement.job_id!r}"
        return [_violation("unknown_job", "job_id", detail)]
    shapes = {tuple(len(row) for row in matrix) for matrix in (placement.cells, placement.minipods)}
    if len(shapes) != 1 or len(set(*shapes)) != 1 or 0 in set(*shapes):
        detail = "cells and minipods must be matrices of the same shape with at least one row and column"
        return [_violation("ragged_matrix", "cells", detail)]
    found = [*_cell_violations(scene, job, placement), *_type_violations(scene, job, job.parallelism, placement)]
    found += _label_violations(scene, placement)
    found += _spare_violations(scene, placement, num_spares)
    if placement.hosts != stage_major(placement.cells):
        found.append(_violation("wrong_rank_order", "hosts", "hosts must be the cells column by column (stage-major)"))
    return found + list(_value_violations(placement))


def plan_violations(
    snapshot: Snapshot, plan: Plan, tier: str, objective: float, parameters: ArnoldParameters = _DEFAULT
) -> list[Issue]:
    """Everything that is wrong with an Arnold plan, or with its claim to be at least as good as `objective`.

    `parameters` say what is minimised and how many nodes are kept back. A plan may be better than the point it was
    read from, never worse.
    """
    placement = plan.pretraining
    if placement is None:
        return [Issue(code="no_placement", pointer="/pretraining", detail="an Arnold plan must place its job")]
    scene = _scene(snapshot, tier)
    found = _violations(scene, placement, parameters.spare_nodes_per_minipod)
    found += _coverage_violations(scene, plan)
    for k, allocation in enumerate(plan.allocations):
        if allocation.job_id in scene.jobs:
            found += _allocation_violations(f"/allocations/{k}", scene, allocation, placement)
    real, field = _objective(snapshot, scene, placement, parameters)
    score = math.fsum(term.value for term in plan.score)
    if not abs(score - real) <= _TOLERANCE:
        detail = f"the terms add up to {score}, the objective is {real}"
        found.append(Issue(code="wrong_score", pointer="/score", detail=detail))
    if not real <= objective + _TOLERANCE:
        detail = f"is {real}, worse than the {objective} that the solver claims"
        found.append(_violation("objective_mismatch", field, detail))
    return found


def _objective(
    snapshot: Snapshot, scene: _Scene, placement: PretrainingPlacement, parameters: ArnoldParameters
) -> tuple[float, str]:
    """What the placement is worth, and the field that says so. Values that are given have been recomputed by now."""
    if parameters.spread_objective is SpreadObjective.EQ2:
        return placement.objective_eq2, "objective_eq2"
    if parameters.tier_weights is None:
        return placement.objective_eq4, "objective_eq4"
    unknown = any(node not in scene.nodes for row in placement.cells for node in row)
    if unknown or placement.scheduling_unit not in list(SchedulingUnit):
        return math.nan, "cells"
    tiers = [tier.name for tier in snapshot.cluster.tiers]
    values = (
        weight
        * measure(units_of(snapshot, placement.cells, tiers.index(name))).objective_eq4(
            placement.alpha, SchedulingUnit(placement.scheduling_unit)
        )
        for name, weight in parameters.tier_weights.items()
    )
    return math.fsum(values), "cells"


def _scene(snapshot: Snapshot, tier: str) -> _Scene:
    nodes = {node.id: node for node in snapshot.cluster.nodes}
    down = {node.id for node in snapshot.cluster.nodes if node.state is NodeState.DOWN}
    running = {
        job.id: job.current
        for job in snapshot.jobs
        if job.current and not any(part.node in down for part in job.current)
    }
    holders: dict[str, set[str]] = {}
    for job_id, parts in running.items():
        for part in parts:
            holders.setdefault(part.node, set()).add(job_id)
    return _Scene(
        nodes=nodes,
        free={node.id for node in snapshot.cluster.nodes if node.state is NodeState.UP and not node.gpus_in_use},
        jobs={job.id: job for job in snapshot.jobs},
        running=frozenset(running),
        holders=holders,
        depth=[known.name for known in snapshot.cluster.tiers].index(tier) + 1,
    )


def _cell_violations(scene: _Scene, job: Job, placement: PretrainingPlacement) -> Iterator[Issue]:
    """Every cell one node: distinct, known, up, wholly free."""
    names = list(chain.from_iterable(placement.cells))
    uses = Counter(names)
    # Tens of thousands of cells; nearly always nothing is wrong with any.
    if len(uses) == len(names) and uses.keys() <= scene.free and uses.keys().isdisjoint(scene.holders):
        return
    for r, row in enumerate(placement.cells):
        for c, name in enumerate(row):
            node = scene.nodes.get(name)
            where = f"cells/{r}/{c}"
            if node is None:
                yield _violation("unknown_node", where, f"the cluster has no node {name!r}")
                continue
            if uses[name] > 1:
                yield _violation("node_taken_twice", where, f"node {name!r} fills {uses[name]} cells")
            if node.state is not NodeState.UP:
                yield _violation("node_not_up", where, f"node {name!r} is {node.state}")
            if node.gpus_in_use:
                yield _violation("node_not_free", where, f"node {name!r} has GPUs in use outside the snapshot")
            others = sorted(scene.holders.get(name, set()) - {job.id})
            if others:
                yield _violation("node_not_free", where, f"node {name!r} is held by {others}")


def _type_violations(
    scene: _Scene, job: Job, parallelism: Parallelism, placement: PretrainingPlacement
) -> Iterator[Issue]:
    """One GPU type that the job allows, one node size, and the matrix of Eq. 1 for it."""
    nodes = [node for name in chain.from_iterable(placement.cells) if (node := scene.nodes.get(name))]
    kinds = sorted({(node.gpu_type, node.num_gpus) for node in nodes})
    if len(kinds) != 1:
        yield _violation("mixed_nodes", "cells", f"nodes must agree in GPU type and count; found {kinds}")
        return
    gpu_type, gpus_per_node = kinds[0]
    allowed = (job.reservation.gpu_type,) if job.reservation is not None else job.gpu_types
    if allowed is not None and gpu_type not in allowed:
        yield _violation("wrong_gpu_type", "cells", f"job {job.id!r} may use {list(allowed)}, not {gpu_type!r}")
    if list(matrix_faults(parallelism, gpus_per_node)):
        yield _violation("wrong_shape", "cells", f"the job has no matrix on nodes of {gpus_per_node} GPUs")
        return
    matrix = communication_matrix(parallelism, gpus_per_node)
    shape = (len(placement.cells), len(placement.cells[0]))
    if shape != (matrix.num_rows, matrix.num_columns):
        detail = f"is {shape[0]} x {shape[1]}, Eq. 1 gives {matrix.num_rows} x {matrix.num_columns}"
        yield _violation("wrong_shape", "cells", detail)


def _label_violations(scene: _Scene, placement: PretrainingPlacement) -> Iterator[Issue]:
    names, labels = (list(chain.from_iterable(rows)) for rows in (placement.cells, placement.minipods))
    paths = [node.path if (node := scene.nodes.get(name)) else () for name in names]
    minipods = {path: "/".join(path[: scene.depth]) for path in set(paths)}
    if [minipods[path] for path in paths] == labels:
        return
    width = len(placement.cells[0])
    for k, (name, label, path) in enumerate(zip(names, labels, paths, strict=True)):
        if path and label != minipods[path]:
            detail = f"node {name!r} is in {minipods[path]!r}, not in {label!r}"
            yield _violation("wrong_minipod", f"minipods/{k // width}/{k % width}", detail)


def _spare_violations(scene: _Scene, placement: PretrainingPlacement, num_spares: int) -> Iterator[Issue]:
    """In every minipod used `num_spares` nodes like those of the job, wholly free and in no cell."""
    if not placement.spares and not num_spares:
        return
    cells = {name for row in placement.cells for name in row}
    kinds = {(scene.nodes[name].gpu_type, scene.nodes[name].num_gpus) for name in cells if name in scene.nodes}
    used = {label for row in placement.minipods for label in row}
    spares = Counter(dict.fromkeys(used, 0))
    named: set[str] = set()
    for k, name in enumerate(placement.spares):
        node = scene.nodes.get(name)
        if node is None:
            yield _violation("unknown_node", f"spares/{k}", f"the cluster has no node {name!r}")
            continue
        spares["/".join(node.path[: scene.depth])] += 1
        busy = node.state is not NodeState.UP or node.gpus_in_use or scene.holders.get(name)
        if busy or name in cells or name in named or (node.gpu_type, node.num_gpus) not in kinds:
            detail = f"node {name!r} must be up, wholly free, like the nodes of the job, in no cell and named once"
            yield _violation("wrong_spare", f"spares/{k}", detail)
        named.add(name)
    for label, num in sorted(spares.items()):
        if num != num_spares or label not in used:
            detail = f"minipod {label!r} keeps {num} spare nodes; {num_spares} are wanted where the job has nodes"
            yield _violation("wrong_spares", "spares", detail)


def _value_violations(placement: PretrainingPlacement) -> Iterator[Issue]:
    """Affinities, spreads and objectives, recomputed from the minipod labels."""
    number = {label: k for k, label in enumerate(dict.fromkeys(chain.from_iterable(placement.minipods)))}
    spreads = measure(np.array([[number[label] for label in row] for row in placement.minipods], dtype=np.int64))
    if placement.scheduling_unit not in list(SchedulingUnit):
        yield _violation("wrong_unit", "scheduling_unit", f"must be one of {[unit.value for unit in SchedulingUnit]}")
        return
    unit = SchedulingUnit(placement.scheduling_unit)
    if not (0 <= placement.alpha <= 1 and abs(placement.alpha + placement.beta - 1) <= _TOLERANCE):
        detail = f"alpha {placement.alpha} and beta {placement.beta} must lie in [0, 1] and add up to 1"
        yield _violation("wrong_affinity", "alpha", detail)
    claims: list[tuple[str, object, object]] = [
        ("minipod_spread", placement.minipod_spread, spreads.minipods),
        ("distance", placement.distance, spreads.distance),
        ("num_minipods_used", placement.num_minipods_used, spreads.num_used),
        ("max_unit_spread", placement.max_unit_spread, spreads.of_unit(unit)),
    ]
    for field, claimed, real in claims:
        if claimed != real:
            yield _violation("wrong_spread", field, f"is given as {claimed}, recomputed {real}")
    objectives = [
        ("objective_eq4", placement.objective_eq4, spreads.objective_eq4(placement.alpha, unit)),
        ("objective_eq2", placement.objective_eq2, spreads.objective_eq2(placement.alpha)),
    ]
    for field, value, expected in objectives:
        if not abs(value - expected) <= _TOLERANCE:
            yield _violation("wrong_objective", field, f"is given as {value}, recomputed {expected}")


def _coverage_violations(scene: _Scene, plan: Plan) -> Iterator[Issue]:
    """Every job of the snapshot once, as an allocation or as unplaced."""
    named = Counter([item.job_id for item in plan.allocations] + [item.job_id for item in plan.unplaced])
    for job_id in sorted({*scene.jobs, *named}):
        if job_id not in scene.jobs:
            yield Issue(code="unknown_job", pointer="/allocations", detail=f"the snapshot has no job {job_id!r}")
        elif named[job_id] != 1:
            detail = f"job {job_id!r} occurs {named[job_id]} times; it must occur once"
            yield Issue(code="job_not_covered_once", pointer="/allocations", detail=detail)


def _allocation_violations(
    pointer: str, scene: _Scene, allocation: JobAllocation, placement: PretrainingPlacement
) -> Iterator[Issue]:
    """The planned job holds all GPUs of its hosts in rank order; every other job holds what it held."""
    job, nodes = scene.jobs[allocation.job_id], scene.nodes
    held = [node for part in allocation.gpus if (node := nodes.get(part.node))]
    if job.id == placement.job_id:
        sizes = [node.num_gpus for node in held]
        every = {num: tuple(range(num)) for num in set(sizes)}
        is_right = [part.node for part in allocation.gpus] == [name for name in placement.hosts if name in nodes]
        if not is_right or [part.gpus for part in allocation.gpus] != [every[num] for num in sizes]:
            detail = f"job {job.id!r} must hold every GPU of its hosts, in rank order"
            yield Issue(code="allocation_mismatch", pointer=f"{pointer}/gpus", detail=detail)
    elif job.id not in scene.running or set(allocation.gpus) != set(job.current or ()):
        detail = f"job {job.id!r} is not planned here; it must keep its GPUs, or stay unplaced when it has none"
        yield Issue(code="job_moved", pointer=f"{pointer}/gpus", detail=detail)
    num_gpus = sum([len(part.gpus) for part in allocation.gpus])
    types = {node.gpu_type for node in held}
    if allocation.num_gpus != num_gpus or types != {allocation.gpu_type}:
        detail = f"says {allocation.num_gpus} {allocation.gpu_type!r} GPUs, holds {num_gpus} of {sorted(types)}"
        yield Issue(code="allocation_mismatch", pointer=pointer, detail=detail)


def _violation(code: str, field: str, detail: str) -> Issue:
    return Issue(code=code, pointer=f"/pretraining/{field}", detail=detail)
