"""Column by column against the whole linear program."""

from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import highspy
import numpy as np
import pytest
from scipy import sparse

from solver.decomposition import whole
from solver.decomposition.core import whole_core
from solver.decomposition.dual import reduced_costs
from solver.decomposition.factored import Factored
from solver.decomposition.rounding import round_choice
from solver.decomposition.sifting import Sifted, sift
from solver.decomposition.structure import ChoiceProblem
from solver.decomposition.whole import Whole
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.sense import Sense
from solver.solve import solve
from tests.growth import work

PER_CLASS = 40


def random_choices(seed: int, num_classes: int = 6, *, optional: bool = False) -> ChoiceProblem:
    """Classes of which each has one unit, of columns that cost something and take part of three scarce rows; the first
    one of each is dear and takes nothing. With `optional` every other class may choose nothing, and what it chooses
    earns something."""
    rng = np.random.default_rng(seed)
    n = num_classes * PER_CLASS
    class_of = np.repeat(np.arange(num_classes), PER_CLASS)
    required = np.arange(num_classes) % 2 == 0 if optional else np.ones(num_classes, dtype=np.bool_)
    cost, use = rng.random(n), rng.random((n, 3))
    cost[::PER_CLASS], use[::PER_CLASS] = 5.0, 0.0
    cost[~required[class_of]] -= 1.0
    start = PER_CLASS * np.arange(num_classes + 1)
    return ChoiceProblem(
        cost=cost,
        start=start,
        copies=np.ones(num_classes, dtype=np.int64),
        required=required,
        coupling=sparse.csr_array(use),
        limit=np.full(3, 0.25 * num_classes),
        rows=np.arange(3),
        offset=2.0,
        class_of=class_of,
        origin=np.arange(n),
        origin_start=start[:-1],
    )


def whole_program(problem: ChoiceProblem) -> MatrixProblem:
    """All of it: class rows, then those that couple."""
    program = whole_core(problem).mip()
    return replace(program, integrality=np.zeros(program.num_columns, dtype=np.bool_))


def optimum(problem: ChoiceProblem) -> float:
    found = solve(whole_program(problem), SolveOptions()).objective
    assert found is not None
    return found


def assert_solved(problem: ChoiceProblem, found: Sifted) -> None:
    best = optimum(problem)
    assert found.objective == pytest.approx(best, rel=1e-9)
    assert found.reduced.bound == pytest.approx(best, rel=1e-9)
    assert problem.offset + problem.cost @ found.point == pytest.approx(best, rel=1e-9)
    assert (problem.coupling.T @ found.point <= problem.limit + 1e-7).all()
    units = np.add.reduceat(found.point, problem.start[:-1])
    assert (np.abs(units[problem.required] - 1.0) < 1e-9).all()
    assert (units < 1.0 + 1e-9).all()
    # Whoever is dearer than the best of its class pays for it, and nobody is cheaper.
    np.testing.assert_allclose(found.reduced.columns, reduced_costs(problem, found.prices).columns)
    assert found.reduced.columns.min() > -1e-9
    assert found.reduced.columns[found.point > 1e-9].max() < 1e-9
    assert (found.taken | (found.point == 0)).all()


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_optimum_and_proves_it(seed: int, optional: bool) -> None:
    problem = random_choices(seed, optional=optional)
    found = sift(problem, 0.0)
    assert_solved(problem, found)
    # What is left out of the rows at these prices is worth its price.
    more = replace(problem, limit=problem.limit + np.array([1e-3, 0.0, 0.0]))
    assert optimum(more) == pytest.approx(optimum(problem) - 1e-3 * found.prices[0], abs=1e-6)


@pytest.mark.parametrize("factor", [0.01, 1.0, 1.3, 100.0])
def test_prices_to_start_from_change_how_long_it_takes_alone(factor: float) -> None:
    problem = random_choices(5, 60)
    cold = sift(problem, 0.0, np.zeros(3))
    warm = sift(problem, 0.0, factor * cold.prices)
    assert_solved(problem, warm)
    assert warm.num_rounds < cold.num_rounds or factor != 1.0


def test_of_many_classes_a_sample_says_the_first_prices_and_few_columns_are_needed() -> None:
    problem = random_choices(6, 240)
    found = sift(problem, 0.0)
    assert_solved(problem, found)
    assert found.num_rounds < sift(problem, 0.0, np.zeros(3)).num_rounds
    assert found.taken.sum() < problem.cost.size / 5


@pytest.mark.parametrize("exponent", [-80, 80])
def test_costs_may_be_of_any_size(exponent: int) -> None:
    problem = random_choices(8)
    usual = sift(problem, 0.0)
    scaled = replace(problem, cost=problem.cost * 2.0**exponent, offset=problem.offset * 2.0**exponent)
    found = sift(scaled, 0.0)
    assert found.objective == pytest.approx(optimum(problem) * 2.0**exponent, rel=1e-6)
    assert found.reduced.bound == pytest.approx(usual.reduced.bound * 2.0**exponent, rel=1e-6)


