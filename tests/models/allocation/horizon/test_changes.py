"""What a change loses with those that are to follow it: by hand, and what that decides."""

from dataclasses import replace

import numpy as np
import pytest

from models.allocation.horizon.changes import change_seconds
from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.parameters import HorizonParameters
from models.plan import Plan
from models.workload import Job, Snapshot
from tests.models.allocation.horizon.test_check import job, solved
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

JOB = job("x", 500.0, {1: 1.0}, age_s=600.0, num_restarts=3)
PARAMETERS = HorizonParameters()


def lost_s(it: Job, left_s: float, *, price: float = 2.0, horizon_s: float = 1800.0, stays: bool = True) -> float:
    """Of a job that has so much left where it is, and half of it in another configuration."""
    seconds = np.array([[left_s, 0.5 * left_s, np.inf]])
    return float(change_seconds([it], price, seconds, np.array([0 if stays else -1]), horizon_s)[0])


def test_a_job_that_was_moved_often_is_moved_again() -> None:
    """It held GPUs for 150 s on average, and loses 20 s with each change."""
    assert lost_s(JOB, 500.0) == pytest.approx(20 * 500 / 150)
    assert lost_s(JOB, 500.0, horizon_s=300.0) == pytest.approx(20 * 300 / 150)
    assert lost_s(JOB, 500.0, stays=False) == pytest.approx(20 * 250 / 150)
    assert lost_s(JOB, 100.0) == pytest.approx(20)
    assert lost_s(replace(JOB, num_restarts=0), 500.0) == pytest.approx(20)


def test_a_job_is_taken_to_hold_gpus_for_three_times_what_the_change_takes() -> None:
    assert lost_s(replace(JOB, age_s=0.0), 500.0) == pytest.approx(500 / 3)
    assert lost_s(replace(JOB, age_s=0.0), 60.0) == pytest.approx(20)


def test_changes_for_nothing_are_for_nothing() -> None:
    assert lost_s(replace(JOB, age_s=0.0, restart_cost_s=0.0), 500.0) == 0
    assert lost_s(JOB, 500.0, price=0.0) == 0


def test_nobody_stays_where_there_is_nothing() -> None:
    """All nodes are down: there is no configuration, and a change is taken to be followed by as many as ever."""
    found = change_seconds([JOB], 2.0, np.empty((1, 0)), np.array([-1]), 1800.0)
    assert found.tolist() == [pytest.approx(20 * 1800 / 150)]
    down = Snapshot(cluster=cluster(node("n", 2, state=NodeState.DOWN)), jobs=(JOB,))
    formulation, plan, objective = solved(down, PARAMETERS)
    assert [item.job_id for item in plan.unplaced] == ["x"]
    assert formulation.violations(plan, objective) == []


def wider(num_restarts: int) -> Snapshot:
    """A job on one of two GPUs, on which it would end after 230 s and a change of 10 s, in place of 300 s."""
    it = job("x", 300.0, {1: 1.0, 2: 1.3}, age_s=600.0, num_restarts=num_restarts, current=on({"n": (0,)}))
    return Snapshot(cluster=cluster(node("n", 2)), jobs=(it,))


def gpus(plan: Plan) -> list[int]:
    return [item.num_gpus for item in plan.allocations]


def test_who_was_moved_often_stays() -> None:
    for num_restarts, has in ((0, 2), (30, 1)):
        formulation, plan, objective = solved(wider(num_restarts), PARAMETERS)
        assert gpus(plan) == [has]
        assert formulation.violations(plan, objective) == []


def test_the_check_knows_what_was_moved_how_often() -> None:
    formulation, plan, objective = solved(wider(0), PARAMETERS)
    base = formulation.instance.sia
    found = horizon_violations(
        wider(30), PARAMETERS, base.configurations, base.matrix, plan, formulation.outlook, objective
    )
    assert {issue.code for issue in found} == {"wrong_score", "wrong_objective"}
