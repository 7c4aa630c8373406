"""Every backend on every golden instance, and on everything small against brute force."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.feasibility import violations
from solver.monitor import Progress, SolveMonitor
from solver.options import SolveOptions
from solver.problem import MatrixProblem
from solver.registry import BACKENDS
from solver.result import SolveResult, TerminationReason
from solver.sense import Sense
from solver.solve import solve
from stowplan.arrays import FloatVector
from tests.solver.instances import GOLDEN, INF, Golden, problem

SOLVERS = ("highs", "scip")
every_backend = pytest.mark.parametrize("solver", sorted(BACKENDS))


def exact(instance: MatrixProblem, solver: str, warm_start: FloatVector | None = None) -> SolveResult:
    options = SolveOptions(solver=solver, time_limit_s=20, relative_gap=0.0, warm_start=warm_start)
    return solve(instance, options)


@every_backend
@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden(golden: Golden, solver: str) -> None:
    result = exact(golden.problem, solver)
    assert result.termination is golden.termination
    assert result.limit is None
    if golden.objective is None:
        assert result.incumbent is None
        assert result.bound is None
    else:
        assert result.objective == pytest.approx(golden.objective, abs=1e-9)
        assert result.bound == pytest.approx(golden.objective, abs=1e-9)
        assert result.incumbent is not None
        assert not violations(golden.problem, result.incumbent)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("integer", [True, False])
def test_unbounded_with_rows(solver: str, integer: bool) -> None:
    # Presolve of either solver may see the ray before it looks for a point.
    ray = problem([[1, -1]], [0], [0], [-1, -1], upper=INF, integer=integer)
    result = exact(ray, solver)
    assert result.termination in (TerminationReason.UNBOUNDED, TerminationReason.INFEASIBLE_OR_UNBOUNDED)
    assert result.incumbent is None


@pytest.mark.parametrize("solver", SOLVERS)
def test_integers_are_exact(solver: str) -> None:
    # 1 / 3 of weight each: twelve items weigh 4, up to rounding.
    third = problem([[1 / 3] * 12], [4], [4], np.arange(1, 13), upper=3, sense=Sense.MAXIMIZE, integer=[True] * 12)
    result = exact(third, solver)
    assert result.incumbent is not None
    assert (result.incumbent == np.rint(result.incumbent)).all()
    assert result.incumbent.sum() == 12


@pytest.mark.parametrize("solver", SOLVERS)
def test_statistics_and_progress_are_complete(solver: str) -> None:
    instance = problem(np.arange(3, 33), [-INF], [200], np.arange(5, 35) ** 1.1, sense=Sense.MAXIMIZE)
    seen: list[Progress] = []
    result = solve(instance, SolveOptions(solver=solver, relative_gap=0.0), SolveMonitor(on_progress=seen.append))
    statistics = result.statistics
    assert (statistics.num_columns, statistics.num_rows, statistics.num_nonzeros) == (30, 1, 30)
    times = (statistics.load_s, statistics.solve_s, statistics.solve_cpu_s, statistics.first_incumbent_s)
    assert all(t is not None and t >= 0 for t in times)
    assert statistics.num_nodes is not None
    assert (result.solver, bool(result.solver_version)) == (solver, True)
    incumbents = [progress for progress in seen if progress.incumbent is not None]
    assert incumbents
    for progress in incumbents:
        assert progress.incumbent is not None
        assert progress.objective == instance.value(progress.incumbent)
        assert not violations(instance, progress.incumbent)
    assert incumbents[-1].objective == pytest.approx(result.objective)
    assert all(p.bound is None or p.bound >= (result.objective or 0) - 1e-6 for p in seen)
    assert [p.elapsed_s for p in seen] == sorted(p.elapsed_s for p in seen)


@pytest.mark.parametrize("solver", SOLVERS)
def test_same_seed_same_answer(solver: str) -> None:
    rng = np.random.default_rng(5)
    # Many optima: all values are equal.
    instance = problem(rng.integers(1, 9, (3, 25)), [-INF] * 3, [40] * 3, np.ones(25), sense=Sense.MAXIMIZE)
    options = SolveOptions(solver=solver, relative_gap=0.0, seed=3)
    first, second = solve(instance, options), solve(instance, options)
    assert first.incumbent is not None
    np.testing.assert_array_equal(first.incumbent, second.incumbent)


@st.composite
def binary_programs(draw: st.DrawFn) -> MatrixProblem:
    n, m = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    coefficient = st.integers(-6, 6)
    matrix = draw(st.lists(st.lists(coefficient, min_size=n, max_size=n), min_size=m, max_size=m))
    limits = draw(st.lists(st.tuples(st.integers(-8, 8), st.integers(0, 8)), min_size=m, max_size=m))
    kinds = draw(st.lists(st.sampled_from(["<=", ">=", "range", "free"]), min_size=m, max_size=m))
    scale = draw(st.sampled_from([1.0, 0.37, 1e-7, 1e7]))
    return problem(
        matrix,
        [-INF if kind in ("<=", "free") else low for kind, (low, _) in zip(kinds, limits, strict=True)],
        [INF if kind in (">=", "free") else low + width for kind, (low, width) in zip(kinds, limits, strict=True)],
        np.array(draw(st.lists(coefficient, min_size=n, max_size=n))) * scale,
        sense=draw(st.sampled_from(Sense)),
        offset=draw(coefficient) * scale,
    )


def brute_force(instance: MatrixProblem) -> float | None:
    points = (np.array(bits, dtype=np.float64) for bits in itertools.product((0, 1), repeat=instance.num_columns))
    values = [instance.value(x) * instance.sense.sign for x in points if not violations(instance, x)]
    return min(values) * instance.sense.sign if values else None


@settings(max_examples=15, deadline=None)
@given(instance=binary_programs(), data=st.data())
def test_equals_brute_force(instance: MatrixProblem, data: st.DataObject) -> None:
    best = brute_force(instance)
    anything = st.sampled_from([0.0, 1.0, 0.5, -3.0, 1e30, math.nan, math.inf])
    start = data.draw(st.none() | st.lists(anything, min_size=instance.num_columns, max_size=instance.num_columns))
    warm = None if start is None else np.array(start)
    for solver in SOLVERS:
        result = exact(instance, solver, warm)
        if best is None:
            assert result.termination is TerminationReason.INFEASIBLE
        else:
            assert result.termination is TerminationReason.OPTIMAL
            scale = max(1e-6, float(np.abs(instance.objective).max()))
            assert result.objective == pytest.approx(best, abs=1e-9 * scale)


@settings(max_examples=15, deadline=None)
@given(instance=binary_programs(), seed=st.integers(0, 99))
def test_relabelling_changes_nothing(instance: MatrixProblem, seed: int) -> None:
    rng = np.random.default_rng(seed)
    columns, rows = rng.permutation(instance.num_columns), rng.permutation(instance.num_rows)
    shuffled = replace(
        instance,
        objective=instance.objective[columns],
        matrix=instance.matrix[rows][:, columns],
        row_lower=instance.row_lower[rows],
        row_upper=instance.row_upper[rows],
    )
    for solver in SOLVERS:
        before, after = exact(instance, solver), exact(shuffled, solver)
        assert before.termination is after.termination
        assert before.objective == pytest.approx(after.objective) if before.objective else True
