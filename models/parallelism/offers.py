"""Which nodes of a cluster a job gets for a number of GPUs: whole nodes, and one for the rest."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from models.parallelism.request import Offer
from models.workload import NodeGpus
from stowplan.errors import InputError, Issue, pointer_of, raise_for_errors
from topology.cluster import Cluster, NodeState


def free_gpus(cluster: Cluster) -> tuple[NodeGpus, ...]:
    """Free GPUs of the nodes that take new work, neighbours of the network one after another."""
    found = [
        NodeGpus(node=node.id, gpus=tuple(sorted(set(range(node.num_gpus)) - set(node.gpus_in_use))))
        for node in sorted(cluster.nodes, key=lambda node: (node.path, node.id))
        if node.state is NodeState.UP
    ]
    return tuple(part for part in found if part.gpus)


def offers_of(
    cluster: Cluster, gpus: Sequence[NodeGpus], counts: Mapping[str, Sequence[int]] | None = None
) -> tuple[Offer, ...]:
    """Offer GPUs of a cluster, type by type.

    Parameters
    ----------
    counts
        GPU type -> numbers of GPUs. None: all types, powers of two and everything, as far as that makes whole nodes.
    """
    type_of = {node.id: node.gpu_type for node in cluster.nodes}
    offers = []
    for kind in cluster.gpu_types:
        nodes = tuple(part for part in gpus if type_of.get(part.node) == kind.name)
        if not nodes or (counts is not None and kind.name not in counts):
            continue
        size = max(len(part.gpus) for part in nodes)
        wanted = tuple(counts[kind.name]) if counts is not None else _usual_counts(nodes, size)
        offers.append(Offer(gpu_type=kind, gpus_per_node=size, counts=wanted, nodes=nodes))
    return tuple(offers)


def exact_offers(cluster: Cluster, gpus: Sequence[NodeGpus]) -> tuple[Offer, ...]:
    """Offer exactly these GPUs, type by type.

    Raises
    ------
    InputError
        When a GPU is listed twice, does not exist or is in use, or the nodes of a type do not give equally many, but
        for a rest on one of them; pointers are relative to a map of nodes.
    """
    refuse_taken(cluster, gpus)
    order = {part.node: k for k, part in enumerate(free_gpus(cluster))}
    exact = []
    for offer in offers_of(cluster, sorted(gpus, key=lambda part: order[part.node])):
        nodes = offer.nodes or ()
        sizes = sorted((len(part.gpus) for part in nodes), reverse=True)
        if len(fewest_nodes(nodes, sum(sizes), offer.gpus_per_node) or ()) != len(nodes):
            raise InputError(
                f"the nodes of type {offer.gpu_type.name!r} give {sizes} GPUs; give equally many on every node, but "
                "for a rest on one of them"
            )
        exact.append(replace(offer, counts=(sum(sizes),)))
    return tuple(exact)


def refuse_taken(cluster: Cluster, gpus: Sequence[NodeGpus]) -> None:
    """Raise InputError when a GPU is listed twice, does not exist, is in use, or its node takes no work; pointers are
    relative to a map of nodes."""
    free = {part.node: part.gpus for part in free_gpus(cluster)}
    raise_for_errors([issue for part in gpus for issue in _slice_issues(part, free.get(part.node, ()))], "placement")


def _usual_counts(nodes: Sequence[NodeGpus], gpus_per_node: int) -> tuple[int, ...]:
    total = sum(len(part.gpus) for part in nodes)
    counts = sorted({1 << k for k in range(total.bit_length())} | {total})
    return tuple(count for count in counts if fewest_nodes(nodes, count, gpus_per_node) is not None)


def _slice_issues(part: NodeGpus, free: Sequence[int]) -> Iterator[Issue]:
    pointer = pointer_of(part.node)
    if len(set(part.gpus)) != len(part.gpus):
        yield Issue(code="bad_gpu_list", pointer=pointer, detail=f"is {list(part.gpus)}; list each index once")
    wrong = sorted(set(part.gpus) - set(free))
    if wrong:
        detail = (
            f"GPU {wrong[0]} of node {part.node!r} does not exist, is taken, or its node is not up; free are "
            f"{list(free)}"
        )
        yield Issue(code="gpu_not_free", pointer=pointer, detail=detail)


def fewest_nodes(nodes: Sequence[NodeGpus], num_gpus: int, gpus_per_node: int) -> tuple[NodeGpus, ...] | None:
    """GPUs of whole nodes of `gpus_per_node`, and the rest on one further node, the one with the least room for it.

    None when there are no such nodes.
    """
    whole, rest = divmod(num_gpus, gpus_per_node)
    full = [part for part in nodes if len(part.gpus) >= gpus_per_node]
    chosen = [NodeGpus(node=part.node, gpus=part.gpus[:gpus_per_node]) for part in full[:whole]]
    if len(chosen) < whole:
        return None
    if rest:
        taken = {part.node for part in chosen}
        fitting = [part for part in nodes if part.node not in taken and len(part.gpus) >= rest]
        if not fitting:
            return None
        tightest = min(fitting, key=lambda part: len(part.gpus))
        chosen.append(NodeGpus(node=tightest.node, gpus=tightest.gpus[:rest]))
    return tuple(chosen)
