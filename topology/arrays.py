"""The cluster as dense arrays, and the queries that policies ask of it.

A unit of tier k is a distinct path prefix of length k + 1; units are numbered in sorted order of their prefix,
so that the order of the nodes does not matter.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stowplan.arrays import FloatArray, IntArray, Mask
from stowplan.errors import InputError
from topology.cluster import Cluster, Node, NodeState

Scalar = TypeVar("Scalar", bound=np.generic)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClusterArrays:
    """N nodes (in the order of `Cluster.nodes`), K GPU types, L tiers (coarsest first). All arrays are read-only.

    Attributes
    ----------
    node_ids, gpu_types, tiers
        Names, of length N, K, L.
    minipod_tier
        Name of the tier whose units are the minipods, or None.
    gpu_type
        (N,) index into `gpu_types`.
    num_gpus
        (N,) GPUs of each node.
    num_free_gpus
        (N,) GPUs that new work may take: not in use, and 0 on drained and down nodes.
    whole_free
        (N,) whether the node is up and none of its GPUs is in use.
    up, drained, down
        (N,) state masks; exactly one holds for each node.
    units
        (N, L) unit of each node in each tier.
    unit_labels
        Per tier the labels of its units (path prefix joined by "/"), in the order of the unit index.
    intra_node_bandwidth_bytes_per_s, inter_node_bandwidth_bytes_per_s
        (K,) per GPU type.
    bandwidth_fraction_by_distance
        (L + 2,) share of the inter-node bandwidth at each tier distance; entry 0 (the same node) is 1 and unused.
    """

    node_ids: tuple[str, ...]
    gpu_types: tuple[str, ...]
    tiers: tuple[str, ...]
    minipod_tier: str | None
    gpu_type: IntArray
    num_gpus: IntArray
    num_free_gpus: IntArray
    whole_free: Mask
    up: Mask
    drained: Mask
    down: Mask
    units: IntArray
    unit_labels: tuple[tuple[str, ...], ...]
    intra_node_bandwidth_bytes_per_s: FloatArray
    inter_node_bandwidth_bytes_per_s: FloatArray
    bandwidth_fraction_by_distance: FloatArray

    def gpus_per_type(self) -> IntArray:
        """(K,) GPUs of each type, whatever the state of their node."""
        return _sums(self.gpu_type, self.num_gpus, len(self.gpu_types))

    def free_gpus_per_type(self) -> IntArray:
        """(K,) GPUs of each type that new work may take."""
        return _sums(self.gpu_type, self.num_free_gpus, len(self.gpu_types))

    def unit_index(self, tier: str) -> IntArray:
        """(N,) unit of each node in the named tier; any tier may act as the minipods.

        Raises
        ------
        InputError
            When the cluster has no such tier.
        """
        return self.units[:, self._tier_position(tier)]

    def labels(self, tier: str) -> tuple[str, ...]:
        """Labels of the units of the named tier, in the order of `unit_index`."""
        return self.unit_labels[self._tier_position(tier)]

    def free_nodes(self, tier: str | None = None, gpu_type: str | None = None) -> IntArray:
        """(U,) whole free nodes in each unit of a tier.

        Parameters
        ----------
        tier
            Tier whose U units are counted; None for the minipod tier.
        gpu_type
            Count nodes of this GPU type only; None for all.

        Raises
        ------
        InputError
            When the tier or the GPU type is unknown, or None was given and no tier is marked as the minipods.
        """
        name = self.minipod_tier if tier is None else tier
        if name is None:
            raise InputError(f"no tier is marked as the minipods; name one of the tiers {list(self.tiers)}")
        counted = self.whole_free
        if gpu_type is not None:
            if gpu_type not in self.gpu_types:
                raise InputError(f"no GPU type is called {gpu_type!r}; the cluster knows {sorted(self.gpu_types)}")
            counted = counted & (self.gpu_type == self.gpu_types.index(gpu_type))
        return _sums(self.unit_index(name), counted.astype(np.int64), len(self.labels(name)))

    def tier_distance(self, a: npt.ArrayLike, b: npt.ArrayLike) -> IntArray:
        """Tier distance between nodes `a` and `b` (node indices, any shapes that broadcast).

        0 is the same node, 1 a shared unit of the finest tier, ..., L a shared unit of the coarsest only,
        L + 1 no shared unit.
        """
        first, second = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        distance = np.asarray(np.where(first == second, 0, len(self.tiers) + 1), dtype=np.int64)
        for k in range(len(self.tiers)):
            distance = distance - ((first != second) & (self.units[first, k] == self.units[second, k]))
        return distance

    def tier_distances(self) -> IntArray:
        """(N, N) tier distances between all nodes."""
        every = np.arange(len(self.node_ids))
        return self.tier_distance(every[:, None], every[None, :])

    def bandwidth_bytes_per_s(self, a: npt.ArrayLike, b: npt.ArrayLike) -> FloatArray:
        """Bandwidth between nodes `a` and `b` (node indices, any shapes that broadcast), in bytes per second.

        Between nodes: the lower inter-node bandwidth of the two GPU types times the fraction of their finest
        common tier (of the core where they share no unit). On the same node: its intra-node bandwidth.
        """
        first, second = np.asarray(a, dtype=np.int64), np.asarray(b, dtype=np.int64)
        inter = self.inter_node_bandwidth_bytes_per_s[self.gpu_type]
        between = np.minimum(inter[first], inter[second])
        between = between * self.bandwidth_fraction_by_distance[self.tier_distance(first, second)]
        inside = self.intra_node_bandwidth_bytes_per_s[self.gpu_type][first]
        return np.asarray(np.where(first == second, inside, between), dtype=np.float64)

    def _tier_position(self, tier: str) -> int:
        if tier not in self.tiers:
            raise InputError(f"no tier is called {tier!r}; the tiers are {list(self.tiers)}")
        return self.tiers.index(tier)


def cluster_arrays(cluster: Cluster) -> ClusterArrays:
    """Build the arrays of a cluster."""
    nodes = cluster.nodes
    type_index = {kind.name: k for k, kind in enumerate(cluster.gpu_types)}
    state = {value: _mask([node.state is value for node in nodes]) for value in NodeState}
    num_gpus = _integers([node.num_gpus for node in nodes])
    num_used = _integers([len(node.gpus_in_use) for node in nodes])
    units, labels = _units(nodes, len(cluster.tiers))
    fractions = [1.0, *(tier.bandwidth_fraction for tier in reversed(cluster.tiers)), cluster.core_bandwidth_fraction]
    return ClusterArrays(
        node_ids=tuple(node.id for node in nodes),
        gpu_types=tuple(kind.name for kind in cluster.gpu_types),
        tiers=tuple(tier.name for tier in cluster.tiers),
        minipod_tier=cluster.minipod_tier,
        gpu_type=_integers([type_index[node.gpu_type] for node in nodes]),
        num_gpus=num_gpus,
        num_free_gpus=_frozen(np.where(state[NodeState.UP], num_gpus - num_used, 0)),
        whole_free=_frozen(state[NodeState.UP] & (num_used == 0)),
        up=state[NodeState.UP],
        drained=state[NodeState.DRAINED],
        down=state[NodeState.DOWN],
        units=units,
        unit_labels=labels,
        intra_node_bandwidth_bytes_per_s=_floats([k.intra_node_bandwidth_bytes_per_s for k in cluster.gpu_types]),
        inter_node_bandwidth_bytes_per_s=_floats([k.inter_node_bandwidth_bytes_per_s for k in cluster.gpu_types]),
        bandwidth_fraction_by_distance=_floats(fractions),
    )


def _units(nodes: tuple[Node, ...], num_tiers: int) -> tuple[IntArray, tuple[tuple[str, ...], ...]]:
    """Number the path prefixes of each tier."""
    units = np.empty((len(nodes), num_tiers), dtype=np.int64)
    labels = []
    for k in range(num_tiers):
        prefixes = sorted({node.path[: k + 1] for node in nodes})
        position = {prefix: u for u, prefix in enumerate(prefixes)}
        units[:, k] = [position[node.path[: k + 1]] for node in nodes]
        labels.append(tuple("/".join(prefix) for prefix in prefixes))
    return _frozen(units), tuple(labels)


def _sums(index: IntArray, values: IntArray, size: int) -> IntArray:
    """Sum integer values per index (`np.bincount` with weights would go through floating point)."""
    sums = np.zeros(size, dtype=np.int64)
    np.add.at(sums, index, values)
    return sums


def _frozen(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    array.setflags(write=False)
    return array


def _integers(values: list[int]) -> IntArray:
    return _frozen(np.array(values, dtype=np.int64))


def _floats(values: list[float]) -> FloatArray:
    return _frozen(np.array(values, dtype=np.float64))


def _mask(values: list[bool]) -> Mask:
    return _frozen(np.array(values, dtype=np.bool_))
