"""Calendars as iCalendar, read by a library that others read them with."""

from datetime import UTC, datetime, timedelta, timezone

import icalendar
from hypothesis import given
from hypothesis import strategies as st

from api.convert.icalendar import icalendar_of
from api.schemas.base import NAME_PATTERN
from api.schemas.calendar import CalendarEntryDoc, ShapeDoc
from topology.calendar import EntryKind

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
MAINTENANCE = CalendarEntryDoc(
    name="fabric, part 1; spine\\leaf",
    kind=EntryKind.MAINTENANCE,
    from_time=datetime(2026, 12, 1, 8, tzinfo=timezone(timedelta(hours=2))),
    until_time=datetime(2026, 12, 1, 9, tzinfo=UTC),
    nodes=tuple(f"node-{k}" for k in range(25)),
    owner="network team",
)


def test_an_event_an_entry() -> None:
    open_end = CalendarEntryDoc(
        name="175b",
        kind=EntryKind.RESERVATION,
        from_time=NOW,
        shape=ShapeDoc(num_nodes=64, gpu_type="h100", minipod="a/b"),
        hard=False,
    )
    calendar = icalendar.Calendar.from_ical(icalendar_of((MAINTENANCE, open_end), NOW, "main"))
    assert (calendar["VERSION"], calendar["X-WR-CALNAME"]) == ("2.0", "main")
    first, second = calendar.walk("VEVENT")
    assert first["SUMMARY"] == "maintenance fabric, part 1; spine\\leaf"
    assert first.decoded("DTSTAMP") == NOW
    # Eight in a zone two hours ahead.
    assert first.decoded("DTSTART") == datetime(2026, 12, 1, 6, tzinfo=UTC)
    assert first.decoded("DTEND") == datetime(2026, 12, 1, 9, tzinfo=UTC)
    lines = str(first["DESCRIPTION"]).split("\n")
    assert lines[0].startswith("25 nodes: node-0, node-1, ")
    assert lines[0].endswith("node-19 and 5 more")
    assert lines[1:] == ["owner: network team"]
    assert "DTEND" not in second
    assert str(second["DESCRIPTION"]).split("\n") == [
        "64 nodes of h100 in a/b",
        "soft: preemptible jobs may use the nodes and make way",
        "no end",
    ]
    assert first["UID"] != second["UID"]


def test_the_same_entry_is_the_same_event_later() -> None:
    texts = [icalendar_of((MAINTENANCE,), NOW + timedelta(days=day), "main") for day in (0, 1)]
    events = [icalendar.Calendar.from_ical(text).walk("VEVENT")[0] for text in texts]
    assert events[0]["UID"] == events[1]["UID"]


@given(name=st.from_regex(NAME_PATTERN.replace("+$", "{1,80}$"), fullmatch=True))
def test_any_name_survives_in_short_lines(name: str) -> None:
    text = icalendar_of((MAINTENANCE.model_copy(update={"name": name}),), NOW, name)
    assert all(len(line.encode()) <= 75 for line in text.split("\r\n"))
    (event,) = icalendar.Calendar.from_ical(text).walk("VEVENT")
    assert event["SUMMARY"] == f"maintenance {name}"
