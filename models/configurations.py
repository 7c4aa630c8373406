"""Configurations: bundles (nodes, GPUs, GPU type) that a job can be given (Sia section 3.3)."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from stowplan.arrays import FloatVector, IntVector, Mask
from stowplan.errors import InputError
from stowplan.living import Living, OfLiving
from topology.bandwidth import best_fractions, fractions_of
from topology.cluster import Cluster, NodeState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationSet(Living):
    """C configurations over T GPU types, as dense arrays.

    gpu_types: the T names; type_index, num_nodes, num_gpus: int64 (C,). Ordered by type, then GPUs.
    bandwidth_fraction: float64 (C,), the share of the inter-node bandwidth that so many nodes of the cluster have
    between them where they spread least; 1 inside a node. In the sets of `models.allocation.horizon.classes` it is the
    share that they are asked to have, and a (type, nodes, GPUs) may be there several times.
    """

    gpu_types: tuple[str, ...]
    type_index: IntVector
    num_nodes: IntVector
    num_gpus: IntVector
    bandwidth_fraction: FloatVector

    def __len__(self) -> int:
        return int(self.type_index.size)

    def label(self, c: int) -> str:
        """Configuration `c` in the paper's notation: `(nodes,gpus,type)`."""
        return f"({self.num_nodes[c]},{self.num_gpus[c]},{self.gpu_types[self.type_index[c]]})"

    def layers(self) -> "list[IntVector]":
        """Positions of the configurations: the first of each (type, nodes, GPUs), the second, and so on."""
        seen: Counter[tuple[int, int, int]] = Counter()
        layer = []
        shapes = zip(self.type_index.tolist(), self.num_nodes.tolist(), self.num_gpus.tolist(), strict=True)
        for shape in shapes:
            layer.append(seen[shape])
            seen[shape] += 1
        return [np.flatnonzero(np.array(layer) == k) for k in range(max(layer, default=-1) + 1)] or [
            np.zeros(0, dtype=np.int64)
        ]

    def up_to(self, num_gpus: int) -> "ConfigurationSet":
        """Without multi-node configurations of more than `num_gpus` GPUs. Single-node ones stay: they tell R."""
        return self.subset((self.num_nodes == 1) | (self.num_gpus <= num_gpus))

    def subset(self, kept: Mask) -> "ConfigurationSet":
        """The configurations with `kept` (C,)."""
        return self.taken(np.flatnonzero(kept))

    def taken(self, positions: IntVector) -> "ConfigurationSet":
        """The configurations at these positions, in this order."""
        return ConfigurationSet(
            gpu_types=self.gpu_types,
            type_index=self.type_index[positions],
            num_nodes=self.num_nodes[positions],
            num_gpus=self.num_gpus[positions],
            bandwidth_fraction=self.bandwidth_fraction[positions],
        )


_all_of: OfLiving[Cluster, ConfigurationSet] = OfLiving()


def enumerate_configurations(
    cluster: Cluster, *, max_nodes: int | None = None, multi_node_counts: Collection[int] | None = None
) -> ConfigurationSet:
    """Valid configurations of a cluster (Sia section 3.3).

    Per GPU type, with R the largest GPU count of its nodes that are not down and N the number of such nodes with
    exactly R GPUs: (1, 2^k) for 2^k < R, (1, R), and (n, n R) for n = 2..N. When R is no power of two, (1, R) stands
    beside the powers below it. Where GPU counts differ, smaller nodes serve single-node configurations only. A type
    whose nodes are all down has no configurations, but keeps its place in `gpu_types`. The least spread of n nodes is
    that over all N of them, whatever is free: what a configuration promises must not change with what others have.

    `max_nodes` drops configurations of more nodes. `multi_node_counts` keeps only multi-node configurations of these
    node counts (None: all): on tens of thousands of nodes a geometric choice keeps the set small, at the price that
    jobs cannot get what lies between.

    Raises
    ------
    InputError
        When `max_nodes` is below 1.
    """
    if max_nodes is None and multi_node_counts is None:
        known = _all_of.get(cluster)
        if known is None:
            known = _enumerated(cluster, None, None)
            _all_of.put(cluster, known)
        return known
    return _enumerated(cluster, max_nodes, multi_node_counts)


def _enumerated(cluster: Cluster, max_nodes: int | None, multi_node_counts: Collection[int] | None) -> ConfigurationSet:
    if max_nodes is not None and max_nodes < 1:
        raise InputError(f"max_nodes is {max_nodes}; must be at least 1")
    paths: dict[str, dict[int, list[tuple[str, ...]]]] = {kind.name: {} for kind in cluster.gpu_types}
    for node in cluster.nodes:
        if node.state is not NodeState.DOWN:
            paths[node.gpu_type].setdefault(node.num_gpus, []).append(node.path)
    fractions = fractions_of(cluster)
    parts = [_of_type(paths[kind.name], fractions, max_nodes, multi_node_counts) for kind in cluster.gpu_types]
    return ConfigurationSet(
        gpu_types=tuple(paths),
        type_index=np.repeat(np.arange(len(parts), dtype=np.int64), [len(nodes) for nodes, _, _ in parts]),
        num_nodes=np.concatenate([np.empty(0, dtype=np.int64), *(nodes for nodes, _, _ in parts)]),
        num_gpus=np.concatenate([np.empty(0, dtype=np.int64), *(gpus for _, gpus, _ in parts)]),
        bandwidth_fraction=np.concatenate([np.empty(0), *(best for _, _, best in parts)]),
    )


def _of_type(
    paths_of_size: Mapping[int, Sequence[tuple[str, ...]]],
    fractions: Sequence[float],
    max_nodes: int | None,
    multi_node_counts: Collection[int] | None,
) -> tuple[IntVector, IntVector, FloatVector]:
    """Node and GPU counts of one type's configurations, and shares of the bandwidth at best.

    `paths_of_size` has the paths of its nodes per GPU count.
    """
    if not paths_of_size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    largest = max(paths_of_size)
    within = 2 ** np.arange((largest - 1).bit_length(), dtype=np.int64)
    best = np.array(best_fractions(fractions, paths_of_size[largest]))
    last = best.size if max_nodes is None else min(best.size, max_nodes)
    across = np.arange(2, last + 1, dtype=np.int64)
    if multi_node_counts is not None:
        across = across[np.isin(across, np.array(sorted(multi_node_counts), dtype=np.int64))]
    num_nodes = np.concatenate([np.ones(within.size + 1, dtype=np.int64), across])
    num_gpus = np.concatenate([within, np.array([largest]), across * largest])
    return num_nodes, num_gpus, best[num_nodes - 1]
