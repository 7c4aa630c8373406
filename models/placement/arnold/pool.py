"""Nodes that a pre-training job may take: up, with every GPU free, of one GPU type and size, by minipod."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from models.placement.occupancy import occupancy
from models.workload import Snapshot
from stowplan.arrays import IntVector
from stowplan.living import OfLiving
from topology.cluster import Node

_Path = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """Whole free nodes per minipod.

    minipods: labels (path joined by `/`), sorted by path; every minipod that has nodes of the type, free or not.
    nodes: per minipod the free node ids in the order in which they are handed out: finer units with many free nodes
    first, so that few units are touched, then by name. `num_other_size` nodes of the type have another GPU count.
    """

    gpu_type: str
    gpus_per_node: int
    minipods: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    num_other_size: int

    @property
    def free_nodes(self) -> IntVector:
        """Free nodes per minipod (M,)."""
        return np.array([len(nodes) for nodes in self.nodes], dtype=np.int64)


# A snapshot is asked when it is validated, when its problem is built, and for its bins.
_pools: OfLiving[Snapshot, dict[tuple[str, str], NodePool | None]] = OfLiving()


def node_pool(snapshot: Snapshot, gpu_type: str, tier: str) -> NodePool | None:
    """Pool of one GPU type with the units of `tier` as minipods; None when the cluster has no node of the type.

    Where nodes of the type differ in GPU count, those of the most common count are taken (of the largest, in a tie).
    Nodes on which any other job of the snapshot runs are not free: this policy moves nobody.
    """
    known = _pools.get(snapshot)
    if known is None:
        known = {}
        _pools.put(snapshot, known)
    if (gpu_type, tier) not in known:
        known[gpu_type, tier] = _read_pool(snapshot, gpu_type, tier)
    return known[gpu_type, tier]


def _read_pool(snapshot: Snapshot, gpu_type: str, tier: str) -> NodePool | None:
    cluster = snapshot.cluster
    depth = next(k for k, known in enumerate(cluster.tiers) if known.name == tier) + 1
    sizes = Counter(node.num_gpus for node in cluster.nodes if node.gpu_type == gpu_type)
    if not sizes:
        return None
    gpus_per_node = max(sizes, key=lambda size: (sizes[size], size))
    state = occupancy(snapshot)
    busy = {node for slices in state.running.values() for node, _ in slices}
    whole = (1 << gpus_per_node) - 1
    like = [
        (node, mask == whole and i not in busy)
        for i, (node, mask) in enumerate(zip(cluster.nodes, state.free_masks, strict=True))
        if node.gpu_type == gpu_type and node.num_gpus == gpus_per_node
    ]
    minipods, nodes = by_minipod([node for node, is_free in like if is_free], depth, among=[node for node, _ in like])
    return NodePool(
        gpu_type=gpu_type,
        gpus_per_node=gpus_per_node,
        minipods=minipods,
        nodes=nodes,
        num_other_size=sizes.total() - sizes[gpus_per_node],
    )


def by_minipod(
    free: Iterable[Node], depth: int, among: Iterable[Node] = ()
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Labels and free nodes of minipods, as `NodePool` has them; `depth`: units that name a minipod; `among`: nodes
    whose minipods are named, too."""
    by_path: defaultdict[_Path, list[str]] = defaultdict(list)
    for node in among:
        by_path[node.path]
    for node in free:
        by_path[node.path].append(node.id)
    minipods: defaultdict[_Path, dict[_Path, list[str]]] = defaultdict(dict)
    for path, members in by_path.items():
        minipods[path[:depth]][path] = members
    return (
        tuple("/".join(prefix) for prefix in sorted(minipods)),
        tuple(_hand_out_order(minipods[prefix], depth) for prefix in sorted(minipods)),
    )


def _hand_out_order(by_path: Mapping[_Path, list[str]], depth: int) -> tuple[str, ...]:
    """Ids sorted by the free nodes of each finer unit, largest first, unit by unit, then by name."""
    free: Counter[_Path] = Counter()
    for path, members in by_path.items():
        for k in range(depth + 1, len(path) + 1):
            free[path[:k]] += len(members)

    def key(path: _Path) -> tuple[tuple[int, str], ...]:
        return tuple((-free[path[:k]], path[k - 1]) for k in range(depth + 1, len(path) + 1))

    return tuple(chain.from_iterable(sorted(by_path[path]) for path in sorted(by_path, key=key)))
