"""No backend is believed: backends that lie in every way, and what becomes of their answers."""

from dataclasses import replace

import numpy as np
import pytest

from solver import solve as solving
from solver.backends import decomposition
from solver.backends.base import NativeOutcome, conclude
from solver.feasibility import Violation, violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.preparation import prepare
from solver.problem import MatrixProblem
from solver.registry import BACKENDS
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense
from stowplan.arrays import FloatVector
from stowplan.errors import InputError
from tests.solver.instances import INF, problem

KNAPSACK = problem([[3, 4, 5]], [-INF], [8], [4, 5, 7], sense=Sense.MAXIMIZE)
FEASIBLE = np.array([1.0, 1.0, 0.0])
INFEASIBLE = np.array([1.0, 1.0, 1.0])
FACTOR = prepare(KNAPSACK).factor


def scaled(objective: float) -> float:
    """Backends work on an objective times a power of two."""
    return objective * FACTOR


class Liar:
    """Reports what it is told to."""

    name = "liar"
    version = "1"

    def __init__(self, outcome: NativeOutcome, *news: Progress) -> None:
        self._outcome = outcome
        self._news = news

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        assert options.time_limit_s > 0
        for progress in self._news:
            monitor.on_progress(progress)
        return conclude(self, problem, self._outcome, SolveStatistics())


def answer(
    outcome: NativeOutcome,
    *news: Progress,
    monitor: SolveMonitor | None = None,
    start: FloatVector | None = None,
    gap: float = 0.0,
) -> SolveResult:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(solving, "BACKENDS", {**BACKENDS, Liar.name: "loaded below"})
        patch.setitem(solving._loaded, Liar.name, Liar(outcome, *news))
        return solving.solve(KNAPSACK, SolveOptions(solver="liar", relative_gap=gap, warm_start=start), monitor)


def test_an_infeasible_point_is_an_error() -> None:
    result = answer(NativeOutcome(ending=TerminationReason.OPTIMAL, point=INFEASIBLE, bound=scaled(16)))
    assert result.termination is TerminationReason.NUMERICAL_ERROR
    assert (result.incumbent, result.objective, result.bound) == (None, None, None)
    assert "row r0 is violated by 4" in result.message


def test_a_point_that_is_not_finite_is_an_error() -> None:
    point = np.array([1.0, np.nan, 0.0])
    result = answer(NativeOutcome(ending=Limit.TIME, point=point, bound=scaled(12)))
    assert result.termination is TerminationReason.NUMERICAL_ERROR
    assert result.incumbent is None


def test_an_optimum_without_point_or_bound_is_an_error() -> None:
    for outcome in (
        NativeOutcome(ending=TerminationReason.OPTIMAL, bound=scaled(11)),
        NativeOutcome(ending=TerminationReason.OPTIMAL, point=FEASIBLE),
        NativeOutcome(ending=TerminationReason.OPTIMAL, point=FEASIBLE, bound=np.inf),
    ):
        assert answer(outcome).termination is TerminationReason.NUMERICAL_ERROR


def test_a_bound_on_the_wrong_side_is_an_error() -> None:
    result = answer(NativeOutcome(ending=TerminationReason.OPTIMAL, point=FEASIBLE, bound=scaled(8.9)))
    assert result.termination is TerminationReason.NUMERICAL_ERROR
    assert "wrong side" in result.message


def test_an_optimum_with_a_gap_is_only_feasible() -> None:
    result = answer(NativeOutcome(ending=TerminationReason.OPTIMAL, point=FEASIBLE, bound=scaled(11)))
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, None)
    assert result.relative_gap == pytest.approx(2 / 9)


def test_rounding_noise_is_removed() -> None:
    point = np.array([1 - 1e-7, 1e-9, 1 + 1e-7])
    result = answer(NativeOutcome(ending=TerminationReason.OPTIMAL, point=point, bound=scaled(11 - 1e-8)))
    assert result.termination is TerminationReason.OPTIMAL
    assert result.incumbent is not None
    assert result.incumbent.tolist() == [1, 0, 1]
    assert (result.objective, result.bound) == (11, 11)


def test_a_point_without_a_feasible_ending_is_dropped() -> None:
    for ending in TerminationReason:
        if ending.has_incumbent or ending is TerminationReason.NO_SOLUTION_FOUND:
            continue
        result = answer(NativeOutcome(ending=ending, point=FEASIBLE, bound=0.0))
        assert (result.termination, result.incumbent, result.bound) == (ending, None, None)


def test_an_incumbent_that_was_reported_is_not_lost() -> None:
    news = Progress(elapsed_s=0.1, incumbent=FEASIBLE, objective=0.0, bound=scaled(12))
    result = answer(NativeOutcome(ending=Limit.MEMORY, bound=scaled(12)), news)
    assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, Limit.MEMORY)
    assert (result.objective, result.bound) == (9, 12)


