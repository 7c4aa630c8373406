"""The check finds what is wrong with a plan and the schedules behind it; who waits is told why."""

from dataclasses import replace

import pytest

from models.allocation.horizon.check import horizon_violations
from models.allocation.horizon.formulation import HorizonFormulation, formulate_horizon
from models.allocation.horizon.outlook import Outlook, Planned
from models.allocation.horizon.parameters import HorizonParameters
from models.allocation.horizon.unplaced import with_outlook
from models.clock import PhaseClock
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.plan import Plan, ScoreTerm
from models.workload import Job, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from tests.models.placement.scenes import cluster, node, on
from topology.calendar import CalendarEntry, EntryKind

PARAMETERS = HorizonParameters(
    num_intervals=3, interval_s=60.0, horizon_s=960.0, restart_price=1.0, backlog_efficiency=None
)


def job(name: str, iterations: float, speeds: dict[int, float], **said: object) -> Job:
    entries = tuple(TableEntry(gpu_type="a", num_gpus=n, value=value) for n, value in speeds.items())
    table = ThroughputTable(entries=entries, batch_size=1)
    return replace(Job(id=name, performance=table, remaining_iterations=iterations, restart_cost_s=10.0), **said)  # type: ignore[arg-type]  # fields of jobs


def queue() -> Snapshot:
    """One GPU: a job that runs has 30 s to go, another one of 1000 s waits."""
    running = job("short", 30.0, {1: 1.0}, current=on({"n": (0,)}))
    return Snapshot(cluster=cluster(node("n", 1)), jobs=(running, job("long", 1000.0, {1: 1.0})))


def solved(snapshot: Snapshot, parameters: HorizonParameters = PARAMETERS) -> tuple[HorizonFormulation, Plan, float]:
    formulation = formulate_horizon(snapshot, parameters, PhaseClock())
    assert isinstance(formulation, HorizonFormulation)
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    return formulation, formulation.extract(result.incumbent, PhaseClock()), result.objective


def test_who_waits_is_told_when_it_starts_and_what_it_would_cost_to_start_now() -> None:
    formulation, plan, objective = solved(queue())
    assert [item.job_id for item in plan.allocations] == ["short"]
    # The mean of 30 s, and of 60 s, 10 s to start and 1000 s.
    assert objective == pytest.approx((30 + 1070) / 2)
    (waiting,) = plan.unplaced
    assert waiting.reason == "outcompeted"
    assert waiting.detail.startswith("is planned to start in about 60 s on 1 a GPU; to start now on 1 a GPU would cost")
    assert waiting.counts["planned_start_s"] == 60
    assert waiting.counts["others_lose_s"] > 0
    assert formulation.violations(plan, objective) == []


def test_who_has_waited_for_too_long_comes_first() -> None:
    short, long = queue().jobs
    old = replace(queue(), jobs=(short, replace(long, age_s=30_000.0)))
    formulation, plan, objective = solved(old)
    assert [item.job_id for item in plan.allocations] == ["long"]
    assert formulation.violations(plan, objective) == []
    both = replace(old, jobs=(replace(short, age_s=30_000.0), old.jobs[1]))
    formulation, plan, objective = solved(both)
    assert [term.term for term in plan.score].count("long_wait") == 1
    assert [issue.code for issue in formulation.warnings] == ["waits_too_long"]
    assert formulation.violations(plan, objective) == []
    hidden = replace(plan, score=tuple(term for term in plan.score if term.term != "long_wait"))
    assert {issue.code for issue in formulation.violations(hidden, objective)} == {"score_terms"}


