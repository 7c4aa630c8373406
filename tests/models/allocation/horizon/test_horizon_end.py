"""When the last interval ends where nobody says when, and that the check knows it without the plan."""

from dataclasses import replace

import pytest

from models.allocation.horizon.parameters import HorizonParameters
from models.workload import Job, Snapshot
from tests.models.allocation.horizon.scenes import instance_of
from tests.models.allocation.horizon.test_check import job, solved
from tests.models.allocation.horizon.test_objective import one_gpu
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

TO_THE_END = HorizonParameters(backlog_efficiency=None)


def ends_s(snapshot: Snapshot, parameters: HorizonParameters | None = None) -> float:
    return instance_of(snapshot, parameters).intervals.end_s


def test_plans_are_made_for_half_an_hour() -> None:
    short, long = job("short", 30.0, {1: 1.0}), job("long", 90_000.0, {1: 1.0})
    assert ends_s(one_gpu(short, long)) == 1800
    assert ends_s(one_gpu(short)) == 1800
    assert ends_s(one_gpu(short, long), HorizonParameters(horizon_s=900.0)) == 900


def test_plans_are_made_for_several_starts() -> None:
    """Of the dearest job that can run at all."""
    dear = job("dear", 90_000.0, {1: 1.0}, restart_cost_s=700.0)
    assert ends_s(one_gpu(job("short", 30.0, {1: 1.0}), dear)) == 4200
    assert ends_s(one_gpu(dear), HorizonParameters(horizon_s=900.0)) == 900
    too_large = job("too large", 30.0, {2: 1.0}, restart_cost_s=7000.0)
    assert ends_s(one_gpu(dear, too_large)) == 4200


def test_as_many_intervals_as_are_asked_for_have_room() -> None:
    both = one_gpu(job("short", 30.0, {1: 1.0}), job("long", 90_000.0, {1: 1.0}))
    assert ends_s(both, HorizonParameters(interval_s=600.0)) == 2400
    assert ends_s(both, HorizonParameters(num_intervals=1)) == 60


def test_one_interval_is_long_enough_for_starts() -> None:
    """Both would tie with waiting where their starts take until its end; without a backlog nothing ties."""
    both = Snapshot(
        cluster=cluster(node("n", 2)),
        jobs=tuple(job(name, 900.0, {1: 1.0}, restart_cost_s=300.0) for name in ("x", "y")),
    )
    one = HorizonParameters(num_intervals=1)
    assert ends_s(both, one) == 1800
    assert ends_s(both, replace(one, horizon_s=60.0)) == 60
    assert ends_s(both, replace(one, backlog_efficiency=None)) == 60
    formulation, plan, objective = solved(both, one)
    assert len(plan.allocations) == 2
    assert formulation.violations(plan, objective) == []


@pytest.mark.parametrize("num_intervals", [1, 4])
def test_who_must_move_starts_at_the_price_of_a_change(num_intervals: int) -> None:
    """Eight times 400 s; who may stay where it is does not ask for so long a horizon."""
    parameters = HorizonParameters(restart_price=8.0, num_intervals=num_intervals)
    it = job("x", 50_000.0, {1: 1.0, 2: 1.7}, restart_cost_s=400.0, current=on({"n": (0,)}), age_s=3000.0)
    for state, until_s in ((NodeState.DRAINED, 6 * 3200), (NodeState.UP, 6 * 400)):
        snapshot = Snapshot(cluster=cluster(node("n", 2, state=state), node("m", 2)), jobs=(it,))
        assert ends_s(snapshot, parameters) == until_s
        formulation, plan, objective = solved(snapshot, parameters)
        assert len(plan.allocations) == 1
        assert formulation.violations(plan, objective) == []


def test_a_plan_to_the_end_of_all_jobs_ends_when_all_is_done() -> None:
    """30 and 1,000 s one after the other on the one GPU that is free, and then as long as nine of ten jobs take."""
    stays = job("stays", 5.0, {1: 1.0}, current=on({"m": (0,)}), preemptible=False)
    both = Snapshot(
        cluster=cluster(node("n", 1), node("m", 1)),
        jobs=(job("short", 30.0, {1: 1.0}), job("long", 1000.0, {1: 1.0}), stays),
    )
    assert ends_s(both, TO_THE_END) == pytest.approx(30 + 1000 + 0.1 * 30 + 0.9 * 1000)


@pytest.mark.parametrize("parameters", [HorizonParameters(), TO_THE_END, HorizonParameters(num_intervals=1)])
@pytest.mark.parametrize("jobs", [("short", "long", "dear"), ("long",), ()])
def test_the_check_knows_when_it_ends(parameters: HorizonParameters, jobs: tuple[str, ...]) -> None:
    known: dict[str, Job] = {
        "short": job("short", 30.0, {1: 1.0, 2: 1.5}),
        "long": job("long", 9000.0, {1: 1.0, 2: 1.5}),
        "dear": job("dear", 4000.0, {2: 1.0}, restart_cost_s=700.0),
    }
    snapshot = Snapshot(cluster=cluster(node("n", 2)), jobs=tuple(known[name] for name in jobs))
    formulation, plan, objective = solved(snapshot, parameters)
    assert formulation.violations(plan, objective) == []
    first_s, *later_s = formulation.outlook.bounds_s
    formulation.outlook = replace(formulation.outlook, bounds_s=[first_s, *(1.01 * bound_s for bound_s in later_s)])
    assert "wrong_intervals" in {issue.code for issue in formulation.violations(plan, objective)}


def test_the_check_knows_where_intervals_end_between() -> None:
    formulation, plan, objective = solved(one_gpu(job("x", 9000.0, {1: 1.0})), HorizonParameters())
    formulation.outlook = replace(formulation.outlook, bounds_s=[0.0, 60.0, 300.0, 900.0, 1800.0])
    assert {issue.code for issue in formulation.violations(plan, objective)} == {"wrong_intervals"}
