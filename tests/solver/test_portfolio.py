import threading
from dataclasses import replace

import pytest

from solver.backends.base import Backend
from solver.backends.portfolio import PortfolioBackend
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.solve import solve
from tests.solver.decomposition.choices import choice_problem
from tests.solver.instances import INF, market_split, problem, slow_knapsack

KNAPSACK = problem([[2, 3, 4]], [-INF], [5], [-3, -4, -6])


class Scripted:
    """A backend that gives a prepared answer, at once or when it is told to stop."""

    version = "1"

    def __init__(self, name: str, answer: SolveResult, *, waits: bool) -> None:
        self.name = name
        self.stopped = False
        self._answer = answer
        self._waits = waits

    def solve(self, problem: MatrixProblem, options: SolveOptions, monitor: SolveMonitor) -> SolveResult:
        del problem, options
        if self._waits:
            self.stopped = monitor.canceled.wait(10)
        return self._answer


def result(reason: TerminationReason, objective: float | None, bound: float | None, solver: str) -> SolveResult:
    points = {-7.0: (1, 1, 0), -6.0: (0, 0, 1), -3.0: (1, 0, 0)}
    return SolveResult(
        termination=reason,
        limit=None if reason is TerminationReason.OPTIMAL else Limit.TIME,
        sense=KNAPSACK.sense,
        incumbent=None if objective is None else KNAPSACK.objective * 0 + points[objective],
        objective=objective,
        bound=bound,
        statistics=SolveStatistics(),
        solver=solver,
        solver_version="1",
    )


def race(*backends: Backend) -> SolveResult:
    return PortfolioBackend(*backends).solve(KNAPSACK, SolveOptions(), SolveMonitor())


def test_the_first_proof_wins_and_stops_the_other() -> None:
    quick = Scripted("quick", result(TerminationReason.OPTIMAL, -7.0, -7.0, "quick"), waits=False)
    slow = Scripted("slow", result(TerminationReason.FEASIBLE, -6.0, -9.0, "slow"), waits=True)
    won = race(slow, quick)
    assert (won.solver, won.objective) == ("quick", -7.0)
    assert slow.stopped


def test_without_a_proof_the_better_halves_are_put_together() -> None:
    first = Scripted("first", result(TerminationReason.FEASIBLE, -6.0, -12.0, "first"), waits=False)
    second = Scripted("second", result(TerminationReason.FEASIBLE, -3.0, -8.0, "second"), waits=False)
    both = race(first, second)
    assert (both.solver, both.objective, both.bound) == ("first", -6.0, -8.0)


def test_a_bound_alone_is_no_answer() -> None:
    first = Scripted("first", result(TerminationReason.NO_SOLUTION_FOUND, None, -12.0, "first"), waits=False)
    second = Scripted("second", result(TerminationReason.NO_SOLUTION_FOUND, None, -9.0, "second"), waits=False)
    both = race(first, second)
    assert (both.termination, both.incumbent, both.bound) == (TerminationReason.NO_SOLUTION_FOUND, None, -9.0)


@pytest.mark.parametrize("seed", range(4))
def test_it_equals_its_racers(seed: int) -> None:
    whole = choice_problem(seed, num_blocks=30)
    ours = solve(whole, SolveOptions(solver="portfolio", relative_gap=0.0))
    theirs = solve(whole, SolveOptions(solver="highs", relative_gap=0.0))
    assert ours.termination is TerminationReason.OPTIMAL
    assert ours.objective == pytest.approx(theirs.objective)
    assert ours.solver in ("decomposition", "highs", "scip")


def test_a_limit_without_an_incumbent_is_no_answer() -> None:
    ended = solve(market_split(), SolveOptions(solver="portfolio", time_limit_s=0.5))
    assert (ended.termination, ended.incumbent) == (TerminationReason.NO_SOLUTION_FOUND, None)


def test_cancellation_keeps_the_incumbent_and_progress_only_improves() -> None:
    whole = slow_knapsack()
    canceled, seen = threading.Event(), list[Progress]()

    def watch(progress: Progress) -> None:
        seen.append(progress)
        if len([p for p in seen if p.incumbent is not None]) == 3:
            canceled.set()

    ended = solve(
        whole, SolveOptions(solver="portfolio", relative_gap=0.0), SolveMonitor(on_progress=watch, canceled=canceled)
    )
    assert (ended.termination, ended.limit) == (TerminationReason.FEASIBLE, Limit.INTERRUPTED)
    values = [p.objective for p in seen if p.incumbent is not None and p.objective is not None]
    assert values == sorted(values)
    assert replace(ended, solver="").objective == pytest.approx(max(values))
