import numpy as np
import pytest

from solver.decomposition import rounding
from solver.decomposition.core import build_core, threshold_for
from solver.decomposition.dual import maximise_dual, reduced_costs
from solver.decomposition.relaxation import solve_relaxation
from solver.decomposition.rounding import _moves, _options, _rounded, round_choice
from solver.decomposition.structure import ChoiceProblem, find_structure
from stowplan.arrays import FloatVector
from tests.growth import work
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, problem


def structure_of(num_blocks: int, seed: int = 3, clones: int = 1) -> ChoiceProblem:
    found = find_structure(
        choice_problem(seed, num_blocks=num_blocks, num_options=8, num_resources=3, num_clones=clones)
    )
    assert found is not None
    return found


def rounded(found: ChoiceProblem, relative_gap: float = 0.0) -> tuple[float, float] | None:
    """Value and bound of the point that the best prices are rounded to."""
    dual = maximise_dual(found)
    reduced = reduced_costs(found, dual.multipliers)
    counts = round_choice(
        found, dual.multipliers, reduced, dual.fraction, lambda v: v - dual.bound <= relative_gap * abs(v)
    )
    if counts is None:
        return None
    assert (found.coupling.T @ counts <= found.limit + 1e-9).all()
    chosen = np.add.reduceat(counts, found.start[:-1])
    assert (chosen <= found.copies).all()
    assert (chosen[found.required] == found.copies[found.required]).all()
    return found.offset + float(found.cost @ counts), dual.bound


def expanded(found: ChoiceProblem) -> FloatVector:
    """The first option of every class for all of its copies."""
    counts = np.zeros(found.cost.size, dtype=np.int64)
    counts[found.start[:-1]] = found.copies
    return found.expand(counts, found.origin.size)


def test_a_rounded_knapsack_by_hand() -> None:
    """Jobs of 2 and 2 GPUs for 6 and 4 on 3 GPUs: the relaxation halves the second one, one point serves the first."""
    found = find_structure(problem([[2, 2]], [-INF], [3], [-6, -4]))
    assert found is not None
    assert rounded(found) == pytest.approx((-6.0, -8.0), abs=1e-3)


@pytest.mark.parametrize("clones", [1, 4])
@pytest.mark.parametrize("seed", range(5))
def test_many_blocks_leave_little_to_search(seed: int, clones: int) -> None:
    found = rounded(structure_of(400 // clones, seed, clones=clones), 1e-3)
    assert found is not None
    value, bound = found
    assert value - bound <= 1e-3 * abs(value)


def test_rows_that_cannot_be_kept_have_no_point() -> None:
    """Both columns must be chosen, and only one fits."""
    found = find_structure(problem([[1, 0], [0, 1], [1, 1]], [1, 1, -INF], [1, 1, 1], [-6, -4]))
    assert found is not None
    assert rounded(found) is None


@pytest.mark.parametrize("seed", range(3))
def test_simplex_and_dual_agree(seed: int) -> None:
    found = structure_of(60, seed, clones=2)
    linear, dual = solve_relaxation(found, 10.0), maximise_dual(found)
    assert linear is not None
    assert linear.bound == pytest.approx(dual.bound, rel=1e-5)
    assert linear.bound >= dual.bound - 1e-9
    usage = found.coupling.T @ (linear.fraction * found.copies[found.class_of])
    assert (usage <= found.limit + 1e-6).all()


def test_a_core_has_the_prices_of_the_whole() -> None:
    found = structure_of(400)
    reduced = reduced_costs(found, maximise_dual(found, relative_gap=1e-2).multipliers)
    core = build_core(found, reduced, threshold_for(reduced, found.copies.size, 400))
    assert core.columns.size < found.cost.size / 2
    whole, sharp = solve_relaxation(found, 10.0), solve_relaxation(found, 10.0, core)
    assert whole is not None
    assert sharp is not None
    assert reduced.bound < sharp.bound - 1e-9
    assert sharp.bound == pytest.approx(whole.bound, rel=1e-9)
    usage = found.coupling.T @ (sharp.fraction * found.copies[found.class_of])
    assert (usage <= found.limit + 1e-6).all()


def test_an_infeasible_relaxation_has_no_prices() -> None:
    found = find_structure(problem([[1, 0], [0, 1], [1, 1]], [1, 1, -INF], [1, 1, 1], [-6, -4]))
    assert found is not None
    assert solve_relaxation(found, 10.0) is None


def test_work_does_not_grow_with_blocks() -> None:
    """Lines of Python: what is done per column is done by NumPy; steps depend on rows, not on blocks."""
    few, many = structure_of(1_000), structure_of(8_000)
    assert work(lambda: rounded(many, 1e-4)) <= 2.3 * work(lambda: rounded(few, 1e-4))


def test_expanding_takes_no_loop_over_classes() -> None:
    few, many = (structure_of(count, clones=2) for count in (50, 400))
    assert work(lambda: expanded(few)) == work(lambda: expanded(many))


def test_equal_options_are_not_all_moved_between() -> None:
    """100 blocks that must choose of 200 options of one cost: all moves between them would be four million."""
    num_blocks, num_options = 100, 200
    rng = np.random.default_rng(1)
    usage = rng.integers(1, 5, (4, num_blocks * num_options)).astype(float)
    choosing = np.kron(np.eye(num_blocks), np.ones(num_options))
    found = find_structure(
        problem(
            [*choosing.tolist(), *usage.tolist()],
            [1.0] * num_blocks + [-INF] * 4,
            [1.0] * num_blocks + [200.0] * 4,
            [1.0] * (num_blocks * num_options),
        )
    )
    assert found is not None
    dual = maximise_dual(found)
    start = _rounded(found, dual.fraction)
    options = _options(found, reduced_costs(found, dual.multipliers), start)
    assert options is not None
    moves = _moves(found, reduced_costs(found, dual.multipliers), options)
    assert moves.source.size <= 20_000


def test_counts_that_are_good_enough_are_not_moved_between(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of two jobs fits: rounding its share of 1 keeps the row, and a share of 0.4 of the other is left."""
    found = find_structure(problem([[2, 2]], [-INF], [3], [-6, -4]))
    assert found is not None
    prices, fraction = np.array([2.0]), np.array([1.0, 0.4])
    reduced = reduced_costs(found, prices)

    def refusing(*_: object) -> None:
        raise AssertionError("moves are listed")

    monkeypatch.setattr(rounding, "_moves", refusing)
    counts = round_choice(found, prices, reduced, fraction, lambda value: value <= -6.0)
    assert counts is not None
    assert counts.tolist() == [1, 0]
    with pytest.raises(AssertionError, match="moves are listed"):
        round_choice(found, prices, reduced, fraction, lambda value: value <= -6.5)
    with pytest.raises(AssertionError, match="moves are listed"):
        round_choice(found, prices, reduced, np.array([1.0, 0.6]), lambda _: True)