def test_what_highs_refuses_leaves_what_the_first_prices_prove() -> None:
    problem = random_choices(9)
    refused = replace(problem, coupling=problem.coupling * 1e16, limit=problem.limit * 1e16)
    prices = np.array([1e-17, 0.0, 2e-17])
    found = sift(refused, 0.0, prices)
    assert found.objective is None
    assert not found.point.any()
    assert found.reduced.bound == reduced_costs(refused, prices).bound < optimum(problem)
    assert found.taken.all()


def test_a_coupling_may_be_a_product_that_is_not_made() -> None:
    """Columns take of the rows as three kinds of things do, of which they have some."""
    rng, problem = np.random.default_rng(0), random_choices(1)
    has = sparse.csr_array(sparse.random_array((problem.cost.size, 3), density=0.5, rng=rng))
    factored = Factored(has, sparse.csr_array(rng.random((3, 3))))
    product = sparse.csr_array(factored.first @ factored.second)
    for coupling in (cast("sparse.csr_array", factored), product):
        found = sift(replace(problem, coupling=coupling), 1e-9)
        assert_solved(replace(problem, coupling=product), found)
    np.testing.assert_allclose(abs(factored).T @ np.ones(problem.cost.size), product.sum(axis=0))


def test_rows_that_nobody_can_keep_have_no_point() -> None:
    problem = replace(random_choices(7), limit=np.array([1.0, 1.0, -1.0]))
    found = sift(problem, 0.0, whole=Whole(part=np.arange(problem.cost.size), num_rows=3, tolerance=1.0))
    assert found.objective is None
    assert found.rounded is None
    # A bound without end says so, too.
    assert found.reduced.bound > problem.offset + 100 * 5.0 * 6


def _of_parts(seed: int, num_classes: int) -> ChoiceProblem:
    """Ten columns a part, four parts a class: of two rows all columns of a part take the same."""
    problem = random_choices(seed, num_classes)
    use = problem.coupling.toarray()
    use[:, :2] = use[:: PER_CLASS // 4, :2][_parts(problem)]
    # The first part of each class takes nothing of these, and may be chosen beside any other.
    use[_parts(problem) % 4 == 0, :2] = 0.0
    return replace(problem, coupling=sparse.csr_array(use))


def _parts(problem: ChoiceProblem) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.arange(problem.cost.size) // (PER_CLASS // 4)


def _whole(problem: ChoiceProblem, tolerance: float) -> Whole:
    return Whole(part=_parts(problem), num_rows=2, tolerance=tolerance)


def _in_parts(problem: ChoiceProblem) -> float:
    """The least that a point costs that splits no part, by HiGHS on the whole with a column for every part."""
    program, part = whole_program(problem), _parts(problem)
    num_parts, n = int(part.max()) + 1, problem.cost.size
    sums = sparse.csr_array((np.ones(n), (part, np.arange(n))), shape=(num_parts, n))
    matrix = sparse.block_array([[program.matrix, None], [sums, -sparse.eye_array(num_parts)]], format="csc")
    found = solve(
        MatrixProblem(
            name="parts",
            sense=Sense.MINIMIZE,
            objective=np.concatenate([program.objective, np.zeros(num_parts)]),
            offset=program.offset,
            matrix=sparse.csc_array(matrix),
            row_lower=np.concatenate([program.row_lower, np.zeros(num_parts)]),
            row_upper=np.concatenate([program.row_upper, np.zeros(num_parts)]),
            lower=np.zeros(n + num_parts),
            upper=np.ones(n + num_parts),
            integrality=np.arange(n + num_parts) >= n,
        ),
        SolveOptions(relative_gap=0.0),
    )
    assert found.objective is not None
    return found.objective


@pytest.mark.parametrize("seed", range(12))
def test_a_point_that_splits_no_part_is_near_the_best_one(seed: int) -> None:
    problem = _of_parts(seed, 12)
    best = _in_parts(problem)
    found = sift(problem, 0.0, whole=_whole(problem, 0.0))
    assert found.rounded is not None
    assert found.objective is not None
    sums = np.bincount(_parts(problem), weights=found.rounded)
    assert np.abs(sums - sums.round()).max() < 1e-6
    assert (problem.coupling.T @ found.rounded <= problem.limit + 1e-7).all()
    cost = problem.offset + float(problem.cost @ found.rounded)
    assert best - 1e-9 <= cost <= best + (best - found.objective)


def test_parts_that_are_had_are_kept_unless_others_are_better() -> None:
    """At a wide tolerance what is found first is worse than the best; what is had is that, or is dear, or nothing."""
    problem = _of_parts(8, 12)
    best = sift(problem, 0.0, whole=_whole(problem, 0.0)).rounded
    first = sift(problem, 0.0, whole=_whole(problem, 30.0)).rounded
    assert best is not None
    assert first is not None
    assert problem.cost @ best < problem.cost @ first - 1e-3
    part = _parts(problem)
    nothing = np.zeros(problem.cost.size, dtype=np.bool_)
    for known, expected in (
        (np.bincount(part, weights=best)[part] > 0.5, best),
        (part % 4 == 0, first),
        (nothing, first),
    ):
        found = sift(problem, 0.0, whole=replace(_whole(problem, 30.0), known=known)).rounded
        assert found is not None
        np.testing.assert_allclose(found, expected, atol=1e-7)


def test_a_point_that_may_cost_more_is_looked_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ChoiceProblem] = []

    def recording(*args: Any) -> Any:
        asked.append(args[0])
        return round_choice(*args)

    monkeypatch.setattr(whole, "round_choice", recording)
    problem = _of_parts(0, 12)
    numbers = []
    for tolerance in (0.0, 0.3, 30.0):
        asked.clear()
        found = sift(problem, 0.0, whole=_whole(problem, tolerance))
        assert found.rounded is not None
        assert tolerance == 0.0 or problem.offset + problem.cost @ found.rounded <= found.reduced.bound + tolerance
        numbers.append(len(asked))
    assert numbers[0] > numbers[1] > numbers[2] == 1


