"""The program of layers and recomputations together: what brute force finds, and a bound of one after the other."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.parallel_plan import even_split
from models.parallelism.grid.partition import partitions
from models.parallelism.recomputation import recomputations, recomputing, with_cheapest
from models.parallelism.recomputation_mip import JointRows, joint_optimum
from models.performance.iteration.model import PerformanceModel
from models.software import Software
from models.transformer import Attention, Checkpointing
from solver.options import SolveOptions
from solver.result import TerminationReason
from stowplan.errors import InputError
from tests.models.parallelism.test_recomputation import LARGE, model_on, pipeline

EXACT = SolveOptions(relative_gap=0.0)


def without_sends(memory_gb: float, **changes: object) -> PerformanceModel:
    return replace(model_on(memory_gb, replace(LARGE, **changes)), send_receive=False)  # type: ignore[arg-type]


@settings(max_examples=8, deadline=None)
@given(
    memory_gb=st.floats(1.2, 5.0),
    num_stages=st.integers(1, 3),
    num_micro_batches=st.sampled_from([2, 8]),
    attention=st.sampled_from([Attention.FUSED, Attention.PLAIN]),
)
def test_it_is_what_brute_force_finds(
    memory_gb: float, num_stages: int, num_micro_batches: int, attention: Attention
) -> None:
    model = without_sends(memory_gb, num_layers=5, attention=attention)
    best = None
    for bounds in partitions(5, num_stages).tolist():
        layers = tuple(last - first for first, last in pairwise(bounds))
        plan = pipeline(layers, num_micro_batches)
        for one in product(*(recomputations(count) for count in layers)):
            built = recomputing(plan, one)
            if model.fits(built):
                seconds = model.iteration(built).total_s
                best = seconds if best is None else min(best, seconds)
    even = pipeline(even_split(5, num_stages), num_micro_batches)
    found = joint_optimum(JointRows.of(even, model, 4, 5), EXACT)
    if best is None:
        assert found.termination is TerminationReason.INFEASIBLE
        assert (found.layers, found.seconds) == (None, None)
        return
    assert found.seconds == pytest.approx(best, rel=1e-6)
    assert found.bound_s == pytest.approx(best, rel=1e-4)
    assert found.layers is not None
    assert found.recomputation is not None
    assert model.iteration(recomputing(pipeline(found.layers, num_micro_batches), found.recomputation)).total_s == (
        pytest.approx(found.seconds)
    )
    heuristic = with_cheapest(even, model, 4)
    if heuristic is not None:
        gap = found.gap(model.iteration(heuristic).total_s)
        assert gap is not None
        assert 0 <= gap <= 1 - best / model.iteration(heuristic).total_s + 1e-4


def test_one_after_the_other_is_best_where_a_layer_more_costs_more_than_a_layer_again() -> None:
    """Of eight layers on two stages, 5 cost the slowest stage 5/4; recomputing 3 of 4 costs it less."""
    model, even = without_sends(2.4, num_layers=8), pipeline((4, 4))
    apart, found = with_cheapest(even, model, 4), joint_optimum(JointRows.of(even, model, 4, 8), EXACT)
    assert apart is not None
    assert found.layers == (4, 4)
    assert found.recomputation == ((Checkpointing.FULL, 3), (Checkpointing.SELECTIVE, None))
    assert found.seconds == pytest.approx(model.iteration(apart).total_s)


def test_rows_are_those_that_fit() -> None:
    """With room for everything, nothing is recomputed; without any, there is no row."""
    roomy = joint_optimum(JointRows.of(pipeline((2, 2)), without_sends(40.0, num_layers=4), 4, 4))
    assert roomy.recomputation == ((Checkpointing.NONE, None),) * 2
    nothing = joint_optimum(JointRows.of(pipeline((2, 2)), without_sends(0.2, num_layers=4), 4, 4))
    assert nothing.termination is TerminationReason.INFEASIBLE
    assert nothing.gap(1.0) is None


def test_interleaved_plans_are_refused() -> None:
    model = without_sends(40.0, num_layers=4, software=Software.TORCH)
    with pytest.raises(InputError, match="whole stages"):
        JointRows.of(pipeline((2, 2), virtual_stages=2), model, 4, 4)
