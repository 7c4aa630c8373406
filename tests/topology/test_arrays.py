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


def test_free_nodes_per_minipod_of_any_tier_and_type() -> None:
    arrays = cluster_arrays(golden_cluster())
    assert arrays.free_nodes().tolist() == [2, 1]
    assert arrays.free_nodes(gpu_type="h800").tolist() == [1, 0]
    assert arrays.free_nodes("leaf").tolist() == [1, 1, 1]
    assert arrays.free_nodes("leaf", "l20").tolist() == [0, 1, 1]


def test_without_tiers_nodes_share_the_core_only() -> None:
    nodes = tuple(Node(id=name, gpu_type="h800", num_gpus=8) for name in "ab")
    arrays = cluster_arrays(replace(golden_cluster(), tiers=(), minipod_tier=None, nodes=nodes))
    assert arrays.units.shape == (2, 0)
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


@settings(max_examples=25, deadline=None)
@given(clusters())
def test_arrays_agree_with_the_definition(cluster: Cluster) -> None:
    arrays = cluster_arrays(cluster)
    depth = len(cluster.tiers)
    for a, first in enumerate(cluster.nodes):
        for b, second in enumerate(cluster.nodes):
            shared = 0
            while shared < depth and first.path[shared] == second.path[shared]:
                shared += 1
            assert (arrays.units[a] == arrays.units[b]).tolist() == [k < shared for k in range(depth)]
    free = [node.num_gpus - len(node.gpus_in_use) if node.state is NodeState.UP else 0 for node in cluster.nodes]
    assert arrays.num_free_gpus.tolist() == free
    for tier in cluster.tiers:
        assert arrays.free_nodes(tier.name).sum() == arrays.whole_free.sum()


@settings(max_examples=15, deadline=None)
@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_the_nodes_changes_nothing(cluster: Cluster, random: Random) -> None:
    order = list(range(len(cluster.nodes)))
    random.shuffle(order)
    arrays = cluster_arrays(cluster)
    shuffled = cluster_arrays(replace(cluster, nodes=tuple(cluster.nodes[k] for k in order)))
    assert shuffled.unit_labels == arrays.unit_labels
    assert np.array_equal(shuffled.units, arrays.units[order])
    assert np.array_equal(shuffled.num_free_gpus, arrays.num_free_gpus[order])


@settings(max_examples=15, deadline=None)
@given(clusters())
def test_new_names_for_nodes_and_units_change_no_neighbour(cluster: Cluster) -> None:
    renamed = replace(
        cluster,
        nodes=tuple(
            replace(node, id=f"x{k}", path=tuple({"a": "z", "b": "y"}[unit] for unit in node.path))
            for k, node in enumerate(cluster.nodes)
        ),
    )
    before, after = cluster_arrays(cluster), cluster_arrays(renamed)
    for column, renamed_column in zip(before.units.T, after.units.T, strict=True):
        together, still = column[:, None] == column, renamed_column[:, None] == renamed_column
        assert np.array_equal(together, still)
    for tier in cluster.tiers:
        assert sorted(before.free_nodes(tier.name)) == sorted(after.free_nodes(tier.name))
