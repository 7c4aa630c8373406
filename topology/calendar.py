"""The calendar of a cluster: who has which nodes when, and when there are any.

Times are seconds from the moment of the snapshot: negative ones are past. Intervals hold their begin and not their end.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

from stowplan.pickling import quickly_pickled
from topology.cluster import Cluster, Node


class EntryKind(StrEnum):
    """What an entry says of its nodes.

    reservation: only jobs that belong to it may use them. maintenance: nobody may. arrival: they can be used from then
    on; departure: only until then.
    """

    RESERVATION = "reservation"
    MAINTENANCE = "maintenance"
    ARRIVAL = "arrival"
    DEPARTURE = "departure"

    @property
    def is_moment(self) -> bool:
        """Whether an entry of the kind is of one moment, and has no end."""
        return self in (EntryKind.ARRIVAL, EntryKind.DEPARTURE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """So many nodes of a GPU type (None: any) and of a minipod (path joined by "/"; None: any)."""

    num_nodes: int
    gpu_type: str | None = None
    minipod: str | None = None


@quickly_pickled
@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarEntry:
    """One entry, over `nodes` by id or over a `shape`, whichever nodes these will be.

    An arrival or departure is at `from_s`; anything else is from then to `until_s` (None: for ever). A soft entry lets
    preemptible jobs use its nodes: those of a reservation until its jobs can start, others until it begins.
    """

    name: str
    kind: EntryKind
    from_s: float
    until_s: float | None = None
    nodes: tuple[str, ...] = ()
    shape: Shape | None = None
    hard: bool = True
    owner: str = ""

    @property
    def begin_s(self) -> float:
        """When the nodes are closed to others; minus infinity for those that are still to arrive."""
        return -math.inf if self.kind is EntryKind.ARRIVAL else self.from_s

    @property
    def end_s(self) -> float:
        """When the nodes are open to everybody again; infinity for never."""
        if self.kind is EntryKind.ARRIVAL:
            return self.from_s
        return math.inf if self.until_s is None else self.until_s

    @property
    def is_over(self) -> bool:
        """Whether it concerns nobody any more."""
        return self.end_s <= 0.0

    @property
    def in_effect(self) -> bool:
        """Whether the nodes are closed to others now."""
        return self.begin_s <= 0.0 < self.end_s

    def seen_at(self, time_s: float) -> "CalendarEntry":
        """The entry in seconds from then on."""
        until_s = None if self.until_s is None else self.until_s - time_s
        return replace(self, from_s=self.from_s - time_s, until_s=until_s)

    def overlaps(self, other: "CalendarEntry") -> bool:
        """Whether there is a moment at which both close their nodes."""
        return self.begin_s < other.end_s and other.begin_s < self.end_s


NodeSet = tuple[str | None, str | None]
"""GPU type and minipod of the nodes that a shape may be of; None: any."""


def node_set(shape: Shape) -> NodeSet:
    """The nodes that a shape may be of."""
    return shape.gpu_type, shape.minipod


def sets_of(node: Node, depth: int) -> tuple[NodeSet, ...]:
    """The four sets that a node is in; `depth`: tiers down to the minipods (0: there are none)."""
    minipod = "/".join(node.path[:depth]) if depth else None
    return (None, None), (node.gpu_type, None), (None, minipod), (node.gpu_type, minipod)


def minipod_depth(cluster: Cluster) -> int:
    """How many units of a node's path name its minipod; 0 where no tier is marked as the minipods."""
    names = [tier.name for tier in cluster.tiers]
    return 0 if cluster.minipod_tier is None else names.index(cluster.minipod_tier) + 1
