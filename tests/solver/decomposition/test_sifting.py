"""Column by column against the whole linear program."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace

import highspy
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


def test_whoever_must_stop_has_a_bound() -> None:
    problem, group = random_choices(0)
    start = np.arange(group.size) % 40 == 0
    whole = sift(problem, group, group, start, 0.0)
    at_once = sift(problem, group, group, start, 0.0, stop=lambda: True)
    assert at_once.num_rounds == 0
    assert at_once.objective is None
    assert problem.offset <= at_once.bound <= whole.bound
    rounds = count()
    first = sift(problem, group, group, start, 0.0, stop=lambda: next(rounds) > 3)
    assert first.num_rounds == 1
    assert at_once.bound <= first.bound <= whole.bound + 1e-9


def test_a_round_ends_when_the_time_does() -> None:
    """The second round of a problem of one group per part is stopped within, and the first one counts."""
    problem, group = random_choices(1, 60, 60)
    start = np.arange(group.size) % 60 == 0
    asked = count()
    whole = sift(problem, group, group, start, 0.0, stop=lambda: next(asked) < 0)
    num_asked = next(asked)
    # At every pivot, and not only before every round.
    assert num_asked > 4 * whole.num_rounds
    asked = count()
    stopped = sift(problem, group, group, start, 0.0, stop=lambda: next(asked) > num_asked // 2)
    assert next(asked) <= num_asked // 2 + 4
    assert stopped.num_rounds < whole.num_rounds
    assert stopped.bound <= whole.bound + 1e-9


def test_prices_of_the_wrong_sign_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients of a scarce row may be negative; a dual of the wrong sign must not make such columns cheap."""
    problem, group = random_choices(2)
    matrix = problem.matrix.toarray()
    matrix[-1] -= 0.5
    problem = replace(problem, matrix=sparse.csc_array(matrix))
    best = solve(problem, SolveOptions()).objective
    real = highspy.Highs.getSolution

    def wrong(highs: highspy.Highs) -> SimpleNamespace:
        solution = real(highs)
        return SimpleNamespace(
            col_value=solution.col_value, row_dual=[*list(solution.row_dual)[:-1], 0.5 + abs(solution.row_dual[-1])]
        )

    monkeypatch.setattr(highspy.Highs, "getSolution", wrong)
    found = sift(problem, group, group, np.arange(group.size) % 40 == 0, 0.0)
    assert best is not None
    assert found.prices[-1] == 0.0
    assert found.bound <= best + 1e-9
    # Reduced costs are those at the prices.
    raw = problem.objective + problem.matrix.T @ found.prices
    least = np.minimum(np.minimum.reduceat(raw, np.flatnonzero(np.diff(group, prepend=-1))), 0.0)
    np.testing.assert_allclose(found.reduced, raw - least[group])
