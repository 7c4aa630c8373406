from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from models.configurations import ConfigurationSet, enumerate_configurations
from stowplan.errors import InputError
from topology.cluster import Cluster, GpuType, Node, NodeState, Tier


def cluster(nodes: Sequence[tuple[str, int, NodeState]], gpu_types: Sequence[str] = ("A", "B")) -> Cluster:
    return Cluster(
        gpu_types=tuple(
            GpuType(
                name=name,
                memory_bytes=2**34,
                peak_flops_per_s=1e14,
                intra_node_bandwidth_bytes_per_s=1e11,
                inter_node_bandwidth_bytes_per_s=1e10,
            )
            for name in gpu_types
        ),
        nodes=tuple(
            Node(id=f"n{k}", gpu_type=name, num_gpus=num_gpus, state=state)
            for k, (name, num_gpus, state) in enumerate(nodes)
        ),
    )


def up(name: str, num_gpus: int, count: int = 1) -> list[tuple[str, int, NodeState]]:
    return [(name, num_gpus, NodeState.UP)] * count


def labels(configurations: ConfigurationSet) -> list[str]:
    return [configurations.label(c) for c in range(len(configurations))]


def test_running_example_of_the_paper() -> None:
    """Section 3.4: one node with 2 GPUs of type A, one with 4 of type B."""
    found = enumerate_configurations(cluster(up("A", 2) + up("B", 4)))
    assert labels(found) == ["(1,1,A)", "(1,2,A)", "(1,1,B)", "(1,2,B)", "(1,4,B)"]


@pytest.mark.parametrize(
    ("num_gpus", "within"),
    [(1, [1]), (2, [1, 2]), (3, [1, 2, 3]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8]), (10, [1, 2, 4, 8, 10])],
)
def test_powers_of_two_and_the_whole_node(num_gpus: int, within: list[int]) -> None:
    found = enumerate_configurations(cluster(up("A", num_gpus, 3), gpu_types=["A"]))
    assert found.num_gpus.tolist() == [*within, 2 * num_gpus, 3 * num_gpus]
    assert found.num_nodes.tolist() == [1] * len(within) + [2, 3]
    assert found.type_index.dtype == found.num_nodes.dtype == found.num_gpus.dtype == np.int64


def test_smaller_nodes_are_not_whole_nodes() -> None:
    found = enumerate_configurations(cluster(up("A", 8, 2) + up("A", 4, 5), gpu_types=["A"]))
    assert labels(found) == ["(1,1,A)", "(1,2,A)", "(1,4,A)", "(1,8,A)", "(2,16,A)"]


def test_down_nodes_do_not_count_and_drained_ones_do() -> None:
    nodes = [("A", 8, NodeState.DOWN), ("A", 4, NodeState.UP), ("A", 4, NodeState.DRAINED), ("B", 2, NodeState.DOWN)]
    found = enumerate_configurations(cluster(nodes))
    assert labels(found) == ["(1,1,A)", "(1,2,A)", "(1,4,A)", "(2,8,A)"]
    assert found.gpu_types == ("A", "B")


def test_everything_down_is_no_configuration() -> None:
    assert len(enumerate_configurations(cluster([("A", 8, NodeState.DOWN)]))) == 0


def test_order_follows_the_types_of_the_cluster() -> None:
    found = enumerate_configurations(cluster(up("A", 1) + up("B", 1), gpu_types=["B", "A"]))
    assert labels(found) == ["(1,1,B)", "(1,1,A)"]


def test_max_nodes_and_chosen_node_counts() -> None:
    ten = cluster(up("A", 2, 10), gpu_types=["A"])
    assert enumerate_configurations(ten, max_nodes=3).num_nodes.tolist() == [1, 1, 2, 3]
    assert enumerate_configurations(ten, max_nodes=1).num_nodes.tolist() == [1, 1]
    assert enumerate_configurations(ten, multi_node_counts={8, 2, 4, 16}).num_nodes.tolist() == [1, 1, 2, 4, 8]
    assert enumerate_configurations(ten, max_nodes=4, multi_node_counts=[2, 4, 8]).num_nodes.tolist() == [1, 1, 2, 4]
    assert enumerate_configurations(ten, multi_node_counts=()).num_nodes.tolist() == [1, 1]
    with pytest.raises(InputError, match="max_nodes is 0"):
        enumerate_configurations(ten, max_nodes=0)


def test_twenty_five_thousand_nodes() -> None:
    found = enumerate_configurations(cluster(up("A", 4, 25_000), gpu_types=["A"]))
    assert len(found) == 3 + 24_999
    assert found.label(len(found) - 1) == "(25000,100000,A)"


def test_up_to_drops_only_large_multi_node_configurations() -> None:
    found = enumerate_configurations(cluster(up("A", 8, 3), gpu_types=["A"]))
    assert labels(found.up_to(16)) == ["(1,1,A)", "(1,2,A)", "(1,4,A)", "(1,8,A)", "(2,16,A)"]
    assert labels(found.up_to(1)) == ["(1,1,A)", "(1,2,A)", "(1,4,A)", "(1,8,A)"]


def tiered(core: float, *pods: int) -> Cluster:
    """Nodes of two GPUs in pods of so many nodes; pods keep all bandwidth, the core a share of it."""
    flat = cluster(up("A", 2, sum(pods)), gpu_types=["A"])
    names = [f"p{k}" for k, count in enumerate(pods) for _ in range(count)]
    nodes = tuple(replace(node, path=(name,)) for node, name in zip(flat.nodes, names, strict=True))
    return replace(flat, nodes=nodes, tiers=(Tier(name="pod"),), core_bandwidth_fraction=core)


def test_a_configuration_has_the_bandwidth_of_its_least_spread() -> None:
    """Pods of three and two nodes: up to three nodes need no core."""
    found = enumerate_configurations(tiered(0.1, 3, 2))
    assert found.num_nodes.tolist() == [1, 1, 2, 3, 4, 5]
    assert found.bandwidth_fraction.tolist() == [1, 1, 1, 1, 0.1, 0.1]
    assert found.subset(found.num_nodes > 2).bandwidth_fraction.tolist() == [1, 0.1, 0.1]


def test_nodes_that_are_down_make_no_room_in_a_pod() -> None:
    made = tiered(0.1, 3, 2)
    fewer = replace(made, nodes=(replace(made.nodes[0], state=NodeState.DOWN), *made.nodes[1:]))
    assert enumerate_configurations(fewer).bandwidth_fraction.tolist() == [1, 1, 1, 0.1, 0.1]


@pytest.mark.parametrize("made", [tiered(1.0, 3, 2), cluster(up("A", 2, 5) + up("B", 4))])
def test_without_slow_tiers_all_have_all_of_it(made: Cluster) -> None:
    assert set(enumerate_configurations(made, max_nodes=3).bandwidth_fraction.tolist()) == {1.0}
