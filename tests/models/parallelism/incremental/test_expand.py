"""Every plan is legal and as fast as the reference says; what brings nothing is left idle."""

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallelism.incremental.expand import expand
from models.parallelism.incremental.options import IncrementalOptions, MicroBatches, Scaling
from models.parallelism.legality import plan_violations
from stowplan.errors import InputError
from tests.models.parallelism.incremental.scenes import gpus_of, job, models, plans, symmetric

ALL = IncrementalOptions(expansion_limit=None, window=None)
EXAMPLES = settings(max_examples=20, deadline=None)


@pytest.mark.slow
@EXAMPLES
@given(st.data())
def test_steps_are_legal_and_agree_with_the_reference(data: st.DataObject) -> None:
    model = data.draw(models(num_types=2))
    plan = data.draw(plans(model))
    held = set(plan.gpus)
    everything = [(node, gpu) for node in model.fabric.hosts for gpu in range(4) if (node, gpu) not in held]
    released = data.draw(st.lists(st.sampled_from(everything), unique=True, max_size=8))
    result = expand(model, plan, released, ALL)
    assert sorted(result.order) == sorted(released)
    assert result.base_throughput == pytest.approx(model.throughput(plan), rel=1e-9)
    assert [step.num_added for step in result.steps] == list(range(1, len(released) + 1))
    last = result.base_throughput
    for step in result.steps:
        assert step.throughput >= last
        last = step.throughput
        assert set(step.plan.gpus) <= held | set(result.order[: step.num_added])
        assert step.throughput == pytest.approx(model.throughput(step.plan), rel=1e-9)
        if step.plan is not plan:
            assert plan_violations(step.plan, model) == []


def test_gpus_that_bring_nothing_stay_idle() -> None:
    model = job("gpt2-350m", global_batch=2)
    plan = symmetric(model, 1, 2, 1, 1, gpus_of(0, 2))
    result = expand(model, plan, gpus_of(2, 16), ALL)
    idle = [2 + step.num_added - step.plan.num_gpus for step in result.steps]
    assert max(idle) > 0
    assert all(
        before.plan == after.plan for before, after in pairwise(result.steps) if before.throughput == after.throughput
    )


def test_no_gpus_no_steps() -> None:
    model = job()
    plan = symmetric(model, 1, 4, 2, 8, gpus_of(0, 8))
    result = expand(model, plan, [])
    assert result.steps == ()
    assert result.base_throughput == model.throughput(plan)


def test_kept_micro_batches() -> None:
    model = job()
    plan = symmetric(model, 2, 2, 2, 8, gpus_of(0, 8))
    options = IncrementalOptions(micro_batches=MicroBatches.KEPT)
    steps = expand(model, plan, gpus_of(8, 16), options).steps
    assert {step.plan.num_micro_batches for step in steps} == {8}
    free = expand(model, plan, gpus_of(8, 16)).steps
    assert free[-1].throughput > steps[-1].throughput


def test_a_micro_batch_of_the_model_is_kept_in_symmetric_plans() -> None:
    model = job(micro_batch=2)
    plan = symmetric(model, 1, 8, 1, 4, gpus_of(0, 8))
    steps = expand(replace(model, memory_bytes={"h100": 1e12}), plan, gpus_of(8, 16)).steps
    for step in steps:
        widest = max(stage.dp for stage in step.plan.stages)
        smaller = [m for m in range(1, step.plan.micro_batch) if 64 % m == 0]
        assert step.plan.micro_batch >= 2 * widest or step.plan is plan
        assert all(m < 2 * widest for m in smaller)
    assert steps[-1].plan.num_gpus == 16


def test_zero_two_has_no_pipelines() -> None:
    model = job("gpt2-1.3b", zero_stage=2)
    steps = expand(model, symmetric(model, 1, 4, 1, 4, gpus_of(0, 4)), gpus_of(4, 8)).steps
    assert {step.plan.pp for step in steps} == {1}
    assert steps[-1].plan.num_gpus == 8


def test_data_degrees_alone() -> None:
    model = job("llama2-13b", num_nodes=4)
    plan = symmetric(model, 2, 2, 4, 8, gpus_of(0, 16))
    steps = expand(model, plan, gpus_of(16, 32), IncrementalOptions(scaling=Scaling.DATA)).steps
    for step, free in zip(steps, expand(model, plan, gpus_of(16, 32)).steps, strict=True):
        assert [stage.tp for stage in step.plan.stages] == [4, 4]
        assert step.throughput <= free.throughput * (1 + 1e-9)
    # Both stages are twice as wide; a stage that is wider alone leaves the other as it was.
    assert [stage.dp for stage in steps[-1].plan.stages] == [4, 4]
    assert steps[-1].throughput > 1.5 * model.throughput(plan)


def test_early_stop_and_units() -> None:
    model = job("llama2-13b", num_nodes=8)
    plan = symmetric(model, 2, 4, 2, 8, gpus_of(0, 16))
    steps = expand(model, plan, gpus_of(16, 64)).steps
    assert [step.num_added for step in steps] == list(range(1, 17))
    by_four = expand(model, plan, gpus_of(16, 64), IncrementalOptions(unit=4, expansion_limit=0.5)).steps
    assert [step.num_added for step in by_four] == [4, 8]


def test_transfers_between_stages_count_where_the_model_counts_them() -> None:
    model = replace(job("llama2-13b", num_nodes=4), send_receive=True)
    plan = symmetric(model, 2, 4, 2, 8, gpus_of(0, 16))
    last = model.throughput(plan)
    for step in expand(model, plan, gpus_of(16, 32)).steps:
        assert step.throughput == pytest.approx(model.throughput(step.plan), rel=1e-12)
        assert step.throughput >= last
        last = step.throughput


def test_the_order_of_released_gpus_does_not_matter() -> None:
    model = job(num_nodes=3)
    plan = symmetric(model, 2, 2, 2, 8, gpus_of(0, 8))
    forwards = expand(model, plan, gpus_of(8, 20))
    assert expand(model, plan, gpus_of(8, 20)[::-1]) == forwards


def test_groups_of_the_base_plan_stay_together() -> None:
    model = job("llama-7b", zero_stage=0, gpus_per_node=6, global_batch=96)
    gpus = [(node, gpu) for node in ("0", "1") for gpu in range(4)]
    plan = symmetric(model, 2, 2, 2, 16, gpus)
    grown = (
        expand(model, plan, [("1", 4), ("1", 5)], IncrementalOptions(micro_batches=MicroBatches.KEPT)).steps[-1].plan
    )
    before, after = (
        {(replica.node, replica.gpus) for stage in each.stages for replica in stage.replicas} for each in (plan, grown)
    )
    assert before < after
    assert after - before == {("1", (4, 5))}


def test_bad_input() -> None:
    model = job()
    plan = symmetric(model, 1, 4, 2, 8, gpus_of(0, 8))
    with pytest.raises(InputError, match=r"GPU 3 of node '0' is released, and the plan uses it"):
        expand(model, plan, [("0", 3)])
    with pytest.raises(InputError, match=r"node 'x', which the cluster does not have"):
        expand(model, plan, [("x", 0)])
    with pytest.raises(InputError, match=r"32 layers and a global batch of 64; 'llama2-7b' has 32 and 128"):
        expand(job(global_batch=128), plan, gpus_of(8, 9))
    for wrong in ({"window": 0}, {"unit": 0}, {"expansion_limit": 0.0}, {"tolerance": -0.1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            IncrementalOptions(**wrong)
