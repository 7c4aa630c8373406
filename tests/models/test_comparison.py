"""Runs of several solvers: do they agree, how did they come there, and what do they prove."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from models.certificate import certificate_of
from models.comparison import MAX_POINTS, History, HistoryPoint, RunFailure, SolverRun, agreement
from models.plan import PhaseTimes, Plan, PlanOutcome
from solver.memory import peak_memory_bytes
from solver.monitor import Progress
from solver.result import Limit, SolveResult, SolveStatistics, TerminationReason
from solver.sense import Sense

PLAN = Plan(allocations=(), unplaced=(), score=())


def run(
    solver: str,
    objective: float | None,
    bound: float | None,
    termination: TerminationReason = TerminationReason.OPTIMAL,
    sense: Sense = Sense.MINIMIZE,
) -> SolverRun:
    outcome = PlanOutcome(
        termination=termination,
        limit=None,
        sense=sense.value,
        objective=objective,
        bound=bound,
        relative_gap=None,
        plan=PLAN if termination.has_incumbent else None,
        conflicts=(),
        warnings=(),
        times=PhaseTimes(wall_s={}, cpu_s=0.0),
        statistics=SolveStatistics(),
        solver=solver,
        solver_version="1",
        certificate="",
    )
    return SolverRun(solver=solver, outcome=outcome, failure=None, history=())


def failed(solver: str, code: str) -> SolverRun:
    return SolverRun(solver=solver, outcome=None, failure=RunFailure(code=code, detail="broke"), history=())


INFEASIBLE = run("c", None, None, TerminationReason.INFEASIBLE)
UNBOUNDED = run("d", None, None, TerminationReason.UNBOUNDED)
FEASIBLE = run("e", 12.0, 9.0, TerminationReason.FEASIBLE)


@pytest.mark.parametrize(
    ("runs", "agree", "num_proven", "num_errors"),
    [
        # Optima within a gap of 10 %: the intervals [9, 10] and [9.5, 10.2] share a point.
        ([run("a", 10.0, 9.0), run("b", 10.2, 9.5)], True, 2, 0),
        # [9, 10] and [10.5, 11] do not.
        ([run("a", 10.0, 9.0), run("b", 11.0, 10.5)], False, 2, 1),
        # Maxima in [10, 10.5] and [10.2, 10.3], then in [10, 10.5] and [11, 11.5].
        ([run("a", 10.0, 10.5, sense=Sense.MAXIMIZE), run("b", 10.2, 10.3, sense=Sense.MAXIMIZE)], True, 2, 0),
        ([run("a", 10.0, 10.5, sense=Sense.MAXIMIZE), run("b", 11.0, 11.5, sense=Sense.MAXIMIZE)], False, 2, 1),
        # Rounding is no contradiction.
        ([run("a", 10.0, 10.0), run("b", 10.0 + 1e-7, 10.0 + 1e-7)], True, 2, 0),
        # What was not proved optimal can contradict, too: a bound of 9 and an optimum of 8.
        ([run("a", 8.0, 8.0), FEASIBLE], False, 1, 1),
        ([run("a", 10.0, 10.0), FEASIBLE], None, 1, 0),
        ([FEASIBLE, failed("f", "worker_died")], None, 0, 0),
        ([INFEASIBLE, INFEASIBLE], True, 2, 0),
        ([INFEASIBLE, FEASIBLE], False, 1, 1),
        ([INFEASIBLE, UNBOUNDED], False, 2, 1),
        ([UNBOUNDED, run("a", 8.0, 8.0)], False, 2, 1),
        # An answer that failed the check is our error whatever the others say.
        ([run("a", 8.0, 8.0), run("b", 8.0, 8.0), failed("f", "plan_failed_check")], False, 2, 1),
        ([], None, 0, 0),
    ],
)
def test_agreement(runs: list[SolverRun], agree: bool | None, num_proven: int, num_errors: int) -> None:
    judged = agreement(runs)
    assert (judged.agree, judged.num_proven, len(judged.errors)) == (agree, num_proven, num_errors)
    assert ("error of ours" in judged.statement) is (num_errors > 0)
    assert agreement(runs[::-1]).agree is agree


def test_a_run_has_an_outcome_or_a_failure() -> None:
    with pytest.raises(ValueError, match="not both"):
        replace(failed("f", "x"), failure=None)
    with pytest.raises(ValueError, match="not both"):
        replace(FEASIBLE, failure=RunFailure(code="x", detail="y"))


def test_history_keeps_the_best_known_and_drops_what_is_not_new() -> None:
    history = History()
    history.add(Progress(elapsed_s=0.1, bound=1.0))
    history.add(Progress(elapsed_s=0.2, objective=5.0))
    history.add(Progress(elapsed_s=0.3, objective=5.0, bound=1.0))
    history.add(Progress(elapsed_s=0.4, bound=2.0))
    assert history.points == (
        HistoryPoint(elapsed_s=0.1, objective=None, bound=1.0),
        HistoryPoint(elapsed_s=0.2, objective=5.0, bound=1.0),
        HistoryPoint(elapsed_s=0.4, objective=5.0, bound=2.0),
    )


def test_history_is_bounded_and_keeps_its_ends() -> None:
    history = History()
    for k in range(10 * MAX_POINTS):
        history.add(Progress(elapsed_s=float(k), bound=float(k)))
    points = history.points
    assert len(points) < 2 * MAX_POINTS
    assert (points[0].bound, points[-1].bound) == (0.0, 10 * MAX_POINTS - 1)
    assert list(points) == sorted(points, key=lambda point: point.elapsed_s)


@pytest.mark.parametrize(
    ("termination", "limit", "objective", "bound", "words"),
    [
        (TerminationReason.OPTIMAL, None, 10.0, 10.0, "proven optimal by x (1): y"),
        (TerminationReason.OPTIMAL, None, 10.0, 9.0, "proven optimal within 10 % by x (1): y"),
        (TerminationReason.INFEASIBLE, None, None, None, "proven that there is no plan by x (1): y"),
        (TerminationReason.FEASIBLE, Limit.TIME, 10.0, 9.0, "ended at the time limit, a plan within 10 % found by"),
        (TerminationReason.FEASIBLE, Limit.TIME, 10.0, None, "ended at the time limit, a plan without a bound found"),
        (TerminationReason.FEASIBLE, None, 10.0, 9.0, "ended, a plan within 10 % found"),
        (TerminationReason.NO_SOLUTION_FOUND, Limit.INTERRUPTED, None, 9.0, "asked to stop, no plan found by x"),
        (TerminationReason.NUMERICAL_ERROR, None, None, None, "ended with: numerical error by x (1): y"),
    ],
)
def test_certificates(
    termination: TerminationReason, limit: Limit | None, objective: float | None, bound: float | None, words: str
) -> None:
    result = SolveResult(
        termination=termination,
        limit=limit,
        sense=Sense.MINIMIZE,
        incumbent=None if objective is None else np.zeros(1),
        objective=objective,
        bound=bound,
        statistics=SolveStatistics(),
        solver="x",
        solver_version="1",
        message="y",
    )
    assert certificate_of(result).startswith(words)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_the_peak_of_memory_is_of_this_process() -> None:
    before = peak_memory_bytes()
    assert before is not None
    block = bytearray(before)
    block[::4096] = b"x" * len(block[::4096])
    after = peak_memory_bytes()
    assert after is not None
    assert after > 1.3 * before
