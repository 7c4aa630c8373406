"""Column by column against the whole linear program."""

import numpy as np
import pytest
from scipy import sparse

from solver.decomposition.sifting import sift
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.sense import Sense
from solver.solve import solve
from stowplan.arrays import IntVector


def random_choices(seed: int, num_groups: int = 6, per_group: int = 40) -> tuple[MatrixProblem, IntVector]:
    """Of each group one unit, of columns that cost something and take part of three scarce rows; the first one of each
    is dear and takes nothing."""
    rng = np.random.default_rng(seed)
    n = num_groups * per_group
    group = np.repeat(np.arange(num_groups), per_group)
    cost, use = rng.random(n), rng.random((3, n))
    cost[::per_group], use[:, ::per_group] = 5.0, 0.0
    matrix = np.concatenate([(group == np.arange(num_groups)[:, None]).astype(float), use])
    upper = np.concatenate([np.ones(num_groups), np.full(3, 0.25 * num_groups)])
    problem = MatrixProblem(
        name="choices",
        sense=Sense.MINIMIZE,
        objective=cost,
        offset=2.0,
        matrix=sparse.csc_array(matrix),
        row_lower=np.where(np.arange(upper.size) < num_groups, upper, -np.inf),
        row_upper=upper,
        lower=np.zeros(n),
        upper=np.ones(n),
        integrality=np.zeros(n, dtype=np.bool_),
    )
    return problem, group


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_the_optimum_and_proves_it_with_few_columns(seed: int) -> None:
    problem, group = random_choices(seed)
    part = np.arange(group.size) // 10
    start = np.arange(group.size) % 40 == 0
    found = sift(problem, group, part, start, 0.0)
    best = solve(problem, SolveOptions()).objective
    assert best is not None
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert found.bound == pytest.approx(best, rel=1e-9)
    assert problem.value(found.point) == pytest.approx(best, rel=1e-9)
    assert found.taken.sum() < group.size / 2
    # Whoever is dearer than the best of its group pays for it, and nobody is cheaper.
    assert found.reduced.min() > -1e-9
    assert found.reduced[found.point > 1e-9].max() < 1e-9
    # What is left out of the rows at these prices is worth its price.
    more = MatrixProblem(
        **{name: getattr(problem, name) for name in ("name", "sense", "objective", "offset", "matrix", "row_lower")},
        **{name: getattr(problem, name) for name in ("lower", "upper", "integrality")},
        row_upper=problem.row_upper + np.where(np.arange(problem.num_rows) == 6, 1e-3, 0.0),
    )
    better = solve(more, SolveOptions()).objective
    assert better == pytest.approx(best - 1e-3 * found.prices[6], abs=1e-6)


def test_prices_that_are_known_save_rounds_and_whoever_must_stop_has_a_bound() -> None:
    problem, group = random_choices(0)
    part, start = group, np.arange(group.size) % 40 == 0
    cold = sift(problem, group, part, start, 0.0)
    warm = sift(problem, group, part, start, 0.0, cold.prices)
    assert warm.num_rounds < cold.num_rounds
    assert warm.objective == pytest.approx(cold.objective, rel=1e-9)
    stopped = sift(problem, group, part, start, 0.0, stop=lambda: True)
    assert stopped.num_rounds == 1
    assert stopped.bound <= cold.bound + 1e-9
