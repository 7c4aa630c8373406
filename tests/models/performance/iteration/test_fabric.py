"""Bandwidth by placement, and transfers between stages.

core 0.83: minipod p { leaf k: a b, leaf l: c }   minipod q { leaf k: d e }
"""

import pytest

from models.parallel_plan import ParallelPlan
from models.performance.iteration.fabric import fabric_of, flat_fabric, send_receive_fraction
from models.performance.iteration.sends import send_s
from stowplan.errors import InputError
from tests.models.performance.iteration.plan_scenes import PATHS, SIZES, TYPES, fabric, model, plan, profile
from topology.cluster import Cluster, GpuType, Node, Tier

X, Y = (
    GpuType(
        name=name,
        memory_bytes=100,
        peak_flops_per_s=1.0,
        intra_node_bandwidth_bytes_per_s=intra,
        inter_node_bandwidth_bytes_per_s=inter,
    )
    for name, intra, inter in (("x", 32.0, 10.0), ("y", 64.0, 30.0))
)


def _cluster(minipod_tier: str | None) -> Cluster:
    return Cluster(
        gpu_types=(X, Y),
        nodes=tuple(Node(id=k, gpu_type=TYPES[k], num_gpus=8, path=path) for k, path in PATHS.items()),
        tiers=(Tier(name="pod", bandwidth_fraction=0.5), Tier(name="leaf")),
        minipod_tier=minipod_tier,
        core_bandwidth_fraction=0.83,
    )


def test_groups_get_their_worst_pair() -> None:
    on = fabric_of(_cluster("pod"))
    assert on.intra_bytes_per_s("c") == 64
    assert on.group_bytes_per_s(["a"]) == 10
    assert on.group_bytes_per_s(["a", "b", "a"]) == 10
    assert on.group_bytes_per_s(["b", "c", "a"]) == pytest.approx(0.5 * 10)
    # Leaf k of minipod p is not leaf k of minipod q. Of the two types in the last group the slower one counts.
    assert on.group_bytes_per_s(["a", "d"]) == pytest.approx(0.83 * 10)
    assert on.group_bytes_per_s(["e", "c"]) == pytest.approx(0.83 * 30)
    assert on.group_bytes_per_s(["e", "d"]) == 10


def test_send_receive_loses_more_between_minipods_only() -> None:
    on = fabric_of(_cluster("pod"))
    assert on.send_receive_bytes_per_s("a", "b") == 10
    assert on.send_receive_bytes_per_s("a", "c") == pytest.approx(0.5 * 10)
    assert on.send_receive_bytes_per_s("e", "c") == pytest.approx(0.30 * 30)
    assert fabric_of(_cluster(None)).send_receive_bytes_per_s("e", "c") == pytest.approx(0.83 * 30)
    # Where leaf groups are the minipods, two leaves of a pod are two minipods.
    ratio = 0.30 / 0.83
    assert fabric_of(_cluster("leaf")).send_receive_bytes_per_s("a", "c") == pytest.approx(0.5 * ratio * 10)


def test_rule_for_send_receive() -> None:
    # Nothing lost, what Arnold measured, halfway between them, and beyond: the measured ratio is kept.
    assert send_receive_fraction(1.0) == 1.0
    assert send_receive_fraction(0.83) == pytest.approx(0.30)
    assert send_receive_fraction(0.915) == pytest.approx(0.915 * (1 + 0.30 / 0.83) / 2)
    assert send_receive_fraction(0.5) == pytest.approx(0.5 * 0.30 / 0.83)


def test_flat_fabric_has_one_switch() -> None:
    flat = flat_fabric({"0": X, "1": Y}, 8)
    assert flat.group_bytes_per_s(["0", "1"]) == flat.send_receive_bytes_per_s("0", "1") == 10
    assert flat.host("1").num_gpus == 8
    with pytest.raises(InputError, match="node '2', which the cluster does not have"):
        flat.host("2")


def test_data_parallel_group_across_minipods_is_slower() -> None:
    inside = plan((3, 1, {"a": [2], "b": [2]}), (3, 1, {"d": [2], "e": [2]}))
    across = plan((3, 1, {"a": [2], "d": [2]}), (3, 1, {"b": [2], "e": [2]}))
    fast, slow = (model().iteration(p) for p in (inside, across))
    assert slow.total_s > fast.total_s
    assert slow.stages[0].reduction_s == pytest.approx(fast.stages[0].reduction_s / (0.83 * 0.5))


def test_pipeline_across_minipods_is_slower_where_sends_count() -> None:
    # Replica 0 of both stages in minipod p, replica 1 in q; then the other way round.
    aligned = plan((3, 1, {"a": [2], "d": [2]}), (3, 1, {"b": [2], "d": [2]}))
    crossed = plan((3, 1, {"a": [2], "d": [2]}), (3, 1, {"d": [2], "b": [2]}))
    paper, counting = model(), model(send_receive=True)
    assert paper.iteration(aligned).total_s == paper.iteration(crossed).total_s
    assert counting.iteration(crossed).total_s > counting.iteration(aligned).total_s > paper.iteration(aligned).total_s


def test_send_between_two_nodes_by_hand() -> None:
    # 8 bytes for each of 2 samples at 10 bytes/s, there and back: 3.2 s, once in the warm-up.
    two = plan((3, 1, {"a": [2]}), (3, 1, {"b": [2]}))
    assert _sends(two) == pytest.approx((3.2, 0))
    plain, counting = (model(send_receive=flag).iteration(two) for flag in (False, True))
    assert counting.total_s - plain.total_s == pytest.approx(3.2)


def test_unequal_replicas_send_what_the_other_works_on() -> None:
    # Sequences 0-1 | 2-5 on a and b meet 0-3 | 4-5 on d and e, at 10 x 0.83 x 0.5 x 0.30 / 0.83 = 1.5 bytes/s:
    # a sends 2 to d; b 2 to d, 2 to e; d receives 4 x 8 = 32 bytes, as much as b sends. Both ways: 2 x 32 / 1.5.
    crossing = plan((3, 1, {"a": [2], "b": [4]}), (3, 1, {"d": [4], "e": [2]}))
    assert _sends(crossing) == pytest.approx((64 / 1.5, 0))


def test_replicas_of_a_node_share_its_network_but_not_its_links() -> None:
    # Both replicas send 8 x 1 bytes at 10 bytes/s, one after the other; inside a node side by side at 32 bytes/s.
    assert _sends(plan((3, 1, {"a": [1, 1]}), (3, 1, {"b": [1, 1]}))) == pytest.approx((3.2, 0))
    assert _sends(plan((3, 1, {"a": [1, 1]}), (3, 1, {"a": [1, 1]}))) == pytest.approx((0.5, 0))


def test_links_can_be_the_bottleneck() -> None:
    # 10 samples of 8 bytes at 0.01 bytes/s: a direction is busy for longer than a stage works.
    slow = fabric(faster=0.001)
    two = plan((3, 1, {"a": [10]}), (3, 1, {"b": [10]}), num_micro_batches=5)
    time = model(on=slow, send_receive=True).iteration(two)
    assert time.steady_s == pytest.approx(4 * 80 / 0.01)


def _sends(of: ParallelPlan) -> tuple[float, ...]:
    return send_s(fabric(), profile(), SIZES, of)
