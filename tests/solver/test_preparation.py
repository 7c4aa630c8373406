"""Preparation changes neither points nor values."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.feasibility import violations
from solver.options import SolveOptions
from solver.preparation import contradictions, prepare
from solver.result import TerminationReason
from solver.solve import solve
from tests.solver.instances import INF, problem

BASE = problem([[3, 4, 5], [0.1, 0, 0.3]], [-INF, 0.05], [8, 0.4], [4, -5, 7], offset=2.5)


@given(
    exponent=st.integers(-60, 60),
    rows=st.lists(st.integers(-20, 20), min_size=2, max_size=2),
    bits=st.lists(st.integers(0, 1), min_size=3, max_size=3),
)
@settings(max_examples=40, deadline=None)
def test_scaling_is_exact(exponent: int, rows: list[int], bits: list[int]) -> None:
    row_scale = 2.0 ** np.array(rows)
    instance = replace(
        BASE,
        objective=BASE.objective * 2.0**exponent / 3,
        matrix=(BASE.matrix.T * row_scale).T.tocsc(),
        row_lower=BASE.row_lower * row_scale,
        row_upper=BASE.row_upper * row_scale,
    )
    prepared = prepare(instance)
    x = np.array(bits, dtype=np.float64)
    assert prepared.problem.value(x) == prepared.factor * instance.value(x)
    assert np.log2(prepared.factor) % 1 == 0
    assert bool(violations(prepared.problem, x)) == bool(violations(BASE, x))
    assert np.abs(prepared.problem.matrix.data).max() >= 1


def test_scaling_down_does_not_lose_small_terms() -> None:
    assert prepare(replace(BASE, objective=np.array([1e9, 1e-3, 0]))).factor == 1.0
    assert prepare(replace(BASE, objective=np.array([1e9, 1e6, 0]))).factor < 1.0
    # Beside 1e22 nothing of 1 is left, and solvers take 1e20 for infinite.
    assert 1e14 < prepare(replace(BASE, objective=np.array([1e22, 1.0, 0]))).problem.objective.max() < 1e16


@pytest.mark.parametrize("solver", ["auto", "highs", "scip"])
@pytest.mark.parametrize("dear", [1e14, 1e17, 1e19, 1e20, 1e22, 1e25, 1e30])
@pytest.mark.parametrize("cheap", [1.0, 1e-3])
def test_what_solvers_do_not_see_beside_the_largest_is_not_proven(cheap: float, dear: float, solver: str) -> None:
    """Of three columns any two cover; the fourth is out of the question."""
    covers = [[1, 1, 1, 0], [1, 0, 1, 1], [0, 1, 0, 1]]
    instance = problem(covers, [1, 1, 1], [INF] * 3, [dear, 3 * cheap, cheap, 2 * cheap])
    result = solve(instance, SolveOptions(solver=solver, relative_gap=0.0))
    assert result.bound is not None
    assert result.bound <= 3 * cheap
    if result.termination is TerminationReason.OPTIMAL:
        assert result.objective == 3 * cheap
    else:
        assert result.termination is TerminationReason.FEASIBLE
        assert dear / cheap > 1e21


def test_what_solvers_do_not_see_counts_as_much_as_it_is_worth() -> None:
    """Noise beside what decides takes no proof, and what has no bounds takes all."""
    instance = problem([[1, 1, 0, 0]], [1], [INF], [1e20, 1e18, 1e-7, 0])
    assert solve(instance, SolveOptions(solver="highs")).termination is TerminationReason.OPTIMAL
    unlimited = replace(instance, upper=np.array([1, 1, INF, 1]), integrality=np.zeros(4, dtype=np.bool_))
    result = solve(unlimited, SolveOptions(solver="highs"))
    assert (result.termination, result.bound) == (TerminationReason.FEASIBLE, None)


@pytest.mark.parametrize("cost", [5e-324, 1e-310, 1e-300, 1e300])
def test_the_smallest_and_the_largest_numbers_are_costs_like_others(cost: float) -> None:
    result = solve(problem([[1, 1]], [1], [INF], [cost, 2 * cost]), SolveOptions(solver="highs"))
    assert (result.termination, result.objective) == (TerminationReason.OPTIMAL, cost)


@pytest.mark.parametrize(
    ("lower", "upper", "expected"),
    [(0.2, 2.9, (1, 2)), (-0.5, 0.5, (0, 0)), (0.9999999, 1.0000001, (1, 1)), (-INF, INF, (-INF, INF))],
)
def test_integer_bounds_are_integers(lower: float, upper: float, expected: tuple[float, float]) -> None:
    prepared = prepare(problem([[1.0]], [-5], [5], [1], lower=lower, upper=upper)).problem
    assert (prepared.lower[0], prepared.upper[0]) == expected


def test_rounding_noise_is_no_contradiction() -> None:
    noisy = replace(BASE, row_lower=np.array([8 + 1e-12, 0.05]), upper=np.array([1, 1, -1e-13]))
    assert contradictions(noisy) == ()
    assert prepare(noisy).conflicts == ()


def test_infinite_limits_on_the_wrong_side_are_contradictions() -> None:
    wrong = replace(BASE, row_lower=np.array([INF, 0.05]), row_upper=np.array([INF, 0.4]))
    assert contradictions(wrong) == ("r0",)
    assert contradictions(replace(BASE, upper=np.array([1, -INF, 1]))) == ("bounds of x1",)
