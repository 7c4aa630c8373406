"""Which nodes many jobs may use: what each would be told by itself, in few classes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.access import Access
from models.windows import availability
from models.workload import Job, NodeGpus, Snapshot
from tests.growth import work
from tests.models.calendar_scenes import jobs_on_six_nodes
from tests.topology.test_calendar import DAY_S, calendars, pods, reserved
from topology.calendar import CalendarEntry
from topology.calendar_issues import calendar_issues
from topology.cluster import Cluster


@pytest.mark.slow
@given(entries=calendars(), jobs=jobs_on_six_nodes(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_a_class_is_told_what_its_jobs_would_be(
    entries: tuple[CalendarEntry, ...], jobs: tuple[Job, ...], data: Any
) -> None:
    cluster = pods(3, 3, kinds=("h800", "l20"))
    if calendar_issues(cluster, entries):
        return
    waiting = tuple(replace(job, current=None) for job in jobs)
    hard = tuple(replace(entry, hard=True) for entry in entries)
    if calendar_issues(cluster, hard):
        return
    epsilon = data.draw(st.sampled_from((0.05, 0.3)))
    snapshot = Snapshot(cluster=cluster, jobs=waiting, calendar=hard)
    access, found = Access(snapshot, epsilon), availability(snapshot, epsilon)
    number = access.alike(waiting)
    for job in waiting:
        assert access.usable(job).tolist() == found.usable(job).tolist()
        for kind in set(number.tolist()):
            assert len(set(access.usable(job)[number == kind].tolist())) == 1


def test_a_soft_reservation_is_hard_once_its_jobs_have_come() -> None:
    own, guest = Job(id="own", calendar_entry="r"), Job(id="guest")
    soft = reserved("r", -1, 2, "n0", hard=False)
    also = reserved("s", -0.5, 2, "n0", "n1", hard=False)
    cluster = pods(2)

    def open_to_guests(*jobs: Job, calendar: tuple[CalendarEntry, ...]) -> list[bool]:
        return list(Access(Snapshot(cluster=cluster, jobs=jobs, calendar=calendar), 0.05).usable(guest))

    assert open_to_guests(guest, calendar=(soft,)) == [True, True]
    assert open_to_guests(guest, own, calendar=(soft,)) == [False, True]
    assert open_to_guests(guest, own, calendar=(replace(soft, from_s=DAY_S),)) == [True, True]
    both = Snapshot(cluster=cluster, jobs=(own, replace(own, id="too", calendar_entry="s")), calendar=(soft, also))
    access = Access(both, 0.05)
    # The first to begin has the node that both are over.
    assert access.usable(both.jobs[0]).tolist() == [True, True]
    assert access.usable(both.jobs[1]).tolist() == [False, True]


def test_guests_stay_until_the_job_of_a_soft_reservation_could_start() -> None:
    cluster = pods(3)
    size = cluster.nodes[0].num_gpus
    soft = reserved("r", -1, 2, "n0", "n1", hard=False)
    guest = Job(id="guest", current=(NodeGpus(node="n0", gpus=tuple(range(size))),))
    stays = Job(id="stays", current=(NodeGpus(node="n1", gpus=(0,)),), preemptible=False)

    def leaves(*jobs: Job, cluster: Cluster = cluster) -> bool:
        snapshot = Snapshot(cluster=cluster, jobs=(guest, *jobs), calendar=(soft,))
        return Access(snapshot, 0.05).must_leave(guest)

    own = Job(id="own", min_gpus=2 * size, calendar_entry="r")
    assert leaves(own)
    # A GPU of n1 is kept by a job that does not make way; n2 has what is missing, and then has not.
    assert leaves(own, stays)
    busy = Job(id="busy", current=(NodeGpus(node="n2", gpus=tuple(range(size))),))
    assert leaves(own, busy)
    assert not leaves(own, stays, busy)
    # Another job of the reservation has its GPUs.
    first = replace(stays, id="first", preemptible=True, calendar_entry="r")
    assert not leaves(own, first, busy)
    assert leaves(replace(own, min_gpus=2 * size - 1), first, busy)
    # n0 and n2 have one type, n1 the other.
    mixed = pods(3, kinds=("h800", "l20"))
    assert leaves(own, cluster=mixed)
    assert not leaves(replace(own, gpu_types=("l20",)), cluster=mixed)
    assert leaves(replace(own, min_gpus=1), replace(own, id="large", min_gpus=9 * size))


def test_jobs_of_a_soft_reservation_are_looked_at_once_a_class() -> None:
    cluster = pods(40)
    soft = reserved("r", -1, 2, "n0", hard=False)

    def cost(num_jobs: int) -> int:
        jobs = tuple(Job(id=f"j{k}", min_gpus=900, calendar_entry="r", remaining_s=1.0 + k) for k in range(num_jobs))
        snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=(soft,))
        return work(lambda: Access(snapshot, 0.05))

    cost(100)
    assert cost(400) <= 2.3 * cost(200)


def test_jobs_of_one_class_are_looked_up_once() -> None:
    cluster = pods(40)
    entries = tuple(reserved(f"r{k}", 1 + k, 40, f"n{k}") for k in range(20))

    def cost(num_jobs: int) -> int:
        jobs = tuple(Job(id=f"j{k}", remaining_s=DAY_S * (k % 7) + k) for k in range(num_jobs))
        snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=entries)
        return work(lambda: Access(snapshot, 0.05).alike(jobs))

    cost(100)
    assert cost(400) <= 2.3 * cost(200)
