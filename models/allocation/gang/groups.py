"""Groups of nodes: those of one GPU type that the calendar leaves to the same jobs; and packings of a job over them.

Without a calendar a type is one group. With one, a job takes first what the fewest may use, so that nodes that are open
for long are left to those that need them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from models.access import Access
from models.allocation.gang.packing import Packing
from models.allocation.gang.shapes import Shape, TypeRoom
from models.workload import Job, Snapshot
from topology.cluster import NodeState

Items = Mapping[int, int]
"""Number of items by size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Nodes (by position) that take work, of one type and open to the same jobs."""

    gpu_type: int
    name: str
    nodes: tuple[int, ...]


class Groups:
    """The groups of a snapshot, those of a type in a row, in front those that the fewest classes of jobs may use.

    of_node: number of the group of every node; 0 for those that take no work.
    """

    def __init__(self, snapshot: Snapshot, rooms: Sequence[TypeRoom], access: Access) -> None:
        self._access = access
        alike = access.alike(snapshot.jobs).tolist()
        index = {room.name: room.index for room in rooms}
        members: list[dict[int, list[int]]] = [{} for _ in rooms]
        for n, node in enumerate(snapshot.cluster.nodes):
            if node.state is NodeState.UP:
                members[index[node.gpu_type]].setdefault(alike[n], []).append(n)
        found: list[NodeGroup] = []
        self._of_type: list[range] = []
        self.of_node = [0] * len(alike)
        for room, by_kind in zip(rooms, members, strict=True):
            first = len(found)
            # A type without nodes is an empty group.
            for kind in sorted(by_kind) or [0]:
                nodes = tuple(by_kind.get(kind, ()))
                for n in nodes:
                    self.of_node[n] = len(found)
                name = room.name if len(by_kind) < 2 else f"{room.name}/{len(found) - first}"
                found.append(NodeGroup(gpu_type=room.index, name=name, nodes=nodes))
            self._of_type.append(range(first, len(found)))
        self.all: tuple[NodeGroup, ...] = tuple(found)

    def of_type(self, gpu_type: int) -> range:
        """The groups of a type."""
        return self._of_type[gpu_type]

    def open_to(self, job: Job, gpu_type: int) -> tuple[int, ...]:
        """The groups of a type on which a job may start."""
        groups = self._of_type[gpu_type]
        if self._access.is_open:
            return tuple(groups)
        usable = self._access.usable(job)
        return tuple(g for g in groups if self.all[g].nodes and usable[self.all[g].nodes[0]])

    def packing(self, gpu_type: int, free: Sequence[int], node_size: int) -> "GroupedPacking":
        """A packing of the nodes of a type with these free masks, without items."""
        packings = {
            g: Packing((free[node].bit_count() for node in self.all[g].nodes), node_size)
            for g in self._of_type[gpu_type]
        }
        return GroupedPacking(packings)


class GroupedPacking:
    """Packings of the groups of a type, by number."""

    def __init__(self, packings: dict[int, Packing]) -> None:
        self.packings = packings

    def copy(self) -> "GroupedPacking":
        """Another one in the same state."""
        return GroupedPacking({g: packing.copy() for g, packing in self.packings.items()})

    def fits(self, shape: Shape, groups: Sequence[int]) -> bool:
        """Whether `put` would find room."""
        return self.copy().put(shape, groups) is not None

    def put(self, shape: Shape, groups: Sequence[int]) -> Mapping[int, Items] | None:
        """Add the items of a job to these groups, the first ones first: items by group; None, and nothing is changed,
        where no room is found."""
        if len(groups) == 1:
            return {groups[0]: shape.items} if self.packings[groups[0]].put(shape.items) else None
        for with_rest in groups if shape.rest else groups[:1]:
            trial = {g: self.packings[g].copy() for g in groups}
            if shape.rest and not trial[with_rest].put({shape.rest: 1}):
                continue
            found = _put_whole(trial, shape)
            if found is not None:
                self.packings.update(trial)
                if shape.rest:
                    found[with_rest] = {**found.get(with_rest, {}), shape.rest: 1}
                return found
        return None

    def change(self, nodes: Iterable[tuple[int, int, int]]) -> bool:
        """Let nodes have other numbers of free GPUs, (group, before, after) each; see `Packing.change`."""
        by_group: dict[int, list[tuple[int, int]]] = {}
        for g, before, after in nodes:
            by_group.setdefault(g, []).append((before, after))
        if len(self.packings) == 1:
            ((g, packing),) = self.packings.items()
            return packing.change(by_group.get(g, ()))
        trial = {g: self.packings[g].copy() for g in by_group}
        if not all(trial[g].change(changes) for g, changes in by_group.items()):
            return False
        self.packings.update(trial)
        return True

    def num_free(self, groups: Iterable[int]) -> list[int]:
        """Nodes of these groups by free GPUs."""
        return [sum(counts) for counts in zip(*(self.packings[g].left for g in groups), strict=True)]


def _put_whole(packings: Mapping[int, Packing], shape: Shape) -> dict[int, Items] | None:
    """Add the whole nodes of a job, as many as there are of every group; None where that is not enough."""
    found: dict[int, Items] = {}
    missing = shape.num_whole
    for g, packing in packings.items():
        count = _most(packing, shape.node_size, missing)
        if count:
            packing.put({shape.node_size: count})
            found[g] = {shape.node_size: count}
            missing -= count
    return None if missing else found


def _most(packing: Packing, size: int, wanted: int) -> int:
    """Most items of whole nodes, up to `wanted`, that find room."""
    low, high = min(wanted, packing.num_whole), wanted
    while low < high:
        middle = (low + high + 1) // 2
        if packing.fits({size: middle}):
            low = middle
        else:
            high = middle - 1
    return low
