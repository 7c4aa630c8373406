"""Eq. 2 itself: the search against brute force and the declared models, and block structures by hand."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.placement.arnold.exact.search import solve_exactly
from models.placement.arnold.parameters import SchedulingUnit
from models.placement.arnold.search_answer import SearchAnswer
from models.placement.arnold.true_spread.block_structure import banded
from models.placement.arnold.true_spread.instance import TrueSpreadInstance, spreads
from models.placement.arnold.true_spread.models import cell_model, cell_point, row_set_model, shape_model
from models.placement.arnold.true_spread.search import solve_true_spread
from solver.compilers.pyomo import compile_pyomo
from solver.feasibility import violations
from solver.options import SolveOptions
from solver.result import SolveResult, TerminationReason
from solver.solve import solve
from tests.models.placement.arnold.exact.scenes import (
    ALPHAS,
    assert_placed,
    best_eq2,
    budget,
    by_definition,
    dirichlet,
    ignore,
    matrix_instance,
    seeded,
)


def searched(data: TrueSpreadInstance) -> SearchAnswer:
    answer = solve_true_spread(data, budget(), ignore)
    if answer.solution is not None:
        assert_placed(data, answer.solution)
        assert answer.objective == pytest.approx(by_definition(data, answer.solution.ravel().tolist()))
    return answer


def tiny(rng: np.random.Generator) -> TrueSpreadInstance | None:
    """Matrices of up to a dozen cells, most of them nearly full."""
    num_rows, num_columns, num_minipods = (int(rng.integers(1, most)) for most in (5, 4, 5))
    cells = num_rows * num_columns
    if num_minipods**cells > 5_000:
        return None
    free = rng.multinomial(cells + int(rng.integers(0, 3)), rng.dirichlet(np.full(num_minipods, 3.0))).tolist()
    return matrix_instance(num_rows, num_columns, free, float(rng.choice(ALPHAS)))


TINY = [data for rng in seeded(21, 120) if (data := tiny(rng)) is not None]


@pytest.mark.slow
def test_tiny_matrices_reach_the_optimum() -> None:
    assert len(TINY) > 70
    for data in TINY:
        answer = searched(data)
        assert answer.proven, data
        assert answer.objective == pytest.approx(best_eq2(data)), data


def solved(data: TrueSpreadInstance, solver: str) -> SolveResult:
    problem = compile_pyomo(cell_model(data)).problem
    return solve(problem, SolveOptions(solver=solver, relative_gap=0.0, time_limit_s=20))


@pytest.mark.parametrize("solver", ["highs", "scip"])
def test_the_cell_model_has_the_same_optimum(solver: str) -> None:
    for data in TINY[:10]:
        result = solved(data, solver)
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective == pytest.approx(best_eq2(data), abs=1e-6)


def test_a_solution_is_a_point_of_the_cell_model() -> None:
    data = matrix_instance(4, 3, (5, 4, 6, 0), 0.3)
    answer = searched(data)
    assert answer.solution is not None
    problem = compile_pyomo(cell_model(data)).problem
    point = cell_point(data, answer.solution)
    assert violations(problem, point) == ()
    assert problem.value(point) == pytest.approx(answer.objective)


def frontier(data: TrueSpreadInstance) -> dict[int, int]:
    """Least column spread for every row spread, by trying everything."""
    least: dict[int, int] = {}
    free = data.free_nodes
    for number in range(data.num_minipods**data.num_cells):
        digits = np.array([number // data.num_minipods**k % data.num_minipods for k in range(data.num_cells)])
        if (np.bincount(digits, minlength=data.num_minipods) <= free).all():
            a, b = spreads(digits.reshape(data.num_rows, data.num_columns))
            for row_spread in range(a, data.num_columns + 1):
                least[row_spread] = min(b, least.get(row_spread, b))
    return least


@pytest.mark.slow
def test_row_sets_are_exact_and_shapes_bound_them() -> None:
    checked = 0
    for data in TINY[:30]:
        least = frontier(data)
        for row_spread in range(2, min(data.num_columns, data.num_minipods) + 1):
            rows = compile_pyomo(row_set_model(data, row_spread, (1, data.num_minipods))).problem
            exact = solve(rows, SolveOptions(relative_gap=0.0))
            expected = least.get(row_spread)
            if expected is None:
                assert exact.termination is TerminationReason.INFEASIBLE
                continue
            assert exact.objective == pytest.approx(expected)
            for integral in (False, True):
                shapes = compile_pyomo(shape_model(data, row_spread, 1, integral=integral)).problem
                bound = solve(shapes, SolveOptions(relative_gap=0.0)).objective
                assert bound is not None
                assert bound <= expected + 1e-6
            checked += 1
    assert checked > 15


def test_blocks_beat_eq_4() -> None:
    """Six minipods of 4 nodes take a 4 x 6 matrix. Eq. 4 with alpha 0.5 keeps rows on 2 and columns on all:

        a a a a b b        three bands of    a a c c e e
        b b c c c c        two columns,      a a c c e e
        d d d d e e        two minipods      b b d d f f
        e e f f f f        in each:          b b d d f f

    columns on 2 and rows on 3, 0.5 x 2 + 0.5 x 3; or two bands of three columns would waste a node of each.
    """
    data = matrix_instance(4, 6, (4,) * 6, 0.5)
    answer = searched(data)
    assert answer.proven
    assert answer.objective == pytest.approx(2.5)
    assert answer.solution is not None
    assert sorted(spreads(answer.solution)) == [2, 3]


def test_alpha_decides_between_rows_and_columns() -> None:
    """Four minipods of 4 nodes, a 4 x 4 matrix: whole rows for small alpha, whole columns for large, blocks at 0.5."""
    values = {alpha: searched(matrix_instance(4, 4, (4,) * 4, alpha)).objective for alpha in (0.0, 0.2, 0.5, 0.8, 1.0)}
    assert values == pytest.approx({0.0: 0.0, 0.2: 0.8, 0.5: 2.0, 0.8: 0.8, 1.0: 0.0})


def test_one_minipod_is_no_spread_at_all() -> None:
    answer = searched(matrix_instance(3, 4, (5, 12, 11), 0.3))
    assert (answer.objective, answer.proven) == (0, True)


@pytest.mark.slow
@given(
    rows=st.integers(2, 30),
    columns=st.integers(2, 10),
    num_minipods=st.integers(2, 14),
    fill=st.floats(0.5, 1.0),
    alpha=st.sampled_from(ALPHAS),
    seed=st.integers(0, 1_000),
)
@settings(max_examples=12, deadline=None)
def test_without_models_bounds_hold_and_eq_4_is_never_better(
    rows: int, columns: int, num_minipods: int, fill: float, alpha: float, seed: int
) -> None:
    free = dirichlet(num_minipods, round(rows * columns / fill), seed)
    data = matrix_instance(rows, columns, free, alpha)
    answer = solve_true_spread(data, budget(may_solve=False), ignore)
    assert answer.solution is not None
    assert answer.objective is not None
    assert answer.bound is not None
    assert_placed(data, answer.solution)
    assert answer.bound <= answer.objective
    # Exchanging rows and columns changes nothing but the names of the weights.
    turned = solve_true_spread(matrix_instance(columns, rows, free, 1 - alpha), budget(may_solve=False), ignore)
    assert turned.bound is not None
    assert turned.objective is not None
    assert max(answer.bound, turned.bound) <= min(answer.objective, turned.objective) + 1e-9
    for unit in SchedulingUnit:
        eq4 = solve_exactly(data.groups(unit, weighted=True), budget(may_solve=False), ignore)
        assert eq4.objective is not None
        # Eq. 4 counts at least what Eq. 2 counts, for any solution.
        assert answer.objective <= eq4.objective + 1e-9


def test_a_cancelled_search_keeps_what_it_has() -> None:
    data = matrix_instance(12, 8, dirichlet(9, 110, 4), 0.5)
    answer = solve_true_spread(data, budget(canceled=True), ignore)
    assert answer.solution is not None
    assert answer.objective is not None
    assert answer.bound is not None
    assert answer.bound <= (searched(data).objective or 0) <= answer.objective


def test_reports_get_better_and_their_bounds_hold() -> None:
    told: list[tuple[float, float]] = []
    data = matrix_instance(12, 8, dirichlet(9, 110, 4), 0.5)
    answer = solve_true_spread(data, budget(), lambda labels, bound: told.append((data.objective(labels), bound)))
    assert answer.objective is not None
    assert [value for value, _ in told] == sorted((value for value, _ in told), reverse=True)
    assert told[-1][0] == pytest.approx(answer.objective)
    assert all(bound <= answer.objective + 1e-9 for _, bound in told)


def test_too_few_nodes_are_a_proof() -> None:
    answer = searched(matrix_instance(2, 3, (3, 2), 0.3))
    assert (answer.solution, answer.objective, answer.proven) == (None, None, True)


@given(
    free=st.lists(st.integers(1, 40), min_size=1, max_size=12),
    row_spread=st.integers(1, 4),
    column_spread=st.integers(1, 6),
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    cut=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_bands_keep_to_both_spreads(
    free: list[int], row_spread: int, column_spread: int, shape: tuple[int, int], cut: bool
) -> None:
    largest_first = np.array(sorted(free, reverse=True), dtype=np.int64)
    labels = banded(largest_first, row_spread, column_spread, shape, 0, cut=cut)
    if labels is None:
        return
    assert labels.shape == shape
    assert (np.bincount(labels.ravel(), minlength=largest_first.size) <= largest_first).all()
    most_of_a_row, most_of_a_column = spreads(labels)
    assert most_of_a_row <= row_spread
    assert most_of_a_column <= column_spread


def test_cut_bands_waste_nothing() -> None:
    """Four minipods of 5 and 7 nodes take a 6 x 4 matrix to the last node: rows on three, columns on two."""
    free = np.array([7, 7, 5, 5])
    assert banded(free, 3, 2, (6, 4), 0, cut=False) is None
    labels = banded(free, 3, 2, (6, 4), 0, cut=True)
    assert labels is not None
    assert np.bincount(labels.ravel()).tolist() == [7, 7, 5, 5]
    assert spreads(labels) == (3, 2)
