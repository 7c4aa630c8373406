"""The bound of symmetric plans is never above what the model says of any of them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.parallelism.even import even_bound_s, even_plans
from models.parallelism.even_bound import least_s
from models.parallelism.grid.options import GridOptions
from models.parallelism.planner import answer
from models.parallelism.recomputation import recomputations, recomputing
from models.parallelism.request import Offer, ParallelRequest
from models.parallelism.training import ALL_CHECKPOINTING, ALL_ZERO_STAGES, Choices
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.performance.pipeline.exact import exact_makespan_s
from models.performance.pipeline.schedule import Schedule, ScheduleKind
from models.performance.pipeline.times import StageTimes
from models.software import Software
from tests.models.parallelism.test_even import KIND, every_plan
from tests.models.parallelism.test_recomputation import LARGE


@settings(max_examples=60, deadline=None)
@given(
    num_stages=st.integers(2, 5),
    parts=st.integers(2, 4),
    rounds=st.integers(1, 4),
    seed=st.integers(0, 2**16),
    spread=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_no_interleaved_schedule_is_faster(num_stages: int, parts: int, rounds: int, seed: int, spread: float) -> None:
    drawn = np.random.default_rng(seed)
    forward, backward = (base * (1.0 + spread * drawn.random(num_stages)) for base in (1.0, 2.0))
    count = rounds * num_stages
    schedule = Schedule(
        kind=ScheduleKind.INTERLEAVED, num_devices=num_stages, num_chunks=parts, num_micro_batches=count
    )
    of_parts = StageTimes(forward_s=np.tile(forward / parts, parts), backward_s=np.tile(backward / parts, parts))
    makespan = float(exact_makespan_s(schedule, of_parts))
    stages = np.stack([forward, backward, np.zeros(num_stages)])[:, None, None]
    bound = least_s(stages, count, np.array([parts]))
    assert bound[0, 0] <= makespan
    if not spread:
        # 1 % for the tolerance of makespans.
        assert bound[0, 0] == pytest.approx(0.99 * makespan)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    memory_gb=st.sampled_from([2, 3, 5, 40]),
    num_gpus=st.sampled_from([2, 4]),
    software=st.sampled_from([Software.MEGATRON_CORE, Software.MEGATRON_LM, Software.TORCH, Software.TORCH_EAGER]),
    zero_stage=st.integers(0, 1),
)
def test_no_plan_is_faster(memory_gb: int, num_gpus: int, software: Software, zero_stage: int) -> None:
    """Of all degrees, micro-batches, virtual stages and recomputations, where layers are spread evenly."""
    job = replace(LARGE, num_layers=4, software=software, zero_stage=zero_stage)
    kind = replace(KIND, memory_bytes=memory_gb * 10**9)
    model, roomy = (virtual_model(job, of, 2, 2) for of in (kind, replace(KIND, memory_bytes=10**15)))
    loads = roofline_s(model.profile, kind)
    alike, by_stage = (
        even_plans(model, kind.name, 2, num_gpus, loads, GridOptions(), by_stage=flag) for flag in (False, True)
    )
    plans = every_plan(roomy, num_gpus, 2)
    fitting = [model.iteration(plan).total_s for plan in plans if model.fits(plan)]
    assert alike.bound_s <= min(fitting, default=np.inf)
    own = [
        model.iteration(built).total_s
        for plan in plans
        if not plan.schedule.splits_backward
        for one in product(*(recomputations(stage.num_layers, plan.virtual_stages) for stage in plan.stages))
        if model.fits(built := recomputing(plan, one))
    ]
    assert by_stage.bound_s <= min(own, default=np.inf)
    arguments = (model, kind.name, 2, num_gpus, loads, GridOptions())
    assert even_bound_s(*arguments) <= alike.bound_s
    assert even_bound_s(*arguments, by_stage=True) <= by_stage.bound_s
    if fitting:
        assert alike.bound_s >= 0.8 * min(fitting)


@pytest.mark.parametrize("software", [Software.MEGATRON_CORE, Software.DEEPSPEED])
@pytest.mark.parametrize("are_open", [False, True])
def test_answers_have_the_bound_also_when_the_time_is_over(software: Software, *, are_open: bool) -> None:
    kind = replace(KIND, memory_bytes=6 * 10**9)
    choices = Choices(checkpointing=ALL_CHECKPOINTING, zero_stages=ALL_ZERO_STAGES) if are_open else Choices()
    request = ParallelRequest(
        model=replace(LARGE, num_layers=8, software=software),
        offers=(Offer(gpu_type=kind, gpus_per_node=4, counts=(4,)),),
        choices=choices,
    )
    whole, early = answer(request), answer(request, over=lambda: True)
    assert whole.best.bound_s is not None
    assert early.best.bound_s is not None
    assert early.best.bound_s <= whole.best.bound_s <= 1.001 * whole.best.seconds
    assert early.best.seconds >= whole.best.seconds
    assert early.best.gap is not None
    assert early.best.gap >= 1.0 - whole.best.seconds / early.best.seconds - 1e-3
    assert "time_limit" in {issue.code for issue in early.warnings}
    assert "time_limit" not in {issue.code for issue in whole.warnings}
