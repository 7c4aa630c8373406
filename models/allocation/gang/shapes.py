"""The shape of a job on a GPU type: as few nodes as possible, all but one of them whole.

With R the GPUs of a whole node, the largest of its type that takes work, a job of g GPUs takes floor(g / R) whole nodes
and g mod R GPUs of one more node. So its shape follows from the type, and what is packed are items of 1 to R GPUs, each
within a node. A job can run on a type where its shape fits when every job of the snapshot has ended; outside work
is not counted on to end. Nodes that the calendar closes to a job are none of its nodes.

Light: imports no solver and no modelling layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.access import Access, AccessClass
from models.workload import Job
from stowplan.arrays import Mask
from topology.cluster import Cluster, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """GPUs of type `gpu_type` (an index): `num_whole` nodes of `node_size` GPUs each, and `rest` GPUs of one more.

    group: number of the group of nodes (see `groups`) that all of them are of, for a job that is backfilled.
    """

    gpu_type: int
    node_size: int
    num_whole: int
    rest: int
    group: int = 0

    @property
    def num_nodes(self) -> int:
        """Nodes of the job."""
        return self.num_whole + (self.rest > 0)

    @property
    def items(self) -> Mapping[int, int]:
        """Number of items by size, largest first."""
        whole = {self.node_size: self.num_whole} if self.num_whole else {}
        return {**whole, self.rest: 1} if self.rest else whole


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRoom:
    """What a GPU type can carry once all jobs have ended; nodes that are drained or down carry nothing.

    node_size: R, 0 without nodes. num_clean: nodes of R GPUs without outside work. most_elsewhere: most GPUs that a
    single one of the other nodes has for jobs.
    """

    name: str
    index: int
    node_size: int
    num_clean: int
    most_elsewhere: int

    def shape(self, num_gpus: int) -> Shape | None:
        """The shape of a job of that size; None where it never fits."""
        if not self.node_size:
            return None
        num_whole, rest = divmod(num_gpus, self.node_size)
        fits = num_whole <= self.num_clean and (rest == 0 or num_whole < self.num_clean or rest <= self.most_elsewhere)
        return Shape(gpu_type=self.index, node_size=self.node_size, num_whole=num_whole, rest=rest) if fits else None


class Shapes:
    """Shapes of jobs on a cluster, made once per size, choice of types, and class of those that may use the same nodes.

    rooms: of every GPU type, in the order of the cluster.
    """

    def __init__(self, cluster: Cluster, access: Access) -> None:
        self.rooms = type_rooms(cluster)
        self._cluster = cluster
        self._access = access
        self._index = {room.name: room.index for room in self.rooms}
        self._rooms_of: dict[AccessClass, tuple[TypeRoom, ...]] = {}
        self._known: dict[tuple[int, tuple[str, ...] | None, AccessClass | None], tuple[Shape, ...]] = {}

    def of(self, job: Job) -> tuple[Shape, ...]:
        """Every shape that the job can have on nodes that the calendar leaves to it now, fewest nodes first, then in
        the order in which the job, or else the cluster, names the types."""
        if self._access.is_open:
            return self.ever(job)
        found = self._access.class_of(job)
        if found not in self._rooms_of:
            self._rooms_of[found] = type_rooms(self._cluster, self._access.usable(job))
        return self._shapes(job, found, self._rooms_of[found])

    def ever(self, job: Job) -> tuple[Shape, ...]:
        """Every shape that the job could have without the calendar, in the same order."""
        return self._shapes(job, None, self.rooms)

    def _shapes(self, job: Job, access: AccessClass | None, rooms: Sequence[TypeRoom]) -> tuple[Shape, ...]:
        key = job.min_gpus, job.gpu_types, access
        if key not in self._known:
            names: Sequence[str] = [room.name for room in rooms] if job.gpu_types is None else job.gpu_types
            shapes = [rooms[self._index[name]].shape(job.min_gpus) for name in dict.fromkeys(names)]
            found = [shape for shape in shapes if shape is not None]
            self._known[key] = tuple(sorted(found, key=lambda shape: shape.num_nodes))
        return self._known[key]


def type_rooms(cluster: Cluster, usable: Mask | None = None) -> tuple[TypeRoom, ...]:
    """What every GPU type can carry, in the order of the cluster; on the nodes `usable` (N,), where that is given."""
    sizes: dict[str, int] = {kind.name: 0 for kind in cluster.gpu_types}
    members: dict[str, list[tuple[int, int]]] = {kind.name: [] for kind in cluster.gpu_types}
    for n, node in enumerate(cluster.nodes):
        if node.state is NodeState.UP:
            sizes[node.gpu_type] = max(sizes[node.gpu_type], node.num_gpus)
            if usable is None or usable[n]:
                members[node.gpu_type].append((node.num_gpus, len(node.gpus_in_use)))
    rooms = []
    for index, (name, nodes) in enumerate(members.items()):
        size = sizes[name]
        others = [num_gpus - num_used for num_gpus, num_used in nodes if num_gpus < size or num_used]
        rooms.append(
            TypeRoom(
                name=name,
                index=index,
                node_size=size,
                num_clean=len(nodes) - len(others),
                most_elsewhere=max(others, default=0),
            )
        )
    return tuple(rooms)
