"""What the jobs of a queue have together: now, later, beside jobs that stay, and what is said of it."""

from dataclasses import replace
from typing import Any

import pytest

from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.formulation import formulate_horizon
from models.allocation.horizon.parameters import HorizonObjective, HorizonParameters
from models.allocation.horizon.validation import policy_issues
from models.clock import PhaseClock
from models.plan import Plan
from models.workload import Reservation, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from stowplan.errors import InputError
from tests.models.allocation.horizon.test_check import PARAMETERS, job, solved
from tests.models.allocation.horizon.test_plans import planned
from tests.models.placement.scenes import cluster, node, on
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState


def two(**said: Any) -> Snapshot:
    """Four GPUs; two jobs of queue q, which want one each, and one of another queue."""
    jobs = (
        job("first", 50.0, {1: 1.0}, queue="q", restart_cost_s=0.0, **said),
        job("second", 500.0, {1: 1.0}, queue="q", restart_cost_s=0.0),
        job("other", 500.0, {1: 1.0}, queue="r", restart_cost_s=0.0),
    )
    return Snapshot(cluster=cluster(node("n", 4)), jobs=jobs)


def given(plan: Plan) -> dict[str, int]:
    return {item.job_id: item.num_gpus for item in plan.allocations}


def test_jobs_of_a_queue_wait_for_each_other() -> None:
    formulation, plan, objective = solved(two(), replace(PARAMETERS, quotas={"q": 1}))
    assert given(plan) == {"first": 1, "other": 1}
    assert objective == pytest.approx((50 + 560 + 500) / 3)
    (waits,) = plan.unplaced
    assert waits.reason == "quota"
    assert waits.detail.startswith(
        "queue 'q' has too few GPUs left: of its quota of 1 other jobs have 1; it needs 1 GPU; "
        "it is planned to start in about 60 s on 1 a GPU; to start now on 1 a GPU would cost others"
    )
    assert waits.counts.items() >= {"least_gpus": 1, "quota": 1, "quota_left": 0, "planned_start_s": 60}.items()
    assert waits.remedy == "raise the quota of queue 'q' by 1 GPU, or wait for its jobs"
    result = formulation.solve(SolveOptions(), SolveMonitor())
    assert formulation.prices(result).keys() == {"quota[q]"}
    _, plan, objective = solved(two())
    assert objective == pytest.approx((50 + 500 + 500) / 3)
    assert len(plan.allocations) == 3


def test_quotas_hold_in_later_intervals() -> None:
    """Two jobs of three minutes, one GPU for both: the second cannot begin before the first has ended."""
    jobs = tuple(replace(item, remaining_iterations=180.0) for item in two().jobs[:2])
    parameters = HorizonParameters(interval_s=60.0, num_intervals=2, horizon_s=360.0, backlog_efficiency=None)
    snapshot = replace(two(), jobs=jobs)
    result, _ = planned(snapshot, replace(parameters, quotas={"q": 1}))
    # From 60 to 360 s there are 300 GPU seconds, of which the first takes 120: the rest is all the second may have.
    assert result.objective == pytest.approx((180 + 60 + 180) / 2)
    longer = replace(snapshot, jobs=tuple(replace(item, remaining_iterations=300.0) for item in jobs))
    result, _ = planned(longer, replace(parameters, quotas={"q": 1}))
    # 240 of 300 s are the first one's: a fifth of the second begins at 60 s, the rest behind the horizon.
    assert result.objective == pytest.approx((300 + 0.2 * 360 + 0.8 * 660) / 2)


