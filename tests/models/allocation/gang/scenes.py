"""Clusters, jobs and plans that the tests of this folder share."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from models.allocation.gang.formulation import GangFormulation, formulate_gang
from models.allocation.gang.parameters import GangParameters
from models.allocation.gang.validation import policy_issues
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Job, NodeGpus, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from stowplan.errors import Severity
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier


def kind(name: str) -> GpuType:
    return GpuType(
        name=name,
        memory_bytes=80 * 10**9,
        peak_flops_per_s=1e14,
        intra_node_bandwidth_bytes_per_s=4e11,
        inter_node_bandwidth_bytes_per_s=5e10,
    )


def cluster(*sizes: int, gpu_type: str = "a", per_rack: int = 2) -> Cluster:
    """Nodes a0, a1, ... of so many GPUs, `per_rack` in a rack."""
    return joined(nodes(*sizes, gpu_type=gpu_type, per_rack=per_rack))


def nodes(*sizes: int, gpu_type: str = "a", per_rack: int = 2) -> tuple[Node, ...]:
    return tuple(
        Node(id=f"{gpu_type}{k}", gpu_type=gpu_type, num_gpus=size, path=(f"rack {gpu_type}{k // per_rack}",))
        for k, size in enumerate(sizes)
    )


def joined(*groups: Sequence[Node]) -> Cluster:
    """A cluster of all these nodes."""
    members = tuple(node for group in groups for node in group)
    types = tuple(kind(name) for name in dict.fromkeys(node.gpu_type for node in members))
    return Cluster(gpu_types=types, nodes=members, tiers=(Tier(name="rack"),))


def running(
    name: str, left_s: float | None, /, *, size: int | None = None, also: Mapping[str, Any] | None = None, **gpus: Any
) -> Job:
    """A job on nodes, given as `a0=range(4)`; `also` for further fields."""
    current = tuple(NodeGpus(node=node, gpus=tuple(own)) for node, own in gpus.items())
    held = sum(len(part.gpus) for part in current)
    return Job(id=name, min_gpus=size or held, current=current, remaining_s=left_s, **(also or {}))


def queue(*jobs: tuple[str, int, float | None], **also: Any) -> tuple[Job, ...]:
    """Waiting jobs (name, size, seconds), the first the oldest."""
    return tuple(
        Job(id=name, min_gpus=size, remaining_s=left_s, age_s=1000.0 - k, **also)
        for k, (name, size, left_s) in enumerate(jobs)
    )


def planned(snapshot: Snapshot, parameters: GangParameters | None = None) -> tuple[GangFormulation, SolveResult, Plan]:
    """Plan to the optimum, or by the heuristic, and check."""
    parameters = parameters or GangParameters()
    assert [issue for issue in policy_issues(snapshot, parameters) if issue.severity is Severity.ERROR] == []
    formulation = formulate_gang(snapshot, parameters, PhaseClock())
    result = formulation.solve(SolveOptions(relative_gap=0.0), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    return formulation, result, plan


def plan_of(where: Cluster, *jobs: Job, **parameters: Any) -> Plan:
    """The checked plan."""
    return planned(Snapshot(cluster=where, jobs=jobs), GangParameters(**parameters))[2]


def started(plan: Plan) -> dict[str, list[str]]:
    """Nodes of the jobs that start or move, by id."""
    return {item.job_id: [part.node for part in item.gpus] for item in plan.allocations if item.change.value != "kept"}


def reasons(plan: Plan) -> dict[str, str]:
    """Why jobs wait, by id."""
    return {job.job_id: job.reason for job in plan.unplaced}


def made_up(seed: int, *, max_nodes: int = 6, max_jobs: int = 20) -> Snapshot:
    """One or two GPU types with nodes of unlike sizes and states, some jobs that run, and a queue of all kinds."""
    rng = random.Random(seed)  # noqa: S311 - reproducible, no secret
    members: list[Node] = []
    for gpu_type in ("a", "b")[: rng.choice((1, 1, 2))]:
        whole = rng.choice((4, 6, 8, 8))
        for node in nodes(*(whole for _ in range(rng.randint(1, max_nodes))), gpu_type=gpu_type):
            size = whole if rng.random() < 0.9 else rng.randint(1, whole)
            in_use = tuple(range(rng.randint(1, size))) if rng.random() < 0.1 else ()
            state = rng.choice([NodeState.UP] * 8 + [NodeState.DRAINED, NodeState.DOWN])
            members.append(
                Node(
                    id=node.id,
                    gpu_type=gpu_type,
                    num_gpus=size,
                    gpus_in_use=in_use,
                    state=state,
                    path=node.path,
                )
            )
    free = {node.id: [gpu for gpu in range(node.num_gpus) if gpu not in node.gpus_in_use] for node in members}
    jobs = tuple(_made_up_job(k, members, free, rng) for k in range(rng.randint(1, max_jobs)))
    return Snapshot(cluster=joined(members), jobs=jobs)


def _made_up_job(k: int, members: Sequence[Node], free: dict[str, list[int]], rng: random.Random) -> Job:
    size = rng.choice((1, 1, 2, 2, 3, 4, 4, 5, 8, 8, 12, 16))
    current: tuple[NodeGpus, ...] = ()
    seats = [node for node in members if len(free[node.id]) >= size]
    if seats and rng.random() < 0.45:
        node = rng.choice(seats)
        current = (NodeGpus(node=node.id, gpus=tuple(sorted(rng.sample(free[node.id], size)))),)
    elif rng.random() < 0.2:
        # On all that is left of two nodes of a type, whatever shape that is.
        first = rng.choice(members)
        both = [node for node in members if free[node.id] and node.gpu_type == first.gpu_type][:2]
        current = tuple(NodeGpus(node=node.id, gpus=tuple(free[node.id])) for node in both)
        size = sum(len(part.gpus) for part in current) or size
    for part in current:
        free[part.node] = [gpu for gpu in free[part.node] if gpu not in part.gpus]
    types = tuple(dict.fromkeys(node.gpu_type for node in members))
    return Job(
        id=f"j{k}",
        min_gpus=size,
        current=current or None,
        gpu_types=rng.choice((None, types, (rng.choice(types),))),
        preemptible=rng.random() < 0.8,
        weight=rng.choice((1.0, 1.0, 2.0)),
        # Distinct, so that the place in the snapshot never decides.
        age_s=rng.randint(0, 10) + k / 100,
        priority=rng.randint(1, 3),
        remaining_s=rng.choice((None, 0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 8.0)),
        queue=rng.choice((None, "p", "q")),
        attained_gpu_s=rng.choice((0.0, 99.0, 100.0, 5000.0)),
    )
