"""What is left after GPUs are taken away: legal, on the rest, and as good as it can be in cases that are clear."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.options import IncrementalOptions, MicroBatches, Scaling
from models.parallelism.incremental.shrink import shrink
from models.parallelism.legality import plan_violations
from stowplan.errors import InputError
from tests.models.parallelism.incremental.scenes import gpus_of, job, models, plans, symmetric

EXAMPLES = settings(max_examples=20, deadline=None)


@EXAMPLES
@given(st.data())
def test_what_is_left_is_legal(data: st.DataObject) -> None:
    model = data.draw(models(num_types=2))
    plan = data.draw(plans(model))
    lost = data.draw(st.lists(st.sampled_from(plan.gpus), unique=True))
    left = shrink(model, plan, lost)
    if left is not None:
        assert plan_violations(left, model) == []
        assert set(left.gpus) <= set(plan.gpus) - set(lost)


@EXAMPLES
@given(st.data())
def test_none_only_where_not_even_one_stage_per_gpu_fits(data: st.DataObject) -> None:
    model = data.draw(models())
    plan = data.draw(plans(model))
    lost = data.draw(st.lists(st.sampled_from(plan.gpus), unique=True, max_size=2))
    huge = replace(model, memory_bytes=dict.fromkeys(model.memory_bytes, 1e9))
    assert (shrink(huge, plan, lost) is None) == (set(lost) == set(plan.gpus))


def test_losing_a_scale_out_gives_back_what_was_before() -> None:
    model = job("llama2-13b", num_nodes=4)
    plan = symmetric(model, 1, 8, 2, 8, gpus_of(0, 16))
    grown = expand(model, plan, gpus_of(16, 32)).steps[-1].plan
    left = shrink(model, grown, [gpu for gpu in grown.gpus if gpu not in set(plan.gpus)])
    assert left is not None
    assert model.throughput(left) >= model.throughput(plan) * (1 - 1e-9)


def test_replicas_go_first() -> None:
    """Two of eight replicas of PP1 DP8 TP1 are lost: with six that have more samples, or better."""
    model = job("gpt2-1.3b", num_nodes=1, global_batch=96)
    plan = symmetric(model, 1, 8, 1, 12, gpus_of(0, 8))
    left = shrink(model, plan, [("0", 3), ("0", 5)])
    rest = [("0", k) for k in (0, 1, 2, 4, 6, 7)]
    assert left is not None
    assert sorted(left.gpus) == rest
    assert model.throughput(left) >= model.throughput(symmetric(model, 1, 6, 1, 8, rest))


def test_a_whole_stage_is_dissolved() -> None:
    model = job(num_nodes=3)
    plan = symmetric(model, 3, 2, 4, 16, gpus_of(0, 24))
    left = shrink(model, plan, gpus_of(8, 16))
    assert left is not None
    assert {node for node, _ in left.gpus} == {"0", "2"}
    assert left.num_gpus == 16
    assert model.throughput(left) > 0.6 * model.throughput(plan)


def test_nothing_fits() -> None:
    model = job("llama2-13b", num_nodes=2)
    plan = symmetric(model, 1, 4, 4, 16, gpus_of(0, 16))
    assert shrink(model, plan, gpus_of(2, 16)) is None
    assert shrink(model, plan, gpus_of(0, 16)) is None


def test_nothing_lost_is_balanced_anew() -> None:
    model = job()
    plan = symmetric(model, 2, 2, 2, 8, gpus_of(0, 8))
    left = shrink(model, plan, [])
    assert left is not None
    assert model.throughput(left) >= model.throughput(plan)


def test_options_and_bad_input() -> None:
    model = job()
    plan = symmetric(model, 2, 2, 2, 8, gpus_of(0, 8))
    with pytest.raises(InputError, match=r"GPU 9 of node '0' is taken away, and the plan does not use it"):
        shrink(model, plan, [("0", 9)])
    kept = shrink(model, plan, [("0", 0)], IncrementalOptions(micro_batches=MicroBatches.KEPT))
    assert kept is not None
    assert kept.num_micro_batches == 8


def test_data_degrees_alone() -> None:
    model = job()
    data = IncrementalOptions(scaling=Scaling.DATA)
    plan = symmetric(model, 2, 2, 2, 8, gpus_of(0, 8))
    left = shrink(model, plan, gpus_of(0, 2), data)
    assert left is not None
    assert [(stage.dp, stage.tp) for stage in left.stages] == [(1, 2), (2, 2)]
    # A stage of which nothing is left could only be dissolved.
    assert shrink(model, plan, gpus_of(0, 4), data) is None
