"""Who starts and who waits, on queues small enough to be served by hand."""

from dataclasses import replace

import pytest

from models.allocation.gang.parameters import Backfill, QueueOrder
from models.workload import Job, Snapshot
from tests.models.allocation.gang.scenes import (
    cluster,
    joined,
    nodes,
    plan_of,
    planned,
    queue,
    reasons,
    running,
    started,
)
from topology.cluster import NodeState

FOUR = range(4)
EIGHT = range(8)


def test_the_oldest_starts_first_wherever_it_stands() -> None:
    """One node of four GPUs: the older of two jobs of three."""
    young, old = (Job(id=name, min_gpus=3, age_s=age_s) for name, age_s in (("young", 1.0), ("old", 2.0)))
    plan = plan_of(cluster(4), young, old)
    assert started(plan) == {"old": ["a0"]}
    assert reasons(plan) == {"young": "next"}


def test_priority_comes_before_age() -> None:
    jobs = (
        Job(id="old", min_gpus=4, age_s=9.0, priority=2),
        Job(id="urgent", min_gpus=4, age_s=1.0, priority=1),
    )
    assert started(plan_of(cluster(4), *jobs)) == {"old": ["a0"]}
    assert started(plan_of(cluster(4), *jobs, order=QueueOrder.PRIORITY)) == {"urgent": ["a0"]}


def test_the_shortest_comes_first_and_who_says_nothing_last() -> None:
    jobs = queue(("silent", 4, None), ("long", 4, 60.0), ("short", 4, 10.0))
    assert started(plan_of(cluster(4), *jobs, order=QueueOrder.SRTF)) == {"short": ["a0"]}
    assert started(plan_of(cluster(4), *jobs[:2], order=QueueOrder.SRTF)) == {"long": ["a0"]}
    known = {"order": QueueOrder.SRTF, "default_remaining_s": 5.0}
    assert started(plan_of(cluster(4), *jobs, **known)) == {"silent": ["a0"]}


def test_least_attained_service_comes_first_queue_by_queue() -> None:
    """Of the same queue the older one: 90 and 10 GPU seconds are alike."""
    had = {"served": 100.0, "older": 90.0, "newer": 10.0}
    jobs = tuple(replace(job, attained_gpu_s=had[job.id]) for job in queue(*((name, 4, 9.0) for name in had)))
    las = {"order": QueueOrder.LAS, "service_thresholds": (100.0,)}
    assert started(plan_of(cluster(4), *jobs, **las)) == {"older": ["a0"]}
    assert started(plan_of(cluster(4), jobs[0], **las)) == {"served": ["a0"]}


def test_waiting_raises_the_priority() -> None:
    """After 100 s a job of priority 2 is like one of priority 1, and older."""
    jobs = (
        Job(id="patient", min_gpus=4, age_s=100.0, priority=2),
        Job(id="urgent", min_gpus=4, age_s=99.0, priority=1),
    )
    aged = {"order": QueueOrder.PRIORITY, "promotion_after_s": 100.0}
    assert started(plan_of(cluster(4), *jobs, **aged)) == {"patient": ["a0"]}
    later = replace(jobs[0], age_s=99.5)
    assert started(plan_of(cluster(4), later, jobs[1], **aged)) == {"urgent": ["a0"]}


def test_without_backfill_nothing_passes_the_job_that_waits() -> None:
    """a0 is busy: `big` waits, and `small` waits behind it although a1 is free."""
    jobs = (running("r", 60.0, a0=EIGHT), *queue(("big", 16, 10.0), ("small", 1, 1.0)))
    plan = plan_of(cluster(8, 8), *jobs, backfill=Backfill.NONE)
    assert started(plan) == {}
    assert reasons(plan) == {"big": "next", "small": "order"}


def test_easy_backfill() -> None:
    """
    a0  r, for 60 s            big needs a0, a1 and a2 whole: in 60 s
    a1  s on 0-3, for 30 s     short ends by then: on a1, which is kept
    a2  free                   long does not, and finds no node that is not kept
    """
    jobs = (
        running("r", 60.0, a0=EIGHT),
        running("s", 30.0, a1=FOUR),
        *queue(("big", 24, 100.0), ("long", 4, 61.0), ("short", 4, 60.0)),
    )
    plan = plan_of(cluster(8, 8, 8), *jobs)
    assert started(plan) == {"short": ["a1"]}
    assert reasons(plan) == {"big": "next", "long": "would_delay"}
    told = {job.job_id: job for job in plan.unplaced}
    assert told["big"].counts["starts_in_s"] == 60
    assert "'big', which starts in 60 s" in told["long"].detail


