"""Configurations: bundles (nodes, GPUs, GPU type) that a job can be given (Sia section 3.3)."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from stowplan.arrays import IntVector, Mask
from stowplan.errors import InputError
from topology.cluster import Cluster, NodeState


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfigurationSet:
    """C configurations over T GPU types, as dense arrays.

    gpu_types: the T names; type_index, num_nodes, num_gpus: int64 (C,). Ordered by type, then GPUs.
    """

    gpu_types: tuple[str, ...]
    type_index: IntVector
    num_nodes: IntVector
    num_gpus: IntVector

    def __len__(self) -> int:
        return int(self.type_index.size)

    def label(self, c: int) -> str:
        """Configuration `c` in the paper's notation: `(nodes,gpus,type)`."""
        return f"({self.num_nodes[c]},{self.num_gpus[c]},{self.gpu_types[self.type_index[c]]})"

    def up_to(self, num_gpus: int) -> "ConfigurationSet":
        """Without multi-node configurations of more than `num_gpus` GPUs. Single-node ones stay: they tell R."""
        return self.subset((self.num_nodes == 1) | (self.num_gpus <= num_gpus))

    def subset(self, kept: Mask) -> "ConfigurationSet":
        """The configurations with `kept` (C,)."""
        return ConfigurationSet(
            gpu_types=self.gpu_types,
            type_index=self.type_index[kept],
            num_nodes=self.num_nodes[kept],
            num_gpus=self.num_gpus[kept],
        )


def enumerate_configurations(
    cluster: Cluster, *, max_nodes: int | None = None, multi_node_counts: Collection[int] | None = None
) -> ConfigurationSet:
    """Valid configurations of a cluster (Sia section 3.3).

    Per GPU type, with R the largest GPU count of its nodes that are not down and N the number of such nodes with
    exactly R GPUs: (1, 2^k) for 2^k < R, (1, R), and (n, n R) for n = 2..N. When R is no power of two, (1, R) stands
    beside the powers below it. Where GPU counts differ, smaller nodes serve single-node configurations only. A type
    whose nodes are all down has no configurations, but keeps its place in `gpu_types`.

    `max_nodes` drops configurations of more nodes. `multi_node_counts` keeps only multi-node configurations of these
    node counts (None: all): on tens of thousands of nodes a geometric choice keeps the set small, at the price that
    jobs cannot get what lies between.

    Raises
    ------
    InputError
        When `max_nodes` is below 1.
    """
    if max_nodes is not None and max_nodes < 1:
        raise InputError(f"max_nodes is {max_nodes}; must be at least 1")
    counts: dict[str, Counter[int]] = {kind.name: Counter() for kind in cluster.gpu_types}
    for node in cluster.nodes:
        if node.state is not NodeState.DOWN:
            counts[node.gpu_type][node.num_gpus] += 1
    parts = [_of_type(counts[kind.name], max_nodes, multi_node_counts) for kind in cluster.gpu_types]
    return ConfigurationSet(
        gpu_types=tuple(counts),
        type_index=np.repeat(np.arange(len(parts), dtype=np.int64), [len(nodes) for nodes, _ in parts]),
        num_nodes=np.concatenate([np.empty(0, dtype=np.int64), *(nodes for nodes, _ in parts)]),
        num_gpus=np.concatenate([np.empty(0, dtype=np.int64), *(gpus for _, gpus in parts)]),
    )


def _of_type(
    nodes_of_size: Counter[int], max_nodes: int | None, multi_node_counts: Collection[int] | None
) -> tuple[IntVector, IntVector]:
    """Node and GPU counts of one type's configurations; `nodes_of_size` counts its nodes per GPU count."""
    if not nodes_of_size:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    largest = max(nodes_of_size)
    within = 2 ** np.arange((largest - 1).bit_length(), dtype=np.int64)
    last = nodes_of_size[largest] if max_nodes is None else min(nodes_of_size[largest], max_nodes)
    across = np.arange(2, last + 1, dtype=np.int64)
    if multi_node_counts is not None:
        across = across[np.isin(across, np.array(sorted(multi_node_counts), dtype=np.int64))]
    num_nodes = np.concatenate([np.ones(within.size + 1, dtype=np.int64), across])
    return num_nodes, np.concatenate([within, np.array([largest]), across * largest])
