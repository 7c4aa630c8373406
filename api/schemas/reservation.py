"""Calendars of clusters, and reservations in them, as resources of the service."""

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from api.schemas.base import MAX_ITEMS, Document, Name
from api.schemas.calendar import CalendarEntryDoc, ShapeDoc
from api.schemas.problem import IssueDoc
from api.schemas.replay import ClusterSource
from topology.calendar_issues import MAX_ENTRIES


class ReservationStatus(StrEnum):
    """Life of a reservation. proposed: holds nothing yet. confirmed: its nodes are kept. active: it has begun. done: it
    is over. canceled: it was taken back. Which of confirmed, active and done it is, the clock says when it is read."""

    PROPOSED = "proposed"
    CONFIRMED = "confirmed"
    ACTIVE = "active"
    DONE = "done"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        """Whether nothing becomes of it any more."""
        return self in (ReservationStatus.DONE, ReservationStatus.CANCELED)


class CalendarBody(Document):
    """All entries of a calendar; reservations that were confirmed are kept beside them."""

    entries: Annotated[tuple[CalendarEntryDoc, ...], Field(max_length=MAX_ENTRIES)]
    cluster: ClusterSource | None = None
    """Whose nodes they are: a cluster, or `{"snapshot_id": ...}`, that of a stored snapshot. It may be left out where
    the calendar has one, and is as before then."""


class ReservationBody(Document):
    """Nodes for somebody, from then until then. One of `nodes`, `shape` and `plan_id`."""

    cluster: Name
    """Name of the calendar."""
    name: Name
    """What jobs say in `calendar_entry`; no other entry of the calendar has it."""
    from_time: AwareDatetime | None = None
    """RFC 3339 with a time zone; null: when a plan of `ahead` lets the job start, until it is through."""
    until_time: AwareDatetime | None = None
    """The first moment after it (null: it has no end)."""
    nodes: Annotated[tuple[Name, ...], Field(max_length=MAX_ITEMS)] = ()
    shape: ShapeDoc | None = None
    plan_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    """The nodes that this plan gives to a job, with its spares."""
    job_id: Name | None = None
    """Which job of the plan; it may be left out where the plan has one alone."""
    hard: bool = True
    """Without it preemptible jobs use the nodes and make way for the jobs of the reservation."""
    owner: Name | None = None


class ReservationLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    confirm: str
    calendar: str


class ReservationDoc(Document):
    """A reservation."""

    id: str = Field(examples=["reservation-0190f3a2"])
    cluster: str
    status: ReservationStatus
    entry: CalendarEntryDoc
    """As it stands in the calendar once it is confirmed."""
    plan_id: str | None = None
    job_id: str | None = None
    created_at: datetime
    confirmed_at: datetime | None = None
    canceled_at: datetime | None = None
    warnings: tuple[IssueDoc, ...] = ()
    """What was odd about it when it was proposed; pointers into the request."""
    links: ReservationLinksDoc


class ReservationPageQuery(BaseModel):
    """Query parameters of the list of reservations. Not strict: what stands in a URL is text."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    limit: Annotated[int, Field(ge=1, le=500)] = 50
    """Reservations per page."""
    before: Annotated[int, Field(ge=1, lt=2**63)] | None = None
    """Cursor of the next page; see `next`."""
    cluster: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Only those of this calendar."""


class ReservationList(Document):
    """A page of reservations, newest first."""

    reservations: tuple[ReservationDoc, ...]
    next: str | None
    """Path of the next page; null on the last one."""


class CalendarLinksDoc(Document):
    """Where to go from here (paths)."""

    self: str
    icalendar: str
    figure: str
    figure_png: str
    reservations: str


class CalendarDoc(Document):
    """The calendar of a cluster. `version` is its ETag, too: it changes with every entry and every reservation."""

    name: str
    version: int
    updated_at: datetime
    num_nodes: int
    entries: tuple[CalendarEntryDoc, ...]
    reservations: tuple[ReservationDoc, ...]
    """Those that are confirmed or active."""
    warnings: tuple[IssueDoc, ...] = ()
    """What is odd about it now; pointers `/entries/2/...` and `/reservations/0/...`."""
    links: CalendarLinksDoc


_GPU_TYPE: dict[str, Any] = {
    "name": "h100",
    "memory_bytes": 85_899_345_920,
    "peak_flops_per_s": 9.895e14,
    "intra_node_bandwidth_bytes_per_s": 4.5e11,
    "inter_node_bandwidth_bytes_per_s": 5e10,
}
CALENDAR_EXAMPLE: dict[str, Any] = {
    "cluster": {
        "gpu_types": [_GPU_TYPE],
        "tiers": [{"name": "pod"}],
        "minipod_tier": "pod",
        "nodes": [{"id": f"n{k}", "gpu_type": "h100", "num_gpus": 8, "path": [f"pod{k // 2}"]} for k in range(4)],
    },
    "entries": [
        {
            "name": "switches of pod1",
            "kind": "maintenance",
            "from_time": "2026-12-01T06:00:00Z",
            "until_time": "2026-12-01T10:00:00Z",
            "shape": {"num_nodes": 2, "minipod": "pod1"},
            "owner": "network team",
        }
    ],
}
RESERVATION_EXAMPLE: dict[str, Any] = {
    "cluster": "main",
    "name": "175b",
    "from_time": "2026-12-07T09:00:00+01:00",
    "until_time": "2027-01-06T09:00:00+01:00",
    "nodes": ["n0", "n1"],
    "owner": "pre-training",
}
