"""Calendars in documents: time stamps with a zone become seconds from the snapshot."""

from datetime import UTC, datetime
from typing import Any

import pytest

from api.convert.reading import read_document
from api.convert.snapshot import snapshot_from_document, snapshot_to_document
from api.schemas.snapshot import SNAPSHOT
from stowplan.errors import InputError, Issue
from tests.api.requests import Json, changed, json_text, sia_request
from topology.calendar import CalendarEntry, EntryKind, Shape

ENTRY: Json = {"name": "llm", "kind": "reservation", "from_time": "2026-12-07T09:00:00+01:00", "nodes": ["n0"]}
SNAPSHOT_WITH_IT: Json = {**sia_request()["snapshot"], "taken_at": "2026-12-07T07:00:00Z", "calendar": [ENTRY]}


def refused(pointer: str, value: Any) -> Issue:
    with pytest.raises(InputError) as caught:
        snapshot_from_document(read_document(SNAPSHOT, json_text(changed(SNAPSHOT_WITH_IT, pointer, value))))
    (issue,) = caught.value.issues
    return issue


def test_times_are_seconds_from_the_snapshot() -> None:
    document = changed(SNAPSHOT_WITH_IT, "/calendar/0/until_time", "2026-12-07T08:00:30.5Z")
    document = changed(
        document,
        "/calendar/1",
        {
            "name": "fabric",
            "kind": "maintenance",
            "from_time": "2026-12-07T06:59:00-00:00",
            "shape": {"num_nodes": 1, "gpu_type": "a"},
            "hard": False,
            "owner": "network team",
        },
    )
    snapshot = snapshot_from_document(read_document(SNAPSHOT, json_text(document)))
    assert snapshot.calendar == (
        # Nine in Berlin is an hour after seven in Greenwich.
        CalendarEntry(name="llm", kind=EntryKind.RESERVATION, from_s=3600.0, until_s=3630.5, nodes=("n0",)),
        CalendarEntry(
            name="fabric",
            kind=EntryKind.MAINTENANCE,
            from_s=-60.0,
            shape=Shape(num_nodes=1, gpu_type="a"),
            hard=False,
            owner="network team",
        ),
    )
    written = snapshot_to_document(snapshot, datetime(2026, 12, 7, 7, tzinfo=UTC))
    assert written.model_dump(mode="json")["calendar"][0]["from_time"] == "2026-12-07T08:00:00Z"
    assert snapshot_from_document(written) == snapshot


@pytest.mark.parametrize("pointer", ["/calendar/0/from_time", "/calendar/0/until_time", "/taken_at"])
def test_a_time_without_a_zone_is_refused(pointer: str) -> None:
    issue = refused(pointer, "2026-12-07T09:00:00")
    assert (issue.code, issue.pointer) == ("missing_time_zone", pointer)
    assert "another moment in every time zone" in issue.detail


@pytest.mark.parametrize(
    ("pointer", "value", "code", "where"),
    [
        ("/taken_at", None, "missing_field", "/taken_at"),
        # Whoever has no service has no stored calendars.
        ("/calendar", {"cluster": "main"}, "stored_calendar", "/calendar"),
        ("/calendar", {"cluster": "main", "version": 3}, "unknown_field", "/calendar/version"),
        ("/calendar", "main", "wrong_type", "/calendar"),
        ("/taken_at", "yesterday", "wrong_format", "/taken_at"),
        ("/taken_at", 1.7e9, "wrong_type", "/taken_at"),
        ("/calendar/0/until_time", "2026-12-07T09:00:00+02:00", "from_after_until", "/calendar/0/until_time"),
        ("/calendar/0/until_time", "2037-12-07T09:00:00Z", "beyond_horizon", "/calendar/0/until_time"),
        ("/calendar/0/nodes/0", "n7", "unknown_node", "/calendar/0/nodes/0"),
        ("/calendar/0/kind", "party", "unknown_value", "/calendar/0/kind"),
        ("/calendar/0/name", "", "wrong_length", "/calendar/0/name"),
        ("/calendar/0/from", "2026-12-07T09:00:00Z", "unknown_field", "/calendar/0/from"),
        ("/calendar/0/shape", {"num_nodes": 0}, "not_positive", "/calendar/0/shape/num_nodes"),
        ("/jobs/0/lasting", {"probabilities": [0.5], "seconds": [1, 2]}, "quantiles", "/jobs/0/lasting/probabilities"),
        (
            "/jobs/0/lasting",
            {"probabilities": [0.0], "seconds": [1]},
            "not_positive",
            "/jobs/0/lasting/probabilities/0",
        ),
    ],
)
def test_what_is_wrong_is_pointed_at(pointer: str, value: Any, code: str, where: str) -> None:
    issue = refused(pointer, value)
    assert (issue.code, issue.pointer) == (code, where), issue
