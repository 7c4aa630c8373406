"""Stages onto virtual nodes of one size, and the plan that comes of it.

n GPUs are whole nodes of w GPUs and, when w does not divide n, one node of the rest. A stage of g GPUs takes g // w
whole nodes, and its rest sits in one node: tensor groups and small stages do not leave a node.
"""

from collections.abc import Sequence
from functools import lru_cache

from models.parallel_plan import Gpu, ParallelPlan, Replica, Stage, even_split

Places = tuple[Gpu, ...]


@lru_cache(maxsize=256)
def stage_places(sizes: tuple[int, ...], gpus_per_node: int) -> tuple[Places, ...] | None:
    """(node, GPU) of every stage, whose sizes are `sizes`; None when they do not pack.

    Nodes are called `0`, `1`, ... by the first stage on them.
    """
    holder = _shared_nodes(sizes, gpus_per_node)
    return None if holder is None else _named(sizes, gpus_per_node, holder)


def packs(sizes: tuple[int, ...], gpus_per_node: int) -> bool:
    """Whether `stage_places` finds places."""
    return _shared_nodes(sizes, gpus_per_node) is not None


def _shared_nodes(sizes: tuple[int, ...], gpus_per_node: int) -> dict[int, tuple[int, int]] | None:
    """Stage -> (shared node, first GPU on it) of its rest; None when the rests find no room.

    Rests go, the larger first, into the node with the least room that has enough of it. Powers of two on nodes of a
    power of two always pack.
    """
    whole, rest = divmod(sum(sizes), gpus_per_node)
    room = [gpus_per_node] * (whole - sum(size // gpus_per_node for size in sizes)) + [rest] * (rest > 0)
    holder: dict[int, tuple[int, int]] = {}
    for j in sorted(range(len(sizes)), key=lambda j: -(sizes[j] % gpus_per_node)):
        left = sizes[j] % gpus_per_node
        fitting = [k for k, free in enumerate(room) if free >= left]
        if left and not fitting:
            return None
        if left:
            k = min(fitting, key=lambda k: room[k])
            holder[j] = (k, gpus_per_node - room[k] if k < len(room) - (rest > 0) else rest - room[k])
            room[k] -= left
    return holder


def _named(sizes: tuple[int, ...], gpus_per_node: int, holder: dict[int, tuple[int, int]]) -> tuple[Places, ...]:
    """Places in pipeline order; `holder` as `_shared_nodes` has it."""
    names: dict[tuple[int, int], str] = {}
    stages: list[Places] = []
    for j, size in enumerate(sizes):
        places: list[Gpu] = []
        for k in range(size // gpus_per_node):
            name = names.setdefault((j, k), str(len(names)))
            places += [(name, gpu) for gpu in range(gpus_per_node)]
        if j in holder:
            shared, first = holder[j]
            name = names.setdefault((-1, shared), str(len(names)))
            places += [(name, first + gpu) for gpu in range(size % gpus_per_node)]
        stages.append(tuple(places))
    return tuple(stages)


def build_plan(
    *,
    layers: Sequence[int],
    degrees: Sequence[tuple[int, int]],
    places: Sequence[Places],
    gpu_type: str,
    micro_batch: int,
    num_micro_batches: int,
) -> ParallelPlan:
    """Build the plan of stages with `layers` layers and (dp, tp) `degrees` at `places`."""
    stages = []
    for count, (dp, tp), where in zip(layers, degrees, places, strict=True):
        replicas = tuple(
            Replica(
                node=where[j * tp][0],
                gpu_type=gpu_type,
                gpus=tuple(gpu for _, gpu in where[j * tp : (j + 1) * tp]),
                local_batch=local_batch,
            )
            for j, local_batch in enumerate(even_split(micro_batch, dp))
        )
        stages.append(Stage(num_layers=count, replicas=replicas))
    return ParallelPlan(stages=tuple(stages), num_micro_batches=num_micro_batches)
