"""Bandwidth that groups of GPUs get on a cluster, by where they sit."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from topology.cluster import Cluster, GpuType

# Messages from which NVLink is full (k_bw-intra-sat): hundreds of megabytes (Suika A.2).
SATURATION_BYTES = float(256 * 2**20)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What a node contributes: its type's bandwidths, and the units above it, coarsest first."""

    gpu_type: str
    intra_bytes_per_s: float
    inter_bytes_per_s: float
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """Nodes and the share of their network bandwidth that is left between them.

    `fractions[d]`: share for two nodes that have exactly d units in common, counted from the coarsest (0: only the
    core). Intra-node bandwidth is per GPU, inter-node bandwidth per node.
    """

    hosts: Mapping[str, Host]
    fractions: tuple[float, ...] = (1.0,)
    saturation_bytes: float = field(default=SATURATION_BYTES)

    def intra_bytes_per_s(self, node: str) -> float:
        """Bandwidth of one GPU inside the node."""
        return self.hosts[node].intra_bytes_per_s

    def group_bytes_per_s(self, nodes: Iterable[str]) -> float:
        """Bottleneck of a group on several nodes: the least over all pairs (A.2)."""
        hosts = [self.hosts[node] for node in set(nodes)]
        # Paths in sorted order: what any two have in common is the least that neighbours between them have.
        paths = sorted(host.path for host in hosts)
        shared = {num_shared(a, b) for a, b in pairwise(paths)}
        fraction = min(self.fractions[d] for d in shared) if shared else 1.0
        return fraction * min(host.inter_bytes_per_s for host in hosts)


def num_shared(a: tuple[str, ...], b: tuple[str, ...]) -> int:
    """How many units two paths have in common, from the coarsest on."""
    count = 0
    for left, right in zip(a, b, strict=True):
        if left != right:
            break
        count += 1
    return count


def fabric_of(cluster: Cluster) -> Fabric:
    """Fabric of a cluster, from its tiers."""
    kinds = {kind.name: kind for kind in cluster.gpu_types}
    return Fabric(
        hosts={node.id: _host(kinds[node.gpu_type], node.path) for node in cluster.nodes},
        fractions=(cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers)),
    )


def flat_fabric(nodes: Mapping[str, GpuType]) -> Fabric:
    """Fabric of nodes (id -> GPU type) under one switch."""
    return Fabric(hosts={node: _host(kind, ()) for node, kind in nodes.items()})


def _host(kind: GpuType, path: tuple[str, ...]) -> Host:
    return Host(
        gpu_type=kind.name,
        intra_bytes_per_s=kind.intra_node_bandwidth_bytes_per_s,
        inter_bytes_per_s=kind.inter_node_bandwidth_bytes_per_s,
        path=path,
    )