def test_a_queue_whose_jobs_can_have_no_more_takes_no_row() -> None:
    """Of one job it is a bound of that job; of two it is none where both fit beside each other however large."""
    wide = {1: 1.0, 2: 1.8, 4: 3.0}
    jobs = (
        job("alone", 900.0, wide, queue="alone"),
        *(job(f"roomy{k}", 900.0, wide, queue="roomy", max_gpus=2) for k in range(2)),
        *(job(f"tight{k}", 900.0, wide, queue="tight", max_gpus=2) for k in range(2)),
    )
    snapshot = Snapshot(cluster=cluster(node("n", 8), node("m", 8)), jobs=jobs)
    formulation, plan, _ = solved(snapshot, replace(PARAMETERS, quotas={"alone": 2, "roomy": 4, "tight": 3}))
    quotas = formulation.instance.quotas
    assert quotas is not None
    assert [quotas.names[q] for q in quotas.rows] == ["tight"]
    had = given(plan)
    assert had.pop("alone") == 2
    assert sum(num_gpus for name, num_gpus in had.items() if name.startswith("tight")) <= 3
    assert sum(num_gpus for name, num_gpus in had.items() if name.startswith("roomy")) == 4


def test_a_queue_without_gpus_is_the_reason_also_where_the_solve_has_ended_early() -> None:
    formulation = formulate_horizon(two(), replace(PARAMETERS, quotas={"q": 1}), PhaseClock())
    result = formulation.solve(SolveOptions(solver="auto", time_limit_s=1e-9), SolveMonitor())
    assert result.incumbent is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    (waits,) = [item for item in plan.unplaced if item.reason == "quota"]
    assert waits.detail.startswith(
        "queue 'q' has too few GPUs left: of its quota of 1 other jobs have 1; it needs 1 GPU"
    )


def test_who_stays_counts_and_what_is_reserved_is_had() -> None:
    stays = two(current=on({"n": (0,)}), preemptible=False)
    _, plan, _ = solved(stays, replace(PARAMETERS, quotas={"q": 1}))
    assert given(plan) == {"first": 1, "other": 1}
    _, plan, _ = solved(stays, replace(PARAMETERS, quotas={"q": 2}))
    assert len(plan.allocations) == 3
    reserves = two(reservation=Reservation(gpu_type="a", num_gpus=1))
    _, plan, _ = solved(reserves, replace(PARAMETERS, quotas={"q": 0}))
    assert given(plan) == {"first": 1, "other": 1}
    (waits,) = plan.unplaced
    # What is reserved is its quota then, also when that job has ended.
    told = "the quota of queue 'q' is 0, other jobs have 1; it needs 1 GPU; it is planned to start in about 60 s"
    assert waits.detail.startswith(told)
    assert waits.remedy == "raise the quota of queue 'q' by 2 GPUs, or let the job have fewer GPUs"


def test_a_job_beyond_a_quota_that_was_lowered_is_stopped() -> None:
    running = tuple(replace(item, current=on({"n": (k,)})) for k, item in enumerate(two().jobs))
    _, plan, _ = solved(replace(two(), jobs=running), replace(PARAMETERS, quotas={"q": 1}))
    assert given(plan) == {"first": 1, "other": 1}
    assert [(item.job_id, item.reason, item.preempted) for item in plan.unplaced] == [("second", "quota", True)]


def test_a_running_job_beyond_its_quota_shrinks_and_is_told_so() -> None:
    large = job("large", 900.0, {1: 1.0, 2: 1.8, 4: 3.0}, queue="q", current=on({"n": (0, 1, 2, 3)}))
    snapshot = Snapshot(cluster=cluster(node("n", 4)), jobs=(large,))
    _, plan, _ = solved(snapshot, replace(PARAMETERS, quotas={"q": 2}))
    (found,) = plan.allocations
    assert found.num_gpus == 2
    assert found.why is not None
    assert found.why.detail == "cannot go on as it runs: the quota of queue 'q' is 2"
    assert found.why.counts == {"quota": 2}


