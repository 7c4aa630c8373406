"""The nodes of one planning problem as arrays: V nodes of K kinds (GPU type and bandwidth inside the node)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.performance.iteration.fabric import Fabric
from stowplan.arrays import FloatArray, IntArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What a tensor-parallel group on a node depends on."""

    gpu_type: str
    intra_bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landscape:
    """Nodes and what lies between them.

    Attributes
    ----------
    nodes, kinds
        Names of the V nodes; the K kinds.
    of_kind
        (V, K) 1 where the node is of the kind; floating point, like `below`: such matrices multiply faster.
    intra_bytes_per_s, inter_bytes_per_s
        (V,)
    below
        Per depth of the topology between root and nodes, (V, U) 1 where the node is below the unit.
    fractions, send_fractions
        Share of the bandwidth between nodes by the number of units in common, of collectives and of send-recv.
    """

    nodes: tuple[str, ...]
    kinds: tuple[Kind, ...]
    of_kind: FloatArray
    intra_bytes_per_s: FloatArray
    inter_bytes_per_s: FloatArray
    below: tuple[FloatArray, ...]
    fractions: tuple[float, ...]
    send_fractions: tuple[float, ...]

    @classmethod
    def of(cls, fabric: Fabric, nodes: Sequence[str]) -> "Landscape":
        """Landscape of some nodes of a fabric.

        Raises
        ------
        InputError
            When the fabric does not have one of them.
        """
        hosts = [fabric.host(node) for node in nodes]
        intra = [fabric.intra_share * host.intra_bytes_per_s for host in hosts]
        of = [Kind(gpu_type=host.gpu_type, intra_bytes_per_s=own) for host, own in zip(hosts, intra, strict=True)]
        kinds = tuple(dict.fromkeys(of))
        prefixes = [[host.path[:depth] for host in hosts] for depth in range(1, len(fabric.fractions))]
        return cls(
            nodes=tuple(nodes),
            kinds=kinds,
            of_kind=_one_hot(of),
            intra_bytes_per_s=np.array(intra),
            inter_bytes_per_s=np.array([fabric.inter_share * host.inter_bytes_per_s for host in hosts]),
            below=tuple(_one_hot(column) for column in prefixes),
            fractions=fabric.fractions,
            send_fractions=tuple(map(fabric.send_receive_share, range(len(fabric.fractions)))),
        )

    def kind(self, node: str) -> Kind:
        """Kind of a node."""
        return self.kinds[int(self.of_kind[self.nodes.index(node)].argmax())]

    def reduction_s_per_byte(self, replicas: IntArray, tp: FloatArray) -> FloatArray:
        """Time per byte that each replica sends in a ring over all replicas of a stage: its slowest part.

        Parameters
        ----------
        replicas
            (Q, V) replicas of each stage on each node.
        tp
            (Q,) tensor degrees.
        """
        on = replicas > 0
        inside = np.min(np.where(replicas > 1, self.intra_bytes_per_s, np.inf), axis=-1)
        num_nodes = on.sum(axis=-1)
        spread = [num_nodes > 0, *((on @ units > 0).sum(axis=-1) for units in self.below), num_nodes]
        fraction = np.full(len(replicas), np.inf)
        for depth, share in enumerate(self.fractions):
            # Some pair has exactly `depth` units in common where a unit of that depth splits.
            fraction = np.where(spread[depth + 1] > spread[depth], np.minimum(fraction, share), fraction)
        across = fraction * np.min(np.where(on, self.inter_bytes_per_s, np.inf), axis=-1)
        slowest: FloatArray = np.maximum(1.0 / (tp * inside), 1.0 / across)
        return slowest

    def send_s_per_byte(self, replicas: IntArray, tp: FloatArray) -> FloatArray:
        """Time per byte of a micro-batch that a stage hands on, evenly by its nodes; arguments as above."""
        on = replicas > 0
        if len(self.nodes) == 1:
            whole: FloatArray = 1.0 / (np.maximum(replicas.sum(axis=-1), 1) * tp * self.intra_bytes_per_s[0])
            return whole
        slowest = np.min(np.where(on, self.inter_bytes_per_s, np.inf), axis=-1) * min(self.fractions)
        spread: FloatArray = 1.0 / (np.maximum(on.sum(axis=-1), 1) * slowest)
        return spread


def _one_hot(labels: Sequence[object]) -> FloatArray:
    index = {label: k for k, label in enumerate(dict.fromkeys(labels))}
    matrix = np.zeros((len(labels), len(index)))
    matrix[np.arange(len(labels)), [index[label] for label in labels]] = 1
    return matrix
