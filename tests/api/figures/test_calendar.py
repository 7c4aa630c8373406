"""Pictures of calendars: every entry is where its nodes and its times are."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from api.figures.calendar import _last_s, _rows, _runs, render
from api.figures.picture_format import PictureFormat
from api.figures.request import CalendarFigure
from tests.topology.test_calendar import DAY_S, pods, reserved, shaped
from topology.calendar import EntryKind

CLUSTER = pods(2, 3)
ENTRIES = (
    reserved("175b", 2, 9, "n0", "n1", "n4"),
    replace(shaped("soft", 1, None, 1, minipod="p1"), hard=False),
    reserved("switches of the fabric", 0, 1, "n2", kind=EntryKind.MAINTENANCE),
    reserved("over", -2, -1, "n3"),
)


def test_rows_are_nodes_by_minipod() -> None:
    mixed = replace(CLUSTER, nodes=CLUSTER.nodes[::-1])
    assert _rows(mixed) == ({3: 0, 4: 1, 0: 2, 1: 3, 2: 4}, [("p0", 2), ("p1", 3)])
    assert _rows(replace(CLUSTER, minipod_tier=None))[1] == [("", 5)]
    assert list(_runs([0, 1, 4])) == [(0, 2), (4, 1)]


def test_time_goes_a_little_beyond_the_last_end() -> None:
    assert _last_s(ENTRIES) == pytest.approx(1.08 * 9 * DAY_S)
    assert _last_s(()) == pytest.approx(1.08 * DAY_S)


@pytest.mark.parametrize("picture", ["svg", "png"])
def test_every_entry_that_is_not_over_is_drawn(picture: PictureFormat) -> None:
    request = CalendarFigure(
        name="main", cluster=CLUSTER, entries=ENTRIES, taken_at=datetime(2026, 11, 23, tzinfo=UTC), format=picture
    )
    drawn = render(request)
    assert render(request) == drawn
    if picture == "svg":
        assert [f'id="entry-{k}"' in drawn.decode() for k in range(4)] == [True, True, True, False]
        assert "175b" in drawn.decode()
        assert "3 entries, from 2026-11-23 00:00 UTC on" in drawn.decode()
    else:
        assert drawn.startswith(b"\x89PNG")


def test_a_calendar_without_entries_is_drawn() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    drawn = render(CalendarFigure(name="", cluster=CLUSTER, entries=(), taken_at=now, format="svg"))
    assert "5 nodes, 0 entries" in drawn.decode()
