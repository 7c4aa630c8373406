"""Units of the fabric: levels whose bandwidth differs, and jobs that are wanted within some nodes."""

from dataclasses import replace

import numpy as np
import pytest

from models.configurations import enumerate_configurations
from models.placement.nodes import assign_gpus
from models.placement.occupancy import occupancy
from models.placement.units import Homes, levels_of
from models.workload import Job, Snapshot
from tests.models.placement.scenes import cluster, configuration, node, on
from topology.cluster import Cluster, NodeState, Tier


def fabric(*fractions: float, core: float, pods: int = 2) -> Cluster:
    """Two leaves of two nodes to a pod: p0/l0 has n0 and n1."""
    nodes = [node(f"n{k}", 2, path=(f"p{k // 4}", f"l{k // 2}")) for k in range(4 * pods)]
    tiers = tuple(Tier(name=name, bandwidth_fraction=f) for name, f in zip(("pod", "leaf"), fractions, strict=True))
    return replace(cluster(*nodes, tiers=("pod", "leaf")), tiers=tiers, core_bandwidth_fraction=core)


@pytest.mark.parametrize(
    ("fractions", "core", "pods", "expected"),
    [
        ((0.5, 1.0), 0.25, 2, [(0.25, "", 1), (0.5, "pod", 2), (1.0, "leaf", 4)]),
        # Leaves of a pod are as near as nodes of a leaf.
        ((1.0, 1.0), 0.25, 2, [(0.25, "", 1), (1.0, "pod", 2)]),
        ((0.5, 1.0), 0.5, 2, [(0.5, "", 1), (1.0, "leaf", 4)]),
        # All nodes are in one pod.
        ((0.5, 1.0), 0.25, 1, [(0.5, "pod", 1), (1.0, "leaf", 2)]),
        ((0.5, 0.5), 0.5, 2, [(0.5, "", 1)]),
        # The nodes that are nearest to each other are no unit.
        ((1.0, 0.5), 0.25, 2, []),
    ],
)
def test_levels_are_those_that_differ(
    fractions: tuple[float, float], core: float, pods: int, expected: list[tuple[float, str, int]]
) -> None:
    found = levels_of(fabric(*fractions, core=core, pods=pods), "a")
    assert [(level.fraction, level.tier, len(level.units)) for level in found] == expected


def test_nodes_that_are_down_or_smaller_are_in_no_unit() -> None:
    made = fabric(0.5, 1.0, core=0.25)
    down, small = replace(made.nodes[0], state=NodeState.DOWN), replace(made.nodes[2], num_gpus=1)
    _, pods, leaves = levels_of(replace(made, nodes=(down, made.nodes[1], small, *made.nodes[3:])), "a")
    assert [unit.tolist() for unit in pods.units] == [[1, 3], [4, 5, 6, 7]]
    assert leaves.names == ["p0/l0", "p0/l1", "p1/l2", "p1/l3"]
    assert leaves.most_nodes == 2


def test_jobs_are_placed_within_their_homes_beside_those_that_stay() -> None:
    """`wide` is wanted in a pod in which `stays` has a node and `parts` a GPU, and makes way; `near` in a leaf."""
    made = fabric(0.5, 1.0, core=0.25)
    jobs = (
        Job(id="stays", current=on({"n0": (0, 1)})),
        Job(id="parts", current=on({"n3": (0,)})),
        Job(id="leaves", current=on({"n4": (0, 1)})),
        Job(id="wide"),
        Job(id="near"),
    )
    snapshot = Snapshot(cluster=made, jobs=jobs)
    configurations = enumerate_configurations(made)
    choice = {
        name: configuration(configurations, "a", num_gpus)
        for name, num_gpus in (("stays", 2), ("parts", 1), ("leaves", 2), ("wide", 6), ("near", 4))
    }
    homes = Homes(within={"wide": np.arange(4), "near": np.array([4, 5])}, moved=frozenset({"leaves"}))
    placed = assign_gpus(snapshot, configurations, choice, occupancy(snapshot), homes=homes)
    nodes = {name: [n for n, _ in slices] for name, slices in placed.items()}
    assert nodes["stays"] == [0]
    assert sorted(nodes["wide"]) == [1, 2, 3]
    assert sorted(nodes["near"]) == [4, 5]
    assert sorted([*nodes["parts"], *nodes["leaves"]]) == [6, 7]
