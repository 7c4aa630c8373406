"""Who makes way for whom."""

from dataclasses import replace
from typing import Any

import pytest

from models.allocation.gang.parameters import QueueOrder
from models.workload import Job
from tests.models.allocation.gang.scenes import cluster, joined, nodes, plan_of, reasons, running, started
from topology.cluster import NodeState

BOLD = {"order": QueueOrder.PRIORITY, "preemption": True}


def urgent(size: int) -> Job:
    return Job(id="urgent", min_gpus=size, priority=1)


def low(name: str, priority: int = 3, age_s: float = 0.0, **gpus: Any) -> Job:
    return running(name, 60.0, also={"priority": priority, "age_s": age_s}, **gpus)


def test_nobody_makes_way_unless_asked_to() -> None:
    jobs = (low("r", a0=range(8)), urgent(8))
    assert reasons(plan_of(cluster(8), *jobs, order=QueueOrder.PRIORITY)) == {"urgent": "next"}
    plan = plan_of(cluster(8), *jobs, **BOLD)
    assert (started(plan), reasons(plan)) == ({"urgent": ["a0"]}, {"r": "next"})
    assert plan.unplaced[0].preempted


@pytest.mark.parametrize("stays", [low("r", 1, a0=range(8)), replace(low("r", a0=range(8)), preemptible=False)])
def test_only_preemptible_jobs_of_lower_priority_make_way(stays: Job) -> None:
    assert started(plan_of(cluster(8), stays, urgent(8), **BOLD)) == {}


def test_the_least_urgent_and_among_them_the_youngest_makes_way() -> None:
    """Four GPUs of a node with jobs of four, priority 2, and of two each, priority 3: of the latter two make way."""
    jobs = (
        low("two", 2, a0=range(4)),
        low("old", 3, 9.0, a0=range(4, 6)),
        low("young", 3, 1.0, a0=range(6, 8)),
    )
    plan = plan_of(cluster(8), *jobs, Job(id="urgent", min_gpus=2, priority=1), **BOLD)
    assert (started(plan), reasons(plan)) == ({"urgent": ["a0"]}, {"young": "next"})
    plan = plan_of(cluster(8), *jobs, urgent(4), **BOLD)
    assert set(reasons(plan)) == {"old", "young"}


def test_who_made_way_may_start_again_in_place_of_a_later_one() -> None:
    """`urgent` takes the node of type a from `mid`, which takes that of type b from `late`."""
    where = joined(nodes(8), nodes(8, gpu_type="b"))
    only_a = replace(urgent(8), gpu_types=("a",))
    plan = plan_of(where, low("mid", 2, a0=range(8)), low("late", 3, b0=range(8)), only_a, **BOLD)
    assert {item.job_id: item.gpus[0].node for item in plan.allocations} == {"urgent": "a0", "mid": "b0"}
    assert reasons(plan) == {"late": "next"}


def test_whoever_turns_out_not_to_be_needed_stays() -> None:
    """The youngest, on a1, makes way first; two GPUs there do not help a job of four, those of b and c on a0 do."""
    jobs = (
        low("young", 3, 1.0, a1=range(2)),
        replace(low("fixed", 3, 1.0, a1=range(2, 8)), preemptible=False),
        low("b", 3, 2.0, a0=range(2)),
        low("c", 3, 3.0, a0=range(2, 4)),
        replace(low("d", 3, 4.0, a0=range(4, 8)), preemptible=False),
    )
    plan = plan_of(cluster(8, 8), *jobs, urgent(4), **BOLD)
    assert started(plan) == {"urgent": ["a0"]}
    assert set(reasons(plan)) == {"b", "c"}


def test_whole_nodes_are_cleared_where_the_fewest_gpus_are_busy() -> None:
    jobs = (low("much", a0=range(8)), low("little", a1=range(3)), low("some", a2=range(5)))
    plan = plan_of(cluster(8, 8, 8), *jobs, urgent(8), **BOLD)
    # The job that makes way finds room elsewhere, and goes on there.
    assert started(plan) == {"urgent": ["a1"], "little": ["a2"]}
    assert {item.job_id: item.change.value for item in plan.allocations}["little"] == "moved"


def test_a_job_on_several_nodes_makes_way_on_all() -> None:
    jobs = (low("wide", a0=range(8), a1=range(8)), urgent(8), Job(id="later", min_gpus=8, priority=2))
    plan = plan_of(cluster(8, 8), *jobs, **BOLD)
    assert set(started(plan)) == {"urgent", "later"}
    assert reasons(plan) == {"wide": "next"}


def test_no_room_is_made_where_it_is_not_enough() -> None:
    jobs = (low("r", a0=range(8)), replace(low("fixed", a1=range(1)), preemptible=False), urgent(16))
    plan = plan_of(cluster(8, 8), *jobs, **BOLD)
    assert (started(plan), reasons(plan)) == ({}, {"urgent": "next"})


def test_a_drained_node_gives_no_room() -> None:
    worn = [replace(node, state=NodeState.DRAINED) for node in nodes(8)]
    jobs = (low("r", a0=range(8)), urgent(8))
    plan = plan_of(joined(worn, nodes(8, gpu_type="b")), *jobs, **BOLD)
    assert started(plan) == {"urgent": ["b0"]}
    assert reasons(plan_of(joined(worn), *jobs, **BOLD)) == {"urgent": "gpu_type"}


def test_a_preempted_job_is_within_its_quota_until_it_ends() -> None:
    """r makes way and goes to a1; s of the same queue may not have its GPUs of the quota."""
    jobs = (
        replace(low("r", a0=range(4)), queue="p", gpu_types=None),
        Job(id="urgent", min_gpus=8, priority=1, gpu_types=("b",)),
        replace(low("t", b0=range(4)), queue="p"),
        Job(id="s", min_gpus=1, priority=2, queue="p"),
    )
    plan = plan_of(joined(nodes(8), nodes(8, gpu_type="b")), *jobs, quotas={"p": 8}, **BOLD)
    assert started(plan) == {"urgent": ["b0"], "t": ["a0"]}
    assert reasons(plan) == {"s": "quota"}


def test_a_job_on_several_nodes_makes_way_once() -> None:
    jobs = (low("wide", 3, 1.0, a0=range(8), a1=range(8)), low("r", 3, 2.0, a2=range(8)), urgent(24))
    plan = plan_of(cluster(8, 8, 8), *jobs, **BOLD)
    assert (set(started(plan)), set(reasons(plan))) == ({"urgent"}, {"wide", "r"})
