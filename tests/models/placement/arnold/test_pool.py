"""The pool of a snapshot is read once, and anew for another snapshot."""

from dataclasses import replace

import pytest

from benchmarks.workloads.generators import H800, arnold_snapshot
from models.placement.arnold import pool
from models.placement.arnold.pool import node_pool
from topology.cluster import NodeState


def test_a_pool_is_read_once_for_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = arnold_snapshot([2, 1], 1, 2)
    first = node_pool(snapshot, H800.name, "minipod")
    assert first is not None
    assert first.free_nodes.tolist() == [2, 1]
    drained = replace(snapshot.cluster.nodes[0], state=NodeState.DRAINED)
    other = replace(snapshot, cluster=replace(snapshot.cluster, nodes=(drained, *snapshot.cluster.nodes[1:])))
    second = node_pool(other, H800.name, "minipod")
    assert second is not None
    assert second.free_nodes.tolist() == [1, 1]
    assert node_pool(snapshot, "none such", "minipod") is None
    monkeypatch.setattr(pool, "occupancy", None)
    assert node_pool(snapshot, H800.name, "minipod") is first
    assert node_pool(other, H800.name, "minipod") is second
    assert node_pool(snapshot, "none such", "minipod") is None
