"""Which nodes a job may use beside a calendar, the check of it, and which nodes are free later."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.calendar_check import calendar_violations
from models.forecast.lasting import Lasting
from models.free_at import free_at
from models.plan import Change, JobAllocation
from models.windows import NodeWindows, availability
from models.workload import Job, NodeGpus, Snapshot, checked_snapshot
from stowplan.errors import InputError
from tests.growth import work
from tests.topology.test_calendar import DAY_S, calendars, pods, reserved, shaped
from topology.calendar import CalendarEntry, EntryKind
from topology.calendar_issues import calendar_issues
from topology.cluster import Cluster, NodeState

HALF_DAY = Lasting(probabilities=(0.5, 0.9, 0.99), seconds=(0.25 * DAY_S, 0.5 * DAY_S, 2 * DAY_S))
SHORT = Job(id="short", lasting=HALF_DAY)
POINT = Job(id="point", remaining_s=0.5 * DAY_S)
UNKNOWN = Job(id="unknown")
LONG = Job(id="long", remaining_s=99 * DAY_S)
FIXED = Job(id="fixed", preemptible=False)
OWN = Job(id="own", calendar_entry="r")


def windows(cluster: Cluster, *entries: CalendarEntry, jobs: tuple[Job, ...] = (), epsilon: float = 0.1) -> NodeWindows:
    return availability(Snapshot(cluster=cluster, jobs=jobs, calendar=entries), epsilon)


def on(job: Job, *nodes: str) -> Job:
    return replace(job, current=tuple(NodeGpus(node=node, gpus=(0,)) for node in nodes))


def allocation(job: Job, *nodes: str) -> JobAllocation:
    return JobAllocation(
        job_id=job.id,
        gpu_type="h800",
        num_gpus=len(nodes),
        gpus=tuple(NodeGpus(node=node, gpus=(0,)) for node in nodes),
        change=Change.STARTED,
    )


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


def test_enough_nodes_are_left_for_a_shape() -> None:
    cluster, entry = pods(4), shaped("r", 1, 2, 2)
    jobs = tuple(Job(id=f"j{k}") for k in range(3))
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=(entry,))
    each = [allocation(job, f"n{k}") for k, job in enumerate(jobs)]
    assert calendar_violations(snapshot, each[:2], 0.1) == []
    (issue,) = calendar_violations(snapshot, each, 0.1)
    assert (issue.code, issue.pointer) == ("calendar_not_honoured", "/allocations")
    assert "leave 1 nodes" in issue.detail
    # Two that hold at a time need four nodes, though each alone would find two.
    both = replace(snapshot, calendar=(entry, shaped("s", 1, 3, 2)))
    (issue,) = calendar_violations(both, each[:1], 0.1)
    assert "'r'" in issue.detail
    assert "'s'" in issue.detail
    behind = replace(snapshot, calendar=(entry, shaped("s", 2, 3, 2)))
    assert calendar_violations(behind, each[:2], 0.1) == []
    # Beside one that names its nodes.
    named = replace(snapshot, calendar=(entry, reserved("s", 1, 3, "n3", "n2")))
    assert len(calendar_violations(named, each[:1], 0.1)) == 1
    assert calendar_violations(named, (), 0.1) == []


@st.composite
def jobs_on_six_nodes(draw: st.DrawFn) -> tuple[Job, ...]:
    """Up to six jobs; job k waits, or runs on node k."""
    lasting = st.builds(
        lambda a, b: Lasting(probabilities=(0.5, 0.95), seconds=(a * DAY_S, (a + b) * DAY_S)),
        st.integers(0, 3),
        st.integers(0, 3),
    )
    jobs = []
    for k in range(draw(st.integers(1, 6))):
        job = Job(
            id=f"j{k}",
            preemptible=draw(st.booleans()),
            lasting=draw(st.none() | lasting),
            remaining_s=draw(st.sampled_from([None, 0.0, DAY_S])),
            calendar_entry=draw(st.sampled_from([None, "e0", "e1"])),
        )
        jobs.append(on(job, f"n{k}") if draw(st.booleans()) else job)
    return tuple(jobs)


@pytest.mark.slow
@given(entries=calendars(), jobs=jobs_on_six_nodes(), data=st.data())
@settings(max_examples=300, deadline=None)
def test_whoever_asks_passes_the_check(entries: tuple[CalendarEntry, ...], jobs: tuple[Job, ...], data: Any) -> None:
    """Allocations of usable nodes alone honour the calendar, and over named nodes no others do."""
    cluster = pods(3, 3, kinds=("h800", "l20"))
    if calendar_issues(cluster, entries):
        return
    snapshot = Snapshot(cluster=cluster, jobs=jobs, calendar=entries)
    found = availability(snapshot, 0.1)
    given_ = []
    for job in jobs:
        mask = found.usable(job)
        assert mask.tolist() == [found.may_use(job, node.id) for node in cluster.nodes]
        usable = [cluster.nodes[n].id for n in np.flatnonzero(mask)]
        chosen = data.draw(st.lists(st.sampled_from(usable), unique=True)) if usable else []
        given_.append(allocation(job, *chosen))
        if all(entry.shape is None for entry in entries):
            for node in cluster.nodes:
                legal = calendar_violations(snapshot, [allocation(job, node.id)], 0.1) == []
                assert legal == found.may_use(job, node.id)
    assert calendar_violations(snapshot, given_, 0.1) == []


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


def test_which_nodes_are_free_later() -> None:
    # n0: SHORT, n1: SHORT and POINT, n2: nobody knows, n3: reserved from day 1, n4: down, n5: nothing.
    cluster = pods(6)
    nodes = (*cluster.nodes[:4], replace(cluster.nodes[4], state=NodeState.DOWN), cluster.nodes[5])
    shared = replace(POINT, current=(NodeGpus(node="n1", gpus=(1,)),))
    jobs = (on(SHORT, "n0", "n1"), shared, on(UNKNOWN, "n2"))
    snapshot = Snapshot(
        cluster=replace(cluster, nodes=nodes), jobs=jobs, calendar=(reserved("r", 1, 2, "n3"), shaped("s", 8, 9, 1))
    )
    assert free_at(snapshot, 0.0).probability.tolist() == [0, 0, 0, 1, 0, 1]
    assert free_at(snapshot, 0.25 * DAY_S).probability.tolist() == [0.5, 0, 0, 1, 0, 1]
    later = free_at(snapshot, 0.5 * DAY_S)
    assert later.probability.tolist() == [0.9, 0.9, 0, 1, 0, 1]
    assert later.certain.tolist() == [False, False, False, True, False, True]
    assert later.expected == pytest.approx(3.8)
    assert free_at(snapshot, DAY_S).probability[3] == 0.0
    assert free_at(snapshot, DAY_S, reservation="r").probability[3] == 1.0
    assert free_at(snapshot, 2 * DAY_S).probability[3] == 1.0
    # The shape becomes n3, the first that is free.
    assert free_at(snapshot, 8 * DAY_S).probability[[3, 5]].tolist() == [0, 1]
    with pytest.raises(InputError, match="past"):
        free_at(snapshot, -1.0)


def test_nodes_that_arrive_are_free_from_then_on() -> None:
    arrival = CalendarEntry(name="a", kind=EntryKind.ARRIVAL, from_s=60.0, nodes=("n0",))
    snapshot = Snapshot(cluster=pods(1), jobs=(), calendar=(arrival,))
    assert [free_at(snapshot, time_s).probability[0] for time_s in (0.0, 59.0, 60.0)] == [0.0, 0.0, 1.0]


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
