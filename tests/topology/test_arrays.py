from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import InputError
from tests.topology.instances import clusters, golden_cluster
from topology.arrays import cluster_arrays
from topology.cluster import Cluster, Node, NodeState


def test_the_golden_cluster_as_arrays() -> None:
    arrays = cluster_arrays(golden_cluster())
    assert arrays.node_ids == ("n0", "n1", "n2", "n3", "n4", "n5")
    assert arrays.gpu_types == ("h800", "l20")
    assert arrays.gpu_type.tolist() == [0, 0, 1, 0, 0, 1]
    assert arrays.num_gpus.tolist() == [8, 8, 4, 8, 8, 4]
    # n1 has two GPUs in use, n3 is drained, n4 is down.
    assert arrays.num_free_gpus.tolist() == [8, 6, 4, 0, 0, 4]
    assert arrays.whole_free.tolist() == [True, False, True, False, False, True]
    assert arrays.up.tolist() == [True, True, True, False, False, True]
    assert np.flatnonzero(arrays.drained).tolist() == [3]
    assert np.flatnonzero(arrays.down).tolist() == [4]


def test_units_are_told_apart_by_their_prefix() -> None:
    arrays = cluster_arrays(golden_cluster())
    assert arrays.units.dtype == np.int64
    # The leaf a of pod p is not the leaf a of pod q.
    assert arrays.units.tolist() == [[0, 0], [0, 0], [0, 1], [1, 2], [1, 2], [1, 2]]
    assert arrays.labels("pod") == ("p", "q")
    assert arrays.labels("leaf") == ("p/a", "p/b", "q/a")


def test_capacity_counts_all_gpus_and_free_gpus() -> None:
    arrays = cluster_arrays(golden_cluster())
    assert arrays.gpus_per_type().tolist() == [32, 8]
    assert arrays.free_gpus_per_type().tolist() == [14, 8]


def test_free_nodes_per_minipod_of_any_tier_and_type() -> None:
    arrays = cluster_arrays(golden_cluster())
    assert arrays.free_nodes().tolist() == [2, 1]
    assert arrays.free_nodes(gpu_type="h800").tolist() == [1, 0]
    assert arrays.free_nodes("leaf").tolist() == [1, 1, 1]
    assert arrays.free_nodes("leaf", "l20").tolist() == [0, 1, 1]


def test_distances_of_the_golden_cluster() -> None:
    arrays = cluster_arrays(golden_cluster())
    # Same node 0, same leaf 1, same pod 2, only the core in common 3.
    assert arrays.tier_distance(0, [0, 1, 2, 3]).tolist() == [0, 1, 2, 3]
    assert arrays.tier_distances().tolist() == [
        [0, 1, 2, 3, 3, 3],
        [1, 0, 2, 3, 3, 3],
        [2, 2, 0, 3, 3, 3],
        [3, 3, 3, 0, 1, 1],
        [3, 3, 3, 1, 0, 1],
        [3, 3, 3, 1, 1, 0],
    ]


def test_bandwidth_is_that_of_the_slower_type_at_the_finest_common_tier() -> None:
    arrays = cluster_arrays(golden_cluster())
    # Inside n0; h800-h800 in one leaf; h800-l20 in one pod (40/2); h800-h800 and h800-l20 over the core (80/4, 40/4).
    assert arrays.bandwidth_bytes_per_s(0, [0, 1, 2, 3, 5]).tolist() == [400.0, 80.0, 20.0, 20.0, 10.0]
    assert arrays.bandwidth_bytes_per_s(2, 2) == 64.0
    assert arrays.bandwidth_bytes_per_s([[0], [2]], [[1, 5]]).tolist() == [[80.0, 10.0], [20.0, 10.0]]