def test_parts_that_do_not_fit_among_few_are_looked_for_among_many(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _of_parts(0, 12)
    usual = sift(problem, 0.0, whole=_whole(problem, 0.0)).rounded

    def refusing(*args: Any) -> Any:
        return None if len(args) > 6 else round_choice(*args)

    monkeypatch.setattr(whole, "round_choice", refusing)
    found = sift(problem, 0.0, whole=_whole(problem, 0.0)).rounded
    assert usual is not None
    assert found is not None
    assert problem.cost @ found <= 1.02 * (problem.cost @ usual)


def test_columns_of_no_part_may_be_split() -> None:
    problem = random_choices(0)
    nothing = Whole(part=np.full(problem.cost.size, -1), num_rows=0, tolerance=0.0)
    found = sift(problem, 1e-9, whole=nothing)
    assert found.rounded is not None
    assert ((found.point > 1e-6) & (found.point < 1 - 1e-6)).any()
    np.testing.assert_array_equal(found.rounded, found.point)


def test_whoever_must_stop_has_a_bound() -> None:
    problem = random_choices(0, 60)
    whole = sift(problem, 0.0)
    at_once = sift(problem, 0.0, stop=lambda: True)
    assert at_once.num_rounds == 0
    assert at_once.objective is None
    assert problem.offset <= at_once.reduced.bound <= whole.reduced.bound
    rounds = count()
    first = sift(problem, 0.0, stop=lambda: next(rounds) > 3)
    assert first.num_rounds == 1 < whole.num_rounds
    assert at_once.reduced.bound <= first.reduced.bound <= whole.reduced.bound + 1e-9


def test_a_round_ends_when_the_time_does() -> None:
    problem = random_choices(1, 60)
    asked = count()
    whole = sift(problem, 0.0, stop=lambda: next(asked) < 0)
    num_asked = next(asked)
    # At every pivot, and not only before every round.
    assert num_asked > 4 * whole.num_rounds
    asked = count()
    stopped = sift(problem, 0.0, stop=lambda: next(asked) > num_asked // 2)
    assert next(asked) <= num_asked // 2 + 4
    assert stopped.num_rounds < whole.num_rounds
    assert stopped.reduced.bound <= whole.reduced.bound + 1e-9


def test_prices_of_the_wrong_sign_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients of a scarce row may be negative; a dual of the wrong sign must not make such columns cheap."""
    problem = random_choices(2)
    problem = replace(problem, coupling=sparse.csr_array(problem.coupling.toarray() - np.array([0.0, 0.0, 0.5])))
    best = optimum(problem)
    real = highspy.Highs.getSolution

    def wrong(highs: highspy.Highs) -> SimpleNamespace:
        solution = real(highs)
        return SimpleNamespace(
            col_value=solution.col_value, row_dual=[*list(solution.row_dual)[:-1], 0.5 + abs(solution.row_dual[-1])]
        )

    monkeypatch.setattr(highspy.Highs, "getSolution", wrong)
    found = sift(problem, 0.0)
    assert (found.prices >= 0).all()
    assert found.reduced.bound <= best + 1e-9
    np.testing.assert_allclose(found.reduced.columns, reduced_costs(problem, found.prices).columns)


def test_twice_the_classes_take_twice_the_work() -> None:
    """With the sample, the rounds and a point of whole parts; how often HiGHS calls back is counted by pivots."""

    def solved(problem: ChoiceProblem) -> None:
        sift(problem, 1e-3, whole=_whole(problem, 0.1))

    small, large = _of_parts(8, 300), _of_parts(8, 600)
    solved(small)
    assert work(lambda: solved(large)) <= 2.3 * work(lambda: solved(small))
