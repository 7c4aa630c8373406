"""The integer program against trying everything, and what must not depend on names or order."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given as given_by
from hypothesis import settings

from models.allocation.sia.formulation import formulate_sia
from models.allocation.sia.instance import SiaInstance
from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.clock import PhaseClock
from models.workload import Snapshot
from solver.feasibility import violations
from solver.result import TerminationReason
from tests.models.allocation.sia.instances import options_of, plan_of, random_parameters, random_snapshot, solve
from tests.models.placement.scenes import SEEDS, can_be_packed, dice, node
from topology.cluster import NodeState


def best_by_trying(instance: SiaInstance) -> float | None:
    """Optimum over all assignments that can be packed on nodes; None where reservations exclude each other."""
    sign = instance.sense.sign
    fixed = sum(instance.pinned_score(int(i)) for i in instance.pinned)
    planned = [int(i) for i in instance.planned]
    options = [options_of(instance, i) + ([] if instance.jobs[i].reservation is not None else [-1]) for i in planned]
    values = [
        sign * fixed
        + sum(
            sign * instance.utility.value[i, c] if c >= 0 else instance.penalty[i]
            for i, c in zip(planned, choice, strict=True)
        )
        for choice in product(*options)
        if can_be_packed(instance.snapshot, instance.configurations, instance.taken, [c for c in choice if c >= 0])
    ]
    return sign * min(values) if values else None


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given_by(seed=SEEDS)
def test_the_optimum_equals_trying_everything_and_is_placed_legally(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng)
    formulation = formulate_sia(snapshot, parameters, PhaseClock())
    expected = best_by_trying(formulation.instance)
    result = solve(formulation, rng.choice(("highs", "scip", "decomposition")))
    if expected is None:
        assert result.termination is TerminationReason.INFEASIBLE
        return
    assert result.termination is TerminationReason.OPTIMAL
    assert result.objective == pytest.approx(expected, rel=1e-7, abs=1e-7)
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, expected) == []
    assert sum(term.value for term in plan.score) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(max_examples=15, deadline=None)
@given_by(seed=SEEDS)
def test_names_and_order_do_not_change_the_optimum(seed: int) -> None:
    rng = dice(seed)
    snapshot, parameters = random_snapshot(rng), random_parameters(rng)
    numbers = rng.sample(range(100), k=len(snapshot.cluster.nodes))
    names = {item.id: f"host-{number}" for item, number in zip(snapshot.cluster.nodes, numbers, strict=True)}
    nodes = [replace(item, id=names[item.id]) for item in snapshot.cluster.nodes]
    jobs = [
        replace(
            job,
            id=f"work-{k}",
            current=None
            if job.current is None
            else tuple(replace(part, node=names[part.node]) for part in rng.sample(job.current, k=len(job.current))),
        )
        for k, job in enumerate(snapshot.jobs)
    ]
    rng.shuffle(nodes)
    rng.shuffle(jobs)
    renamed = Snapshot(cluster=replace(snapshot.cluster, nodes=tuple(nodes)), jobs=tuple(jobs))
    first, second = (solve(formulate_sia(s, parameters, PhaseClock())) for s in (snapshot, renamed))
    assert first.termination is second.termination
    if first.objective is not None:
        assert second.objective == pytest.approx(first.objective, rel=1e-7, abs=1e-7)


@settings(max_examples=40, deadline=None)
@given_by(seed=SEEDS)
def test_adding_a_node_never_hurts(seed: int) -> None:
    """Costs are given and the node is of the size R of its type, so that only what can be placed changes."""
    rng = dice(seed)
    snapshot = random_snapshot(rng)
    parameters = SiaParameters(objective=SiaObjective.GIVEN_COSTS, queue_penalty=rng.choice((0.5, 4.0)))
    kind = rng.choice(snapshot.cluster.gpu_types).name
    alive = [item for item in snapshot.cluster.nodes if item.gpu_type == kind and item.state is not NodeState.DOWN]
    added = node("added", max((item.num_gpus for item in alive), default=8), kind, path=("p", "x"))
    larger = replace(snapshot.cluster, nodes=(*snapshot.cluster.nodes, added))
    before = solve(formulate_sia(snapshot, parameters, PhaseClock())).objective
    after = solve(formulate_sia(Snapshot(cluster=larger, jobs=snapshot.jobs), parameters, PhaseClock())).objective
    if before is not None:
        assert after is not None
        assert after <= before + 1e-7


@settings(max_examples=30, deadline=None)
@given_by(seed=SEEDS)
def test_the_warm_start_is_feasible_and_never_better_than_the_optimum(seed: int) -> None:
    rng = dice(seed)
    formulation = formulate_sia(random_snapshot(rng), random_parameters(rng), PhaseClock())
    problem, start = formulation.problem, formulation.warm_start
    if start is None:
        reserved = [job for job in formulation.instance.jobs if job.reservation is not None]
        assert reserved
        return
    assert violations(problem, start) == ()
    best = solve(formulation).objective
    assert best is not None
    assert problem.sense.sign * (problem.value(start) - best) >= -1e-7


def test_the_same_snapshot_gives_the_same_plan() -> None:
    for seed in range(5):
        snapshots = [random_snapshot(dice(seed)) for _ in range(2)]
        parameters = SiaParameters(queue_penalty=4.0)
        results = [solve(formulate_sia(snapshot, parameters, PhaseClock())) for snapshot in snapshots]
        if results[0].incumbent is not None:
            assert plan_of(snapshots[0], parameters) == plan_of(snapshots[1], parameters)