def test_what_fits_no_free_gpus_is_no_matter_of_quotas() -> None:
    """Of four GPUs, which `wide` needs, one node is down; then another job has them, and a higher quota alone helps no
    more."""
    wide, other = job("wide", 900.0, {4: 3.0}, queue="q"), job("other", 900.0, {1: 1.0}, queue="q")
    down = replace(node("n", 4), state=NodeState.DRAINED)
    _, plan, _ = solved(
        Snapshot(cluster=cluster(down, node("m", 1)), jobs=(wide, other)), replace(PARAMETERS, quotas={"q": 4})
    )
    assert [(item.job_id, item.reason) for item in plan.unplaced] == [("wide", "capacity")]
    runs = replace(other, current=on({"n": (0,)}), preemptible=False)
    _, plan, _ = solved(
        Snapshot(cluster=cluster(node("n", 4)), jobs=(wide, runs)), replace(PARAMETERS, quotas={"q": 4})
    )
    assert [(item.job_id, item.reason) for item in plan.unplaced] == [("wide", "capacity")]
    waits = replace(two(), cluster=cluster(node("n", 1)))
    _, plan, _ = solved(waits, replace(PARAMETERS, quotas={"q": 1}))
    told = {item.job_id: item.remedy for item in plan.unplaced}
    assert told["second"] == "wait for its jobs; with a higher quota it would lack free GPUs, too"


def test_nodes_that_the_calendar_reserves_are_beside_the_quota() -> None:
    entry = CalendarEntry(name="e", kind=EntryKind.RESERVATION, from_s=-5.0, nodes=("m",))
    first, *others = two().jobs
    jobs = (replace(first, calendar_entry="e"), *others)
    snapshot = Snapshot(cluster=cluster(node("n", 2), node("m", 1)), jobs=jobs, calendar=(entry,))
    formulation = formulate_horizon(snapshot, replace(PARAMETERS, quotas={"q": 1}), PhaseClock())
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert given(plan) == {"first": 1, "second": 1, "other": 1}
    assert formulation.violations(plan, result.objective) == []


def test_the_objective_of_sia_has_quotas_too() -> None:
    parameters = HorizonParameters(objective=HorizonObjective.GOODPUT, num_intervals=1, quotas={"q": 1})
    formulation, plan, objective = solved(two(), parameters)
    assert len(plan.allocations) == 2
    assert [item.reason for item in plan.unplaced] == ["quota"]
    assert formulation.violations(plan, objective) == []
    without, plan, objective = solved(two(), replace(parameters, quotas={}))
    object.__setattr__(without.instance, "parameters", parameters)
    assert [issue.code for issue in without.violations(plan, objective)] == ["quota_exceeded"]


def test_the_check_finds_queues_that_have_too_much() -> None:
    formulation, plan, objective = solved(two())
    base = formulation.instance.sia

    def found(quotas: dict[str, int]) -> list[tuple[str, str]]:
        asked = replace(PARAMETERS, quotas=quotas)
        known = base.snapshot, asked, base.configurations, base.matrix, plan, formulation.outlook, objective
        return [(issue.code, issue.detail) for issue in horizon_violations(*known)]

    assert found({"q": 2, "r": 1}) == []
    told = "planned jobs of queue 'q' have 2 GPUs now; of its quota of 1 there are 1 for them"
    assert ("quota_exceeded", told) in found({"q": 1})
    assert {code for code, _ in found({"r": 0})} >= {"quota_exceeded", "quota_exceeded_later"}


def test_quotas_below_nothing_are_refused_and_others_told() -> None:
    with pytest.raises(InputError, match=r"the quota of queue 'q' is -1; must be at least 0"):
        HorizonParameters(quotas={"q": -1})

    def told(quotas: dict[str, int]) -> list[tuple[str, str]]:
        return [(issue.code, issue.pointer) for issue in policy_issues(two(), HorizonParameters(quotas=quotas))]

    assert told({}) == [("ignored_field", "/jobs/0/queue")]
    assert told({"q": 1}) == [("queue_without_quota", "/jobs/2/queue")]
    assert told({"q": 1, "r": 1}) == []
