from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.grid.partition import gpu_sets
from models.parallelism.grid.search import packing_sets
from models.parallelism.layout import build_plan, packs, stage_places
from models.parallelism.node_layouts import Meeting, best_layouts, capacities, layouts


def test_large_stages_do_not_split_small_ones() -> None:
    # Stages of 2, 4, 2 GPUs on nodes of 4:   node 0: [0 0 2 2]   node 1: [1 1 1 1]
    places = stage_places((2, 4, 2), 4)
    assert places == ((("0", 0), ("0", 1)), tuple(("1", k) for k in range(4)), (("0", 2), ("0", 3)))


def test_a_stage_of_several_nodes_has_its_rest_in_one() -> None:
    # Stages of 12 and 12 on nodes of 8:   [0 x 8] [0 x 4, 1 x 4] [1 x 8]
    places = stage_places((12, 12), 8)
    assert places is not None
    assert [Counter(node for node, _ in stage) for stage in places] == [{"0": 8, "1": 4}, {"2": 8, "1": 4}]


def test_what_does_not_pack_is_refused() -> None:
    # 6 + 6 on one node of 8 and one of 4; 3 + 3 + 3 + 3 + 3 + 3 + 3 + 3 on three nodes of 8.
    assert stage_places((6, 6), 8) is None
    assert stage_places((3,) * 8, 8) is None
    assert [3] * 8 not in packing_sets(24, 8, 8).tolist()


@given(st.integers(1, 64), st.integers(1, 6), st.sampled_from([1, 2, 3, 4, 6, 8, 16]))
@settings(deadline=None, max_examples=80)
def test_places_are_whole_nodes_and_a_rest(num_gpus: int, num_stages: int, gpus_per_node: int) -> None:
    powers_pack = gpus_per_node & (gpus_per_node - 1) == 0
    for sizes in gpu_sets(num_gpus, num_stages).tolist():
        places = stage_places(tuple(sizes), gpus_per_node)
        assert packs(tuple(sizes), gpus_per_node) == (places is not None)
        if places is None:
            assert not (powers_pack and all(size & (size - 1) == 0 for size in sizes))
            continue
        assert [len(stage) for stage in places] == sizes
        every = [place for stage in places for place in stage]
        assert len(set(every)) == num_gpus
        used = sorted(Counter(node for node, _ in every).values(), reverse=True)
        assert tuple(used) == capacities(num_gpus, gpus_per_node)
        assert all(len({node for node, _ in stage}) == -(-len(stage) // gpus_per_node) for stage in places)


def test_a_plan_has_its_tensor_groups_in_pipeline_order() -> None:
    places = stage_places((2, 4, 2), 4)
    assert places is not None
    plan = build_plan(
        layers=(1, 2, 1),
        degrees=((2, 1), (2, 2), (1, 2)),
        places=places,
        gpu_type="x",
        micro_batch=4,
        num_micro_batches=3,
    )
    assert plan.notation() == "1L 2x1 | 2L 2x2 | 1L 1x2 (3 x 4)"
    assert [replica.gpus for replica in plan.stages[1].replicas] == [(0, 1), (2, 3)]
    assert [replica.local_batch for replica in plan.stages[2].replicas] == [4]


def test_two_stages_of_three_replicas_cannot_both_be_whole() -> None:
    # Nodes of 4 and 2 GPUs: three replicas of stage 0 in the first, then stage 1 has one GPU here and two there.
    found = layouts(((3, 1), (3, 1)), (4, 2))
    assert (Meeting.WHOLE, Meeting.MIXED) in found
    assert (Meeting.WHOLE, Meeting.WHOLE) not in found


def test_only_layouts_that_no_other_beats_are_kept() -> None:
    # DP2 + DP2 on two nodes of 2. Fast links inside nodes: both whole. A fast network: both across.
    degrees = ((2, 1), (2, 1))
    assert best_layouts(degrees, (2, 2), 100.0, 10.0) == [(Meeting.WHOLE, Meeting.WHOLE)]
    assert best_layouts(degrees, (2, 2), 10.0, 100.0) == [(Meeting.SINGLES, Meeting.SINGLES)]
    # One replica has nothing to reduce: wherever it sits, one layout is enough.
    assert len(best_layouts(((1, 1), (1, 1)), (1, 1), 10.0, 100.0)) == 1
