"""The whole road: validate, formulate, solve, extract, verify."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.workloads.published.sia_instances import load_instance
from benchmarks.workloads.published.sia_traces import DATA, busy_snapshot, read_workload, sia_cluster
from models.allocation.sia.formulation import SiaFormulation
from models.allocation.sia.parameters import SiaParameters
from models.performance.goodput.spec import GoodputTable, TableEntry
from models.placement.check import placement_violations
from models.plan import Plan, PlanRequest, PlanTask, Resume
from models.planning import export_task, plan, plan_task
from models.workload import Job, Reservation, Snapshot
from solver.monitor import SolveMonitor
from solver.options import SolveOptions
from solver.result import Limit, TerminationReason
from stowplan.errors import InputError, Issue, UnverifiedPlanError
from topology.cluster import Cluster, GpuType, Node


def table_job(name: str, values: Sequence[tuple[str, int, float]], reservation: Reservation | None = None) -> Job:
    entries = tuple(TableEntry(gpu_type=kind, num_gpus=n, value=value) for kind, n, value in values)
    return Job(id=name, performance=GoodputTable(entries=entries), reservation=reservation)


def running_example(reservations: Sequence[Reservation | None] = (None, None)) -> Snapshot:
    """Sia section 3.4: a node with 2 GPUs of type A, a node with 4 of type B, and Table 1."""
    configurations = (("A", 1), ("A", 2), ("B", 1), ("B", 2), ("B", 4))
    rows = ((1, 1, 2, 3, 4), (2, 4, 1, 2, 3))
    types = tuple(
        GpuType(
            name=name,
            memory_bytes=2**34,
            peak_flops_per_s=1e14,
            intra_node_bandwidth_bytes_per_s=1e11,
            inter_node_bandwidth_bytes_per_s=1e10,
        )
        for name in "AB"
    )
    nodes = (Node(id="a", gpu_type="A", num_gpus=2), Node(id="b", gpu_type="B", num_gpus=4))
    jobs = tuple(
        table_job(f"J{k + 1}", [(*c, value) for c, value in zip(configurations, row, strict=True)], reservations[k])
        for k, row in enumerate(rows)
    )
    return Snapshot(cluster=Cluster(gpu_types=types, nodes=nodes), jobs=jobs)


def example_request(**options: object) -> PlanRequest:
    return PlanRequest(
        snapshot=running_example(),
        parameters=SiaParameters(fairness_power=1.0),
        options=replace(SolveOptions(relative_gap=0.0), **options),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("solver", ["highs", "scip", "decomposition"])
def test_the_running_example_gives_the_papers_answer(solver: str) -> None:
    outcome = plan(example_request(solver=solver))
    assert outcome.termination is TerminationReason.OPTIMAL
    assert outcome.plan is not None
    assert [(a.job_id, a.gpu_type, a.num_gpus) for a in outcome.plan.allocations] == [("J1", "B", 4), ("J2", "A", 2)]
    assert outcome.objective == pytest.approx(8.0)
    assert outcome.bound == pytest.approx(8.0)
    assert outcome.solver == solver
    assert list(outcome.times.wall_s) == ["validate", "performance", "build", "solve", "place", "verify"]


def test_forced_demand_above_capacity_names_what_conflicts() -> None:
    wish = Reservation(gpu_type="B", num_gpus=4)
    request = replace(example_request(), snapshot=running_example((wish, wish)))
    outcome = plan(request)
    assert outcome.termination is TerminationReason.INFEASIBLE
    assert outcome.plan is None
    assert set(outcome.conflicts) == {"reserved[J1]", "reserved[J2]", "capacity[B]"}


def test_a_killed_solve_is_finished_from_its_last_incumbent() -> None:
    request = example_request()
    # Ten pairs, ordered by job and configuration; only J2 on (1,2,A) has been found.
    point = np.zeros(10)
    point[6] = 1.0
    resume = Resume(incumbent=point, bound=9.0, elapsed_s=1.5)
    outcome = plan_task(PlanTask(request=request, resume=resume), SolveMonitor())
    assert (outcome.termination, outcome.limit) == (TerminationReason.FEASIBLE, Limit.DEADLINE)
    # J1 waits: its penalty of 1.1 is in the objective.
    assert outcome.objective == pytest.approx(4.0 - 1.1)
    assert outcome.bound == 9.0
    assert outcome.plan is not None
    assert [a.job_id for a in outcome.plan.allocations] == ["J2"]
    assert [u.job_id for u in outcome.plan.unplaced] == ["J1"]


def test_an_illegal_incumbent_is_no_answer() -> None:
    resume = Resume(incumbent=np.ones(10), bound=9.0, elapsed_s=1.5)
    outcome = plan_task(PlanTask(request=example_request(), resume=resume), SolveMonitor())
    assert (outcome.termination, outcome.plan) == (TerminationReason.NO_SOLUTION_FOUND, None)


def test_a_plan_that_fails_the_check_is_withheld(monkeypatch: pytest.MonkeyPatch) -> None:
    fault = Issue(code="made_up", pointer="", detail="made up")

    def faulty(*_: object) -> list[Issue]:
        return [fault]

    monkeypatch.setattr(SiaFormulation, "violations", faulty)
    with pytest.raises(UnverifiedPlanError) as caught:
        plan(example_request())
    assert caught.value.issues == (fault,)


def test_what_does_not_fit_the_policy_is_refused() -> None:
    snapshot = running_example()
    jobs = (snapshot.jobs[0], replace(snapshot.jobs[1], performance=None))
    with pytest.raises(InputError) as caught:
        plan(replace(example_request(), snapshot=replace(snapshot, jobs=jobs)))
    assert [(issue.code, issue.pointer) for issue in caught.value.issues] == [
        ("missing_performance", "/jobs/1/performance")
    ]


def test_no_jobs_give_an_empty_plan() -> None:
    outcome = plan(replace(example_request(), snapshot=replace(running_example(), jobs=())))
    assert outcome.plan == Plan(allocations=(), unplaced=(), score=())
    assert outcome.termination is TerminationReason.OPTIMAL


def test_the_model_can_be_exported() -> None:
    text = export_task(example_request(), SolveMonitor())
    assert "ROWS" in text
    assert "capacity" in text


def test_the_same_request_gives_the_same_plan() -> None:
    first, second = plan(example_request(seed=7)), plan(example_request(seed=7))
    assert first.plan == second.plan


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published measurements of Sia are not at {DATA}")
@pytest.mark.parametrize("solver", ["highs", "scip", "decomposition"])
def test_a_busy_moment_goes_the_whole_way(solver: str) -> None:
    """Observations from the published profiles: fit, goodput, integer program, placement, check."""
    snapshot = busy_snapshot(read_workload("helios/workload-1"), 11_101.0, sia_cluster())
    request = PlanRequest(
        snapshot=snapshot, parameters=SiaParameters(), options=SolveOptions(solver=solver, relative_gap=0.0)
    )
    outcome = plan(request)
    assert outcome.termination is TerminationReason.OPTIMAL
    assert outcome.plan is not None
    assert placement_violations(snapshot, outcome.plan.allocations) == []
    placed = {allocation.job_id: allocation for allocation in outcome.plan.allocations}
    assert placed.keys() | {job.job_id for job in outcome.plan.unplaced} == {job.id for job in snapshot.jobs}
    # 22 jobs fit on 64 GPUs, and the queue penalty is above the worst utility: nobody waits.
    assert len(placed) == len(snapshot.jobs) == 22
    assert all(allocation.batch_size for allocation in placed.values())


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published measurements of Sia are not at {DATA}")
def test_prices_of_a_plan_start_the_next() -> None:
    recorded = load_instance("sia2048_r180")
    # Distinct costs: without clones the problem is large enough to be priced.
    jobs = tuple(replace(job, weight=1 + k / 7919) for k, job in enumerate(recorded.snapshot.jobs))
    request = PlanRequest(
        snapshot=replace(recorded.snapshot, jobs=jobs),
        parameters=recorded.parameters,
        options=SolveOptions(solver="decomposition", relative_gap=1e-4),
    )
    first = plan(request)
    assert set(first.prices) <= {"capacity[aws]", "capacity[dgx-ext]", "capacity[rtx]"}
    assert first.prices
    assert all(price > 0 for price in first.prices.values())
    second = plan(replace(request, parameters=replace(recorded.parameters, prices=first.prices)))
    assert second.objective == pytest.approx(first.objective, rel=1e-4)
    assert second.termination is TerminationReason.OPTIMAL
