"""The shape of a job on a GPU type: as few nodes as possible, all but one of them whole.

With R the GPUs of a whole node, the largest of its type that takes work, a job of g GPUs takes floor(g / R) whole nodes
and g mod R GPUs of one more node. So its shape follows from the type, and what is packed are items of 1 to R GPUs, each
within a node. A job can run on a type where its shape fits when every job of the snapshot has ended; outside work
is not counted on to end.

Light: imports no solver and no modelling layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.workload import Job
from topology.cluster import Cluster, NodeState


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """GPUs of type `gpu_type` (an index): `num_whole` nodes of `node_size` GPUs each, and `rest` GPUs of one more."""

    gpu_type: int
    node_size: int
    num_whole: int
    rest: int

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
    """Shapes of jobs on a cluster, made once per size and choice of types."""

    def __init__(self, cluster: Cluster) -> None:
        self.rooms = type_rooms(cluster)
        self._index = {room.name: room.index for room in self.rooms}
        self._known: dict[tuple[int, tuple[str, ...] | None], tuple[Shape, ...]] = {}

    def of(self, job: Job) -> tuple[Shape, ...]:
        """Every shape that the job can have, fewest nodes first, then in the order in which the job, or else the
        cluster, names the types."""
        key = job.min_gpus, job.gpu_types
        if key not in self._known:
            names: Sequence[str] = [room.name for room in self.rooms] if job.gpu_types is None else job.gpu_types
            shapes = [self.rooms[self._index[name]].shape(job.min_gpus) for name in dict.fromkeys(names)]
            found = [shape for shape in shapes if shape is not None]
            self._known[key] = tuple(sorted(found, key=lambda shape: shape.num_nodes))
        return self._known[key]


def type_rooms(cluster: Cluster) -> tuple[TypeRoom, ...]:
    """What every GPU type can carry, in the order of the cluster."""
    members: dict[str, list[tuple[int, int]]] = {kind.name: [] for kind in cluster.gpu_types}
    for node in cluster.nodes:
        if node.state is NodeState.UP:
            members[node.gpu_type].append((node.num_gpus, len(node.gpus_in_use)))
    rooms = []
    for index, (name, nodes) in enumerate(members.items()):
        size = max((num_gpus for num_gpus, _ in nodes), default=0)
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
