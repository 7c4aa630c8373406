"""What readers of the inside of nodes give, and a cluster whose GPU types have it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType

NO_NETWORK = ("no_adapters", "adapters_without_speed")
"""Codes of remarks that the bandwidth between nodes is not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that was left out or assumed at `count` places. `code` is stable; `source`: where it stands."""

    code: str
    detail: str
    source: str
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """A node from inside. product: name of its GPUs in the catalogue, where the text names them.

    Bandwidths as `GpuType` has them, in one direction: of one GPU to the others, and of all adapters together; None
    where the text does not say.
    """

    source: str
    num_gpus: int
    product: str | None = None
    intra_node_bandwidth_bytes_per_s: float | None = None
    inter_node_bandwidth_bytes_per_s: float | None = None
    remarks: tuple[Remark, ...] = ()

    def corrected(self, kind: GpuType) -> GpuType:
        """A GPU type with the bandwidths of this node in place of its own."""
        fields = ("intra_node_bandwidth_bytes_per_s", "inter_node_bandwidth_bytes_per_s")
        return replace(kind, **{name: value for name in fields if (value := getattr(self, name)) is not None})


def with_node_facts(cluster: Cluster, facts: Mapping[str, NodeFacts]) -> tuple[Cluster, tuple[Remark, ...]]:
    """A cluster whose GPU types have the bandwidths of nodes by name of the type, and what is to be said of it.

    Raises
    ------
    InputError
        When no node has GPUs of such a type.
    """
    if not facts:
        return cluster, ()
    sizes: dict[str, list[tuple[str, int]]] = {}
    for node in cluster.nodes:
        sizes.setdefault(node.gpu_type, []).append((node.id, node.num_gpus))
    remarks: list[Remark] = []
    for name, found in facts.items():
        if name not in sizes:
            known = ", ".join(repr(kind) for kind in sizes)
            raise InputError(f"{found.source}: no node has GPUs of the type {name!r}; there are {known}")
        remarks += found.remarks
        others = [(own, size) for own, size in sizes[name] if size != found.num_gpus]
        if others:
            first, size = others[0]
            detail = f"is a node with {found.num_gpus} GPUs; node {first!r} of the type {name!r} has {size}"
            remarks.append(Remark(code="node_topology_differs", detail=detail, source=found.source, count=len(others)))
    kinds = tuple(facts[kind.name].corrected(kind) if kind.name in facts else kind for kind in cluster.gpu_types)
    return replace(cluster, gpu_types=kinds), tuple(remarks)
