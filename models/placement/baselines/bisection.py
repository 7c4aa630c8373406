"""Bisection of a weighted graph by Fiduccia and Mattheyses ("A linear-time heuristic for improving network partitions",
1982).

A pass moves one vertex after the other, always the one that lowers the cut most (or raises it least) among those that
keep the weight of side 0 within its limits, give or take the heaviest vertex; a moved vertex is locked. At the end the
best state of the pass that is within the limits is kept.
Passes go on while they help. Gains of neighbours are updated at each move. Weights are real numbers, so heaps with
stale entries take the place of the buckets.
"""

import heapq
from collections.abc import Hashable
from typing import TypeVar

import networkx as nx

V = TypeVar("V", bound=Hashable)


def bisect(graph: "nx.Graph[V]", start: set[V], limits: tuple[float, float]) -> set[V]:
    """Side 0 of a bisection with a small cut.

    Parameters
    ----------
    graph
        Edges carry `weight`, vertices may (1 unless given).
    start
        Side 0 to start from, its weight within the limits.
    limits
        Least and greatest weight of side 0.

    Raises
    ------
    ValueError
        When the start is not within the limits.
    """
    if not limits[0] <= _weight(graph, start) <= limits[1]:
        raise ValueError(f"the start weighs {_weight(graph, start)}; it must lie in {limits}")
    side = set(start)
    while (better := _pass(graph, side, limits)) is not None:
        side = better
    return side


def cut_weight(graph: "nx.Graph[V]", side: set[V]) -> float:
    """Weight of the edges between `side` and the rest."""
    return float(nx.cut_size(graph, side, weight="weight"))


def _weight(graph: "nx.Graph[V]", vertices: set[V]) -> float:
    return float(sum(graph.nodes[v].get("weight", 1) for v in vertices))


def _pass(graph: "nx.Graph[V]", start: set[V], limits: tuple[float, float]) -> set[V] | None:
    """One pass; the improved side, None when there is none."""
    side, weight = set(start), _weight(graph, start)
    slack = max(graph.nodes[v].get("weight", 1) for v in graph)
    wide = (limits[0] - slack, limits[1] + slack)
    rank = {v: k for k, v in enumerate(graph)}
    gain = {v: _gain(graph, v, side) for v in graph}
    heap = [(-gain[v], rank[v], v) for v in graph]
    heapq.heapify(heap)
    moved: list[V] = []
    locked: set[V] = set()
    total, best, best_length = 0.0, 1e-9, 0
    while (vertex := _next(graph, heap, gain, side, locked, weight, wide)) is not None:
        total += gain[vertex]
        weight += graph.nodes[vertex].get("weight", 1) * (-1 if vertex in side else 1)
        side ^= {vertex}
        locked.add(vertex)
        moved.append(vertex)
        if total > best and limits[0] <= weight <= limits[1]:
            best, best_length = total, len(moved)
        for other in graph[vertex]:
            if other not in locked:
                gain[other] = _gain(graph, other, side)
                heapq.heappush(heap, (-gain[other], rank[other], other))
    return start ^ set(moved[:best_length]) if best_length else None


def _gain(graph: "nx.Graph[V]", vertex: V, side: set[V]) -> float:
    """What moving the vertex takes off the cut."""
    here = vertex in side
    return float(
        sum(data.get("weight", 1) * (1 if (other in side) != here else -1) for other, data in graph[vertex].items())
    )


def _next(
    graph: "nx.Graph[V]",
    heap: list[tuple[float, int, V]],
    gain: dict[V, float],
    side: set[V],
    locked: set[V],
    weight: float,
    limits: tuple[float, float],
) -> V | None:
    """Best vertex that may move now. Those that may not at present stay in the heap."""
    waiting: list[tuple[float, int, V]] = []
    found = None
    while heap and found is None:
        entry = heapq.heappop(heap)
        vertex = entry[2]
        if vertex in locked or -entry[0] != gain[vertex]:
            continue
        change = graph.nodes[vertex].get("weight", 1) * (-1 if vertex in side else 1)
        if limits[0] <= weight + change <= limits[1]:
            found = vertex
        else:
            waiting.append(entry)
    for entry in waiting:
        heapq.heappush(heap, entry)
    return found
