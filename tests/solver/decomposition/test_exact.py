"""The decomposition and HiGHS at gap 0, on problems of many shapes."""

from dataclasses import replace

import pytest

from benchmarks.workloads.choice_problems import drawn_choice_problem
from solver.options import SolveOptions
from solver.result import SolveResult, TerminationReason
from solver.solve import solve

_EXACT = SolveOptions(solver="decomposition", relative_gap=0.0, time_limit_s=20.0)
_QUICK = range(12)
_ALL = 1000
_PARTS = 4
# One of so many is priced by the dual, which takes several times as long for so few blocks.
_DUAL_EVERY = 10
# Every problem is priced, by simplex at once, or by the dual with narrow cores first.
_BACKEND = "solver.backends.decomposition"
_BY_SIMPLEX = {f"{_BACKEND}._FEW_BLOCKS": 0, f"{_BACKEND}._FEW_COLUMNS": 0}
_BY_DUAL = {**_BY_SIMPLEX, "solver.decomposition.pricing._LINEAR": 0, f"{_BACKEND}._FIRST_EXTRA": 2}


def _compare(seed: int, most_blocks: int = 8, start_gap: float | None = None) -> TerminationReason:
    """`start_gap`: from a point within it, and again at the prices that were found."""
    whole = drawn_choice_problem(seed, most_blocks=most_blocks)
    theirs = solve(whole, replace(_EXACT, solver="highs"))
    if start_gap is None:
        return _same(seed, solve(whole, _EXACT), theirs)
    start = solve(whole, replace(_EXACT, solver="highs", relative_gap=start_gap)).incumbent
    ours = solve(whole, replace(_EXACT, warm_start=start))
    _same(seed, solve(whole, replace(_EXACT, warm_start=start, prices=ours.prices)), theirs)
    return _same(seed, ours, theirs)


def _same(seed: int, ours: SolveResult, theirs: SolveResult) -> TerminationReason:
    assert ours.termination is theirs.termination, f"seed {seed}"
    if theirs.objective is not None and theirs.bound is not None:
        assert ours.objective == pytest.approx(theirs.objective, rel=1e-8, abs=1e-8), f"seed {seed}"
        assert ours.bound == pytest.approx(theirs.bound, rel=1e-6, abs=1e-6), f"seed {seed}"
    return ours.termination


@pytest.mark.parametrize("changes", [_BY_SIMPLEX, _BY_DUAL], ids=["simplex", "dual"])
def test_a_few_problems_are_solved_exactly(changes: dict[str, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in changes.items():
        monkeypatch.setattr(name, value)
    assert {_compare(seed) for seed in _QUICK} == {TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE}


@pytest.mark.parametrize("start_gap", [0.0, 0.2])
def test_a_few_problems_are_solved_exactly_from_a_point(start_gap: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{_BACKEND}._FEW_COLUMNS", 0)
    found = {_compare(seed, 20, start_gap) for seed in _QUICK}
    assert found == {TerminationReason.OPTIMAL, TerminationReason.INFEASIBLE}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(_PARTS))
def test_a_thousand_problems_are_solved_exactly(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every shape that is drawn."""
    found = []
    for seed in range(len(_QUICK) + part, _ALL, _PARTS):
        for name, value in (_BY_SIMPLEX if seed % _DUAL_EVERY else _BY_DUAL).items():
            monkeypatch.setattr(name, value)
        found.append(_compare(seed))
        monkeypatch.undo()
        monkeypatch.setattr(f"{_BACKEND}._FEW_COLUMNS", 0)
        _compare(seed, start_gap=0.05)
        monkeypatch.undo()
    assert found.count(TerminationReason.OPTIMAL) > len(found) / 2
    assert TerminationReason.INFEASIBLE in found
