"""Bandwidth that groups of GPUs get on a cluster, by where they sit.

Two nodes get the share of the inter-node bandwidth that the cluster gives to their finest common tier (its
`core_bandwidth_fraction` where they share no unit); a group on several nodes gets that of its worst pair (Suika A.2),
and nodes of different GPU types the smaller of their bandwidths.

Collectives and send-recv. The tiers' fractions hold for collectives. Where a pair sits in different minipods, Arnold
(section 4, Fig. 4) measured up to -17 % for collectives and -70 % for send-recv on the same links; inside a minipod
placement matters by 0.3 % at most. So, where the cluster marks a minipod tier, a send-recv between minipods gets

    fraction x r(fraction),   r(1) = 1, r(0.83) = 0.30 / 0.83, linear between them and constant below:

a fabric that costs collectives nothing costs send-recv nothing either, one that costs them 17 % is Arnold's, and beyond
what was measured the ratio between the two is kept. To plan for Arnold's fabric, set the fraction to 0.83.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from stowplan.errors import InputError
from topology.bandwidth import fractions_of, group_fraction, num_shared
from topology.cluster import Cluster, GpuType

# Messages from which NVLink is full (k_bw-intra-sat): hundreds of megabytes (Suika A.2, Arnold Fig. 4a).
SATURATION_BYTES = float(256 * 2**20)

# Shares of the bandwidth that are left between minipods (Arnold Fig. 4).
COLLECTIVE_BETWEEN_MINIPODS = 0.83
SEND_RECEIVE_BETWEEN_MINIPODS = 0.30


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a node contributes: its type's bandwidths, the units above it, coarsest first, and its GPUs if known."""

    gpu_type: str
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    path: tuple[str, ...] = ()
    num_gpus: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Nodes and the share of their network bandwidth that is left between them.

    `fractions[d]`: share for two nodes that have exactly d units in common, counted from the coarsest (0: only the
    core). Intra-node bandwidth is per GPU, inter-node bandwidth per node; `intra_share` and `inter_share` are what is
    reached of them. `minipod_depth`: units that two nodes of one minipod have in common at least; None where no tier is
    marked.
    """

    hosts: Mapping[str, Host]
    fractions: tuple[float, ...] = (1.0,)
    saturation_bytes: float = SATURATION_BYTES
    minipod_depth: int | None = None
    intra_share: float = 1.0
    inter_share: float = 1.0

    def host(self, node: str) -> Host:
        """The node's host.

        Raises
        ------
        InputError
            When the fabric has no such node.
        """
        try:
            return self.hosts[node]
        except KeyError:
            raise InputError(f"the plan uses node {node!r}, which the cluster does not have") from None

    def intra_bytes_per_s(self, node: str) -> float:
        """Bandwidth of one GPU inside the node."""
        return self.intra_share * self.host(node).intra_bytes_per_s

    def group_bytes_per_s(self, nodes: Iterable[str]) -> float:
        """Bandwidth of a node in a collective over several nodes: the bottleneck of all pairs (A.2)."""
        hosts = [self.host(node) for node in set(nodes)]
        slowest = self.inter_share * min(host.inter_bytes_per_s for host in hosts)
        return slowest * group_fraction(self.fractions, [host.path for host in hosts])

    def group_fraction(self, nodes: Iterable[str]) -> float:
        """Share of the inter-node bandwidth that is left to a collective over these nodes; 1 for a single one."""
        return group_fraction(self.fractions, [self.host(node).path for node in set(nodes)])

    def send_receive_bytes_per_s(self, a: str, b: str) -> float:
        """Bandwidth between two different nodes that send to each other."""
        left, right = self.host(a), self.host(b)
        fraction = self.send_receive_share(num_shared(left.path, right.path))
        return self.inter_share * fraction * min(left.inter_bytes_per_s, right.inter_bytes_per_s)

    def send_receive_share(self, shared: int) -> float:
        """Share of the bandwidth that is left to two nodes with so many units in common that send to each other."""
        fraction = self.fractions[shared]
        is_between = self.minipod_depth is not None and shared < self.minipod_depth
        return send_receive_fraction(fraction) if is_between else fraction


def send_receive_fraction(fraction: float) -> float:
    """Share of the bandwidth left to send-recv between minipods that leave `fraction` to collectives."""
    measured = SEND_RECEIVE_BETWEEN_MINIPODS / COLLECTIVE_BETWEEN_MINIPODS
    return fraction * float(np.interp(fraction, [COLLECTIVE_BETWEEN_MINIPODS, 1.0], [measured, 1.0]))


def fabric_of(cluster: Cluster) -> Fabric:
    """Fabric of a cluster, from its tiers."""
    kinds = {kind.name: kind for kind in cluster.gpu_types}
    names = [tier.name for tier in cluster.tiers]
    return Fabric(
        hosts={node.id: _host(kinds[node.gpu_type], node.num_gpus, node.path) for node in cluster.nodes},
        fractions=fractions_of(cluster),
        minipod_depth=names.index(cluster.minipod_tier) + 1 if cluster.minipod_tier is not None else None,
    )


def flat_fabric(nodes: Mapping[str, GpuType], gpus_per_node: int | None = None) -> Fabric:
    """Fabric of nodes (id -> GPU type) under one switch."""
    return Fabric(hosts={node: _host(kind, gpus_per_node) for node, kind in nodes.items()})


def _host(kind: GpuType, num_gpus: int | None, path: tuple[str, ...] = ()) -> Host:
    return Host(
        gpu_type=kind.name,
        intra_bytes_per_s=kind.intra_node_bandwidth_bytes_per_s,
        inter_bytes_per_s=kind.inter_node_bandwidth_bytes_per_s,
        path=path,
        num_gpus=num_gpus,
    )
