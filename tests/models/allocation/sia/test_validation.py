import subprocess
import sys
from dataclasses import replace

import pytest

from models.allocation.sia.parameters import SiaObjective, SiaParameters
from models.allocation.sia.validation import policy_issues
from models.performance.goodput.spec import TableEntry, ThroughputTable
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.errors import InputError, Issue, Severity
from tests.models.allocation.sia.instances import table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

ONE_PER_GPU = table({("a", m): float(m) for m in (1, 2, 4, 8, 16)})


def issues(job: Job, parameters: SiaParameters | None = None) -> list[Issue]:
    machines = cluster(node("n0"), node("n1", state=NodeState.DRAINED), node("n2", 4, "b"))
    return policy_issues(Snapshot(cluster=machines, jobs=(job,)), parameters or SiaParameters())


def reserving(kind: str, count: int, **fields: object) -> Job:
    return Job(
        id="j",
        **{"performance": ONE_PER_GPU} | fields,  # type: ignore[arg-type]  # the fields of a test case
        reservation=Reservation(gpu_type=kind, num_gpus=count),
    )


@pytest.mark.parametrize(
    ("job", "code", "pointer"),
    [
        (Job(id="j"), "missing_performance", "/jobs/0/performance"),
        (Job(id="j", preemptible=False), "missing_performance", "/jobs/0/performance"),
        (
            Job(id="j", adaptivity=Adaptivity.RIGID, min_gpus=2, max_gpus=4, performance=ONE_PER_GPU),
            "rigid_bounds",
            "/jobs/0/max_gpus",
        ),
        (Job(id="j", gpu_types=(), performance=ONE_PER_GPU), "no_gpu_type", "/jobs/0/gpu_types"),
        (reserving("a", 3), "reservation_is_no_configuration", "/jobs/0/reservation/num_gpus"),
        (reserving("a", 2, min_gpus=4), "reservation_outside_bounds", "/jobs/0/reservation/num_gpus"),
        (reserving("a", 8, max_gpus=4), "reservation_outside_bounds", "/jobs/0/reservation/num_gpus"),
        (
            reserving("a", 4, min_gpus=2, adaptivity=Adaptivity.RIGID),
            "reservation_outside_bounds",
            "/jobs/0/reservation/num_gpus",
        ),
        (reserving("a", 4, gpu_types=("b",)), "reservation_outside_bounds", "/jobs/0/reservation/gpu_type"),
        (reserving("b", 4), "reservation_cannot_run", "/jobs/0/reservation"),
        (
            reserving("a", 4, preemptible=False, current=on({"n0": (0, 1)})),
            "reservation_of_pinned_job",
            "/jobs/0/reservation",
        ),
    ],
)
def test_faults_are_found_where_they_are(job: Job, code: str, pointer: str) -> None:
    (issue,) = issues(job)
    assert (issue.code, issue.pointer, issue.severity) == (code, pointer, Severity.ERROR)


def test_a_reservation_that_is_no_configuration_names_the_nearest_counts() -> None:
    assert issues(reserving("a", 12))[0].detail.endswith("the nearest counts are 8 and 16")
    assert issues(reserving("b", 6))[0].detail.endswith("the nearest counts are 4")


def test_faults_of_a_performance_are_passed_on() -> None:
    (issue,) = issues(Job(id="j", performance=table({("x", 1): 1.0})))
    assert issue.pointer.startswith("/jobs/0/performance/")


def test_given_costs_need_goodput_tables() -> None:
    performance = ThroughputTable(entries=(TableEntry(gpu_type="a", num_gpus=1, value=1.0),))
    parameters = SiaParameters(objective=SiaObjective.GIVEN_COSTS)
    assert issues(Job(id="j", performance=performance)) == []
    (issue,) = issues(Job(id="j", performance=performance), parameters)
    assert (issue.code, issue.pointer) == ("goodput_table_required", "/jobs/0/performance")


def test_pinned_jobs_need_no_performance() -> None:
    assert issues(Job(id="j", preemptible=False, current=on({"n0": (0, 1, 2)}))) == []


def test_jobs_on_drained_nodes_are_warned_about() -> None:
    for preemptible, what in ((True, "has to leave"), (False, "stays")):
        job = Job(id="j", performance=ONE_PER_GPU, current=on({"n1": (0,)}), preemptible=preemptible)
        (issue,) = issues(job)
        assert (issue.code, issue.severity) == ("runs_on_drained_node", Severity.WARNING)
        assert what in issue.detail


def test_more_forced_demand_than_capacity_is_no_fault_of_the_input() -> None:
    jobs = tuple(replace(reserving("a", 8), id=f"j{k}") for k in range(3))
    assert policy_issues(Snapshot(cluster=cluster(node("n0")), jobs=jobs), SiaParameters()) == []


def test_parameters_refuse_what_has_no_meaning() -> None:
    for power in (0.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="fairness_power"):
            SiaParameters(fairness_power=power)
    with pytest.raises(InputError, match="queue_penalty"):
        SiaParameters(queue_penalty=-1.0)


def test_validation_imports_no_solver_and_no_modelling_layer() -> None:
    """It answers in the serving process, which must start fast."""
    code = (
        "import sys, models.allocation.sia.validation;"
        "print([name for name in ('cvxpy', 'pyomo', 'highspy', 'pyscipopt') if name in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
