from dataclasses import replace

import pytest

from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.allocation.arena.validation import policy_issues
from models.performance.goodput.spec import GoodputTable, TableEntry, ThroughputTable
from models.workload import Adaptivity, Job, Reservation, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.arena.scenes import ILP, table
from tests.models.placement.scenes import cluster, node, on

LINEAR = table({("a", n): float(n) for n in (1, 2, 4, 8)})
GOODPUT = GoodputTable(entries=(TableEntry(gpu_type="a", num_gpus=1, value=1.0),))
FAIR = replace(ILP, objective=ArenaObjective.FINISH_TIME_FAIRNESS)
DEADLINES = replace(ILP, objective=ArenaObjective.DEADLINES)


def found(job: Job, parameters: ArenaParameters = ILP) -> list[tuple[str, str]]:
    snapshot = Snapshot(cluster=cluster(node("n0"), node("n1"), node("n2")), jobs=(job,))
    return [(issue.code, issue.pointer) for issue in policy_issues(snapshot, parameters)]


@pytest.mark.parametrize(
    ("job", "code", "pointer"),
    [
        (Job(id="j"), "missing_performance", "/jobs/0/performance"),
        (Job(id="j", performance=GOODPUT), "throughput_table_required", "/jobs/0/performance"),
        (Job(id="j", performance=ThroughputTable(entries=())), "empty", "/jobs/0/performance/entries"),
        (Job(id="j", performance=LINEAR, priority=4), "priority_out_of_range", "/jobs/0/priority"),
        (Job(id="j", performance=LINEAR, gpu_types=()), "no_gpu_type", "/jobs/0/gpu_types"),
        (
            Job(id="j", performance=LINEAR, adaptivity=Adaptivity.RIGID, min_gpus=2, max_gpus=4),
            "rigid_bounds",
            "/jobs/0/max_gpus",
        ),
        (
            Job(id="j", performance=LINEAR, reservation=Reservation(gpu_type="a", num_gpus=24)),
            "reservation_is_no_configuration",
            "/jobs/0/reservation/num_gpus",
        ),
        (
            Job(id="j", performance=LINEAR, max_gpus=2, reservation=Reservation(gpu_type="a", num_gpus=4)),
            "reservation_outside_bounds",
            "/jobs/0/reservation",
        ),
    ],
)
def test_faults_are_told_with_their_place(job: Job, code: str, pointer: str) -> None:
    assert found(job) == [(code, pointer)]


def test_objectives_ask_for_what_they_need() -> None:
    job = Job(id="j", performance=table({("a", 1): 1.0}, batch_size=None))
    missing = [
        ("missing_remaining_iterations", "/jobs/0/remaining_iterations"),
        ("missing_batch_size", "/jobs/0/performance/batch_size"),
    ]
    assert found(job) == []
    assert found(job, DEADLINES) == []
    assert found(job, FAIR) == missing
    assert found(replace(job, deadline_s=5.0), DEADLINES) == missing


def test_a_deadline_in_the_past_is_refused_before_any_policy() -> None:
    with pytest.raises(InputError, match="deadline_s: is -1"):
        found(Job(id="j", performance=LINEAR, deadline_s=-1.0))


def test_a_pinned_job_needs_nothing() -> None:
    assert found(Job(id="j", preemptible=False, current=on({"n0": (0,)})), FAIR) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"num_queues": 0},
        {"search_depth": -1},
        {"max_scale_ups": -1},
        {"promotion_after_s": 0.0},
        {"horizon_s": float("inf")},
        {"mean_weight": 0.0},
        {"priority_ratio": 0.5},
        {"counts": ()},
        {"counts": (0, 2)},
    ],
)
def test_parameters_out_of_range_are_refused(fields: dict[str, object]) -> None:
    (name,) = fields
    with pytest.raises(InputError, match=name):
        ArenaParameters(**fields)  # type: ignore[arg-type]  # fields of a test case


def test_deadlines_whose_weights_are_too_far_apart_are_refused() -> None:
    """Weights 1 and 2,001 x 1/2: of 1,000.5 times as much no plan could tell the throughputs."""
    heavy, light = (
        Job(id=name, performance=LINEAR, remaining_iterations=1, deadline_s=1e6, weight=weight, priority=priority)
        for name, weight, priority in (("heavy", 2001.0, 2), ("light", 1.0, 1))
    )
    for jobs, parameters, expected in (
        ((light, heavy), DEADLINES, [("weights_too_far_apart", "/jobs/1/weight")]),
        ((light, replace(heavy, weight=1999.0)), DEADLINES, []),
        ((light, replace(heavy, deadline_s=None)), DEADLINES, []),
        ((light, heavy), ILP, []),
    ):
        snapshot = Snapshot(cluster=cluster(node("n0")), jobs=jobs)
        assert [(issue.code, issue.pointer) for issue in policy_issues(snapshot, parameters)] == expected
