"""Entries of a calendar: who has which nodes when."""

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Discriminator, Field, Tag

from api.schemas.base import MAX_ITEMS, Document, Name
from api.schemas.problem import IssueDoc
from topology.calendar import EntryKind
from topology.calendar_issues import MAX_ENTRIES


class ShapeDoc(Document):
    """So many nodes, whichever these will be."""

    num_nodes: Annotated[int, Field(ge=1, le=MAX_ITEMS)]
    gpu_type: Name | None = None
    """Their GPU type (null: any)."""
    minipod: Name | None = None
    """Their minipod: the units of a node's path down to it, joined by "/" (null: any)."""


class CalendarEntryDoc(Document):
    """Nodes that are kept for somebody, closed, still to come or about to go. One of `nodes` and `shape`."""

    name: Name
    kind: EntryKind
    """reservation: only jobs whose `calendar_entry` names it use the nodes; maintenance: nobody does; arrival: they can
    be used from `from_time` on; departure: only until then."""
    from_time: AwareDatetime
    """RFC 3339 with a time zone, such as 2026-12-07T09:00:00Z."""
    until_time: AwareDatetime | None = None
    """The first moment after the entry (null: it has no end). Arrivals and departures have none."""
    nodes: Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)] = ()
    shape: ShapeDoc | None = None
    hard: bool = True
    """Without it preemptible jobs use the nodes and make way: for the jobs of a reservation, or when it begins."""
    owner: Name | None = None
    """For whom or why, in words."""


class CalendarReference(Document):
    """The calendar that the service has under this name (`PUT /v1/clusters/{name}/calendar`), with the reservations
    that are confirmed, as it is when the request is read."""

    cluster: Name


def _which_calendar(value: Any) -> str:
    return "stored" if isinstance(value, dict | CalendarReference) else "inline"


CalendarSource = Annotated[
    Annotated[tuple[CalendarEntryDoc, ...], Field(max_length=MAX_ENTRIES), Tag("inline")]
    | Annotated[CalendarReference, Tag("stored")],
    Discriminator(_which_calendar),
]


class ListedEntryDoc(Document):
    """An entry as it is listed."""

    entry: CalendarEntryDoc
    status: Literal["ahead", "now", "over"]
    """At the moment of the snapshot."""
    nodes: tuple[str, ...]
    """Which nodes it is over; those of a shape where nothing runs. Empty while something is wrong with the calendar."""


class CalendarListingDoc(Document):
    """What `stowplan calendar` gives."""

    entries: tuple[ListedEntryDoc, ...]
    issues: tuple[IssueDoc, ...]
