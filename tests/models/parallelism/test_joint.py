"""Layers and recomputations of stages together: what the program proves, and what a search makes of it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import ParallelPlan, even_split
from models.parallelism.grid.degrees import compact_degrees
from models.parallelism.joint import JointStages, LayerChoices
from models.parallelism.legality import plan_violations
from models.parallelism.recomputation import recomputing
from models.parallelism.recomputation_mip import JointRows, joint_optimum
from models.performance.iteration.model import PerformanceModel
from models.transformer import Attention
from solver.options import SolveOptions
from tests.models.parallelism.test_recomputation import KIND, LARGE, model_on, pipeline

EXACT = SolveOptions(relative_gap=0.0)


def without_sends(memory_gb: float, **changes: object) -> PerformanceModel:
    return replace(model_on(memory_gb, replace(LARGE, **changes)), send_receive=False)  # type: ignore[arg-type]


def optimum(model: PerformanceModel, even: ParallelPlan, *, by_stage: bool = True) -> JointStages | None:
    degrees = compact_degrees(model.profile, (1,), 4)
    choices = LayerChoices.of(model, KIND.name, degrees, even.pp, even.num_layers, by_stage=by_stage)
    return choices.optimum(even.num_micro_batches, 0)


@settings(max_examples=40, deadline=None)
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
