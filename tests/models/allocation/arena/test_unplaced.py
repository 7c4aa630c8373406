"""Every reason for which a job may get nothing, with its numbers."""

from dataclasses import replace

from models.allocation.arena.parameters import ArenaObjective, ArenaParameters
from models.plan import UnplacedJob
from models.workload import Adaptivity, Job, Snapshot
from tests.models.allocation.arena.scenes import HEURISTIC, ILP, plan_of, table
from tests.models.placement.scenes import cluster, node, on
from topology.cluster import NodeState

LINEAR = table({("a", n): float(n) for n in (1, 2, 4, 8, 16)})
MACHINES = cluster(node("n0", 4), node("n1", 4), node("n2", 2, "b", state=NodeState.DOWN))


def left_out(job: Job, *others: Job, parameters: ArenaParameters = ILP) -> UnplacedJob:
    plan, _ = plan_of(Snapshot(cluster=MACHINES, jobs=(job, *others)), parameters)
    (found,) = [item for item in plan.unplaced if item.job_id == job.id]
    assert not found.preempted
    return found


def test_no_nodes_of_its_types() -> None:
    found = left_out(Job(id="j", performance=LINEAR, gpu_types=("b",)))
    assert (found.reason, found.counts) == ("gpu_type", {"nodes.b": 0})


def test_no_block_within_its_bounds() -> None:
    found = left_out(Job(id="j", performance=LINEAR, adaptivity=Adaptivity.RIGID, min_gpus=3))
    assert found.reason == "no_configuration"
    assert found.counts == {"min_gpus": 3, "max_gpus": 3, "largest_block": 8}
    assert "1, 2, 4, 8 GPUs" in found.remedy


def test_no_block_among_the_counts_offered() -> None:
    found = left_out(Job(id="j", performance=LINEAR, max_gpus=2), parameters=replace(ILP, counts=(4, 8)))
    assert found.reason == "no_configuration"
    assert "counts offered" in found.detail


def test_no_throughput_within_its_bounds() -> None:
    found = left_out(Job(id="j", performance=table({("a", 8): 1.0}), max_gpus=4))
    assert found.reason == "no_performance"
    assert found.counts == {"blocks_within_bounds": 3, "blocks_with_throughput": 1}
    assert "(2,8,a)" in found.remedy


def test_too_late_for_its_deadline() -> None:
    """1000 samples at up to 8 a second."""
    job = Job(id="j", performance=LINEAR, remaining_iterations=10, deadline_s=100.0)
    found = left_out(job, parameters=replace(ILP, objective=ArenaObjective.DEADLINES))
    assert (found.reason, found.counts) == ("deadline", {"needed_s": 125, "deadline_s": 100})


def test_does_not_fit_even_alone() -> None:
    """n0 [pp..] n1 [p...]: two pinned jobs leave no whole node."""
    pinned = (
        Job(id="p", preemptible=False, current=on({"n0": (0, 1)})),
        Job(id="q", preemptible=False, current=on({"n1": (0,)})),
    )
    found = left_out(Job(id="j", performance=LINEAR, min_gpus=4), *pinned)
    assert (found.reason, found.counts) == ("capacity", {"min_gpus": 4, "short_gpus.a": 4})


def test_others_bring_more() -> None:
    others = (Job(id="o", performance=LINEAR, min_gpus=8, weight=9.0),)
    found = left_out(Job(id="j", performance=LINEAR, min_gpus=2, max_gpus=2), *others)
    assert (found.reason, found.counts) == ("outcompeted", {"min_gpus": 2, "short_gpus.a": 2})


def test_held_back_by_a_higher_queue_or_blocked() -> None:
    head = Job(id="head", performance=LINEAR, min_gpus=8)
    runs = Job(id="r", performance=LINEAR, max_gpus=1, current=on({"n0": (0,)}))
    low = Job(id="low", performance=LINEAR, max_gpus=1, priority=3)
    found = left_out(low, head, runs, parameters=HEURISTIC)
    assert (found.reason, found.counts) == ("queue", {"queue": 3, "blocked_queue": 1})
    assert "'head'" in found.detail
    found = left_out(head, low, runs, parameters=HEURISTIC)
    assert (found.reason, found.counts) == ("blocked", {"min_gpus": 8, "short_gpus.a": 1})
    assert found.detail == "changing the only other job that runs does not make room for it"
    more = [Job(id=f"r{k}", performance=LINEAR, max_gpus=1, current=on({"n1": (k,)})) for k in range(4)]
    found = left_out(head, runs, *more, parameters=HEURISTIC)
    assert found.detail == "changing 3 of the 5 other jobs that run does not make room for it"
    found = left_out(head, runs, parameters=replace(HEURISTIC, search_depth=0))
    assert found.detail == "leaving every other job as it is does not make room for it"
