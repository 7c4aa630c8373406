"""Entries of a calendar: what is wrong with them, and which nodes shapes become."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.errors import Severity
from tests.growth import work
from tests.topology.instances import golden_cluster, gpu_type
from topology.calendar import CalendarEntry, EntryKind, Shape
from topology.calendar_issues import MAX_ENTRIES, calendar_issues, calendar_warnings
from topology.calendar_nodes import entry_nodes
from topology.cluster import Cluster, Node, NodeState, Tier

DAY_S = 86_400.0


def pods(*sizes: int, kinds: tuple[str, ...] = ("h800",)) -> Cluster:
    """Minipods p0, p1, ... of so many nodes n0, n1, ..., whose GPU types take turns."""
    of = [p for p, size in enumerate(sizes) for _ in range(size)]
    return Cluster(
        gpu_types=tuple(gpu_type(kind) for kind in kinds),
        tiers=(Tier(name="pod"),),
        minipod_tier="pod",
        nodes=tuple(
            Node(id=f"n{k}", gpu_type=kinds[k % len(kinds)], num_gpus=8, path=(f"p{p}",)) for k, p in enumerate(of)
        ),
    )


def reserved(name: str, begin: float, end: float | None, *nodes: str, **more: object) -> CalendarEntry:
    """A reservation from day to day."""
    until_s = None if end is None else end * DAY_S
    entry = CalendarEntry(
        name=name, kind=EntryKind.RESERVATION, from_s=begin * DAY_S, until_s=until_s, nodes=tuple(nodes)
    )
    return replace(entry, **more)  # type: ignore[arg-type]


def shaped(name: str, begin: float, end: float | None, num_nodes: int, **shape: str) -> CalendarEntry:
    return reserved(name, begin, end, shape=Shape(num_nodes=num_nodes, **shape))


def codes(cluster: Cluster, *entries: CalendarEntry) -> list[tuple[str, str]]:
    return [(issue.code, issue.pointer) for issue in calendar_issues(cluster, entries)]


def test_when_entries_close_their_nodes() -> None:
    reservation = reserved("r", 0, 1, "n0")
    assert (reservation.begin_s, reservation.end_s) == (0.0, DAY_S)
    assert reservation.in_effect, "an interval holds its begin"
    assert reserved("r", -1, 0, "n0").is_over, "and not its end"
    assert not reserved("r", -1, 0, "n0").in_effect
    arrival = replace(reservation, kind=EntryKind.ARRIVAL, from_s=5.0, until_s=None)
    assert (arrival.begin_s, arrival.end_s, arrival.in_effect) == (-math.inf, 5.0, True)
    departure = replace(arrival, kind=EntryKind.DEPARTURE)
    assert (departure.begin_s, departure.end_s, departure.in_effect) == (5.0, math.inf, False)
    assert not reserved("a", 0, 1, "n0").overlaps(reserved("b", 1, 2, "n0"))
    assert reserved("a", 0, None, "n0").overlaps(reserved("b", 1, 2, "n0"))


@pytest.mark.parametrize(
    ("entry", "code", "pointer"),
    [
        (reserved("r", 2, 1, "n0"), "from_after_until", "/until_time"),
        (reserved("r", 1, 1, "n0"), "from_after_until", "/until_time"),
        (reserved("r", 1, 4000, "n0"), "beyond_horizon", "/until_time"),
        (reserved("r", 4000, None, "n0"), "beyond_horizon", "/from_time"),
        (reserved("r", math.nan, None, "n0"), "beyond_horizon", "/from_time"),
        (reserved("r", 1, 2, "n0", "n9"), "unknown_node", "/nodes/1"),
        (reserved("r", 1, 2, "n0", "n0"), "listed_twice", "/nodes/1"),
        (reserved("r", 1, 2), "one_of", ""),
        (reserved("r", 1, 2, "n0", shape=Shape(num_nodes=1)), "one_of", ""),
        (reserved("r", 1, 2, "n0", kind=EntryKind.DEPARTURE), "not_allowed", "/until_time"),
        (reserved("r", 1, None, "n0", kind=EntryKind.ARRIVAL, hard=False), "soft_arrival", "/hard"),
        (replace(shaped("r", 1, None, 1), kind=EntryKind.ARRIVAL), "not_allowed", "/shape"),
        (shaped("r", 1, 2, 0), "not_positive", "/shape/num_nodes"),
        # Of six nodes, p has two h800 and one l20, q two h800 and one l20.
        (shaped("r", 1, 2, 7), "shape_too_large", "/shape/num_nodes"),
        (shaped("r", 1, 2, 4, minipod="p"), "shape_too_large", "/shape/num_nodes"),
        (shaped("r", 1, 2, 5, gpu_type="h800"), "shape_too_large", "/shape/num_nodes"),
        (shaped("r", 1, 2, 2, gpu_type="l20", minipod="q"), "shape_too_large", "/shape/num_nodes"),
        (shaped("r", 1, 2, 1, gpu_type="tpu"), "unknown_gpu_type", "/shape/gpu_type"),
        (shaped("r", 1, 2, 1, minipod="p/a"), "unknown_minipod", "/shape/minipod"),
    ],
)
def test_faults_of_an_entry(entry: CalendarEntry, code: str, pointer: str) -> None:
    assert codes(golden_cluster(), entry) == [(code, f"/calendar/0{pointer}")]


def test_names_are_unique_and_lists_have_limits() -> None:
    twice = (reserved("r", 1, 2, "n0"), reserved("r", 3, 4, "n0"))
    assert codes(pods(1), *twice) == [("duplicate_id", "/calendar/0/name"), ("duplicate_id", "/calendar/1/name")]
    many = [reserved(f"r{k}", 1, 2, "n0", hard=False) for k in range(MAX_ENTRIES + 1)]
    assert codes(pods(1), *many) == [("out_of_range", "/calendar")]
    shapes = [replace(shaped(f"r{k}", 1, 2, 1), hard=False) for k in range(201)]
    assert codes(pods(1), *shapes) == [("out_of_range", "/calendar")]


def test_hard_reservations_of_the_same_node_are_refused_with_both_names() -> None:
    a, b = reserved("a", 1, 3, "n0", "n1"), reserved("b", 2, 4, "n1", "n0")
    (issue,) = calendar_issues(pods(2), (a, b))
    assert issue.code == "overlapping_reservations"
    assert issue.pointer == "/calendar/1"
    assert "'a'" in issue.detail or "'b'" in issue.detail
    assert "'n0'" in issue.detail
    # One behind the other, over other nodes, one of them soft, or both over: no matter.
    assert codes(pods(2), a, reserved("b", 3, 4, "n0")) == []
    assert codes(pods(2), reserved("a", 1, 3, "n0"), reserved("b", 1, 3, "n1")) == []
    assert codes(pods(2), a, replace(b, hard=False)) == []
    assert codes(pods(2), reserved("a", -9, -1, "n0"), reserved("b", -9, -1, "n0")) == []
    # A short one within a long one, behind another short one.
    long = reserved("long", 1, 9, "n0")
    found = calendar_issues(pods(1), (long, reserved("x", 10, 11, "n0"), reserved("y", 7, 8, "n0")))
    assert ["'long'" in issue.detail and "'y'" in issue.detail for issue in found] == [True]


def test_shapes_must_fit_side_by_side() -> None:
    # Four nodes: three in days 1 to 3 leave one, and not two, from day 2 on.
    cluster, a = pods(4), shaped("a", 1, 3, 3)
    assert codes(cluster, a, shaped("b", 2, 4, 1)) == []
    (issue,) = calendar_issues(cluster, (a, shaped("b", 2, 4, 2)))
    assert issue.code == "overlapping_reservations"
    assert "'a'" in issue.detail
    assert "'b'" in issue.detail
    assert codes(cluster, a, shaped("b", 3, 4, 4)) == []
    # Named nodes count: n0 is taken, and p0 has n0 and n1.
    assert codes(pods(2, 2), reserved("a", 1, 3, "n0"), shaped("b", 1, 2, 2, minipod="p0")) != []
    assert codes(pods(2, 2), reserved("a", 1, 3, "n0"), shaped("b", 1, 2, 2)) == []


def test_warnings() -> None:
    cluster = golden_cluster()
    closed = reserved("m", 2, 3, "n0", kind=EntryKind.MAINTENANCE)
    entries = (
        reserved("past", -2, -1, "n0"),
        reserved("r", 1, 9, "n5", "n3", "n4"),
        closed,
        reserved("s", 2.5, 4, "n0"),
        reserved("t", 3, 4, "n1"),
    )
    found = list(calendar_warnings(cluster, entries))
    assert [(issue.code, issue.pointer) for issue in found] == [
        ("entry_in_the_past", "/calendar/0"),
        ("reserved_node_unavailable", "/calendar/1/nodes/1"),
        ("reserved_node_closed", "/calendar/3/nodes/0"),
    ]
    assert all(issue.severity is Severity.WARNING for issue in found)
    assert "2 of the 3" in found[1].detail


def test_shapes_become_nodes() -> None:
    # p0: n0 n1 n2, p1: n3 n4 n5; h800 and l20 take turns.
    cluster = pods(3, 3, kinds=("h800", "l20"))
    entries = (
        shaped("any", 1, 2, 3),
        shaped("pod", 1, 2, 2, minipod="p0"),
        shaped("both", 1, 2, 1, minipod="p0", gpu_type="l20"),
        reserved("named", 1, 2, "n0", hard=False),
    )
    # `both` may be of n1 alone and chooses first, then `pod`, which avoids n1; a soft entry keeps nothing from others.
    assert entry_nodes(cluster, entries).positions == {
        "named": (0,),
        "both": (1,),
        "pod": (0, 2),
        "any": (3, 4, 5),
    }


def test_shapes_take_nodes_in_the_order_given_and_those_of_their_jobs_first() -> None:
    cluster, entry = pods(4), shaped("r", 1, 2, 2)
    assert entry_nodes(cluster, (entry,), order=[3, 1, 0, 2]).positions == {"r": (1, 3)}
    assert entry_nodes(cluster, (entry,), order=[3, 1, 0, 2], own={"r": {2}}).positions == {"r": (2, 3)}
    drained = replace(cluster, nodes=(replace(cluster.nodes[0], state=NodeState.DRAINED), *cluster.nodes[1:]))
    assert entry_nodes(drained, (entry,)).positions == {"r": (1, 2)}


def test_a_shape_leaves_nodes_in_maintenance_for_last() -> None:
    cluster = pods(3)
    closed = reserved("m", 1, 2, "n0", "n1", kind=EntryKind.MAINTENANCE)
    found = entry_nodes(cluster, (closed, shaped("r", 1, 2, 2)))
    assert found.positions["r"] == (0, 2)
    assert found.crowded == ()
    assert entry_nodes(cluster, (closed, shaped("r", 2, 3, 2))).positions["r"] == (0, 1)
    gone = (shaped("r", -2, -1, 2),)
    assert entry_nodes(cluster, gone).positions == {}


@st.composite
def calendars(draw: st.DrawFn) -> tuple[CalendarEntry, ...]:
    """Reservations and other entries over named nodes and shapes of `pods(3, 3, kinds=...)`."""
    entries = []
    for k in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(-3, 6))
        kind = draw(st.sampled_from([*[EntryKind.RESERVATION] * 3, EntryKind.MAINTENANCE, EntryKind.DEPARTURE]))
        end = None if kind.is_moment else begin + draw(st.integers(1, 4))
        if draw(st.booleans()):
            nodes = draw(st.lists(st.sampled_from([f"n{n}" for n in range(6)]), min_size=1, max_size=3, unique=True))
            entry = reserved(f"e{k}", begin, end, *nodes)
        else:
            minipod, chosen = draw(st.sampled_from([None, "p0", "p1"])), draw(st.sampled_from([None, "h800", "l20"]))
            shape = Shape(num_nodes=draw(st.integers(1, 2)), minipod=minipod, gpu_type=chosen)
            entry = reserved(f"e{k}", begin, end, shape=shape)
        entries.append(replace(entry, kind=kind, hard=draw(st.booleans())))
    return tuple(entries)


@given(entries=calendars(), order=st.permutations(range(6)))
@settings(max_examples=200, deadline=None)
def test_shapes_get_as_many_nodes_as_they_ask_for_and_share_none(
    entries: tuple[CalendarEntry, ...], order: list[int]
) -> None:
    cluster = pods(3, 3, kinds=("h800", "l20"))
    if calendar_issues(cluster, entries):
        return
    for found in (entry_nodes(cluster, entries), entry_nodes(cluster, entries, order)):
        assert found.positions.keys() == {entry.name for entry in entries if not entry.is_over}
        for entry in entries:
            if entry.shape is not None and not entry.is_over:
                nodes = [cluster.nodes[n] for n in found.positions[entry.name]]
                # The only one that is too large is refused before.
                assert len(nodes) == entry.shape.num_nodes
                assert all(entry.shape.gpu_type in (None, node.gpu_type) for node in nodes)
                assert all(entry.shape.minipod in (None, *node.path) for node in nodes)
        hard = [e for e in entries if e.hard and e.kind is EntryKind.RESERVATION and not e.is_over]
        if found.crowded:
            continue
        for k, one in enumerate(hard):
            for other in hard[:k]:
                if one.overlaps(other):
                    assert set(found.positions[one.name]).isdisjoint(found.positions[other.name])


@pytest.mark.parametrize("in_pods", [False, True])
def test_cost_grows_with_nodes_and_entries(in_pods: bool) -> None:
    def cost(size: int) -> int:
        cluster = pods(*[10] * size)
        named = [reserved(f"r{k}", k % 7, k % 7 + 1, f"n{k}") for k in range(size * 10)]
        places = [{"minipod": f"p{k}"} if in_pods else {} for k in range(5)]
        some = [shaped(f"s{k}", 8, 9, 2, **place) for k, place in enumerate(places)]
        return work(lambda: (calendar_issues(cluster, [*named, *some]), list(calendar_warnings(cluster, named))))

    cost(5)
    assert cost(40) <= 2.3 * cost(20)
