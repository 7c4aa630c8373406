"""Calendars and reservations: versions, states by the clock, conflicts, restarts, and who wins at the same time."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from pydantic import TypeAdapter

from api.calendars.planned_nodes import PlannedNodes
from api.calendars.reservations import Reservations
from api.calendars.service import Calendars
from api.clusters.service import Clusters
from api.common.errors import (
    CalendarConflictError,
    IdempotencyConflictError,
    NotFoundError,
    PreconditionFailedError,
    PreconditionRequiredError,
    ReservationFinalError,
)
from api.schemas.reservation import (
    CALENDAR_EXAMPLE,
    CalendarBody,
    ReservationBody,
    ReservationDoc,
    ReservationPageQuery,
    ReservationStatus,
)
from api.store.database import Store
from api.store.dialects import sqlite
from api.store.snapshots import Snapshots
from stowplan.errors import InputError, StowplanError
from tests.api.calendars.other_process import Unguarded
from tests.api.requests import Json, json_text

T = TypeVar("T")
# Four nodes n0 to n3 in pod0 and pod1, pod1 in maintenance for four hours a day from now.
START = datetime(2026, 11, 30, 6, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now.timestamp()


class Rooms:
    """The services on one store."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self.clock = clock
        self.calendars = Calendars(store, Snapshots(store), Clusters(store), clock)
        self.reservations = Reservations(store, lambda plan, _: PlannedNodes(nodes=(f"n{len(plan) % 4}",)), clock)

    def write(self, version: int | None = None, **fields: Any) -> int:
        return self.calendars.put("main", read(CalendarBody, {**CALENDAR_EXAMPLE, **fields}), version)[0].version

    def propose(self, name: str, *nodes: str, begin: int = 1, end: int | None = 2, **fields: Any) -> ReservationDoc:
        """From so many hours after the start to so many."""
        return self.reservations.propose(read(ReservationBody, asked(name, *nodes, begin=begin, end=end, **fields)))

    def confirmed(self, name: str, *nodes: str, **fields: Any) -> ReservationDoc:
        return self.reservations.confirm(self.propose(name, *nodes, **fields).id)

    def status(self, reservation: ReservationDoc) -> ReservationStatus:
        return self.reservations.reservation(reservation.id).status


def asked(name: str, *nodes: str, begin: int = 1, end: int | None = 2, **fields: Any) -> Json:
    body: Json = {"cluster": "main", "name": name, "from_time": time_text(begin), "nodes": list(nodes), **fields}
    return body if end is None else {**body, "until_time": time_text(end)}


def time_text(hours: float) -> str:
    return (START + hours * HOUR).isoformat()


def read(kind: type[T], document: Json) -> T:
    return TypeAdapter(kind).validate_json(json_text(document))


@pytest.fixture
def rooms(location: Path | str | None) -> Iterator[Rooms]:
    with closing(Store(location)) as store:
        found = Rooms(store, Clock())
        found.write()
        yield found


