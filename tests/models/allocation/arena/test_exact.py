"""The integer program against trying everything, the heuristic against both, and what names must not change."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.arena.bottleneck import with_theta_bound
from models.allocation.arena.formulation import point_of
from models.allocation.arena.instance import ArenaInstance
from models.allocation.arena.parameters import ArenaMethod, ArenaObjective
from models.clock import PhaseClock
from models.workload import Snapshot
from solver.feasibility import violations
from solver.result import TerminationReason
from tests.models.allocation.arena.scenes import formulation_of, random_parameters, random_snapshot, solved
from tests.models.placement.scenes import SEEDS, can_be_packed, dice


def best_by_trying(instance: ArenaInstance) -> float | None:
    """Optimum over all assignments that can be packed on nodes, by the formulas; None where there is none."""
    utility, sign = instance.utility, instance.sense.sign
    fixed = sum(instance.pinned_score(int(i)) for i in np.flatnonzero(instance.pinned))
    planned = np.flatnonzero(~instance.pinned).tolist()
    options = [np.flatnonzero(utility.offered[i]).tolist() + ([] if instance.required[i] else [-1]) for i in planned]
    num_counted = sum(bool(row.any()) for row in utility.offered)
    best: float | None = None
    for choice in product(*options):
        if not can_be_packed(instance.snapshot, instance.configurations, instance.taken, [c for c in choice if c >= 0]):
            continue
        costs = [utility.value[i, c] if c >= 0 else utility.waiting[i] for i, c in zip(planned, choice, strict=True)]
        value = fixed + sum(costs)
        if instance.is_min_max:
            counted = [cost for i, cost in zip(planned, costs, strict=True) if utility.offered[i].any()]
            value = max(counted, default=0.0) + instance.parameters.mean_weight * sum(counted) / max(1, num_counted)
        best = value if best is None or sign * (value - best) < 0 else best
    return best


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_the_optimum_equals_trying_everything_and_is_placed_legally(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng, ArenaMethod.ILP)
    formulation = formulation_of(snapshot, parameters)
    expected = best_by_trying(formulation.instance)
    result = solved(formulation, rng.choice(("highs", "scip", "auto")))
    if expected is None:
        assert result.termination is TerminationReason.INFEASIBLE
        return
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, expected) == []
    assert sum(term.value for term in plan.score) == pytest.approx(expected, rel=1e-6, abs=1e-7)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_the_heuristic_is_legal_and_never_better_than_the_optimum_or_the_bound(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng, num_jobs=6), random_parameters(rng, ArenaMethod.HEURISTIC)
    formulation = formulation_of(snapshot, parameters)
    exact = solved(formulation_of(snapshot, replace(parameters, method=ArenaMethod.ILP)))
    result = solved(formulation)
    if exact.objective is None:
        assert result.termination is TerminationReason.INFEASIBLE
        return
    assert result.incumbent is not None
    assert result.objective is not None
    assert result.bound is not None
    assert violations(formulation.problem, result.incumbent) == ()
    sign, rounding = result.sense.sign, 1e-6 * max(1.0, abs(exact.objective))
    assert sign * (result.objective - exact.objective) >= -rounding
    assert sign * (exact.objective - result.bound) >= -rounding
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []


@settings(max_examples=20, deadline=None)
@given_by(seed=SEEDS)
def test_the_bound_of_theta_cuts_off_no_plan(seed: int) -> None:
    rng = dice(seed)
    parameters = replace(random_parameters(rng, ArenaMethod.ILP), objective=ArenaObjective.FINISH_TIME_FAIRNESS)
    formulation = formulation_of(random_snapshot(rng), parameters)
    if not formulation.instance.pair_jobs.size:
        return
    bounded = with_theta_bound(formulation.instance, formulation.problem, lambda: 10.0)
    best = best_by_trying(formulation.instance)
    if best is not None:
        assert bounded.lower[-1] <= best * (1 + 1e-9)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given_by(seed=SEEDS)
def test_names_and_order_do_not_change_the_optimum(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng, ArenaMethod.ILP)
    numbers = rng.sample(range(100), k=len(snapshot.cluster.nodes))
    names = {item.id: f"host-{number}" for item, number in zip(snapshot.cluster.nodes, numbers, strict=True)}
    nodes = [replace(item, id=names[item.id]) for item in snapshot.cluster.nodes]
    jobs = [
        replace(
            job,
            id=f"work-{k}",
            current=job.current and tuple(replace(part, node=names[part.node]) for part in reversed(job.current)),
        )
        for k, job in enumerate(snapshot.jobs)
    ]
    rng.shuffle(nodes)
    rng.shuffle(jobs)
    renamed = Snapshot(cluster=replace(snapshot.cluster, nodes=tuple(nodes)), jobs=tuple(jobs))
    first, second = (solved(formulation_of(s, parameters)) for s in (snapshot, renamed))
    assert first.termination is second.termination
    if first.objective is not None:
        assert second.objective == pytest.approx(first.objective, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("method", list(ArenaMethod))
def test_the_same_snapshot_gives_the_same_plan(method: ArenaMethod) -> None:
    for seed in range(5):
        plans = []
        for _ in range(2):
            rng = dice(seed)
            formulation = formulation_of(random_snapshot(rng), random_parameters(rng, method))
            result = solved(formulation)
            plans.append(None if result.incumbent is None else formulation.extract(result.incumbent, PhaseClock()))
        assert plans[0] == plans[1]


@settings(max_examples=20, deadline=None)
@given_by(seed=SEEDS)
def test_the_start_is_feasible(seed: int) -> None:
    rng = dice(seed)
    formulation = formulation_of(random_snapshot(rng), random_parameters(rng, ArenaMethod.ILP))
    instance, start = formulation.instance, formulation.warm_start
    if start is None:
        assert instance.required.any()
    else:
        assert violations(formulation.problem, start) == ()
        chosen = np.where(instance.launched, instance.utility.current, -1)
        np.testing.assert_array_equal(start, point_of(instance, chosen))
