"""Each rule of the placement check, broken one at a time."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from models.placement.check import placement_violations
from models.plan import Change, JobAllocation
from models.workload import Adaptivity, Job, Reservation, Snapshot
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

EIGHT = tuple(range(8))


def snapshot() -> Snapshot:
    """n0 [#.......] one GPU in use; n1, n2 free; n3 drained with job `stay`; n4 down; b0 of another type."""
    machines = cluster(
        node("n0", in_use=(0,)),
        node("n1"),
        node("n2"),
        node("n3", state=NodeState.DRAINED),
        node("n4", state=NodeState.DOWN),
        node("b/0", 4, "b"),
    )
    jobs = (
        Job(id="free"),
        Job(id="other"),
        Job(id="rigid", adaptivity=Adaptivity.RIGID, min_gpus=4),
        Job(id="bound", min_gpus=2, max_gpus=4, gpu_types=("a",)),
        Job(id="stay", preemptible=False, min_gpus=2, current=on({"n3": (0, 1, 2)})),
        Job(id="reserved", reservation=Reservation(gpu_type="a", num_gpus=2)),
    )
    return Snapshot(cluster=machines, jobs=jobs)


def allocate(job: str, places: Mapping[str, tuple[int, ...]], kind: str = "a") -> JobAllocation:
    count = sum(len(gpus) for gpus in places.values())
    return JobAllocation(job_id=job, gpu_type=kind, num_gpus=count, gpus=on(places), change=Change.STARTED)


STAY = allocate("stay", {"n3": (0, 1, 2)})
RESERVED = allocate("reserved", {"n0": (6, 7)})


def codes(*allocations: JobAllocation) -> list[tuple[str, str]]:
    """Violations besides the two allocations that are always legal."""
    return [(issue.code, issue.pointer) for issue in placement_violations(snapshot(), [*allocations, STAY, RESERVED])]


def test_a_legal_placement_has_no_violations() -> None:
    legal = [
        allocate("free", {"n1": EIGHT, "n2": EIGHT}),
        allocate("rigid", {"n0": (1, 2, 3, 4)}),
        allocate("other", {"b/0": (0, 3)}, "b"),
    ]
    assert codes(*legal) == []


@pytest.mark.parametrize(
    ("allocation", "expected"),
    [
        (allocate("nobody", {"n1": (0,)}), [("unknown_job", "/allocations/0/job_id")]),
        (allocate("free", {"n9": (0,)}), [("unknown_node", "/allocations/0/gpus/n9")]),
        (allocate("free", {"n1": (8,)}), [("unknown_gpu", "/allocations/0/gpus/n1")]),
        (allocate("free", {"n0": (0,)}), [("gpu_taken_twice", "/allocations/0/gpus/n0")]),
        (allocate("free", {"n1": (1, 1)}), [("gpu_taken_twice", "/allocations/0/gpus/n1")]),
        (
            allocate("free", {"n3": (0,)}),
            [
                ("gpu_taken_twice", "/allocations/0/gpus/n3"),
                ("gpu_taken_twice", "/allocations/1/gpus/n3"),
                ("node_unavailable", "/allocations/0/gpus/n3"),
            ],
        ),
        (allocate("free", {"n3": (7,)}), [("node_unavailable", "/allocations/0/gpus/n3")]),
        (allocate("free", {"n4": (7,)}), [("node_unavailable", "/allocations/0/gpus/n4")]),
        (allocate("free", {"b/0": (1,)}), [("gpu_type_mismatch", "/allocations/0/gpus/b~10")]),
        (
            allocate("free", {"n1": EIGHT, "b/0": (0, 1, 2, 3)}),
            [("gpu_type_mismatch", "/allocations/0/gpus/b~10")],
        ),
        (
            replace(allocate("free", {"n1": (0,)}), num_gpus=2),
            [("gpu_count_mismatch", "/allocations/0/num_gpus")],
        ),
        (
            replace(allocate("free", {"n1": (0, 1)}), gpus=on({"n1": (0,)}) + on({"n1": (1,)})),
            [("bad_gpu_list", "/allocations/0/gpus")],
        ),
        (allocate("free", {"n1": (0,), "n2": ()}), [("bad_gpu_list", "/allocations/0/gpus/n2")]),
        (allocate("free", {"n1": (0,), "n2": (0,)}), [("partial_node_split", "/allocations/0/gpus")]),
        (allocate("free", {"n1": EIGHT, "n2": (0, 1)}), [("not_whole_nodes", "/allocations/0/gpus/n2")]),
        (allocate("rigid", {"n1": (0, 1)}), [("rigid_count", "/allocations/0/num_gpus")]),
        (allocate("bound", {"n1": (0,)}), [("below_min_gpus", "/allocations/0/num_gpus")]),
        (allocate("bound", {"n1": EIGHT}), [("above_max_gpus", "/allocations/0/num_gpus")]),
        (allocate("bound", {"b/0": (0, 1)}, "b"), [("gpu_type_not_allowed", "/allocations/0/gpu_type")]),
    ],
)
def test_each_broken_rule_is_named(allocation: JobAllocation, expected: list[tuple[str, str]]) -> None:
    assert sorted(codes(allocation)) == sorted(expected)


def test_a_gpu_for_two_jobs_and_a_job_twice() -> None:
    assert codes(allocate("free", {"n1": (0, 1)}), allocate("other", {"n1": (1, 2)})) == [
        ("gpu_taken_twice", "/allocations/1/gpus/n1")
    ]
    assert codes(allocate("free", {"n1": (0,)}), allocate("free", {"n2": (0,)})) == [
        ("job_allocated_twice", "/allocations/0/job_id"),
        ("job_allocated_twice", "/allocations/1/job_id"),
    ]


def test_pinned_jobs_and_reservations_must_be_there() -> None:
    issues = placement_violations(snapshot(), [])
    assert [(issue.code, issue.pointer) for issue in issues] == [
        ("pinned_job_missing", "/allocations"),
        ("reservation_not_met", "/allocations"),
    ]
    moved = [allocate("stay", {"n1": (0, 1, 2)}), allocate("reserved", {"n0": (6,)})]
    assert [issue.code for issue in placement_violations(snapshot(), moved)] == [
        "pinned_job_moved",
        "reservation_not_met",
    ]


def test_every_violation_is_reported_at_once() -> None:
    broken = replace(allocate("bound", {"n1": (0,), "n4": (9,)}), gpu_type="b")
    assert {issue.code for issue in placement_violations(snapshot(), [broken])} == {
        "pinned_job_missing",
        "reservation_not_met",
        "gpu_type_mismatch",
        "unknown_gpu",
        "node_unavailable",
        "partial_node_split",
        "gpu_type_not_allowed",
    }