def issues(call: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        call()
    return [(issue.code, issue.pointer) for issue in caught.value.issues]


def test_a_calendar_is_written_version_by_version(rooms: Rooms) -> None:
    first = rooms.calendars.calendar("main")
    assert (first.version, first.num_nodes, len(first.entries)) == (1, 4, 1)
    assert first.links.self == "/v1/clusters/main/calendar"
    assert rooms.write(1, entries=[]) == 2
    assert rooms.calendars.calendar("main").entries == ()
    with pytest.raises(PreconditionFailedError, match="it has version 2"):
        rooms.write(1)
    with pytest.raises(PreconditionRequiredError, match="If-Match"):
        rooms.write()
    assert rooms.calendars.calendar("main").entries == (), "nothing was written"
    # The cluster stays as it is where none is given.
    body = read(CalendarBody, {"entries": CALENDAR_EXAMPLE["entries"]})
    assert rooms.calendars.put("main", body, 2)[0].num_nodes == 4
    with pytest.raises(NotFoundError):
        rooms.calendars.calendar("other")
    assert issues(lambda: rooms.calendars.put("other", body, None)) == [("missing_field", "/cluster")]
    with pytest.raises(PreconditionFailedError, match="there is none"):
        rooms.calendars.put("other", read(CalendarBody, CALENDAR_EXAMPLE), 7)


def test_wrong_entries_are_pointed_at(rooms: Rooms) -> None:
    entry = {"name": "m", "kind": "maintenance", "from_time": time_text(2), "until_time": time_text(1), "nodes": ["n9"]}
    assert issues(lambda: rooms.write(1, entries=[entry])) == [
        ("from_after_until", "/entries/0/until_time"),
        ("unknown_node", "/entries/0/nodes/0"),
    ]
    assert issues(lambda: rooms.write(1, cluster={"snapshot_id": "snapshot-0"})) == [
        ("unknown_snapshot", "/cluster/snapshot_id")
    ]
    nodes = [{"id": "n0", "gpu_type": "tpu", "num_gpus": 8, "path": ["pod0"]}]
    cluster = {**CALENDAR_EXAMPLE["cluster"], "nodes": nodes}
    assert issues(lambda: rooms.write(1, cluster=cluster)) == [("unknown_gpu_type", "/cluster/nodes/0/gpu_type")]


@pytest.mark.parametrize(
    ("fields", "code", "pointer"),
    [
        ({"cluster": "other"}, "unknown_cluster", "/cluster"),
        ({"nodes": ["n9"]}, "unknown_node", "/nodes/0"),
        ({"nodes": []}, "one_of", ""),
        ({"plan_id": "plan-1"}, "one_of", ""),
        ({"job_id": "llm"}, "missing_field", "/plan_id"),
        ({"begin": 3}, "from_after_until", "/until_time"),
        ({"begin": -9, "end": -8}, "entry_in_the_past", "/until_time"),
        ({"begin": 24 * 4000, "end": None}, "beyond_horizon", "/from_time"),
        ({"nodes": [], "shape": {"num_nodes": 3, "minipod": "pod0"}}, "shape_too_large", "/shape/num_nodes"),
    ],
)
def test_wrong_reservations_are_pointed_at(rooms: Rooms, fields: Json, code: str, pointer: str) -> None:
    nodes, rest = fields.get("nodes", ["n0"]), {name: fields[name] for name in fields.keys() - {"nodes"}}
    assert issues(lambda: rooms.propose("r", *nodes, **rest)) == [(code, pointer)]


def test_the_life_of_a_reservation_follows_the_clock(rooms: Rooms) -> None:
    found = rooms.propose("r", "n0", "n1")
    assert found.status is ReservationStatus.PROPOSED
    assert rooms.calendars.calendar("main").reservations == (), "what is proposed holds nothing"
    found = rooms.reservations.confirm(found.id)
    assert (found.status, found.confirmed_at) == (ReservationStatus.CONFIRMED, START)
    assert rooms.reservations.confirm(found.id).status is ReservationStatus.CONFIRMED
    for hours, status in (
        (1.0, ReservationStatus.ACTIVE),
        (1.99, ReservationStatus.ACTIVE),
        (2.0, ReservationStatus.DONE),
    ):
        rooms.clock.now = START + hours * HOUR
        assert rooms.status(found) is status
        held = rooms.calendars.calendar("main").reservations
        assert [known.status for known in held] == ([] if status is ReservationStatus.DONE else [status])
    with pytest.raises(ReservationFinalError, match="is over"):
        rooms.reservations.confirm(found.id)
    assert rooms.reservations.remove(found.id) is None
    with pytest.raises(NotFoundError):
        rooms.status(found)


def test_what_is_canceled_holds_nothing(rooms: Rooms) -> None:
    found = rooms.confirmed("r", "n0")
    canceled = rooms.reservations.remove(found.id)
    assert canceled is not None
    assert (canceled.status, canceled.canceled_at) == (ReservationStatus.CANCELED, START)
    with pytest.raises(ReservationFinalError, match="was canceled"):
        rooms.reservations.confirm(found.id)
    assert rooms.confirmed("s", "n0").status is ReservationStatus.CONFIRMED
    assert rooms.reservations.remove(found.id) is None
    late = rooms.propose("late", "n1")
    rooms.clock.now = START + 2 * HOUR
    with pytest.raises(ReservationFinalError, match="is over"):
        rooms.reservations.confirm(late.id)


def test_conflicts_name_both_sides(rooms: Rooms) -> None:
    first, second = rooms.propose("first", "n0", "n1"), rooms.propose("second", "n1", "n2")
    rooms.reservations.confirm(first.id)
    with pytest.raises(CalendarConflictError, match=r"'second'.*'first'.*'n1'") as caught:
        rooms.reservations.confirm(second.id)
    assert [issue.code for issue in caught.value.issues] == ["overlapping_reservations"]
    assert rooms.status(second) is ReservationStatus.PROPOSED
    # Hopeless ones are not taken in the first place; behind it, and softly, there is room.
    with pytest.raises(CalendarConflictError, match="'third'"):
        rooms.propose("third", "n0")
    with pytest.raises(CalendarConflictError, match="names of entries must be unique"):
        rooms.propose("first", "n3")
    with pytest.raises(CalendarConflictError, match="not enough nodes"):
        rooms.propose("pod", shape={"num_nodes": 2, "minipod": "pod0"})
    rooms.confirmed("behind", "n0", begin=2, end=None)
    rooms.confirmed("soft", "n0", hard=False)
    # Nor may the calendar be written so that it excludes what was confirmed.
    entry = {"name": "m", "kind": "reservation", "from_time": time_text(0), "nodes": ["n1"]}
    version = rooms.calendars.calendar("main").version
    with pytest.raises(CalendarConflictError, match=r"'m'.*'first'|'first'.*'m'"):
        rooms.write(version, entries=[entry])
    smaller = {**CALENDAR_EXAMPLE["cluster"], "nodes": CALENDAR_EXAMPLE["cluster"]["nodes"][1:]}
    with pytest.raises(CalendarConflictError, match="'n0', which the cluster does not have"):
        rooms.write(version, cluster=smaller)
    assert rooms.calendars.calendar("main").version == version


def test_what_is_odd_is_said(rooms: Rooms) -> None:
    nodes = [{**node, "state": "drained"} for node in CALENDAR_EXAMPLE["cluster"]["nodes"]]
    closed = {"name": "m", "kind": "maintenance", "from_time": time_text(1), "nodes": ["n1"]}
    over = {**closed, "name": "over", "from_time": time_text(-2), "until_time": time_text(-1)}
    rooms.write(1, cluster={**CALENDAR_EXAMPLE["cluster"], "nodes": nodes}, entries=[closed, over])
    found = rooms.confirmed("r", "n0", "n1")
    assert [(issue.code, issue.pointer) for issue in found.warnings] == [
        ("reserved_node_unavailable", "/nodes/0"),
        ("reserved_node_closed", "/nodes/1"),
    ]
    seen = rooms.calendars.calendar("main").warnings
    assert [(issue.code, issue.pointer) for issue in seen] == [
        ("entry_in_the_past", "/entries/1"),
        ("reserved_node_unavailable", "/reservations/0/entry/nodes/0"),
        ("reserved_node_closed", "/reservations/0/entry/nodes/1"),
    ]


def test_a_plan_names_the_nodes(rooms: Rooms) -> None:
    # The service of these tests gives a plan the node with the number of its letters.
    assert rooms.propose("r", plan_id="abc").entry.nodes == ("n3",)


def test_the_same_request_under_one_key_is_one_reservation(rooms: Rooms) -> None:
    body = read(ReservationBody, asked("r", "n0"))
    first = rooms.reservations.propose(body, "key")
    assert rooms.reservations.propose(body, "key").id == first.id
    with pytest.raises(IdempotencyConflictError):
        rooms.reservations.propose(read(ReservationBody, asked("s", "n0")), "key")


def test_reservations_are_listed_newest_first(rooms: Rooms) -> None:
    made = [rooms.propose(f"r{k}", "n0").id for k in range(3)]
    page = rooms.reservations.page(ReservationPageQuery(limit=2, cluster="main"))
    assert [known.id for known in page.reservations] == made[:0:-1]
    assert page.next is not None
    before = int(page.next.split("before=")[1].split("&")[0])
    rest = rooms.reservations.page(ReservationPageQuery(limit=2, before=before, cluster="main"))
    assert ([known.id for known in rest.reservations], rest.next) == (made[:1], None)
    assert rooms.reservations.page(ReservationPageQuery(cluster="other")).reservations == ()


def test_what_was_confirmed_survives_a_restart(lasting: Path | str) -> None:
    clock = Clock()
    store = Store(lasting)
    before = Rooms(store, clock)
    before.write()
    proposed = before.propose("proposed", "n0", begin=0)
    kept = before.confirmed("kept", "n0")
    store.close()
    store = Store(lasting)
    after = Rooms(store, clock)
    assert after.status(kept) is ReservationStatus.CONFIRMED
    assert [known.id for known in after.calendars.calendar("main").reservations] == [kept.id]
    with pytest.raises(CalendarConflictError, match="'kept'"):
        after.reservations.confirm(proposed.id)
    store.close()


def confirmed_at_once(rooms: Rooms, reservation: ReservationDoc, barrier: threading.Barrier) -> StowplanError | None:
    """Confirm when the other one does; the error that it ends with."""
    barrier.wait()
    try:
        rooms.reservations.confirm(reservation.id)
    except StowplanError as error:
        return error
    return None


@pytest.mark.parametrize("num_stores", [1, 2])
def test_of_two_confirmations_at_the_same_time_one_wins(
    num_stores: int, lasting: Path | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads of one service, or two services with connections of their own to one database."""
    monkeypatch.setattr(sqlite, "DatabaseFile", Unguarded)
    clock = Clock()
    stores = [Store(lasting) for _ in range(num_stores)]
    services = [Rooms(store, clock) for store in stores]
    services[0].write()
    for turn in range(10):
        pair = [services[0].propose(f"{side}{turn}", "n0", begin=turn, end=turn + 1) for side in "ab"]
        with ThreadPoolExecutor(2) as threads:
            barrier = threading.Barrier(2)
            ends = list(threads.map(confirmed_at_once, (services[0], services[-1]), pair, (barrier, barrier)))
        losers = [error for error in ends if error is not None]
        assert len(losers) == 1, ends
        assert isinstance(losers[0], CalendarConflictError)
        assert f"'a{turn}'" in losers[0].detail
        assert f"'b{turn}'" in losers[0].detail
    assert len(services[-1].calendars.calendar("main").reservations) == 10
    for store in stores:
        store.close()


def test_of_two_writers_of_a_version_one_is_told(lasting: Path | str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite, "DatabaseFile", Unguarded)
    clock = Clock()
    stores = [Store(lasting) for _ in range(2)]
    one, other = (Rooms(store, clock) for store in stores)
    one.write()
    assert other.write(1, entries=[]) == 2
    with pytest.raises(PreconditionFailedError):
        one.write(1)
    assert one.calendars.calendar("main").entries == ()
    for store in stores:
        store.close()
