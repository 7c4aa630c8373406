"""Layers and recomputations of stages together: what the program proves, and what a search makes of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, even_split
from models.parallelism.even import even_plans
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.grid.options import GridOptions
from models.parallelism.joint import JointStages, LayerChoices
from models.parallelism.joint_search import joint_plan
from models.parallelism.legality import plan_violations
from models.parallelism.recomputation import recomputing
from models.parallelism.recomputation_mip import JointRows, joint_optimum
from models.performance.iteration.model import PerformanceModel
from models.performance.iteration.modelling import virtual_model
from models.performance.iteration.whitebox import roofline_s
from models.software import Software
from models.transformer import Attention
from solver.options import SolveOptions
from tests.growth import work
from tests.models.parallelism.test_even import KIND
from tests.models.parallelism.test_recomputation import LARGE, model_on, pipeline

EXACT = SolveOptions(relative_gap=0.0)


def without_sends(memory_gb: float, **changes: object) -> PerformanceModel:
    return replace(model_on(memory_gb, replace(LARGE, **changes)), send_receive=False)  # type: ignore[arg-type]


def optimum(model: PerformanceModel, even: ParallelPlan, *, by_stage: bool = True) -> JointStages | None:
    degrees = compact_degrees(model.profile, (1,), 4)
    choices = LayerChoices.of(model, KIND.name, degrees, even.pp, even.num_layers, by_stage=by_stage)
    return choices.optimum(even.num_micro_batches, 0)


@settings(max_examples=60, deadline=None)
@given(
    memory_gb=st.floats(1.2, 5.0),
    num_layers=st.integers(4, 9),
    num_stages=st.integers(1, 4),
    num_micro_batches=st.sampled_from([1, 2, 8]),
    attention=st.sampled_from([Attention.FUSED, Attention.PLAIN]),
    zero_stage=st.integers(0, 1),
    tied=st.booleans(),
)
def test_it_is_what_the_program_proves(
    memory_gb: float,
    num_layers: int,
    num_stages: int,
    num_micro_batches: int,
    attention: Attention,
    zero_stage: int,
    *,
    tied: bool,
) -> None:
    model = without_sends(
        memory_gb, num_layers=num_layers, attention=attention, zero_stage=zero_stage, tied_embeddings=tied
    )
    even = pipeline(even_split(num_layers, num_stages), num_micro_batches)
    proven, found = joint_optimum(JointRows.of(even, model, 4, num_layers), EXACT), optimum(model, even)
    if proven.seconds is None:
        assert found is None
        return
    assert found is not None
    assert found.seconds == pytest.approx(proven.seconds, rel=1e-6)
    assert found.recomputation is not None
    plan = recomputing(pipeline(found.layers, num_micro_batches), found.recomputation)
    assert plan_violations(plan, model) == []
    assert model.iteration(plan).total_s == pytest.approx(found.seconds, rel=1e-9)


def test_layers_go_to_stages_that_hold_fewer_micro_batches() -> None:
    """Four stages of a pipeline with 4, 3, 2 and 1 micro-batches in flight, none of which recomputes anything."""
    model, even = without_sends(4.2, num_layers=14), pipeline((3, 4, 4, 3))
    assert not model.fits(even)
    found = optimum(model, even, by_stage=False)
    assert found is not None
    assert found.recomputation is None
    assert found.layers == (2, 3, 4, 5)
    plan = pipeline(found.layers)
    assert plan_violations(plan, model) == []
    assert model.iteration(plan).total_s == pytest.approx(found.seconds, rel=1e-9)


def test_parts_of_stages_count_as_searches_do() -> None:
    """An interleaved plan of equal stages takes what the schedule says within a fifth; every part has a layer."""
    model = without_sends(40.0, num_layers=8, software=Software.MEGATRON_CORE)
    degrees = compact_degrees(model.profile, (1,), 4)
    found = LayerChoices.of(model, KIND.name, degrees, 2, 8, by_stage=True, parts=2).optimum(8, 0)
    whole = LayerChoices.of(model, KIND.name, degrees, 2, 8, by_stage=True).optimum(8, 0)
    assert found is not None
    assert whole is not None
    assert found.seconds < whole.seconds
    assert {count % 2 for count in found.layers} == {0}
    plan = pipeline(found.layers, virtual_stages=2)
    assert model.iteration(plan).total_s == pytest.approx(found.seconds, rel=0.2)


@pytest.mark.parametrize("by_stage", [False, True])
def test_the_search_finds_what_is_better_than_even_layers(*, by_stage: bool) -> None:
    """On four stages; without recomputation no even layers fit at all."""
    kind = replace(KIND, memory_bytes=4_200_000_000)
    job = replace(LARGE, num_layers=14, software=Software.MEGATRON_CORE)
    model, options = virtual_model(job, kind, 4, 1), GridOptions(pipeline_degrees=(4,))
    even = even_plans(model, kind.name, 4, 4, roofline_s(model.profile, kind), options, by_stage=by_stage)
    found = joint_plan(model, kind.name, 4, 4, options, by_stage=by_stage, below_s=even.seconds)
    assert found is not None
    assert plan_violations(found, model) == []
    assert found.has_own_checkpointing is by_stage
    seconds = model.iteration(found).total_s
    assert seconds < 0.97 * even.seconds
    assert joint_plan(model, kind.name, 4, 4, options, by_stage=by_stage, below_s=seconds) is None


def test_parts_that_do_not_divide_the_layers_lack_one_beside_embedding_and_head() -> None:
    """22 layers and two more are 4 stages of two parts of 3."""
    model = without_sends(200.0, num_layers=22, software=Software.MEGATRON_CORE)
    degrees = compact_degrees(model.profile, (1,), 4)
    found = LayerChoices.of(model, KIND.name, degrees, 4, 22, by_stage=False, parts=3).optimum(8, 0)
    assert found is not None
    assert found.layers == (5, 6, 6, 5)


def test_the_cost_grows_with_the_layers() -> None:
    def cost(num_layers: int, num_stages: int) -> int:
        model = without_sends(3.0, num_layers=num_layers)
        degrees = compact_degrees(model.profile, (1,), 4)
        found = LayerChoices.of(model, KIND.name, degrees, num_stages, 2 * num_layers // num_stages, by_stage=True)
        return work(lambda: found.optimum(8, 0))

    assert cost(64, 16) <= 2.3 * cost(32, 8)
    assert cost(64, 4) <= 2.3 * cost(32, 4)