@pytest.mark.parametrize(
    "outcome",
    [
        NativeOutcome(ending=TerminationReason.OPTIMAL, point=INFEASIBLE, bound=scaled(16)),
        NativeOutcome(ending=TerminationReason.OPTIMAL, point=np.array([1.0, 0, 0]), bound=scaled(4)),
        NativeOutcome(ending=TerminationReason.INFEASIBLE),
        NativeOutcome(ending=TerminationReason.INFEASIBLE_OR_UNBOUNDED),
        NativeOutcome(ending=TerminationReason.NUMERICAL_ERROR),
        NativeOutcome(ending=TerminationReason.OTHER_ERROR),
    ],
    ids=lambda outcome: outcome.ending.value,
)
def test_no_ending_loses_a_solution_that_is_known(outcome: NativeOutcome) -> None:
    news = Progress(elapsed_s=0.1, incumbent=FEASIBLE, objective=0.0)
    for result in (answer(outcome, start=FEASIBLE), answer(outcome, news)):
        assert (result.termination, result.limit) == (TerminationReason.FEASIBLE, None)
        assert (result.objective, result.bound) == (9, None)
        assert "better solution that is known" in result.message
        assert not result.message.endswith("; ")


def test_a_better_solution_that_is_known_is_as_optimal_within_the_gap() -> None:
    worse = NativeOutcome(ending=TerminationReason.OPTIMAL, point=np.array([1.0, 0, 0]), bound=scaled(9.5))
    result = answer(worse, start=FEASIBLE, gap=2.0)
    assert (result.termination, result.objective, result.bound) == (TerminationReason.OPTIMAL, 9, 9.5)


def test_unbounded_stays_so_beside_a_solution() -> None:
    result = answer(NativeOutcome(ending=TerminationReason.UNBOUNDED), start=FEASIBLE)
    assert (result.termination, result.incumbent) == (TerminationReason.UNBOUNDED, None)


def test_progress_is_checked_and_rescaled() -> None:
    seen: list[Progress] = []
    news = (
        Progress(elapsed_s=0.1, incumbent=INFEASIBLE, objective=99.0, bound=INF),
        Progress(elapsed_s=0.2, incumbent=FEASIBLE, objective=99.0),
        Progress(elapsed_s=0.3, bound=scaled(12)),
    )
    answer(
        NativeOutcome(ending=TerminationReason.OPTIMAL, point=np.array([1.0, 0, 1]), bound=scaled(11)),
        *news,
        monitor=SolveMonitor(on_progress=seen.append),
    )
    assert [(p.objective, p.bound) for p in seen] == [(None, None), (9, None), (9, 12)]
    assert [p.incumbent is not None for p in seen] == [False, True, False]


def test_unknown_solver_lists_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'gurobi'.*auto, decomposition, highs, portfolio, scip"):
        solving.solve(KNAPSACK, SolveOptions(solver="gurobi"))


def test_available_solvers_have_versions() -> None:
    versions = solving.available_solvers()
    assert set(versions) == {"decomposition", "highs", "portfolio", "scip"}
    assert all(any(character.isdigit() for character in version) for version in versions.values())


def test_a_warm_start_of_another_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"shape \(2,\).*3 columns"):
        solving.solve(KNAPSACK, SolveOptions(warm_start=np.zeros(2)))


def test_contradictions_are_named() -> None:
    crossed = replace(KNAPSACK, lower=np.array([0.0, 2, 0]), row_lower=np.array([9.0]))
    result = solving.solve(crossed, SolveOptions())
    assert result.termination is TerminationReason.INFEASIBLE
    assert "r0, bounds of x1" in result.message


@pytest.mark.parametrize("solver", ["decomposition", "auto"])
def test_a_first_point_that_was_checked_is_not_checked_again(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But where rows or bounds are not the ones that were given."""
    asked: list[MatrixProblem] = []

    def watched(problem: MatrixProblem, x: FloatVector) -> tuple[Violation, ...]:
        asked.append(problem)
        return violations(problem, x)

    monkeypatch.setattr(decomposition, "violations", watched)
    options = SolveOptions(solver=solver, warm_start=FEASIBLE)
    assert solving.solve(KNAPSACK, options).objective == 11
    assert not asked
    wide = replace(KNAPSACK, lower=np.full(3, -0.5), upper=np.full(3, 1.5))
    assert solving.solve(wide, options).objective == 11
    assert len(asked) == 1


def test_costs_are_checked_when_they_change() -> None:
    other = KNAPSACK.with_costs(Sense.MINIMIZE, np.array([1.0, -2.0, 0.0]), 3.0)
    assert (other.sense, other.offset, other.value(FEASIBLE)) == (Sense.MINIMIZE, 3.0, 2.0)
    assert all(
        getattr(other, name) is getattr(KNAPSACK, name)
        for name in ("name", "matrix", "row_lower", "row_upper", "lower", "upper", "integrality")
    )
    for objective, offset in ((np.ones(2), 0.0), (np.array([1.0, np.nan, 0.0]), 0.0), (np.ones(3), np.inf)):
        with pytest.raises(ValueError, match=r"costs for 3 columns|NaN or infinite"):
            KNAPSACK.with_costs(Sense.MINIMIZE, objective, offset)
