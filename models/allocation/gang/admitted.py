"""When the calendar lets a job start, were there no other jobs."""

import math
from collections import Counter

from models.access import Access
from models.allocation.gang.shapes import Shapes
from models.open_spans import first_moment_s, open_spans
from models.workload import Job, Snapshot
from topology.calendar import CalendarEntry
from topology.cluster import NodeState


class Admitted:
    """Nodes that take work, counted by type, entries over them, and GPUs beside outside work."""

    def __init__(self, snapshot: Snapshot, shapes: Shapes, access: Access) -> None:
        self._shapes = shapes
        self._windows = access.windows
        index = {room.name: room.index for room in shapes.rooms}
        self._first: dict[tuple[CalendarEntry, ...], int] = {}
        self._counts: list[dict[int, Counter[int]]] = [{} for _ in shapes.rooms]
        for n, node in enumerate(snapshot.cluster.nodes):
            if node.state is NodeState.UP:
                # One node stands for all with the same entries over them.
                alike = self._first.setdefault(self._windows.over.get(n, ()), n)
                counts = self._counts[index[node.gpu_type]].setdefault(alike, Counter())
                counts[node.num_gpus - len(node.gpus_in_use)] += 1

    def in_s(self, job: Job) -> float:
        """Seconds until the job could start on one of its types; infinite for never, or where nobody knows."""
        first_s = math.inf
        for shape in self._shapes.ever(job):
            spans = []
            for n, counts in self._counts[shape.gpu_type].items():
                num_whole = counts[shape.node_size]
                num_rooms = sum(count for size, count in counts.items() if size >= shape.rest)
                closed = self._windows.closed_starts(job, n)
                spans += [(span, num_whole, num_rooms) for span in open_spans(0.0, closed)]
            first_s = min(first_s, first_moment_s(spans, shape.num_whole, shape.num_nodes if shape.rest else 0))
        return first_s
