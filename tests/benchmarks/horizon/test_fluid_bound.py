"""The fluid bound is never above what a schedule reaches, whatever the prices, and near the best on one machine."""

import numpy as np
import pytest

from benchmarks.horizon.arena_bound import fluid_problem
from benchmarks.horizon.ascent import good_prices_of
from benchmarks.horizon.fluid_bound import FluidKind, FluidProblem, priced
from benchmarks.replays.arena_replays import Rules, setup_of
from benchmarks.workloads.published.arena import DIRECTORY, data_are_there
from stowplan.arrays import FloatArray

HORIZON_S = 4000.0
STEP_S = 50.0


def a_problem(rng: np.random.Generator, num_jobs: int) -> FluidProblem:
    """One and two GPUs of a type, and one of another; some jobs cannot end."""
    submit_s = np.sort(rng.uniform(0.0, 2000.0, num_jobs))
    kinds = [
        FluidKind(
            type_of=np.array([0, 0, 1]),
            gpus_of=np.array([1, 2, 1]),
            speed=np.array([1.0, 1.7, 0.6]) * rng.uniform(1, 2),
        )
        for _ in range(2)
    ]
    return FluidProblem(
        kinds=kinds,
        kind_of=rng.integers(0, 2, num_jobs),
        work=rng.uniform(100.0, 2500.0, num_jobs),
        submit_s=submit_s,
        ready_s=submit_s + 10.0,
        num_gpus=np.array([2, 1]),
        bounds_s=np.arange(0.0, HORIZON_S + 1.0, 200.0),
    )


def reached_s(problem: FluidProblem, rng: np.random.Generator) -> float:
    """The sum of a schedule: of jobs in an order drawn anew at every step, each takes the fastest that is free."""
    left, end_s = problem.work.copy(), np.full(problem.work.size, HORIZON_S)
    for now_s in np.arange(0.0, HORIZON_S, STEP_S).tolist():
        free = problem.num_gpus.copy()
        for j in rng.permutation(left.size).tolist():
            kind = problem.kinds[problem.kind_of[j]]
            open_ = [c for c in range(3) if kind.gpus_of[c] <= free[kind.type_of[c]]]
            if left[j] <= 0 or problem.ready_s[j] > now_s or not open_:
                continue
            c = max(open_, key=kind.speed.__getitem__)
            free[kind.type_of[c]] -= kind.gpus_of[c]
            if kind.speed[c] * STEP_S >= left[j]:
                end_s[j] = now_s + left[j] / kind.speed[c]
            left[j] -= kind.speed[c] * STEP_S
    return float((end_s - problem.submit_s).sum())


def ascended(problem: FluidProblem, num_steps: int) -> FloatArray:
    first = np.full((problem.lengths_s.size, len(problem.num_gpus)), 0.1)
    return good_prices_of(lambda prices: priced(problem, prices), first, problem.num_gpus, num_steps, 0.1)


@pytest.mark.parametrize("seed", range(6))
def test_never_above_a_schedule(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = a_problem(rng, 8)
    prices = ascended(problem, 60)
    reached = min(reached_s(problem, rng) for _ in range(20))
    alone, bound = priced(problem, np.zeros_like(prices)).value, priced(problem, prices).value
    assert alone < bound <= reached
    # Whatever the prices, and however fine the intervals.
    assert priced(problem, rng.uniform(0.0, 2.0, prices.shape)).value <= reached
    assert bound - 1e-6 <= priced(problem.finer(4), np.repeat(prices, 4, axis=0)).value <= reached


def test_a_job_alone_is_as_long_as_on_its_fastest_gpus_or_until_the_horizon() -> None:
    kind = FluidKind(type_of=np.array([0, 0]), gpus_of=np.array([1, 4]), speed=np.array([1.0, 2.5]))
    for work, expected in ((1000.0, 410.0), (20_000.0, HORIZON_S - 90.0)):
        problem = FluidProblem(
            kinds=[kind],
            kind_of=np.array([0]),
            work=np.array([work]),
            submit_s=np.array([90.0]),
            ready_s=np.array([100.0]),
            num_gpus=np.array([4]),
            bounds_s=np.arange(0.0, HORIZON_S + 1.0, 30.0),
        )
        # Prices of work lie on a grid.
        assert priced(problem, np.zeros((problem.lengths_s.size, 1))).value == pytest.approx(expected, rel=0.02)
        assert priced(problem, np.zeros((problem.lengths_s.size, 1))).value <= expected


def test_one_machine_is_shared_as_by_the_shortest_work_left() -> None:
    submit_s, work = np.array([0.0, 300.0, 500.0, 1500.0, 1600.0]), np.array([900.0, 200.0, 600.0, 900.0, 100.0])
    problem = FluidProblem(
        kinds=[FluidKind(type_of=np.array([0]), gpus_of=np.array([1]), speed=np.array([1.0]))],
        kind_of=np.zeros(5, dtype=np.int64),
        work=work,
        submit_s=submit_s,
        ready_s=submit_s,
        num_gpus=np.array([1]),
        bounds_s=np.arange(0.0, HORIZON_S + 1.0, 20.0),
    )
    left, now_s, best_s = work.copy(), 0.0, 0.0
    while left.any():
        j = min((j for j in np.flatnonzero(left).tolist() if submit_s[j] <= now_s), key=left.__getitem__)
        left[j] -= 10.0
        now_s += 10.0
        if not left[j]:
            best_s += now_s - submit_s[j]
    bound = priced(problem, ascended(problem, 300)).value
    assert 0.95 * best_s <= bound <= best_s


@pytest.mark.skipif(not data_are_there(), reason=f"the traces of Arena are not at {DIRECTORY}")
def test_without_contention_jobs_of_a_trace_are_as_long_as_alone() -> None:
    problem = fluid_problem(setup_of("philly", "sia", Rules()), 1800.0)
    assert problem.work.size == 849
    assert problem.num_gpus.tolist() == [320, 320, 320, 320]
    alone_s = priced(problem, np.zeros((problem.lengths_s.size, 4))).value / 849
    # Of the replays; their starts take as long as those of the GPUs on which jobs end first.
    assert 0.99 * 44_444 <= alone_s <= 44_444
