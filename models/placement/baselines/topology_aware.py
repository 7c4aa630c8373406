"""Topology-aware placement by dual recursive bi-partitioning (Arnold section 7.1, item 4).

The physical graph (hosts contracted into their minipods, which the core links pairwise) is bisected, and the job graph
along with it, until a part is one minipod. Both bisections are by Fiduccia-Mattheyses on networkx graphs. The job
graph has a vertex per cell; neighbours in a PP group are linked with the affinity of PP groups, neighbours on the ring
of a DP group with that of DP groups.

Readings that the paper leaves open: a job that fits into one half goes there, into the one with fewer free nodes when
it fits into both, as the scheduler packs; else both halves get cells in proportion to their free nodes, within a
tenth, so that the bisection of the job has room to move. It starts from whole rows and from whole columns.
"""

import networkx as nx
import numpy as np

from models.placement.arnold.true_spread.instance import TrueSpreadInstance
from models.placement.baselines.bisection import bisect, cut_weight
from stowplan.arrays import IntMatrix

Cell = tuple[int, int]
_TOLERANCE = 0.1


def topology_aware(instance: TrueSpreadInstance) -> IntMatrix:
    """Minipod indices (R, C) for an instance with room."""
    labels = np.empty((instance.num_rows, instance.num_columns), dtype=np.int64)
    minipods = np.flatnonzero(instance.free_nodes).tolist()
    _map(instance, job_graph(instance), minipods, labels)
    return labels


def job_graph(instance: TrueSpreadInstance) -> "nx.Graph[Cell]":
    """Cells, linked along the pipeline of each row and the ring of each column."""
    rows, columns = instance.num_rows, instance.num_columns
    graph: nx.Graph[Cell] = nx.Graph()
    graph.add_nodes_from((r, c) for r in range(rows) for c in range(columns))
    pipeline = [((r, c), (r, c + 1)) for r in range(rows) for c in range(columns - 1)]
    ring = [((r, c), ((r + 1) % rows, c)) for c in range(columns) for r in range(rows if rows > 2 else rows - 1)]
    graph.add_edges_from(pipeline, weight=1 - instance.alpha)
    graph.add_edges_from(ring, weight=instance.alpha)
    return graph


def _map(instance: TrueSpreadInstance, job: "nx.Graph[Cell]", minipods: list[int], labels: IntMatrix) -> None:
    """Place the cells of `job` on `minipods`, which have room for them."""
    if len(minipods) == 1:
        for cell in job:
            labels[cell] = minipods[0]
        return
    halves = _physical_halves(instance, minipods)
    rooms = [int(instance.free_nodes[half].sum()) for half in halves]
    num = job.number_of_nodes()
    fitting = [k for k in (0, 1) if rooms[k] >= num]
    if fitting:
        _map(instance, job, halves[min(fitting, key=lambda k: rooms[k])], labels)
        return
    fair = num * rooms[0] / sum(rooms)
    low = max(num - rooms[1], int(fair * (1 - _TOLERANCE)))
    high = min(rooms[0], int(fair * (1 + _TOLERANCE)) + 1)
    first = min(max(round(fair), low), high)
    starts = (sorted(job), sorted(job, key=lambda cell: cell[::-1]))
    sides = (bisect(job, set(cells[:first]), (low, high)) for cells in starts)
    side = min(sides, key=lambda cells: cut_weight(job, cells))
    for half, cells in zip(halves, (side, set(job) - side), strict=True):
        _map(instance, nx.Graph(job.subgraph(sorted(cells))), half, labels)


def _physical_halves(instance: TrueSpreadInstance, minipods: list[int]) -> tuple[list[int], list[int]]:
    """Two halves of the minipods with about equally many free nodes."""
    graph: nx.Graph[int] = nx.complete_graph(minipods)
    nx.set_node_attributes(graph, {j: int(instance.free_nodes[j]) for j in minipods}, "weight")
    order = sorted(minipods, key=lambda j: -instance.free_nodes[j])
    start: set[int] = set()
    total, held = int(instance.free_nodes[minipods].sum()), 0
    for j in order:
        if abs(2 * (held + int(instance.free_nodes[j])) - total) <= abs(2 * held - total):
            start.add(j)
            held += int(instance.free_nodes[j])
    off = max(abs(2 * held - total) / 2, _TOLERANCE * total / 2)
    side = bisect(graph, start, (total / 2 - off, total / 2 + off))
    return sorted(side), sorted(set(minipods) - side)
