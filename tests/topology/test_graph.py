from dataclasses import replace

import networkx as nx
import numpy as np
from hypothesis import given, settings

from tests.topology.instances import clusters, golden_cluster
from topology.arrays import cluster_arrays
from topology.cluster import Cluster, Node
from topology.graph import CORE, cluster_graph


def test_the_graph_of_the_golden_cluster() -> None:
    graph = cluster_graph(golden_cluster())
    assert nx.is_tree(graph)
    assert graph.number_of_nodes() == 1 + 2 + 3 + 6
    assert graph.nodes[CORE] == {"kind": "core"}
    assert graph.nodes["q", "a"] == {"kind": "unit", "tier": "leaf"}
    assert graph.nodes["n3"] == {"kind": "node", "gpu_type": "h800", "num_gpus": 8, "state": "drained"}
    assert set(graph[CORE]) == {("p",), ("q",)}
    assert set(graph["p", "b"]) == {("p",), "n2"}


def test_edges_carry_the_bandwidth_of_the_fastest_node_below() -> None:
    graph = cluster_graph(golden_cluster())
    bandwidth = nx.get_edge_attributes(graph, "bandwidth_bytes_per_s")
    assert graph.edges[CORE, ("p",)]["bandwidth_bytes_per_s"] == 80 * 0.25
    assert graph.edges[("p",), ("p", "a")]["bandwidth_bytes_per_s"] == 80 * 0.5
    assert graph.edges[("p",), ("p", "b")]["bandwidth_bytes_per_s"] == 40 * 0.5
    assert graph.edges[("p", "b"), "n2"]["bandwidth_bytes_per_s"] == 40
    assert len(bandwidth) == graph.number_of_edges()


def test_without_tiers_nodes_hang_off_the_core() -> None:
    nodes = (Node(id="a", gpu_type="h800", num_gpus=8), Node(id="b", gpu_type="l20", num_gpus=4))
    graph = cluster_graph(replace(golden_cluster(), tiers=(), minipod_tier=None, nodes=nodes))
    assert set(graph[CORE]) == {"a", "b"}
    assert graph.edges[CORE, "b"]["bandwidth_bytes_per_s"] == 40 * 0.25


@settings(max_examples=40, deadline=None)
@given(clusters(max_types=1))
def test_the_narrowest_edge_between_two_nodes_is_their_bandwidth(cluster: Cluster) -> None:
    rising = sorted([cluster.core_bandwidth_fraction, *(tier.bandwidth_fraction for tier in cluster.tiers)])
    cluster = replace(
        cluster,
        core_bandwidth_fraction=rising[0],
        tiers=tuple(
            replace(tier, bandwidth_fraction=fraction) for tier, fraction in zip(cluster.tiers, rising[1:], strict=True)
        ),
    )
    graph, arrays = cluster_graph(cluster), cluster_arrays(cluster)
    assert nx.is_tree(graph)
    for a, first in enumerate(cluster.nodes):
        for b, second in enumerate(cluster.nodes[:a]):
            edges = nx.utils.pairwise(nx.shortest_path(graph, first.id, second.id))
            narrowest = min(graph.edges[edge]["bandwidth_bytes_per_s"] for edge in edges)
            assert np.isclose(narrowest, arrays.bandwidth_bytes_per_s(a, b))