def test_without_tiers_nodes_share_the_core_only() -> None:
    nodes = tuple(Node(id=name, gpu_type="h800", num_gpus=8) for name in "ab")
    arrays = cluster_arrays(replace(golden_cluster(), tiers=(), minipod_tier=None, nodes=nodes))
    assert arrays.units.shape == (2, 0)
    assert arrays.tier_distances().tolist() == [[0, 1], [1, 0]]
    assert arrays.bandwidth_bytes_per_s(0, 1) == 20.0
    with pytest.raises(InputError, match="no tier is marked as the minipods"):
        arrays.free_nodes()


def test_unknown_names_are_refused() -> None:
    arrays = cluster_arrays(golden_cluster())
    with pytest.raises(InputError, match=r"no tier is called 'rack'; the tiers are \['pod', 'leaf'\]"):
        arrays.unit_index("rack")
    with pytest.raises(InputError, match=r"no GPU type is called 'k80'; the cluster knows \['h800', 'l20'\]"):
        arrays.free_nodes(gpu_type="k80")


def test_arrays_are_read_only() -> None:
    arrays = cluster_arrays(golden_cluster())
    for name in ("gpu_type", "num_gpus", "num_free_gpus", "whole_free", "up", "units"):
        assert not getattr(arrays, name).flags.writeable


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_arrays_agree_with_the_definition(cluster: Cluster) -> None:
    arrays = cluster_arrays(cluster)
    depth = len(cluster.tiers)
    fractions = [tier.bandwidth_fraction for tier in cluster.tiers]
    kinds = {kind.name: kind for kind in cluster.gpu_types}
    distances = arrays.tier_distances()
    every = np.arange(len(cluster.nodes))
    bandwidths = arrays.bandwidth_bytes_per_s(every[:, None], every[None, :])
    for a, first in enumerate(cluster.nodes):
        for b, second in enumerate(cluster.nodes):
            shared = 0
            while shared < depth and first.path[shared] == second.path[shared]:
                shared += 1
            assert distances[a, b] == (0 if a == b else depth + 1 - shared)
            kind, other = kinds[first.gpu_type], kinds[second.gpu_type]
            fraction = fractions[shared - 1] if shared else cluster.core_bandwidth_fraction
            slower = min(kind.inter_node_bandwidth_bytes_per_s, other.inter_node_bandwidth_bytes_per_s)
            assert bandwidths[a, b] == (kind.intra_node_bandwidth_bytes_per_s if a == b else slower * fraction)
    free = [node.num_gpus - len(node.gpus_in_use) if node.state is NodeState.UP else 0 for node in cluster.nodes]
    assert arrays.num_free_gpus.tolist() == free
    assert arrays.free_gpus_per_type().sum() == sum(free)
    for tier in cluster.tiers:
        assert arrays.free_nodes(tier.name).sum() == arrays.whole_free.sum()


@settings(max_examples=40, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(cluster: Cluster, random: Random) -> None:
    order = list(range(len(cluster.nodes)))
    random.shuffle(order)
    arrays = cluster_arrays(cluster)
    shuffled = cluster_arrays(replace(cluster, nodes=tuple(cluster.nodes[k] for k in order)))
    assert shuffled.unit_labels == arrays.unit_labels
    assert np.array_equal(shuffled.units, arrays.units[order])
    assert np.array_equal(shuffled.tier_distances(), arrays.tier_distances()[np.ix_(order, order)])
    assert np.array_equal(shuffled.free_gpus_per_type(), arrays.free_gpus_per_type())


@settings(max_examples=40, deadline=None)
@given(clusters())
def test_new_names_for_nodes_and_units_change_no_distance(cluster: Cluster) -> None:
    renamed = replace(
        cluster,
        nodes=tuple(
            replace(node, id=f"x{k}", path=tuple({"a": "z", "b": "y"}[unit] for unit in node.path))
            for k, node in enumerate(cluster.nodes)
        ),
    )
    before, after = cluster_arrays(cluster), cluster_arrays(renamed)
    assert np.array_equal(before.tier_distances(), after.tier_distances())
    for tier in cluster.tiers:
        assert sorted(before.free_nodes(tier.name)) == sorted(after.free_nodes(tier.name))