def test_what_the_next_job_does_not_need_is_free_for_long_ones() -> None:
    """big needs two of the nodes a0, a1 and a2 whole: in 30 s a1 and a2 are, so that a0 is left to whoever fits."""
    jobs = (
        running("r", 60.0, a0=FOUR),
        running("s", 30.0, a1=FOUR),
        *queue(("big", 16, 100.0), ("long", 4, 900.0), ("longer", 4, 1000.0)),
    )
    assert started(plan_of(cluster(8, 8, 8), *jobs)) == {"long": ["a0"]}


def test_the_shared_node_carries_late_jobs_beside_the_item_of_the_next() -> None:
    """
    a0  r on 0-5, for 60 s    next needs 5 GPUs of one node: in 60 s. Then 3 are left over of 8:
                              late (2) starts now; later (1) would leave 5, too, but no GPU is free for it
    """
    jobs = (running("r", 60.0, a0=range(6)), *queue(("next", 5, 9.0), ("late", 2, 99.0), ("later", 1, 99.0)))
    plan = plan_of(cluster(8), *jobs)
    assert started(plan) == {"late": ["a0"]}
    assert reasons(plan) == {"next": "next", "later": "no_room"}


def test_the_shared_node_is_not_overdrawn() -> None:
    """next needs 7 of 8 in 60 s: of the two free GPUs one is left over for a late job, both for one in time."""
    jobs = (running("r", 60.0, a0=range(6)), *queue(("next", 7, 9.0), ("late", 1, 99.0), ("later", 1, 99.0)))
    plan = plan_of(cluster(8), *jobs)
    assert (started(plan), reasons(plan)) == ({"late": ["a0"]}, {"next": "next", "later": "would_delay"})
    jobs = (jobs[0], *queue(("next", 7, 9.0), ("short", 1, 50.0), ("late", 1, 99.0)))
    assert set(started(plan_of(cluster(8), *jobs))) == {"short", "late"}


def test_nobody_is_promised_gpus_of_unknown_end() -> None:
    """Of a0 nobody knows when it is free; a1 is kept, too, and a2 is nobody's."""
    jobs = (running("r", None, a0=EIGHT), *queue(("big", 16, None), ("short", 8, 1.0), ("other", 8, 1.0)))
    plan = plan_of(cluster(8, 8), *jobs)
    assert started(plan) == {}
    assert reasons(plan) == {"big": "next", "short": "would_delay", "other": "would_delay"}
    assert "starts_in_s" not in plan.unplaced[0].counts
    wider = plan_of(cluster(8, 8, 8), *jobs[:1], *queue(("big", 24, None), ("short", 8, 1.0)))
    assert started(wider) == {}
    assert set(started(plan_of(cluster(8, 8), *jobs, default_remaining_s=60.0))) == {"short"}


def test_each_gpu_type_has_its_own_next_job() -> None:
    """wide waits for a, x for b: small ends before x starts, and is in the way of neither."""
    where = joined(nodes(8, 8), nodes(8, gpu_type="b"))
    jobs = (
        running("ra", 60.0, a0=EIGHT),
        running("rb", 30.0, b0=FOUR),
        *queue(("wide", 16, 9.0), gpu_types=("a",)),
        *queue(("x", 8, 99.0), ("tall", 8, 9.0), ("small", 4, 30.0), gpu_types=("b",)),
    )
    jobs = tuple(replace(job, age_s=500.0 - k) for k, job in enumerate(jobs))
    plan = plan_of(where, *jobs)
    assert started(plan) == {"small": ["b0"]}
    assert reasons(plan) == {"wide": "next", "x": "next", "tall": "no_room"}


def test_a_job_of_several_types_starts_on_the_fewest_nodes() -> None:
    """Eight GPUs are two nodes of a and one of b."""
    where = joined(nodes(4, 4), nodes(8, gpu_type="b"))
    assert started(plan_of(where, *queue(("j", 8, None)))) == {"j": ["b0"]}
    assert started(plan_of(where, *queue(("j", 8, None), gpu_types=("a",)))) == {"j": ["a0", "a1"]}
    # With as many nodes, the type that it names first.
    assert started(plan_of(where, *queue(("j", 4, None), gpu_types=("b", "a")))) == {"j": ["b0"]}


