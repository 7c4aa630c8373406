"""The cluster as a networkx graph: one core vertex, a vertex per unit, a vertex per node.

Keys: the core is the empty tuple, a unit its path prefix (a tuple of names), a node its id (a string), so no
two vertices clash. The units of the coarsest tier, as many as there are, hang off the core.
"""

import networkx as nx

from topology.cluster import Cluster

Vertex = str | tuple[str, ...]
CORE: Vertex = ()


def cluster_graph(cluster: Cluster) -> "nx.Graph[Vertex]":
    """Build the tree of the cluster.

    Vertices carry `kind` ("core", "unit" or "node"); units also `tier`; nodes also `gpu_type`, `num_gpus` and
    `state`. Edges carry `bandwidth_bytes_per_s`, the most that one node below the edge can get over it: its
    inter-node bandwidth times the fraction of the tier (or core) at the upper end. Where all nodes are of one type
    and fractions do not grow towards the core, the narrowest edge between two nodes is their bandwidth.
    """
    graph: nx.Graph[Vertex] = nx.Graph()
    graph.add_node(CORE, kind="core")
    bandwidth = {kind.name: kind.inter_node_bandwidth_bytes_per_s for kind in cluster.gpu_types}
    fractions = [cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers)]
    for node in cluster.nodes:
        for depth, tier in enumerate(cluster.tiers):
            parent, unit = node.path[:depth], node.path[: depth + 1]
            known = graph.get_edge_data(parent, unit, {"bandwidth_bytes_per_s": 0.0})["bandwidth_bytes_per_s"]
            graph.add_node(unit, kind="unit", tier=tier.name)
            graph.add_edge(parent, unit, bandwidth_bytes_per_s=max(known, bandwidth[node.gpu_type] * fractions[depth]))
        graph.add_node(node.id, kind="node", gpu_type=node.gpu_type, num_gpus=node.num_gpus, state=node.state.value)
        graph.add_edge(node.path, node.id, bandwidth_bytes_per_s=bandwidth[node.gpu_type] * fractions[-1])
    return graph
