"""What solvers do that nobody expects, one test each."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import highspy
import numpy as np
import pytest

from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, SolveResult, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.arrays import FloatVector
from stowplan.errors import BackendError, InputError
from tests.solver.instances import INF, market_split, problem, slow_knapsack

SOLVERS = ("highs", "scip")
KNAPSACK = problem([[3, 4, 5]], [-INF], [8], [4, 5, 7], sense=Sense.MAXIMIZE)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("time_limit_s", [0.001, 0.5])
def test_limit_before_any_incumbent_is_no_answer(solver: str, time_limit_s: float) -> None:
    result = solve(market_split(), SolveOptions(solver=solver, time_limit_s=time_limit_s))
    assert result.termination is TerminationReason.NO_SOLUTION_FOUND
    assert result.limit is Limit.TIME
    assert result.incumbent is None
    assert result.objective is None
    assert result.relative_gap is None


@pytest.mark.parametrize("solver", SOLVERS)
def test_limit_with_an_incumbent_keeps_it(solver: str) -> None:
    result = solve(slow_knapsack(), SolveOptions(solver=solver, time_limit_s=0.7, relative_gap=0.0))
    assert result.termination is TerminationReason.FEASIBLE
    assert result.limit is Limit.TIME
    assert result.relative_gap is not None
    assert 0 < result.relative_gap < 0.5


@pytest.mark.parametrize("solver", SOLVERS)
def test_cancel_keeps_the_incumbent(solver: str) -> None:
    canceled = threading.Event()

    def cancel_at_first_incumbent(progress: Progress) -> None:
        if progress.incumbent is not None:
            canceled.set()

    monitor = SolveMonitor(on_progress=cancel_at_first_incumbent, canceled=canceled)
    result = solve(slow_knapsack(), SolveOptions(solver=solver, time_limit_s=30, relative_gap=0.0), monitor)
    assert result.termination is TerminationReason.FEASIBLE
    assert result.limit is Limit.INTERRUPTED
    assert result.incumbent is not None
    assert not violations(slow_knapsack(), result.incumbent)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.3])
def test_cancel_at_any_time(solver: str, delay_s: float) -> None:
    # SCIP refuses interrupts between its stages and forgets those that come before the solve.
    monitor = SolveMonitor()
    timer = threading.Timer(delay_s, monitor.canceled.set)
    timer.start()
    result = solve(market_split(), SolveOptions(solver=solver, time_limit_s=30), monitor)
    timer.join()
    assert result.termination is TerminationReason.NO_SOLUTION_FOUND
    assert result.limit is Limit.INTERRUPTED


@pytest.mark.parametrize("solver", SOLVERS)
def test_canceled_before_it_starts(solver: str) -> None:
    monitor = SolveMonitor()
    monitor.canceled.set()
    result = solve(KNAPSACK, SolveOptions(solver=solver), monitor)
    assert (result.termination, result.limit) == (TerminationReason.NO_SOLUTION_FOUND, Limit.INTERRUPTED)


@pytest.mark.parametrize("solver", SOLVERS)
def test_scale_of_the_objective_does_not_matter(solver: str) -> None:
    # Unscaled, both solvers call 0 an optimum at 1e-10, with a gap of zero.
    rng = np.random.default_rng(0)
    rows, values = rng.integers(1, 30, (2, 20)), rng.random(20)
    knapsack = problem(rows, [-INF] * 2, [50] * 2, values, sense=Sense.MAXIMIZE)
    reference = solve(knapsack, SolveOptions(relative_gap=0.0)).objective
    assert reference is not None
    for scale in (1e-14, 1e-10, 1e-8, 1e-6, 1e-3, 1.0, 1e6, 1e10):
        result = solve(replace(knapsack, objective=values * scale), SolveOptions(solver=solver, relative_gap=0.0))
        assert result.termination is TerminationReason.OPTIMAL
        assert result.objective is not None
        assert result.objective / scale == pytest.approx(reference, rel=1e-9), scale


@pytest.mark.parametrize("solver", SOLVERS)
def test_tiny_units_do_not_switch_rows_off(solver: str) -> None:
    # In units of 1e-7 every point violates the capacity by less than the absolute tolerance of a solver.
    tiny = replace(KNAPSACK, matrix=KNAPSACK.matrix * 1e-7, row_upper=KNAPSACK.row_upper * 1e-7)
    result = solve(tiny, SolveOptions(solver=solver, relative_gap=0.0))
    assert result.objective == 11
    assert violations(tiny, np.ones(3))


@pytest.mark.parametrize("coefficient", [1e-12, 1e16])
def test_coefficients_that_solvers_drop_are_refused(coefficient: float) -> None:
    with pytest.raises(BackendError, match="x1 in r0 is outside"):
        solve(problem([[1, coefficient]], [-INF], [1], [1, 1], upper=INF), SolveOptions())


def test_coefficients_that_cannot_matter_are_not_refused() -> None:
    result = solve(problem([[1, 1e-17]], [1], [INF], [1, 1]), SolveOptions())
    assert result.objective == 1


WRONG_STARTS = {
    "infeasible": np.ones(3),
    "out of bounds": np.full(3, 7.0),
    "fractional": np.full(3, 0.5),
    "unknown": np.full(3, np.nan),
    "partly infinite": np.array([np.inf, np.nan, -np.inf]),
    "half right": np.array([1.0, np.nan, np.nan]),
    "right": np.array([1.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("start", WRONG_STARTS.values(), ids=WRONG_STARTS.keys())
def test_a_wrong_start_does_no_harm(solver: str, start: FloatVector) -> None:
    result = solve(KNAPSACK, SolveOptions(solver=solver, relative_gap=0.0, warm_start=start))
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == 11


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_feasible_start_survives_any_limit(solver: str) -> None:
    easy = market_split()
    hidden = np.random.default_rng(1).integers(0, 2, easy.num_columns).astype(np.float64)
    sums = easy.matrix @ hidden
    planted = replace(easy, row_lower=sums, row_upper=sums)
    result = solve(planted, SolveOptions(solver=solver, time_limit_s=0.001, warm_start=hidden))
    assert result.termination is TerminationReason.FEASIBLE
    assert result.limit is Limit.TIME
    assert result.incumbent is not None
    np.testing.assert_array_equal(result.incumbent, hidden)


def test_highs_takes_another_thread_count_in_the_same_process() -> None:
    # Without a reset of the scheduler the second run fails, with kNotset after 0.0 s.
    for threads in (1, 2, 1):
        assert solve(KNAPSACK, SolveOptions(threads=threads, relative_gap=0.0)).objective == 11


def test_highs_thread_counts_of_threads_do_not_meet() -> None:
    _solve_at_once([SolveOptions(threads=threads, time_limit_s=0.5) for threads in (1, 2)])


@pytest.mark.parametrize("solvers", [("highs", "highs"), ("scip", "scip"), ("highs", "scip")])
def test_two_threads_solve_at_once(solvers: tuple[str, str]) -> None:
    _solve_at_once([SolveOptions(solver=solver, time_limit_s=0.5, relative_gap=0.0) for solver in solvers])


def _solve_at_once(options: list[SolveOptions]) -> None:
    results: list[SolveResult] = []
    threads = [threading.Thread(target=lambda one=one: results.append(solve(slow_knapsack(), one))) for one in options]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [result.termination for result in results] == [TerminationReason.FEASIBLE] * len(options)


@pytest.mark.parametrize("solver", SOLVERS)
def test_other_threads_run_while_it_solves(solver: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A solve that holds the interpreter lock lets others through in callbacks at most; without those, never.
    monkeypatch.setattr("solver.backends.scip._Reporter._EVENTS", ())
    turns = 0
    finished = threading.Event()

    def count() -> None:
        nonlocal turns
        while not finished.wait(0.01):
            turns += 1

    other = threading.Thread(target=count)
    other.start()
    solve(market_split(), SolveOptions(solver=solver, time_limit_s=0.5))
    finished.set()
    other.join()
    assert turns > 5


def test_highs_locks_of_the_class_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    # startSolve waits on locks that all instances share.
    monkeypatch.setattr(highspy.Highs, "startSolve", None)
    monkeypatch.setattr(highspy.Highs, "joinSolve", None)
    assert solve(KNAPSACK, SolveOptions()).objective == 11


@pytest.mark.parametrize("solver", SOLVERS)
def test_ctrl_c_is_not_for_the_solver(solver: str) -> None:
    heard = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: heard.set())
    try:
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        result = solve(slow_knapsack(), SolveOptions(solver=solver, time_limit_s=0.6, relative_gap=0.0))
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard.is_set()
    assert result.limit is Limit.TIME


@pytest.mark.parametrize("solver", SOLVERS)
def test_silent_and_log(solver: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "solver.log"
    solve(KNAPSACK, SolveOptions(solver=solver))
    solve(KNAPSACK, SolveOptions(solver=solver, log=log))
    assert capfd.readouterr() == ("", "")
    assert len(log.read_text()) > 100


@pytest.mark.parametrize("solver", SOLVERS)
def test_log_that_cannot_be_written(solver: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="log"):
        solve(KNAPSACK, SolveOptions(solver=solver, log=tmp_path / "missing" / "solver.log"))


@pytest.mark.parametrize(
    ("start", "sub_programs", "jumps"),
    [(None, True, True), (0.0, True, False), (1.0, True, True), (None, False, False), (1.0, False, False)],
)
def test_highs_looks_for_a_first_point_only_where_none_is_known_and_it_may(
    start: float | None, sub_programs: bool, jumps: bool, tmp_path: Path
) -> None:
    two_rows = problem(
        [[3, 4, 5, 7, 2, 9], [1, 2, 3, 4, 5, 6]], [-INF, -INF], [8, 11], [4, 5, 7, 9, 2, 11], sense=Sense.MAXIMIZE
    )
    log = tmp_path / "solver.log"
    known = None if start is None else np.full(6, start)
    options = SolveOptions(solver="highs", log=log, warm_start=known, sub_programs=sub_programs)
    assert solve(two_rows, options).objective == 11
    assert any(line.startswith(" J ") for line in log.read_text().splitlines()) is jumps
