"""Among plans of equal value the one that changes least is taken."""

from itertools import permutations
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.ties import Step, objective_step
from models.clock import PhaseClock
from models.plan import Change
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import TerminationReason
from tests.models.allocation.sia.instances import table
from tests.models.placement.scenes import cluster, node, on

COSTS = SiaParameters(objective=SiaObjective.GIVEN_COSTS)


@pytest.mark.parametrize(
    ("values", "step"),
    [((3.0, -4.0), 1.0), ((0.3, 0.7), 0.1), ((0.25, 1.1), 0.01), ((0.125,), 0.001), ((1 / 3,), None), ((), 1.0)],
)
def test_the_step_of_the_objective(values: tuple[float, ...], step: float | None) -> None:
    found = objective_step(np.array(values), np.arange(len(values)), relative_gap=0.0)
    assert (found and found.size) == step


def test_deviations_of_jobs_add_up_and_stay_within_the_gap_that_is_asked_for() -> None:
    jobs, values = np.array([0, 0, 1]), np.array([100.0001, 100.0002, 200.0001])
    found = objective_step(values, jobs, relative_gap=1e-4)
    assert found is not None
    assert found.size == 1.0
    assert found.slack == pytest.approx(3e-4)
    assert objective_step(values, jobs, relative_gap=0.0) is None
    # 200 jobs that are off by a thousandth of a step each are off by a fifth of one.
    assert objective_step(np.full(200, 1000.001), np.arange(200), relative_gap=1e-4) == Step(size=0.001, slack=ANY)


@pytest.mark.parametrize("noise", [0.0, 1e-6])
@pytest.mark.parametrize("solver", ["decomposition", "highs", "scip"])
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_jobs_stay_where_they_are_when_nothing_is_gained(solver: str, order: tuple[int, ...], noise: float) -> None:
    """Three jobs, one GPU each, on types a, b, c with one GPU each, and every cost is 0.25: all six plans cost 0.75.

    With noise, as of float32, every other place is better by less than counts.
    """
    nodes = [node(f"n{kind}", 1, kind) for kind in "abc"]
    jobs = tuple(
        Job(
            id=f"j{k}",
            performance=table({(kind, 1): 0.25 + noise * (kind == "abc"[place]) for kind in "abc"}),
            current=on({f"n{'abc'[place]}": (0,)}),
        )
        for k, place in enumerate(order)
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(*nodes), jobs=jobs), COSTS, PhaseClock())
    result = formulation.solve(SolveOptions(solver=solver, relative_gap=10 * noise), SolveMonitor())
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective is not None
    assert result.objective == pytest.approx(0.75, rel=1e-5)
    assert result.bound == pytest.approx(0.75, rel=1e-5)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert {allocation.change for allocation in plan.allocations} == {Change.KEPT}
    assert formulation.violations(plan, result.objective) == []


_COSTS = st.lists(
    st.tuples(st.integers(min_value=1, max_value=40), st.floats(min_value=-1e-6, max_value=1e-6)).map(
        lambda drawn: 0.01 * drawn[0] * (1 + drawn[1])
    ),
    min_size=4,
    max_size=4,
)


@given(costs=_COSTS, relative_gap=st.sampled_from([0.0, 1e-6, 1e-4]))
@settings(max_examples=25, deadline=None)
def test_bound_and_claim_are_true_of_costs_that_are_nearly_multiples(costs: list[float], relative_gap: float) -> None:
    """Two jobs, one GPU each, on types a and b with one GPU each: every outcome can be counted."""
    nodes = [node(f"n{kind}", 1, kind) for kind in "ab"]
    rows = (costs[:2], costs[2:])
    jobs = tuple(
        Job(
            id=f"j{i}",
            performance=table({(kind, 1): cost for kind, cost in zip("ab", row, strict=True)}),
            current=on({f"n{'ab'[i]}": (0,)}),
        )
        for i, row in enumerate(rows)
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(*nodes), jobs=jobs), COSTS, PhaseClock())
    result = formulation.solve(SolveOptions(solver="decomposition", relative_gap=relative_gap), SolveMonitor())
    assert result.objective is not None
    assert result.bound is not None
    best = min(rows[0][0] + rows[1][1], rows[0][1] + rows[1][0])
    assert result.bound <= best + 1e-12
    if result.termination is TerminationReason.OPTIMAL:
        assert result.objective - best <= relative_gap * result.objective + 1e-12


def test_a_gain_of_one_step_is_worth_every_move() -> None:
    """j0 sits on type a at 0.26; moving it to b (0.25) means that j1 moves to a (0.25 as on b)."""
    nodes = [node(f"n{kind}", 1, kind) for kind in "ab"]
    jobs = (
        Job(id="j0", performance=table({("a", 1): 0.26, ("b", 1): 0.25}), current=on({"na": (0,)})),
        Job(id="j1", performance=table({("a", 1): 0.25, ("b", 1): 0.25}), current=on({"nb": (0,)})),
    )
    formulation = formulate_sia(Snapshot(cluster=cluster(*nodes), jobs=jobs), COSTS, PhaseClock())
    result = formulation.solve(SolveOptions(solver="decomposition", relative_gap=0.0), SolveMonitor())
    assert result.objective == pytest.approx(0.5)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert {allocation.change for allocation in plan.allocations} == {Change.RETYPED}


def test_gains_beyond_all_digits_are_whole() -> None:
    found = objective_step(np.array([2.0**60, -1e300]), np.arange(2), relative_gap=0.0)
    assert found == Step(size=1.0, slack=0.0)
