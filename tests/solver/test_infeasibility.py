"""Irreducible infeasible subsets of mixed-integer problems."""

from dataclasses import replace

import numpy as np

from solver.infeasibility import conflicting_rows
from tests.solver.instances import INF, market_split, problem


def test_two_rows_in_conflict() -> None:
    # r0: x0 + x1 <= 1 and r1: x0 + x1 >= 2; r2 has nothing to do with it.
    rows = problem([[1, 1, 0], [1, 1, 0], [0, 1, 1]], [-INF, 2, -INF], [1, INF, 2], [1, 1, 1])
    assert conflicting_rows(rows, 10) == ("r0", "r1")


def test_only_integrality_is_violated() -> None:
    rows = problem([[1, 1, 0], [2, 2, 0], [0, 1, 1]], [0, 1, 0], [2, 1, 2], [1, 1, 1])
    assert conflicting_rows(rows, 10) == ("r1",)


def test_bounds_take_part() -> None:
    # Capacity 8 of weights 3 4 5; x1 and x2 are forced, which weighs 9. x0 is fixed too, without harm.
    forced = problem([[3, 4, 5], [1, 1, 1]], [-INF, 0], [8, 3], [1, 1, 1], lower=[0, 1, 1], upper=[0, 1, 1])
    assert conflicting_rows(forced, 10) == ("r0", "x1 = 1", "x2 = 1")


def test_one_sided_bounds() -> None:
    sides = problem([[1, -1]], [0], [0], [1, 1], lower=[3, -INF], upper=[9, 2], integer=False)
    assert conflicting_rows(sides, 10) == ("r0", "x0 >= 3", "x1 <= 2")


def test_a_natural_domain_is_not_named() -> None:
    assert conflicting_rows(problem([[1, 1]], [3], [INF], [1, 1]), 10) == ("r0",)


def test_contradictions_need_no_search() -> None:
    crossed = problem([[1, 1]], [0], [2], [1, 1], lower=[2, 0], upper=[1, 1])
    assert conflicting_rows(crossed, 10) == ("bounds of x0",)
    empty = problem([[0, 0], [1, 1]], [1, 0], [1, 2], [1, 1])
    assert conflicting_rows(empty, 10) == ("r0",)


def test_tiny_units() -> None:
    rows = problem([[1, 1, 0], [1, 1, 0], [0, 1, 1]], [-INF, 2, -INF], [1, INF, 2], [1, 1, 1])
    tiny = replace(rows, matrix=rows.matrix * 1e-8, row_lower=rows.row_lower * 1e-8, row_upper=rows.row_upper * 1e-8)
    assert conflicting_rows(tiny, 10) == ("r0", "r1")


def test_unnamed_rows_count() -> None:
    rows = problem([[1, 1], [1, 1]], [-INF, 2], [1, INF], [1, 1], named=False)
    assert conflicting_rows(rows, 10) == ("row 0", "row 1")


def test_feasible_problems_have_none() -> None:
    assert conflicting_rows(problem([[1, 1]], [0], [1], [1, 1]), 10) == ()


def test_no_answer_in_time_is_no_answer() -> None:
    assert conflicting_rows(market_split(3, 4, 30), 0.3) == ()


def test_subset_is_infeasible_and_irreducible() -> None:
    rng = np.random.default_rng(4)
    # Ten jobs forced into a capacity of 60 that takes fewer.
    weights = rng.integers(5, 20, 10)
    forced = problem(weights, [-INF], [60], np.ones(10), lower=1.0)
    names = conflicting_rows(forced, 10)
    assert names[0] == "r0"
    members = [weights[int(name.removeprefix("x").removesuffix(" = 1"))] for name in names[1:]]
    assert sum(members) > 60
    assert all(sum(members) - member <= 60 for member in members)
