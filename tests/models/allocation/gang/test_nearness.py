"""Nodes that are promised to the job that is next, a little later and closer together.

    rack a0: a0 until 10 s, a1 until 20 s      rack a1: a2 free, a3 until 300 s

The next job wants two nodes: a0 and a2 in 10 s, or a0 and a1 in 20 s.
"""

import pytest

from models.allocation.gang.check import gang_violations
from models.allocation.gang.parameters import GangParameters
from models.workload import Job, Snapshot
from tests.models.allocation.gang.scenes import cluster, planned, queue, reasons, running, started
from topology.calendar import CalendarEntry, EntryKind

STAYS = {"preemptible": False}
RUNNING = (
    running("r0", 10.0, a0=range(8), also=STAYS),
    running("r1", 20.0, a1=range(8), also=STAYS),
    running("r3", 300.0, a3=range(8), also=STAYS),
)
WHERE = cluster(8, 8, 8, 8)


def snapshot(*jobs: Job, calendar: tuple[CalendarEntry, ...] = ()) -> Snapshot:
    return Snapshot(cluster=WHERE, jobs=(*RUNNING, *jobs), calendar=calendar)


def promised(parameters: GangParameters, of: Snapshot) -> tuple[float, tuple[int, ...]]:
    (made,) = planned(of, parameters)[0].instance.admission.promises.values()
    return made.start_s, made.held


@pytest.mark.parametrize(
    ("nearness_s", "start_s", "held", "starts"),
    [(0.0, 10.0, (0, 2), {}), (9.9, 10.0, (0, 2), {}), (10.0, 20.0, (0, 1), {"behind": ["a2"]})],
)
def test_closer_nodes_are_promised_and_others_start_on_those_between(
    nearness_s: float, start_s: float, held: tuple[int, ...], starts: dict[str, list[str]]
) -> None:
    of = snapshot(*queue(("next", 16, 50.0), ("behind", 8, 1000.0)))
    parameters = GangParameters(nearness_s=nearness_s)
    assert promised(parameters, of) == (start_s, held)
    plan = planned(of, parameters)[2]
    assert started(plan) == starts
    assert reasons(plan).keys() == {"next", "behind"} - starts.keys()


def test_the_check_allows_so_much_and_no_more() -> None:
    of = snapshot(*queue(("next", 16, 50.0), ("behind", 8, 1000.0)))
    _, result, plan = planned(of, GangParameters(nearness_s=10.0))
    assert result.objective is not None
    (issue,) = gang_violations(of, GangParameters(nearness_s=9.0), plan, result.objective)
    assert issue.code == "next_job_delayed"


def test_nodes_that_are_no_closer_are_not_waited_for() -> None:
    # Three nodes are in both racks, whenever they start.
    of = snapshot(*queue(("next", 24, 50.0)))
    assert promised(GangParameters(nearness_s=500.0), of) == promised(GangParameters(), of) == (20.0, (0, 1, 2))


def test_nodes_that_the_calendar_closes_by_then_are_not_waited_for() -> None:
    closed = CalendarEntry(name="fans", kind=EntryKind.MAINTENANCE, from_s=65.0, nodes=("a1",))
    of = snapshot(*queue(("next", 16, 50.0)), calendar=(closed,))
    assert promised(GangParameters(nearness_s=10.0), of) == (10.0, (0, 2))


def test_it_starts_apart_where_that_is_at_once() -> None:
    of = Snapshot(cluster=WHERE, jobs=(RUNNING[0], RUNNING[2], *queue(("next", 16, 50.0))))
    assert started(planned(of, GangParameters(nearness_s=100.0))[2]) == {"next": ["a1", "a2"]}
