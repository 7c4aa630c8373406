"""What is refused, and what is warned about."""

from dataclasses import replace
from typing import Any

import pytest

from models.allocation.gang.parameters import Backfill, GangParameters, QueueOrder
from models.validation import request_issues
from models.workload import Job, Reservation, Snapshot
from stowplan.errors import InputError, Severity
from tests.models.allocation.gang.scenes import cluster, running

PLAIN = Job(id="j", min_gpus=2, remaining_s=9.0)


def said(*jobs: Job, **parameters: Any) -> list[tuple[str, str, Severity]]:
    issues = request_issues(Snapshot(cluster=cluster(8), jobs=jobs), GangParameters(**parameters))
    return [(issue.code, issue.pointer, issue.severity) for issue in issues]


def test_a_size_is_enough() -> None:
    assert said(PLAIN, running("r", 1.0, a0=range(4))) == []


@pytest.mark.parametrize(
    ("job", "code", "pointer"),
    [
        (replace(PLAIN, gpu_types=()), "no_gpu_type", "/jobs/0/gpu_types"),
        (
            replace(PLAIN, reservation=Reservation(gpu_type="a", num_gpus=2)),
            "reservation_not_supported",
            "/jobs/0/reservation",
        ),
    ],
)
def test_what_it_cannot_plan_is_refused(job: Job, code: str, pointer: str) -> None:
    assert said(job) == [(code, pointer, Severity.ERROR)]


def test_what_may_be_a_slip_is_a_warning() -> None:
    warning = Severity.WARNING
    assert said(replace(PLAIN, max_gpus=4)) == [("ignored_field", "/jobs/0/max_gpus", warning)]
    assert said(running("r", 1.0, size=2, a0=range(4))) == [("size_mismatch", "/jobs/0/min_gpus", warning)]
    silent = replace(PLAIN, id="k", remaining_s=None)
    assert said(PLAIN, silent) == [("unknown_remaining_s", "/jobs/1/remaining_s", warning)]
    assert said(PLAIN, silent, default_remaining_s=60.0) == said(silent, backfill=Backfill.NONE) == []
    elsewhere = replace(PLAIN, id="k", queue="q")
    assert said(elsewhere) == []
    assert said(PLAIN, elsewhere, quotas={"p": 1}) == [("queue_without_quota", "/jobs/1/queue", warning)]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"promotion_after_s": 0.0}, "promotion_after_s is 0.0"),
        ({"default_remaining_s": float("inf")}, "default_remaining_s is inf"),
        ({"nearness_s": -1.0}, "nearness_s is -1.0; must be finite and at least 0"),
        ({"nearness_s": float("inf")}, "nearness_s is inf"),
        ({"priority_ratio": 0.5}, "priority_ratio is 0.5"),
        ({"quotas": {"p": -1}}, "the quota of queue 'p' is -1"),
        (
            {"preemption": True},
            "preemption goes by who comes first, and under fifo who runs has; give order: priority, ",
        ),
        ({"promotion_after_s": 60.0}, "promotion_after_s goes by priorities, which the order fifo does not use"),
        ({"service_thresholds": ()}, r"service_thresholds are \[\]; must be numbers above 0 in ascending order"),
        ({"service_thresholds": (0.0, 1.0)}, "service_thresholds are"),
        ({"service_thresholds": (2.0, 2.0)}, "service_thresholds are"),
        ({"service_thresholds": (1.0, float("inf"))}, "service_thresholds are"),
        ({"service_thresholds": (float("nan"),)}, "service_thresholds are"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        GangParameters(**parameters)
    if "goes by" in message:
        assert GangParameters(order=QueueOrder.PRIORITY, **parameters)
