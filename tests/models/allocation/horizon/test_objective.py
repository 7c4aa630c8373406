"""What the objective is made of: each term decides a small problem otherwise, and by how much is computed by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.descriptor import HORIZON
from models.allocation.horizon.objective import Tail
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.validation import policy_issues
from models.plan import Plan, ScoreTerm
from models.workload import Snapshot
from stowplan.errors import InputError, Severity
from tests.models.allocation.horizon.test_check import PARAMETERS, job, solved
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

ALL: dict[str, Any] = {"tail": 0.5, "fairness": 1.0, "lateness": 2.0, "throughput": 3.0}


def one_gpu(*jobs: Any) -> Snapshot:
    return Snapshot(cluster=cluster(node("n", 1)), jobs=jobs)


def checked(snapshot: Snapshot, **asked: Any) -> tuple[Plan, float]:
    formulation, plan, objective = solved(snapshot, replace(PARAMETERS, **asked))
    assert formulation.violations(plan, objective) == []
    assert sum(term.value for term in plan.score) == pytest.approx(objective)
    return plan, objective


def starts(plan: Plan) -> list[str]:
    return [item.job_id for item in plan.allocations]


def test_a_deadline_counts_as_much_as_is_asked_for() -> None:
    """One GPU: `short` ends after 30 s and `long` after 1,060, or `long` after 1,000 s, when it is due, and `short`
    behind the horizon of 960 s."""
    both = one_gpu(
        job("short", 30.0, {1: 1.0}, restart_cost_s=0.0),
        job("long", 1000.0, {1: 1.0}, restart_cost_s=0.0, deadline_s=1000.0),
    )
    plan, objective = checked(both)
    assert starts(plan) == ["short"]
    assert objective == pytest.approx((30 + 1060) / 2)
    plan, objective = checked(both, lateness=2.0)
    assert starts(plan) == ["short"]
    assert objective == pytest.approx((30 + 1060) / 2 + 2 * 60 / 2)
    plan, objective = checked(both, lateness=200.0)
    assert starts(plan) == ["long"]
    assert objective == pytest.approx((1000 + 990) / 2)
    assert [term.job_id for term in plan.score if term.term == "lateness"] == ["long"]


def test_the_tail_is_the_job_that_has_been_there_for_longest() -> None:
    """Two jobs of the same weight, and a tail of half of it: the longer time from submission to end."""
    both = one_gpu(
        job("young", 30.0, {1: 1.0}, restart_cost_s=0.0),
        job("old", 1000.0, {1: 1.0}, restart_cost_s=0.0, age_s=1000.0),
    )
    assert starts(checked(both)[0]) == ["young"]
    plan, objective = checked(both, tail=1.0, tail_level=0.5)
    assert starts(plan) == ["old"]
    assert objective == pytest.approx(2000)
    assert [(term.term, term.job_id) for term in plan.score if term.value > 0] == [("tail", None)]
    # All weight is the mean again, ages included.
    assert checked(both, tail=1.0, tail_level=0.0)[1] == pytest.approx((30 + 1000 + 1060) / 2)


def test_fairness_divides_by_the_time_on_a_share() -> None:
    """Of two GPUs each has one: `wide` takes 800 s there, what is long, and `narrow` 200 s."""
    wide, narrow = job("wide", 800.0, {1: 1.0}), job("narrow", 200.0, {1: 1.0})
    snapshot = Snapshot(cluster=cluster(node("n", 2)), jobs=(wide, narrow))
    plan, _ = checked(snapshot, fairness=1.0)
    value = {term.job_id: term.value for term in plan.score}
    # Both run at once: a start beside it, each at the mean of 1 / F.
    mean = (1 / 800 + 1 / 200) / 2
    assert value["wide"] == pytest.approx(0.5 * 810 / 800 / mean)
    assert value["narrow"] == pytest.approx(0.5 * 210 / 200 / mean)
    had = replace(narrow, attained_gpu_s=600.0)
    plan, _ = checked(replace(snapshot, jobs=(wide, had)), fairness=1.0)
    assert [term.value for term in plan.score] == pytest.approx([0.5 * 810, 0.5 * 210])


def test_throughput_wants_work_done_at_once() -> None:
    """A start takes the dearer job all of the first interval; the other one would have worked for half of it."""
    dear = job("dear", 30.0, {1: 1.0}, restart_cost_s=60.0, weight=1.2)
    fast = job("fast", 100.0, {1: 1.0}, restart_cost_s=30.0)
    assert starts(checked(one_gpu(dear, fast))[0]) == ["dear"]
    plan, _ = checked(one_gpu(dear, fast), throughput=5.0)
    assert starts(plan) == ["fast"]
    lost = {term.job_id: term.value for term in plan.score if term.term == "lost_throughput"}
    # All 30 s of the one, and of the other 30 s of 60.
    assert lost == pytest.approx({"dear": 5 * 30 * 1.2 / 2.2, "fast": 5 * 30 / 2.2})


def test_old_jobs_come_first_whatever_is_asked_for() -> None:
    old = job("old", 1000.0, {1: 1.0}, age_s=30_000.0)
    due = job("due", 30.0, {1: 1.0}, deadline_s=30.0, weight=50.0)
    plan, _ = checked(one_gpu(old, due), **ALL, tail_level=0.5)
    assert starts(plan) == ["old"]


def test_wrong_terms_are_found() -> None:
    both = one_gpu(job("x", 300.0, {1: 1.0}, deadline_s=20.0), job("y", 600.0, {1: 1.0}, deadline_s=20.0, age_s=99.0))
    parameters = replace(PARAMETERS, **ALL)
    formulation, plan, objective = solved(both, parameters)
    base = formulation.instance.sia
    names = {term.term for term in plan.score}
    assert names == {"completion_time", "lateness", "lost_throughput", "tail"}

    def codes(plan: Plan, by: HorizonParameters = parameters) -> set[str]:
        found = horizon_violations(
            base.snapshot, by, base.configurations, base.matrix, plan, formulation.outlook, objective
        )
        return {issue.code for issue in found}

    assert codes(plan) == set()
    for name in sorted(names):
        k = next(k for k, term in enumerate(plan.score) if term.term == name and term.value > 0)
        off = [
            ScoreTerm(term=t.term, job_id=t.job_id, value=t.value * (1.01 if n == k else 1))
            for n, t in enumerate(plan.score)
        ]
        assert codes(replace(plan, score=tuple(off))) == {"wrong_score"}
        assert "score_terms" in codes(replace(plan, score=tuple(t for t in plan.score if t.term != name)))
    for name in ALL:
        assert codes(plan, replace(parameters, **{**ALL, name: 0.25})) >= {"wrong_score", "wrong_objective"}


def test_the_tail_of_given_times() -> None:
    """Times 100, 300 and 200 s of weights 0.5, 0.2 and 0.3: of the last 0.4 one half is of 300 s, one of 200 s."""
    tail = Tail(
        factor=2.0,
        level=0.6,
        weight=np.array([0.5, 0.2, 0.3]),
        counted=np.ones(3),
        before_s=np.zeros(3),
        longest_s=np.array([1000.0, 400.0, 900.0]),
    )
    columns = tail.columns(np.array([100.0, 300.0, 200.0]))
    # The time of the tail is at most 900 s, where all jobs take as long as they can.
    np.testing.assert_array_equal(tail.units_s, [1024, 1024, 512, 1024])
    np.testing.assert_allclose(columns * tail.units_s, [200, 0, 100, 0])
    assert tail.cost @ columns == pytest.approx(2 * 250)
    nothing = replace(tail, weight=np.zeros(3))
    assert nothing.cost @ nothing.columns(np.array([100.0, 300.0, 200.0])) == 0
    # In one order the first three weights are 0.6, in the other a digit more, where the tail begins.
    just = Tail(
        factor=1.0,
        level=0.6000000000000001,
        weight=np.array([0.1, 0.2, 0.3, 0.4]),
        counted=np.ones(4),
        before_s=np.zeros(4),
        longest_s=np.array([10.0, 20.0, 30.0, 1000.0]),
    )
    columns = just.columns(np.array([3.0, 2.0, 1.0, 1000.0]))
    assert columns.max() <= 1.0
    assert just.cost @ columns == pytest.approx(1000.0)


def test_terms_are_in_range_and_of_completion_times() -> None:
    for name, value in {
        "tail": 1.1,
        "fairness": -0.1,
        "lateness": float("nan"),
        "tail_level": 1.0,
        "arrivals_per_h": -1,
    }.items():
        with pytest.raises(InputError, match=name):
            HorizonParameters(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="lateness is 1"):
        HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1, lateness=1.0)


def test_a_horizon_that_no_start_reaches_is_said() -> None:
    """Of who waits, and who must move at the price of a change; not of who may stay."""
    waits = job("waits", 900.0, {1: 1.0}, restart_cost_s=300.0)
    quick = job("quick", 900.0, {1: 1.0}, restart_cost_s=299.0)
    moves = replace(quick, id="moves", current=on({"m": (0,)}))
    stays = replace(waits, id="stays", current=on({"n": (0,)}))
    nodes = cluster(node("n", 1), node("m", 1, state=NodeState.DRAINED))
    snapshot = Snapshot(cluster=nodes, jobs=(quick, stays, moves, waits))
    near = HorizonParameters(horizon_s=300.0, restart_price=2.0)

    def said(parameters: HorizonParameters) -> list[tuple[str, str]]:
        issues = policy_issues(snapshot, parameters)
        assert {issue.severity for issue in issues} == {Severity.WARNING}
        return [
            (issue.pointer, issue.detail.partition(", which")[0])
            for issue in issues
            if issue.code == "horizon_too_near"
        ]

    start = "a start takes no less than horizon_s, 300, for"
    assert said(near) == [("/jobs/2/restart_cost_s", f"{start} 2 jobs")]
    assert said(replace(near, restart_price=1.0)) == [("/jobs/3/restart_cost_s", f"{start} 1 job")]
    for parameters in (replace(near, horizon_s=600.0), HorizonParameters(), replace(near, backlog_efficiency=None)):
        assert said(parameters) == []


def test_deadlines_that_count_for_nothing_are_said() -> None:
    snapshot = one_gpu(job("x", 30.0, {1: 1.0}, deadline_s=20.0))
    assert [(issue.code, issue.pointer) for issue in policy_issues(snapshot, PARAMETERS)] == [
        ("ignored_field", "/jobs/0/deadline_s")
    ]
    assert policy_issues(snapshot, replace(PARAMETERS, lateness=1.0)) == []
    assert "deadline_s" not in HORIZON.ignores
