"""Which nodes are free later, and with which probability."""

from dataclasses import replace

import pytest

from models.free_at import free_at
from models.workload import NodeGpus, Snapshot
from stowplan.errors import InputError
from tests.models.calendar_scenes import POINT, SHORT, UNKNOWN, on
from tests.topology.test_calendar import DAY_S, pods, reserved, shaped
from topology.calendar import CalendarEntry, EntryKind
from topology.cluster import NodeState


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
