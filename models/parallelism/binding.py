"""From a plan on virtual nodes to the same plan on real ones."""

from collections.abc import Sequence
from dataclasses import replace

from models.parallel_plan import Gpu, ParallelPlan, Replica
from models.workload import NodeGpus
from stowplan.errors import InputError


def bind_plan(plan: ParallelPlan, gpus: Sequence[NodeGpus]) -> ParallelPlan:
    """Put the plan on `gpus`, which belong to one GPU type.

    A virtual node becomes one real node that gives exactly as many GPUs as the plan uses there, so that tensor groups
    stay inside nodes and the plan is as fast as it was on paper. Virtual nodes are taken in pipeline order, real ones
    of equal size in the order of `gpus`: give neighbours of the network one after another.

    Raises
    ------
    InputError
        When a node is listed twice, or the sizes of the nodes are not those of the plan.
    """
    wanted: dict[str, set[int]] = {}
    for node, gpu in plan.gpus:
        wanted.setdefault(node, set()).add(gpu)
    if len({part.node for part in gpus}) < len(gpus):
        raise InputError(f"a node is listed twice in {[part.node for part in gpus]}; list each node once")
    sizes = sorted((len(used) for used in wanted.values()), reverse=True)
    given = sorted((len(part.gpus) for part in gpus), reverse=True)
    if sizes != given:
        raise InputError(
            f"the plan {plan.notation()} needs nodes with {_listed(sizes)} GPUs; given are {_listed(given)}"
        )
    # Sorting is stable: among nodes of one size, both sides keep their order.
    virtual = sorted(wanted, key=lambda node: -len(wanted[node]))
    real = sorted(gpus, key=lambda part: -len(part.gpus))
    places = {
        (node, index): (part.node, gpu)
        for node, part in zip(virtual, real, strict=True)
        for index, gpu in zip(sorted(wanted[node]), sorted(part.gpus), strict=True)
    }
    stages = tuple(
        replace(stage, replicas=tuple(_moved(replica, places) for replica in stage.replicas)) for stage in plan.stages
    )
    return replace(plan, stages=stages)


def _moved(replica: Replica, places: dict[Gpu, Gpu]) -> Replica:
    moved = [places[replica.node, gpu] for gpu in replica.gpus]
    return replace(replica, node=moved[0][0], gpus=tuple(gpu for _, gpu in moved))


def _listed(sizes: Sequence[int]) -> str:
    """`2 x 8 + 4` for (8, 8, 4)."""
    counts = {size: sizes.count(size) for size in sizes}
    return " + ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in counts.items()) or "none"