def test_nodes_that_close_later_are_not_planned_with() -> None:
    """Two GPUs of two nodes; after a minute the second node is closed for good."""
    jobs = (job("x", 500.0, {1: 1.0}, remaining_s=500.0), job("y", 40.0, {1: 1.0}, remaining_s=50.0))
    closes = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=60.0, nodes=("m",))
    snapshot = Snapshot(cluster=cluster(node("n", 1), node("m", 1)), jobs=jobs, calendar=(closes,))
    formulation = formulate_horizon(snapshot, PARAMETERS, PhaseClock())
    result = formulation.solve(SolveOptions(), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    # Only one GPU may be had by x, which would be in the way of y on it: y ends first.
    assert all(part.node == "n" for item in plan.allocations for part in item.gpus)


def test_who_waits_is_planned_on_a_node_that_opens_again() -> None:
    """Two nodes, one of which is under maintenance for a minute; what runs on the other one is long."""
    running = job("running", 5000.0, {1: 1.0}, current=on({"n": (0,)}))
    closed = CalendarEntry(name="m", kind=EntryKind.MAINTENANCE, from_s=-60.0, until_s=60.0, nodes=("m",))
    snapshot = Snapshot(
        cluster=cluster(node("n", 1), node("m", 1)),
        jobs=(running, job("waits", 4000.0, {1: 1.0})),
        calendar=(closed,),
    )
    formulation = formulate_horizon(snapshot, PARAMETERS, PhaseClock())
    result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
    assert result.incumbent is not None
    assert result.objective is not None
    assert result.objective == pytest.approx((5000 + 60 + 10 + 4000) / 2)
    plan = formulation.extract(result.incumbent, PhaseClock())
    assert formulation.violations(plan, result.objective) == []
    assert [item.counts.get("planned_start_s") for item in plan.unplaced] == [60]


def test_who_is_not_planned_to_start_has_no_time_at_which_it_starts() -> None:
    formulation, plan, _ = solved(queue())
    never = replace(formulation.outlook.planned["long"][0], later=None, change_s=None)
    outlook = replace(formulation.outlook, planned={"long": (never,)})
    (told,) = with_outlook([replace(plan.unplaced[0], counts={})], outlook, {}, is_proven=True)
    assert (told.detail, told.counts) == ("is not planned to start within 16 minutes", {})


def _broken(outlook: Outlook, name: str, **said: object) -> Outlook:
    first, *rest = outlook.planned[name]
    return replace(outlook, planned={**outlook.planned, name: (replace(first, **said), *rest)})  # type: ignore[arg-type]


def test_everything_that_can_be_wrong_is_found() -> None:
    formulation, plan, objective = solved(queue())
    base, outlook = formulation.instance.sia, formulation.outlook

    def codes(plan: Plan = plan, outlook: Outlook = outlook, objective: float = objective) -> set[str]:
        return {
            issue.code
            for issue in horizon_violations(
                base.snapshot, PARAMETERS, base.configurations, base.matrix, plan, outlook, objective
            )
        }

    assert codes() == set()
    assert codes(objective=objective + 1.0) == {"wrong_objective"}
    assert codes(plan=replace(plan, score=plan.score[1:])) == {"score_terms"}
    wrong = ScoreTerm(term="completion_time", job_id="short", value=1.0)
    assert codes(plan=replace(plan, score=(wrong, *plan.score[1:]))) == {"wrong_score"}
    assert codes(plan=replace(plan, unplaced=())) == {"job_not_covered_once"}
    assert "shares" in codes(outlook=_broken(outlook, "long", share=0.5))
    assert "schedule_of_another_plan" in codes(outlook=_broken(outlook, "long", now=("a", 1, 1, 1.0)))
    assert "not_runnable" in codes(outlook=_broken(outlook, "long", later=("a", 2, 2, 1.0)))
    assert "change_between" in codes(outlook=_broken(outlook, "long", change_s=90.0))
    stays = Planned(share=1.0, now=("a", 1, 1, 1.0), later=("a", 1, 1, 1.0), change_s=60.0)
    assert "change_after_the_end" in codes(outlook=replace(outlook, planned={**outlook.planned, "short": (stays,)}))
    # What the outlook says of GPUs is not what the check goes by.
    two = Planned(share=1.0, now=None, later=("a", 1, 1, 1.0), change_s=60.0)
    both = replace(outlook, planned={"long": (two,), "short": (replace(two, share=0.9),)}, open_gpus={"a": [9.0] * 3})
    assert "over_capacity_later" in codes(outlook=both)
    for bounds_s in (
        [1.0, 60.0, 300.0, 960.0],
        [0.0, 50.0, 300.0, 960.0],
        [0.0, 60.0, 300.0, 900.0],
        [0.0, 60.0, 960.0],
    ):
        assert "wrong_intervals" in codes(outlook=replace(outlook, bounds_s=bounds_s))


def test_jobs_of_a_reservation_have_its_nodes_later_too() -> None:
    """One GPU that is reserved for both jobs: the short one goes first, as without a calendar."""
    entry = CalendarEntry(name="r", kind=EntryKind.RESERVATION, from_s=-5.0, nodes=("n",))
    both = (
        job("long", 2000.0, {1: 1.0}, restart_cost_s=0.0, calendar_entry="r"),
        job("short", 200.0, {1: 1.0}, restart_cost_s=5.0, calendar_entry="r"),
    )
    without = Snapshot(cluster=cluster(node("n", 1)), jobs=tuple(replace(item, calendar_entry=None) for item in both))
    objectives = []
    for snapshot in (without, replace(without, jobs=both, calendar=(entry,))):
        formulation = formulate_horizon(snapshot, HorizonParameters(), PhaseClock())
        result = formulation.solve(SolveOptions(solver="auto"), SolveMonitor())
        assert result.incumbent is not None
        assert result.objective is not None
        plan = formulation.extract(result.incumbent, PhaseClock())
        assert formulation.violations(plan, result.objective) == []
        assert [item.job_id for item in plan.allocations] == ["short"]
        objectives.append(result.objective)
    assert objectives[1] == pytest.approx(objectives[0])
