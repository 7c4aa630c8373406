"""Gang beside a calendar: who starts where, who leaves, and what those are told who wait for it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.allocation.gang.check import gang_violations
from models.allocation.gang.parameters import Backfill, GangMethod, GangParameters, QueueOrder
from models.calendar_check import calendar_violations
from models.forecast.lasting import Lasting
from models.workload import Job, Snapshot
from stowplan.errors import InputError
from tests.models.allocation.gang.scenes import cluster, made_up, planned, queue, reasons, running, started
from tests.models.calendar_scenes import with_calendar
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import Cluster


def kept(name: str, from_s: float, until_s: float | None, *nodes: str, hard: bool = True) -> CalendarEntry:
    return CalendarEntry(
        name=name, kind=EntryKind.RESERVATION, from_s=from_s, until_s=until_s, nodes=tuple(nodes), hard=hard
    )


def snapshot(where: Cluster, *jobs: Job, calendar: tuple[CalendarEntry, ...]) -> Snapshot:
    return Snapshot(cluster=where, jobs=jobs, calendar=calendar)


def test_short_jobs_use_reserved_nodes_until_then() -> None:
    # a0 is reserved from 100 s on. The short job goes there though it comes later, so that the long one has a1.
    jobs = queue(("short", 8, 100.0), ("long", 8, 101.0), ("unknown", 8, None))
    plan = planned(snapshot(cluster(8, 8), *jobs, calendar=(kept("r", 100, 200, "a0"),)))[2]
    assert started(plan) == {"short": ["a0"], "long": ["a1"]}
    assert reasons(plan) == {"unknown": "next"}


def test_a_job_may_be_on_nodes_that_close_at_different_times() -> None:
    jobs = queue(("wide", 24, 50.0))
    entries = (kept("r", 100, 200, "a0"), kept("s", 60, 90, "a2"))
    plan = planned(snapshot(cluster(8, 8, 8), *jobs, calendar=entries))[2]
    assert started(plan) == {"wide": ["a0", "a1", "a2"]}


def test_the_probability_to_end_in_time_counts() -> None:
    job = replace(queue(("j", 8, None))[0], lasting=Lasting(probabilities=(0.5, 0.95), seconds=(90.0, 110.0)))
    at_risk = snapshot(cluster(8), job, calendar=(kept("r", 100, None, "a0"),))
    # Over by 100 s with probability (0.5 + 0.95) / 2 = 0.725.
    assert started(planned(at_risk, GangParameters(epsilon=0.28))[2]) == {"j": ["a0"]}
    assert reasons(planned(at_risk, GangParameters(epsilon=0.27))[2]) == {"j": "reserved"}
    with pytest.raises(InputError, match="epsilon"):
        GangParameters(epsilon=1.0)


def test_who_waits_for_the_calendar_holds_nobody_up_and_is_told_when() -> None:
    # big needs both nodes for 50 s. They are there together for 40 s, and from 90 s on.
    jobs = queue(("big", 16, 50.0), ("small", 8, None))
    plan = planned(snapshot(cluster(8, 8), *jobs, calendar=(kept("r", 40, 90, "a1"),)))[2]
    assert started(plan) == {"small": ["a0"]}
    (waiting,) = plan.unplaced
    assert (waiting.reason, waiting.counts["admitted_in_s"], waiting.counts["nodes_kept"]) == ("reserved", 90, 1)
    assert "reservation 'r' from 40 s until 90 s" in waiting.detail
    # For ever, and nobody knows.
    plan = planned(snapshot(cluster(8, 8), *jobs[:1], calendar=(kept("r", 40, None, "a1"),)))[2]
    assert "nobody knows" in plan.unplaced[0].detail


def test_what_is_promised_goes_by_the_calendar() -> None:
    # a0 is free in 30 s and closed from 60 s to 80 s: too short for the job of 40 s, which starts at 80 s. Until then
    # the nodes are not held for it: the one of 75 s may not be on a0, and in a1 there is work outside.
    here = running("now", 30.0, a0=range(8))
    (job,) = queue(("j", 8, 40.0))
    plan = planned(snapshot(cluster(8), here, job, calendar=(kept("r", 60, 80, "a0"),)))[2]
    (waiting,) = plan.unplaced
    assert (waiting.reason, waiting.counts["starts_in_s"]) == ("next", 80)
    # Whenever the running one ends, a0 leaves too early: nothing is kept for it, and the short one waits for a0 alone.
    forever = snapshot(cluster(8), here, job, calendar=(kept("r", 60, None, "a0"),))
    assert reasons(planned(forever)[2]) == {"j": "reserved"}


def test_jobs_of_the_reservation_use_its_nodes() -> None:
    own = replace(queue(("own", 8, None))[0], calendar_entry="r")
    other = replace(own, id="other", age_s=5000.0, calendar_entry=None)
    plan = planned(snapshot(cluster(8), other, own, calendar=(kept("r", -5, 50, "a0"),)))[2]
    assert started(plan) == {"own": ["a0"]}
    assert reasons(plan) == {"other": "reserved"}


def test_preemptible_jobs_leave_when_an_entry_begins() -> None:
    # Both run on nodes that are closed now; the one that cannot be preempted stays.
    leaves, stays = running("leaves", 9.0, a0=range(8)), running("stays", 9.0, a1=range(8), also={"preemptible": False})
    entry = kept("r", 0, 50, "a0", "a1")
    plan = planned(snapshot(cluster(8, 8, 8), leaves, stays, calendar=(entry,)))[2]
    assert started(plan) == {"leaves": ["a2"]}
    plan = planned(snapshot(cluster(8, 8), leaves, stays, calendar=(entry,)))[2]
    assert [job.job_id for job in plan.unplaced if job.preempted] == ["leaves"]
    assert {item.job_id for item in plan.allocations} == {"stays"}
    # A soft reservation lets it stay.
    plan = planned(snapshot(cluster(8, 8), leaves, stays, calendar=(replace(entry, hard=False),)))[2]
    assert plan.unplaced == ()


def test_guests_of_a_soft_reservation_leave_when_its_jobs_come() -> None:
    guest = running("guest", 9.0, a0=range(8))
    own = replace(queue(("own", 8, None))[0], calendar_entry="r")
    entry = kept("r", -5, 50, "a0", hard=False)
    plan = planned(snapshot(cluster(8), guest, own, calendar=(entry,)))[2]
    assert started(plan) == {"own": ["a0"]}
    assert reasons(plan) == {"guest": "reserved"}
    # It has not begun yet: its job is one of the queue.
    plan = planned(snapshot(cluster(8), guest, own, calendar=(replace(entry, from_s=1.0),)))[2]
    assert reasons(plan) == {"own": "next"}


def test_nobody_is_preempted_for_nodes_that_are_closed_to_who_comes() -> None:
    late = running("late", 5.0, a0=range(8), also={"priority": 9})
    later = running("later", 5.0, a1=range(8), also={"priority": 9})
    urgent = replace(queue(("urgent", 8, 500.0))[0], priority=1)
    parameters = GangParameters(order=QueueOrder.PRIORITY, preemption=True)
    plan = planned(snapshot(cluster(8, 8), late, later, urgent, calendar=(kept("r", 100, None, "a0"),)), parameters)[2]
    assert started(plan) == {"urgent": ["a1"]}
    assert [job.job_id for job in plan.unplaced] == ["later"]


def test_the_check_finds_who_is_on_closed_nodes() -> None:
    (job,) = queue(("j", 8, 100.0))
    open_ = Snapshot(cluster=cluster(8), jobs=(job,))
    _, result, plan = planned(open_)
    assert result.objective is not None
    closed = replace(open_, calendar=(kept("r", 50, None, "a0"),))
    (issue, *_) = gang_violations(closed, GangParameters(), plan, result.objective)
    assert issue.code == "calendar_not_honoured"


PARAMETERS = st.builds(
    lambda method, backfill, order: GangParameters(
        method=method,
        backfill=backfill,
        order=order,
        preemption=order is not QueueOrder.FIFO,
        quotas={"q": 12},
    ),
    st.sampled_from(GangMethod),
    st.sampled_from(Backfill),
    st.sampled_from(QueueOrder),
)


@pytest.mark.slow
@given(seed=st.integers(0, 100_000), parameters=PARAMETERS)
@settings(max_examples=300, deadline=None)
def test_every_plan_honours_the_calendar(seed: int, parameters: GangParameters) -> None:
    """And keeps all rules of the queue; one whose entries are over is none."""
    plain = made_up(seed)
    scene = with_calendar(plain, seed, scale_s=2.0)
    _, _, plan = planned(scene, parameters)
    assert calendar_violations(scene, plan.allocations, parameters.epsilon) == []
    over = tuple(replace(entry, from_s=-9.0, until_s=-1.0) for entry in scene.calendar if not entry.kind.is_moment)
    bare = replace(scene, calendar=())
    assert planned(replace(scene, calendar=over), parameters)[2] == planned(bare, parameters)[2]
