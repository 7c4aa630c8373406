"""Frozen cluster types. A `Cluster` in hand is legal: its construction refuses everything else.

Tiers run from coarsest to finest. A unit of a tier (one pod, one leaf group) is identified by its path
*prefix*, since real fabrics reuse the names of finer tiers under different parents.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from stowplan.errors import Issue, raise_for_errors
from stowplan.living import Living
from stowplan.pickling import quickly_pickled


class NodeState(StrEnum):
    """`drained` nodes take no new work; on `down` nodes nothing runs."""

    UP = "up"
    DRAINED = "drained"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One product: all GPUs of a node are of one type."""

    name: str
    memory_bytes: int
    peak_flops_per_s: float
    intra_node_bandwidth_bytes_per_s: float
    inter_node_bandwidth_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of the fabric.

    `bandwidth_fraction` is the share (0, 1] of the inter-node bandwidth that two nodes get whose finest
    common unit is of this tier.
    """

    name: str
    bandwidth_fraction: float = 1.0


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host.

    `gpus_in_use` are GPU indices (0-based) taken by work that is not a job of the snapshot. `path` names
    the unit of each tier, coarsest first. `state_reason`: why the node is in its state, in words (None: nobody said).
    """

    id: str
    gpu_type: str
    num_gpus: int
    gpus_in_use: tuple[int, ...] = ()
    state: NodeState = NodeState.UP
    path: tuple[str, ...] = ()
    state_reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster(Living):
    """Nodes under named tiers; `minipod_tier` names the tier whose units are the minipods (None: no such tier).

    `core_bandwidth_fraction` holds for nodes that share no unit at all.

    Raises
    ------
    InputError
        With one issue per fault, pointers relative to the cluster (`/nodes/3/path`).
    """

    gpu_types: tuple[GpuType, ...]
    nodes: tuple[Node, ...]
    tiers: tuple[Tier, ...] = ()
    minipod_tier: str | None = None
    core_bandwidth_fraction: float = 1.0

    def __post_init__(self) -> None:
        raise_for_errors(list(_faults(self)), "cluster")

    @property
    def num_gpus(self) -> int:
        """GPUs of all nodes, whatever their state."""
        return sum(node.num_gpus for node in self.nodes)


def _faults(cluster: Cluster) -> Iterator[Issue]:
    """Yield every reason why the cluster is not legal."""
    if not cluster.nodes:
        yield Issue(code="empty_cluster", pointer="/nodes", detail="the cluster has no nodes; give at least one")
    yield from _duplicates("gpu_types", [kind.name for kind in cluster.gpu_types])
    yield from _duplicates("tiers", [tier.name for tier in cluster.tiers])
    yield from _duplicates("nodes", [node.id for node in cluster.nodes])
    for k, kind in enumerate(cluster.gpu_types):
        for field in (
            "memory_bytes",
            "peak_flops_per_s",
            "intra_node_bandwidth_bytes_per_s",
            "inter_node_bandwidth_bytes_per_s",
        ):
            yield from _not_positive(f"/gpu_types/{k}/{field}", getattr(kind, field))
    tier_names = [tier.name for tier in cluster.tiers]
    if cluster.minipod_tier is not None and cluster.minipod_tier not in tier_names:
        yield Issue(
            code="unknown_tier",
            pointer="/minipod_tier",
            detail=f"no tier is called {cluster.minipod_tier!r}; the tiers are {tier_names}",
        )
    fractions = [(f"/tiers/{k}/bandwidth_fraction", tier.bandwidth_fraction) for k, tier in enumerate(cluster.tiers)]
    for pointer, fraction in [*fractions, ("/core_bandwidth_fraction", cluster.core_bandwidth_fraction)]:
        if not 0 < fraction <= 1:
            yield Issue(code="out_of_range", pointer=pointer, detail=f"is {fraction}; must be above 0 and at most 1")
    known = {kind.name for kind in cluster.gpu_types}
    for k, node in enumerate(cluster.nodes):
        yield from _node_faults(f"/nodes/{k}", node, known, len(cluster.tiers))


def _node_faults(pointer: str, node: Node, gpu_types: set[str], depth: int) -> Iterator[Issue]:
    if node.gpu_type not in gpu_types:
        yield Issue(
            code="unknown_gpu_type",
            pointer=f"{pointer}/gpu_type",
            detail=f"node {node.id!r} is of GPU type {node.gpu_type!r}; the cluster knows {sorted(gpu_types)}",
        )
    yield from _not_positive(f"{pointer}/num_gpus", node.num_gpus)
    if len(node.path) != depth:
        yield Issue(
            code="path_depth",
            pointer=f"{pointer}/path",
            detail=f"node {node.id!r} has a path of length {len(node.path)}; it must be {depth}, the number of tiers",
        )
    wrong = sorted({gpu for gpu in node.gpus_in_use if not 0 <= gpu < node.num_gpus})
    if wrong:
        yield Issue(
            code="unknown_gpu",
            pointer=f"{pointer}/gpus_in_use",
            detail=f"node {node.id!r} has GPUs 0 to {node.num_gpus - 1}; there is no GPU {wrong}",
        )
    if len(set(node.gpus_in_use)) != len(node.gpus_in_use):
        yield Issue(
            code="gpu_taken_twice",
            pointer=f"{pointer}/gpus_in_use",
            detail=f"node {node.id!r} lists a GPU more than once; list each index once",
        )


def _duplicates(collection: str, names: list[str]) -> Iterator[Issue]:
    counts = Counter(names)
    for k, name in enumerate(names):
        if counts[name] > 1:
            yield Issue(
                code="duplicate_id",
                pointer=f"/{collection}/{k}",
                detail=f"{name!r} occurs {counts[name]} times in {collection}; names must be unique",
            )


def _not_positive(pointer: str, value: float) -> Iterator[Issue]:
    if not (math.isfinite(value) and value > 0):
        yield Issue(code="not_positive", pointer=pointer, detail=f"is {value}; must be finite and above 0")
