"""Which nodes the entries of a calendar are over: shapes become nodes, the same ones every time.

Of the nodes that a shape may be of, an entry gets the first ones in a given order that no other hard entry has at any
moment of its own. Shapes that may be of few nodes choose before those that may be of many, at the same number the
earlier one, then by name; hard reservations choose first, then other hard entries, then soft ones.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from topology.calendar import CalendarEntry, EntryKind, NodeSet, minipod_depth, node_set, sets_of
from topology.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryNodes:
    """positions: entry name -> ascending positions in `Cluster.nodes`; entries that are over are left out.

    crowded: names of hard reservations of a shape that share nodes with others, since there were not enough.
    """

    positions: Mapping[str, tuple[int, ...]]
    crowded: tuple[str, ...]


def entry_nodes(
    cluster: Cluster,
    entries: Sequence[CalendarEntry],
    order: Sequence[int] | None = None,
    own: Mapping[str, Collection[int]] | None = None,
) -> EntryNodes:
    """Give every entry its nodes.

    order: positions of all nodes, those that a shape shall take first in front (None: nodes that are up first).
    own: entry name -> positions that its shape takes before all others, since its jobs run there.
    """
    index = {node.id: n for n, node in enumerate(cluster.nodes)}
    positions = {
        entry.name: tuple(sorted(index[node] for node in entry.nodes))
        for entry in entries
        if entry.shape is None and not entry.is_over
    }
    held = _Held(entries, positions)
    shaped = [entry for entry in entries if entry.shape is not None and not entry.is_over]
    members = _members(cluster, shaped, _up_first(cluster) if order is None else order)
    crowded = []

    def turn(entry: CalendarEntry) -> tuple[int, int, float, str]:
        rank = 0 if _is_exclusive(entry) else 1 if entry.hard else 2
        return rank, len(members[_set_of(entry)]), entry.from_s, entry.name

    for entry in sorted(shaped, key=turn):
        candidates = members[_set_of(entry)]
        mine = (own or {}).get(entry.name, ())
        if mine:
            candidates = sorted(candidates, key=lambda n: n not in mine)
        chosen, shares = _chosen(entry, candidates, held)
        positions[entry.name] = tuple(sorted(chosen))
        held.add(entry, chosen)
        if shares and _is_exclusive(entry):
            crowded.append(entry.name)
    return EntryNodes(positions=positions, crowded=tuple(crowded))


class _Held:
    """What hard entries have of each node: reservations, and closures of any kind."""

    def __init__(self, entries: Sequence[CalendarEntry], positions: Mapping[str, tuple[int, ...]]) -> None:
        self._of: dict[int, list[CalendarEntry]] = {}
        for entry in entries:
            self.add(entry, positions.get(entry.name, ()))

    def add(self, entry: CalendarEntry, positions: Collection[int]) -> None:
        """Note that the entry has nodes."""
        for n in positions if entry.hard else ():
            self._of.setdefault(n, []).append(entry)

    def is_open(self, n: int, entry: CalendarEntry) -> bool:
        """Whether no other hard entry has the node while `entry` lasts."""
        return not any(other.overlaps(entry) for other in self._of.get(n, ()))

    def is_unreserved(self, n: int, entry: CalendarEntry) -> bool:
        """Whether no other hard reservation has the node while `entry` lasts."""
        return not any(other.kind is EntryKind.RESERVATION and other.overlaps(entry) for other in self._of.get(n, ()))


def _chosen(entry: CalendarEntry, candidates: Sequence[int], held: _Held) -> tuple[set[int], bool]:
    """Nodes of one shape, and whether some of them are shared because there were no others."""
    wanted = 0 if entry.shape is None else entry.shape.num_nodes
    rules: list[Callable[[int, CalendarEntry], bool]] = [held.is_open]
    if entry.kind is EntryKind.RESERVATION:
        rules.append(held.is_unreserved)
    chosen: dict[int, None] = {}
    for rule in rules:
        for n in candidates:
            if len(chosen) == wanted:
                return set(chosen), False
            if n not in chosen and rule(n, entry):
                chosen[n] = None
    missing = wanted - len(chosen)
    others = [n for n in candidates if n not in chosen][:missing]
    return {*chosen, *others}, missing > 0


def _is_exclusive(entry: CalendarEntry) -> bool:
    return entry.hard and entry.kind is EntryKind.RESERVATION


def _set_of(entry: CalendarEntry) -> NodeSet:
    return (None, None) if entry.shape is None else node_set(entry.shape)


def _members(cluster: Cluster, shaped: Sequence[CalendarEntry], order: Sequence[int]) -> dict[NodeSet, list[int]]:
    """The nodes of every set that a shape names, in the order given."""
    members: dict[NodeSet, list[int]] = {_set_of(entry): [] for entry in shaped}
    depth = minipod_depth(cluster)
    for n in order if members else ():
        # Without minipods, two of the four are the same.
        for key in dict.fromkeys(sets_of(cluster.nodes[n], depth)):
            if key in members:
                members[key].append(n)
    return members


def _up_first(cluster: Cluster) -> list[int]:
    return sorted(range(len(cluster.nodes)), key=lambda n: cluster.nodes[n].state != "up")


def set_sizes(cluster: Cluster) -> Counter[NodeSet]:
    """How many nodes each set has that a shape may be of."""
    depth = minipod_depth(cluster)
    return Counter(key for node in cluster.nodes for key in dict.fromkeys(sets_of(node, depth)))
