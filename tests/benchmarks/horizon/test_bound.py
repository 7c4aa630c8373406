"""The bound on completion times is never above the best of all schedules, and near it where one machine is shared."""

from collections.abc import Iterator
from functools import cache
from itertools import product

import numpy as np
import pytest

from benchmarks.horizon.bound import Kind, Problem, good_prices, lower_bound_s, use_at
from benchmarks.horizon.horizon_bound import problem_of
from benchmarks.replays.sia_replays import setup_of
from benchmarks.workloads.published.sia_traces import DATA
from executor.simulation.truth import TruthParameters

ROUND_S = 60.0
MOST_ROUNDS = 8
# Work left of a job, the configuration that it holds, and for how many rounds more it must; None: it is over.
State = tuple[float, int | None, int] | None
# The configuration that is used in a round, seconds until the job ends or can choose again, and what becomes of it.
Option = tuple[int | None, float, State]


def options(problem: Problem, kind: Kind, state: State) -> Iterator[Option]:
    """Of a job in a round."""
    if state is None:
        yield None, 0.0, None
        return
    left_s, held, pinned = state
    if pinned:
        yield held, 0.0, (left_s, held, pinned - 1) if left_s or pinned > 1 else None
        return
    yield None, ROUND_S, (left_s, None, 0)
    for c in range(len(problem.type_of)):
        restart_s = 0.0 if c == held else kind.restart_s
        num_rounds = max(1, int(np.ceil(restart_s / ROUND_S)))
        own_s = np.append(0.0, np.cumsum(kind.epoch_s[::-1, c]))
        until_s = restart_s + float(np.interp(left_s, kind.left_s, own_s))
        then_s = float(np.interp(max(0.0, until_s - num_rounds * ROUND_S), own_s, kind.left_s))
        yield c, min(until_s, num_rounds * ROUND_S), (then_s, c, num_rounds - 1) if then_s or num_rounds > 1 else None


def best_s(problem: Problem) -> float:
    """The least sum of completion times: all that can be chosen in every round."""
    gpus = [(int(n), 0) if t == 0 else (0, int(n)) for t, n in zip(problem.type_of, problem.gpus_of, strict=True)]
    of_state = cache(lambda kind, state: list(options(problem, problem.kinds[kind], state)))
    rounds, most = problem.rounds.tolist(), problem.num_gpus.tolist()

    @cache
    def least_s(now: int, states: tuple[State, ...]) -> float:
        if not any(states):
            return 0.0
        if now == MOST_ROUNDS:
            return np.inf
        asked = [
            of_state(kind, state) if first <= now else [(None, 0.0, state)]
            for kind, first, state in zip(problem.kind_of.tolist(), rounds, states, strict=True)
        ]
        best = np.inf
        for chosen in product(*asked):
            used = [gpus[c] for c, _, _ in chosen if c is not None]
            if all(sum(counts[k] for counts in used) <= most[k] for k in range(len(most))):
                then_s = least_s(now + 1, tuple(state for _, _, state in chosen))
                best = min(best, sum(spent_s for _, spent_s, _ in chosen) + then_s)
        return best

    late_s = float((problem.rounds * ROUND_S - problem.submit_s).sum())
    return late_s + least_s(0, tuple((float(problem.kinds[k].left_s[-1]), None, 0) for k in problem.kind_of))


@pytest.mark.parametrize("seed", range(6))
def test_never_above_the_best_of_all_schedules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # One and two GPUs of a type, and one of another.
    scaling = np.array([1.0, rng.uniform(0.5, 0.9), rng.uniform(0.4, 1.5)])
    kinds = [
        Kind(epoch_s=rng.uniform(20.0, 50.0, (2, 1)) * scaling * rng.uniform(0.8, 1.2, (2, 3)), restart_s=restart_s)
        for restart_s in (20.0, 90.0)
    ]
    problem = Problem(
        kinds=kinds,
        type_of=np.array([0, 0, 1]),
        gpus_of=np.array([1, 2, 1]),
        num_gpus=np.array([2, 1]),
        kind_of=rng.integers(0, 2, 3),
        submit_s=np.sort(rng.uniform(0.0, 120.0, 3)),
        round_s=ROUND_S,
    )
    best = best_s(problem)
    prices = good_prices(problem, 60)
    bound = lower_bound_s(problem, prices)
    alone = lower_bound_s(problem, np.zeros_like(prices))
    assert alone <= bound <= best
    assert bound >= 0.85 * best
    # Whatever the prices, and however coarse the grid.
    assert lower_bound_s(problem, rng.uniform(0.0, 0.5, prices.shape)) <= best
    assert lower_bound_s(problem, prices, 2.0) <= bound


def test_one_machine_is_shared_as_by_the_shortest_work_left() -> None:
    """Jobs of one kind, of 90 and of 300 s on the one GPU; a round is short, so that little is lost at its end."""
    kinds = [Kind(epoch_s=np.array([[work_s]]), restart_s=0.0) for work_s in (90.0, 300.0)]
    submit_s = np.array([0.0, 30.0, 150.0, 180.0, 200.0])
    kind_of = np.array([1, 0, 0, 1, 0])
    problem = Problem(
        kinds=kinds,
        type_of=np.array([0]),
        gpus_of=np.array([1]),
        num_gpus=np.array([1]),
        kind_of=kind_of,
        submit_s=submit_s,
        round_s=10.0,
    )
    left_s = {j: (90.0, 300.0)[kind] for j, kind in enumerate(kind_of)}
    now_s, best = 0.0, 0.0
    while left_s:
        j = min((j for j in left_s if submit_s[j] <= now_s), key=left_s.__getitem__)
        left_s[j] -= 10.0
        now_s += 10.0
        if not left_s[j]:
            best += now_s - submit_s[j]
            del left_s[j]
    prices = good_prices(problem, 300)
    use = use_at(problem, prices)
    # What is left behind the last round is not counted.
    assert 0.9 * 870.0 <= use.held_s.sum() <= 870.0 * (1.0 + 1e-9)
    assert use.gpus.mean() == pytest.approx(1.0, abs=0.02)
    assert 0.95 * best <= lower_bound_s(problem, prices) <= best


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published traces of Sia are not at {DATA}")
def test_jobs_of_a_trace_are_no_faster_than_alone_on_its_best_gpus() -> None:
    problem, names = problem_of(setup_of("helios/workload-1", "sia", TruthParameters()))
    assert problem.num_gpus.tolist() == [24, 24, 16]
    assert np.bincount(problem.kind_of).tolist() == [[6, 134, 10, 3, 7][k] for k in range(5)]
    cifar10 = problem.kinds[names.index("cifar10")]
    # The fastest one configuration takes longer than what changes with every epoch at no cost.
    assert 0.9 * cifar10.epoch_s.sum(axis=0).min() < cifar10.left_s[-1] < cifar10.epoch_s.sum(axis=0).min()
