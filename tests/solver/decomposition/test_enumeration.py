"""Points of small cores, looked at one by one, beside branch and bound."""

import numpy as np
import pytest

import solver.decomposition.enumeration as module
from solver.decomposition.core import Core, build_core
from solver.decomposition.dual import ReducedCosts, maximise_dual, reduced_costs
from solver.decomposition.enumeration import best_of_core
from solver.decomposition.structure import ChoiceProblem, find_structure
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.solve import solve
from tests.solver.decomposition.choices import choice_problem


def cores(seed: int, beside: float) -> tuple[MatrixProblem, ChoiceProblem, Core, ReducedCosts, float, float]:
    """A problem, and its core beside a point that costs `beside` more than the best one, which is the last."""
    whole = choice_problem(seed, num_blocks=9, num_resources=2, required_share=0.3)
    best = solve(whole, SolveOptions(solver="highs", relative_gap=0.0)).objective
    structure = find_structure(whole)
    assert best is not None
    assert structure is not None
    reduced = reduced_costs(structure, maximise_dual(structure).multipliers)
    beyond = best + beside - reduced.bound + 1e-9
    return whole, structure, build_core(structure, reduced, beyond), reduced, beyond, best


def test_the_best_point_is_found() -> None:
    num_found = 0
    for seed in range(40):
        whole, structure, core, reduced, beyond, best = cores(seed, 2.0)
        found = best_of_core(structure, core, reduced, beyond)
        assert found is not None
        (counts,) = found
        point = structure.expand(counts, whole.num_columns)
        assert (whole.matrix @ point <= whole.row_upper + 1e-9).all()
        assert whole.value(point) == pytest.approx(best)
        num_found += core.columns.size > 3
    assert num_found > 20


def test_nothing_better_than_the_best_is_found() -> None:
    """Below it there is at most what leaves rows unused that have a price, and costs more."""
    nothing = 0
    for seed in range(20):
        _, structure, core, reduced, beyond, best = cores(seed, -1e-3)
        found = best_of_core(structure, core, reduced, beyond)
        assert found is not None
        nothing += not found
        assert all(structure.offset + structure.cost @ counts >= best - 1e-9 for counts in found)
    assert nothing


def test_many_points_and_copies_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    _, structure, core, reduced, beyond, _ = cores(1, 2.0)
    monkeypatch.setattr(module, "_MOST", 2)
    assert best_of_core(structure, core, reduced, beyond) is None
    monkeypatch.undo()
    copies = find_structure(choice_problem(1, num_blocks=9, num_clones=2))
    assert copies is not None
    reduced = reduced_costs(copies, np.zeros(copies.limit.size))
    assert best_of_core(copies, build_core(copies, reduced, 1.0), reduced, 1.0) is None