def test_a_job_that_never_fits_holds_nobody_up() -> None:
    """Two nodes of four GPUs take 8 at most; drained nodes, and those with outside work, never are whole."""
    jobs = queue(("huge", 9, None), ("wide", 8, None), ("small", 4, None))
    plan = plan_of(cluster(4, 4), *jobs)
    assert (started(plan), reasons(plan)) == ({"wide": ["a0", "a1"]}, {"huge": "capacity", "small": "next"})
    worn = [*nodes(4, 4, 4)]
    worn[1], worn[2] = replace(worn[1], state=NodeState.DRAINED), replace(worn[2], gpus_in_use=(0,))
    plan = plan_of(joined(worn), *jobs)
    assert (started(plan), reasons(plan)) == ({"small": ["a0"]}, {"huge": "capacity", "wide": "capacity"})
    down = joined([replace(node, state=NodeState.DOWN) for node in worn], nodes(4, gpu_type="b"))
    assert reasons(plan_of(down, *queue(("j", 1, None), gpu_types=("a",)))) == {"j": "gpu_type"}


def test_quotas_hold_back_their_queue_and_nobody_else() -> None:
    """p has 4 of its 8 GPUs: `second` needs 6; `third` would fit, and waits behind it; q goes on."""
    p = queue(("first", 1, None), ("second", 6, None), ("third", 1, None), queue="p")
    q = queue(("other", 8, None), queue="q")
    jobs = (running("r", None, a0=range(3), also={"queue": "p"}), *p, *(replace(job, age_s=1.0) for job in q))
    plan = plan_of(cluster(8, 8, 8), *jobs, quotas={"p": 8})
    assert set(started(plan)) == {"first", "other"}
    assert reasons(plan) == {"second": "quota", "third": "quota"}
    told = {job.job_id: job for job in plan.unplaced}
    assert told["second"].counts == {"size": 6, "quota": 8, "quota_left": 4}
    assert "behind job 'second'" in told["third"].detail
    assert reasons(plan_of(cluster(8), *queue(("j", 2, None), queue="p"), quotas={"p": 1})) == {"j": "quota"}


def test_the_quota_of_the_next_job_is_kept_for_it() -> None:
    """big waits for a0 and will take 16 of p's 20 GPUs: of the 8 that small wants 4 are left."""
    jobs = (
        running("r", 60.0, a0=EIGHT),
        *queue(("big", 16, 9.0), ("tiny", 2, 1.0), ("small", 8, 1.0), ("last", 1, 1.0), queue="p"),
    )
    plan = plan_of(cluster(8, 8), *jobs, quotas={"p": 20})
    assert set(started(plan)) == {"tiny"}
    assert reasons(plan) == {"big": "next", "small": "quota", "last": "quota"}
    assert set(started(plan_of(cluster(8, 8), jobs[0], *jobs[1:2], *jobs[3:], quotas={"p": 24}))) == {"small"}


def test_running_jobs_stay_also_where_nothing_starts_and_whatever_their_size_says() -> None:
    worn = [*nodes(4, 4)]
    worn[0] = replace(worn[0], state=NodeState.DRAINED)
    jobs = (running("r", 5.0, a0=FOUR), running("s", 5.0, size=2, a1=range(3)), *queue(("j", 2, 9.0)))
    plan = plan_of(joined(worn), *jobs)
    assert {item.job_id: item.change.value for item in plan.allocations} == {"r": "kept", "s": "kept"}
    assert plan.unplaced[0].counts["starts_in_s"] == 5


def test_a_job_of_a_node_that_is_down_waits() -> None:
    worn = [*nodes(4, 4)]
    worn[0] = replace(worn[0], state=NodeState.DOWN)
    assert started(plan_of(joined(worn), running("r", 5.0, a0=FOUR))) == {"r": ["a1"]}


def test_an_overdue_job_may_end_at_any_moment() -> None:
    plan = plan_of(cluster(8), running("r", 0.0, a0=EIGHT), *queue(("j", 8, 1.0), ("k", 1, 1.0)))
    assert plan.unplaced[0].counts["starts_in_s"] == 0
    assert reasons(plan) == {"j": "next", "k": "no_room"}


@pytest.mark.parametrize("num_types", [1, 2])
def test_an_empty_queue_is_an_answer(num_types: int) -> None:
    where = joined(nodes(4), *([nodes(4, gpu_type="b")] if num_types == 2 else []))
    formulation, result, plan = planned(Snapshot(cluster=where, jobs=()))
    assert (result.objective, result.bound, plan.allocations) == (0.0, 0.0, ())
    assert formulation.named().num_columns == 0
