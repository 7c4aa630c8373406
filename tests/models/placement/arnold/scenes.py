"""Fabrics, jobs and the reference search that the tests of this folder share."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import numpy as np
from hypothesis import strategies as st

from models.clock import PhaseClock
from models.placement.arnold.instance import ArnoldInstance, affinity_weights
from models.placement.arnold.parameters import ArnoldParameters, SchedulingUnit
from models.placement.arnold.policy import ArnoldFormulation, formulate_arnold
from models.plan import Plan, PretrainingPlacement
from models.transformer import Transformer
from models.workload import Job, Parallelism, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import SolveResult
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier

H800 = GpuType(
    name="H800",
    memory_bytes=80 * 2**30,
    peak_flops_per_s=989e12,
    intra_node_bandwidth_bytes_per_s=400e9,
    inter_node_bandwidth_bytes_per_s=50e9,
)
L20 = GpuType(
    name="L20",
    memory_bytes=48 * 2**30,
    peak_flops_per_s=119e12,
    intra_node_bandwidth_bytes_per_s=32e9,
    inter_node_bandwidth_bytes_per_s=25e9,
)
GPT_24B = Transformer(
    num_layers=52,
    hidden_size=6_144,
    vocabulary_size=50_257,
    sequence_length=4_096,
    global_batch=384,
    micro_batch=1,
)


def fabric(
    free: Mapping[str, int] | Sequence[int],
    *,
    num_gpus: int = 8,
    nodes_per_leaf: int = 4,
    busy: Mapping[str, int] | None = None,
) -> Cluster:
    """Cluster with `free` nodes per minipod, named `A-0`, `A-1`, ... under leaves of `nodes_per_leaf`.

    `busy` minipods get that many drained nodes more.
    """
    named = dict(free) if isinstance(free, Mapping) else {f"m{k}": count for k, count in enumerate(free)}
    drained = dict(busy or {})
    nodes = [
        Node(
            id=f"{label}-{k}",
            gpu_type="H800",
            num_gpus=num_gpus,
            state=NodeState.UP if k < count else NodeState.DRAINED,
            path=(label, f"leaf{k // nodes_per_leaf}"),
        )
        for label, count in named.items()
        for k in range(count + drained.get(label, 0))
    ]
    return Cluster(
        gpu_types=(H800,),
        nodes=tuple(nodes),
        tiers=(Tier(name="minipod"), Tier(name="leaf")),
        minipod_tier="minipod",
    )


def pretraining(rows: int, columns: int, *, job_id: str = "llm", transformer: Transformer | None = None) -> Job:
    """Job with a communication matrix of `rows` x `columns` on nodes of 8 GPUs (tp 8)."""
    return Job(id=job_id, parallelism=Parallelism(tp=8, pp=columns, dp=rows), transformer=transformer)


def instance(
    num_groups: int, group_size: int, free: Sequence[int], alpha: float, unit: SchedulingUnit = SchedulingUnit.PP
) -> ArnoldInstance:
    minipod_weight, spread_weight = affinity_weights(alpha, unit)
    return ArnoldInstance(
        num_groups=num_groups,
        group_size=group_size,
        minipods=tuple(f"m{k}" for k in range(len(free))),
        free_nodes=np.array(free, dtype=np.int64),
        minipod_weight=minipod_weight,
        spread_weight=spread_weight,
    )


def formulated(cluster: Cluster, job: Job, parameters: ArnoldParameters, *others: Job) -> ArnoldFormulation:
    formulation = formulate_arnold(Snapshot(cluster=cluster, jobs=(job, *others)), parameters, PhaseClock())
    assert isinstance(formulation, ArnoldFormulation)
    return formulation


def solved(formulation: ArnoldFormulation, solver: str = "highs", time_limit_s: float = 20.0) -> SolveResult:
    options = SolveOptions(solver=solver, time_limit_s=time_limit_s, relative_gap=0.0)
    return formulation.solve(options, SolveMonitor())


def planned(formulation: ArnoldFormulation, solver: str = "highs") -> tuple[SolveResult, Plan, PretrainingPlacement]:
    """Solve to the end, extract, check."""
    result = solved(formulation, solver)
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    assert plan.pretraining is not None
    return result, plan, plan.pretraining


def compositions(total: int, parts: int) -> list[tuple[int, ...]]:
    """Ways to write `total` as an ordered sum of `parts` numbers, each at least 0."""
    return [split for split in product(range(total + 1), repeat=parts) if sum(split) == total]


def every_split(data: ArnoldInstance) -> Iterator[list[tuple[int, ...]]]:
    """All ways to put whole nodes of the groups into minipods, up to the order of the groups."""
    ways = compositions(data.group_size, data.num_minipods)

    def extend(first: int, left: list[int], chosen: list[tuple[int, ...]]) -> Iterator[list[tuple[int, ...]]]:
        if len(chosen) == data.num_groups:
            yield chosen
            return
        for k in range(first, len(ways)):
            rest = [have - take for have, take in zip(left, ways[k], strict=True)]
            if min(rest) >= 0:
                yield from extend(k, rest, [*chosen, ways[k]])

    yield from extend(0, data.free_nodes.tolist(), [])


def best_by_search(data: ArnoldInstance) -> float | None:
    """Optimum of Eq. 4 by trying every split; None when there is none. Shares no code with what it judges."""
    values = [
        data.minipod_weight * sum(any(group[j] for group in split) for j in range(data.num_minipods))
        + data.spread_weight * max(sum(take > 0 for take in group) for group in split)
        for split in every_split(data)
    ]
    return min(values, default=None)


ALPHAS = (0.0, 0.1, 0.3, 0.5, 1.0)


@st.composite
def tiny_instances(draw: st.DrawFn, *, feasible: bool = True) -> ArnoldInstance:
    """Instances that `best_by_search` can exhaust."""
    num_groups, group_size = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    free = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    needed = num_groups * group_size
    if feasible and sum(free) < needed:
        free[0] += needed - sum(free)
    return instance(num_groups, group_size, free, draw(st.sampled_from(ALPHAS)))
