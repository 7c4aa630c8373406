"""What is missing or wrong is said with its place."""

from typing import Any

import pytest

from models.allocation.elasticflow.parameters import ElasticFlowParameters
from models.allocation.elasticflow.validation import policy_issues
from models.performance.goodput.spec import GoodputTable, TableEntry
from models.workload import Adaptivity, Job, Reservation, Snapshot
from tests.models.allocation.elasticflow.scenes import LINEAR
from tests.models.allocation.gavel.scenes import table
from tests.models.placement.scenes import cluster, node, on

_TABLE = table(LINEAR)


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"performance": _TABLE}, []),
        ({"performance": _TABLE, "deadline_s": 5.0, "remaining_iterations": 1.0}, []),
        ({}, ["missing_performance /jobs/0/performance"]),
        (
            {"performance": GoodputTable(entries=(TableEntry(gpu_type="a", num_gpus=1, value=1.0),))},
            ["throughput_table_required /jobs/0/performance"],
        ),
        (
            {"performance": table(LINEAR, None), "deadline_s": 5.0},
            [
                "missing_remaining_iterations /jobs/0/remaining_iterations",
                "missing_batch_size /jobs/0/performance/batch_size",
            ],
        ),
        (
            {"performance": _TABLE, "reservation": Reservation(gpu_type="a", num_gpus=1)},
            ["reservation_not_supported /jobs/0/reservation"],
        ),
        (
            {"performance": _TABLE, "adaptivity": Adaptivity.RIGID, "min_gpus": 2, "max_gpus": 4},
            ["rigid_bounds /jobs/0/max_gpus"],
        ),
        ({"current": on({"n0": (0,)}), "preemptible": False}, []),
    ],
)
def test_issues(fields: dict[str, Any], found: list[str]) -> None:
    snapshot = Snapshot(cluster=cluster(node("n0")), jobs=(Job(id="j", **fields),))
    issues = policy_issues(snapshot, ElasticFlowParameters())
    assert [f"{issue.code} {issue.pointer}" for issue in issues] == found


def test_weights_that_are_too_far_apart() -> None:
    due: dict[str, Any] = {"performance": _TABLE, "deadline_s": 5.0, "remaining_iterations": 1.0}
    jobs = (Job(id="x", **due), Job(id="y", weight=2000.0, **due))
    (issue,) = policy_issues(Snapshot(cluster=cluster(node("n0")), jobs=jobs), ElasticFlowParameters())
    assert (issue.code, issue.pointer) == ("weights_too_far_apart", "/jobs/1/weight")
