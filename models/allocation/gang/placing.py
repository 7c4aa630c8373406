"""From packed items to concrete GPUs, close together and with little breakage.

Whole nodes, largest jobs first: within the smallest topology unit with room, which is the one with the least room, so
that larger units stay whole (`models.placement.nodes.nearest_nodes`). Jobs of one whole node take what is left of the
units with the least room. Items within a node follow the flows of their packing, on nodes of the units with the fewest
whole nodes left, or next to the whole nodes of their job; on a node they take aligned blocks of GPUs.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from models.allocation.gang.packing import Flows
from models.placement.nodes import aligned_block, fullest_units_first, nearest_nodes
from models.placement.occupancy import Slices
from stowplan.arrays import IntMatrix

Demand = tuple[str, int]
"""A job and its number of whole nodes, or the size of its item."""


@dataclass(slots=True, kw_only=True, eq=False)
class Layout:
    """Free GPUs of every node as masks, units (N, L) of the nodes, coarsest tier first, and what jobs were given."""

    free: list[int]
    units: IntMatrix
    given: dict[str, list[tuple[int, int]]] = field(default_factory=dict)

    def slices(self, job_id: str) -> Slices:
        """Nodes and GPUs of a job, by position."""
        return tuple(sorted(self.given[job_id]))

    def lay_out(
        self, nodes: Sequence[int], node_size: int, flows: Flows, whole: Sequence[Demand], items: Sequence[Demand]
    ) -> None:
        """Place whole nodes and items on `nodes`, all of one type, whose packing has the `flows`."""
        available = np.array([n for n in nodes if self.free[n].bit_count() == node_size], dtype=np.int64)
        with_item = {job_id for job_id, _ in items}
        is_near = [count > 1 or job_id in self.given or job_id in with_item for job_id, count in whole]
        near = [demand for demand, needs in zip(whole, is_near, strict=True) if needs]
        alone = [job_id for (job_id, _), needs in zip(whole, is_near, strict=True) if not needs]
        for job_id, count in sorted(near, key=lambda demand: -demand[1]):
            own = [node for node, _ in self.given.get(job_id, ())]
            # A neighbour for the item, where there is one.
            wanted = min(count + (job_id in with_item), available.size)
            chosen = nearest_nodes(available, wanted, self.units, own)[:count]
            available = available[~np.isin(available, chosen)]
            for node in chosen:
                self.give(job_id, node, self.free[node])
        for job_id, node in zip(alone, self._fullest_units_first(available.tolist(), node_size), strict=False):
            self.give(job_id, node, self.free[node])
        self._lay_out_items(nodes, node_size, flows, items)

    def _lay_out_items(
        self, nodes: Sequence[int], node_size: int, flows: Mapping[tuple[int, int], int], items: Sequence[Demand]
    ) -> None:
        """Follow the flows from the highest level down: what an item leaves of a node is there at its new level."""
        if not items:
            return
        levels: list[list[int]] = [[] for _ in range(node_size + 1)]
        for node in reversed(self._fullest_units_first(nodes, node_size)):
            levels[self.free[node].bit_count()].append(node)
        waiting: dict[int, deque[str]] = {}
        # Those that have to be near other nodes choose first.
        for job_id, size in sorted(items, key=lambda demand: demand[0] not in self.given):
            waiting.setdefault(size, deque()).append(job_id)
        for level, size in sorted((arc for arc in flows if arc[1] in waiting), reverse=True):
            for _ in range(min(flows[level, size], len(waiting[size]))):
                job_id = waiting[size].popleft()
                node = self._next(levels[level], job_id)
                self.give(job_id, node, aligned_block(self.free[node], size, 0))
                levels[level - size].append(node)

    def _next(self, nodes: list[int], job_id: str) -> int:
        """Take one of the nodes: the last, or the one next to what the job has."""
        if job_id not in self.given:
            return nodes.pop()
        own = [node for node, _ in self.given[job_id]]
        (node,) = nearest_nodes(np.array(sorted(nodes), dtype=np.int64), 1, self.units, own)
        nodes.remove(node)
        return node

    def give(self, job_id: str, node: int, mask: int) -> None:
        """Let a job have GPUs of a node."""
        self.free[node] &= ~mask
        self.given.setdefault(job_id, []).append((node, mask))

    def _fullest_units_first(self, nodes: Sequence[int], node_size: int) -> list[int]:
        """The nodes, those first whose units have the fewest whole free ones among them."""
        positions = np.array(nodes, dtype=np.int64)
        whole = positions[[self.free[node].bit_count() == node_size for node in nodes]]
        return [int(node) for node in fullest_units_first(positions, whole, self.units)]
