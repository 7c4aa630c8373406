"""When the first job that waits can start at the latest, and which nodes are kept for it: its EASY reservation.

A node is whole again when the last job on it ends, and has room for an item when enough of its jobs have ended. The
reservation takes the nodes that allow the earliest start, of all GPU types of the job the one where that is earliest.
Jobs that start behind it may use

  held nodes    for its whole nodes: only if they end by then
  shared node   for its item: if they end by then, or on GPUs that the item leaves over
  open nodes    all others: as they like

so that it starts in time whatever they do. Kept are nodes that the calendar leaves to it from that start on. Where the
end of a job that it waits for is not known, neither is its start: the nodes are then kept until those jobs have ended,
and nothing starts on what it needs of them. Where the calendar rules out a start whenever those jobs end, nothing is
kept.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.allocation.gang.shapes import Shape
from models.open_spans import Closed, first_moment_s, open_spans
from models.placement.nodes import nearest_nodes
from stowplan.arrays import IntMatrix

Use = tuple[int, int, float]
"""GPUs of a job on a node, and the seconds for which it has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A job waits for `shape` on the nodes `held` and `shared`, and starts there `start_s` from now or before.

    start_s: infinite where it is not known. num_over: GPUs of the shared node that the job leaves over by then.
    """

    shape: Shape
    start_s: float
    held: tuple[int, ...]
    shared: int | None
    num_over: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRoom:
    """A node that takes work: its free GPUs, whether it is whole once its jobs have ended, and when the job that waits
    may not start on it by the calendar (`NodeWindows.closed_starts`)."""

    node: int
    free: int
    is_clean: bool
    closed: Closed = ()

    def is_open(self, start_s: float) -> bool:
        """Whether the calendar lets the job start here then."""
        return not any(from_s <= start_s < until_s for from_s, until_s in self.closed)


def promise(
    shape: Shape, nodes: Sequence[NodeRoom], uses: Iterable[Use], units: IntMatrix, nearness_s: float = 0.0
) -> Promise | None:
    """The reservation of a job on the nodes of one type, which its shape fits when all jobs have ended; None where the
    calendar rules out every start. `nearness_s`: how much later than the earliest start, for nodes that are closer."""
    ends: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for node, num_gpus, left_s in uses:
        ends[node].append((left_s, num_gpus))
    whole_s = {
        state.node: max((left_s for left_s, _ in ends[state.node]), default=0.0) for state in nodes if state.is_clean
    }
    room_s: dict[int, float] = {}
    for state in nodes if shape.rest else ():
        when_s = _room_s(state, ends[state.node], shape.rest)
        if when_s is not None:
            room_s[state.node] = when_s
    start_s = _start_s(shape, nodes, whole_s, room_s)
    if start_s < math.inf and shape.num_whole > 1 and nearness_s:
        start_s = _near_s(shape, start_s, start_s + nearness_s, nodes, whole_s, room_s, units)
    by_then_s = start_s
    if start_s == math.inf:
        # Some end nobody knows when; that may be now.
        by_then_s = _start_s(shape, nodes, _if_known(whole_s), _if_known(room_s))
        if by_then_s == math.inf:
            return None
    nodes = [state for state in nodes if state.is_open(by_then_s)]
    whole_s = {state.node: whole_s[state.node] for state in nodes if state.node in whole_s}
    free = {state.node: state.free for state in nodes}
    held = _held(shape, start_s, whole_s, free, units)
    if not shape.rest:
        return Promise(shape=shape, start_s=start_s, held=tuple(held), shared=None, num_over=0)
    taken = set(held)
    others = [
        state for state in nodes if state.node in room_s and state.node not in taken and room_s[state.node] <= start_s
    ]
    # The fullest one: what is free elsewhere is left to others.
    shared = min(others, key=lambda state: (room_s[state.node] == math.inf, state.free, state.node))
    released = sum(num_gpus for left_s, num_gpus in ends[shared.node] if left_s <= start_s)
    return Promise(
        shape=shape,
        start_s=start_s,
        held=tuple(held),
        shared=shared.node,
        num_over=shared.free + released - shape.rest,
    )


def _num_rooms(shape: Shape) -> int:
    """Nodes with room for the item that are needed: whole ones have it, too."""
    return shape.num_whole + 1 if shape.rest else 0


def _start_s(
    shape: Shape, nodes: Sequence[NodeRoom], whole_s: Mapping[int, float], room_s: Mapping[int, float]
) -> float:
    """The first moment at which enough nodes are whole, and enough have room, and are open to the job."""
    spans = []
    for state in nodes:
        for ready_s, is_whole in ((whole_s.get(state.node, math.inf), 1), (room_s.get(state.node, math.inf), 0)):
            spans += [(span, is_whole, 1 - is_whole) for span in open_spans(ready_s, state.closed)]
    return first_moment_s(spans, shape.num_whole, _num_rooms(shape))


def _near_s(
    shape: Shape,
    start_s: float,
    limit_s: float,
    nodes: Sequence[NodeRoom],
    whole_s: Mapping[int, float],
    room_s: Mapping[int, float],
    units: IntMatrix,
) -> float:
    """The first moment at which nodes are whole and open that are as close together as those of the limit; the earliest
    start where these are no closer."""

    def spread(time_s: float) -> tuple[int, ...]:
        ready = sorted(
            state.node for state in nodes if whole_s.get(state.node, math.inf) <= time_s and state.is_open(time_s)
        )
        rooms = sum(room_s.get(state.node, math.inf) <= time_s and state.is_open(time_s) for state in nodes)
        if len(ready) < shape.num_whole or rooms < _num_rooms(shape):
            return (len(units) + 1,)
        chosen = nearest_nodes(np.array(ready, dtype=np.int64), shape.num_whole, units, ())
        return tuple(len(np.unique(column)) for column in units[chosen].T)

    times_s = sorted({start_s, *(time_s for time_s in whole_s.values() if start_s < time_s <= limit_s)})
    best, (low, high) = spread(times_s[-1]), (0, len(times_s) - 1)
    # The more nodes are whole, the closer they are, but for what the calendar closes meanwhile.
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if spread(times_s[middle]) <= best else (middle + 1, high)
    return times_s[low] if spread(times_s[low]) < spread(start_s) else start_s


def _if_known(times_s: Mapping[int, float]) -> dict[int, float]:
    return {node: 0.0 if time_s == math.inf else time_s for node, time_s in times_s.items()}


def _room_s(state: NodeRoom, ends: list[tuple[float, int]], size: int) -> float | None:
    """When the node has `size` free GPUs; infinite where that is not known, None where it never has."""
    free = state.free
    for left_s, num_gpus in [(0.0, 0), *sorted(ends)]:
        free += num_gpus
        if free >= size:
            return left_s
    return None


def _held(shape: Shape, start_s: float, whole_s: dict[int, float], free: dict[int, int], units: IntMatrix) -> list[int]:
    """The whole nodes: close together, where their number leaves a choice."""
    if not shape.num_whole:
        return []
    if start_s == math.inf:
        soonest = sorted(whole_s, key=lambda node: (whole_s[node], -free[node], node))
        return soonest[: shape.num_whole]
    in_time = sorted(node for node, left_s in whole_s.items() if left_s <= start_s)
    return nearest_nodes(np.array(in_time, dtype=np.int64), shape.num_whole, units, ())
