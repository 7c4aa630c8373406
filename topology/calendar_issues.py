"""What is wrong or odd about a calendar. Pointers are `/calendar/2/...`, with the names of fields in documents."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from stowplan.errors import Issue, Severity, pointer_of
from topology.calendar import CalendarEntry, EntryKind, NodeSet, node_set
from topology.calendar_nodes import EntryNodes, entry_nodes, set_sizes
from topology.cluster import Cluster, Node, NodeState

HORIZON_S = 10 * 365 * 86_400.0
MAX_ENTRIES = 10_000
# Every one of them looks at the nodes that it may be of.
MAX_SHAPES = 200
MAX_NODES_OF_ENTRIES = 1_000_000
# Of two long lists of reservations everything may overlap.
_MAX_OVERLAPS = 100


def calendar_issues(cluster: Cluster, entries: Sequence[CalendarEntry]) -> list[Issue]:
    """Every fault of the calendar of this cluster."""
    if not entries:
        return []
    too_many = list(_size_issues(entries))
    if too_many:
        return too_many
    counts = Counter(entry.name for entry in entries)
    known = {node.id: None for node in cluster.nodes}
    sizes = set_sizes(cluster)
    issues = [
        issue
        for k, entry in enumerate(entries)
        for issue in (*_name_issues(k, entry, counts), *_time_issues(k, entry), *_place_issues(k, entry, known, sizes))
    ]
    return issues or [*_overlaps(entries), *_crowded(cluster, entries)]


def calendar_warnings(cluster: Cluster, entries: Sequence[CalendarEntry]) -> Iterator[Issue]:
    """What is odd about a calendar, which is legal."""
    if not entries:
        return
    node_of = {node.id: node for node in cluster.nodes}
    shut: dict[str, list[CalendarEntry]] = {}
    for entry in entries:
        for node in entry.nodes if entry.kind is not EntryKind.RESERVATION else ():
            shut.setdefault(node, []).append(entry)
    for k, entry in enumerate(entries):
        if entry.is_over:
            detail = f"{entry.name!r} is over; it changes nothing, and may be left out"
            yield _warning("entry_in_the_past", pointer_of("calendar", k), detail)
        elif entry.kind is EntryKind.RESERVATION:
            yield from _reservation_warnings(k, entry, node_of, shut)


def _reservation_warnings(
    k: int, entry: CalendarEntry, node_of: Mapping[str, Node], shut: Mapping[str, Sequence[CalendarEntry]]
) -> Iterator[Issue]:
    """Nodes of a reservation that do not work now, or are closed while it lasts; the first one of each kind."""
    idle = [n for n, node in enumerate(entry.nodes) if node_of[node].state is not NodeState.UP]
    if idle:
        first, count = entry.nodes[idle[0]], len(idle)
        detail = f"node {first!r} is {node_of[first].state} ({count} of the {len(entry.nodes)} nodes do not take work)"
        yield _warning("reserved_node_unavailable", pointer_of("calendar", k, "nodes", idle[0]), detail)
    for n, node in enumerate(entry.nodes):
        other = next((other for other in shut.get(node, ()) if other.overlaps(entry)), None)
        if other is not None:
            detail = f"node {node!r} is reserved by {entry.name!r} while {other.kind} {other.name!r} closes it"
            yield _warning("reserved_node_closed", pointer_of("calendar", k, "nodes", n), detail)
            return


def _size_issues(entries: Sequence[CalendarEntry]) -> Iterator[Issue]:
    num_shapes = sum(entry.shape is not None for entry in entries)
    num_nodes = sum(len(entry.nodes) for entry in entries)
    for count, limit, what in (
        (len(entries), MAX_ENTRIES, "entries"),
        (num_shapes, MAX_SHAPES, "entries over a shape"),
        (num_nodes, MAX_NODES_OF_ENTRIES, "nodes in all entries"),
    ):
        if count > limit:
            yield Issue(code="out_of_range", pointer="/calendar", detail=f"has {count} {what}; at most {limit}")


def _name_issues(k: int, entry: CalendarEntry, counts: Mapping[str, int]) -> Iterator[Issue]:
    if counts[entry.name] > 1:
        detail = f"{entry.name!r} occurs {counts[entry.name]} times; names of entries must be unique"
        yield Issue(code="duplicate_id", pointer=pointer_of("calendar", k, "name"), detail=detail)
    if entry.kind is EntryKind.ARRIVAL and not entry.hard:
        detail = "is false; nodes that have not arrived can be used by nobody, so that an arrival is hard"
        yield Issue(code="soft_arrival", pointer=pointer_of("calendar", k, "hard"), detail=detail)


def _time_issues(k: int, entry: CalendarEntry) -> Iterator[Issue]:
    for name, time_s in (("from_time", entry.from_s), ("until_time", entry.until_s)):
        if time_s is not None and (math.isnan(time_s) or abs(time_s) > HORIZON_S):
            days = time_s / 86_400.0
            detail = f"is {days:.0f} days away; at most 10 years, and no `until_time` for an open end"
            yield Issue(code="beyond_horizon", pointer=pointer_of("calendar", k, name), detail=detail)
    if entry.until_s is None:
        return
    where = pointer_of("calendar", k, "until_time")
    if entry.kind.is_moment:
        detail = f"is given; {entry.kind} {entry.name!r} is of one moment, `from_time`: leave it out"
        yield Issue(code="not_allowed", pointer=where, detail=detail)
    elif entry.until_s <= entry.from_s:
        detail = f"is not after `from_time` ({entry.from_s - entry.until_s:g} s before it); exchange them"
        yield Issue(code="from_after_until", pointer=where, detail=detail)


def _place_issues(
    k: int, entry: CalendarEntry, known: Mapping[str, None], sizes: Mapping[NodeSet, int]
) -> Iterator[Issue]:
    if bool(entry.nodes) == (entry.shape is not None):
        detail = f"{entry.name!r} needs one of `nodes` and `shape`"
        yield Issue(code="one_of", pointer=pointer_of("calendar", k), detail=detail)
    seen: set[str] = set()
    for n, node in enumerate(entry.nodes):
        where = pointer_of("calendar", k, "nodes", n)
        if node not in known:
            detail = (
                f"{entry.name!r} names node {node!r}, which the cluster does not have; it has {next(iter(known))!r}"
            )
            yield Issue(code="unknown_node", pointer=where, detail=detail)
        if node in seen:
            yield Issue(code="listed_twice", pointer=where, detail=f"{node!r} is listed before; list it once")
        seen.add(node)
    if entry.shape is not None:
        yield from _shape_issues(k, entry, node_set(entry.shape), entry.shape.num_nodes, sizes)


def _shape_issues(
    k: int, entry: CalendarEntry, wanted: NodeSet, num_nodes: int, sizes: Mapping[NodeSet, int]
) -> Iterator[Issue]:
    where = pointer_of("calendar", k, "shape")
    if entry.kind is EntryKind.ARRIVAL:
        detail = f"arrival {entry.name!r} has a shape; name the nodes that arrive"
        yield Issue(code="not_allowed", pointer=where, detail=detail)
    if num_nodes < 1:
        detail = f"is {num_nodes}; must be at least 1"
        yield Issue(code="not_positive", pointer=f"{where}/num_nodes", detail=detail)
    gpu_type, minipod = wanted
    if gpu_type is not None and not sizes.get((gpu_type, None)):
        types = sorted({kind for kind, pod in sizes if kind is not None and pod is None})
        detail = f"is {gpu_type!r}, of which the cluster has no node; it has {types}"
        yield Issue(code="unknown_gpu_type", pointer=f"{where}/gpu_type", detail=detail)
    elif minipod is not None and not sizes.get((None, minipod)):
        pods = sorted({pod for kind, pod in sizes if kind is None and pod is not None})
        some = f"such as {pods[0]!r} (path joined by '/')" if pods else "none: no tier is marked as the minipods"
        detail = f"is {minipod!r}, which is no minipod of the cluster; there are {len(pods)}, {some}"
        yield Issue(code="unknown_minipod", pointer=f"{where}/minipod", detail=detail)
    elif num_nodes > sizes.get(wanted, 0):
        detail = f"is {num_nodes}; there are {sizes.get(wanted, 0)} nodes of that type and minipod"
        yield Issue(code="shape_too_large", pointer=f"{where}/num_nodes", detail=detail)


def _overlaps(entries: Sequence[CalendarEntry]) -> Iterator[Issue]:
    """Pairs of hard reservations that name the same node at the same time, each pair once."""
    of_node: dict[str, list[int]] = {}
    for k, entry in enumerate(entries):
        if entry.hard and entry.kind is EntryKind.RESERVATION and not entry.is_over:
            for node in entry.nodes:
                of_node.setdefault(node, []).append(k)
    told: set[tuple[int, int]] = set()
    for node, there in of_node.items():
        last: int | None = None
        for k in sorted(there, key=lambda k: entries[k].begin_s):
            if last is not None and entries[last].overlaps(entries[k]):
                pair = min(last, k), max(last, k)
                if pair not in told and len(told) < _MAX_OVERLAPS:
                    told.add(pair)
                    yield _overlap(pair[1], entries[pair[1]], entries[pair[0]], f"both reserve node {node!r}")
            if last is None or entries[k].end_s > entries[last].end_s:
                last = k


def _crowded(cluster: Cluster, entries: Sequence[CalendarEntry]) -> Iterator[Issue]:
    """Reservations of a shape for which the others do not leave enough nodes."""
    found = entry_nodes(cluster, entries)
    at = {entry.name: k for k, entry in enumerate(entries)}
    for name in found.crowded[:_MAX_OVERLAPS]:
        entry = entries[at[name]]
        other = _sharing(entry, entries, found)
        yield _overlap(at[name], entry, other, "there are not enough nodes of that type and minipod for both")


def _sharing(entry: CalendarEntry, entries: Sequence[CalendarEntry], found: EntryNodes) -> CalendarEntry:
    """The first other hard reservation that has nodes of a crowded one while it lasts."""
    mine = set(found.positions[entry.name])
    return next(
        other
        for other in entries
        if other.name != entry.name
        and other.hard
        and other.kind is EntryKind.RESERVATION
        and other.overlaps(entry)
        and not mine.isdisjoint(found.positions.get(other.name, ()))
    )


def _overlap(k: int, entry: CalendarEntry, other: CalendarEntry, why: str) -> Issue:
    detail = f"hard reservations {entry.name!r} and {other.name!r} overlap: {why}; change one, or make it soft"
    return Issue(code="overlapping_reservations", pointer=pointer_of("calendar", k), detail=detail)


def _warning(code: str, pointer: str, detail: str) -> Issue:
    return Issue(code=code, pointer=pointer, detail=detail, severity=Severity.WARNING)
