"""Which nodes a job may use beside a calendar; the check agrees."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from models.calendar_check import calendar_violations
from models.forecast.lasting import Lasting
from models.free_at import free_at
from models.windows import availability
from models.workload import Job, Snapshot, checked_snapshot
from stowplan.errors import InputError
from tests.growth import work
from tests.models.calendar_scenes import (
    FIXED,
    LONG,
    OWN,
    POINT,
    SHORT,
    UNKNOWN,
    allocation,
    jobs_on_six_nodes,
    on,
    windows,
)
from tests.topology.test_calendar import DAY_S, calendars, pods, reserved, shaped
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_issues import calendar_issues
from topology.cluster import NodeState

RESERVED = reserved("r", 1, 2, "n0")


@pytest.mark.parametrize(
    ("entry", "may"),
    [
        # What belongs to nobody may use the node if it is over in time with 0.9: SHORT after half a day.
        (RESERVED, {SHORT, POINT, OWN}),
        (replace(RESERVED, from_s=0.5 * DAY_S), {SHORT, POINT, OWN}),
        (replace(RESERVED, from_s=0.4 * DAY_S), {OWN}),
        # It holds now: nobody else, though a job be short.
        (replace(RESERVED, from_s=0.0), {OWN}),
        (replace(RESERVED, from_s=-5.0), {OWN}),
        # A soft one lets preemptible jobs in at any time.
        (replace(RESERVED, hard=False), {SHORT, POINT, UNKNOWN, LONG, OWN}),
        (replace(RESERVED, from_s=0.0, hard=False), {SHORT, POINT, UNKNOWN, LONG, OWN}),
        # Maintenance is of nobody, whatever its name.
        (replace(RESERVED, kind=EntryKind.MAINTENANCE), {SHORT, POINT}),
        (replace(RESERVED, kind=EntryKind.MAINTENANCE, hard=False), {SHORT, POINT, UNKNOWN, LONG, OWN}),
        (replace(RESERVED, kind=EntryKind.MAINTENANCE, hard=False, from_s=0.0), set()),
        (replace(RESERVED, kind=EntryKind.DEPARTURE, until_s=None), {SHORT, POINT}),
        (replace(RESERVED, kind=EntryKind.DEPARTURE, until_s=None, from_s=-1.0), set()),
        (replace(RESERVED, kind=EntryKind.ARRIVAL, until_s=None), set()),
        (
            replace(RESERVED, kind=EntryKind.ARRIVAL, until_s=None, from_s=0.0),
            {SHORT, POINT, UNKNOWN, LONG, FIXED, OWN},
        ),
        (replace(RESERVED, from_s=-2.0, until_s=0.0), {SHORT, POINT, UNKNOWN, LONG, FIXED, OWN}),
    ],
)
def test_who_may_use_a_node(entry: CalendarEntry, may: set[Job]) -> None:
    cluster, everybody = pods(2), (SHORT, POINT, UNKNOWN, LONG, FIXED, OWN)
    found = windows(cluster, entry)
    snapshot = Snapshot(cluster=cluster, jobs=everybody, calendar=(entry,))
    assert {job for job in everybody if found.may_use(job, "n0")} == may
    for job in everybody:
        assert found.may_use(job, "n1"), "there is nothing over it"
        assert found.usable(job).tolist() == [job in may, True]
        assert [barring.name for barring in found.barring(job, "n0")] == ([] if job in may else ["r"])
        assert bool(calendar_violations(snapshot, [allocation(job, "n0")], 0.1)) == (job not in may)
        assert calendar_violations(snapshot, [allocation(job, "n1")], 0.1) == []


def test_jobs_stay_where_they_run_until_they_must_go() -> None:
    cluster, soon, now = pods(2), RESERVED, replace(RESERVED, from_s=0.0)
    running, fixed = on(UNKNOWN, "n0"), on(FIXED, "n0")
    for entry, job, may in ((soon, running, True), (now, running, False), (now, fixed, True), (soon, fixed, True)):
        assert windows(cluster, entry, jobs=(job,)).usable(job).tolist() == [may, True]
        snapshot = Snapshot(cluster=cluster, jobs=(job,), calendar=(entry,))
        assert (calendar_violations(snapshot, [allocation(job, "n0")], 0.1) == []) is may
    # On a node that is down nothing runs: it is a job that waits.
    down = replace(cluster, nodes=(cluster.nodes[0], replace(cluster.nodes[1], state=NodeState.DOWN)))
    waits = on(FIXED, "n0", "n1")
    assert not windows(down, soon, jobs=(waits,)).may_use(waits, "n0")
    assert calendar_violations(checked_snapshot(down, (waits,), (soon,)), [allocation(waits, "n0")], 0.1) != []


def test_until_when_nodes_are_open() -> None:
    entries = (
        reserved("r", 1, 2, "n0", "n1"),
        reserved("s", 3, 4, "n0"),
        reserved("soft", 0, 1, "n1", hard=False),
        reserved("m", 5, 6, "n2", kind=EntryKind.MAINTENANCE),
        reserved("gone", -1, 9, "n3", kind=EntryKind.MAINTENANCE),
    )
    found = windows(pods(5), *entries)
    days = {job.id: (found.free_until_s(job) / DAY_S).tolist() for job in (UNKNOWN, FIXED, OWN)}
    assert days == {
        "unknown": [1, 1, 5, -math.inf, math.inf],
        "fixed": [1, -math.inf, 5, -math.inf, math.inf],
        # Its own keeps it off nothing, those behind it do.
        "own": [3, math.inf, 5, -math.inf, math.inf],
    }
    assert [entry.name for entry in found.barring(FIXED, "n1")] == ["soft", "r"]
    assert found.own_nodes(OWN) == (0, 1)


def test_epsilon_is_how_often_a_job_may_be_late() -> None:
    entry = replace(RESERVED, from_s=0.3 * DAY_S)
    # Over within 0.3 days with probability 0.58.
    assert [windows(pods(1), entry, epsilon=epsilon).may_use(SHORT, "n0") for epsilon in (0.0, 0.4, 0.45)] == [
        False,
        False,
        True,
    ]
    exact = Job(id="exact", lasting=Lasting(probabilities=(0.93,), seconds=(60.0,)))
    assert windows(pods(1), entry, epsilon=0.07).may_use(exact, "n0")
    for epsilon in (-0.1, 1.0, math.nan):
        with pytest.raises(InputError, match="epsilon"):
            windows(pods(1), entry, epsilon=epsilon)


def test_overdue_jobs_have_no_end() -> None:
    assert not windows(pods(1), RESERVED).may_use(replace(POINT, remaining_s=0.0), "n0")


def test_a_shape_takes_what_costs_least() -> None:
    # n0 runs something unknown, n1 something that ends likely in a quarter of a day, n2 work from outside, n3 is
    # drained, n4 is free, n5 runs what cannot be preempted though it is short.
    cluster = pods(6)
    nodes = (
        *cluster.nodes[:2],
        replace(cluster.nodes[2], gpus_in_use=(0,)),
        replace(cluster.nodes[3], state=NodeState.DRAINED),
        *cluster.nodes[4:],
    )
    jobs = (on(UNKNOWN, "n0"), on(SHORT, "n1"), on(replace(POINT, preemptible=False), "n5"))
    chosen = {
        size: windows(replace(cluster, nodes=nodes), shaped("r", 1, 2, size), jobs=jobs).nodes_of["r"]
        for size in range(1, 7)
    }
    assert chosen == {
        1: (4,),
        2: (1, 4),
        3: (0, 1, 4),
        4: (0, 1, 2, 4),
        5: (0, 1, 2, 4, 5),
        6: (0, 1, 2, 3, 4, 5),
    }
    mine = (*jobs[1:], on(OWN, "n0"))
    assert windows(replace(cluster, nodes=nodes), shaped("r", 1, 2, 1), jobs=mine).nodes_of["r"] == (0,)


def test_what_suits_the_jobs_leaves_room_for_all() -> None:
    # `a` holds day 1, `b` days 1 to 3 and `c` day 2: on two nodes, `a` and `c` must share one. All choose in turn, and
    # the order of the jobs cannot make that impossible.
    cluster = pods(2)
    entries = (shaped("a", 1, 2, 1), shaped("b", 1, 3, 1), shaped("c", 2, 3, 1))
    found = windows(cluster, *entries, jobs=(on(UNKNOWN, "n0"),))
    assert found.nodes_of["b"] != found.nodes_of["a"]
    assert found.nodes_of["b"] != found.nodes_of["c"]


@pytest.mark.slow
@given(entries=calendars(), jobs=jobs_on_six_nodes())
@settings(max_examples=200, deadline=None)
def test_an_entry_more_never_widens_what_a_job_may_use(
    entries: tuple[CalendarEntry, ...], jobs: tuple[Job, ...]
) -> None:
    cluster = pods(3, 3, kinds=("h800", "l20"))
    # Over named nodes: a new one may send a shape elsewhere.
    entries = tuple(entry for entry in entries if entry.shape is None)
    if not entries or calendar_issues(cluster, entries):
        return
    wider = availability(Snapshot(cluster=cluster, jobs=jobs, calendar=entries[:-1]), 0.1)
    narrower = availability(Snapshot(cluster=cluster, jobs=jobs, calendar=entries), 0.1)
    for job in jobs:
        if job.calendar_entry != entries[-1].name:
            assert not np.any(narrower.usable(job) & ~wider.usable(job))


@pytest.mark.parametrize("growing", ["nodes", "entries"])
def test_cost_grows_with_nodes_and_entries(growing: str) -> None:
    def cost(size: int) -> int:
        cluster = pods(*[10] * (size if growing == "nodes" else 40))
        num_entries = size * 10 if growing == "entries" else 100
        entries = tuple(reserved(f"r{k}", k % 7, k % 7 + 1, f"n{k % 400}") for k in range(num_entries))
        some = tuple(shaped(f"s{k}", 8, 9, 2) for k in range(5))
        jobs = tuple(
            on(replace(UNKNOWN, id=f"j{k}"), f"n{k}") for k in range(0, size * 10 if growing == "nodes" else 0, 2)
        )
        snapshot = checked_snapshot(cluster, jobs, (*entries, *some) if growing == "entries" else some)
        kept = [allocation(job, job.current[0].node) for job in jobs if job.current]

        def ask() -> None:
            found = availability(snapshot, 0.1)
            found.usable(UNKNOWN)
            free_at(snapshot, DAY_S)
            calendar_violations(snapshot, kept, 0.1)

        return work(ask)

    cost(5)
    assert cost(40) <= 2.3 * cost(20)
