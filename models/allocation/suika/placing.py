"""Where a plan goes on free GPUs: close together, tensor groups inside nodes, large holes kept whole.

The node with the least room that holds the whole plan; else the smallest unit of the topology, with the least room,
that holds it; there the nodes with most room, so that few are needed, and for the last part the fullest node that fits.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from models.parallel_plan import Gpu, ParallelPlan, Replica

FreeGpus = Mapping[str, Collection[int]]
Paths = Mapping[str, tuple[str, ...]]


def place(plan: ParallelPlan, free: FreeGpus, paths: Paths) -> ParallelPlan | None:
    """Move the tensor groups of the plan to free GPUs of one type.

    Parameters
    ----------
    free
        Node -> indices of its free GPUs; nodes of the plan's GPU type only.
    paths
        Node -> units above it, coarsest first.

    Returns
    -------
    ParallelPlan | None
        None when the groups do not fit: always right when every group size divides the next larger one.
    """
    groups = sorted(
        ((i, j) for i, stage in enumerate(plan.stages) for j in range(stage.dp)), key=lambda at: -plan.stages[at[0]].tp
    )
    sizes = [plan.stages[i].tp for i, _ in groups]
    for nodes in _regions(free, paths, plan.num_gpus):
        chosen = _filled(nodes, {node: len(free[node]) for node in nodes}, sizes)
        if chosen is not None:
            return _moved(plan, dict(zip(groups, chosen, strict=True)), free)
    return None


def _regions(free: FreeGpus, paths: Paths, num_gpus: int) -> Iterator[list[str]]:
    """Sets of nodes with enough GPUs, finest units first, within a tier the one with the least room first; the nodes
    of a set by room, most first."""
    nodes = [node for node in free if free[node]]
    depth = max((len(paths[node]) for node in nodes), default=0)
    for level in range(depth + 1, -1, -1):
        units: dict[tuple[str, ...], list[str]] = {}
        for node in nodes:
            units.setdefault((*paths[node], node) if level > depth else paths[node][:level], []).append(node)
        room = {unit: sum(len(free[node]) for node in members) for unit, members in units.items()}
        for unit in sorted((unit for unit in units if room[unit] >= num_gpus), key=lambda unit: room[unit]):
            yield sorted(units[unit], key=lambda node: -len(free[node]))


def _filled(nodes: Sequence[str], room: dict[str, int], sizes: Sequence[int]) -> list[str] | None:
    """Node of every group; `sizes` are descending."""
    chosen: list[str | None] = [None] * len(sizes)
    for node in nodes:
        here = []
        for k, size in enumerate(sizes):
            if chosen[k] is None and size <= room[node]:
                chosen[k] = node
                room[node] -= size
                here.append(k)
        if None not in chosen:
            _to_fullest(chosen, here, sum(sizes[k] for k in here), nodes, room)
            return [name for name in chosen if name is not None]
    return None


def _to_fullest(
    chosen: list[str | None], here: Sequence[int], num_gpus: int, nodes: Sequence[str], room: Mapping[str, int]
) -> None:
    """Move the groups of the last node to the node that they fill best, of those that are not used yet."""
    unused = [node for node in nodes if node not in chosen and room[node] >= num_gpus]
    last = chosen[here[0]] if here else None
    if last is not None and unused:
        best = min(unused, key=lambda node: room[node])
        if room[best] < room[last] + num_gpus:
            for k in here:
                chosen[k] = best


def _moved(plan: ParallelPlan, node_of: Mapping[tuple[int, int], str], free: FreeGpus) -> ParallelPlan:
    """The plan with every group on the next free GPUs of its node, in rank order."""
    left = {node: iter(sorted(free[node])) for node in set(node_of.values())}

    def moved(replica: Replica, node: str) -> Replica:
        return replace(replica, node=node, gpus=tuple(next(left[node]) for _ in replica.gpus))

    return replace(
        plan,
        stages=tuple(
            replace(
                stage,
                replicas=tuple(moved(replica, node_of[i, j]) for j, replica in enumerate(stage.replicas)),
            )
            for i, stage in enumerate(plan.stages)
        ),
    )


def renamed(plan: ParallelPlan, places: Mapping[Gpu, Gpu]) -> ParallelPlan:
    """The plan with GPUs exchanged for others, whole tensor groups to one node; GPUs not in `places` stay."""

    def moved(replica: Replica) -> Replica:
        gpus = [places.get((replica.node, gpu), (replica.node, gpu)) for gpu in replica.gpus]
        return replace(replica, node=gpus[0][0], gpus=tuple(gpu for _, gpu in gpus))

    return replace(
        plan,
        stages=tuple(
            replace(stage, replicas=tuple(moved(replica) for replica in stage.replicas)) for stage in plan.stages
        ),
    )
