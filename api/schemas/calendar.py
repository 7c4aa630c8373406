"""Entries of a calendar: who has which nodes when."""

from typing import Annotated

from pydantic import AwareDatetime, Field

from api.schemas.base import MAX_ITEMS, Document, Name
from topology.calendar import EntryKind


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
