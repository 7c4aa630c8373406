"""Arnold behind gang, and the calendar, on a connected cluster."""

from datetime import datetime

from executor.connected.kubernetes.told import Patience
from executor.connected.planning import PlacedByArnold
from executor.control.events import Arrival, CalendarChange
from models.placement.arnold.parameters import ArnoldParameters
from stowplan.errors import InputError
from tests.executor.connected.kubernetes.scenes import connected, gang, nodes, served, until, where
from tests.waiting import eventually
from topology.calendar import CalendarEntry, EntryKind


def test_a_job_that_says_its_degrees_is_placed_by_arnold_in_rank_order() -> None:
    """Leaves n0 n1 | n2 n3 | n4 n5; TP 8, PP 2, DP 2: ranks are stage-major, so PP groups are every other pod."""
    pods = gang("large", 4, notes={"stowplan/parallelism": '{"tp": 8, "pp": 2, "dp": 2}'})
    planner = PlacedByArnold(ArnoldParameters(alpha=0.0))
    with served(("nodes", nodes(6)), ("pods", pods)) as server, connected(server, planner=planner) as connection:
        server.binds = True
        connection.step()
        found = [int(str(name)[1:]) // 2 for name in where(server, "large")]
        assert len({found[0], found[2]}) == len({found[1], found[3]}) == 1
        assert found[0] != found[1]


def closed(name: str, *nodes: str, from_s: float = 0.0) -> CalendarEntry:
    return CalendarEntry(name=name, kind=EntryKind.MAINTENANCE, from_s=from_s, until_s=None, nodes=nodes, hard=True)


def test_nodes_that_the_calendar_closes_get_nothing_and_it_is_looked_at_again() -> None:
    known = [(closed("m", "n0", "n1"),)]

    def news(_now: datetime) -> tuple[CalendarEntry, ...] | None:
        return known.pop(0) if known else None

    patience = Patience(settle_s=0.0, calendar_s=0.05)
    with (
        served(("nodes", nodes(3)), ("pods", gang("train", 2))) as server,
        connected(server, calendar=news, patience=patience) as connection,
    ):
        server.binds = True
        connection.step()
        assert server.writes() == []
        known.append((closed("m", "n0"),))
        (change,) = until(connection, CalendarChange)
        assert [entry.nodes for entry in change.entries] == [("n0",)]
        assert where(server, "train") == ["n1", "n2"]


def test_a_calendar_that_cannot_be_had_stays_as_it_was_and_is_told() -> None:
    calls = []

    def news(_now: datetime) -> tuple[CalendarEntry, ...] | None:
        calls.append(1)
        if len(calls) > 1:
            raise InputError("calendar.json: no such file")
        return (closed("m", "n0"),)

    patience = Patience(settle_s=0.0, calendar_s=0.0)
    with served(("nodes", nodes(2))) as server, connected(server, calendar=news, patience=patience) as connection:
        server.put("pods", gang("train", 1)[0])
        until(connection, Arrival)
        assert where(server, "train") == [None]
        assert server.writes() != []
        assert server.bind() == 1
        assert where(server, "train") == ["n1"]
        eventually(lambda: [line for line in connection.said if "no such file" in line])
