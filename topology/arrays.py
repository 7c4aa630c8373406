"""The cluster as dense arrays, and the queries that policies ask of it.

A unit of tier k is a distinct path prefix of length k + 1; units are numbered in sorted order of their prefix,
so that the order of the nodes does not matter.
"""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stowplan.arrays import IntArray, Mask
from stowplan.errors import InputError
from stowplan.living import found_once
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

    def _tier_position(self, tier: str) -> int:
        if tier not in self.tiers:
            raise InputError(f"no tier is called {tier!r}; the tiers are {list(self.tiers)}")
        return self.tiers.index(tier)


@found_once
def cluster_arrays(cluster: Cluster) -> ClusterArrays:
    """The arrays of a cluster."""
    nodes = cluster.nodes
    type_index = {kind.name: k for k, kind in enumerate(cluster.gpu_types)}
    state = {value: _mask([node.state is value for node in nodes]) for value in NodeState}
    num_gpus = _integers([node.num_gpus for node in nodes])
    num_used = _integers([len(node.gpus_in_use) for node in nodes])
    units, labels = _units(nodes, len(cluster.tiers))
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


def _mask(values: list[bool]) -> Mask:
    return _frozen(np.array(values, dtype=np.bool_))
