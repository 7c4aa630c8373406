"""What checks say of single jobs: by hand, and as the formulations have it, with which they share no code."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from models.allocation.admission import rewards
from models.allocation.block_check import allows, kept_shape, node_sizes, point_rewards
from models.allocation.buddy_blocks import buddy_blocks
from models.allocation.job_configurations import allowed_configurations, current_configurations
from models.placement.occupancy import occupancy
from models.workload import Adaptivity, Job
from tests.models.allocation.elasticflow.scenes import random_snapshot
from tests.models.placement.scenes import SEEDS, dice, node, on
from topology.cluster import NodeState


@pytest.mark.parametrize(
    ("weights", "most", "expected"),
    [
        ({}, 5.0, {}),
        ({"x": 3.0}, 5.0, {"x": 6.0}),
        # 2 x 1.5 is whole; a point is worth 1 + 3.
        ({"x": 1.0, "y": 1.5}, 3.0, {"x": 8.0, "y": 12.0}),
        # No multiple up to 100 makes pi whole: 100, and 314.
        ({"x": 1.0, "y": np.pi}, 0.0, {"x": 100.0, "y": 314.0}),
        # Nobody has more than 10,000 points: 10 times the weights.
        ({"x": 1.0, "y": 1000.05}, 0.0, {"x": 9.0, "y": 9000.0}),
    ],
)
def test_points_by_hand(weights: dict[str, float], most: float, expected: dict[str, float]) -> None:
    assert point_rewards(weights, most) == pytest.approx(expected)


def test_a_running_job_stays_on_part_of_a_node_or_on_whole_ones() -> None:
    nodes = {one.id: one for one in (node("n0", 4), node("n1", 4), node("n2", 2))}
    sizes = {"a": 4}

    def kept(*states: NodeState, **gpus: tuple[int, ...]) -> object:
        changed = {name: replace(nodes[name], state=state) for name, state in zip(nodes, states, strict=False)}
        return kept_shape(Job(id="x", current=on(gpus)), {**nodes, **changed}, sizes)

    whole = tuple(range(4))
    assert kept(n0=(1, 2)) == ("a", 1, 2)
    assert kept(n0=whole, n1=whole) == ("a", 2, 8)
    assert kept(n0=whole, n1=(0, 1)) is None
    # Two GPUs of a smaller node are a part of one; two such nodes with four are no whole one.
    assert kept(n2=(0, 1)) == ("a", 1, 2)
    assert kept(n0=(0, 1), n2=(0, 1)) is None
    assert kept(NodeState.DRAINED, n0=whole) is None
    assert kept(NodeState.DOWN, n0=whole) is None
    assert kept_shape(Job(id="x"), nodes, sizes) is None


def test_bounds_types_and_adaptivity_are_kept() -> None:
    elastic = Job(id="x", min_gpus=2, max_gpus=4, gpu_types=("a",))
    assert [n for n in (1, 2, 4, 8) if allows(elastic, "a", n)] == [2, 4]
    assert not allows(elastic, "b", 2)
    rigid = replace(elastic, adaptivity=Adaptivity.RIGID, max_gpus=None)
    assert [n for n in (1, 2, 4, 8) if allows(rigid, "a", n)] == [2]
    assert allows(Job(id="y"), "b", 1024)


@given(SEEDS)
@settings(deadline=None, max_examples=100)
def test_formulations_say_the_same(seed: int) -> None:
    snapshot = random_snapshot(dice(seed), num_nodes=3, num_jobs=5)
    blocks, taken = buddy_blocks(snapshot.cluster), occupancy(snapshot)
    named = zip(blocks.type_index.tolist(), blocks.num_nodes.tolist(), blocks.num_gpus.tolist(), strict=True)
    shapes = [(blocks.gpu_types[t], n, m) for t, n, m in named]
    sizes, nodes = node_sizes(shapes), {one.id: one for one in snapshot.cluster.nodes}
    allowed = [[allows(job, kind, m) for kind, _, m in shapes] for job in snapshot.jobs]
    assert allowed_configurations(snapshot.jobs, blocks).tolist() == allowed
    current = current_configurations(snapshot, blocks, taken).tolist()
    for job, c in zip(snapshot.jobs, current, strict=True):
        if job.id not in taken.pinned:
            kept = kept_shape(job, nodes, sizes)
            assert (shapes[c] if c >= 0 else None) == (kept if kept in shapes else None)
    weights = np.array([job.weight for job in snapshot.jobs])
    earns = np.array([job.deadline_s is not None for job in snapshot.jobs], dtype=np.bool_)
    found = point_rewards({job.id: job.weight for job in snapshot.jobs if job.deadline_s is not None}, 7.0)
    assert rewards(earns, weights, 7.0).tolist() == [found.get(job.id, 0.0) for job in snapshot.jobs]
