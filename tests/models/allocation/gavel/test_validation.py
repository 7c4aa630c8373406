"""What is refused, and with which words."""

from typing import Any

import pytest

from models.allocation.gavel.parameters import GavelObjective, GavelParameters
from models.allocation.gavel.validation import policy_issues
from models.performance.goodput.spec import GoodputTable, TableEntry
from models.workload import Job, Reservation, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.gavel.scenes import table
from tests.models.placement.scenes import cluster, node, on

GOODPUT = GoodputTable(entries=(TableEntry(gpu_type="a", num_gpus=1, value=1.0),))
SPEEDS = {("a", 1): 1.0}


def codes(objective: GavelObjective, **fields: Any) -> list[tuple[str, str]]:
    snapshot = Snapshot(cluster=cluster(node("n0")), jobs=(Job(id="j", **fields),))
    return [(issue.code, issue.pointer) for issue in policy_issues(snapshot, GavelParameters(objective=objective))]


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, []),
        ({"performance": table(SPEEDS, batch_size=None)}, []),
        ({"performance": GOODPUT}, [("throughput_table_required", "/jobs/0/performance")]),
        ({"performance": table({("c", 1): 1.0})}, [("unknown_gpu_type", "/jobs/0/performance/entries/0/gpu_type")]),
        ({"gpu_types": ()}, [("no_gpu_type", "/jobs/0/gpu_types")]),
        (
            {"reservation": Reservation(gpu_type="a", num_gpus=1)},
            [("reservation_not_supported", "/jobs/0/reservation")],
        ),
    ],
)
def test_under_max_min_fairness(fields: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert codes(GavelObjective.MAX_MIN_FAIRNESS, **fields) == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [("missing_remaining_s", "/jobs/0/remaining_s")]),
        ({"remaining_s": 0.0}, []),
        (
            {"performance": table(SPEEDS, batch_size=None)},
            [
                ("missing_remaining_iterations", "/jobs/0/remaining_iterations"),
                ("missing_batch_size", "/jobs/0/performance/batch_size"),
            ],
        ),
        ({"performance": table(SPEEDS), "remaining_iterations": 9.0}, []),
        # It keeps its GPUs, and has no part in shares.
        ({"current": on({"n0": (0,)}), "preemptible": False}, []),
    ],
)
def test_the_makespan_needs_to_know_what_is_left(fields: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert codes(GavelObjective.MAKESPAN, **fields) == expected


def test_times_received_are_of_known_types_and_not_negative() -> None:
    with pytest.raises(InputError) as caught:
        Snapshot(cluster=cluster(node("n0")), jobs=(Job(id="j", attained_s={"a": -1.0, "c": 2.0}),))
    found = {(issue.code, issue.pointer) for issue in caught.value.issues}
    assert found == {("negative", "/jobs/0/attained_s/a"), ("unknown_gpu_type", "/jobs/0/attained_s/c")}


def test_a_round_takes_time() -> None:
    with pytest.raises(InputError, match="round_s is 0"):
        GavelParameters(round_s=0)
