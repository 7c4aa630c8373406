"""Small choice problems by what blocks use together: against HiGHS at gap 0, and against every choice there is."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.workloads.choice_problems import drawn_choice_problem
from solver.decomposition.table import solve_by_table
from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import TerminationReason
from solver.sense import Sense
from solver.solve import solve
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, market_split, problem

EXACT = SolveOptions(solver="decomposition", relative_gap=0.0)


def _every_choice(small: MatrixProblem) -> float | None:
    """The best value of all points that keep everything; None where none does."""
    points = (np.array(point) for point in itertools.product((0.0, 1.0), repeat=small.num_columns))
    values = [small.value(point) for point in points if not violations(small, point)]
    return min(values, key=lambda value: small.sense.sign * value, default=None)


@given(
    seed=st.integers(0, 100_000),
    num_blocks=st.integers(1, 4),
    num_options=st.integers(1, 3),
    tightness=st.sampled_from([0.1, 0.4, 0.8, 2.0]),
    required_share=st.sampled_from([0.0, 0.3, 1.0]),
    sense=st.sampled_from(Sense),
)
@settings(max_examples=60, deadline=None)
def test_it_is_the_best_of_all_choices(
    seed: int, num_blocks: int, num_options: int, tightness: float, required_share: float, sense: Sense
) -> None:
    small = choice_problem(
        seed,
        num_blocks=num_blocks,
        num_options=num_options,
        tightness=tightness,
        required_share=required_share,
        sense=sense,
    )
    found, best = solve_by_table(small, None), _every_choice(small)
    assert found is not None
    if best is None:
        assert found.ending is TerminationReason.INFEASIBLE
        return
    assert found.ending is TerminationReason.OPTIMAL
    assert found.point is not None
    assert not violations(small, found.point)
    assert found.bound == small.value(found.point) == pytest.approx(best)


def test_problems_of_every_shape_end_as_with_highs() -> None:
    """Rows with two limits, coefficients below 0, fixed columns, ties, requirements."""
    num_tabled = 0
    for seed in range(60):
        drawn = drawn_choice_problem(seed, most_blocks=4)
        ours, theirs = solve(drawn, EXACT), solve(drawn, replace(EXACT, solver="highs"))
        assert ours.termination is theirs.termination, f"seed {seed}"
        if theirs.objective is not None:
            assert ours.objective == pytest.approx(theirs.objective, rel=1e-8, abs=1e-8), f"seed {seed}"
            assert ours.bound == pytest.approx(theirs.objective, rel=1e-6, abs=1e-6), f"seed {seed}"
        num_tabled += ours.solver == "decomposition"
    assert num_tabled > 20


def test_rows_that_a_later_block_relieves_are_not_broken_before_it() -> None:
    # x0 needs what x1 gives: 3 x0 - 2 x1 <= 1.
    relieved = problem([[3, -2]], [-INF], [1], [-5, 1])
    found = solve_by_table(relieved, None)
    assert found is not None
    assert found.point is not None
    assert found.point.tolist() == [1.0, 1.0]


def test_a_fixed_column_is_chosen_and_two_of_a_block_are_left_to_highs() -> None:
    fixed = problem([[1, 1]], [-INF], [1], [-5, 1], lower=[0, 1])
    found = solve_by_table(fixed, None)
    assert found is not None
    assert found.point is not None
    assert found.point.tolist() == [0.0, 1.0]
    assert solve_by_table(replace(fixed, lower=np.ones(2)), None) is None


def test_a_known_point_that_is_the_best_is_found_again() -> None:
    small = choice_problem(3)
    first = solve_by_table(small, None)
    assert first is not None
    assert first.point is not None
    again = solve_by_table(small, first.point)
    assert again is not None
    assert again.point is not None
    assert again.bound == first.bound


@pytest.mark.parametrize(
    "other",
    [
        problem([[2, 3]], [-INF], [7], [-3, -4], upper=3),
        problem([[2, 3]], [-INF], [7], [-3, -4], integer=[True, False]),
        # Nothing that blocks use together is the same: as many states as choices.
        market_split(),
    ],
    ids=["integers", "continuous", "states"],
)
def test_anything_else_is_left_to_highs(other: MatrixProblem) -> None:
    assert solve_by_table(other, None) is None


def test_the_optimum_is_told_of_on_the_way_and_needs_no_nodes() -> None:
    told: list[Progress] = []
    small = choice_problem(3)
    result = solve(small, EXACT, SolveMonitor(on_progress=told.append))
    assert result.solver == "decomposition"
    assert result.statistics.num_nodes == 0
    assert result.relative_gap == 0.0
    (only,) = told
    assert only.incumbent is not None
    assert only.objective == only.bound == result.objective


def test_a_point_that_keeps_rows_by_a_tolerance_alone_does_not_prove_that_there_is_none() -> None:
    tight = problem([[1, 1]], [1], [1], [-5, -1], offset=1.0)
    barely = replace(tight, row_lower=np.array([1 + 1e-7]), row_upper=np.array([1 + 1e-7]))
    assert solve_by_table(barely, np.array([1.0, 0.0])) is None


@pytest.mark.parametrize(
    ("row", "lower", "upper"),
    [([33.333333] * 3, 100.0, INF), ([1 / 3 + 1e-8] * 3, 1.0, 1.0), ([1 / 3 + 1e-8] * 3, -INF, 1.0)],
)
def test_what_a_tolerance_decides_is_left_to_highs(row: list[float], lower: float, upper: float) -> None:
    """All three keep the row within the tolerance of points alone, and are better than what keeps it."""
    near = problem([row], [lower], [upper], [-1.0] * 3)
    assert not violations(near, np.ones(3))
    assert solve_by_table(near, None) is None


def test_many_rows_are_not_written_down() -> None:
    """Of 100 columns any two exclude each other: 4,950 rows, and no choice rows but 50."""
    pairs = [
        [1.0 if column in pair else 0.0 for column in range(100)] for pair in itertools.combinations(range(100), 2)
    ]
    assert solve_by_table(problem(pairs, [-INF] * len(pairs), [1.0] * len(pairs), [-1.0] * 100), None) is None
